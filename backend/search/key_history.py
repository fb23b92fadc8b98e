"""One key's rows over a range of versions: what each commit did to them.

Rule: by the change feed where it covers the range, else by the key's rows at each version that may have changed rows.
A version that cannot be read, or was not looked at, is said; nothing is taken for unchanged because it was not seen.
A key may be in several rows: equal ones cancel, and how many hold it is said.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from backend.cells import row_cells
from backend.changes.commits import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from backend.changes.model import RowChange, RowKind
from backend.errors import DiffError, LakehouseError, UnsupportedFeatureError
from backend.lake.lake import Lake
from backend.lake.model import Snapshot, TableRef
from backend.lake.rows.filters import RowFilter
from backend.lake.rows.rows import RowQuery
from backend.lake.table.schema import columns
from backend.sql.filters import parse_filter
from backend.sql.numbers import Numbers, VersionValue
from backend.sql.session import CancelToken
from backend.sql.values import quoted_name, quoted_text, same
from backend.work import Work, still_runs

MOST_VERSIONS = 200  # states that one history looks at, the newest
MOST_ROWS = 2_000  # changes of one key in a feed
MOST_HOLDING = 100  # rows of one key at a version

Key = Mapping[str, str | int | float | bool]  # as JSON holds it: times and decimals as text
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class KeyStep:
    """What the commit of a version did to a row of the key. `rows`: how many hold the key before and after the commit,
    None where that is not known."""

    version: int
    change: RowChange
    rows: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class KeyHistory:
    """Steps oldest first. `notes` say how they were found and what was not seen; `is_whole`: all of it was seen."""

    key: Key
    steps: tuple[KeyStep, ...]
    by_feed: bool
    notes: tuple[str, ...]
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class KeyProgress:
    """`versions` looked at of `total` (0: the feed is read as one); `result` when it ended."""

    rows_read: int
    versions: int
    total: int
    result: KeyHistory | None = None


def key_history(lake: Lake, ref: TableRef, versions: tuple[int, int], key: Key) -> Iterator[KeyProgress]:
    """The steps of the commits after the older of two versions up to the newer; close the iterator to cancel.

    Raises `DiffError` for a key that the table does not have, and what reading raises.
    """
    low, high = sorted(versions)
    where = key_filter(lake.snapshot(ref, high), key)
    if low < high and lake.cdf_support(ref, low, high).covered:
        return _by_feed(lake, ref, (low, high), (key, where))
    return _by_states(lake, ref, (low, high), (key, where))


def whole_life(lake: Lake, ref: TableRef, versions: tuple[int, int], key: Key) -> Iterator[KeyProgress]:
    """As `key_history`, with what the oldest version holds of it: there it was made, or it is older than the log."""
    low = min(versions)
    for step in key_history(lake, ref, versions, key):
        if step.result is None:
            yield step
            continue
        snapshot = lake.snapshot(ref, low)
        rows = _rows_at(lake, snapshot, key_filter(snapshot, key))
        steps, notes = step.result.steps, step.result.notes
        if rows and low == 0:
            steps = (*_steps(0, key, ((), rows), (0, len(rows))), *steps)
        elif rows:
            notes = (*notes, f"it was there at v{low} already, the oldest version that can be read")
        yield replace(step, result=replace(step.result, steps=steps, notes=notes))


def key_filter(snapshot: Snapshot, key: Key) -> RowFilter:
    """A filter for the key's rows; raises `DiffError` for other columns, `QueryError` for values that do not fit."""
    schema = columns(snapshot.metadata)
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
    lake: Lake, ref: TableRef, versions: tuple[int, int], wanted: tuple[Key, RowFilter]
) -> Iterator[KeyProgress]:
    token, (key, where) = CancelToken(), wanted
    first = lake.snapshot(ref, versions[0])

    def read() -> tuple[list[Row], int | None]:
        rows = _feed_rows(lake.changes(ref, *versions), key, token)
        with suppress(LakehouseError):  # its files may be gone; the feed's are not
            return rows, len(_rows_at(lake, first, where))
        return rows, None

    with Work(read, token.stop) as work:
        while still_runs(work, "the change feed", limit_s=math.inf):
            yield KeyProgress(token.rows_read, 0, 0)
    try:
        rows, count = work.result()
    except UnsupportedFeatureError:  # times that the feed's reader would misread
        yield from _by_states(lake, ref, versions, wanted)
        return
    steps = tuple(_feed_steps(rows, key, count))
    holding = steps[-1].rows[1] if steps and steps[-1].rows else count
    notes = (f"from the change feed of v{versions[0] + 1} to v{versions[1]}", *_repeated(holding or 0, versions[1]))
    yield KeyProgress(token.rows_read, 0, 0, KeyHistory(key, steps, True, notes))


