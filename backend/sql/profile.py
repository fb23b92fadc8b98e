"""What the columns of a version hold: nulls, bounds, distinct values, the commonest ones, and how values are spread.

Rule: from the log's statistics at once, no data file opened; exact from the rows only where asked for. Both say what
they know: a figure that nobody counted is None.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import chain
from typing import Any

from backend.errors import TableError
from backend.lake.files.stats import ColumnTotals, StatKind, column_totals, columns_with_stats
from backend.lake.model import SchemaField, Snapshot
from backend.lake.table.schema import fields, read_schema
from backend.sql.numbers import Numbers, Reading, VersionValue
from backend.sql.quoting import quoted_name, quoted_text

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
    """Columns with their edges; the commonest values of those whose values repeat."""
    measures = read([column.path for column, _ in asked], measures_sql(asked))
    rows, profiles = measures["all_rows"], list[ColumnProfile]()
    candidates: dict[str, dict[str, Any]] = {}  # values of a column by their texts
    for number, (column, edges) in enumerate(asked):
        values = measures[f"c{number}"]
        held, different = values["held"], values.get("different")
        distinct = None if different is None else min(different, held)  # it is approximate, and may lie above
        profiles.append(ColumnProfile(
            column.path, column.type, rows, rows - held, values.get("low"), values.get("high"), is_exact=True,
            distinct=distinct, bins=_bins(edges, values.get("bins") or {}),
        ))  # fmt: skip
        if distinct and column.type != "binary" and distinct <= max(FEW, held / 2):
            candidates[column.path] = dict(zip(values["texts"], values["vals"], strict=True))
    if not candidates:
        return profiles
    answers = read(list(candidates), counts_sql(candidates))
    counts = {name: answers[f"c{number}"] for number, name in enumerate(candidates)}
    return [
        replace(each, top=_top(candidates[each.column], counts[each.column])) if each.column in counts else each
        for each in profiles
    ]


def with_statistics(snapshot: Snapshot) -> list[str]:
    """The columns of a profile that the log's statistics can speak of."""
    known = set(columns_with_stats(snapshot.metadata))
    return [column.path for column in profiled(snapshot) if column.path in known]


def bin_edges(totals: ColumnTotals) -> tuple[float, ...]:
    """The low end of the first bin and the high end of each, between the bounds that the log tells; else none."""
    low, high = _seconds_or_number(totals.lowest), _seconds_or_number(totals.highest)
    if low is None or high is None or totals.kind not in _MEASURED:
        return ()
    if totals.kind is StatKind.INTEGER and high - low < BINS:
        return (low, *(low + step for step in range(int(high - low) + 1)))  # each its own
    width = (high - low) / BINS
    return (low, high) if not width else (low, *(low + width * step for step in range(1, BINS)), high)


def _seconds_or_number(value: Any) -> float | None:
    """A bound as bins know it; None where it has no place on a line."""
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, date):
        return float((value - date(1970, 1, 1)).days * 86_400)
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            return None
        return number if math.isfinite(number) else None
    return None


# SQL ---------------------------------------------------------------------------------------------------------------


def measures_sql(asked: Sequence[tuple[SchemaField, Sequence[float]]]) -> str:
    """Of each column with its edges: rows that hold a value, bounds, distinct values, candidates for the commonest,
    and rows a bin, as one value."""
    parts = [f"c{number} := {_measures(column, edges)}" for number, (column, edges) in enumerate(asked)]
    return f"SELECT struct_pack(all_rows := count(*), {', '.join(parts)}) FROM rows"


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


def counts_sql(texts: Mapping[str, Iterable[str]]) -> str:
    """Rows of each of some values of some columns, all as texts, as one value."""
    parts = [
        f"c{number} := histogram_exact({quoted_name(name)}::VARCHAR, [{', '.join(map(quoted_text, values))}])"
        for number, (name, values) in enumerate(texts.items())
    ]
    return f"SELECT struct_pack({', '.join(parts)}) FROM rows"


def _top(values: Mapping[str, Any], rows: Mapping[str, int]) -> tuple[TopValue, ...]:
    """The commonest of the candidates, by their text."""
    ordered = sorted(values, key=lambda text: (-rows.get(text, 0), text))
    return tuple(TopValue(values[text], rows[text]) for text in ordered[:TOP] if rows.get(text))


def _bins(edges: Sequence[float], rows: Mapping[float, int]) -> tuple[Bin, ...]:
    """What lies above the last edge, by a bound that was cut, belongs to the last bin."""
    highs = edges[1:]
    above = sum(count for edge, count in rows.items() if edge not in set(highs))
    bins = [Bin(low, high, rows.get(high, 0)) for low, high in zip(edges, highs, strict=False)]
    return (*bins[:-1], replace(bins[-1], rows=bins[-1].rows + above)) if bins and rows else ()
