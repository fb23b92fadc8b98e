"""A diff as a Spark job: the methods are tried in order, the answer is written as one small Delta table.

Rule: the table holds counts and the asked number of rows, never the tables compared. Each of its versions is an answer:
the last one of all rows, those before it of what had been compared by then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, LongType, MapType, StringType, StructField, StructType

from backend.changes.commits import Gross, net_without_key
from backend.changes.compare import count_apart, count_net
from backend.changes.host_job import SUMMARY, DiffSummary, SoFar, host_methods, to_json
from backend.changes.model import ROW_ID, DiffMethod, KeySource, NetCounts
from backend.changes.plan import METHOD_NAMES
from backend.changes.prepare import PreparedDiff
from backend.errors import DiffError, JobError
from pipelines.jobs import net
from pipelines.jobs.condition import satisfies, why_failed
from pipelines.jobs.feeds import change_feed, gross_counts, spark_changes
from pipelines.jobs.prefilter import Prefiltered, SparkLimits, prefilter
from pipelines.jobs.states import ID, check_types, make_active, signed_rows
from pipelines.jvm.failures import describe
from pipelines.jvm.hadoop import spark_uri

_FEEDS = (DiffMethod.CHANGE_FEED, DiffMethod.SPARK_CHANGES)
_BYTES_A_TASK = 64 * 1024**2
_MOST_TASKS = 2_000
_ODD_IN_NAMES = set(" ,;{}()\n\t=")


@dataclass(frozen=True, slots=True)
class DiffTask:
    """One comparison and where its result goes. `by` says who computes it."""

    prepared: PreparedDiff
    result_uri: str
    by: str
    limits: SparkLimits = field(default_factory=SparkLimits)


class Listener(Protocol):
    """Who wants to know how far a job is."""

    def tell(self, phase: str) -> None:
        """What goes on now; raises when the job is to end."""

    def wrote(self) -> None:
        """The result can be read, whole or of what was compared so far."""


def run_diff(session: SparkSession, task: DiffTask, listener: Listener) -> None:
    """Compute and write; raises `DiffError` or `JobError` with the reason of each method that could not."""
    make_active(session)
    _tune(session, task)
    failed: dict[DiffMethod, str] = {}
    methods, question = host_methods(task.prepared), task.prepared.question
    for method in methods:
        try:
            _Answer(session, task, method, failed, listener).write()
            return
        except (PySparkException, Py4JJavaError, DiffError) as exc:
            listener.tell(f"not by {METHOD_NAMES[method]}")  # raises when it was the cancelling that broke it
            if question.where is not None and (failure := why_failed(exc)) is not None:
                raise failure from exc
            if len(methods) == 1:
                raise
            failed[method] = exc.message if isinstance(exc, DiffError) else describe(exc)[1]
    why = "; ".join(f"not by {METHOD_NAMES[method]}: {reason}" for method, reason in failed.items())
    raise JobError(why, hint="files that were vacuumed cannot be compared any more")


@dataclass(slots=True)
class _Answer:
    """One method's answer, part by part where rows are many."""

    session: SparkSession
    task: DiffTask
    method: DiffMethod
    failed: dict[DiffMethod, str]
    listener: Listener
    _parts: list[net.NetRows] = field(default_factory=list)
    _counted: net.NetCounted = field(default_factory=lambda: net.NetCounted({}, {}))
    _gross: tuple[tuple[int, str, int], ...] | None = None

    def write(self) -> None:
        prepared, method = self.task.prepared, self.method
        self.listener.tell(f"reading for {METHOD_NAMES[method]}")
        pairing, signed = _pairing(prepared, method), _signed(self.session, prepared, method)
        if pairing.columns != prepared.columns:
            signed = signed.withColumn(f"c{len(prepared.columns)}", F.col(ID))
        check_types(signed.schema, pairing.columns)
        result = _Result(self.session, self.task, pairing, net.row_type(signed))
        if method in _FEEDS:
            self.listener.tell("counting what each commit did")
            self._gross = gross_counts(signed)
            _require_complete(prepared, method, self._gross)
        if have_maps := net.have_maps(signed):
            _interpret(self.session)
        has_parts = bool(pairing.key) or method not in _FEEDS  # without a key a feed's updates are known in the end
        try:
            if has_parts and prepared.input.size_bytes >= self.task.limits.prefiltered_bytes and not have_maps:
                self._compare_in_parts(signed, result)
            else:
                self.listener.tell("comparing rows")
                self._compare(signed, pairing)
            self.listener.tell("writing the result")
            result.write(self._summary(pairing), self._parts, self._counted)
        finally:
            for rows in self._parts:
                rows.unpersist()

    def _compare_in_parts(self, signed: DataFrame, result: "_Result") -> None:
        self.listener.tell("finding rows that can differ")
        pairing = result.pairing
        found = prefilter(signed, pairing.key_numbers, self.task.limits)
        try:
            for number, part in enumerate(found.parts):
                if number:
                    result.write(self._summary(pairing, _so_far(found, number)), self._parts, self._counted)
                    self.listener.wrote()
                of_all = f", part {number + 1} of {len(found.parts)}" if len(found.parts) > 1 else ""
                self.listener.tell(f"comparing rows{of_all}")
                self._compare(part.rows, pairing)
        finally:
            found.slots.unpersist()

    def _compare(self, signed: DataFrame, pairing: "_Pairing") -> None:
        question, columns = self.task.prepared.question, self.task.prepared.columns
        matched = None if question.where is None else satisfies(question.where, columns, signed.schema)
        rows = net.net_rows(signed, pairing.key_numbers, question.tolerance, matched)
        self._parts.append(rows)
        self._counted = net.add_up(self._counted, net.count(rows))

    def _summary(self, pairing: "_Pairing", so_far: SoFar | None = None) -> DiffSummary:
        prepared, counted, gross = self.task.prepared, self._counted, self._gross
        apart = count_apart(counted.buckets)
        return DiffSummary(
            self.method,
            pairing.columns,
            pairing.key,
            _net(counted, gross, prepared, has_key=bool(pairing.key)),
            (apart.duplicate_keys, apart.duplicate_inserted, apart.duplicate_deleted, apart.null_inserted,
             apart.null_deleted),
            {pairing.columns[i]: cells for i, cells in counted.changed_cells.items()},
            net.shares(counted, prepared.question.row_limit)[1],
            self.failed,
            gross,
            self.task.by,
            so_far,
        )  # fmt: skip


