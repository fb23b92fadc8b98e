"""Where a stream writes, so that at least once becomes exactly once.

Rule: a sink that writes in foreachBatch stamps each commit with `txnAppId` and `txnVersion`, so Delta skips a replayed
batch. `userMetadata` names stream, batch and run. Delta's own sink needs no stamp.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from backend.settings import Settings
from pipelines.expectations import BROKEN, breaks_any
from pipelines.tables import TableSpec

BatchWriter = Callable[[DataFrame, int], None]


@dataclass(frozen=True, slots=True)
class Target:
    """The stream that a sink writes for. `quarantining`: expectations whose broken rows go to quarantine."""

    stream: str
    settings: Settings
    quarantining: tuple[str, ...] = ()


class Sink(Protocol):
    @property
    def table(self) -> TableSpec: ...

    def tables(self) -> tuple[TableSpec, ...]:
        """Every table that the sink writes, the main one first."""

    def configure(self, writer: DataStreamWriter, target: Target) -> DataStreamWriter: ...

    @property
    def takes_quarantine(self) -> bool:
        """Whether broken rows go to quarantine. Its input then keeps the column `_broken_expectations`."""


@dataclass(frozen=True, slots=True)
class AppendSink:
    """Append through Delta's own streaming sink."""

    table: TableSpec
    takes_quarantine = False

    def tables(self) -> tuple[TableSpec, ...]:
        return (self.table,)

    def configure(self, writer: DataStreamWriter, target: Target) -> DataStreamWriter:
        return writer.format("delta").outputMode("append").option("path", self.table.uri(target.settings))


@dataclass(frozen=True, slots=True)
class CompleteSink:
    """Each batch replaces the whole table with the present result of the aggregate."""

    table: TableSpec
    takes_quarantine = False

    def tables(self) -> tuple[TableSpec, ...]:
        return (self.table,)

    def configure(self, writer: DataStreamWriter, target: Target) -> DataStreamWriter:
        return writer.format("delta").outputMode("complete").option("path", self.table.uri(target.settings))


@dataclass(frozen=True, slots=True)
class QuarantineSink:
    """Append good rows to `table`, and rows that break a quarantining expectation to `quarantine`, each exactly once.

    Each table gets the columns that it declares. `quarantine` may also declare `broken_expectations`, `stream`,
    `batch_id` and `quarantined_at`.
    """

    table: TableSpec
    quarantine: TableSpec
    takes_quarantine = True

    def tables(self) -> tuple[TableSpec, ...]:
        return (self.table, self.quarantine)

    def configure(self, writer: DataStreamWriter, target: Target) -> DataStreamWriter:
        return writer.outputMode("append").foreachBatch(self._writer(target))

    def _writer(self, target: Target) -> BatchWriter:
        bad = breaks_any(target.quarantining)

        def write(batch: DataFrame, batch_id: int) -> None:
            _stamp(batch.sparkSession, target.stream, batch_id)  # one for both tables: Delta keeps it per table
            batch.persist()  # computed once: state and observed counts must not run twice
            try:
                good_rows, bad_rows = _counts(batch, bad)
                if good_rows:
                    _append(batch.where(~bad), self.table, target)
                if bad_rows:
                    _append(_explained(batch.where(bad), target.stream, batch_id), self.quarantine, target)
            finally:
                batch.unpersist()

        return write


