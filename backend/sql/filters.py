"""Conditions on rows: what one says in terms of columns and constants, the rows that satisfy it, and the text of one.

Why: by terms files are ruled out and rows skipped, for a typed filter and for WHERE of a statement; whatever else a
condition says DuckDB computes over the rows that are left. Rule: it walks the one checked tree of
`backend.sql.expression`, and reads no text again. A condition is phrased in one way for the process that compares and
for the workers of a stream host: columns under the table's own names, unknown is not satisfied. What rows make of it is
a `QueryError`, whatever the method.
"""

import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from backend.errors import QueryError
from backend.lake.rows.filters import (
    COMPARISONS,
    FLOATS,
    INTEGERS,
    All,
    AnyOf,
    FilterColumn,
    Literal,
    Node,
    Not,
    RowFilter,
    Test,
    typed,
)
from backend.lake.table.schema import SchemaColumn
from backend.sql.expression import Expression, check_row_condition, conjuncts, position_of, require_truth
from backend.sql.session import (
    PIECE_BYTES,
    CancelToken,
    Connection,
    can_cast,
    close_doors,
    row_errors,
    session,
    type_of,
)
from backend.sql.values import folded, plain_name, quoted_name, quoted_text
from backend.work import Work, still_runs

Result = TypeVar("Result")

_HINT = "compare in a simpler way, or raise WEIR_LAKE__FILTER_TIME_LIMIT_S"
_SIGNS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
}
_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LIKES = {"~~": "LIKE", "~~*": "ILIKE"}
_TIMES = ("date", "timestamp", "timestamp_ntz")
_NO_ZONE = re.compile(r"-?\d{4,6}-\d\d-\d\d(?:[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?)?")
_SQL_TYPES = {
    **{kind: kind for kind in ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "date")},
    "string": "VARCHAR",
    "binary": "BLOB",
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
}


def parse_filter(text: str, schema: Sequence[SchemaColumn]) -> RowFilter | None:
    """The filter over a table's columns, None for an empty text; raises `QueryError` that says where."""
    if not text.strip():
        return None
    condition = check_row_condition(text, [field.path for field in schema if field.depth == 0])
    types = {field.path: kind for field in schema if field.depth == 0 and (kind := _sql_type(field, schema))}
    if all(name in types for name in condition.columns):
        require_truth(type_of(condition.text, {name: types[name] for name in condition.columns}))
    reader = _Terms(schema, "rows", condition.text)
    terms = [reader.node(part) for part in conjuncts(condition.tree)]
    exact = tuple(term for term in terms if term is not None)
    joined_terms = All(exact) if len(exact) > 1 else (exact[0] if exact else None)
    return RowFilter(joined_terms, None if len(exact) == len(terms) else _Computed(condition))


def pruning_filter(
    conditions: Iterable[Mapping[str, Any]], schema: Sequence[SchemaColumn], table: str
) -> RowFilter | None:
    """What files and readers can be told of conditions on the columns of one table of a statement, nodes of its tree;
    None where that is nothing. DuckDB asks all of them again."""
    reader, terms = _Terms(schema, table), list[Node]()
    for condition in conditions:
        with suppress(QueryError):  # whether a constant fits its column DuckDB says
            if (term := reader.node(condition)) is not None:
                terms.append(term)
    return RowFilter(All(tuple(terms))) if terms else None


def _sql_type(field: SchemaColumn, schema: Sequence[SchemaColumn]) -> str | None:
    """A column's type as DuckDB writes it; None for one whose inside is not spelled out here."""
    if not field.type.startswith("struct<"):
        return _scalar_type(field.type)
    inside = [below for below in schema if below.names[:-1] == field.names]
    types = [_sql_type(below, schema) for below in inside]
    if not types or None in types:
        return None
    pairs = zip(inside, types, strict=True)
    return f"STRUCT({', '.join(f'{quoted_name(below.names[-1])} {kind}' for below, kind in pairs)})"


def _scalar_type(kind: str) -> str | None:
    return kind if kind.startswith("decimal") else _SQL_TYPES.get(kind)


