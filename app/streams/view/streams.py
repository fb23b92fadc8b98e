"""The list of streams, what may be asked of each, and the operation log.

Rule: pure; desired (what a person wants) and observed (what a host saw) stay two columns, never one.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce

import pandas as pd

from app.streams.text import effect_sentence
from app.ui.states import stream_cells
from app.ui.view.frames import ages
from backend.format import cut, utc_text
from backend.jobs.model import JobKind
from backend.stream_model.backlog import backlog_text
from backend.stream_model.stream import Action, AuditEntry, StreamFailure
from backend.streams.acts import Selection, blocked
from backend.streams.verdict import StreamStatus, Verdict

URGENCY = (
    Verdict.FAILED,
    Verdict.STOPPED,
    Verdict.UNKNOWN,
    Verdict.STALLED,
    Verdict.SLOW,
    Verdict.CATCHING_UP,
    Verdict.OK,
    Verdict.IDLE,
)
MESSAGE_LENGTH = 120
_GENERATION = re.compile(r", generation \d+")  # of a request, for hosts
TICKED = "Ticked rows"
STREAM_COLUMNS = (
    *("Stream", "Verdict", "Why", "Wanted", "Observed", "Behind", "Rows in", "Last 5 min", "Last batch"),
    *("Last error", "Layer", "Last batch at"),
)
ICONS: dict[Action, str] = {
    "start": ":material/play_arrow:",
    "stop": ":material/stop:",
    "restart": ":material/restart_alt:",
}


@dataclass(frozen=True, slots=True)
class ActButton:
    """One thing a person can ask of a stream. `blocked` says why not, None when it may be asked."""

    action: Action
    label: str
    icon: str
    effect: str
    blocked: str | None


def by_urgency(statuses: Iterable[StreamStatus]) -> list[StreamStatus]:
    """Those that need a person first, the starved with the stopped, then by name."""

    def rank(status: StreamStatus) -> tuple[int, bool, str]:
        verdict = Verdict.STOPPED if status.starved_by else status.verdict
        return URGENCY.index(verdict), bool(status.starved_by), status.declaration.name

    return sorted(statuses, key=rank)


def in_order(statuses: Sequence[StreamStatus], shown: Sequence[str]) -> list[StreamStatus]:
    """As the names were shown before; those not shown yet come after them."""
    rank = {name: place for place, name in enumerate(shown)}
    return sorted(statuses, key=lambda status: rank.get(status.declaration.name, len(rank)))


def matches(statuses: Iterable[StreamStatus], words: str) -> list[StreamStatus]:
    """Those that hold every word in name, layer, tags, state or verdict."""
    wanted = words.casefold().split()
    return [status for status in statuses if all(word in _text(status) for word in wanted)]


def _text(status: StreamStatus) -> str:
    declared = status.declaration
    tags = (f"{tag}={value}" for tag, value in declared.tags.items())
    parts = (declared.name, declared.layer or "", *tags, status.state.value, status.verdict.value)
    return " ".join(parts).casefold()


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
    rows = [
        stream_cells(status, now)
        | {
            "Behind": backlog_text(status.backlog),
            "Last 5 min": list((recent_rows or {}).get(status.declaration.name, ())),
            "Last error": error_text(status),
            "Layer": status.declaration.layer,
            "Last batch at": utc_text(last_batch_at(status)),
        }
        for status in statuses
    ]
    frame = pd.DataFrame(rows, columns=list(STREAM_COLUMNS))
    return frame.astype({"Rows in": "Float64", "Last batch": "Float64"})


def acts(status: StreamStatus, *, refused: str | None) -> tuple[ActButton, ...]:
    """Start, stop and restart with what each does and why it may not be asked. `refused`: why nobody may act here."""
    return tuple(
        ActButton(action, action.capitalize(), icon, effect_sentence(action, status), _why_not(status, action, refused))
        for action, icon in ICONS.items()
    )


def acts_on_all(statuses: Sequence[StreamStatus], *, refused: str | None) -> tuple[ActButton, ...]:
    """The same for several streams at once: an act is blocked when it is for each of them."""
    if not statuses:
        blank = "Tick a stream first."
        return tuple(
            ActButton(action, action.capitalize(), icon, blank, refused or blank) for action, icon in ICONS.items()
        )
    merged: list[ActButton] = []
    for options in zip(*(acts(status, refused=refused) for status in statuses), strict=True):
        merged.append(next((button for button in options if button.blocked is None), options[0]))
    return tuple(merged)


def allowed(statuses: Iterable[StreamStatus], action: Action) -> list[StreamStatus]:
    """Those of the streams that `action` may be asked of now."""
    return [status for status in statuses if blocked(status, action) is None]


def scopes(statuses: Iterable[StreamStatus]) -> dict[str, Selection | None]:
    """Whom the buttons may act on, by what a person reads; None for the ticked rows."""
    declarations = [status.declaration for status in statuses]
    layers = sorted({declared.layer for declared in declarations if declared.layer})
    tags = sorted({tag for declared in declarations for tag in declared.tags.items()})
    return {
        TICKED: None,
        "All streams": Selection(everything=True),
        **{f"Layer {layer}": Selection(layer=layer) for layer in layers},
        **{f"Tag {tag}={value}": Selection(tag=(tag, value)) for tag, value in tags},
    }


def marks(entries: Sequence[AuditEntry], failures: Sequence[StreamFailure]) -> tuple[tuple[datetime, str], ...]:
    """What charts mark: "stop by ann: upgrade", "failed: ZeroDivisionError"."""
    acts = [(entry.at, f"{entry.action} by {entry.actor}: {cut(entry.reason)}") for entry in _acts_alone(entries)]
    return (*acts, *((failure.failed_at, f"failed: {failure.error_class}") for failure in failures))


def _acts_alone(entries: Iterable[AuditEntry]) -> Iterable[AuditEntry]:
    return (entry for entry in entries if JobKind.REQUEUE_PREVIEW not in entry.action)


def build_operation_log(entries: Sequence[AuditEntry], *, now: datetime, roots: Sequence[str] = ()) -> pd.DataFrame:
    """The audit trail, newest first: when, who, what, why; without what only asked what an act would do. What lies
    below one of the `roots` stands by its name."""
    places = [f"{root.rstrip('/')}/" for root in sorted(roots, key=len, reverse=True) if root.strip("/")]
    newest = sorted(_acts_alone(entries), key=lambda entry: entry.at, reverse=True)
    return pd.DataFrame(
        {
            "When": ages([entry.at for entry in newest], now),
            "Act": [entry.action for entry in newest],
            "Stream or table": [entry.subject for entry in newest],
            "Reason": [entry.reason for entry in newest],
            "Who": [entry.actor for entry in newest],
            "Detail": [
                reduce(lambda text, place: text.replace(place, ""), places, _GENERATION.sub("", entry.detail)) or "–"
                for entry in newest
            ],
            "At": [utc_text(entry.at) for entry in newest],
        }
    )


def _why_not(status: StreamStatus, action: Action, refused: str | None) -> str | None:
    return blocked(status, action) if status.declaration.is_attached else refused or blocked(status, action)
