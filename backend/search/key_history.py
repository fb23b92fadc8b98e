"""One key's rows over a range of versions: what each commit did to them.

Rule: by the change feed where it covers the range, else by the key's row at each version that may have changed rows.
A version that cannot be read, or was not looked at, is said; nothing is taken for unchanged because it was not seen.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from backend.cells import row_cells
from backend.changes.commits import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from backend.changes.model import RowChange, RowKind
from backend.changes.plan import FeedSupport
from backend.errors import DiffError, UnsupportedFeatureError
from backend.lake.model import CommitReader, Snapshot, TableRef
from backend.lake.rows.filters import RowFilter
from backend.lake.rows.rows import RowPage, RowQuery
from backend.lake.table.schema import fields
from backend.search.search import may_change_rows
from backend.sql.filters import parse_filter
from backend.sql.numbers import Numbers, ScannedLake, VersionValue
from backend.sql.quoting import quoted_name, quoted_text
from backend.sql.session import CancelToken
from backend.sql.values import same
from backend.work import Work

MOST_VERSIONS = 200  # states that one history looks at, the newest
MOST_ROWS = 2_000  # changes of one key in a feed
_POLL_S = 0.1

Key = Mapping[str, str | int | float | bool]  # as JSON holds it: times and decimals as text
Row = dict[str, Any]


class KeyLake(ScannedLake, CommitReader, Protocol):
    """The part of `backend.lake.lake.Lake` that a key's history needs."""

    def cdf_support(self, ref: TableRef, from_version: int, to_version: int) -> FeedSupport: ...
    def changes(
        self, ref: TableRef, from_version: int, to_version: int, *, columns: Sequence[str] | None = None
    ) -> pa.RecordBatchReader: ...
    def find_rows(self, snapshot: Snapshot, query: RowQuery) -> RowPage: ...


@dataclass(frozen=True, slots=True)
class KeyStep:
    """What the commit of a version did to the key's row."""

    version: int
    change: RowChange


@dataclass(frozen=True, slots=True)
class KeyHistory:
    """Steps oldest first. `notes` say how they were found and what was not seen."""

    key: Key
    steps: tuple[KeyStep, ...]
    by_feed: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyProgress:
    """`versions` looked at of `total` (0: the feed is read as one); `result` when it ended."""

    rows_read: int
    versions: int
    total: int
    result: KeyHistory | None = None


def key_history(lake: KeyLake, ref: TableRef, versions: tuple[int, int], key: Key) -> Iterator[KeyProgress]:
    """The steps of the commits after the older of two versions up to the newer; close the iterator to cancel.

    Raises `DiffError` for a key that the table does not have or that is not unique, and what reading raises.
    """
    low, high = sorted(versions)
    where = key_filter(lake.snapshot(ref, high), key)
    if low < high and lake.cdf_support(ref, low, high).covered:
        return _by_feed(lake, ref, (low, high), (key, where))
    return _by_states(lake, ref, (low, high), (key, where))


def whole_life(lake: KeyLake, ref: TableRef, versions: tuple[int, int], key: Key) -> Iterator[KeyProgress]:
    """As `key_history`, with what the oldest version holds of it: there it was made, or it is older than the log."""
    low = min(versions)
    for step in key_history(lake, ref, versions, key):
        if step.result is None:
            yield step
            continue
        snapshot = lake.snapshot(ref, low)
        row = _row_at(lake, snapshot, key_filter(snapshot, key))
        steps, notes = step.result.steps, step.result.notes
        if row is not None and low == 0:
            steps = (_step(0, key, None, row), *steps)
        elif row is not None:
            notes = (*notes, f"it was there at v{low} already, the oldest version that can be read")
        yield replace(step, result=replace(step.result, steps=steps, notes=notes))


def key_filter(snapshot: Snapshot, key: Key) -> RowFilter:
    """A filter for the key's rows; raises `DiffError` for other columns, `QueryError` for values that do not fit."""
    schema = fields(snapshot.metadata)
    types = {field.path: field.type for field in schema if field.depth == 0}
    if missing := sorted(key.keys() - types.keys()):
        raise DiffError(f"no column {', '.join(missing)} to look a key up by")
    parts = [f"{quoted_name(name)} = {_literal(value, types[name])}" for name, value in key.items()]
    where = parse_filter(" AND ".join(parts), schema)
    if where is None:
        raise DiffError("an empty key names no row")
    return where


def _literal(value: str | int | float | bool, kind: str) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str) and not kind.startswith("decimal"):
        return quoted_text(value)
    return f"{Decimal(value):f}" if isinstance(value, str) else repr(value)


# the change feed -------------------------------------------------------------------------------------------------


