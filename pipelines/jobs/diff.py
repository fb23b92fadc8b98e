"""A diff as a Spark job: the methods are tried in order, the answer is written as one small Delta table.

Rule: the table holds counts and the asked number of rows, never the tables compared. Each of its versions is an answer:
the last one of all rows, those before it of what had been compared by then.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType
from pyspark.storagelevel import StorageLevel

from backend.changes.changed_rows import COMMON_COLUMNS, RowBucket
from backend.changes.commits import Gross, why_not_whole
from backend.changes.host_job import SUMMARY, DiffSummary, SoFar, host_methods, to_json
from backend.changes.model import ROW_ID, DiffMethod, KeySource
from backend.changes.plan import METHOD_NAMES
from backend.changes.prepare import PreparedDiff
from backend.errors import DiffError, JobError
from pipelines.jobs.condition import satisfies, why_failed
from pipelines.jobs.net import NetRows, common_lines, count, first_lines, net_rows
from pipelines.jobs.results import tune, write_result
from pipelines.jobs.signed_rows import (
    FEEDS,
    ID,
    GrossRows,
    check_types,
    fields_of,
    gross_counts,
    holds_map,
    signed_rows,
)
from pipelines.jvm.delta import make_active
from pipelines.jvm.failures import describe

_SPREAD_COLUMNS = 4  # of rows without a key: enough to make parts of about one size


@dataclass(frozen=True, slots=True)
class SparkLimits:
    """From `compiled_bytes` of files on, compiling plans pays for itself. Rows are compared in parts of about
    `part_bytes`, so that an ended job tells something: at most `most_parts`, since each reads every file once more."""

    compiled_bytes: int = 4 * 1024**2
    part_bytes: int = 64 * 1024**2
    most_parts: int = 4


@dataclass(frozen=True, slots=True)
class DiffTask:
    """One comparison and where its result goes. `by` says who computes it."""

    prepared: PreparedDiff
    result_uri: str
    by: str
    limits: SparkLimits = field(default_factory=SparkLimits)


def run_diff(session: SparkSession, task: DiffTask, tell: Callable[[str], None], wrote: Callable[[], None]) -> None:
    """Compute and write. `tell` gets what goes on now, and raises when the job is to end; `wrote`: the result can be
    read, whole or of what was compared so far.

    Raises `DiffError` or `JobError` with the reason of each method that could not.
    """
    make_active(session)
    tune(session, task.prepared.input.size_bytes, task.limits.compiled_bytes)
    failed: dict[DiffMethod, str] = {}
    methods, where = host_methods(task.prepared), task.prepared.question.where
    for method in methods:
        try:
            columns, key = _columns_and_key(task.prepared, method)
            _Comparison(session, task, method, failed, tell, columns, key).run(wrote)
            return
        except (PySparkException, Py4JJavaError, DiffError) as exc:
            tell(f"not by {METHOD_NAMES[method]}")  # raises when it was the cancelling that broke it
            if where is not None and (failure := why_failed(exc)) is not None:
                raise failure from exc
            if len(methods) == 1:
                raise
            failed[method] = exc.message if isinstance(exc, DiffError) else describe(exc)[1]
    why = "; ".join(f"not by {METHOD_NAMES[method]}: {reason}" for method, reason in failed.items())
    raise JobError(why, hint="files that were vacuumed cannot be compared any more")


@dataclass(frozen=True, slots=True)
class _Part:
    """Signed rows that share no key with another part's, and how many they are (0 where that was not counted)."""

    rows: DataFrame
    num_rows: int = 0