@dataclass(frozen=True, slots=True)
class _Computed:
    """A filter, or the part of it that no term says, computed by DuckDB."""

    condition: Expression
    token: CancelToken | None = None

    @property
    def text(self) -> str:
        return self.condition.text

    @property
    def columns(self) -> tuple[str, ...]:
        return self.condition.columns

    def passing(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        asked: deque[pa.RecordBatch] = deque()

        def rows() -> Iterator[pa.StructArray]:
            for batch in batches:
                asked.append(batch)
                yield pa.StructArray.from_arrays([batch[name] for name in self.columns], names=list(self.columns))

        for is_satisfied in satisfied(self.condition, rows(), self.token):
            yield asked.popleft().filter(is_satisfied)


def ended_by(token: CancelToken, where: RowFilter | None) -> RowFilter | None:
    """The same filter, whose computing another thread ends by the token."""
    if where is None or not isinstance(where.check, _Computed):
        return where
    return replace(where, check=replace(where.check, token=token))


def within(
    limit_s: float,
    where: RowFilter | None,
    search: Callable[[RowFilter | None, CancelToken], Result],
    *,
    waiting: Callable[[], object] = lambda: None,
) -> Result:
    """What a search by the filter gives, which looks at its token now and then. `waiting` is called meanwhile, and may
    raise to end it; raises `QueryError` at the limit."""
    token = CancelToken()
    with Work(lambda: search(ended_by(token, where), token), token.stop) as work:
        while still_runs(work, "the filter", hint=_HINT, limit_s=limit_s):
            waiting()
    return work.result()


class _Terms:
    """Nodes of DuckDB's parse tree as terms; None for a node that is none. `table`: what columns may name it by."""

    def __init__(self, schema: Sequence[SchemaColumn], table: str, text: str = "") -> None:
        self._table, self._text = folded(table), text
        self._types = {field.names: field.type for field in schema}

    def node(self, tree: Mapping[str, Any]) -> Node | None:
        kind, children = tree["type"], tree.get("children", ())
        match kind:
            case "CONJUNCTION_AND" | "CONJUNCTION_OR":
                operands = [self.node(child) for child in children]
                return _joined(operands, is_all=kind == "CONJUNCTION_AND")
            case "OPERATOR_NOT":
                return _negated(self.node(children[0]))
            case "OPERATOR_IS_NULL" | "OPERATOR_IS_NOT_NULL":
                column = self._column(children[0])
                test = None if column is None else Test(column, "IS NULL")
                return test if kind == "OPERATOR_IS_NULL" else _negated(test)
            case "COMPARE_IN":
                return _joined([self._compared(children[0], "=", child) for child in children[1:]], is_all=False)
            case "COMPARE_BETWEEN":
                ends = ((">=", tree["lower"]), ("<=", tree["upper"]))
                return _joined([self._compared(tree["input"], sign, end) for sign, end in ends], is_all=True)
            case "COMPARE_NOTEQUAL":
                return _negated(self._compared(tree["left"], "=", tree["right"]))
            case "FUNCTION":
                return self._function(tree["function_name"], [part["expression"] for part in tree["arguments"]])
            case "COLUMN_REF":
                column = self._column(tree)
                return Test(column, "=", True) if column and column.type == "boolean" else None
        return self._compared(tree["left"], _SIGNS[kind], tree["right"]) if kind in _SIGNS else None

    def _function(self, name: str, arguments: Sequence[Mapping[str, Any]]) -> Node | None:
        column = self._column(arguments[0]) if arguments else None
        if column is None:
            return None
        if name == "isnan" and column.type in FLOATS:
            return Test(column, "IS NAN")
        operator = _LIKES.get(name.removeprefix("!"))
        if operator is None or column.type != "string" or len(arguments) != 2:
            return None
        pattern = self._value(arguments[1], column)
        if not isinstance(pattern, str) or "\\" in pattern:  # which escapes for other readers, and not for DuckDB
            return None
        test = Test(column, operator, pattern)
        return Not(test) if name.startswith("!") else test

    def _compared(self, left: Mapping[str, Any], sign: str, right: Mapping[str, Any]) -> Test | None:
        column, other = self._column(left), self._column(right)
        if column is not None and other is not None:
            is_exact = all(each.type in INTEGERS or each.type.startswith("decimal") for each in (column, other))
            is_alike = is_exact or (column.type == other.type and column.type not in FLOATS)  # to readers as to DuckDB
            return Test(column, sign, other) if is_alike else None
        if column is None:
            column, sign, right = other, _MIRRORED[sign], left
        if column is None:
            return None
        is_nan = right["class"] == "CONSTANT" and str(right["literal"].get("text")).lower() == "nan"
        if column.type in FLOATS and sign == "=" and is_nan:
            return Test(column, "IS NAN")
        value = self._value(right, column)
        return None if value is None else Test(column, sign, value)

    def _value(self, tree: Mapping[str, Any], column: FilterColumn) -> Literal | None:
        """A constant, perhaps one with its type in front; raises `QueryError` for a text that does not fit."""
        is_cast = tree["class"] == "CAST" and not tree.get("try_cast")
        constant = tree["child"] if is_cast else tree
        if constant["class"] != "CONSTANT" or "text" not in constant["literal"]:
            return None
        kind, text = constant["literal"]["kind"], constant["literal"]["text"]
        try:
            if is_cast:
                text = _moment_text(tree, kind, text, column)
            return typed(kind, text, column.type)
        except ValueError as exc:
            if kind == "STRING" and not is_cast:
                self._require_fit(text, column, exc, position_of(constant, self._text))
            return None

    def _require_fit(self, text: str, column: FilterColumn, refusal: ValueError, position: int | None) -> None:
        """A text that is no value here may still be one to DuckDB. But for a time without a zone only one beyond
        Python's calendar: of others DuckDB would leave out the zone that the text names, without a word."""
        kind = _scalar_type(column.type)
        if kind is None:
            return
        if (column.type == "timestamp_ntz" and not _NO_ZONE.fullmatch(text)) or not can_cast(text, kind):
            at = "" if position is None else f" (character {position + 1})"
            raise QueryError(f"{refusal}{at}", hint=f"a value for {'.'.join(column.path)}", position=position)

    def _column(self, tree: Mapping[str, Any]) -> FilterColumn | None:
        if tree["class"] != "COLUMN_REF":
            return None
        names = [str(name) for name in tree["column_names"]]
        if len(names) > 1 and folded(names[0]) == self._table:
            names = names[1:]
        path: tuple[str, ...] = ()
        for name in names:
            same = [known for known in self._types if known[:-1] == path and known[-1].lower() == name.lower()]
            exact = [known for known in same if known[-1] == name] or same
            if len(exact) != 1 or (path and not self._types[path].startswith("struct<")):
                return None
            path = exact[0]
        return FilterColumn(path, self._types[path])


def _joined(operands: Sequence[Node | None], *, is_all: bool) -> Node | None:
    terms = tuple(operand for operand in operands if operand is not None)
    if len(terms) < len(operands):
        return None
    if len(terms) == 1:
        return terms[0]
    return All(terms) if is_all else AnyOf(terms)


def _negated(node: Node | None) -> Node | None:
    return None if node is None else Not(node)


def _moment_text(tree: Mapping[str, Any], kind: str, text: str, column: FilterColumn) -> str:
    """The text of `DATE '…'` or `TIMESTAMP '…'` beside a column of time; else a `ValueError`."""
    type_name = tree["type_expr"]["type_name"].upper()
    if kind != "STRING" or column.type not in _TIMES or type_name not in ("DATE", "TIMESTAMP", "TIMESTAMPTZ"):
        raise ValueError(type_name)
    return date.fromisoformat(text).isoformat() if type_name == "DATE" else text


# over rows ------------------------------------------------------------------------------------------------------------


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


# what a click on a value, or a typed box, adds to a filter ---------------------------------------------------------

_ORDERED = ("bigint", "int", "smallint", "tinyint", "double", "float", "decimal", "date", "timestamp", "string")
_COMMENT = re.compile(r"""('(?:[^']|'')*'|"(?:[^"]|"")*")|--[^\n]*""")
_NULLS = ("IS NULL", "IS NOT NULL")


def operators(kind: str) -> tuple[str, ...]:
    """What a column of Spark's type can be asked; the last two without a value. Of a nested one no more than these."""
    if kind == "boolean":
        return ("=", *_NULLS)
    if not kind.startswith(_ORDERED):
        return ("=", "<>", *_NULLS) if kind == "binary" else _NULLS
    likes = ("LIKE", "ILIKE") if kind == "string" else ()
    return ("=", "<>", *COMPARISONS[1:], *likes, *_NULLS)


def condition_text(column: str, operator: str, value: Any = None, *, kind: str = "") -> str:
    """One test on a column, of Spark's type `kind`; raises `QueryError` for a value that no filter can name."""
    name = plain_name(column)
    if operator in _NULLS:
        return f"{name} {operator}"
    if value is None:
        return f"{name} {_NULLS[0] if operator == '=' else _NULLS[1]}"
    if isinstance(value, float) and math.isnan(value):
        return f"{name} IS {'' if operator == '=' else 'NOT '}NAN"
    if kind in _TIMES and isinstance(value, str):  # beyond Python's calendar, with a sign that DuckDB takes for none
        value = value.removeprefix("+")
    return f"{name} {operator} {_value_text(value)}"


def narrowed(text: str, more: str, schema: Sequence[SchemaColumn]) -> str:
    """A filter narrowed down further; raises `QueryError` where it is none."""
    if not text.strip():
        return more
    tree = check_row_condition(text, [field.path for field in schema if field.depth == 0]).tree
    text = _without_comments(text)
    return f"({text}) AND {more}" if tree["type"] == "CONJUNCTION_OR" else f"{text} AND {more}"


def negated(text: str) -> str:
    """A condition that those rows violate which a filter lets through, and no others: unknown lets none through, and
    violates nothing."""
    return f"NOT ({_without_comments(text)})"


def _without_comments(text: str) -> str:
    return _COMMENT.sub(r"\1", text).strip()  # what follows on the line would be a comment too


def _value_text(value: Any) -> str:
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return repr(value)
        case Decimal():
            return format(value, "f")
        case bytes():
            return f"X'{value.hex()}'"
        case datetime():
            local = value if value.tzinfo is None else value.astimezone(UTC)
            return f"'{local.replace(tzinfo=None).isoformat(sep=' ')}'"
        case date():
            return f"'{value.isoformat()}'"
        case str():
            return quoted_text(value)
    raise QueryError(f"a filter cannot name {value!r}", hint="filter by another column")
