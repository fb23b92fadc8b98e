"""A condition that a good version satisfies: checked, judged at a version, and rows that break it.

Rule: the stranger's SQL passes `read_expression` before it runs; only the columns that it names are read, and none
where the log's row counts answer. A null is no violation, as in SQL's CHECK. A condition on rows is counted file by
file, as a file never changes: over 10,000 files a search takes an eighth of what a scan of every version takes.
"""

import itertools
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from backend.caches import Lru
from backend.errors import QueryError
from backend.format import cut
from backend.lake.model import FILE_COLUMNS, Snapshot
from backend.lake.storage.folder import is_remote
from backend.lake.table.restricted import require_shown
from backend.lake.table.schema import NESTED, column_names, columns, readable_names
from backend.sql.expression import AGGREGATES, Expression, nodes, read_expression, require_truth, source_of
from backend.sql.numbers import FILES_AT_ONCE, Numbers, Reading, ValueSource, narrowest
from backend.sql.values import quoted_name

EXAMPLES = 5
EXAMPLE_COLUMNS = 8  # so many of the table's, if the condition itself does not name more
MOST_FILES = 1_000_000  # counts that are kept, of all conditions: about 200 bytes each
# Files of an object store are fetched whole: beyond this much, a scan that reads the columns alone is cheaper.
REMOTE_FILES, REMOTE_BYTES = 64, 64 << 20
_MOST_AGGREGATES = 8
_MOST_VALUE = 60  # characters of one value in a sentence
_BATCH = 1 << 20
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


