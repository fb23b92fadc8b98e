"""One look at a table: what its log and its rows say of one expectation.

Rule: reads no more than has changed since the last look. What cannot be told, or is too large, is unknown with the
reason. Keys are exact, compared by DuckDB, which spills to disk; one with a null names no row, as in SQL's UNIQUE and
FOREIGN KEY. OPTIMIZE, VACUUM and properties are no data: the log marks what changes rows.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta

from backend.cells import row_cells
from backend.errors import ColumnNotFoundError, DiffError, LakehouseError, TableError
from backend.expectations.model import (
    MOST_DAYS,
    ExpectationKind,
    Finding,
    Judgement,
    LastData,
    State,
    TableExpectation,
    added_rows,
    judge_fresh,
    judge_rows,
)
from backend.format import bytes_text, cut, duration_text, value_text
from backend.lake.history.change_feed import Arrival
from backend.lake.lake import Lake
from backend.lake.model import Snapshot, TableRef
from backend.lake.table.schema import column_names, spelled
from backend.search.condition import Judge, verdict_text
from backend.sql.numbers import spread
from backend.sql.session import CancelToken, session
from backend.work import Stopped

EXAMPLES = 5
MEMORY_BYTES = 256_000_000  # beside the streams of the host; more goes to disk
FIRST_LOOK = 64  # commits
COMMITS_AT_ONCE = 1_000
MOST_COMMITS = 200_000


PAST, MOST_PAST = timedelta(days=7), 200  # by which an expectation is tried, and versions of it
FIRST_LOOK_S = 30.0  # so long a person waits who is about to expect something


@dataclass(frozen=True, slots=True)
class Hindsight:
    """How often an expectation would have fired since then, and for how long at most, by `judged` of the `versions`."""

    fired: int
    longest_s: float
    judged: int
    versions: int
    since: datetime


def judge_past(
    findings: Sequence[tuple[datetime, State]], versions: int, *, since: datetime, now: datetime
) -> Hindsight:
    """`findings`: of versions and when they were committed, oldest first; each holds until the next."""
    since, fired, longest, began = max(since, findings[0][0]), 0, timedelta(), None
    for at, state in (*findings, (now, State.MET)):
        if state is State.BROKEN and began is None:
            fired, began = fired + 1, max(at, since)
        elif state is State.MET and began:
            longest, began = max(longest, at - began), None
    return Hindsight(fired, longest.total_seconds(), len(findings), versions, since)


def hindsight_text(past: Hindsight | None, now: datetime) -> str:
    """ "would have fired 3 times in 7 d, longest 40 min"."""
    if past is None:
        return "what it would have done is not known: no former version can be judged"
    is_cut, span = past.judged < past.versions, duration_text(round((now - past.since).total_seconds()))
    often = ("at least " if is_cut else "") + ("once" if past.fired == 1 else f"{past.fired:,} times")
    fired = f"have fired {often} in {span}, longest {duration_text(round(past.longest_s))}"
    by = f" (by {past.judged:,} of {past.versions:,} versions)" if is_cut else ""
    return f"would {fired if past.fired else f'never have fired in {span}'}{by}"


@dataclass(frozen=True, slots=True)
class Looks:
    """Looks at tables of a lake; keys and conditions are judged in tables of at most `max_bytes`."""

    lake: Lake
    max_bytes: int
    judge: Judge = field(default_factory=Judge)  # which knows the files that it judged

    def look(
        self, expectation: TableExpectation, before: Finding | None, token: CancelToken, *, now: datetime
    ) -> Finding:
        """Raises `Stopped` where the token was stopped; every other failure is a reason."""
        ref = _ref(expectation.uri, expectation.table)
        try:
            match expectation.kind:
                case ExpectationKind.FRESH:
                    return judge_fresh(expectation.within_s, last_data(self.lake, ref), now)
                case ExpectationKind.ROWS_PER_DAY:
                    return self._rows_per_day(ref, before, token, now.date() - timedelta(days=1))
            return self._keys(expectation, ref, before, token)
        except LakehouseError as exc:
            days = before.seen if before and expectation.kind is ExpectationKind.ROWS_PER_DAY else {}
            return Finding(State.UNKNOWN, exc.message, seen=days)

    def _rows_per_day(self, ref: TableRef, before: Finding | None, token: CancelToken, day: date) -> Finding:
        """`seen` holds the days that were read before: a day that is over never changes."""
        table_id = self.lake.snapshot(ref).metadata.id
        if before is not None and before.day == day.isoformat() and before.seen.get("table") == table_id:
            return before
        earlier = before.seen.get("days") if before and before.seen.get("table") == table_id else None
        read_days: dict[date, int | None] = {}
        if isinstance(earlier, Mapping):
            read_days = {date.fromisoformat(past): rows for past, rows in earlier.items()}
        first = day - timedelta(days=MOST_DAYS)
        missing_from = max(read_days, default=first - timedelta(days=1)) + timedelta(days=1)
        if missing_from <= day:
            read_days |= rows_by_day(self.lake, ref, missing_from, day, is_stopped=lambda: token.is_stopped)
        days = {past: rows for past, rows in read_days.items() if first <= past <= day}
        seen = {"table": table_id, "days": {past.isoformat(): rows for past, rows in days.items()}}
        return replace(judge_rows(days, day), seen=seen)

    def _keys(self, expected: TableExpectation, ref: TableRef, before: Finding | None, token: CancelToken) -> Finding:
        snapshots = [self._changed_last(ref)]
        if expected.other:
            snapshots.append(self._changed_last(_ref(expected.other_uri, expected.other)))
        seen = {"versions": [f"{metadata_id} {version}" for _, metadata_id, version in snapshots]}
        if before is not None and before.seen == seen:
            return before
        tables = [snapshot for snapshot, _, _ in snapshots]
        size = sum(table.size_bytes for table in tables)
        if size > self.max_bytes:
            reason = f"{bytes_text(size)}, limit {bytes_text(self.max_bytes)}"
            return Finding(State.UNKNOWN, reason, version=tables[0].version)
        if expected.condition:
            return self._condition(expected.condition, tables[0], token, seen)
        version, other_version = tables[0].version, tables[1].version if expected.other else None
        if not tables[0].num_files:  # of no rows every rule is true: it would stand as met once rows have come
            return Finding(State.UNKNOWN, f"v{version} holds no rows", version=version, is_early=True, seen=seen)
        try:
            keys, rows, examples = self._broken_keys(expected, tables, token)
        except DiffError as exc:  # the time or the memory was not enough, and will not be at the same versions
            late = token.seconds_left is not None and token.seconds_left <= 0
            reason = f"it took longer than {duration_text(token.time_limit_s)}" if late else exc.message
            return Finding(State.UNKNOWN, reason, version=version, other_version=other_version, seen=seen)
        return Finding(
            State.BROKEN if keys else State.MET,
            since=tables[0].committed_at if keys else None,
            version=version,
            other_version=other_version,
            broken_keys=keys,
            broken_rows=rows,
            examples=examples,
            seen=seen,
        )

    def _condition(self, text: str, table: Snapshot, token: CancelToken, seen: Mapping[str, object]) -> Finding:
        with closing(self.judge.verdicts.over(self.lake, table.ref, text, [table.version])) as steps:
            for step in steps:
                token.check()
                values = step.values
        (number,) = values
        if number.value is None:
            raise number.error or TableError(f"v{table.version} cannot be judged")
        verdict, version = number.value, table.version
        if verdict.rows == 0:
            return Finding(State.UNKNOWN, f"v{version} holds no rows", version=version, is_early=True, seen=seen)
        state = State.MET if verdict.holds else State.BROKEN
        since, rows = None if verdict.holds else table.committed_at, verdict.violations
        return Finding(state, verdict_text(verdict), since, version, broken_rows=rows, seen=seen)

    def hindsight(self, expected: TableExpectation, token: CancelToken, *, now: datetime) -> Hindsight | None:
        """What a condition would have done with versions of the last `PAST`, the newest first until one cannot be
        judged or the token's time is over; of too many some, evenly spread. None where none can be judged."""
        ref, since, versions, findings = _ref(expected.uri, expected.table), now - PAST, range(0), []
        with suppress(LakehouseError):
            versions = range(self.lake.version_at(ref, since) or 0, self.lake.latest_version(ref) + 1)
            for version in reversed(spread([(versions[0], versions[-1])], MOST_PAST)):
                table = self.lake.snapshot(ref, version)
                token.check()
                if expected.condition and table.committed_at and table.size_bytes <= self.max_bytes:
                    findings.append((table.committed_at, self._condition(expected.condition, table, token, {}).state))
        known = [finding for finding in reversed(findings) if finding[1] is not State.UNKNOWN]
        return judge_past(known, len(versions), since=since, now=now) if known else None

    def _changed_last(self, ref: TableRef) -> tuple[Snapshot, str, int]:
        """The table now, its id, and the version that changed its rows last: an OPTIMIZE is no reason to judge anew."""
        version = last_data(self.lake, ref).version
        snapshot = self.lake.snapshot(ref)
        return snapshot, snapshot.metadata.id, snapshot.version if version is None else version

    def _broken_keys(
        self, expected: TableExpectation, tables: list[Snapshot], token: CancelToken
    ) -> tuple[int, int, tuple[str, ...]]:
        """How many keys (all columns) are in several rows, or not in the other table; in how many rows; and a few of
        them as texts, those of most rows first. Raises `DiffError`, `Stopped`, and what reading the rows raises."""
        keys = [f"k{number}" for number in range(len(expected.columns))]
        names, has_no_null = ", ".join(keys), " AND ".join(f"{key} IS NOT NULL" for key in keys)
        rows = self.lake.read_files(tables[0], columns=[_column(tables[0], name) for name in expected.columns])
        others = None
        if expected.other:
            others = self.lake.read_files(tables[1], columns=[_column(tables[1], expected.other_column)])
        with session(token, memory_bytes=MEMORY_BYTES, what="the keys") as connection:
            connection.register("given", token.counted(rows))
            source, having = f"given AS g({names})", "HAVING count(*) > 1"
            if others is not None:
                connection.register("others", token.counted(others))
                connection.execute("CREATE TEMP TABLE present AS SELECT DISTINCT k0 FROM others AS o(k0)")
                source, having = f"{source} ANTI JOIN present USING (k0)", ""
            connection.execute(
                f"CREATE TEMP TABLE broken AS SELECT {names}, count(*) AS n FROM {source} WHERE {has_no_null} "
                f"GROUP BY {names} {having}"
            )
            ((num_keys, num_rows),) = connection.execute("SELECT count(*), coalesce(sum(n), 0) FROM broken").fetchall()
            most_first = f"SELECT {names} FROM broken ORDER BY n DESC, {names} LIMIT {EXAMPLES}"
            examples = row_cells(connection.sql(most_first).to_arrow_table())
            texts = tuple(cut(", ".join(map(value_text, row.values()))) for row in examples)
        return int(num_keys), int(num_rows), texts


