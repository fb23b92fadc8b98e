"""What the columns of a version hold: nulls, bounds, distinct values, the commonest ones, and how values are spread.

Rule: from the log's statistics at once, no data file opened; exact from the rows only where asked for. Both say what
they know: a figure that nobody counted is None.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any

from backend.errors import TableError
from backend.lake.files.stats import ColumnTotals, StatKind, column_totals, columns_with_stats
from backend.lake.model import SchemaField, Snapshot
from backend.lake.table.schema import fields, read_schema
from backend.sql.numbers import Numbers, Reading, VersionValue
from backend.sql.quoting import quoted_name, quoted_text
from backend.sql.values import as_number

COLUMNS_AT_ONCE = 200
MOST_PROFILES = 1_000  # kept
MOST_CHARS = 200  # longer texts are not ranked
TOP, FEW = 5, 20
BINS = 12
_CANDIDATES = 4 * TOP  # an approximate ranking knows more than it ranks well
_NESTED = ("struct", "array", "map", "variant")
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


def profiled(snapshot: Snapshot) -> list[SchemaField]:
    """The columns that a profile is of: the outermost ones that can be read."""
    left_out = read_schema(snapshot.metadata.schema_json).left_out
    return [field for field in fields(snapshot.metadata) if field.depth == 0 and field.path not in left_out]


def from_log(snapshot: Snapshot, totals: Sequence[ColumnTotals]) -> Profile:
    """What the log's statistics of some columns say; of the others nothing is known."""
    known = {each.column: each for each in totals}
    columns = tuple(_from_totals(field, known.get(field.path)) for field in profiled(snapshot))
    return _of(snapshot, snapshot.num_rows, columns, is_read=False)


def _from_totals(field: SchemaField, totals: ColumnTotals | None) -> ColumnProfile:
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
    left_out = read_schema(snapshot.metadata.schema_json).left_out
    return Profile(snapshot.version, rows, is_read=is_read, columns=columns, left_out=left_out)


def _read_columns(
    read: Callable[[Sequence[str], str], Mapping[str, Any]], asked: Sequence[tuple[SchemaField, Sequence[float]]]
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


def _measures(column: SchemaField, edges: Sequence[float]) -> str:
    name = quoted_name(column.path)
    parts = [f"held := count({name})"]
    if column.type.startswith(_NESTED):
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
    column: SchemaField, edges: Sequence[float], rows: int, measures: Mapping[str, Any], counts: Mapping[str, int]
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