def _repeated(count: int, version: int) -> list[str]:
    return [f"{count:,} rows have this key at v{version}"] if count > 1 else []


def _feed_rows(feed: pa.RecordBatchReader, key: Key, token: CancelToken) -> list[Row]:
    wanted = {}
    for name, value in key.items():
        kind = feed.schema.field(name).type
        try:
            wanted[name] = pa.scalar(value).cast(kind)
        except pa.ArrowException as exc:
            raise DiffError(f"{value!r} is no key of type {kind}") from exc
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


def _feed_steps(rows: Sequence[Row], key: Key, count: int | None) -> Iterator[KeyStep]:
    """`count`: how many rows hold the key before the first commit."""
    for version in sorted({row[COMMIT_VERSION] for row in rows}):
        mine = [row for row in rows if row[COMMIT_VERSION] == version]
        gone = [_plain(row) for row in mine if row[CHANGE_TYPE] in ("update_preimage", "delete")]
        came = [_plain(row) for row in mine if row[CHANGE_TYPE] in ("update_postimage", "insert")]
        before, count = count, None if count is None else count + len(came) - len(gone)
        yield from _steps(version, key, (gone, came), None if before is None or count is None else (before, count))


def _plain(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)}


# state by state --------------------------------------------------------------------------------------------------


def _rows_at(lake: Lake, snapshot: Snapshot, where: RowFilter) -> list[Row]:
    rows = row_cells(lake.find_rows(snapshot, RowQuery(None, where, MOST_HOLDING + 1, search_files=None)).rows)
    if len(rows) > MOST_HOLDING:
        raise DiffError(f"more than {MOST_HOLDING} rows have this key")
    return rows


def _by_states(
    lake: Lake, ref: TableRef, versions: tuple[int, int], asked: tuple[Key, RowFilter]
) -> Iterator[KeyProgress]:
    (low, high), (key, where) = versions, asked
    commits = lake.history(ref, starting_version=low + 1, ending_version=high)
    states = [low, *sorted(commit.version for commit in commits if commit.may_change_rows)]
    looked = states[-MOST_VERSIONS:]
    values: tuple[VersionValue[list[Row]], ...] = ()
    rows = Numbers(lambda _, snapshot, __: _rows_at(lake, snapshot, where))
    with closing(rows.over(lake, ref, "", looked)) as steps:
        for step in steps:
            values = step.values
            yield KeyProgress(0, len(values), len(looked))
    notes = [f"from the key's rows at {len(looked):,} versions: no change feed covers v{low} to v{high}"]
    if len(looked) < len(states):
        notes.append(f"the {len(states) - len(looked):,} versions before v{looked[0]} were not looked at")
    notes += [f"v{each.version} could not be read ({each.problem}): its change, if any, shows at a later version"
              for each in values if each.problem]  # fmt: skip
    known = [(each.version, each.value) for each in values if each.value is not None]
    notes += _repeated(len(known[-1][1]), known[-1][0]) if known else []
    is_whole = len(looked) == len(states) and len(known) == len(values)
    steps_of_key = [
        step
        for (_, before), (version, after) in itertools.pairwise(known)
        for step in _steps(version, key, (before, after), (len(before), len(after)))
    ]
    history = KeyHistory(key, tuple(steps_of_key), False, tuple(notes), is_whole)
    yield KeyProgress(0, len(values), len(looked), history)


# both ways -------------------------------------------------------------------------------------------------------


def _steps(
    version: int, key: Key, rows: tuple[Sequence[Row], Sequence[Row]], counts: tuple[int, int] | None
) -> Iterator[KeyStep]:
    """What a commit did, by the rows before and after it: one row for one other is an update; of several, nobody knows
    which became which."""
    gone, came = list(rows[0]), []
    for row in rows[1]:
        twin = next((place for place, each in enumerate(gone) if not _changed(each, row)), None)
        if twin is None:
            came.append(row)
        else:
            del gone[twin]
    if len(gone) == len(came) == 1:
        changed = _changed(gone[0], came[0])
        yield KeyStep(version, RowChange(RowKind.UPDATE, key, gone[0], came[0], changed), counts)
        return
    yield from (KeyStep(version, RowChange(RowKind.DELETE, key, row, None), counts) for row in gone)
    yield from (KeyStep(version, RowChange(RowKind.INSERT, key, None, row), counts) for row in came)


def _changed(before: Row, after: Row) -> tuple[str, ...]:
    """The columns whose values differ."""
    names = [*after, *(name for name in before if name not in after)]
    return tuple(name for name in names if not same(before.get(name), after.get(name)))
