"""A condition that a good version satisfies, checked and computed at one version.

Rule: the stranger's SQL passes `read_expression` before it runs; only the columns that it names are read, and none
where the log's row counts answer. A null is no violation, as in SQL's CHECK.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from backend.diff.bisect_model import Examples, Source, Verdict
from backend.errors import LakehouseError, QueryError
from backend.lake.metadata_diff import column_names
from backend.lake.model import Snapshot, TableRef
from backend.lake.schema import fields
from backend.query.aggregate import narrowest
from backend.query.expression import read_expression
from backend.query.version_task import Kept, ScannedLake, VersionTask

EXAMPLES = 5
EXAMPLE_COLUMNS = 8  # so many of the table's, if the condition itself does not name more
_MOST_PARTS = 8
_BATCH = 1 << 20
_EMPTY_HINT = "such as amount >= 0, or count(*) = count(DISTINCT id)"


_read = lru_cache(maxsize=256)(read_expression)  # each probe of a search asks for the same


@dataclass(frozen=True, slots=True)
class Condition:
    """A checked condition. `by_row`: every row has to satisfy it; else it is about the version as a whole.

    `parts` are its aggregates as written.
    """

    text: str
    by_row: bool
    columns: tuple[str, ...]
    parts: tuple[str, ...]
    sql: str


def check_condition(text: str, snapshot: Snapshot) -> Condition:
    """A condition against the columns of a version; raises `QueryError` with the place it is about."""
    if not text.strip():
        raise QueryError("there is no condition", hint=_EMPTY_HINT)
    found = _read(text, column_names(snapshot.metadata))
    by_row = not found.aggregates
    if by_row and not found.columns:
        raise QueryError("the condition names no column, so it is the same at every version", hint=_EMPTY_HINT)
    parts = () if by_row or "" in found.aggregates else found.aggregates[:_MOST_PARTS]
    return Condition(found.text, by_row, found.columns, parts, _statement(found.text, parts, by_row=by_row))


def _statement(text: str, parts: tuple[str, ...], *, by_row: bool) -> str:
    """One struct. The text begins the second line, where the engine finds the place of a mistake; its own
    parentheses keep an OR in it together."""
    wrapped = f"((\n{text}\n))"
    kind = f"kind := (SELECT column_type FROM (DESCRIBE SELECT {wrapped} FROM rows))"
    if by_row:
        counts = (
            f"violations := count(*) FILTER (WHERE NOT {wrapped}), nulls := count(*) FILTER (WHERE {wrapped} IS NULL)"
        )
        return f"SELECT struct_pack({counts}, total := count(*), {kind}) AS value FROM rows"
    values = "".join(f", p{number} := (\n{part}\n)" for number, part in enumerate(parts))
    return f"SELECT struct_pack(holds := {wrapped}, {kind}{values}) AS value FROM rows"


class Judgement(VersionTask[Verdict]):
    """A condition at one version: a task of `over_versions`. `failure` is what it failed with, without the frames
    of the original, which would keep a connection alive."""

    def __init__(self, kept: Kept, lake: ScannedLake, ref: TableRef, version: int, text: str) -> None:
        super().__init__(lake, ref, version, kept=kept, what=f"condition {text.strip()}")
        self._rows_of, self._text = lake.scan, text
        self.bytes_read = 0
        self.source = Source.ROWS
        self.failure: LakehouseError | None = None

    @property
    def rows_read(self) -> int:
        return 0 if self.source is Source.LOG else super().rows_read

    def run(self) -> Verdict:
        try:
            return super().run()
        except QueryError as exc:
            self.failure = QueryError(exc.message, hint=exc.hint, position=exc.position)
            raise
        except LakehouseError as exc:
            self.failure = LakehouseError(exc.message, hint=exc.hint)
            raise

    def recall(self, value: Verdict) -> Verdict:
        self.source = Source.KEPT
        return value

    def compute(self, snapshot: Snapshot) -> Verdict:
        condition = check_condition(self._text, snapshot)
        return _verdict(condition, self._compute(condition, snapshot))

    def _compute(self, condition: Condition, snapshot: Snapshot) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self.computation.run(condition.sql, self._rows(condition, snapshot))
        except QueryError as exc:
            if "GROUP BY" not in exc.message:
                raise
            raise QueryError(
                "the condition mixes an aggregate with the column of a single row",
                hint="make both aggregates, such as min(amount) >= 0 AND count(*) > 0",
            ) from exc
        return found

    def _rows(self, condition: Condition, snapshot: Snapshot) -> pa.RecordBatchReader:
        """The rows, or as many empty ones as the log counts where no column is needed."""
        num_rows = None if condition.columns else snapshot.num_rows
        if num_rows is not None:
            self.source = Source.LOG
            return _empty_rows(num_rows)
        rows = self._rows_of(snapshot, condition.columns or narrowest(snapshot))
        return pa.RecordBatchReader.from_batches(rows.schema, self._counted(rows))

    def _counted(self, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            self.bytes_read += batch.nbytes
            yield batch


def _empty_rows(count: int) -> pa.RecordBatchReader:
    schema = pa.schema([("nothing", pa.null())])
    sizes = (min(_BATCH, count - start) for start in range(0, count, _BATCH))
    return pa.RecordBatchReader.from_batches(
        schema, (pa.record_batch([pa.nulls(size)], schema=schema) for size in sizes)
    )


def _verdict(condition: Condition, found: dict[str, Any]) -> Verdict:
    if found["kind"] not in ("BOOLEAN", '"NULL"'):
        raise QueryError(
            f"the condition gives {found['kind']}, not true or false", hint="compare it, such as sum(amount) >= 0"
        )
    if condition.by_row:
        broken = int(found["violations"])
        return Verdict(broken == 0, None, broken, int(found["nulls"]), int(found["total"]))
    parts = tuple((part, found[f"p{number}"]) for number, part in enumerate(condition.parts))
    return Verdict(found["holds"] is not False, found["holds"], parts=parts)


class ExampleRows(VersionTask[Examples]):
    """The first few rows of a version that break a condition on rows: a task of `over_versions`."""

    def __init__(self, kept: Kept, lake: ScannedLake, ref: TableRef, version: int, text: str) -> None:
        super().__init__(lake, ref, version, kept=kept, what=f"examples {text.strip()}")
        self._rows_of, self._text = lake.scan, text

    def compute(self, snapshot: Snapshot) -> Examples:
        condition = check_condition(self._text, snapshot)
        names = _shown_columns(condition, snapshot)
        packed = ", ".join(f"{_quoted(name)} := {_quoted(name)}" for name in names)
        sql = (
            f"SELECT list(r) AS value FROM (SELECT struct_pack({packed}) AS r FROM rows "
            f"WHERE NOT ((\n{condition.text}\n)) LIMIT {EXAMPLES})"
        )
        rows = self.computation.run(sql, self._rows_of(snapshot, names))
        return Examples(names, tuple(rows or ()))


def _shown_columns(condition: Condition, snapshot: Snapshot) -> tuple[str, ...]:
    """The table's first plain columns, which name a row to people, and those of the condition."""
    nested = ("struct", "array", "map", "binary", "variant")
    flat = [f.path for f in fields(snapshot.metadata) if f.depth == 0 and not f.type.startswith(nested)]
    wanted = [*condition.columns, *(name for name in flat if name not in condition.columns)]
    wanted = wanted[: max(EXAMPLE_COLUMNS, len(condition.columns))]
    return tuple(name for name in column_names(snapshot.metadata) if name in wanted)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
