"""Rows of a version: how many they are, in which order, the value of a cell, and the same rows as code for other tools.

Rule: pure. Spark's and Trino's code is DuckDB's statement in their SQL, where that gives the same rows; a filter that
is more than terms no reader of deltalake's can be told.
"""

import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from app.ui.view.code import TOOLS, sql_code
from backend.errors import QueryError
from backend.format import count_text, things
from backend.lake.model import Snapshot, TableRef
from backend.lake.rows.filters import RowFilter, predicate_sql
from backend.lake.rows.rows import RowPage
from backend.lake.table.schema import NESTED, SchemaColumn
from backend.query.statement import Engine, read_statement
from backend.redaction import without_secrets
from backend.sql.values import quoted_name

MOST_COLUMNS = 50


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
    if not page.truncated and not page.rows.num_rows:
        return f"No row of v{version} matches.{searched}" if filtered else f"v{version} has no rows."
    if not page.truncated:
        return f"{'All ' if page.rows.num_rows > 1 else ''}{what}.{searched}"
    if page.total_rows is None:
        return f"The first {what}; there may be more.{searched}" if filtered else f"The first {what}; there are more."
    return f"The first {shown} of {count_text(page.total_rows)} in v{version}.{searched}"


def every_row_sentence(snapshot: Snapshot) -> str:
    """What an export without a filter reads."""
    rows = "" if snapshot.num_rows is None else f": {things(snapshot.num_rows, 'row')}"
    return f"Every row of v{snapshot.version}{rows}, {things(snapshot.num_files, 'file')}."


# order ---------------------------------------------------------------------------------------------------------------

_WAYS = {", rising": "ascending", ", falling": "descending"}


def orders(schema: Sequence[SchemaColumn]) -> list[str]:
    """By what rows can be sorted: every column that is not nested, both ways."""
    flat = [field.path for field in schema if field.depth == 0 and not field.type.startswith(NESTED)]
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


# as code: exactly this version, these columns and this filter ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asked:
    """Rows of a version; `columns` None: all of them."""

    ref: TableRef
    version: int
    columns: tuple[str, ...] | None = None
    where: RowFilter | None = None


def snippets(asked: Asked) -> dict[str, tuple[str, str]]:
    """Of each tool its language and the code; none of a tool that would give other rows."""
    table = f"table = DeltaTable({without_secrets(asked.ref.uri)!r}, version={asked.version})"
    made = {
        "DuckDB": f"import duckdb\nimport pyarrow as pa\nfrom deltalake import DeltaTable\n\n{table}\n"
        "rows = pa.RecordBatchReader.from_stream(table.scan())\n"
        f"result = duckdb.sql({_select(asked, 'rows')!r})"
    }
    if asked.where is None or asked.where.check is None:
        given = [f"columns={list(asked.columns)!r}"] if asked.columns else []
        given += [f"predicate={asked.where.predicate()!r}"] if asked.where else []
        read = f"from deltalake import DeltaTable\n\n{table}\nrows = pa.table(table.scan({', '.join(given)}))"
        # Of a scan: `to_pyarrow_dataset()` reads no deletion vectors. Its texts are views, which few tools know.
        arrow = (
            f"import pyarrow as pa\nimport pyarrow.dataset as ds\n{read}\n"
            "types = pa.schema(table.schema().to_arrow())\n"
            "dataset = ds.dataset(rows.cast(pa.schema([types.field(name) for name in rows.column_names])))"
        )
        made = {"pandas": f"import pyarrow as pa\n{read}\nframe = rows.to_pandas()", "Arrow": arrow, **made}
    codes = {tool: ("python", code) for tool, code in made.items()}
    engines: tuple[Engine, ...] = ("Spark", "Trino")
    with suppress(QueryError):
        sql = read_statement(statement(asked))
        tables = {sql.sources[0].name: (asked.ref, asked.version)}
        for engine in engines:
            with suppress(QueryError):
                codes[engine] = (TOOLS[engine], sql_code(sql, engine, tables))
    return codes


def statement(asked: Asked) -> str:
    """The rows as the Query page reads them."""
    return _select(asked, f"{quoted_name(asked.ref.name)} VERSION AS OF {asked.version}")


def _select(asked: Asked, source: str) -> str:
    names = ", ".join(map(quoted_name, asked.columns)) if asked.columns else "*"
    condition = ""
    if asked.where is not None and asked.where.check is not None:
        condition = f" WHERE (\n{asked.where.check.text}\n)"
    elif asked.where is not None and asked.where.terms is not None:
        condition = f" WHERE {predicate_sql(asked.where.terms, engine='DuckDB')}"
    return f"SELECT {names} FROM {source}{condition}"


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
