"""Streams in lists: the columns that every list has, with a glyph and a word for a state, and the sentence above.

Rule: pure; `app.ui.lists` colours such cells by their word.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from app.columns import Column
from app.ui.view.theme import state_text
from backend.format import UNKNOWN, age_s, cut, rate_text, things
from backend.stream_model.backlog import backlog_text
from backend.stream_model.progress import ExpectationTotal
from backend.stream_model.stream import StreamState
from backend.streams.graph import landing_rows_per_s
from backend.streams.verdict import StreamStatus, Verdict

MOST_WHY = 90  # signs: three lines of a list
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


def by_urgency(statuses: Iterable[StreamStatus]) -> list[StreamStatus]:
    """Those that need a person first, the starved with the stopped, then by name."""

    def rank(status: StreamStatus) -> tuple[int, bool, str]:
        verdict = Verdict.STOPPED if status.starved_by else status.verdict
        return URGENCY.index(verdict), bool(status.starved_by), status.declaration.name

    return sorted(statuses, key=rank)


def verdict_of(status: StreamStatus) -> str:
    """The verdict that every page shows: one that has nothing to read because another is stopped is no idle one."""
    return "STARVED" if status.starved_by else status.verdict.value


def observed_of(status: StreamStatus) -> str:
    """The state that every page shows: one that reads on until it stops is draining."""
    drains = status.state is StreamState.RUNNING and status.desired is not None and status.desired.drains
    return "DRAINING" if drains else status.state.value


def row_expectations(totals: Iterable[ExpectationTotal], declared: Sequence[str]) -> tuple[str, bool]:
    """ "3 of 4 broken", "4 OK" or "4 not counted": the row expectations that a stream declares over a window, which
    stands beside it, and whether rows broke any; "" where there are none."""
    totals = [total for total in totals if total.name in declared]
    if not totals:
        return "", False
    if broken := sum(bool(total.failed) for total in totals):
        return f"{broken:,} of {len(totals):,} broken", True
    is_counted = all(total.failed is not None for total in totals)
    return f"{len(totals):,} {'OK' if is_counted else 'not counted'}", False


def own_words(because: str, name: str) -> str:
    """The sentence behind a verdict for a row of a list, which names the stream already: as much as it has room for."""
    text = because.removeprefix(name).strip()
    return cut(text[:1].upper() + text[1:], MOST_WHY)


def stream_columns(now: datetime) -> tuple[Column[StreamStatus], ...]:
    """What every list of streams shows: desired and observed apart, the verdict and the sentence behind it."""

    def because(status: StreamStatus) -> str:
        return own_words(status.because, status.declaration.name)

    def wanted(status: StreamStatus) -> str:
        return state_text(status.desired.state) if status.desired else UNKNOWN

    def since_batch(status: StreamStatus) -> float | None:
        return age_s(status.progress.ended_at if status.progress else None, now)

    return (
        Column("Stream", lambda status: status.declaration.name, key="name"),
        Column("Verdict", lambda status: state_text(verdict_of(status)), "state", width=94),
        Column("Why", because, width=294),
        Column("Wanted", lambda status: wanted(status), "state", "What a person asked for", 82),
        Column("Observed", lambda status: state_text(observed_of(status)), "state", "What the host last saw", 92),
        Column("Behind", lambda status: backlog_text(status.backlog) or None, width=111,
               help="Age of the oldest input that it has not read, the rows, and when it is done, where known"),
        Column("Rows in", lambda status: status.input_rows_per_s, "rate", "Rows read per second lately, while it runs",
               78, "input_rows_per_s"),
        Column("Last batch", since_batch, "ago", "How long ago the last batch ended"),
    )  # fmt: skip


def summary_sentence(statuses: Sequence[StreamStatus]) -> str:
    """ "6 streams: 5 running, 1 failed · 132 rows/s in", each row counted where it first lands."""
    states = Counter(status.state for status in statuses)
    words = {StreamState.BACKOFF: "waiting to restart"}
    parts = ", ".join(
        f"{states[state]} {words.get(state, state.value.lower())}" for state in StreamState if states[state]
    )
    rate = landing_rows_per_s(statuses)
    text = f"{things(len(statuses), 'stream')}: {parts}"
    return text if rate is None else f"{text} · {rate_text(rate)} in"
