"""A SQL expression that a stranger typed: what it needs and whether it may run.

Rule: DuckDB's own parser reads it (no second grammar that could disagree), and every node has to be on a list: one
aggregate over the rows of one table, of functions that do bounded work a row, whose value depends on the rows alone.
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from backend.errors import QueryError
from backend.sql.quoting import folded, quoted_name
from backend.sql.session import parse_tree

MOST_CHARACTERS = 10_000  # a pasted list of keys is long
MOST_JOINED = 8  # texts put together: their length multiplies the memory of a row
MOST_PATTERN = 1_000  # characters: a LIKE takes its length times that of the text, and cannot be interrupted
_HINT = "such as amount >= 0 AND status = 'open' for one row, sum(amount) or count(DISTINCT customer_id) for all"
_ONE = "no SELECT, FROM or ;  of an aggregate a condition goes into FILTER (WHERE …)"
_TOO_DEEP, _FLATTER = "the expression is nested too deeply", "say it with fewer parentheses"
_SHORTER = "say it shorter, or look for a part of it by contains(…)"
_BEFORE, _AFTER = "SELECT (\n", "\n) AS value FROM rows"
_QUOTED = r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*"""  # where a word is not one of SQL's
_IS_NAN = re.compile(rf"{_QUOTED}|\bIS\s+(?P<negated>NOT\s+)?NAN\b", re.IGNORECASE)
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_WORD = re.compile(rf"{_QUOTED}|(?P<word>\b[A-Za-z_]\w*\b)")
_CLASSES = frozenset(
    ("FUNCTION", "COLUMN_REF", "CONSTANT", "CAST", "CASE", "COMPARISON", "CONJUNCTION", "OPERATOR", "BETWEEN", "TYPE")
)
_CLASS_WORDS = {
    "SUBQUERY": "a subquery",
    "WINDOW": "a window (OVER)",
    "STAR": "a star outside count(*)",
    "PARAMETER": "a parameter",
    "LAMBDA": "a lambda",
}
_OPERATORS = frozenset(
    (
        *("OPERATOR_NOT", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "OPERATOR_COALESCE", "OPERATOR_NULLIF"),
        *("COMPARE_IN", "COMPARE_NOT_IN", "ARRAY_EXTRACT", "STRUCT_EXTRACT", "OPERATOR_TRY"),
    )
)
AGGREGATES = frozenset(
    (
        *("count", "count_star", "count_if", "countif", "sum", "avg", "mean", "fsum", "favg", "min", "max", "product"),
        *("median", "mode", "quantile", "quantile_cont", "quantile_disc", "approx_quantile", "approx_count_distinct"),
        *("stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp", "skewness", "kurtosis", "entropy"),
        *("corr", "covar_pop", "covar_samp", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor", "geomean"),
        *("any_value", "arg_min", "arg_max", "min_by", "max_by"),
    )
)
SCALARS = frozenset(
    (
        *("+", "-", "*", "/", "//", "%", "**", "^", "||", "&", "|", "~", "~~", "!~~", "~~*", "!~~*", "->>"),
        *("abs", "ceil", "ceiling", "floor", "round", "trunc", "sign", "sqrt", "ln", "log", "log2", "log10", "exp"),
        *("pow", "power", "mod", "greatest", "least", "isnan", "isinf", "isfinite", "ifnull", "nullif", "coalesce"),
        *("lower", "upper", "length", "strlen", "len", "trim", "ltrim", "rtrim", "substring", "substr", "left"),
        *("right", "starts_with", "ends_with", "prefix", "suffix", "contains", "concat", "regexp_matches"),
        *("regexp_full_match", "json_extract_string", "struct_extract", "array_extract", "array_length"),
        *("date_trunc", "datetrunc", "date_part", "datepart", "date_diff", "datediff", "date_sub", "timezone"),
        *("year", "quarter", "month", "week", "day", "hour", "minute", "second", "dayofweek", "isodow", "dayofyear"),
        *("epoch", "epoch_ms", "to_timestamp", "make_date", "strftime", "row"),
        *("to_years", "to_months", "to_weeks", "to_days", "to_hours", "to_minutes", "to_seconds", "to_milliseconds"),
    )
)


_LIKES = frozenset(("~~", "!~~", "~~*", "!~~*"))


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression: its statement over the table `rows`, the columns that it reads, its aggregates as written,
    and the tree that DuckDB's parser made of it.

    Without an aggregate it has a value for each row.
    """

    text: str
    sql: str
    columns: tuple[str, ...]
    aggregates: tuple[str, ...] = ()
    tree: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


def require_truth(kind: str) -> None:
    """Raise `QueryError` for a condition that DuckDB finds to be of another type."""
    if kind not in ("BOOLEAN", '"NULL"'):
        raise QueryError(f"the condition gives {kind}, not true or false", hint="compare it, such as amount >= 0")


def check_expression(text: str, columns: Sequence[str]) -> Expression:
    """One aggregate over a table with these (top-level) columns; raises `QueryError` with the position it is about."""
    expression = read_expression(text, columns)
    if not expression.aggregates:
        raise QueryError(
            "the expression has no aggregate, so it has a value for each row", hint="wrap it: sum(…), max(…), count(*)"
        )
    return expression


def read_expression(text: str, columns: Sequence[str]) -> Expression:
    """An expression with or without aggregates, every node of it on a list; raises `QueryError` with a position."""
    text = text.strip()
    if not text:
        raise QueryError("there is no expression", hint=_HINT)
    if len(text) > MOST_CHARACTERS:
        message = f"the expression has {len(text):,} characters, more than {MOST_CHARACTERS:,}"
        raise QueryError(message, hint="say it shorter")
    if "\x00" in text:
        raise QueryError("the expression holds a null character", hint="type it anew")
    text, tree = _parsed(_IS_NAN.sub(_compared_with_nan, text), columns)
    names: dict[str, None] = {}
    aggregates: dict[int, str] = {}
    joined = 0
    for node in nodes(tree):
        _check_class(node, text)
        if node["class"] == "FUNCTION":
            if _check_function(node, text):
                aggregates[int(node.get("query_location") or 0)] = source_of(node, text)
            joined += len(node["arguments"]) if node["function_name"] in ("||", "concat") else 0
        elif node["class"] == "COLUMN_REF":
            names[_column(node, columns, text)] = None
    if joined > 2 * MOST_JOINED:
        raise QueryError(f"the expression puts more than {MOST_JOINED} texts together", hint="look at each by itself")
    written = dict.fromkeys(aggregates[at] for at in sorted(aggregates))
    return Expression(text, f"{_BEFORE}{text}{_AFTER}", tuple(names), tuple(written), tree)


def is_name(text: str) -> bool:
    """Whether SQL reads a word as the name of a column, without quotes."""
    try:
        return list(_one_select(text).get("column_names", ())) == [text]
    except QueryError:
        return False


def sql_name(column: str) -> str:
    """A column as a condition names it, in quotes only where it must be."""
    return column if _PLAIN.fullmatch(column) and is_name(column) else quoted_name(column)


def _parsed(text: str, columns: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The text with its tree. A column called as a word of SQL needs no quotes where nothing else can be meant."""
    try:
        return text, _one_select(text)
    except QueryError:
        words = {match["word"].lower() for match in _WORD.finditer(text) if match["word"]}
        reserved = {name.lower() for name in columns if name.lower() in words and not is_name(name)}
        if not reserved:
            raise
        quoted = _WORD.sub(lambda m: f'"{m[0]}"' if (m["word"] or "").lower() in reserved else m[0], text)
        with suppress(QueryError):
            return quoted, _one_select(quoted)
        raise


def _compared_with_nan(match: re.Match[str]) -> str:
    """`IS NAN` as a comparison of the same length, so that positions in errors hold: equality with NaN is true to
    DuckDB."""
    if not match[0][:1].isalpha():
        return match[0]
    return ("<>'NaN'" if match["negated"] else "='NaN'").ljust(len(match[0]))


def _one_select(text: str) -> dict[str, Any]:
    """The one expression of the one statement; anything beside it is refused."""
    try:
        tree = json.loads(parse_tree(f"{_BEFORE}{text}{_AFTER}"))
    except RecursionError as exc:
        raise QueryError(_TOO_DEEP, hint=_FLATTER) from exc
    if tree.get("error") and tree.get("error_type") != "parser":
        raise _not_one()
    if "max_expression_depth" in str(tree.get("error_message")):
        raise QueryError(_TOO_DEEP, hint=_FLATTER)
    if tree.get("error"):
        position = tree.get("position")
        at = _position(text, int(position)) if position is not None else None
        hint = 'a column whose name is a word of SQL is written in double quotes, such as "at"'
        message = f"{_first_line(str(tree.get('error_message')))}{_at(at)}"
        raise QueryError(message, hint=_ONE if '";"' in message else hint, position=at)
    statements = tree["statements"]
    node = statements[0]["node"] if len(statements) == 1 else {}
    table = node.get("from_table") or {}
    plain = (
        node.get("type") == "SELECT_NODE"
        and len(node["select_list"]) == 1
        and node["select_list"][0].get("alias") == "value"
        and (table.get("type"), table.get("table_name"), table.get("alias")) == ("BASE_TABLE", "rows", "")
        and not any(node.get(key) for key in ("where_clause", "group_expressions", "having", "qualify", "modifiers"))
        and not any((table.get("sample"), node.get("sample"), node["cte_map"]["map"]))
    )
    if not plain:
        raise _not_one()
    selected: dict[str, Any] = node["select_list"][0]
    return selected


def _not_one() -> QueryError:
    return QueryError("only one expression is allowed", hint=_ONE)


def nodes(root: Any) -> Iterator[dict[str, Any]]:
    """Every expression below a node, itself included."""
    return (node for node in every_node(root) if "class" in node)


def every_node(root: Any) -> Iterator[dict[str, Any]]:
    """Every object of DuckDB's tree below a node, itself included, in no deeper recursion than one."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            yield node
            waiting += node.values()


def _check_class(node: dict[str, Any], text: str) -> None:
    kind = node["class"]
    if kind not in _CLASSES or (kind == "OPERATOR" and node.get("type") not in _OPERATORS):
        words = _CLASS_WORDS.get(kind, str(node.get("type") or kind).replace("_", " ").lower())
        at = position_of(node, text)
        raise QueryError(f"{words} is not allowed here{_at(at)}", hint=_HINT, position=at)


def function_name(node: Mapping[str, Any]) -> str:
    """Of a function's node, as DuckDB compares names, behind its schema where it has one."""
    parts = (node.get("catalog"), node.get("schema"), node.get("function_name"))
    return ".".join(folded(str(part)) for part in parts if part)


def _check_function(node: dict[str, Any], text: str) -> bool:
    """Whether it is an aggregate; raises for a function that is on neither list."""
    name = function_name(node)
    if name not in AGGREGATES | SCALARS:
        at = position_of(node, text)
        near = difflib.get_close_matches(name, AGGREGATES | SCALARS, n=1, cutoff=0.75)
        hint = f"did you mean {near[0]}?" if near else _HINT
        raise QueryError(f"the function {name!r} is not allowed here{_at(at)}", hint=hint, position=at)
    literals = (argument["expression"].get("literal") or {} for argument in node["arguments"])
    if name in _LIKES and any(len(str(literal.get("text"))) > MOST_PATTERN for literal in literals):
        at = position_of(node, text)
        raise QueryError(f"the pattern has more than {MOST_PATTERN:,} characters{_at(at)}", hint=_SHORTER, position=at)
    return name in AGGREGATES


def _column(node: dict[str, Any], columns: Sequence[str], text: str) -> str:
    names = [str(name) for name in node["column_names"]]
    if len(names) > 1 and names[0].lower() == "rows":
        names = names[1:]
    exact = [column for column in columns if column == names[0]]
    same = exact or [column for column in columns if column.lower() == names[0].lower()]
    if same:
        return same[0]
    at = position_of(node, text)
    near = difflib.get_close_matches(names[0].lower(), [c.lower() for c in columns], n=1)
    hint = f"its columns are {', '.join(columns[:12])}" if columns else "the table has no columns yet"
    if near:
        hint = f"did you mean {near[0]}?"
    raise QueryError(f"there is no column {names[0]!r}{_at(at)}", hint=hint, position=at)


def position_of(node: Mapping[str, Any], text: str) -> int | None:
    """The character of the expression that a node of its tree begins at."""
    location = node.get("query_location")
    return _position(text, int(location)) if isinstance(location, int) and location < 1 << 32 else None


def _position(text: str, location: int) -> int:
    """The character of the expression at a byte of the statement."""
    offset = max(0, location - len(_BEFORE))
    return min(len(text.encode()[:offset].decode(errors="ignore")), len(text))


def source_of(node: Mapping[str, Any], text: str) -> str:
    """A node as it was written; empty where the parser does not say where it is."""
    start, length = (int(node.get(key) or 0) for key in ("query_location", "query_location_length"))
    return f"{_BEFORE}{text}".encode()[start : start + length].decode(errors="ignore")


def _at(at: int | None) -> str:
    return "" if at is None else f" (character {at + 1})"


def _first_line(message: str) -> str:
    return message.strip().splitlines()[0][:300] if message.strip() else "the expression cannot be read"