def _by_feed(
    lake: KeyLake, ref: TableRef, versions: tuple[int, int], wanted: tuple[Key, RowFilter]
) -> Iterator[KeyProgress]:
    token, key = CancelToken(), wanted[0]
    work = Work(lambda: _feed_rows(lake.changes(ref, *versions), key, token), token.stop)
    try:
        while not work.ended(_POLL_S):
            yield KeyProgress(token.rows_read, 0, 0)
    finally:
        work.stop()
    try:
        steps = tuple(_feed_steps(work.result(), key))
    except UnsupportedFeatureError:  # times that the feed's reader would misread
        yield from _by_states(lake, ref, versions, wanted)
        return
    note = f"from the change feed of v{versions[0] + 1} to v{versions[1]}"
    yield KeyProgress(token.rows_read, 0, 0, KeyHistory(key, steps, True, (note,)))


def _feed_rows(feed: pa.RecordBatchReader, key: Key, token: CancelToken) -> list[Row]:
    wanted = {name: _typed(value, feed.schema.field(name).type) for name, value in key.items()}
    rows: list[Row] = []
    for batch in feed:
        token.check()
        token.rows_read += batch.num_rows
        for name, value in wanted.items():
            batch = batch.filter(pc.equal(batch.column(name), value))
        rows += row_cells(batch)
        if len(rows) > MOST_ROWS:
            raise DiffError(f"more than {MOST_ROWS:,} rows have this key", hint="look for a narrower key or range")
    return rows


def _typed(value: str | int | float | bool, kind: pa.DataType) -> pa.Scalar:
    try:
        return pa.scalar(value).cast(kind)
    except pa.ArrowException as exc:
        raise DiffError(f"{value!r} is no key of type {kind}") from exc


def _feed_steps(rows: Sequence[Row], key: Key) -> Iterator[KeyStep]:
    for version in sorted({row[COMMIT_VERSION] for row in rows}):
        mine = [row for row in rows if row[COMMIT_VERSION] == version]
        befores, afters = (
            [_plain(row) for row in mine if row[CHANGE_TYPE] == f"update_{side}"] for side in ("preimage", "postimage")
        )
        for before, after in zip(befores, afters, strict=False):
            yield _step(version, key, before, after)
        yield from (_step(version, key, _plain(row), None) for row in mine if row[CHANGE_TYPE] == "delete")
        yield from (_step(version, key, None, _plain(row)) for row in mine if row[CHANGE_TYPE] == "insert")


def _plain(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)}


# state by state --------------------------------------------------------------------------------------------------


def _row_at(lake: KeyLake, snapshot: Snapshot, where: RowFilter) -> Row | None:
    rows = row_cells(lake.find_rows(snapshot, RowQuery(None, where, 2, search_files=None)).rows)
    if len(rows) > 1:
        raise DiffError("more than one row has this key")
    return rows[0] if rows else None


def _by_states(
    lake: KeyLake, ref: TableRef, versions: tuple[int, int], asked: tuple[Key, RowFilter]
) -> Iterator[KeyProgress]:
    (low, high), (key, where) = versions, asked
    commits = lake.history(ref, starting_version=low + 1, ending_version=high)
    states = [low, *sorted(commit.version for commit in commits if may_change_rows(commit))]
    looked = states[-MOST_VERSIONS:]
    values: tuple[VersionValue[Row | None], ...] = ()
    rows = Numbers(lambda _, snapshot, __: _row_at(lake, snapshot, where))
    with closing(rows.over(lake, ref, "", looked)) as steps:
        for step in steps:
            values = step.values
            yield KeyProgress(0, len(values), len(looked))
    notes = [f"from the key's row at {len(looked):,} versions: no change feed covers v{low} to v{high}"]
    if len(looked) < len(states):
        notes.append(f"the {len(states) - len(looked):,} versions before v{looked[0]} were not looked at")
    notes += [f"v{each.version} could not be read ({each.problem}): its change, if any, shows at a later version"
              for each in values if each.problem]  # fmt: skip
    history = KeyHistory(key, tuple(_state_steps(values, key)), False, tuple(notes))
    yield KeyProgress(0, len(values), len(looked), history)


def _state_steps(values: Sequence[VersionValue[Row | None]], key: Key) -> Iterator[KeyStep]:
    known = [each for each in values if each.problem is None]
    for earlier, later in itertools.pairwise(known):
        before, after = earlier.value, later.value
        if before is None and after is None:
            continue
        step = _step(later.version, key, before, after)
        if step.change.kind is not RowKind.UPDATE or step.change.changed:
            yield step


def _step(version: int, key: Key, before: Row | None, after: Row | None) -> KeyStep:
    if before is None or after is None:
        kind = RowKind.INSERT if before is None else RowKind.DELETE
        return KeyStep(version, RowChange(kind, key, before, after))
    names = [*after, *(name for name in before if name not in after)]
    changed = tuple(name for name in names if not same(before.get(name), after.get(name)))
    return KeyStep(version, RowChange(RowKind.UPDATE, key, before, after, changed))
