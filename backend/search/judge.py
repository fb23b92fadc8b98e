"""One version judged by a condition, and rows of it that break one: tasks of `over_versions`.

Rule: only the columns that the condition names are read, and none where the log's row counts answer; a condition on
rows opens only the files that nobody judged yet.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from backend.errors import DataFileMissingError, LakehouseError, QueryError
from backend.lake.files.file_difference import FileDifference
from backend.lake.model import FILE_COLUMNS, FileReader, Snapshot, TableRef
from backend.lake.table.metadata_diff import column_names
from backend.lake.table.schema import fields
from backend.search.condition import (
    Condition,
    by_file_statement,
    check_condition,
    example_statement,
    read_verdict,
)
from backend.search.files import (
    Counts,
    JudgedFiles,
    Question,
    can_be_fetched,
    file_keys,
    free_name,
    in_batches,
    question_of,
    tabled,
    total,
)
from backend.search.model import Examples, Source, Verdict
from backend.sql.expression import require_truth
from backend.sql.numbers import narrowest, rows_of
from backend.sql.over_versions import ScannedLake, VersionCache, VersionTask
from backend.work import Stopped

EXAMPLES = 5
EXAMPLE_COLUMNS = 8  # so many of the table's, if the condition itself does not name more
_NEIGHBOURS = 2  # judged versions tried as a start
_BATCH = 1 << 20


class JudgedLake(FileReader, ScannedLake, Protocol):
    """The batch of `backend.lake.lake.Lake` that judging needs."""

    def file_difference(self, ref: TableRef, first: int, second: int) -> FileDifference: ...


class Judged:
    """What was judged before: versions, and files by what they were asked. `fetchable` says whether files that nobody
    judged may be read one by one."""

    def __init__(self, fetchable: Callable[[Snapshot, pa.Table], bool] = can_be_fetched) -> None:
        self.fetchable = fetchable
        self.versions = VersionCache()
        self.files = JudgedFiles()


class Judgement(VersionTask[Verdict]):
    """A condition at one version. `neighbours` are versions judged before; `failure` is what it failed with, without
    the frames of the original, which would keep a connection alive."""

    def __init__(
        self,
        lake: JudgedLake,
        ref: TableRef,
        version: int,
        *,
        text: str,
        judged: Judged,
        neighbours: Sequence[int] = (),
    ) -> None:
        super().__init__(lake, ref, version, cache=judged.versions, what=f"condition {text.strip()}")
        self._judged_lake, self._text = lake, text
        self._files = _FileJudge(lake, judged, self)
        self._neighbours = sorted(neighbours, key=lambda other: abs(other - version))[:_NEIGHBOURS]
        self.files: int | None = None
        self.files_read = 0
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
        self.files = snapshot.num_files
        if condition.by_row:
            counts = self._files.of_version(condition, snapshot) or self._beside(condition, snapshot)
            if counts is not None:
                return Verdict(counts.violations == 0, None, *counts)
        return read_verdict(condition, self._compute(condition, snapshot))

    def _beside(self, condition: Condition, snapshot: Snapshot) -> Counts | None:
        """From a version that was judged, less the files that it alone has, and those that it lacks."""
        for known in self._cache.known(snapshot, self._what, self._neighbours):
            base = self._lake.snapshot(self._ref, known.version)
            if not self._files.are_asked_alike(condition, base, snapshot):
                continue
            difference = self._judged_lake.file_difference(self._ref, base.version, snapshot.version)
            try:
                lost = self._files.of_files(condition, base, difference.only_first)
                gained = self._files.of_files(condition, snapshot, difference.only_second) if lost else None
            except DataFileMissingError:  # the scan says which one is missing, if it matters
                continue
            verdict: Verdict = known.value
            if lost and gained:
                start = Counts(verdict.violations or 0, verdict.nulls or 0, verdict.rows or 0)
                return start.plus(lost, -1).plus(gained)
        return None

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
        rows = rows_of(self._judged_lake, snapshot, condition.columns or narrowest(snapshot))
        self.files_read = snapshot.num_files
        return self.counted(rows)

    def counted(self, rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """The same rows; their bytes are added up as they pass."""

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                self.bytes_read += batch.nbytes
                yield batch

        return pa.RecordBatchReader.from_batches(rows.schema, batches())


class _FileJudge:
    """What files give, read where nobody did; the task is told what that cost."""

    def __init__(self, lake: FileReader, judged: Judged, task: Judgement) -> None:
        self._lake, self._judged, self._task = lake, judged.files, task
        self._fetchable = judged.fetchable

    def of_version(self, condition: Condition, snapshot: Snapshot) -> Counts | None:
        """Of all its files; None where a scan of the version costs less than what is not known."""
        return self.of_files(condition, snapshot, snapshot.columns(FILE_COLUMNS))

    def of_files(self, condition: Condition, snapshot: Snapshot, files: pa.Table) -> Counts | None:
        question = question_of(snapshot, condition.text, condition.columns)
        keys = file_keys(snapshot, files, condition.columns)
        unknown, given = self._judged.look_up(question, keys)
        if not self._fetchable(snapshot, files.take(pa.array(unknown))):
            return None
        for batch in in_batches(unknown) if len(unknown) or not snapshot.num_files else ():
            if self._task.computation.is_stopped:
                raise Stopped
            given[batch] = tabled(self._ask(condition, snapshot, files.take(pa.array(batch))), len(batch))
            self._judged.put(question, keys.take(pa.array(batch)), given[batch])
            self._task.files_read += len(batch)
        return total(given)

    def are_asked_alike(self, condition: Condition, *snapshots: Snapshot) -> bool:
        """Whether a file gives the same in these versions."""
        asked: set[Question] = {question_of(each, condition.text, condition.columns) for each in snapshots}
        return len(asked) == 1

    def _ask(self, condition: Condition, snapshot: Snapshot, files: pa.Table) -> list[dict[str, int]]:
        number = free_name(snapshot)
        rows = self._lake.read_files(snapshot, files, columns=[*condition.columns, number], numbered=number)
        found = self._task.computation.run(by_file_statement(condition, number), self._task.counted(rows))
        require_truth(found["kind"])
        return found["files"] or []


def _empty_rows(count: int) -> pa.RecordBatchReader:
    schema = pa.schema([("nothing", pa.null())])
    sizes = (min(_BATCH, count - start) for start in range(0, count, _BATCH))
    return pa.RecordBatchReader.from_batches(
        schema, (pa.record_batch([pa.nulls(size)], schema=schema) for size in sizes)
    )


class ExampleRows(VersionTask[Examples]):
    """The first few rows of a version that break a condition, read from files that are known to have some."""

    def __init__(self, lake: JudgedLake, ref: TableRef, version: int, *, text: str, judged: Judged) -> None:
        super().__init__(lake, ref, version, cache=judged.versions, what=f"examples {text.strip()}")
        self._judged_lake, self._judged, self._text = lake, judged.files, text

    def compute(self, snapshot: Snapshot) -> Examples:
        condition = check_condition(self._text, snapshot)
        names = _shown_columns(condition, snapshot)
        rows = self.computation.run(
            example_statement(condition, names, EXAMPLES), self._broken(condition, snapshot, names)
        )
        return Examples(names, tuple(rows or ()))

    def _broken(self, condition: Condition, snapshot: Snapshot, names: Sequence[str]) -> pa.RecordBatchReader:
        question = question_of(snapshot, condition.text, condition.columns)
        files = snapshot.columns(FILE_COLUMNS)
        _, given = self._judged.look_up(question, file_keys(snapshot, files, condition.columns))
        broken = np.flatnonzero(given[:, 0])
        if not len(broken):  # the version was scanned as a whole, or what its files gave is forgotten
            return rows_of(self._judged_lake, snapshot, names)
        enough = int(np.searchsorted(np.cumsum(given[broken, 0]), EXAMPLES)) + 1
        return self._judged_lake.read_files(snapshot, files.take(pa.array(broken[:enough])), columns=names)


def _shown_columns(condition: Condition, snapshot: Snapshot) -> tuple[str, ...]:
    """The table's first plain columns, which name a row to people, and those of the condition."""
    nested = ("struct", "array", "map", "binary", "variant")
    flat = [f.path for f in fields(snapshot.metadata) if f.depth == 0 and not f.type.startswith(nested)]
    wanted = [*condition.columns, *(name for name in flat if name not in condition.columns)]
    wanted = wanted[: max(EXAMPLE_COLUMNS, len(condition.columns))]
    return tuple(name for name in column_names(snapshot.metadata) if name in wanted)
