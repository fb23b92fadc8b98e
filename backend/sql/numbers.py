"""What is computed of a version, and so over versions: a number of any kind, and what its columns hold: nulls, bounds,
distinct values, the commonest ones, and how values are spread.

Rule: each in a thread that whoever waits can leave: progress is told ten times a second; leaving ends the work at once
for the caller, and the thread as soon as its computation can be stopped. A version that fails keeps its reason and
hides no other. As a version never changes, its value is computed once. A profile comes from the log's statistics at
once, no data file opened, and exact from the rows only where asked for; both say what they know: a figure that nobody
counted is None.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import chain, pairwise
from typing import Any, Generic, TypeVar

import pyarrow as pa

from backend.caches import Lru
from backend.errors import LakehouseError, QueryError, TableError
from backend.lake.files.stats import ColumnTotals, StatKind, column_totals, columns_with_stats
from backend.lake.model import Hidden, Snapshot, TableRef, VersionReader
from backend.lake.table.restricted import require_shown
from backend.lake.table.schema import NESTED, SchemaColumn, columns, read_schema, readable_names
from backend.sql.expression import Expression, check_expression
from backend.sql.session import Computation
from backend.sql.values import as_number, quoted_name, quoted_text
from backend.work import Stopped, Work, still_runs

MOST_VALUES = 20_000
FILES_AT_ONCE = 512

Key = tuple[str, str, int, str, Hidden | None]
Value = TypeVar("Value")


class ValueSource(StrEnum):
    """What a value rests on."""

    ROWS = "rows"
    LOG = "log"  # what the log counts: no row was needed
    KEPT = "kept"  # computed before


class Reading(Computation):
    """The work on one version: what it has read so far (`files` is None where nobody counted them), and the way to end
    it; a log is read to its end, with nobody waiting. `bytes_read` are values in memory, decompressed."""

    def __init__(self, lake: VersionReader) -> None:
        super().__init__()
        self.lake = lake
        self.source = ValueSource.ROWS
        self.files: int | None = None
        self.files_read = 0
        self.bytes_read = 0

    @property
    def rows_of_files(self) -> int:
        return 0 if self.source is ValueSource.LOG else self.rows_read

    def _counted(self, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        for batch in super()._counted(rows):
            self.bytes_read += batch.nbytes
            yield batch


@dataclass(frozen=True, slots=True)
class VersionValue(Generic[Value]):
    """The value of one version, or the `error` that it failed with; and what was read for it. `table_id`: of the table
    that lay there at that version, None where that is not known."""

    version: int
    value: Value | None = None
    error: LakehouseError | None = None
    source: ValueSource = ValueSource.ROWS
    files: int | None = None
    files_read: int = 0
    rows_read: int = 0
    bytes_read: int = 0
    table_id: str | None = None

    @property
    def problem(self) -> str | None:
        return self.error.message if self.error else None


@dataclass(frozen=True, slots=True)
class NumbersProgress(Generic[Value]):
    """How far it is: `values` oldest first, the version in work and the rows read of it."""

    values: tuple[VersionValue[Value], ...]
    total: int
    version: int | None = None
    rows_read: int = 0

    @property
    def is_done(self) -> bool:
        return len(self.values) >= self.total


class Numbers(Generic[Value]):
    """Values of one kind by version and by what was asked, each computed once. Thread-safe.

    `compute` gets the version and what is asked of it. `check` raises where that is refused, before anything is read.
    """

    def __init__(
        self,
        compute: Callable[[Reading, Snapshot, str], Value],
        *,
        check: Callable[[Snapshot, str], object] | None = None,
        most: int = MOST_VALUES,
    ) -> None:
        self._compute, self._check = compute, check
        self._values: Lru[Key, tuple[Value, str]] = Lru(most)  # with the id of the table that it is of

    def over(
        self, lake: VersionReader, ref: TableRef, asked: str, versions: Sequence[int]
    ) -> Generator[NumbersProgress[Value], None, None]:
        """Compute what is asked at each version, oldest first; close the iterator to cancel.

        Raises at once what `check` raises of the newest of the versions, and later as `still_runs` does.
        """
        wanted = sorted(set(versions))
        if wanted and self._check:
            self._check(lake.snapshot(ref, wanted[-1]), asked)
        return self._each(lake, ref, asked, wanted)

    def known(self, snapshot: Snapshot, asked: str, versions: Sequence[int]) -> tuple[VersionValue[Value], ...]:
        """What was computed before of these versions of the snapshot's table, in their order; where the snapshot is the
        latest, of the tables that it replaced too."""
        values = self._values.find(_key(snapshot, version, asked) for version in versions)
        return tuple(
            VersionValue(version, value, source=ValueSource.KEPT, table_id=table_id)
            for (_, _, version, *_), (value, table_id) in values.items()
        )

    def _each(
        self, lake: VersionReader, ref: TableRef, asked: str, versions: Sequence[int]
    ) -> Generator[NumbersProgress[Value], None, None]:
        values: tuple[VersionValue[Value], ...] = ()
        for version in versions:
            yield NumbersProgress(values, len(versions), version)
            reading = Reading(lake)
            with Work(partial(self._value, reading, ref, version, asked), reading.stop) as work:
                while still_runs(work, f"version {version}"):
                    yield NumbersProgress(values, len(versions), version, reading.rows_of_files)
            values = (*values, work.result())
        yield NumbersProgress(values, len(versions))

    def _value(self, reading: Reading, ref: TableRef, version: int, asked: str) -> VersionValue[Value]:
        value, error, table_id = None, None, None
        try:
            snapshot = reading.lake.snapshot(ref, version)
            table_id = snapshot.metadata.id
            kept = self._values.get(_key(snapshot, version, asked))
            reading.source = reading.source if kept is None else ValueSource.KEPT
            value = self._compute(reading, snapshot, asked) if kept is None else kept[0]
            self._keep(reading.lake, snapshot, asked, value)
        except Stopped:
            error = LakehouseError("stopped")
        except QueryError as exc:  # without what led to it, which would keep a connection alive
            error = QueryError(exc.message, hint=exc.hint, position=exc.position)
        except LakehouseError as exc:
            error = LakehouseError(exc.message, hint=exc.hint)
        files, rows, size = reading.files_read, reading.rows_of_files, reading.bytes_read
        return VersionValue(version, value, error, reading.source, reading.files, files, rows, size, table_id)

    def _keep(self, lake: VersionReader, snapshot: Snapshot, asked: str, value: Value) -> None:
        """By the table's id then, and by the one that it has now: a CREATE OR REPLACE gives it another."""
        named = [snapshot]
        with suppress(LakehouseError):  # a latest version that cannot be read keeps nobody from the others
            named.append(lake.snapshot(snapshot.ref))
        kept = value, snapshot.metadata.id
        self._values.put_all({_key(each, snapshot.version, asked): kept for each in named})


