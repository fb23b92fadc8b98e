"""A condition that a good version satisfies, checked, and the statements that compute it.

Rule: the stranger's SQL passes `read_expression` before it runs; only the columns that it names are read, and none
where the log's row counts answer. A null is no violation, as in SQL's CHECK.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from backend.errors import QueryError
from backend.format import cut
from backend.lake.model import Snapshot
from backend.lake.table.schema import readable_names
from backend.search.model import VersionVerdict
from backend.sql.expression import AGGREGATES, Expression, nodes, read_expression, require_truth, source_of
from backend.sql.quoting import quoted_name

_MOST_AGGREGATES = 8
_MOST_VALUE = 60  # characters of one value in a sentence
_EMPTY_HINT = "such as amount >= 0, or (order_id, line) where no two rows may have the same"
_KEY = re.compile(r"\bDISTINCT\b\s*(?P<key>.+)\)\s*$", re.IGNORECASE | re.DOTALL)
_FLIPPED = {
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
}
_BOUNDED = {
    "max": ("COMPARE_LESSTHAN", "COMPARE_LESSTHANOREQUALTO"),
    "min": ("COMPARE_GREATERTHAN", "COMPARE_GREATERTHANOREQUALTO"),
}
_NONE = (("COMPARE_EQUAL", "0"), ("COMPARE_LESSTHANOREQUALTO", "0"), ("COMPARE_LESSTHAN", "1"))  # of a count
_WORD = re.compile(r"\w+|\"[^\"]+\"")
_FILTER = re.compile(r"\bFILTER\s*\(\s*WHERE\b(?P<condition>.+)\)\s*$", re.IGNORECASE | re.DOTALL)

_read = lru_cache(maxsize=256)(read_expression)  # each probe of a search asks for the same


@dataclass(frozen=True, slots=True)
class VersionCondition:
    """A checked condition. `by_row`: every row has to satisfy it; else it is about the version as a whole.

    `aggregates` are its aggregates as written. `unique`: the expression of which it says that no two rows have the same
    value, else empty. `row_rule`: what each row has to satisfy, empty where it is about no row by itself.
    """

    text: str
    by_row: bool
    columns: tuple[str, ...]
    aggregates: tuple[str, ...]
    sql: str
    unique: str = ""
    row_rule: str = ""


def check_condition(text: str, snapshot: Snapshot) -> VersionCondition:
    """A condition against the columns of a version; `(sku, site)` alone has to be unique. Raises `QueryError` with the
    position it is about."""
    if not text.strip():
        raise QueryError("there is no condition", hint=_EMPTY_HINT)
    names = readable_names(snapshot.metadata)
    expression = _read(text, names)
    if expression.tree.get("function_name") == "row" and not expression.aggregates:
        expression = _read(f"count(*) = count(DISTINCT {expression.text})", names)
    by_row = not expression.aggregates
    if by_row and not expression.columns:
        raise QueryError("the condition names no column, so it is the same at every version", hint=_EMPTY_HINT)
    aggregates = () if by_row or "" in expression.aggregates else expression.aggregates[:_MOST_AGGREGATES]
    sql = _statement(expression.text, aggregates, by_row=by_row)
    rule = expression.text if by_row else _row_rule(expression.tree, expression.text)
    return VersionCondition(expression.text, by_row, expression.columns, aggregates, sql, _unique(expression), rule)


def _unique(expression: Expression) -> str:
    """What a condition `count(*) = count(DISTINCT …)` counts; empty for any other."""
    tree, (left, right) = expression.tree, (expression.tree.get(side) or {} for side in ("left", "right"))
    counts = (left.get("function_name"), right.get("function_name")) == ("count_star", "count")
    is_plain = counts and right.get("distinct") and not left.get("filter") and not right.get("filter")
    match = _KEY.search(expression.text) if is_plain and tree.get("type") == "COMPARE_EQUAL" else None
    return match["key"] if match else ""


def _row_rule(tree: Mapping[str, Any], text: str) -> str:
    """What an aggregate says of each row: `amount <= 4900` for `max(amount) <= 4900`; empty where it says nothing."""
    kind, whole = tree["type"], source_of(tree, text)
    if kind == "CONJUNCTION_AND":
        parts = [_row_rule(part, text) for part in tree["children"]]
        return " AND ".join(f"({part})" for part in parts) if all(parts) else ""
    aggregate, limit = tree.get("left") or {}, tree.get("right") or {}
    if limit.get("function_name") in AGGREGATES:
        aggregate, limit, kind = limit, aggregate, _FLIPPED.get(kind, kind)
    name, written = aggregate.get("function_name"), source_of(aggregate, text)
    varies = any(each["class"] == "COLUMN_REF" or each.get("function_name") in AGGREGATES for each in nodes(limit))
    if varies or name not in AGGREGATES or len(aggregate["arguments"]) > 1 or aggregate["distinct"]:
        return ""
    if name == "count_star" and (kind, source_of(limit, text)) in _NONE and (match := _FILTER.search(written)):
        return f"NOT ({match['condition'].strip()})"
    inner = written[written.find("(") + 1 : -1].strip()
    if aggregate["filter"]:
        return ""
    if kind in _BOUNDED.get(name, ()) and whole.count(written) == 1:
        return whole.replace(written, inner if _WORD.fullmatch(inner) else f"({inner})")
    return f"NOT ({inner})" if name in ("count_if", "countif") and (kind, source_of(limit, text)) in _NONE else ""


def _statement(text: str, aggregates: tuple[str, ...], *, by_row: bool) -> str:
    """A query that gives one struct."""
    # The text begins the second line, where the engine's caret points; its own parentheses keep an OR in it together.
    wrapped = f"((\n{text}\n))"
    kind = f"kind := (SELECT column_type FROM (DESCRIBE SELECT {wrapped} FROM rows))"
    if by_row:
        counts = (
            f"violations := count(*) FILTER (WHERE NOT {wrapped}), nulls := count(*) FILTER (WHERE {wrapped} IS NULL)"
        )
        return f"SELECT struct_pack({counts}, total := count(*), {kind}) AS value FROM rows"
    values = "".join(f", p{number} := (\n{aggregate}\n)" for number, aggregate in enumerate(aggregates))
    return f"SELECT struct_pack(holds := {wrapped}, {kind}{values}) AS value FROM rows"


def by_file_statement(condition: VersionCondition, number: str) -> str:
    """The same for a condition on rows, file by file; the column `number` says which."""
    wrapped = f"((\n{condition.text}\n))"
    counts = (
        f"violations := count(*) FILTER (WHERE NOT {wrapped}), nulls := count(*) FILTER (WHERE {wrapped} IS NULL), "
        f"total := count(*), file := {quoted_name(number)}"
    )
    return (
        f"WITH judged AS (SELECT struct_pack({counts}) AS each_file FROM rows GROUP BY {quoted_name(number)}) "
        f"SELECT struct_pack(files := (SELECT list(each_file) FROM judged), "
        f"kind := (SELECT column_type FROM (DESCRIBE SELECT {wrapped} FROM rows))) AS value"
    )


def example_statement(condition: VersionCondition, columns: Sequence[str], most: int) -> str:
    """A list of rows that break the rule on rows, or that have what has to be unique in common."""
    packed = ", ".join(f"{quoted_name(name)} := {quoted_name(name)}" for name in columns)
    broken = f"WHERE NOT ((\n{condition.row_rule}\n))"
    if condition.unique:
        broken = f"QUALIFY count(*) OVER (PARTITION BY {condition.unique}) > 1 ORDER BY {condition.unique}"
    return f"SELECT list(r) AS value FROM (SELECT struct_pack({packed}) AS r FROM rows {broken} LIMIT {most})"


def read_verdict(condition: VersionCondition, result: dict[str, Any]) -> VersionVerdict:
    """The verdict that the value of the condition's statement tells."""
    require_truth(result["kind"])
    if condition.by_row:
        violations = int(result["violations"])
        return VersionVerdict(violations == 0, None, violations, int(result["nulls"]), int(result["total"]))
    aggregates = tuple((aggregate, result[f"p{number}"]) for number, aggregate in enumerate(condition.aggregates))
    return VersionVerdict(result["holds"] is not False, result["holds"], aggregates=aggregates)


def verdict_text(verdict: VersionVerdict) -> str:
    """ "3 of 10 rows violate it", "min(amount) is -4.0"."""
    if verdict.violations is not None:
        does = "violates" if verdict.violations == 1 else "violate"
        rows = verdict.rows or 0
        counts = f"{verdict.violations:,} of {rows:,} {'row' if rows == 1 else 'rows'} {does} it"
        passing = "gives null and passes" if verdict.nulls == 1 else "give null and pass"
        return f"{counts}, {verdict.nulls:,} {passing}" if verdict.nulls else counts
    parts = [f"{text} is {'null' if value is None else _short(value)}" for text, value in verdict.aggregates]
    if verdict.value is None:
        parts.append("it gives null, which passes")
    return ", ".join(parts) or f"it is {str(verdict.value).lower()}"


def _short(value: object) -> str:
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    return cut(f"{value:,}" if is_number else str(value), _MOST_VALUE)
