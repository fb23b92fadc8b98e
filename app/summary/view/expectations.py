"""What is expected of a table and whether that is met, as lines of its Summary.

Rule: pure; what no living host judges is shown as unknown, with what it was.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from backend.expectations.model import (
    Judgement,
    Standing,
    State,
    TableExpectation,
    expected_text,
    found_text,
    judged_text,
    standing,
)
from backend.format import duration_text, things


@dataclass(frozen=True, slots=True)
class Line:
    """One expectation: its state, what is expected, what was found, when that was, and since when it is broken.
    `of_person`: one that may be taken back."""

    state: Standing
    expected: str
    found: str
    when: str
    since: datetime | None = None
    of_person: TableExpectation | None = None


def lines(judgements: Sequence[Judgement], silent: Sequence[Judgement], now: datetime) -> list[Line]:
    """Broken ones first."""
    order = list(Standing)
    return sorted((_line(each, silent, now) for each in judgements), key=lambda line: order.index(line.state))


def _line(judgement: Judgement, silent: Sequence[Judgement], now: datetime) -> Line:
    when, found, is_silent = judged_text(judgement, now), found_text(judgement, now), judgement in silent
    since = judgement.broken_since if judgement.state is State.BROKEN and not is_silent else None
    if since:
        when = f"broken for {duration_text((now - since).total_seconds())} · {when}"
    if is_silent and judgement.state is not State.UNKNOWN:
        found = f"it was {judgement.state}: {found}"
    expected = judgement.expectation
    if expected.by:
        when += f" · expected by {expected.by}: {expected.why}"
    of_person = expected if expected.by else None
    return Line(standing(judgement, silent), expected_text(expected), found, when, since, of_person)


def summary_sentence(lines: Sequence[Line]) -> str:
    """ "3 table expectations: 1 broken, 2 met"."""
    counts = Counter(line.state for line in lines)
    parts = [f"{counts[state]} {state}" for state in Standing if counts[state]]
    return f"{things(len(lines), 'table expectation')}: {', '.join(parts)}"


def away_sentence(silent: Sequence[Judgement], now: datetime) -> str:
    """Since when nobody judges; empty where somebody does."""
    if not silent:
        return ""
    last = max(stream.judged_at for stream in silent)
    away = duration_text((now - last).total_seconds())
    return f"Not judged for {away}: the host that did is away. `weir host` starts one."
