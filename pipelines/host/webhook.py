"""Tells a webhook what needs attention, as Overview groups it, and what is over: each once.

Rule: of several hosts that share a store the leader tells; what was told is in the store. The address is a secret: no
text holds it, whatever the receiver answers.
"""

import json
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from http.client import HTTPException
from urllib.error import HTTPError

import structlog

from backend.health.attention import group_text, grouped, load_attention
from backend.health.model import AttentionGroup, AttentionItem, Cause, Severity
from backend.lake.lake import Lake
from backend.redaction import without_secrets
from backend.settings import Settings
from backend.store.annotations import Item
from backend.store.store import ControlStore
from backend.streams.backlog import BacklogReader
from backend.streams.status import Newest, statuses
from pipelines.host.periodic import Rounds

NEW_AFTER, OVER_AFTER = timedelta(seconds=30), timedelta(minutes=2)  # what comes and goes is told once
FIRST_WAIT_S, LONGEST_WAIT_S = 15.0, 900.0  # for the next try
_ANSWER_LIMIT_S = 10.0
_MOST_TEXT = 3_000  # characters
_SEVERAL = (Cause.UNUSUAL_COMMIT, Cause.BROKEN_EXPECTATION)  # of one table

log = structlog.get_logger()


class Webhook:
    """`lake`: may be shared with others who pass by every table."""

    def __init__(self, settings: Settings, lake: Lake, store: ControlStore, clock: Callable[[], datetime]) -> None:
        self._settings, self._lake, self._store, self._clock = settings, lake, store, clock
        self._backlogs, self._newest = BacklogReader(settings, lake), Newest()
        self._severities = tuple(Severity)[: list(Severity).index(Severity(settings.notify.severity)) + 1]
        self._differs: dict[Item, datetime] = {}  # since when, from what was told
        self._failures, self._waits_until = 0, clock()

    def tell(self, rounds: Rounds) -> None:
        """One round; raises `StoreError`, `StorageError`. While it waits for the next try, another host may tell."""
        now = self._clock()
        if now < self._waits_until:
            rounds.step_down()
            return
        present = {_item_of(item): group for group in self._groups(now) for item in group.items}
        told = self._store.told.items()
        self._differs = {item: self._differs.get(item, now) for item in present.keys() ^ told}
        due = {
            item
            for item, since in self._differs.items()
            if now - since >= (NEW_AFTER if item in present else OVER_AFTER)
        }
        for about in sorted({item[:2] for item in due}):
            if not rounds.leads():
                return
            here, before = ({item for item in items if item[:2] == about} for items in (present, told))
            message, told = None, told - (due & before)
            if new := due & here:
                told |= here
                groups = dict.fromkeys(present[item] for item in sorted(new))
                text = "\n".join(f"{group_text(group)}\n→ {group.next_step}" for group in groups)
                message = _message("new", about, text, [item[2] for item in here])
            elif before <= due and about[0] in self._severities:
                subjects = sorted({subject for _, _, subject, _ in before})
                message = _message(
                    "ended", about, f"over: {about[1].replace('_', ' ')}: {', '.join(subjects)}", subjects
                )
            if message and (error := self._posted(message)):
                self._failed(error, now)
                return
            self._failures = 0
            self._store.told.keep(told)

    def _groups(self, now: datetime) -> tuple[AttentionGroup, ...]:
        """What needs attention and is severe enough."""
        stale_s = self._settings.host.heartbeat_stale_s
        streams = statuses(self._store, self._backlogs, now=now, heartbeat_stale_s=stale_s, newest=self._newest)
        seen = self._lake.seen_by(self._settings.auth.actor(""))  # who reads it there, nobody knows
        items = load_attention(self._settings, self._store, seen.cards(), streams, hidden_at=seen.hidden_at, now=now)
        return grouped([i for i in items if i.severity in self._severities and i.cause is not Cause.FAILING_WEBHOOK])

    def _posted(self, message: Mapping[str, object]) -> str:
        """Why it could not be told; empty where it was."""
        request = urllib.request.Request(
            self._settings.notify.webhook.get_secret_value(),
            data=json.dumps(message).encode(),
            headers={"Content-Type": "application/json", "User-Agent": "weir"},
        )
        try:
            with _OPENER.open(request, timeout=_ANSWER_LIMIT_S):
                log.info("webhook_told", **{name: message[name] for name in ("status", "severity", "cause")})
                return ""
        except HTTPError as exc:
            exc.close()
            return f"the webhook answers HTTP {exc.code}"
        except HTTPException:  # which quotes the answer
            return "the webhook does not answer in HTTP"
        except OSError as exc:
            return without_secrets(f"the webhook does not answer: {getattr(exc, 'reason', exc)}")

    def _failed(self, error: str, now: datetime) -> None:
        wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**self._failures)
        self._failures, self._waits_until = min(self._failures + 1, 10), now + timedelta(seconds=wait_s)
        log.warning("webhook_failed", error=error, next_try_in_s=wait_s)
        self._store.told.failed(error, now=now)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """What is told goes to the address of the settings, and nowhere else."""

    def redirect_request(self, *_: object) -> None:
        """None: the redirect is an error."""


_OPENER = urllib.request.build_opener(_NoRedirects)


def _item_of(item: AttentionItem) -> Item:
    since = item.since.isoformat() if item.since and item.cause in _SEVERAL else ""
    return item.severity.value, item.cause.value, item.subject, since


def _message(status: str, about: tuple[str, ...], words: str, subjects: Iterable[str]) -> dict[str, object]:
    """`text` as Slack shows it: what a table or an error is called mentions nobody there."""
    text = without_secrets(words)[:_MOST_TEXT].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    severity, cause = about
    return {"text": text, "status": status, "severity": severity, "cause": cause, "subjects": sorted(set(subjects))}
