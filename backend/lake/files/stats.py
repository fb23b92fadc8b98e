"""What the log's statistics say of a column: bounds and nulls per file, and what they come to over a snapshot.

Rule: from statistics and partition values alone, no data file is opened; what a file does not say is null, and a total
says for how many files it is known. A bound is not always a value: text is cut at 32 characters or 64 bytes, deletion
vectors leave bounds of rows that are gone, and times are cut to the millisecond. It does not enclose all values either:
writers leave NaN and infinity out.
Source: Delta protocol, "Per-file Statistics".
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from backend.cells import cell, far_number
from backend.errors import ColumnNotFoundError
from backend.lake.files.stats_text import FileStats, bound_value, read_stats, stat_kind, value_type
from backend.lake.files.stats_text import StatKind as StatKind
from backend.lake.model import Metadata, Snapshot
from backend.lake.table.restricted import hidden_columns
from backend.lake.table.schema import SchemaColumn, columns, partition_values

FILES_AT_ONCE = 65_536
BYTES_AT_ONCE = 1 << 24  # of texts: wide tables have long ones
READ_AT_ONCE = 2
# Writers cut text here: one this long may be a bound and no value. Spark counts UTF-16, delta-rs cuts whole characters.
CUT_CHARS, CUT_BYTES = 32, 61
CUT_TIME_US = 1_000
DOUBLE_DIGITS = 15  # delta-rs writes decimals through a double: longer ones may be rounded


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """One column's statistics, one entry a file in the snapshot's file order (that of `Snapshot.columns`).

    `min`, `max`: of the column's own type, null where unknown or where the file has no value; NaN counts as the
    highest number where its writer recorded it. `null_count`: of the rows in the file, deleted ones included.
    `num_records`: rows in the file. `is_tight`: false where deletion vectors make the three mere bounds. Never null.
    """

    column: str
    type: str
    kind: StatKind
    is_partition: bool
    min: pa.Array
    max: pa.Array
    null_count: pa.Array
    num_records: pa.Array
    is_tight: pa.Array

    @property
    def totals(self) -> "ColumnTotals":
        lowest, highest = _extremes(self)
        known_nulls = pc.and_(pc.is_valid(self.null_count), pc.is_valid(self.num_records))
        only_nulls = pc.fill_null(pc.equal(self.null_count, self.num_records), False)
        bounded = pc.or_(pc.and_(pc.is_valid(self.min), pc.is_valid(self.max)), only_nulls)
        is_tight = bool(pc.all(pc.fill_null(self.is_tight, True)).as_py() is not False)
        return ColumnTotals(
            self.column,
            self.type,
            self.kind,
            self.is_partition,
            files=len(self.min),
            lowest=cell(lowest),
            highest=cell(highest),
            lowest_is_value=is_tight and _is_value(lowest, self),
            highest_is_value=is_tight and _is_value(highest, self),
            files_with_bounds=count_true(bounded) if self.kind is not StatKind.OTHER else 0,
            nulls=pc.sum(self.null_count.filter(known_nulls)).as_py() or 0,
            rows_with_nulls=pc.sum(self.num_records.filter(known_nulls)).as_py() or 0,
            files_with_nulls=count_true(known_nulls),
            is_tight=is_tight,
        )


@dataclass(frozen=True, slots=True)
class ColumnTotals:
    """One column over all files of a snapshot.

    `lowest`, `highest`: None where no file says. `*_is_value` false: the true one may lie inside of them.
    `files_with_bounds` counts files whose bounds are known, those known to hold only nulls among them.
    `nulls` are those of `files_with_nulls` files with `rows_with_nulls` rows; deleted rows count where not `is_tight`.
    """

    column: str
    type: str
    kind: StatKind
    is_partition: bool
    files: int
    lowest: Any = None
    highest: Any = None
    lowest_is_value: bool = True
    highest_is_value: bool = True
    files_with_bounds: int = 0
    nulls: int = 0
    rows_with_nulls: int = 0
    files_with_nulls: int = 0
    is_tight: bool = True

    @property
    def null_share(self) -> float | None:
        """Nulls among the rows of the files that say; None when no file does."""
        return self.nulls / self.rows_with_nulls if self.rows_with_nulls else None

    @property
    def lowest_is_exact(self) -> bool:
        return self.lowest_is_value and self._encloses_all

    @property
    def highest_is_exact(self) -> bool:
        return self.highest_is_value and self._encloses_all and not self._may_be_higher

    @property
    def lowest_sign(self) -> str:
        """How the true value relates to `lowest`: "" for equal, "≥", "≤", and "≈" where it may be either."""
        return _sign(self.lowest_is_value, self._encloses_all, "≥≤") if self.lowest is not None else ""

    @property
    def highest_sign(self) -> str:
        if self.highest is None:
            return ""
        is_value = self.highest_is_value or (self._may_be_higher and self.kind is not StatKind.FLOAT and self.is_tight)
        return _sign(is_value, self._encloses_all and not self._may_be_higher, "≤≥")

    @property
    def _encloses_all(self) -> bool:
        """Whether every file says its bounds."""
        return self.files_with_bounds == self.files

    @property
    def _may_be_higher(self) -> bool:
        """Whether writers may have left out what is higher: NaN, which is the highest number, or microseconds."""
        if self.is_partition:
            return False
        is_time = self.kind in (StatKind.TIMESTAMP, StatKind.TIMESTAMP_NTZ)
        return (self.kind is StatKind.FLOAT and self.highest == self.highest) or (is_time and not self.highest_is_value)

    def plus(self, other: "ColumnTotals") -> "ColumnTotals":
        """Totals of these files and of others together."""
        low, low_exact = _outer(self, other, "lowest")
        high, high_exact = _outer(self, other, "highest")
        return ColumnTotals(
            self.column, self.type, self.kind, self.is_partition, self.files + other.files,
            low, high, low_exact, high_exact,
            self.files_with_bounds + other.files_with_bounds, self.nulls + other.nulls,
            self.rows_with_nulls + other.rows_with_nulls, self.files_with_nulls + other.files_with_nulls,
            self.is_tight and other.is_tight,
        )  # fmt: skip


def column_stats(
    snapshot: Snapshot, column: str | tuple[str, ...], *, files_at_once: int = FILES_AT_ONCE
) -> ColumnStats:
    """One column (its path, or its names from the top) over every file; raises `ColumnNotFoundError` or
    `TableCorruptError`."""
    chunks = [chunk[0] for chunk in _chunks(snapshot, _find(snapshot.metadata, [column]), files_at_once)]
    return replace(
        chunks[0], **{name: _joined(pa.chunked_array([getattr(chunk, name) for chunk in chunks])) for name in _ARRAYS}
    )


def column_totals(
    snapshot: Snapshot, names: Sequence[str], *, files_at_once: int = FILES_AT_ONCE
) -> tuple[ColumnTotals, ...]:
    """Totals of several columns in one pass, in the order asked for; raises what `column_stats` raises."""
    chunks = _chunks(snapshot, _find(snapshot.metadata, names), files_at_once)
    totals = ([stats.totals for stats in chunk] for chunk in chunks)
    return tuple(reduce(lambda sums, more: [a.plus(b) for a, b in zip(sums, more, strict=True)], totals))


def columns_with_stats(metadata: Metadata) -> tuple[str, ...]:
    """The columns that statistics can speak of: leaves outside arrays and maps, in the schema's order."""
    return tuple(column.path for column in _leaves(metadata))


