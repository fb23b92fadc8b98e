"""A diff as a Spark job: the methods are tried in order, the answer is written as one small Delta table.

Rule: Spark joins and counts. Which rows differ is handed on, all of them up to `MOST_VALUES`, else the first ones that
were asked for: who reads the result explains them. The tables compared are never in it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType
from pyspark.storagelevel import StorageLevel

from backend.changes.changed_rows import COMMON_COLUMNS
from backend.changes.commits import Gross, why_not_whole
from backend.changes.host_job import MOST_VALUES, SUMMARY, DiffSummary, host_methods
from backend.changes.model import ROW_ID, DiffMethod, KeySource
from backend.changes.plan import METHOD_NAMES, PreparedDiff
from backend.errors import DiffError, JobError
from pipelines.jobs.condition import satisfies, why_failed
from pipelines.jobs.net import common_lines, count, kept_lines, net_rows
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


@dataclass(frozen=True, slots=True)
class SparkLimits:
    """From `compiled_bytes` of files on, compiling plans pays for itself. A result holds all changed rows up to
    `most_values` values."""

    compiled_bytes: int = 4 * 1024**2
    most_values: int = MOST_VALUES


@dataclass(frozen=True, slots=True)
class DiffTask:
    """One comparison and where its result goes. `by` says who computes it."""

    prepared: PreparedDiff
    result_uri: str
    by: str
    limits: SparkLimits = field(default_factory=SparkLimits)


def run_diff(session: SparkSession, task: DiffTask, tell: Callable[[str], None]) -> None:
    """Compute and write. `tell` gets what goes on now, and raises when the job is to end.

    Raises `DiffError` or `JobError` with the reason of each method that could not.
    """
    make_active(session)
    tune(session, task.prepared.input.size_bytes, task.limits.compiled_bytes)
    failed: dict[DiffMethod, str] = {}
    methods, where = host_methods(task.prepared), task.prepared.question.where
    for method in methods:
        try:
            _compare(session, task, method, failed, tell)
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


def _compare(
    session: SparkSession,
    task: DiffTask,
    method: DiffMethod,
    failed: dict[DiffMethod, str],
    tell: Callable[[str], None],
) -> None:
    """One method's answer."""
    prepared, gross = task.prepared, None
    columns, key = _columns_and_key(prepared, method)
    tell(f"reading for {METHOD_NAMES[method]}")
    signed = signed_rows(session, prepared, method)
    if columns != prepared.columns:
        signed = signed.withColumn(f"c{len(prepared.columns)}", F.col(ID))
    check_types(signed, columns)
    if method in FEEDS:
        tell("counting what each commit did")
        gross = gross_counts(signed)
        _require_complete(prepared, method, gross)
    if any(holds_map(column.dataType) for column in fields_of(signed)):
        # The code that Spark 4.2 generates to group by maps takes a null number in one for 0 (tried).
        session.conf.set("spark.sql.codegen.wholeStage", "false")
        session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    tell("comparing rows")
    question = prepared.question
    matched = None if question.where is None else satisfies(question.where, prepared.columns, signed.schema)
    rows = net_rows(signed, [columns.index(name) for name in key], question.tolerance, matched)
    rows.lines.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        buckets, cells = count(rows)  # does the work; the others read what is kept of it
        tell("writing the result")
        updates = {columns[number]: count for number, count in cells.items()}
        summary = DiffSummary(method, columns, key, buckets, updates, failed, gross, task.by)
        row = StructType([StructField(column.name, column.dataType) for column in rows.fields])
        schema = StructType(
            [
                StructField("what", StringType()), StructField("number", LongType()), StructField("n", LongType()),
                StructField("detail", StringType()), StructField("before", row), StructField("after", row),
            ]
        )  # fmt: skip
        lines = session.createDataFrame([(SUMMARY, 0, 0, summary.to_json(), None, None)], schema)
        most = max(question.row_limit, task.limits.most_values // (2 * len(columns)))
        kept = kept_lines(rows, buckets, question.row_limit, most)
        common = [common_lines(rows, number) for number in list(cells)[:COMMON_COLUMNS]]
        for more in (*kept, *common):
            lines = lines.unionByName(more)
        write_result(session, lines, task.result_uri)
    finally:
        rows.lines.unpersist()


def _columns_and_key(prepared: PreparedDiff, method: DiffMethod) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those of the rows, the row tracking's ids among them where they are the key."""
    columns, key = prepared.columns, prepared.plan.key
    is_key_given = key is not None and key.source is KeySource.GIVEN
    if method is DiffMethod.ROW_ID or (method is DiffMethod.SPARK_CHANGES and not is_key_given):
        return (*columns, ROW_ID), (ROW_ID,)
    return columns, () if key is None or method is DiffMethod.MULTISET else key.columns


def _require_complete(prepared: PreparedDiff, method: DiffMethod, gross: GrossRows) -> None:
    """Raise `DiffError` for a feed that leaves rows out; one that was asked for by name is told with its gaps."""
    if prepared.question.method is not None and method is DiffMethod.CHANGE_FEED:
        return
    commits, given = (change.commit for change in prepared.commits), prepared.input
    if why := why_not_whole(commits, Gross.of_rows(gross), given.row_counts(), is_reverse=given.is_reverse):
        raise DiffError(why)
