"""SQL that a stranger typed, as DuckDB's own parser reads it, and the one list of what may stand in it.

Why: what runs is read once, by the grammar that runs it; a second one could disagree. Filters, conditions, what prunes
files and what joins take from a statement all walk this tree. Rule: an allow-list. Every node has to be on it, and a
function is that does bounded work a row or a group and reads nothing but its arguments. It knows no lake and no file.
"""

import difflib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from backend.errors import QueryError
from backend.sql.session import parse_tree
from backend.sql.values import folded, plain_name

MOST_CHARACTERS = 10_000  # a pasted list of keys is long
MOST_JOINED = 8  # texts put together: their length multiplies the memory of a row
MOST_PATTERN = 1_000  # characters: a LIKE takes its length times that of the text, and cannot be interrupted
_HINT = "such as amount >= 0 AND status = 'open' for one row, sum(amount) or count(DISTINCT customer_id) for all"
_ONE = "no SELECT, FROM or ;  of an aggregate a condition goes into FILTER (WHERE …)"
_TOO_DEEP, _FLATTER = "the expression is nested too deeply", "say it with fewer parentheses"
_SHORTER = "shorten it, or search for a part of it with contains(…)"
_BEFORE, _AFTER = "SELECT (\n", "\n) AS value FROM rows"
_QUOTED = r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*"""  # where a word is not one of SQL's
_IS_NAN = re.compile(rf"{_QUOTED}|\bIS\s+(?P<negated>NOT\s+)?NAN\b", re.IGNORECASE)
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
_STATEMENT_SCALARS = """
    first last list array_agg string_agg listagg group_concat histogram mad sem regr_slope regr_intercept regr_r2
    regr_count kurtosis_pop arbitrary grouping row_number rank dense_rank percent_rank cume_dist ntile lag lead
    first_value last_value nth_value fill unnest list_value struct_pack map list_transform list_apply list_filter
    list_contains list_has list_sort list_distinct list_sum list_avg list_min list_max list_count list_unique
    list_slice list_concat list_position list_extract list_aggregate array_contains array_to_string list_reverse
    flatten map_keys map_values map_extract map_extract_value map_entries cardinality element_at json_extract ->
    json_valid json_type json_array_length json_keys json_value strpos position instr replace reverse translate
    split_part string_split split regexp_extract regexp_replace concat_ws lpad rpad ascii chr md5 sha256 hash upper
    lcase ucase char_length octet_length bit_length levenshtein jaccard format encode decode hex unhex to_hex base64
    from_base64 to_base64 printf typeof now get_current_timestamp current_timestamp current_date today age date_add
    epoch_us epoch_ns make_timestamp last_day dayname monthname strptime try_strptime time_bucket weekofyear weekday
    yearweek isoyear millisecond microsecond decade century to_microseconds to_quarters to_decades make_time even
    cbrt degrees radians pi sin cos tan asin acos atan atan2 gcd lcm xor << >> if @ is_null bar round_even date
    struct_insert least_common_multiple bit_count regexp_split_to_array string_to_array str_split array_slice
    array_has mod fmod
""".split()  # noqa: SIM905 - 170 words, each in quotes, are read by nobody
FUNCTIONS = AGGREGATES | SCALARS | frozenset(_STATEMENT_SCALARS)
_STATEMENT_CLASSES = _CLASSES | frozenset(
    ("WINDOW", "SUBQUERY", "STAR", "LAMBDA", "LAMBDA_REF", "POSITIONAL_REFERENCE")
)
_STATEMENT_NODES = frozenset(
    (
        *("SELECT_NODE", "SET_OPERATION_NODE", "CTE_NODE", "BASE_TABLE", "SUBQUERY", "JOIN", "EMPTY"),
        *("TABLE_FUNCTION", "EXPRESSION_LIST"),
    )
)
_NO_FILES = "functions that read files, settings or other tables are not there"
_ONE_SELECT = "a query is one SELECT over tables of the lake"
_LIKES = frozenset(("~~", "!~~", "~~*", "!~~*"))

# the tree -------------------------------------------------------------------------------------------------------------


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


def nodes(root: Any) -> Iterator[dict[str, Any]]:
    """Every expression below a node, itself included."""
    return (node for node in every_node(root) if "class" in node)


def conjuncts(condition: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The parts of a condition that all have to be true."""
    return condition["children"] if condition["type"] == "CONJUNCTION_AND" else [condition]


