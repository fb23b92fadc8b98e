"""What a search for the first bad version is asked, tells on its way, and finds.

Rule: a number is of what was read; `Bisection` claims no more than its probes saw.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from backend.lake.model import Commit, TableRef

OLDEST = "oldest"  # the good end that nobody named: the oldest version that can be judged


class Outcome(StrEnum):
    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"  # the version cannot be read, or the condition cannot be computed there

    @property
    def opposite(self) -> "Outcome":
        return Outcome.BAD if self is Outcome.GOOD else Outcome.GOOD


class Purpose(StrEnum):
    """Why a version was probed."""

    END = "end"  # it was said to be good or bad
    SEARCH = "search"
    CHECK = "check"  # beyond the search: is what was found true, does the condition change more than once


class Source(StrEnum):
    """What a verdict rests on."""

    ROWS = "rows"
    LOG = "log"  # the files' row counts in the log: the condition needs no column
    KEPT = "kept"  # this version was judged by this condition before


@dataclass(frozen=True, slots=True)
class BisectRequest:
    """What is searched. Versions as people name them; no `good` (or `oldest`) is the oldest that can be judged, no
    `bad` the latest.

    `check`: so many versions on each side of what was found are probed beyond the search.
    """

    condition: str
    good: str | int | None = None
    bad: str | int | None = None
    check: int = 2


@dataclass(frozen=True, slots=True)
class Verdict:
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
    """One version looked at. `reason` says why it was skipped; of its `files` (None where nobody counted) so many were
    opened; `bytes_read` are values in memory, decompressed."""

    version: int
    outcome: Outcome
    purpose: Purpose
    verdict: Verdict | None = None
    reason: str | None = None
    committed_at: datetime | None = None
    operation: str | None = None
    source: Source = Source.ROWS
    rows_read: int = 0
    bytes_read: int = 0
    duration_s: float = 0.0
    files: int | None = None
    files_read: int = 0


@dataclass(frozen=True, slots=True)
class Examples:
    """Up to a few rows that break the condition, of chosen columns."""

    columns: tuple[str, ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Bisection:
    """What was found. `last` is the newest version probed that is as the older end, `first_seen` the oldest probed
    that is as the newer end: the change is one of `candidates`, the commits in between that may have made it.

    `culprit` is the one candidate, None where several are left; `again` are versions probed after `first_seen` that
    are as the older end; `unprobed` counts versions that changed rows and were not looked at. `older_id` is the table's
    id at the older end where that was another table under the same path, else None.
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

    @property
    def is_mended(self) -> bool:
        """Whether the search was for the first good version after a bad one."""
        return self.good > self.bad

    @property
    def culprit(self) -> int | None:
        return self.candidates[0] if len(self.candidates) == 1 else None

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
    """How far it is: probes in the order they ran, and the version in work. `at_most_left`: how many more there may be,
    unless some have to be skipped. The last one has the `result`."""

    probes: tuple[Probe, ...]
    doing: str
    version: int | None = None
    rows_read: int = 0
    bytes_read: int = 0
    at_most_left: int | None = None
    result: Bisection | None = None