def _so_far(found: Prefiltered, parts_read: int) -> SoFar:
    left = sum(part.num_rows for part in found.parts[parts_read:])
    return SoFar(found.num_rows - left, found.num_rows)


@dataclass(frozen=True, slots=True)
class _Pairing:
    """The columns of the rows, the row tracking's ids among them where they are the key."""

    columns: tuple[str, ...]
    key: tuple[str, ...]

    @property
    def key_numbers(self) -> list[int]:
        """Of the key's columns."""
        return [self.columns.index(name) for name in self.key]


def _pairing(prepared: PreparedDiff, method: DiffMethod) -> _Pairing:
    columns, key = prepared.columns, prepared.plan.key
    is_key_given = key is not None and key.source is KeySource.GIVEN
    if method is DiffMethod.ROW_ID or (method is DiffMethod.SPARK_CHANGES and not is_key_given):
        return _Pairing((*columns, ROW_ID), (ROW_ID,))
    return _Pairing(columns, () if key is None or method is DiffMethod.MULTISET else key.columns)


def _signed(session: SparkSession, prepared: PreparedDiff, method: DiffMethod) -> DataFrame:
    match method:
        case DiffMethod.CHANGE_FEED:
            return change_feed(session, prepared)
        case DiffMethod.SPARK_CHANGES:
            return spark_changes(session, prepared)
    return signed_rows(session, prepared, with_ids=method is DiffMethod.ROW_ID)