def position_of(node: Mapping[str, Any], text: str) -> int | None:
    """The character of the expression that a node of its tree begins at."""
    location = node.get("query_location")
    return _position(text, int(location)) if isinstance(location, int) and location < 1 << 32 else None


def source_of(node: Mapping[str, Any], text: str) -> str:
    """A node as it was written, what stands before its operator too; empty where the parser does not say where."""
    places = [
        (int(n["query_location"]), int(n.get("query_location_length") or 0))
        for n in nodes(node)
        if position_of(n, text) is not None
    ]
    start, end = min((at for at, _ in places), default=0), max((at + length for at, length in places), default=0)
    return f"{_BEFORE}{text}".encode()[start:end].decode(errors="ignore")


def _position(text: str, location: int) -> int:
    """The character of the expression at a byte of the statement."""
    offset = max(0, location - len(_BEFORE))
    return min(len(text.encode()[:offset].decode(errors="ignore")), len(text))


def _at(at: int | None) -> str:
    return "" if at is None else f" (character {at + 1})"


def _first_line(message: str) -> str:
    return message.strip().splitlines()[0][:300] if message.strip() else "the expression cannot be read"


def _function_name(node: Mapping[str, Any], allowed: Collection[str], hint: str, at: int | None = None) -> str:
    """The name of a function on a list; raises `QueryError` for another."""
    parts = (node.get("catalog"), node.get("schema"), node["function_name"])
    name = ".".join(folded(str(part)) for part in parts if part)
    if name not in allowed:
        near = difflib.get_close_matches(name, allowed, n=1, cutoff=0.75)
        hint = f"did you mean {near[0]}?" if near else hint
        raise QueryError(f"the function {name!r} is not allowed here{_at(at)}", hint=hint, position=at)
    return name


# an expression over the columns of one table --------------------------------------------------------------------------


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


def check_row_condition(text: str, columns: Sequence[str]) -> Expression:
    """SQL over one row of these columns; raises `QueryError`."""
    condition = read_expression(text, columns)
    if condition.aggregates:
        raise QueryError("the condition is about one row, but has an aggregate", hint="such as amount < 0")
    if not condition.columns:
        raise QueryError("the condition names no column, so it is the same for every row", hint="such as amount < 0")
    for node in nodes(condition.tree):
        sides = [node.get(side) or {} for side in ("left", "right")]
        is_plain = node["class"] == "COMPARISON" and "DISTINCT" not in node["type"]
        if is_plain and any((side.get("literal") or {}).get("kind") == "NULL_LITERAL" for side in sides):
            raise QueryError("nothing compares with NULL", hint="write amount IS NULL")
    return condition


def check_value(text: str, columns: Sequence[str]) -> Expression:
    """SQL that gives one row of these columns a value; raises `QueryError`."""
    value = read_expression(text, columns)
    if value.aggregates:
        raise QueryError("the value is of one row, but has an aggregate", hint="such as abs(amount)")
    return value


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
        kind = node["class"]
        if kind not in _CLASSES or (kind == "OPERATOR" and node.get("type") not in _OPERATORS):
            words = _CLASS_WORDS.get(kind, str(node.get("type") or kind).replace("_", " ").lower())
            at = position_of(node, text)
            raise QueryError(f"{words} is not allowed here{_at(at)}", hint=_HINT, position=at)
        if kind == "FUNCTION":
            if _check_function(node, text) in AGGREGATES:
                aggregates[int(node.get("query_location") or 0)] = source_of(node, text)
            joined += len(node["arguments"]) if node["function_name"] in ("||", "concat") else 0
        elif kind == "COLUMN_REF":
            names[_column(node, columns, text)] = None
    if joined > 2 * MOST_JOINED:
        raise QueryError(f"the expression puts more than {MOST_JOINED} texts together", hint="look at each by itself")
    written = dict.fromkeys(aggregates[at] for at in sorted(aggregates))
    return Expression(text, f"{_BEFORE}{text}{_AFTER}", tuple(names), tuple(written), tree)