@dataclass(frozen=True, slots=True)
class ChangeSink:
    """Apply row changes by `key`: the change with the highest `sequence` wins, whenever it arrives.

    `deleted` is a SQL condition on a change. `tombstones` (columns: key, sequence) remembers deleted keys: an
    older change that arrives later must not bring a row back.
    """

    table: TableSpec
    tombstones: TableSpec
    key: str
    sequence: str
    deleted: str
    takes_quarantine = False

    def tables(self) -> tuple[TableSpec, ...]:
        return (self.table, self.tombstones)

    def configure(self, writer: DataStreamWriter, target: Target) -> DataStreamWriter:
        return writer.outputMode("update").foreachBatch(self._writer(target))

    def _writer(self, target: Target) -> BatchWriter:
        def write(batch: DataFrame, batch_id: int) -> None:
            _stamp(batch.sparkSession, target.stream, batch_id)
            latest = self._latest(batch).persist()
            try:
                changes, deletes = _counts(latest, F.expr(self.deleted))
                if deletes:  # first, so that after a crash in between the replay finds the same answer
                    self._remember_deletes(latest, target.settings)
                if changes or deletes:
                    self._merge(latest, target.settings)
            finally:
                latest.unpersist()

        return write

    def _latest(self, batch: DataFrame) -> DataFrame:
        row = F.struct(*(column for column in batch.columns))
        newest = batch.groupBy(self.key).agg(F.max_by(row, self.sequence).alias("newest"))
        return newest.select("newest.*")

    def _remember_deletes(self, latest: DataFrame, settings: Settings) -> None:
        deletes = latest.where(self.deleted).select(self.key, self.sequence)
        into = DeltaTable.forPath(latest.sparkSession, self.tombstones.uri(settings)).alias("t")
        merge = into.merge(deletes.alias("s"), f"t.{self.key} = s.{self.key}")
        merge = merge.whenMatchedUpdateAll(f"s.{self.sequence} > t.{self.sequence}").whenNotMatchedInsertAll()
        merge.execute()

    def _merge(self, latest: DataFrame, settings: Settings) -> None:
        session = latest.sparkSession
        gone = session.read.format("delta").load(self.tombstones.uri(settings))
        gone = gone.select(self.key, F.col(self.sequence).alias("_deleted_at"))
        alive = latest.join(gone, self.key, "left").where(
            f"_deleted_at IS NULL OR {self.sequence} >= _deleted_at"  # equal: the deletion itself
        )
        source = alive.withColumn("_deleted", F.expr(self.deleted)).drop("_deleted_at")
        values = {name: f"s.{name}" for name in self.table.column_names}
        newer = f"s.{self.sequence} > t.{self.sequence}"  # not >=: a change that is replayed does nothing
        merge = DeltaTable.forPath(session, self.table.uri(settings)).alias("t")
        (
            merge.merge(source.alias("s"), f"t.{self.key} = s.{self.key}")
            .whenMatchedDelete(f"s._deleted AND {newer}")
            .whenMatchedUpdate(newer, set=dict(values))
            .whenNotMatchedInsert("NOT s._deleted", values=dict(values))
            .execute()
        )


def _counts(df: DataFrame, condition: Column) -> tuple[int, int]:
    """How many rows do not meet the condition, and how many do."""
    row = df.agg(F.count_if(~condition), F.count_if(condition)).first()
    return (int(row[0]), int(row[1])) if row else (0, 0)


def _stamp(session: SparkSession, stream: str, batch_id: int) -> None:
    """Mark what this session commits from now on. Every query has a clone of the session, so streams do not mix.

    The query's id is part of `txnAppId`. After a reset to an empty checkpoint, batches count from 0 again, and Delta
    would skip them as already written.
    """
    context = session.sparkContext
    query_id = context.getLocalProperty("sql.streaming.queryId")
    run_id = context.getLocalProperty("spark.jobGroup.id")
    said = {"stream": stream, "batch_id": batch_id, "query_id": query_id, "run_id": run_id}
    session.conf.set("spark.databricks.delta.write.txnAppId", f"{stream}:{query_id}")
    session.conf.set("spark.databricks.delta.write.txnVersion", str(batch_id))
    session.conf.set("spark.databricks.delta.commitInfo.userMetadata", json.dumps(said))


def _explained(bad: DataFrame, stream: str, batch_id: int) -> DataFrame:
    return bad.withColumns(
        {
            "broken_expectations": F.col(BROKEN),
            "stream": F.lit(stream),
            "batch_id": F.lit(batch_id).cast("bigint"),
            "quarantined_at": F.current_timestamp(),
        }
    )


def _append(rows: DataFrame, table: TableSpec, target: Target) -> None:
    rows.select(*table.column_names).write.format("delta").mode("append").save(table.uri(target.settings))
