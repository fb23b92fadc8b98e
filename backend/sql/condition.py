"""A condition on rows, or a value of each: SQL over one row in DuckDB's dialect, computed over batches.

Rule: it is phrased in one way for the process that compares and for the workers of a stream host: columns under the
table's own names, unknown is not satisfied. What rows make of it is a `QueryError`, whatever the method.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from backend.sql.expression import Expression, check_row_condition, require_truth
from backend.sql.quoting import quoted_name
from backend.sql.session import PIECE_BYTES, CancelToken, Connection, close_doors, row_errors, session


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
    rows, row_id = _named(columns, source)
    wrapped = f"((\n{condition.text}\n))"  # an OR in it stays together
    with row_errors():
        kind = connection.execute(f"DESCRIBE SELECT {wrapped} FROM {rows}").fetchall()[0][1]
    require_truth(str(kind))
    return f"SELECT {row_id} AS row_id FROM {rows} WHERE coalesce({wrapped}, false)"


def _named(columns: Mapping[str, str], source: str) -> tuple[str, str]:
    """The rows of `source` under the names of their columns, and the name that their `row_id` has there."""
    row_id, taken = "row_id", {name.lower() for name in columns}
    while row_id in taken:
        row_id += "_"
    named = ", ".join(f"{value} AS {quoted_name(name)}" for name, value in columns.items())
    return f"(SELECT {named}, row_id AS {row_id} FROM {source}) rows", row_id


def satisfied(
    condition: Expression, batches: Iterable[pa.StructArray], token: CancelToken | None = None
) -> Iterator[pa.BooleanArray]:
    """Whether each row of each batch satisfies the condition; fields are the columns that it names, in its order."""
    columns = {name: f"c{i}" for i, name in enumerate(condition.columns)}

    def prepare(connection: Connection) -> str:
        return matching(connection, condition, columns, "batch")

    for pieces in _computed(prepare, batches, "the condition", token or CancelToken()):
        yield pa.concat_arrays([pc.is_in(_numbers(rows), value_set=found["row_id"]) for rows, found in pieces])


def computed(value: Expression, target: str, batches: Iterable[pa.StructArray]) -> Iterator[pa.Array]:
    """The value for each row of each batch, as the type of the column `target`; fields are `fields_of`."""
    columns = {name: f"c{i}" for i, name in enumerate(fields_of(value, target))}

    def prepare(connection: Connection) -> str:
        close_doors(connection)
        kind = connection.execute(f"DESCRIBE SELECT {columns[target]} FROM batch").fetchall()[0][1]
        rows, row_id = _named(columns, "batch")
        return f"SELECT CAST((\n{value.text}\n) AS {kind}) AS value, {row_id} AS row_id FROM {rows}"

    for pieces in _computed(prepare, batches, "the value", CancelToken()):
        values = [found.sort_by("row_id")["value"].combine_chunks() for _, found in pieces]
        yield pa.concat_arrays([array.cast(rows.type.field(len(columns) - 1).type)
                                for array, (rows, _) in zip(values, pieces, strict=True)])  # fmt: skip


def fields_of(value: Expression, target: str) -> tuple[str, ...]:
    """The columns that computing it takes: those that it names, and the one that it is for, at the end."""
    return (*(name for name in value.columns if name != target), target)


def require_fit(condition: Expression, schema: pa.Schema) -> None:
    """Raise `QueryError` unless the condition can be asked of rows with these columns, by name."""
    for _ in satisfied(condition, [_no_rows(schema, condition.columns)]):
        pass


def require_value(value: Expression, target: str, schema: pa.Schema) -> None:
    """Raise `QueryError` unless the value can be had from rows with these columns, by name, and kept in `target`."""
    for _ in computed(value, target, [_no_rows(schema, fields_of(value, target))]):
        pass


def _no_rows(schema: pa.Schema, names: Sequence[str]) -> pa.StructArray:
    return pa.array([], pa.struct([schema.field(name) for name in names]))


def _computed(
    prepare: Callable[[Connection], str], batches: Iterable[pa.StructArray], what: str, token: CancelToken
) -> Iterator[list[tuple[pa.StructArray, pa.Table]]]:
    """Each batch in pieces, with what a query over the table `batch` gives of each; `prepare` makes the query.

    In pieces since DuckDB looks up between them alone whether it is to end, and one pattern may take a second over a
    megabyte.
    """
    with session(token, what=f"{what}'s rows") as connection:
        query = ""
        for batch in batches:
            step = max(1, PIECE_BYTES * len(batch) // max(1, batch.nbytes))
            pieces = []
            with row_errors(what):
                if not query:
                    connection.register("batch", _numbered(batch[:0]))
                    query = prepare(connection)
                for start in range(0, max(1, len(batch)), step):
                    token.check()
                    rows = batch[start : start + step]
                    connection.register("batch", _numbered(rows))
                    pieces.append((rows, connection.sql(query).to_arrow_table()))
            yield pieces


def _numbered(rows: pa.StructArray) -> pa.RecordBatchReader:
    """A stream, not a table: of that DuckDB would have Arrow filter rows, which compares NaN in another way."""
    arrays = [*rows.flatten(), _numbers(rows)]
    names = [*(f"c{i}" for i in range(len(arrays) - 1)), "row_id"]
    batch = pa.record_batch(arrays, names)
    return pa.RecordBatchReader.from_batches(batch.schema, [batch])


def _numbers(rows: pa.StructArray) -> pa.Array:
    return pa.array(range(len(rows)), pa.int64())
