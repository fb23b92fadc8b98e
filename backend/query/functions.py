"""What DuckDB's own parser may find in a statement: the tables that were handed to it, and functions on a list.

Rule: an allow-list. A function is on it that does bounded work a row or a group and reads nothing but its arguments.
"""

import difflib
import json
from collections.abc import Collection
from typing import Any

from backend.errors import QueryError
from backend.sql.expression import AGGREGATES, SCALARS, every_node, function_name
from backend.sql.quoting import folded
from backend.sql.session import parse_tree

_CLASSES = frozenset(
    (
        *("FUNCTION", "COLUMN_REF", "CONSTANT", "CAST", "CASE", "COMPARISON", "CONJUNCTION", "OPERATOR", "BETWEEN"),
        *("TYPE", "WINDOW", "SUBQUERY", "STAR", "LAMBDA", "LAMBDA_REF", "POSITIONAL_REFERENCE"),
    )
)
_NODES = frozenset(
    (
        *("SELECT_NODE", "SET_OPERATION_NODE", "CTE_NODE", "BASE_TABLE", "SUBQUERY", "JOIN", "EMPTY"),
        *("TABLE_FUNCTION", "EXPRESSION_LIST"),
    )
)
_MORE = """
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
FUNCTIONS = AGGREGATES | SCALARS | frozenset(_MORE)
_HINT = "functions that read files, settings or other tables are not there"
_ONE = "a query is one SELECT over tables of the lake"


def require_allowed(sql: str, tables: Collection[str]) -> None:
    """Raise `QueryError` unless a statement is one SELECT over these tables (names in lower case) and functions of the
    list, as DuckDB's parser reads it; `RecursionError` for one that is nested too deeply."""
    tree = json.loads(parse_tree(sql))
    reason = str(tree.get("error_message")).strip()
    if "max_expression_depth" in reason:
        raise RecursionError
    if tree.get("error") or len(tree["statements"]) != 1:
        raise QueryError(f"the statement cannot be read: {reason.splitlines()[0][:300]}", hint=_ONE)
    for node in every_node(tree["statements"]):
        kind = str(node.get("type"))
        if "class" in node:
            if node["class"] not in _CLASSES:
                raise _refused(node["class"].replace("_", " ").lower())
            if "function_name" in node and kind != "TABLE_FUNCTION":
                _require_function(node)
        elif ("alias" in node or "modifiers" in node) and "type" in node:
            _require_node(node, kind, tables)


def _require_node(node: dict[str, Any], kind: str, tables: Collection[str]) -> None:
    if kind not in _NODES:
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


def _require_function(node: dict[str, Any]) -> None:
    name = function_name(node)
    if name not in FUNCTIONS:
        near = difflib.get_close_matches(name, FUNCTIONS, n=1, cutoff=0.75)
        raise QueryError(f"the function {name} is not allowed", hint=f"did you mean {near[0]}?" if near else _HINT)


def _refused(what: str) -> QueryError:
    return QueryError(f"{what} is not allowed", hint=_ONE)
