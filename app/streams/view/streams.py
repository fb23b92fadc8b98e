"""The list of streams and what may be done to each, as words and frames.

Rule: pure; desired (what a person wants) and observed (what a host saw) stay two columns, never one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import pandas as pd

from app.ui.states import state_text, verdict_text, wanted_text, why_text
from app.ui.view.frames import ages
from backend.format import ago, rate_text, things, utc_text
from backend.stream_model.stream import Action, AuditEntry, HostHeartbeat, StreamState
from backend.streams.acts import LeftOut, Selection, blocked
from backend.streams.backlog.words import behind_text
from backend.streams.verdict import StreamStatus, Verdict

URGENCY = (
    Verdict.FAILED,
    Verdict.UNKNOWN,
    Verdict.STALLED,
    Verdict.SLOW,
    Verdict.CATCHING_UP,
    Verdict.OK,
    Verdict.IDLE,
    Verdict.STOPPED,
)
MESSAGE_LENGTH = 120
ICONS: dict[Action, str] = {
    "start": ":material/play_arrow:",
    "stop": ":material/stop:",
    "restart": ":material/restart_alt:",
}

EFFECTS: dict[Action, str] = {
    "start": "The host starts each where its checkpoint ends; nothing is read twice and nothing is skipped.",
    "stop": "The host lets the running micro-batch of each end, then stops it. Checkpoints stay.",
    "restart": "The host stops each after its running micro-batch and starts it again from its checkpoint.",
}


@dataclass(frozen=True, slots=True)
class Act:
    """One thing a person can ask of a stream. `blocked` says why not, None when it may be asked."""

    action: Action
    label: str
    icon: str
    effect: str
    blocked: str | None


def by_urgency(statuses: Iterable[StreamStatus]) -> list[StreamStatus]:
    """Those that need a person first, then by name."""
    return sorted(statuses, key=lambda status: (URGENCY.index(status.verdict), status.declaration.name))


def in_order(statuses: Sequence[StreamStatus], shown: Sequence[str]) -> list[StreamStatus]:
    """As the names were shown before; those not shown yet come after them."""
    rank = {name: place for place, name in enumerate(shown)}
    return sorted(statuses, key=lambda status: rank.get(status.declaration.name, len(rank)))


def last_batch_at(status: StreamStatus) -> datetime | None:
    """When the last batch ended."""
    return status.progress.ended_at if status.progress else None


def error_text(status: StreamStatus) -> str:
    """The last error in one line, "–" without any."""
    failure = status.observed.last_failure if status.observed else None
    return f"{failure.error_class}: {failure.message}"[:MESSAGE_LENGTH] if failure else "–"


def build_stream_frame(
    statuses: Sequence[StreamStatus], *, now: datetime, recent_rows: Mapping[str, Sequence[int]] | None = None
) -> pd.DataFrame:
    """One row a stream, in the order given. `recent_rows` are rows per recent batch for the small chart."""
    ended = [last_batch_at(status) for status in statuses]
    return pd.DataFrame(
        {
            "Stream": [status.declaration.name for status in statuses],
            "Verdict": [verdict_text(status.verdict) for status in statuses],
            "Why": [why_text(status) for status in statuses],
            "Wanted": [wanted_text(status.desired) for status in statuses],
            "Observed": [state_text(status.state) for status in statuses],
            "Behind": [behind_text(status.backlog) for status in statuses],
            "Rows in": pd.array([status.input_rows_per_s for status in statuses], dtype="Float64"),
            "Last 5 min": [list((recent_rows or {}).get(status.declaration.name, ())) for status in statuses],
            "Last batch": ages(ended, now),
            "Last error": [error_text(status) for status in statuses],
            "Layer": [status.declaration.layer for status in statuses],
            "Last batch at": [utc_text(moment) for moment in ended],
        }
    )


def summary_sentence(statuses: Sequence[StreamStatus]) -> str:
    """ "6 streams: 5 running, 1 failed · 132 rows/s in"."""
    states = Counter(status.state for status in statuses)
    parts = ", ".join(f"{states[state]} {state.value.lower()}" for state in StreamState if states[state])
    noun = "stream" if len(statuses) == 1 else "streams"
    rate = sum(status.input_rows_per_s or 0.0 for status in statuses)
    return f"{len(statuses)} {noun}: {parts} · {rate_text(rate)} in"


def host_sentence(hosts: Sequence[HostHeartbeat], *, now: datetime, stale_s: float) -> str | None:
    """What is wrong with the hosts; None when one is alive."""
    if not hosts:
        return "No stream host has ever reported: nothing runs the streams."
    last = max(hosts, key=lambda host: host.beat_at)
    if (now - last.beat_at).total_seconds() <= stale_s:
        return None
    return f"Host not seen since {utc_text(last.beat_at)} ({ago(last.beat_at, now)})."


def acts(status: StreamStatus, *, refused: str | None) -> tuple[Act, ...]:
    """Start, stop and restart with what each does and why it may not be asked. `refused`: why nobody may act here."""
    name = status.declaration.name
    effects: dict[Action, str] = {
        "start": _start_effect(status),
        "stop": _stop_effect(name),
        "restart": _restart_effect(name),
    }
    return tuple(
        Act(action, action.capitalize(), ICONS[action], effect, _why_not(status, action, refused))
        for action, effect in effects.items()
    )


def acts_on_all(statuses: Sequence[StreamStatus], *, refused: str | None) -> tuple[Act, ...]:
    """The same for several streams at once: an act is blocked when it is for each of them."""
    if not statuses:
        blank = "Tick a stream first."
        return tuple(Act(action, action.capitalize(), icon, blank, refused or blank) for action, icon in ICONS.items())
    merged = []
    for options in zip(*(acts(status, refused=refused) for status in statuses), strict=True):
        open_ = next((act for act in options if act.blocked is None), None)
        merged.append(open_ or options[0])
    return tuple(merged)


def allowed(statuses: Iterable[StreamStatus], action: Action) -> list[StreamStatus]:
    """Those of the streams that `action` may be asked of now."""
    return [status for status in statuses if blocked(status, action) is None]


TICKED = "Ticked rows"


def scopes(statuses: Iterable[StreamStatus]) -> dict[str, Selection | None]:
    """Whom the buttons may act on, by what a person reads; None for the ticked rows."""
    declared = [status.declaration for status in statuses]
    layers = sorted({each.layer for each in declared if each.layer})
    tags = sorted({tag for each in declared for tag in each.tags.items()})
    return {
        TICKED: None,
        "All streams": Selection(everything=True),
        **{f"Layer {layer}": Selection(layer=layer) for layer in layers},
        **{f"Tag {tag}={value}": Selection(tag=(tag, value)) for tag, value in tags},
    }


def asked_sentence(action: Action, asked: Sequence[StreamStatus]) -> str:
    """What will happen to the streams."""
    if len(asked) == 1:
        return next(act.effect for act in acts(asked[0], refused=None) if act.action == action)
    names = ", ".join(status.declaration.name for status in asked)
    return f"{things(len(asked), 'stream')}, sources first: {names}. {EFFECTS[action]}"


def left_out_sentences(left_out: Iterable[LeftOut]) -> list[str]:
    """Who was chosen and is not asked; one sentence a reason."""
    reasons: dict[str, list[str]] = {}
    for each in left_out:
        reasons.setdefault(each.why, []).append(each.name)
    return [f"Left out: {', '.join(names)}. Why: {why}" for why, names in reasons.items()]


def downstream_sentence(action: str, below: Sequence[StreamStatus]) -> str:
    """What the streams below will show; empty without any."""
    if not below:
        return ""
    names = ", ".join(status.declaration.name for status in below)
    if action == "stop":
        return f"Downstream, {names} will have nothing new to read."
    return f"Downstream: {names}."


def build_operation_log(entries: Sequence[AuditEntry], *, now: datetime) -> pd.DataFrame:
    """The audit trail, newest first: when, who, what, why."""
    newest = sorted(entries, key=lambda entry: entry.at, reverse=True)
    return pd.DataFrame(
        {
            "When": ages([entry.at for entry in newest], now),
            "Act": [entry.action for entry in newest],
            "Stream or table": [entry.subject for entry in newest],
            "Reason": [entry.reason for entry in newest],
            "Who": [entry.actor for entry in newest],
            "Detail": [entry.detail or "–" for entry in newest],
            "At": [utc_text(entry.at) for entry in newest],
        }
    )


def _why_not(status: StreamStatus, action: Action, refused: str | None) -> str | None:
    return blocked(status, action) if status.declaration.is_attached else refused or blocked(status, action)


def _start_effect(status: StreamStatus) -> str:
    place = "It goes on where its checkpoint ends" if status.progress else "It begins where its checkpoint says"
    return f"The host starts {status.declaration.name}. {place}; nothing is read twice and nothing is skipped."


def _stop_effect(name: str) -> str:
    return f"The host lets the running micro-batch of {name} end, then stops it. Its checkpoint stays."


def _restart_effect(name: str) -> str:
    return f"The host stops {name} after the running micro-batch and starts it again from its checkpoint."