def judged_now(looks: Looks, expected: TableExpectation, *, now: datetime) -> tuple[Judgement, Hindsight | None]:
    """What one look finds before any host has judged it, and what it would have done; nothing is kept."""
    finding = looks.look(expected, None, CancelToken(FIRST_LOOK_S), now=now)
    return Judgement(expected, finding, "", now), looks.hindsight(expected, CancelToken(FIRST_LOOK_S / 3), now=now)


def _ref(uri: str, name: str) -> TableRef:
    return TableRef(uri, name, uri.rpartition("/")[0])


def _column(snapshot: Snapshot, name: str) -> str:
    """The column as the table spells it."""
    if (column := spelled(name, column_names(snapshot.metadata))) is None:
        raise ColumnNotFoundError(f"{snapshot.ref.name} has no column {name}")
    return column


def last_data(lake: Lake, ref: TableRef) -> LastData:
    """The newest commit that changed rows."""
    high, step, oldest = lake.latest_version(ref), FIRST_LOOK, None
    while high >= 0:
        arrivals = lake.arrivals(ref, max(0, high - step + 1), high, feed=False)
        for arrival in reversed(arrivals):
            if arrival.files or arrival.removes_rows:
                return LastData(arrival.version, arrival.committed_at)
        if not arrivals:
            break
        oldest = arrivals[0].committed_at
        high, step = high - step, COMMITS_AT_ONCE
    return LastData(None, None, oldest)