def _parsed(text: str, columns: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The text with its tree. A column called as a word of SQL needs no quotes where nothing else can be meant."""
    try:
        return text, _one_expression(text)
    except QueryError:
        words = {match["word"].lower() for match in _WORD.finditer(text) if match["word"]}
        reserved = {name.lower() for name in columns if name.lower() in words and plain_name(name) != name}
        if not reserved:
            raise
        quoted = _WORD.sub(lambda m: f'"{m[0]}"' if (m["word"] or "").lower() in reserved else m[0], text)
        with suppress(QueryError):
            return quoted, _one_expression(quoted)
        raise


def _compared_with_nan(match: re.Match[str]) -> str:
    """`IS NAN` as a comparison of the same length, so that positions in errors hold: equality with NaN is true to
    DuckDB."""
    if not match[0][:1].isalpha():
        return match[0]
    return ("<>'NaN'" if match["negated"] else "='NaN'").ljust(len(match[0]))


def _one_expression(text: str) -> dict[str, Any]:
    """The one expression of the one statement; anything beside it is refused."""
    try:
        tree = json.loads(parse_tree(f"{_BEFORE}{text}{_AFTER}"))
    except RecursionError as exc:
        raise QueryError(_TOO_DEEP, hint=_FLATTER) from exc
    if tree.get("error") and tree.get("error_type") != "parser":
        raise QueryError("only one expression is allowed", hint=_ONE)
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
        raise QueryError("only one expression is allowed", hint=_ONE)
    selected: dict[str, Any] = node["select_list"][0]
    return selected


def _check_function(node: dict[str, Any], text: str) -> str:
    """Its name; raises for a function that is on neither list."""
    at = position_of(node, text)
    name = _function_name(node, AGGREGATES | SCALARS, _HINT, at)
    literals = (argument["expression"].get("literal") or {} for argument in node["arguments"])
    if name in _LIKES and any(len(str(literal.get("text"))) > MOST_PATTERN for literal in literals):
        raise QueryError(f"the pattern has more than {MOST_PATTERN:,} characters{_at(at)}", hint=_SHORTER, position=at)
    return name


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


# a statement over tables that were handed to DuckDB -------------------------------------------------------------------


def check_statement(sql: str, tables: Collection[str]) -> Mapping[str, Any]:
    """The tree of a statement that is one SELECT over these tables (names in lower case) and functions of the list;
    raises `QueryError` for any other, `RecursionError` for one that is nested too deeply."""
    tree = json.loads(parse_tree(sql))
    reason = str(tree.get("error_message")).strip()
    if "max_expression_depth" in reason:
        raise RecursionError
    if tree.get("error") or len(tree["statements"]) != 1:
        raise QueryError(f"the statement cannot be read: {_first_line(reason)}", hint=_ONE_SELECT)
    for node in every_node(tree["statements"]):
        kind = str(node.get("type"))
        if "class" in node:
            if node["class"] not in _STATEMENT_CLASSES:
                raise _refused(node["class"].replace("_", " ").lower())
            if "function_name" in node and kind != "TABLE_FUNCTION":
                _function_name(node, FUNCTIONS, _NO_FILES)
        elif ("alias" in node or "modifiers" in node) and "type" in node:
            _check_node(node, kind, tables)
    statement: Mapping[str, Any] = tree["statements"][0]["node"]
    return statement


def _check_node(node: dict[str, Any], kind: str, tables: Collection[str]) -> None:
    if kind not in _STATEMENT_NODES:
        raise _refused(kind.removesuffix("_NODE").removesuffix("_REF").replace("_", " "))
    if node.get("sample"):
        raise _refused("TABLESAMPLE")  # another answer each time
    if node.get("ref_type") == "POSITIONAL":
        raise _refused("POSITIONAL JOIN")  # rows of a table have no order
    name = node.get("table_name")
    if kind == "BASE_TABLE":
        is_ours = folded(str(name)) in tables
        if not is_ours or any(node.get(key) for key in ("schema_name", "catalog_name", "at_clause")):
            raise _refused(f"the table {name}")
    if kind == "TABLE_FUNCTION" and (name := (node.get("function") or {}).get("function_name")) != "unnest":
        raise _refused(f"the table function {name}")


def _refused(what: str) -> QueryError:
    return QueryError(f"{what} is not allowed", hint=_ONE_SELECT)


def select_nodes(root: Any) -> Iterator[Mapping[str, Any]]:
    """Every SELECT of a statement, those within others included."""
    return (node for node in every_node(root) if node.get("type") == "SELECT_NODE")


def own_nodes(select: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The nodes of a SELECT, without those of a SELECT within it."""
    waiting: list[Any] = list(select.values())
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict) and node.get("type") != "SELECT_NODE":
            yield node
            waiting += node.values()