def _key(snapshot: Snapshot, version: int, asked: str) -> Key:
    # with the table's id: another table may be made under the same path
    return snapshot.ref.uri, snapshot.metadata.id, version, asked, snapshot.hidden


# the numbers that a page shows: an SQL aggregate over the rows, a column's statistics --------------------------------


def aggregates() -> Numbers[Any]:
    """SQL aggregates, which read only the columns that they name."""
    return Numbers(_aggregate, check=_checked)


def column_numbers() -> Numbers[ColumnTotals]:
    """What columns hold by the log's statistics: no data file is opened."""
    return Numbers(lambda _, snapshot, column: column_totals(snapshot, [column])[0])


def _aggregate(reading: Reading, snapshot: Snapshot, text: str) -> Any:
    expression = _checked(snapshot, text)
    rows = reading.lake.read_files(snapshot, columns=expression.columns or narrowest(snapshot))
    value = reading.run(expression.sql, rows)
    if isinstance(value, list | dict | tuple):
        raise QueryError("the expression gives a list or a struct, not one value")
    return value


def _checked(snapshot: Snapshot, text: str) -> Expression:
    expression = check_expression(text, list(readable_names(snapshot.metadata)))
    require_shown(snapshot.hidden, snapshot.metadata, expression.columns)
    return expression


