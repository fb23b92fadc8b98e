"""What commits did that none before them did, found by whoever shows it where no stream host lives.

Rule: by the judge of hosts, kept in memory and written nowhere. The tables written last come first, and after every few
versions it rests: pages need the interpreter too. It ends when nobody looks any more.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from backend.health.health import LakeJudge
from backend.lake.model import TableCard
from backend.search.notice import Key, Notice
from backend.search.notices import NoticeLake, NoticeLooks

MOST_TABLES = 1_000  # a host looks at all
BACK, SILENT_BACK = timedelta(days=7), timedelta(hours=1)  # at first, and for what fell silent since
SILENCES_EVERY_S = 300.0  # silence is told after an hour
REST, MOST_REST_S = 2.0, 2.0  # times what a step took
_EARLIEST = datetime.min.replace(tzinfo=UTC)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NoticedSoFar:
    """`notices`: that somebody has to look at, newest first; found at `num_seen` of the `num_wanted` tables written
    last, of `num_tables`. All are 0 where hosts look."""

    notices: tuple[Notice, ...]
    num_seen: int = 0
    num_wanted: int = 0
    num_tables: int = 0

    @property
    def is_partial(self) -> bool:
        return self.num_seen < self.num_wanted


class NoticeWatch:
    """Thread-safe. `lake`: of its own, since it passes by every table."""

    def __init__(
        self, lake: NoticeLake, now: Callable[[], datetime], sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self._now, self._since = now, now() - BACK
        self._streams: Mapping[str, str] = {}
        self._looks = NoticeLooks(lake, lambda: self._streams, lambda took_s: sleep(min(MOST_REST_S, REST * took_s)))
        self._found: dict[str, Mapping[Key, Notice]] = {}  # by table; each is replaced as a whole
        self._judge = LakeJudge(
            self._look,
            lambda looked, card: looked[0] is card and time.monotonic() - looked[1] < SILENCES_EVERY_S,
            lambda card: -_written_at(card).timestamp(),
            patience_s=0.0,
        )

    def found(
        self, cards: Sequence[TableCard], known: Iterable[Notice], seen: frozenset[Key], streams: Mapping[str, str]
    ) -> NoticedSoFar:
        """What is found so far at the tables of these cards; the rest follows. `known`: what hosts noticed while they
        lived; `seen`: what nobody has to look at; `streams`: as `NoticeLooks` has them."""
        self._streams = streams
        wanted = sorted(cards, key=_written_at, reverse=True)[:MOST_TABLES]
        self._judge.judged(wanted)
        notices = {notice.key: notice for notice in known}
        for card in cards:
            notices |= self._found.get(card.ref.uri, {})
        open_ones = [notice for key, notice in notices.items() if notice.is_open and key not in seen]
        open_ones.sort(key=lambda notice: notice.committed_at or _EARLIEST, reverse=True)
        num_seen = sum(card.ref.uri in self._found for card in wanted)
        return NoticedSoFar(tuple(open_ones), num_seen, len(wanted), len(cards))

    def _look(self, card: TableCard) -> tuple[TableCard, float]:
        ref, now, before = card.ref, self._now(), self._found.get(card.ref.uri)
        found = list[Notice]()
        try:
            found += self._looks.silences(ref, self._since if before is None else now - SILENT_BACK, now)
            if _written_at(card) >= self._since:
                found += self._looks.look(ref, self._since, now)
        except Exception as exc:  # noqa: BLE001 - one table's boundary: whatever it holds hides no other
            _log.warning("what commits of %s did is not known: %r", ref.name, exc)
        self._found[ref.uri] = {**(before or {}), **{notice.key: notice for notice in found}}
        return card, time.monotonic()


def _written_at(card: TableCard) -> datetime:
    return card.last_commit_at or _EARLIEST