@dataclass(frozen=True, slots=True)
class VersionVerdict:
    """What a condition comes to at one version. A null counts as satisfied, as in SQL's CHECK.

    Of a condition on rows: how many rows violate it, how many give null, how many there are. Of one on the whole
    version: its value, and the value of each aggregate in it.
    """

    holds: bool
    value: bool | None = None
    violations: int | None = None
    nulls: int | None = None
    rows: int | None = None
    aggregates: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Examples:
    """Up to a few rows that break the condition, of chosen columns."""

    columns: tuple[str, ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()


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
    position it is about, and `RowsRefusedError`."""
    if not text.strip():
        raise QueryError("there is no condition", hint=_EMPTY_HINT)
    names = readable_names(snapshot.metadata)
    expression = read_expression(text, names)
    if expression.tree.get("function_name") == "row" and not expression.aggregates:
        expression = read_expression(f"count(*) = count(DISTINCT {expression.text})", names)
    if expression.columns:  # how many rows there are is open
        require_shown(snapshot.hidden, snapshot.metadata, expression.columns)
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


# at a version --------------------------------------------------------------------------------------------------------

_COUNTS = pa.schema([("key", pa.string()), *((name, pa.int64()) for name in ("violations", "nulls", "total"))])


class Judge:
    """Verdicts on conditions at versions, each computed once, and the first few rows that break one. Thread-safe."""

    def __init__(self, most_fetched: int = REMOTE_FILES) -> None:
        self._most_fetched, self._lock = most_fetched, threading.Lock()
        self._counts: Lru[bytes, pa.Table] = Lru(MOST_FILES, len)  # of files, by what they were asked
        self.verdicts: Numbers[VersionVerdict] = Numbers(self._verdict)
        self.examples: Numbers[Examples] = Numbers(self._examples)

    def _verdict(self, reading: Reading, snapshot: Snapshot, text: str) -> VersionVerdict:
        condition = check_condition(text, snapshot)
        reading.files = snapshot.num_files
        counts = self._count_files(reading, condition, snapshot) if condition.by_row else None
        if counts is not None:
            violations, nulls, rows = (pc.sum(counts[name]).as_py() or 0 for name in _COUNTS.names[1:])
            return VersionVerdict(violations == 0, None, violations, nulls, rows)
        try:
            result = reading.run(condition.sql, _rows(reading, condition, snapshot))
        except QueryError as exc:
            if "GROUP BY" not in exc.message:
                raise
            raise QueryError(
                "the condition mixes an aggregate with the column of a single row",
                hint="make both aggregates, such as min(amount) >= 0 AND count(*) > 0",
            ) from exc
        require_truth(result["kind"])
        if condition.by_row:
            violations = int(result["violations"])
            return VersionVerdict(violations == 0, None, violations, int(result["nulls"]), int(result["total"]))
        aggregates = tuple((aggregate, result[f"p{number}"]) for number, aggregate in enumerate(condition.aggregates))
        return VersionVerdict(result["holds"] is not False, result["holds"], aggregates=aggregates)

    def _count_files(self, reading: Reading, condition: VersionCondition, snapshot: Snapshot) -> pa.Table | None:
        """`_COUNTS` of the version's files, those that nobody counted read now; None where a scan costs less than to
        fetch them."""
        question, files, keys = _question(condition, snapshot), snapshot.columns(FILE_COLUMNS), _file_keys(snapshot)
        known = self._counts.get(question) or _COUNTS.empty_table()
        is_new = pc.invert(pc.is_in(keys, known["key"]))
        new, new_keys = files.filter(is_new), keys.filter(is_new)
        is_much = len(new) > self._most_fetched or (pc.sum(new["size_bytes"]).as_py() or 0) > REMOTE_BYTES
        if is_much and is_remote(snapshot.ref.uri):
            return None
        # of a version without files nothing is asked once: whether the condition can be computed at all
        for start in range(0, len(new), FILES_AT_ONCE) if len(files) else (0,):
            reading.check()
            counts = _counted(reading, condition, snapshot, new.slice(start, FILES_AT_ONCE))
            counted = pa.table({"key": new_keys.slice(start, FILES_AT_ONCE), **counts}, schema=_COUNTS)
            known = pa.concat_tables([known, counted])
            with self._lock:
                kept = self._counts.get(question) or _COUNTS.empty_table()
                others = counted.filter(pc.invert(pc.is_in(counted["key"], kept["key"])))
                self._counts.put(question, pa.concat_tables([kept, others]))
        return known.filter(pc.is_in(known["key"], keys))

    def _examples(self, reading: Reading, snapshot: Snapshot, text: str) -> Examples:
        """Rows that break a condition by themselves, or that have what has to be unique in common; from files that are
        known to hold some."""
        condition = check_condition(text, snapshot)
        names = _shown_columns(condition, snapshot)
        packed = ", ".join(f"{quoted_name(name)} := {quoted_name(name)}" for name in names)
        broken = f"WHERE NOT ((\n{condition.row_rule}\n))"
        if condition.unique:
            broken = f"QUALIFY count(*) OVER (PARTITION BY {condition.unique}) > 1 ORDER BY {condition.unique}"
        sql = f"SELECT list(r) AS value FROM (SELECT struct_pack({packed}) AS r FROM rows {broken} LIMIT {EXAMPLES})"
        known = self._counts.get(_question(condition, snapshot)) or _COUNTS.empty_table()
        holding = known.filter(pc.greater(known["violations"], 0))["key"]
        files = snapshot.columns(FILE_COLUMNS).filter(pc.is_in(_file_keys(snapshot), holding))[:EXAMPLES]
        rows = reading.lake.read_files(snapshot, files if len(files) else None, columns=names)
        return Examples(names, tuple(reading.run(sql, rows) or ()))


def _rows(reading: Reading, condition: VersionCondition, snapshot: Snapshot) -> pa.RecordBatchReader:
    """The rows, or as many empty ones as the log counts where no column is needed."""
    num_rows = None if condition.columns else snapshot.num_rows
    if num_rows is None:
        reading.files_read = snapshot.num_files
        return reading.lake.read_files(snapshot, columns=condition.columns or narrowest(snapshot))
    reading.source = ValueSource.LOG
    schema = pa.schema([("nothing", pa.null())])
    sizes = (min(_BATCH, num_rows - start) for start in range(0, num_rows, _BATCH))
    return pa.RecordBatchReader.from_batches(
        schema, (pa.record_batch([pa.nulls(size)], schema=schema) for size in sizes)
    )


def _counted(
    reading: Reading, condition: VersionCondition, snapshot: Snapshot, files: pa.Table
) -> dict[str, list[int]]:
    """The columns of `_COUNTS` beside the key, for each of the files."""
    taken = {name.lower() for name in column_names(snapshot.metadata)}
    number = next(name for name in (f"file{n}" for n in itertools.count()) if name not in taken)
    wrapped = f"((\n{condition.text}\n))"
    counts = (
        f"file := {number}, violations := count(*) FILTER (WHERE NOT {wrapped}), "
        f"nulls := count(*) FILTER (WHERE {wrapped} IS NULL), total := count(*)"
    )
    sql = (
        f"WITH judged AS (SELECT struct_pack({counts}) AS each_file FROM rows GROUP BY {number}) "
        f"SELECT struct_pack(files := (SELECT list(each_file) FROM judged), "
        f"kind := (SELECT column_type FROM (DESCRIBE SELECT {wrapped} FROM rows))) AS value"
    )
    rows = reading.lake.read_files(snapshot, files, columns=[*condition.columns, number], numbered=number)
    result = reading.run(sql, rows)
    require_truth(result["kind"])
    reading.files_read += len(files)
    by_file = {row["file"]: row for row in result["files"] or ()}  # without those that hold no row
    return {name: [by_file[n][name] if n in by_file else 0 for n in range(len(files))] for name in _COUNTS.names[1:]}


def _question(condition: VersionCondition, snapshot: Snapshot) -> bytes:
    """What a file is asked. A file never changes, but a column may be defined anew: then its files are asked again."""
    metadata, columns = snapshot.metadata, condition.columns
    defined = [column for column in orjson.loads(metadata.schema_json)["fields"] if column["name"] in columns]
    mapping = metadata.configuration.get("delta.columnMapping.mode", "none").lower()
    partitions = [name for name in metadata.partition_columns if name in columns]
    return orjson.dumps([snapshot.ref.uri, metadata.id, condition.text, defined, mapping, partitions])


def _file_keys(snapshot: Snapshot) -> pa.ChunkedArray:
    """A text for each file: path, deletion vector and partition."""
    texts = [pc.fill_null(column, "") for column in snapshot.columns(("path", "dv_id", "partition")).columns]
    return pc.binary_join_element_wise(*texts, "\x00")


def _shown_columns(condition: VersionCondition, snapshot: Snapshot) -> tuple[str, ...]:
    """The table's first plain columns, which name a row to people, and those of the condition."""
    flat = [f.path for f in columns(snapshot.metadata) if f.depth == 0 and not f.type.startswith((*NESTED, "binary"))]
    wanted = [*condition.columns, *(name for name in flat if name not in condition.columns)]
    wanted = wanted[: max(EXAMPLE_COLUMNS, len(condition.columns))]
    return tuple(name for name in readable_names(snapshot.metadata) if name in wanted)


def verdict_text(verdict: VersionVerdict) -> str:
    """ "3 of 10 rows violate it", "min(amount) is -4.0"."""
    if verdict.violations is not None:
        does = "violates" if verdict.violations == 1 else "violate"
        rows = verdict.rows or 0
        counts = f"{verdict.violations:,} of {rows:,} {'row' if rows == 1 else 'rows'} {does} it"
        passing = "gives null and passes" if verdict.nulls == 1 else "give null and pass"
        return f"{counts}, {verdict.nulls:,} {passing}" if verdict.nulls else counts
    parts = []
    for text, value in verdict.aggregates:
        is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        shown = cut(f"{value:,}" if is_number else str(value), _MOST_VALUE)
        parts.append(f"{text} is {'null' if value is None else shown}")
    if verdict.value is None:
        parts.append("it gives null, which passes")
    return ", ".join(parts) or f"it is {str(verdict.value).lower()}"
