"""One look at a table: what its log and its rows say of one expectation.

Rule: reads no more than has changed since the last look. What cannot be told, or is too large, is unknown with the
reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

from backend.errors import ColumnNotFoundError, DiffError, LakehouseError
from backend.expectations.judge import MOST_DAYS, judge_fresh, judge_rows
from backend.expectations.keys import BrokenKeys, missing, repeated
from backend.expectations.model import ExpectationKind, Finding, State, TableExpectation
from backend.expectations.reading import last_data, rows_by_day
from backend.format import bytes_text, duration_text
from backend.lake.lake import Lake
from backend.lake.model import Snapshot, TableRef
from backend.lake.table.metadata_diff import column_names
from backend.sql.numbers import rows_of
from backend.sql.session import CancelToken


@dataclass(frozen=True, slots=True)
class Looks:
    """Looks at tables of a lake; keys are judged in tables of at most `max_bytes`."""

    lake: Lake
    max_bytes: int

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
        known = _known_days(before, table_id)
        first = day - timedelta(days=MOST_DAYS)
        missing_from = max(known, default=first - timedelta(days=1)) + timedelta(days=1)
        if missing_from <= day:
            known |= rows_by_day(self.lake, ref, missing_from, day, is_stopped=lambda: token.is_stopped)
        days = {each: rows for each, rows in known.items() if first <= each <= day}
        seen = {"table": table_id, "days": {each.isoformat(): rows for each, rows in days.items()}}
        return replace(judge_rows(days, day), seen=seen)

    def _keys(self, expected: TableExpectation, ref: TableRef, before: Finding | None, token: CancelToken) -> Finding:
        snapshots = [self._changed_last(ref)]
        if expected.other:
            snapshots.append(self._changed_last(_ref(expected.other_uri, expected.other)))
        seen = {"versions": [f"{metadata_id} {version}" for _, metadata_id, version in snapshots]}
        if before is not None and before.seen == seen:
            return before
        tables = [snapshot for snapshot, _, _ in snapshots]
        size = sum(each.size_bytes for each in tables)
        if size > self.max_bytes:
            reason = f"{bytes_text(size)}, limit {bytes_text(self.max_bytes)}"
            return Finding(State.UNKNOWN, reason, version=tables[0].version)
        version, other_version = tables[0].version, tables[1].version if expected.other else None
        try:
            found = self._broken(expected, tables, token)
        except DiffError as exc:  # the time or the memory was not enough, and will not be at the same versions
            late = token.seconds_left is not None and token.seconds_left <= 0
            reason = f"it took longer than {duration_text(token.time_limit_s)}" if late else exc.message
            return Finding(State.UNKNOWN, reason, version=version, other_version=other_version, seen=seen)
        return Finding(
            State.BROKEN if found.keys else State.MET,
            since=tables[0].committed_at if found.keys else None,
            version=version,
            other_version=other_version,
            broken_keys=found.keys,
            broken_rows=found.rows,
            examples=found.examples,
            seen=seen,
        )

    def _changed_last(self, ref: TableRef) -> tuple[Snapshot, str, int]:
        """The table now, its id, and the version that changed its rows last: an OPTIMIZE is no reason to judge anew."""
        version = last_data(self.lake, ref).version
        snapshot = self.lake.snapshot(ref)
        return snapshot, snapshot.metadata.id, snapshot.version if version is None else version

    def _broken(self, expected: TableExpectation, tables: list[Snapshot], token: CancelToken) -> BrokenKeys:
        columns = [_column(tables[0], name) for name in expected.columns]
        if not expected.other:
            if not tables[0].num_files:
                return BrokenKeys(0, 0, ())
            return repeated(rows_of(self.lake, tables[0], columns), columns, token)
        other = _column(tables[1], expected.other_column)
        rows, others = rows_of(self.lake, tables[0], columns), rows_of(self.lake, tables[1], [other])
        return missing(rows, columns[0], others, other, token)


def _ref(uri: str, name: str) -> TableRef:
    return TableRef(uri, name, uri.rpartition("/")[0])


def _column(snapshot: Snapshot, name: str) -> str:
    """The column as the table spells it."""
    names = {each.lower(): each for each in column_names(snapshot.metadata)}
    if name.lower() not in names:
        raise ColumnNotFoundError(f"{snapshot.ref.name} has no column {name}")
    return names[name.lower()]


def _known_days(before: Finding | None, table_id: str) -> dict[date, int | None]:
    """Days read before of the same table, as far as they have no gap to the newest."""
    seen = before.seen if before else {}
    days = seen.get("days")
    if seen.get("table") != table_id or not isinstance(days, Mapping):
        return {}
    return {date.fromisoformat(day): rows for day, rows in days.items()}