# rows and versions ---------------------------------------------------------------------------------------------------


def narrowest(snapshot: Snapshot) -> tuple[str, ...]:
    """The cheapest column to count rows by: a partition column, else the first that is not nested."""
    if snapshot.metadata.partition_columns:
        return snapshot.metadata.partition_columns[:1]
    names = readable_names(snapshot.metadata)
    top = [field for field in columns(snapshot.metadata) if field.depth == 0 and field.path in names]
    flat = [field for field in top if not field.type.startswith(("struct", "array", "map"))]
    return tuple(field.path for field in (flat or top)[:1])


def spread(spans: Sequence[tuple[int, int]], most: int, *, within: tuple[int, int] | None = None) -> tuple[int, ...]:
    """At most `most` versions out of runs (first, last), evenly spread, the first and the last always among them."""
    low, high = within or (0, max((last for _, last in spans), default=0))
    runs = (range(max(first, low), min(last, high) + 1) for first, last in spans)
    versions = [version for run in runs for version in run]
    if len(versions) <= most:
        return tuple(versions)
    places = [round(number * (len(versions) - 1) / (most - 1)) for number in range(most)] if most > 1 else [-1]
    return tuple(dict.fromkeys(versions[place] for place in places))


# profiles ---------------------------------------------------------------------------------------------------------

COLUMNS_AT_ONCE = 200
MOST_PROFILES = 1_000  # kept
MOST_CHARS = 200  # longer texts are not ranked
TOP, FEW = 5, 20
BINS = 12
_CANDIDATES = 4 * TOP  # an approximate ranking knows more than it ranks well
_MEASURED = (StatKind.INTEGER, StatKind.FLOAT, StatKind.DECIMAL, StatKind.DATE, StatKind.TIMESTAMP,
             StatKind.TIMESTAMP_NTZ)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TopValue:
    """A value and the rows that hold it."""

    value: Any
    rows: int


@dataclass(frozen=True, slots=True)
class Bin:
    """Rows with `low < value <= high`, the first bin with its low end; times in seconds since 1970."""

    low: float
    high: float
    rows: int


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """One column. `nulls` are of `rows` rows; `distinct` is approximate; `is_exact` speaks of nulls and bounds. The
    signs say how the true bounds relate to those: "" for equal."""

    column: str
    type: str
    rows: int | None = None
    nulls: int | None = None
    lowest: Any = None
    highest: Any = None
    is_exact: bool = False
    distinct: int | None = None
    top: tuple[TopValue, ...] = ()
    bins: tuple[Bin, ...] = ()
    lowest_sign: str = ""
    highest_sign: str = ""

    @property
    def null_share(self) -> float | None:
        return self.nulls / self.rows if self.rows and self.nulls is not None else None


@dataclass(frozen=True, slots=True)
class Profile:
    """The columns of a version. `is_read`: from its rows, else from the log's statistics; `left_out`: columns that no
    reader here can read."""

    version: int
    rows: int | None
    is_read: bool
    columns: tuple[ColumnProfile, ...]
    left_out: tuple[str, ...] = ()


def profiled(snapshot: Snapshot) -> list[SchemaColumn]:
    """The columns that a profile is of: the outermost ones that can be read, and may be."""
    left_out = _left_out(snapshot)
    return [field for field in columns(snapshot.metadata) if field.depth == 0 and field.path not in left_out]


