"""Expectations on tables: what a pipeline or a person expects of a table, what a host found when it judged it, both in
words for pages and the terminal; and the rules: whether data is fresh, whether a day brought as many rows as usual,
since when something is broken.

Rule: pure; the clock is a parameter. Unknown is a state of its own with its reason, never taken for met. A table is
held against its own past, with the figures that were used.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from statistics import median

from backend.format import ago, count_exact, duration_text, things
from backend.lake.model import Commit
from backend.stream_model.stream import HostHeartbeat


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
    UNKNOWN = "unknown"
    EARLY = "too early to tell"
    MET = "OK"


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


# the rules ------------------------------------------------------------------------------------------------------------


FEWEST_DAYS = 7  # below, nothing is usual
MOST_DAYS = 28  # days before the judged one
SPREADS = 4.0  # how far from the median a usual day may be
LEAST_SPREAD = 0.05  # of the median: days that are all alike do not forbid any difference
_SIGMA = 1.4826  # turns a median of deviations into a standard deviation
_SATURDAY = 5


@dataclass(frozen=True, slots=True)
class LastData:
    """The newest commit that changed rows. Without one, `looked_back_to` is the time of the oldest commit there is."""

    version: int | None
    at: datetime | None
    looked_back_to: datetime | None = None


def judge_fresh(within_s: float, last: LastData, now: datetime) -> Finding:
    """Broken when the last change of rows is longer ago."""
    at = last.at or last.looked_back_to
    if at is None:
        return Finding(State.UNKNOWN, "no commit says when it was made", version=last.version)
    due = at + timedelta(seconds=within_s)
    if now > due:
        return Finding(State.BROKEN, since=due, version=last.version, last_data_at=last.at)
    if last.at is None:
        return Finding(State.UNKNOWN, "no commit has brought data yet", is_early=True)
    return Finding(State.MET, version=last.version, last_data_at=last.at)


def added_rows(commit: Commit, *, removes: bool) -> int | None:
    """Rows that are new by a commit whose files do not tell, by its writer's metrics; None where those do not either.

    `removes`: it took rows away or rewrote them.
    """
    operation = (commit.operation or "").upper()
    if operation in ("UPDATE", "DELETE"):
        return 0
    # Of what an overwrite writes nobody says how much was there before.
    return None if removes and operation != "MERGE" else commit.metrics.rows_inserted


def judge_rows(days: Mapping[date, int | None], day: date) -> Finding:
    """A full day against the usual band of those before it: median ± 4 spreads, at least ± 20 %."""
    iso_day = day.isoformat()
    if day not in days:
        return Finding(State.UNKNOWN, f"the log does not hold {iso_day} as a whole", day=iso_day, is_early=True)
    rows = days[day]
    if rows is None:
        return Finding(State.UNKNOWN, f"a commit of {iso_day} does not say how many rows are new", day=iso_day)
    usual = _days_alike(days, day)
    if len(usual) < FEWEST_DAYS:
        reason = f"{len(usual)} of {FEWEST_DAYS} full days before {iso_day} are known"
        return Finding(State.UNKNOWN, reason, day=iso_day, rows=rows, days=len(usual), is_early=True)
    middle = median(usual)
    if not middle:
        reason = "rows come on fewer than half of the days, so no number is usual"
        return Finding(State.UNKNOWN, reason, day=iso_day, rows=rows, days=len(usual))
    spread = max(_SIGMA * median(abs(rows_of_day - middle) for rows_of_day in usual), LEAST_SPREAD * middle)
    low, high = max(0, math.floor(middle - SPREADS * spread)), math.ceil(middle + SPREADS * spread)
    is_met = low <= rows <= high
    ended = datetime.combine(day + timedelta(days=1), time(), UTC)
    return Finding(
        State.MET if is_met else State.BROKEN,
        since=None if is_met else ended,
        day=iso_day,
        rows=rows,
        usual=(low, high),
        days=len(usual),
    )


def _days_alike(days: Mapping[date, int | None], day: date) -> list[int]:
    """Rows of the days before; those of weekends alone for one of a weekend, and the other way round, where enough are
    known."""
    before = {
        other: rows
        for other, rows in days.items()
        if rows is not None and day - timedelta(days=MOST_DAYS) <= other < day
    }
    is_weekend = day.weekday() >= _SATURDAY
    alike = [rows for other, rows in before.items() if (other.weekday() >= _SATURDAY) == is_weekend]
    return alike if len(alike) >= FEWEST_DAYS else list(before.values())


def settle(
    expectation: TableExpectation, finding: Finding, previous: Judgement | None, *, host_id: str, now: datetime
) -> Judgement:
    """What is kept of a look: broken since the first look that found it so, where the table does not tell exactly."""
    since = previous.broken_since if previous else None
    match finding.state:
        case State.MET:
            since = None
        case State.BROKEN:
            since = finding.since if expectation.kind is ExpectationKind.FRESH or since is None else since
    return Judgement(expectation, finding, host_id, now, since or (now if finding.state is State.BROKEN else None))


def away(
    judgements: Iterable[Judgement], hosts: Iterable[HostHeartbeat], *, now: datetime, stale_s: float
) -> list[Judgement]:
    """Those that hold no longer by themselves: the host that judged them is silent."""
    alive = {host.host_id for host in hosts if host.is_alive(now, stale_s)}
    return [judgement for judgement in judgements if judgement.host_id and judgement.host_id not in alive]


def standing(judgement: Judgement, silent: Sequence[Judgement]) -> Standing:
    """What it says now: what was broken is so until somebody sees it mended; what was met holds while a host looks."""
    if judgement.state is State.BROKEN:
        return Standing.BROKEN
    if judgement in silent:
        return Standing.UNKNOWN
    if judgement.state is State.MET:
        return Standing.MET
    return Standing.EARLY if judgement.finding.is_early else Standing.UNKNOWN


def not_as_expected(judgements: Iterable[Judgement], silent: Sequence[Judgement]) -> frozenset[str]:
    """Addresses of tables that break an expectation, or of which it is not known."""
    troubled = (Standing.BROKEN, Standing.UNKNOWN)
    return frozenset(each.expectation.uri for each in judgements if standing(each, silent) in troubled)