def _net(
    counted: net.NetCounted, gross: tuple[tuple[int, str, int], ...] | None, prepared: PreparedDiff, *, has_key: bool
) -> tuple[int | None, int | None, int | None]:
    is_filtered = prepared.question.where is not None
    found: NetCounts = count_net(counted.buckets, has_key=has_key, is_filtered=is_filtered)
    if gross is not None and not has_key:
        found = net_without_key(
            found, Gross.of_rows(gross), is_reverse=prepared.input.is_reverse, is_filtered=is_filtered
        )
    return found.inserted, found.updated, found.deleted


def _require_complete(prepared: PreparedDiff, method: DiffMethod, gross: tuple[tuple[int, str, int], ...]) -> None:
    """Raise `DiffError` for a feed that leaves rows out; one that was asked for by name is told with its gaps."""
    if prepared.question.method is not None and method is DiffMethod.CHANGE_FEED:
        return
    if unpaired := Gross.of_rows(gross).unpaired():
        raise DiffError(f"the feed of v{unpaired[0]} is not complete: rows before and after updates differ in number")
    came, (before, after) = (
        Gross.of_rows(gross).rows_more(is_reverse=prepared.input.is_reverse),
        prepared.input.row_counts(),
    )
    if before is not None and after is not None and came != after - before:
        raise DiffError(f"the feed is not complete: it adds up to {came:,} rows more, the states to {after - before:,}")


@dataclass(frozen=True, slots=True)
class _Result:
    """The table that answers are written to. `kind` is the type of a row."""

    session: SparkSession
    task: DiffTask
    pairing: _Pairing
    kind: StructType

    def write(self, summary: DiffSummary, parts: Sequence[net.NetRows], counted: net.NetCounted) -> None:
        """Another version of it."""
        schema = StructType(
            [
                StructField("what", StringType()), StructField("number", LongType()), StructField("n", LongType()),
                StructField("detail", StringType()), StructField("before", self.kind), StructField("after", self.kind),
            ]
        )  # fmt: skip
        whole = self.session.createDataFrame([(SUMMARY, 0, 0, to_json(summary), None, None)], schema)
        for lines in self._lines(parts, counted) if parts else ():
            columns = (F.col(f.name).cast(f.dataType).alias(f.name) for f in schema.fields)
            whole = whole.unionByName(lines.select(*columns))
        timestamps = "spark.sql.parquet.outputTimestampType"  # INT96 is read as of 1677 to 2262
        self.session.conf.set(timestamps, "TIMESTAMP_MICROS")
        writer = whole.coalesce(1).write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        if _has_odd_names(self.kind):
            writer = writer.option("delta.columnMapping.mode", "name")
        writer.save(spark_uri(self.task.result_uri))

    def _lines(self, parts: Sequence[net.NetRows], counted: net.NetCounted) -> list[DataFrame]:
        rows = net.put_together(parts)
        shown, _ = net.shares(counted, self.task.prepared.question.row_limit)
        common = net.common_changes(rows, counted)
        return [*net.shown_rows(rows, shown), *([common] if common is not None else [])]


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


def _tune(session: SparkSession, task: DiffTask) -> None:
    """Streams on a local master are tuned for a hundred rows; a job reads what it reads."""
    size_bytes = task.prepared.input.size_bytes
    if size_bytes < task.limits.compiled_bytes:
        return
    tasks = min(_MOST_TASKS, size_bytes // _BYTES_A_TASK)
    for key, value in {
        "spark.sql.shuffle.partitions": str(max(tasks, int(session.conf.get("spark.sql.shuffle.partitions") or 2))),
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "FALLBACK",
        "spark.sql.adaptive.enabled": "true",
    }.items():
        session.conf.set(key, value)


def _interpret(session: SparkSession) -> None:
    """Where rows hold maps: the code that Spark 4.2 generates to group by them takes a null number in a map for 0
    (tried); interpreted plans do not."""
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