@dataclass(slots=True)
class _Comparison:
    """One method's answer, part by part where rows are many. `columns` are those of its rows, the row tracking's ids
    among them where they are the `key`."""

    session: SparkSession
    task: DiffTask
    method: DiffMethod
    failed: dict[DiffMethod, str]
    tell: Callable[[str], None]
    columns: tuple[str, ...]
    key: tuple[str, ...]
    gross: GrossRows | None = None

    def run(self, wrote: Callable[[], None]) -> None:
        parts = self._parts(self._signed_rows())
        compared: list[NetRows] = []
        try:
            for number, part in enumerate(parts, 1):
                self.tell(f"comparing rows, part {number} of {len(parts)}" if parts[1:] else "comparing rows")
                compared.append(self._net_rows(part.rows))
                rows = replace(compared[0], lines=reduce(DataFrame.unionAll, (net.lines for net in compared)))
                buckets, cells = count(rows)  # does the work; the others read what is kept of it
                if number < len(parts):
                    read, total = (sum(part.num_rows for part in some) for some in (parts[:number], parts))
                    self._write(rows, buckets, cells, SoFar(read, total))
                    wrote()
            self.tell("writing the result")
            self._write(rows, buckets, cells)
        finally:
            for net in compared:
                net.lines.unpersist()

    def _signed_rows(self) -> DataFrame:
        prepared, method = self.task.prepared, self.method
        self.tell(f"reading for {METHOD_NAMES[method]}")
        signed = signed_rows(self.session, prepared, method)
        if self.columns != prepared.columns:
            signed = signed.withColumn(f"c{len(prepared.columns)}", F.col(ID))
        check_types(signed, self.columns)
        if method in FEEDS:
            self.tell("counting what each commit did")
            self.gross = gross_counts(signed)
            _require_complete(prepared, method, Gross.of_rows(self.gross))
        if any(holds_map(column.dataType) for column in fields_of(signed)):
            # The code that Spark 4.2 generates to group by maps takes a null number in one for 0 (tried).
            self.session.conf.set("spark.sql.codegen.wholeStage", "false")
            self.session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        return signed

    def _parts(self, signed: DataFrame) -> list[_Part]:
        limits = self.task.limits
        count = min(limits.most_parts, self.task.prepared.input.size_bytes // limits.part_bytes)
        spread = self._spread_columns(signed)
        if count < 2 or not spread:
            return [_Part(signed)]
        self.tell("counting rows")
        number = F.pmod(F.xxhash64(*spread), F.lit(count)).alias("part")
        sizes = {row["part"]: row["count"] for row in signed.groupBy(number).count().collect()}
        return [_Part(signed.filter(number == part), sizes.get(part, 0)) for part in range(count)]

    def _spread_columns(self, signed: DataFrame) -> list[str]:
        """Columns that say which part a row belongs to: rows of one key to one part, and so equal rows."""
        if self.key:
            return [f"c{self.columns.index(name)}" for name in self.key]
        if self.method in FEEDS:  # without a key its updates are known in the end
            return []
        return [column.name for column in fields_of(signed) if not holds_map(column.dataType)][:_SPREAD_COLUMNS]

    def _net_rows(self, signed: DataFrame) -> NetRows:
        question, columns = self.task.prepared.question, self.task.prepared.columns
        matched = None if question.where is None else satisfies(question.where, columns, signed.schema)
        rows = net_rows(signed, [self.columns.index(name) for name in self.key], question.tolerance, matched)
        rows.lines.persist(StorageLevel.MEMORY_AND_DISK)
        return rows

    def _write(
        self, rows: NetRows, buckets: Mapping[str, RowBucket], cells: Mapping[int, int], so_far: SoFar | None = None
    ) -> None:
        """Another version of the result."""
        updates = {self.columns[number]: count for number, count in cells.items()}
        named = (self.method, self.columns, self.key)
        summary = DiffSummary(*named, buckets, updates, self.failed, self.gross, self.task.by, so_far)
        row = StructType([StructField(column.name, column.dataType) for column in rows.fields])
        schema = StructType(
            [
                StructField("what", StringType()), StructField("number", LongType()), StructField("n", LongType()),
                StructField("detail", StringType()), StructField("before", row), StructField("after", row),
            ]
        )  # fmt: skip
        lines = self.session.createDataFrame([(SUMMARY, 0, 0, to_json(summary), None, None)], schema)
        for more in first_lines(rows, buckets, self.task.prepared.question.row_limit):
            lines = lines.unionByName(more)
        for number in list(cells)[:COMMON_COLUMNS]:
            lines = lines.unionByName(common_lines(rows, number))
        write_result(self.session, lines, self.task.result_uri)


def _columns_and_key(prepared: PreparedDiff, method: DiffMethod) -> tuple[tuple[str, ...], tuple[str, ...]]:
    columns, key = prepared.columns, prepared.plan.key
    is_key_given = key is not None and key.source is KeySource.GIVEN
    if method is DiffMethod.ROW_ID or (method is DiffMethod.SPARK_CHANGES and not is_key_given):
        return (*columns, ROW_ID), (ROW_ID,)
    return columns, () if key is None or method is DiffMethod.MULTISET else key.columns


def _require_complete(prepared: PreparedDiff, method: DiffMethod, gross: Gross) -> None:
    """Raise `DiffError` for a feed that leaves rows out; one that was asked for by name is told with its gaps."""
    if prepared.question.method is not None and method is DiffMethod.CHANGE_FEED:
        return
    commits, given = (change.commit for change in prepared.commits), prepared.input
    if why := why_not_whole(commits, gross, given.row_counts(), is_reverse=given.is_reverse):
        raise DiffError(why)
