"""A diff as a Spark job: the methods are tried in order, the answer is written as one small Delta table.

Rule: the table holds counts and the asked number of rows, never the tables compared; it is whole or not there, since
one commit writes it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, LongType, MapType, StringType, StructField, StructType

from backend.diff.feed import Gross, net_without_key
from backend.diff.job_work import SUMMARY, DiffSummary, DiffWork, to_json
from backend.diff.model import DiffMethod, NetCounts
from backend.diff.net import count_apart, count_net
from backend.diff.plan import METHOD_NAMES
from backend.diff.row_ids import ROW_ID
from backend.errors import DiffError, JobError
from pipelines.failures import describe
from pipelines.jobs import net
from pipelines.jobs.condition import satisfies, why_failed
from pipelines.jobs.feeds import change_feed, gross_counts, spark_changes
from pipelines.jobs.states import ID, check_types, signed_rows, spark_uri

Tell = Callable[[str], None]  # takes the words for what goes on; raises when the job is to end
_FEEDS = (DiffMethod.CHANGE_FEED, DiffMethod.SPARK_CHANGES)
_BYTES_A_TASK = 64 * 1024**2
_MOST_TASKS = 2_000
_MUCH_BYTES = 4 * 1024**2  # from here on compiling plans pays for itself
_ODD_IN_NAMES = set(" ,;{}()\n\t=")


@dataclass(frozen=True, slots=True)
class DiffTask:
    """One comparison and where its result goes. `by` says who computes it."""

    work: DiffWork
    result_uri: str
    by: str


def run_diff(session: SparkSession, task: DiffTask, tell: Tell) -> None:
    """Compute and write; raises `DiffError` or `JobError` with the reason of each method that could not."""
    _tune(session, task.work)
    failed: dict[DiffMethod, str] = {}
    for method in task.work.methods:
        try:
            _answer(session, task, method, failed, tell)
            return
        except (PySparkException, Py4JJavaError, DiffError) as exc:
            tell(f"not by {METHOD_NAMES[method]}")  # raises when it was the cancelling that broke it
            if task.work.where is not None and (failure := why_failed(exc)) is not None:
                raise failure from exc
            if task.work.is_chosen or len(task.work.methods) == 1:
                raise
            failed[method] = exc.message if isinstance(exc, DiffError) else describe(exc)[1]
    why = "; ".join(f"not by {METHOD_NAMES[method]}: {reason}" for method, reason in failed.items())
    raise JobError(why, hint="files that were vacuumed cannot be compared any more")


def _answer(
    session: SparkSession, task: DiffTask, method: DiffMethod, failed: dict[DiffMethod, str], tell: Tell
) -> None:
    work = task.work
    tell(f"reading for {METHOD_NAMES[method]}")
    pairing = _pairing(work, method)
    signed = _signed(session, work, method)
    if pairing.columns != work.columns:
        signed = signed.withColumn(f"c{len(work.columns)}", F.col(ID))
    check_types(signed.schema, pairing.columns)
    matched = None if work.where is None else satisfies(work.where, work.columns, signed.schema)
    rows = net.net_rows(signed, [pairing.columns.index(name) for name in pairing.key], work.tolerance, matched)
    try:
        tell("comparing rows")
        counted = net.count(rows)
        gross = gross_counts(signed) if method in _FEEDS else None
        _require_complete(work, method, gross)
        shown, truncated = net.shares(counted, work.row_limit)
        apart = count_apart(counted.buckets)
        summary = DiffSummary(
            method,
            pairing.columns,
            pairing.key,
            _net(counted, gross, work, has_key=bool(pairing.key)),
            (apart.duplicate_keys, apart.duplicate_inserted, apart.duplicate_deleted, apart.null_inserted,
             apart.null_deleted),
            {pairing.columns[i]: cells for i, cells in counted.changed_cells.items()},
            truncated,
            failed,
            gross,
            task.by,
        )  # fmt: skip
        tell("writing the result")
        common = net.common_changes(rows, counted)
        _write(session, task, rows, [*net.shown_rows(rows, shown), *([common] if common is not None else [])], summary)
    finally:
        rows.unpersist()


@dataclass(frozen=True, slots=True)
class _Pairing:
    """The columns of the rows, the row tracking's ids among them where they are the key."""

    columns: tuple[str, ...]
    key: tuple[str, ...]