def rows_by_day(
    lake: Lake, ref: TableRef, first: date, last: date, *, is_stopped: Callable[[], bool] = lambda: False
) -> dict[date, int | None]:
    """Rows that commits added on each full UTC day between `first` and `last`; None where a commit does not say.

    Days that the log does not hold as a whole are left out: the one of its oldest commit too.
    """
    rows: defaultdict[date, int | None] = defaultdict(int)
    high = newest = lake.latest_version(ref)
    oldest = last + timedelta(days=1)
    while high >= 0 and oldest >= first and newest - high < MOST_COMMITS:
        if is_stopped():
            raise Stopped
        low = max(0, high - COMMITS_AT_ONCE + 1)
        arrivals = lake.arrivals(ref, low, high, feed=False)
        if not arrivals:
            break
        added = _added(lake, ref, arrivals)
        for arrival in arrivals:
            if arrival.committed_at is None:
                raise TableError(f"v{arrival.version} does not say when it was committed")
            day = arrival.committed_at.date()
            so_far, more = rows[day], added[arrival.version]
            rows[day] = None if so_far is None or more is None else so_far + more
            oldest = min(oldest, day)
        high = low - 1
    whole = max(first, oldest + timedelta(days=1))
    return {day: rows[day] for day in (whole + timedelta(days=n) for n in range((last - whole).days + 1))}


def _added(lake: Lake, ref: TableRef, arrivals: Sequence[Arrival]) -> dict[int, int | None]:
    """New rows by version: those of the files of an append, which are exact, else what the writer says."""
    added = {arrival.version: arrival.rows if arrival.files else 0 for arrival in arrivals}
    unsure = {
        arrival.version: arrival
        for arrival in arrivals
        if arrival.files and (arrival.removes_rows or arrival.rows is None)
    }
    if unsure:
        for commit in lake.history(ref, starting_version=min(unsure), ending_version=max(unsure)):
            if commit.version in unsure:
                added[commit.version] = added_rows(commit, removes=unsure[commit.version].removes_rows)
    return added
