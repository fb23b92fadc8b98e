"""A condition on rows: SQL over one row in DuckDB's dialect, and which rows satisfy it.

Rule: it is phrased in one way for the process that compares and for the workers of a stream host: columns under the
table's own names, unknown is not satisfied. What rows make of it is a `QueryError`, whatever the method.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from backend.errors import QueryError
from backend.sql.expression import Expression, nodes, read_expression, require_truth
from backend.sql.quoting import quoted_name
from backend.sql.session import PIECE_BYTES, CancelToken, Connection, close_doors, row_errors, session


def check_row_condition(text: str, columns: Sequence[str]) -> Expression:
    """SQL over one row of these columns; raises `QueryError`."""
    condition = read_expression(text, columns)
    if condition.aggregates:
        raise QueryError("the condition is about one row, but has an aggregate", hint="such as amount < 0")
    if not condition.columns:
        raise QueryError("the condition names no column, so it is the same for every row", hint="such as amount < 0")
    if any(_compares_with_null(node) for node in nodes(condition.tree)):
        raise QueryError("nothing compares with NULL", hint="write amount IS NULL")
    return condition


def _compares_with_null(node: Mapping[str, Any]) -> bool:
    sides = [node.get(side) or {} for side in ("left", "right")]
    is_plain = node["class"] == "COMPARISON" and "DISTINCT" not in node["type"]
    return is_plain and any((side.get("literal") or {}).get("kind") == "NULL_LITERAL" for side in sides)


def check_value(text: str, columns: Sequence[str]) -> Expression:
    """SQL that gives one row of these columns a value; raises `QueryError`."""
    value = read_expression(text, columns)
    if value.aggregates:
        raise QueryError("the value is of one row, but has an aggregate", hint="such as abs(amount)")
    return value


def find_matching(connection: Connection, where: str, columns: Sequence[str], source: str) -> str:
    """As `matching`, of rows whose c0, c1 … are these columns; raises `QueryError`."""
    condition = check_row_condition(where, columns)
    return matching(connection, condition, {name: f"c{columns.index(name)}" for name in condition.columns}, source)


def matching(connection: Connection, condition: Expression, columns: Mapping[str, str], source: str) -> str:
    """A query for the `row_id` of every row of `source` that satisfies the condition; `columns` are those it names, in
    SQL over `source`. From here on the connection reads nothing else.

    Raises `QueryError` for a condition that does not go with the columns' types, or is neither true nor false.
    """
    connection.execute("SET disabled_optimizers = 'statistics_propagation'")  # else errors depend on all rows' bounds
    close_doors(connection)
    at = _unlike(columns)
    named = ", ".join(f"{value} AS {quoted_name(name)}" for name, value in columns.items())
    rows = f"(SELECT {named}, row_id AS {at} FROM {source}) rows"
    wrapped = f"((\n{condition.text}\n))"  # an OR in it stays together
    with row_errors():
        kind = connection.execute(f"DESCRIBE SELECT {wrapped} FROM {rows}").fetchall()[0][1]
    require_truth(str(kind))
    return f"SELECT {at} AS row_id FROM {rows} WHERE coalesce({wrapped}, false)"


def require_fit(condition: Expression, schema: pa.Schema) -> None:
    """Raise `QueryError` unless the condition can be asked of rows with these columns, by name."""
    rows = pa.array([], pa.struct([schema.field(name) for name in condition.columns]))
    for _ in satisfied(condition, [rows]):
        pass


def satisfied(
    condition: Expression, batches: Iterable[pa.StructArray], token: CancelToken | None = None
) -> Iterator[pa.BooleanArray]:
    """Whether each row of each batch satisfies the condition; fields are the columns that it names, in its order."""
    columns, token = {name: f"c{i}" for i, name in enumerate(condition.columns)}, token or CancelToken()
    with session(token, what="the condition's rows") as connection:
        query = ""
        for rows in batches:
            if not query:
                connection.register("batch", _numbered(rows[:0]))
                query = matching(connection, condition, columns, "batch")
            yield pa.concat_arrays([_passing(connection, query, piece, token) for piece in _pieces(rows)])


def _passing(connection: Connection, query: str, rows: pa.StructArray, token: CancelToken) -> pa.BooleanArray:
    token.check()
    connection.register("batch", _numbered(rows))
    with row_errors():
        found = connection.sql(query).to_arrow_table()["row_id"]
    return pc.is_in(_numbers(rows), value_set=found)


def _pieces(rows: pa.StructArray) -> Iterator[pa.StructArray]:
    """DuckDB looks up between pieces alone whether it is to end, and one pattern may take a second over a megabyte."""
    step = max(1, PIECE_BYTES * len(rows) // max(1, rows.nbytes))
    for start in range(0, max(1, len(rows)), step):
        yield rows[start : start + step]


def fields_of(value: Expression, target: str) -> tuple[str, ...]:
    """The columns that computing it takes: those that it names, and the one that it is for, at the end."""
    return (*(name for name in value.columns if name != target), target)


def computed(value: Expression, target: str, batches: Iterable[pa.StructArray]) -> Iterator[pa.Array]:
    """The value for each row of each batch, as the type of the column `target`; fields are `fields_of`."""
    columns = {name: f"c{i}" for i, name in enumerate(fields_of(value, target))}
    with session(CancelToken()) as connection:
        query = ""
        for rows in batches:
            with row_errors("the value"):
                if not query:
                    connection.register("batch", _numbered(rows[:0]))
                    query = _valuing(connection, value, columns, target)
                connection.register("batch", _numbered(rows))
                found = connection.sql(query).to_arrow_table().sort_by("row_id")["value"]
            yield found.combine_chunks().cast(rows.type.field(len(columns) - 1).type)


def require_value(value: Expression, target: str, schema: pa.Schema) -> None:
    """Raise `QueryError` unless the value can be had from rows with these columns, by name, and kept in `target`."""
    rows = pa.array([], pa.struct([schema.field(name) for name in fields_of(value, target)]))
    for _ in computed(value, target, [rows]):
        pass


def _valuing(connection: Connection, value: Expression, columns: Mapping[str, str], target: str) -> str:
    """A query for `value` and `row_id` of every row of `batch`. From here on the connection reads nothing else."""
    close_doors(connection)
    kind = connection.execute(f"DESCRIBE SELECT {columns[target]} FROM batch").fetchall()[0][1]
    at = _unlike(columns)
    named = ", ".join(f"{column} AS {quoted_name(name)}" for name, column in columns.items())
    rows = f"(SELECT {named}, row_id AS {at} FROM batch) rows"
    return f"SELECT CAST((\n{value.text}\n) AS {kind}) AS value, {at} AS row_id FROM {rows}"


def _numbered(rows: pa.StructArray) -> pa.RecordBatchReader:
    """A stream, not a table: of that DuckDB would have Arrow filter rows, which compares NaN in another way."""
    arrays = [*rows.flatten(), _numbers(rows)]
    names = [*(f"c{i}" for i in range(len(arrays) - 1)), "row_id"]
    batch = pa.record_batch(arrays, names)
    return pa.RecordBatchReader.from_batches(batch.schema, [batch])


def _numbers(rows: pa.StructArray) -> pa.Array:
    return pa.array(range(len(rows)), pa.int64())


def _unlike(names: Iterable[str]) -> str:
    """A name that no column has."""
    name, taken = "row_id", {name.lower() for name in names}
    while name in taken:
        name += "_"
    return name
