"""Expectations on tables: what a pipeline or a person expects of a table, and what a host found when it judged it.

Rule: unknown is a state of its own with its reason, never taken for met.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


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