def _left_out(snapshot: Snapshot) -> tuple[str, ...]:
    left_out = read_schema(snapshot.metadata.schema_json).left_out
    return (*left_out, *(snapshot.hidden.names if snapshot.hidden else ()))


def from_log(snapshot: Snapshot, totals: Sequence[ColumnTotals]) -> Profile:
    """What the log's statistics of some columns say; of the others nothing is known."""
    known = {each.column: each for each in totals}
    columns = tuple(_from_totals(field, known.get(field.path)) for field in profiled(snapshot))
    return _of(snapshot, snapshot.num_rows, columns, is_read=False)


def _from_totals(field: SchemaColumn, totals: ColumnTotals | None) -> ColumnProfile:
    empty = ColumnProfile(field.path, field.type)
    if totals is None or not totals.files_with_nulls:
        return empty
    return replace(
        empty,
        rows=totals.rows_with_nulls,
        nulls=totals.nulls,
        lowest=totals.lowest,
        highest=totals.highest,
        is_exact=totals.files_with_nulls == totals.files and totals.is_tight and totals.lowest_is_exact
        and totals.highest_is_exact,
        lowest_sign=totals.lowest_sign,
        highest_sign=totals.highest_sign,
    )  # fmt: skip


def profiles() -> Numbers[Profile]:
    """Profiles by version, each read once."""
    return Numbers(_profile, most=MOST_PROFILES)


def readable(values: Sequence[VersionValue[Profile]]) -> dict[int, Profile]:
    """The profiles by version; raises `TableError` for the first that could not be read."""
    for value in values:
        if value.problem:
            raise TableError(f"v{value.version} could not be read: {value.problem}")
    return {value.version: value.value for value in values if value.value is not None}


def _profile(reading: Reading, snapshot: Snapshot, _asked: str) -> Profile:
    """One version's rows, read twice: what there is, then how often the commonest values are there."""
    columns = profiled(snapshot)
    if not columns or not snapshot.num_files:
        empty = tuple(ColumnProfile(c.path, c.type, 0, 0, is_exact=True) for c in columns)
        return _of(snapshot, 0, empty, is_read=True)

    def read(names: Sequence[str], sql: str) -> Mapping[str, Any]:
        values: Mapping[str, Any] = reading.run(sql, reading.lake.read_files(snapshot, columns=names))
        return values

    edges = {totals.column: bin_edges(totals) for totals in column_totals(snapshot, with_statistics(snapshot))}
    asked = [(column, edges.get(column.path, ())) for column in columns]
    starts = range(0, len(asked), COLUMNS_AT_ONCE)
    read_columns = [_read_columns(read, asked[start : start + COLUMNS_AT_ONCE]) for start in starts]
    return _of(snapshot, read_columns[0][0].rows, tuple(chain.from_iterable(read_columns)), is_read=True)


def _of(snapshot: Snapshot, rows: int | None, columns: tuple[ColumnProfile, ...], *, is_read: bool) -> Profile:
    return Profile(snapshot.version, rows, is_read=is_read, columns=columns, left_out=_left_out(snapshot))


def _read_columns(
    read: Callable[[Sequence[str], str], Mapping[str, Any]], asked: Sequence[tuple[SchemaColumn, Sequence[float]]]
) -> list[ColumnProfile]:
    """Columns with their edges. The ranking is approximate: what it names is counted in a second pass."""
    parts = [f"c{number} := {_measures(column, edges)}" for number, (column, edges) in enumerate(asked)]
    names = [column.path for column, _ in asked]
    measures = read(names, f"SELECT struct_pack(all_rows := count(*), {', '.join(parts)}) FROM rows")
    ranked = [number for number in range(len(asked)) if _is_ranked(measures[f"c{number}"])]
    counts: Mapping[str, Any] = {}
    if ranked:
        parts = []
        for number in ranked:
            texts = ", ".join(map(quoted_text, measures[f"c{number}"]["texts"]))
            parts.append(f"c{number} := histogram_exact({quoted_name(names[number])}::VARCHAR, [{texts}])")
        counts = read([names[number] for number in ranked], f"SELECT struct_pack({', '.join(parts)}) FROM rows")
    rows = measures["all_rows"]
    return [_measured(*one, rows, measures[f"c{n}"], counts.get(f"c{n}") or {}) for n, one in enumerate(asked)]


