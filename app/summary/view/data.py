"""Rows of a version: how many they are, in which order, the value of a cell, and the same rows as code for other tools.

Rule: pure; names and values are written anew for each tool. A filter that is more than terms is SQL of DuckDB's, which
no other tool can be trusted to read alike: then there is DuckDB's code alone.
"""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from app.ui.view.frames import ShownRows
from backend.cells import cell
from backend.format import count_text, things
from backend.lake.model import TableRef
from backend.lake.rows.filters import All, AnyOf, FilterColumn, Literal, Node, Not, RowFilter
from backend.lake.rows.rows import RowPage
from backend.lake.table.schema import Column
from backend.sql.values import backticked_name, quoted_name, quoted_text, trino_name

MOST_COLUMNS = 50
_NESTED = ("struct", "array", "map", "variant")


def rows_sentence(page: RowPage, version: int, *, filtered: bool) -> str:
    """Says how many rows are shown, of how many, and how far the search came."""
    shown = things(page.rows.num_rows, "row")
    what = f"{shown} of v{version}{' that match' if filtered else ''}"
    searched = ""
    if filtered and page.candidates is not None and page.files_read is not None:
        ruled_out = page.files - page.candidates
        searched = f" {things(page.files_read, 'file')} read"
        searched += f", {count_text(ruled_out)} ruled out without opening them." if ruled_out else "."
        if page.files_left:
            searched += f" {things(page.files_left, 'file')} may hold more."
    if not page.truncated and filtered and not page.rows.num_rows:
        return f"No row of v{version} matches.{searched}"
    if not page.truncated and not page.rows.num_rows:
        return f"v{version} has no rows."
    if not page.truncated:
        return f"{'All ' if page.rows.num_rows > 1 else ''}{what}.{searched}"
    if page.total_rows is None:
        return f"The first {what}; there may be more.{searched}" if filtered else f"The first {what}; there are more."
    return f"The first {shown} of {count_text(page.total_rows)} in v{version}.{searched}"


# order ---------------------------------------------------------------------------------------------------------------

_WAYS = {", rising": "ascending", ", falling": "descending"}


def orders(schema: Sequence[Column]) -> list[str]:
    """By what rows can be sorted: every column that is not nested, both ways."""
    flat = [field.path for field in schema if field.depth == 0 and not field.type.startswith(_NESTED)]
    return [f"{name}{way}" for name in flat for way in _WAYS]


def in_order(rows: pa.Table, order: str | None) -> pa.Table:
    """Rows sorted by their values, not by what a cell shows; nulls last. By a column that is not there: as they are."""
    for way, direction in _WAYS.items():
        name = (order or "").removesuffix(way)
        if order and order.endswith(way) and name in rows.column_names:
            column = rows.column(name)
            if pt.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            return rows.take(pc.sort_indices(column, sort_keys=[("", direction)]))
    return rows


def order_sentence(page: RowPage, order: str | None) -> str:
    """Says of what the order is, where there is more."""
    return "Sorted among these rows alone." if order and page.truncated else ""


def place_of(shown: ShownRows, cell: tuple[int, str]) -> tuple[int, int] | None:
    """Row and number of the column of a cell that the list shows; None where it is not there any more."""
    row, column = cell
    names = list(shown.types)
    return (row, names.index(column)) if column in names and row < len(shown.frame) else None


def value_at(rows: pa.Table, row: int, column: int) -> Any:
    """The value itself; None for null."""
    return cell(rows.column(column)[row])


# as code: exactly this version, these columns and this filter ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asked:
    """Rows of a version; `columns` None: all of them."""

    ref: TableRef
    version: int
    columns: tuple[str, ...] | None = None
    where: RowFilter | None = None


@dataclass(frozen=True, slots=True)
class _Dialect:
    """How a tool's SQL writes what differs from one to the other."""

    name: Callable[[str], str]
    text: Callable[[str], str]
    field: Callable[[str, str], str]
    moment: Callable[[datetime], str]
    binary: Callable[[bytes], str]
    is_nan: str = "isnan"
    has_ilike: bool = True