def _pairing(work: DiffWork, method: DiffMethod) -> _Pairing:
    if method is DiffMethod.ROW_ID or (method is DiffMethod.SPARK_CHANGES and not work.is_key_given):
        return _Pairing((*work.columns, ROW_ID), (ROW_ID,))
    return _Pairing(work.columns, () if method is DiffMethod.MULTISET else work.key)


def _signed(session: SparkSession, work: DiffWork, method: DiffMethod) -> DataFrame:
    match method:
        case DiffMethod.CHANGE_FEED:
            return change_feed(session, work)
        case DiffMethod.SPARK_CHANGES:
            return spark_changes(session, work)
    return signed_rows(session, work, with_ids=method is DiffMethod.ROW_ID)


def _net(
    counted: net.NetCounted, gross: tuple[tuple[int, str, int], ...] | None, work: DiffWork, *, has_key: bool
) -> tuple[int | None, int | None, int | None]:
    is_filtered = work.where is not None
    found: NetCounts = count_net(counted.buckets, has_key=has_key, is_filtered=is_filtered)
    if gross is not None and not has_key:
        found = net_without_key(found, Gross.of_rows(gross), is_reverse=work.is_reverse, is_filtered=is_filtered)
    return found.inserted, found.updated, found.deleted


def _require_complete(work: DiffWork, method: DiffMethod, gross: tuple[tuple[int, str, int], ...] | None) -> None:
    """Raise `DiffError` for a feed that leaves rows out; one that was asked for by name is told with its gaps."""
    if gross is None or (work.is_chosen and method is DiffMethod.CHANGE_FEED):
        return
    if unpaired := Gross.of_rows(gross).unpaired():
        raise DiffError(f"the feed of v{unpaired[0]} is not complete: rows before and after updates differ in number")
    came, (before, after) = Gross.of_rows(gross).rows_more(is_reverse=work.is_reverse), work.num_rows
    if before is not None and after is not None and came != after - before:
        raise DiffError(f"the feed is not complete: it adds up to {came:,} rows more, the states to {after - before:,}")


def _write(
    session: SparkSession, task: DiffTask, rows: net.NetRows, parts: Sequence[DataFrame], summary: DiffSummary
) -> None:
    kind = net.row_type(rows)
    schema = StructType(
        [
            StructField("what", StringType()), StructField("place", LongType()), StructField("n", LongType()),
            StructField("detail", StringType()), StructField("before", kind), StructField("after", kind),
        ]
    )  # fmt: skip
    whole = session.createDataFrame([(SUMMARY, 0, 0, to_json(summary), None, None)], schema)
    for part in parts:
        whole = whole.unionByName(part.select(*(F.col(f.name).cast(f.dataType).alias(f.name) for f in schema.fields)))
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")  # INT96 is read as of 1677 to 2262
    writer = whole.coalesce(1).write.format("delta").mode("errorifexists")
    if _has_odd_names(kind):
        writer = writer.option("delta.columnMapping.mode", "name")
    writer.save(spark_uri(task.result_uri))


def _has_odd_names(kind: DataType) -> bool:
    """Whether a nested field is called something that Delta stores under another name only."""
    match kind:
        case StructType():
            return any(_ODD_IN_NAMES & set(f.name) or _has_odd_names(f.dataType) for f in kind.fields)
        case ArrayType():
            return _has_odd_names(kind.elementType)
        case MapType():
            return _has_odd_names(kind.keyType) or _has_odd_names(kind.valueType)
    return False


def _tune(session: SparkSession, work: DiffWork) -> None:
    """Streams on a local master are tuned for a hundred rows; a job reads what it reads."""
    if work.size_bytes < _MUCH_BYTES:
        return
    tasks = min(_MOST_TASKS, work.size_bytes // _BYTES_A_TASK)
    for key, value in {
        "spark.sql.shuffle.partitions": str(max(tasks, int(session.conf.get("spark.sql.shuffle.partitions") or 2))),
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "FALLBACK",
        "spark.sql.adaptive.enabled": "true",
    }.items():
        session.conf.set(key, value)