def _leaves(metadata: Metadata) -> list[SchemaColumn]:
    return [column for column in columns(metadata) if not column.in_collection and column.kind != "struct"]


# reading ---------------------------------------------------------------------------------------------------------

_ARRAYS = ("min", "max", "null_count", "num_records", "is_tight")
_READ = ("stats", "num_records", "dv_id", "partition")


def _find(metadata: Metadata, names: Sequence[str | tuple[str, ...]]) -> list[SchemaColumn]:
    leaves = _leaves(metadata)
    by_path: dict[str | tuple[str, ...], SchemaColumn] = {c.path: c for c in leaves} | {c.names: c for c in leaves}
    missing = [name for name in names if name not in by_path]
    if missing:
        raise ColumnNotFoundError(
            f"there are no statistics of a column {missing[0]!r}",
            hint="a nested one is written with dots; structs, and what lies in arrays and maps, have none",
        )
    return [by_path[name] for name in names]


def _chunks(snapshot: Snapshot, wanted: Sequence[SchemaColumn], files_at_once: int) -> Iterator[list[ColumnStats]]:
    """Statistics of so many files at once, in their order; at least one chunk."""
    files = snapshot.columns(_READ if snapshot.metadata.partition_columns else _READ[:3])
    step = max(1, min(files_at_once, BYTES_AT_ONCE * files.num_rows // (files["stats"].nbytes + 1)))
    chunks = [files.slice(start, step) for start in range(0, max(1, files.num_rows), step)]
    if len(chunks) == 1:  # threads take as long to begin as a few files to read
        yield _chunk(chunks[0], snapshot, wanted)
        return
    with ThreadPoolExecutor(READ_AT_ONCE) as pool:
        yield from pool.map(lambda chunk: _chunk(chunk, snapshot, wanted), chunks)


def _chunk(files: pa.Table, snapshot: Snapshot, wanted: Sequence[SchemaColumn]) -> list[ColumnStats]:
    metadata, hidden = snapshot.metadata, hidden_columns(snapshot.hidden, snapshot.metadata)
    columns_of = {name: _joined(files[name]) for name in files.column_names}
    columns_of |= {name: columns_of[name].cast(pa.string()) for name in ("stats", "partition") if name in columns_of}
    rows = columns_of["num_records"]
    stored = [column for column in wanted if not column.is_partition]
    parsed, tight = read_stats(columns_of["stats"], stored) if stored else ([], pa.nulls(len(rows), pa.bool_()))
    is_tight = pc.coalesce(tight, pc.is_null(columns_of["dv_id"]))
    by_path = dict(zip((column.path for column in stored), parsed, strict=True))
    always = pa.repeat(pa.scalar(True), len(rows))
    made = []
    for column in wanted:
        if column.is_partition:
            stats, exact = _partition_stats(columns_of["partition"], rows, column, metadata), always
        else:
            stats, exact = by_path[column.path], is_tight
        if column.names[0] in hidden:  # bounds are values
            stats = replace(stats, min=pa.nulls(len(rows), stats.min.type), max=pa.nulls(len(rows), stats.max.type))
        made.append(
            ColumnStats(column.path, column.type, stat_kind(column), column.is_partition,
                        stats.min, stats.max, stats.null_count, rows, exact)
        )  # fmt: skip
    return made


def _partition_stats(texts: pa.Array, rows: pa.Array, column: SchemaColumn, metadata: Metadata) -> FileStats:
    """A partition column has one value a file, and no statistics; each distinct partition is read once."""
    codes = texts.dictionary_encode()
    values = [partition_values(text, metadata)[column.path] for text in codes.dictionary.to_pylist()]
    typed = pa.array([_partition_value(value, column) for value in values], value_type(column))
    is_null = pa.array([value is None for value in values], pa.bool_()).take(codes.indices)
    taken = typed.take(codes.indices)
    return FileStats(taken, taken, pc.if_else(is_null, rows, pa.scalar(0, pa.int64())))


def _partition_value(text: str | None, column: SchemaColumn) -> Any:
    if text is None:
        return None
    if stat_kind(column) is StatKind.BOOLEAN:
        return {"true": True, "false": False}.get(text.lower())
    if stat_kind(column) is StatKind.INTEGER:
        return int(text) if text.removeprefix("-").isdecimal() and len(text) < 20 else None
    return bound_value(text, column)


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


# totals ----------------------------------------------------------------------------------------------------------


def _extremes(stats: ColumnStats) -> tuple[pa.Scalar, pa.Scalar]:
    if stats.kind is StatKind.OTHER or not len(stats.min):
        return pa.scalar(None), pa.scalar(None)
    lowest, highest = pc.min(stats.min), pc.max(stats.max)
    if stats.kind is StatKind.FLOAT and pc.any(pc.is_nan(stats.max)).as_py():
        highest = pa.scalar(float("nan"))
    return lowest, highest


def _is_value(bound: pa.Scalar, stats: ColumnStats) -> bool:
    """Whether a bound is surely a value of the column, not text that may be cut or a number that may be rounded."""
    if stats.is_partition or not bound.is_valid:
        return True
    if stats.kind is StatKind.STRING:
        text = bound.as_py()
        return len(text.encode("utf-16-le")) < 2 * CUT_CHARS and len(text.encode()) < CUT_BYTES
    if stats.kind in (StatKind.TIMESTAMP, StatKind.TIMESTAMP_NTZ):
        return bool(bound.cast(pa.int64()).as_py() % CUT_TIME_US)
    if stats.kind is StatKind.DECIMAL:
        return len(bound.as_py().normalize().as_tuple().digits) <= DOUBLE_DIGITS
    return True


def _sign(is_value: bool, is_outer: bool, signs: str) -> str:
    """`signs`: of a bound that is no value but encloses all, and of a value that does not."""
    return ("" if is_outer else signs[1]) if is_value else (signs[0] if is_outer else "≈")


def _outer(a: ColumnTotals, b: ColumnTotals, name: str) -> tuple[Any, bool]:
    """The lower `lowest` or the higher `highest` of two, and whether it is a value."""
    first, second = getattr(a, name), getattr(b, name)
    if first is None or second is None:
        chosen = b if first is None else a
    elif name == "lowest":
        chosen = b if _order(second, a.kind) < _order(first, a.kind) else a
    else:
        chosen = b if _order(second, a.kind) > _order(first, a.kind) else a
    return getattr(chosen, name), getattr(chosen, f"{name}_is_value") and a.is_tight and b.is_tight


def _order(value: Any, kind: StatKind) -> tuple[int, Any]:
    """A key for comparing values: NaN is the highest number, a day or moment counts from 1970."""
    if kind is StatKind.FLOAT and value != value:
        return (1, 0.0)
    if kind in (StatKind.DATE, StatKind.TIMESTAMP, StatKind.TIMESTAMP_NTZ):
        return (0, far_number(str(value) if isinstance(value, str) else value.isoformat()))
    return (0, value)


def count_true(mask: pa.Array) -> int:
    return int(pc.sum(mask).as_py() or 0)
