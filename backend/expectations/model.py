"""Expectations on tables: what a pipeline or a person expects of a table, what a host found when it judged it, and both
in words, for pages and the terminal.

Rule: pure; the clock is a parameter. Unknown is a state of its own with its reason, never taken for met.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from backend.format import ago, count_exact, duration_text, things


class ExpectationKind(StrEnum):
    FRESH = "fresh"
    ROWS_PER_DAY = "rows_per_day"
    UNIQUE = "unique"
    REFERENCES = "references"
    HOLDS = "holds"  # a condition, which a person expects

    @property
    def is_quick(self) -> bool:
        """Whether the newest commits tell; else a month of them, or rows, are read."""
        return self is ExpectationKind.FRESH


class State(StrEnum):
    MET = "met"
    BROKEN = "broken"
    UNKNOWN = "unknown"


class Standing(StrEnum):
    """What a judgement says now, as every page and the terminal count it. `EARLY`: the table is too young."""

    BROKEN = "broken"
    UNKNOWN = "not known"
    EARLY = "too early to tell"
    MET = "met"


@dataclass(frozen=True, slots=True)
class TableExpectation:
    """One expectation on the table at `uri`. `table` and `other` are what the pipeline calls the tables. `by`: the
    person who expects it, in no pipeline, and `why`."""

    uri: str
    table: str
    kind: ExpectationKind
    pipeline: str = ""
    within_s: float = 0.0
    columns: tuple[str, ...] = ()
    other: str = ""
    other_uri: str = ""
    other_column: str = ""
    condition: str = ""
    by: str = ""
    why: str = ""

    @property
    def name(self) -> str:
        """What tells it from others on the same table: fresh, unique(order_id)."""
        given = [*self.columns, f"{self.other}.{self.other_column}" if self.other else self.condition]
        return f"{self.kind}({', '.join(filter(None, given))})" if any(given) else self.kind.value


@dataclass(frozen=True, slots=True)
class Finding:
    """What one look at the table gave.

    `reason`: why it is unknown, or what a condition came to. `since`: from when on it is broken, as far as the table
    tells. `day` (ISO, UTC), `rows` and `usual` (both ends included) belong to rows_per_day, with the number of `days`
    that the band is from. `examples` are up to five of the `broken_keys`. `is_early`: unknown because the table is too
    young. `seen` spares the next look what this one read.
    """

    state: State
    reason: str = ""
    since: datetime | None = None
    version: int | None = None
    other_version: int | None = None
    last_data_at: datetime | None = None
    day: str = ""
    rows: int | None = None
    usual: tuple[int, int] | None = None
    days: int = 0
    broken_keys: int | None = None
    broken_rows: int | None = None
    examples: tuple[str, ...] = ()
    is_early: bool = False
    seen: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a host found last of one expectation. `broken_since` outlives looks that could not tell."""

    expectation: TableExpectation
    finding: Finding
    host_id: str
    judged_at: datetime
    broken_since: datetime | None = None

    @property
    def state(self) -> State:
        return self.finding.state


def expected_text(expected: TableExpectation) -> str:
    """ "new data every 15 min", "order_id is unique"."""
    columns = ", ".join(expected.columns)
    match expected.kind:
        case ExpectationKind.FRESH:
            return f"new data every {duration_text(expected.within_s)}"
        case ExpectationKind.ROWS_PER_DAY:
            return "as many new rows a day as usual"
        case ExpectationKind.HOLDS:
            return expected.condition
        case ExpectationKind.UNIQUE:
            return f"{columns} is unique" if len(expected.columns) == 1 else f"({columns}) is unique"
    return f"{columns} is in {expected.other}.{expected.other_column}"


def found_text(judgement: Judgement, now: datetime) -> str:
    """ "the last data came 4 min ago", "912 rows on 2026-11-22, usual are 1,100 to 1,400"."""
    finding = judgement.finding
    if finding.state is State.UNKNOWN:
        return f"not judged: {finding.reason}"
    match judgement.expectation.kind:
        case ExpectationKind.FRESH if finding.last_data_at is None:
            return "none of its commits changed rows"
        case ExpectationKind.FRESH:
            return f"the last came {ago(finding.last_data_at, now)}"
        case ExpectationKind.HOLDS:
            return finding.reason
        case ExpectationKind.ROWS_PER_DAY:
            low, high = finding.usual or (0, 0)
            rows = f"{count_exact(finding.rows)} {'row' if finding.rows == 1 else 'rows'}"
            return f"{rows} on {finding.day}, usual are {low:,} to {high:,} (by {finding.days} days before)"
    if not finding.broken_keys:
        return "no key breaks it"
    rows = things(finding.broken_rows, "row")
    wrong = "are repeated" if judgement.expectation.kind is ExpectationKind.UNIQUE else "are not there"
    wrong = wrong.replace("are", "is") if finding.broken_keys == 1 else wrong
    more = finding.broken_keys - len(finding.examples)
    examples = " · ".join(finding.examples) + (f" and {more:,} more" if more > 0 else "")
    return f"{things(finding.broken_keys, 'key')} {wrong}, in {rows}: {examples}"


def judged_text(judgement: Judgement, now: datetime) -> str:
    """ "judged at v131, 12 s ago"."""
    version = "" if judgement.finding.version is None else f"at v{judgement.finding.version}, "
    return f"judged {version}{ago(judgement.judged_at, now)}"