def with_statistics(snapshot: Snapshot) -> list[str]:
    """The columns of a profile that the log's statistics can speak of."""
    known = set(columns_with_stats(snapshot.metadata))
    return [column.path for column in profiled(snapshot) if column.path in known]


def bin_edges(totals: ColumnTotals) -> tuple[float, ...]:
    """The low end of the first bin and the high end of each, between the bounds that the log tells; else none."""
    low, high = as_number(totals.lowest), as_number(totals.highest)
    if low is None or high is None or totals.kind not in _MEASURED:
        return ()
    if totals.kind is StatKind.DATE:
        low, high = low * 86_400, high * 86_400
    if totals.kind is StatKind.INTEGER and high - low < BINS:
        return (low, *(low + step for step in range(int(high - low) + 1)))  # each its own
    width = (high - low) / BINS
    return (low, high) if not width else (low, *(low + width * step for step in range(1, BINS)), high)


# SQL ---------------------------------------------------------------------------------------------------------------


def _measures(column: SchemaColumn, edges: Sequence[float]) -> str:
    name = quoted_name(column.path)
    parts = [f"held := count({name})"]
    if column.type.startswith(NESTED):
        return f"struct_pack({', '.join(parts)})"
    parts.append(f"different := approx_count_distinct({name})")
    if column.type != "binary":
        short = f" FILTER (WHERE length({name}) <= {MOST_CHARS})" if column.type == "string" else ""
        ranked = f"approx_top_k({name}, {_CANDIDATES}){short}"
        parts += [f"low := min({name})", f"high := max({name})", f"vals := {ranked}", f"texts := {ranked}::VARCHAR[]"]
    if edges:
        number = f"epoch({name})" if column.type.startswith(("date", "timestamp")) else f"{name}::DOUBLE"
        ends = ", ".join(f"{edge!r}::DOUBLE" for edge in edges[1:])
        parts.append(f"bins := histogram({number}, [{ends}]) FILTER (WHERE isfinite({number}))")
    return f"struct_pack({', '.join(parts)})"


def _measured(
    column: SchemaColumn, edges: Sequence[float], rows: int, measures: Mapping[str, Any], counts: Mapping[str, int]
) -> ColumnProfile:
    """A column by its measures, and the rows of its commonest values by their texts."""
    held, different, binned = measures["held"], measures.get("different"), measures.get("bins") or {}
    values = dict(zip(measures["texts"], measures["vals"], strict=True)) if counts else {}
    top = sorted((text for text in values if counts.get(text)), key=lambda text: (-counts[text], text))[:TOP]
    bins = [Bin(low, high, binned.get(high, 0)) for low, high in pairwise(edges) if binned]
    if bins:  # what lies above the last edge, by a bound that was cut, belongs to the last bin
        above = sum(count for edge, count in binned.items() if edge not in set(edges[1:]))
        bins[-1] = replace(bins[-1], rows=bins[-1].rows + above)
    return ColumnProfile(
        column.path, column.type, rows, rows - held, measures.get("low"), measures.get("high"), is_exact=True,
        distinct=None if different is None else min(different, held),  # it is approximate, and may lie above
        top=tuple(TopValue(values[text], counts[text]) for text in top), bins=tuple(bins),
    )  # fmt: skip


def _is_ranked(measures: Mapping[str, Any]) -> bool:
    """Whether values repeat so much that the commonest say something."""
    held, different = measures["held"], min(measures.get("different") or 0, measures["held"])
    return bool(different and measures.get("texts") and different <= max(FEW, held / 2))