def _escaped(text: str) -> str:
    """Spark takes two quotes for the end of one text and the beginning of another."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _clock(moment: datetime) -> str:
    return str(moment.replace(tzinfo=None))


_DUCKDB = _Dialect(
    quoted_name,
    quoted_text,
    lambda of, field: f"{of}[{quoted_text(field)}]",
    lambda at: f"TIMESTAMPTZ '{_clock(at)}+00'" if at.tzinfo else f"TIMESTAMP '{_clock(at)}'",
    lambda data: "'" + "".join(f"\\x{byte:02X}" for byte in data) + "'::BLOB",
)
_SPARK = _Dialect(
    backticked_name,
    _escaped,
    lambda of, field: f"{of}.{backticked_name(field)}",
    lambda at: f"TIMESTAMP '{_clock(at)}+00:00'" if at.tzinfo else f"TIMESTAMP_NTZ '{_clock(at)}'",
    lambda data: f"X'{data.hex()}'",
)
_TRINO = _Dialect(
    quoted_name,
    quoted_text,
    lambda of, field: f"{of}.{quoted_name(field)}",
    lambda at: f"TIMESTAMP '{_clock(at)} UTC'" if at.tzinfo else f"TIMESTAMP '{_clock(at)}'",
    lambda data: f"X'{data.hex()}'",
    is_nan="is_nan",
    has_ilike=False,
)


def snippets(asked: Asked) -> dict[str, tuple[str, str]]:
    """Of each tool its language and the code."""
    if asked.where is not None and asked.where.check is not None:
        return {"DuckDB": ("python", _duckdb(asked))}
    return {
        "pandas": ("python", f"import pyarrow as pa\n{_read_rows(asked)}\nframe = rows.to_pandas()"),
        "Arrow": ("python", _arrow(asked)),
        "DuckDB": ("python", _duckdb(asked)),
        "Spark": ("python", _spark(asked)),
        "Trino": ("sql", _trino(asked)),
    }


def _arrow(asked: Asked) -> str:
    """Of a scan: `to_pyarrow_dataset()` reads no deletion vectors. Its texts are views, which few tools know."""
    return (
        f"import pyarrow as pa\nimport pyarrow.dataset as ds\n{_read_rows(asked)}\n"
        "types = pa.schema(table.schema().to_arrow())\n"
        "dataset = ds.dataset(rows.cast(pa.schema([types.field(name) for name in rows.column_names])))"
    )


def _read_rows(asked: Asked) -> str:
    given = [f"columns={list(asked.columns)!r}"] if asked.columns else []
    given += [f"predicate={asked.where.predicate()!r}"] if asked.where else []
    return (
        "from deltalake import DeltaTable\n\n"
        f"table = DeltaTable({asked.ref.uri!r}, version={asked.version})\n"
        f"rows = pa.table(table.scan({', '.join(given)}))"
    )


def _duckdb(asked: Asked) -> str:
    return (
        "import duckdb\nimport pyarrow as pa\nfrom deltalake import DeltaTable\n\n"
        f"table = DeltaTable({asked.ref.uri!r}, version={asked.version})\n"
        "rows = pa.RecordBatchReader.from_stream(table.scan())\n"
        f"result = duckdb.sql({_select(asked, 'rows', _DUCKDB)!r})"
    )


def _spark(asked: Asked) -> str:
    lines = [f"spark.read.format('delta').option('versionAsOf', {asked.version}).load({asked.ref.uri!r})"]
    lines += [f"    .where({_filter(asked.where, _SPARK)!r})"] if asked.where else []
    lines += (
        [f"    .select({', '.join(repr(backticked_name(name)) for name in asked.columns)})"] if asked.columns else []
    )
    return "rows = (\n    " + "\n    ".join(lines) + "\n)"


def _trino(asked: Asked) -> str:
    note = "-- catalog and schema as your Trino calls them"
    source = f"{trino_name(asked.ref.name)} FOR VERSION AS OF {asked.version}"
    return f"{note}\n{_select(asked, source, _TRINO)}"


def _select(asked: Asked, source: str, dialect: _Dialect) -> str:
    names = ", ".join(map(dialect.name, asked.columns)) if asked.columns else "*"
    where = f" WHERE {_filter(asked.where, dialect)}" if asked.where else ""
    return f"SELECT {names} FROM {source}{where}"


def _filter(where: RowFilter, dialect: _Dialect) -> str:
    if where.check is not None:
        return f"(\n{where.check.text}\n)"
    assert where.terms is not None
    return _condition(where.terms, dialect)


def _condition(node: Node, dialect: _Dialect) -> str:
    if isinstance(node, Not):
        return f"NOT ({_condition(node.operand, dialect)})"
    if isinstance(node, All | AnyOf):
        word = " AND " if isinstance(node, All) else " OR "
        return "(" + word.join(_condition(operand, dialect) for operand in node.operands) + ")"
    name = _column_path(node.column, dialect)
    if node.operator == "IS NULL":
        return f"{name} IS NULL"
    if node.operator == "IS NAN":
        return f"{dialect.is_nan}({name})"
    assert node.value is not None
    value = _column_path(node.value, dialect) if isinstance(node.value, FilterColumn) else _literal(node.value, dialect)
    if node.operator == "ILIKE" and not dialect.has_ilike:
        return f"lower({name}) LIKE lower({value})"
    return f"{name} {node.operator} {value}"


def _column_path(column: FilterColumn, dialect: _Dialect) -> str:
    name = dialect.name(column.path[0])
    for field in column.path[1:]:
        name = dialect.field(name, field)
    return name


def _literal(value: Literal, dialect: _Dialect) -> str:
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case bytes():
            return dialect.binary(value)
        case datetime():
            return dialect.moment(value)
        case date():
            return f"DATE '{value}'"
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case Decimal():
            return format(value, "f")
        case int():
            return str(value)
    return dialect.text(value)


def statement(asked: Asked) -> str:
    """The rows as the Query page reads them."""
    return _select(asked, f"{quoted_name(asked.ref.name)} VERSION AS OF {asked.version}", _DUCKDB)


def export_command(
    name: str, version: int, file_name: str, *, columns: tuple[str, ...] | None = None, where: str = ""
) -> str:
    """The rows as a file, from a terminal."""
    parts = ["weir", "export", name, "--version", str(version)]
    parts += ["--columns", ",".join(columns)] if columns else []
    parts += ["--where", where] if where else []
    return shlex.join([*parts, "-o", file_name])


def names(columns: Sequence[str], shown: Sequence[str]) -> tuple[str, ...] | None:
    """The columns to name: none where all are shown."""
    return None if list(shown) == list(columns) else tuple(shown)
