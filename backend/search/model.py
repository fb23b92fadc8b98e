"""What a search for the first bad version is asked, tells on its way, and answers.

Rule: `Bisection` claims no more than its probes saw.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from backend.lake.model import Commit, TableRef
from backend.sql.numbers import VersionValue
from backend.times import Clock

OLDEST = "oldest"  # the good end that nobody named: the oldest version that can be judged


class ProbeOutcome(StrEnum):
    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"  # the version cannot be read, or the condition cannot be computed there


class Purpose(StrEnum):
    """Why a version was probed."""

    END = "end"  # it was said to be good or bad
    SEARCH = "search"
    CHECK = "check"  # beyond the search: is what was found true, does the condition change more than once


@dataclass(frozen=True, slots=True)
class BisectRequest:
    """What is searched. Versions as people name them; no `good` (or `oldest`) is the oldest that can be judged, no
    `bad` the latest.

    `check`: so many versions on each side of what was found are probed beyond the search. `clock`: who names them.
    """

    condition: str
    good: str | int | None = None
    bad: str | int | None = None
    check: int = 2
    clock: Clock = field(default_factory=Clock)


@dataclass(frozen=True, slots=True)
class VersionVerdict:
    """What a condition comes to at one version. A null counts as satisfied, as in SQL's CHECK.

    Of a condition on rows: how many rows violate it, how many give null, how many there are. Of one on the whole
    version: its value, and the value of each aggregate in it.
    """

    holds: bool
    value: bool | None = None
    violations: int | None = None
    nulls: int | None = None
    rows: int | None = None
    aggregates: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Probe:
    """One version looked at: what the condition came to there, why it was asked, and whose commit it is."""

    number: VersionValue[VersionVerdict]
    purpose: Purpose
    committed_at: datetime | None = None
    operation: str | None = None
    duration_s: float = 0.0

    @property
    def version(self) -> int:
        return self.number.version

    @property
    def verdict(self) -> VersionVerdict | None:
        return self.number.value

    @property
    def reason(self) -> str | None:
        """Why it was skipped."""
        return self.number.problem

    @property
    def outcome(self) -> ProbeOutcome:
        if self.verdict is None:
            return ProbeOutcome.SKIPPED
        return ProbeOutcome.GOOD if self.verdict.holds else ProbeOutcome.BAD


@dataclass(frozen=True, slots=True)
class Examples:
    """Up to a few rows that break the condition, of chosen columns."""

    columns: tuple[str, ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Bisection:
    """The answer of a search. The condition changes between two probed versions, the newest that is as the older end
    (`last`) and the oldest after it that is as the newer end (`first_seen`).

    `candidates`: the commits in between that may have changed it; `culprit` where only one is left.
    `again`: versions probed after `first_seen` that are as the older end again.
    `changing`: how many commits between the ends changed rows; `unprobed`: how many of these nobody looked at.
    `older_id`: the table's id at the older end, where that was another table under the same path.
    `row_rule`: what each row has to satisfy; empty where it is about no row by itself.
    """

    ref: TableRef
    table_id: str
    condition: str
    by_row: bool
    good: int
    bad: int
    probes: tuple[Probe, ...]
    last: int
    first_seen: int
    candidates: tuple[int, ...]
    commits: tuple[Commit, ...]
    again: tuple[int, ...]
    changing: int
    unprobed: int
    examples: Examples = Examples()
    older_id: str | None = None
    row_rule: str = ""

    @property
    def is_mended(self) -> bool:
        """Whether the search was for the first good version after a bad one."""
        return self.good > self.bad

    @property
    def culprit(self) -> int | None:
        return self.candidates[0] if len(self.candidates) == 1 else None

    @property
    def changed_at(self) -> int:
        """The newer end of the difference that shows the change."""
        return self.first_seen if self.culprit is None else self.culprit

    @property
    def commit(self) -> Commit | None:
        """The culprit's commit; None where it is not in the log any more."""
        return next((commit for commit in self.commits if commit.version == self.culprit), None)

    @property
    def is_monotonic(self) -> bool:
        """Whether no probe disagreed with one change of the condition in the range."""
        return not self.again

    @property
    def bad_seen(self) -> int:
        """The probed version beside the change at which the condition is broken."""
        return self.last if self.is_mended else self.first_seen

    @property
    def good_seen(self) -> int:
        return self.first_seen if self.is_mended else self.last

    def probe_of(self, version: int) -> Probe | None:
        return next((probe for probe in self.probes if probe.version == version), None)


@dataclass(frozen=True, slots=True)
class BisectProgress:
    """How far it is: probes in the order they ran, what is done now and at which version, and the rows read there.

    `at_most_left`: how many more probes there may be, unless some have to be skipped. The last step has the `result`.
    """

    probes: tuple[Probe, ...]
    doing: str
    version: int | None = None
    rows_read: int = 0
    at_most_left: int | None = None
    result: Bisection | None = None
