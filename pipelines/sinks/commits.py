"""How a batch that is replayed changes nothing, and the sinks that write its rows as they are: add them, replace the
table by them, or hand them to a function of the user's.

Rule: a sink that writes in foreachBatch stamps each commit with `txnAppId` and `txnVersion`, so Delta skips a replayed
batch. `userMetadata` names stream, batch and run. Delta's own streaming sink needs no stamp: it does `append` and
`complete`, whose `write` is for rows that come with a quarantine. A user's function writes through the session that it
is given, which carries the stamp.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, get_args

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from pipelines.specs.ends import OutputMode, Target
from pipelines.specs.tables import TableSpec, quoted

BatchFunction = Callable[[DataFrame, int, SparkSession], object]
_WRITER, _NUMBER = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


def query_id(session: SparkSession) -> str:
    """The id of the query that runs this batch."""
    return str(session.sparkContext.getLocalProperty("sql.streaming.queryId"))


def stamp(session: SparkSession, stream: str, batch_id: int, *, as_native: bool = False) -> None:
    """Mark what this session commits from now on. Every query has a clone of the session, so streams do not mix.

    The query's id is part of `txnAppId`. After a reset to an empty checkpoint, batches count from 0 again, and Delta
    would skip them as already written. `as_native`: as Delta's own sink marks, which may have written the batch before.
    """
    query, run_id = query_id(session), session.sparkContext.getLocalProperty("spark.jobGroup.id")
    metadata = {"stream": stream, "batch_id": batch_id, "query_id": query, "run_id": run_id}
    mark(session, query if as_native else f"{stream}:{query}", batch_id, metadata)


def mark(session: SparkSession, writer: str, number: int, metadata: Mapping[str, object]) -> None:
    """Delta passes over what this writer committed already under this number, table by table."""
    session.conf.set(_WRITER, writer)
    session.conf.set(_NUMBER, str(number))
    sign(session, metadata)


def sign(session: SparkSession, metadata: Mapping[str, object]) -> None:
    """What commits of this session say of themselves. Spark reads `${env:…}` in the values of settings, always: a
    reason could write a secret of the host into a log."""
    session.conf.set(_METADATA, json.dumps(metadata).replace("${", "\\u0024{"))


@contextmanager
def unnumbered(session: SparkSession) -> Iterator[None]:
    """For what goes before a batch's one numbered commit to a table: Delta would pass over that commit as a repeat.

    What is done meanwhile must change nothing when it is done again.
    """
    marks = {key: session.conf.get(key, None) for key in (_WRITER, _NUMBER)}
    for key in marks:
        session.conf.unset(key)
    try:
        yield
    finally:
        for key, value in marks.items():
            if value is not None:
                session.conf.set(key, value)


def append_rows(rows: DataFrame, uri: str) -> None:
    """Append the columns that the table has; those that the rows lack are null."""
    theirs = {name.lower() for name in rows.columns}
    names = [name for name in rows.sparkSession.read.format("delta").load(uri).columns if name.lower() in theirs]
    rows.select(*map(quoted, names)).write.format("delta").mode("append").save(uri)


@dataclass(frozen=True, slots=True)
class AppendSink:
    """`complete`: each batch replaces the whole table with the present result of the aggregate."""

    complete: bool = False
    is_native = True
    keys: ClassVar[tuple[str, ...]] = ()

    @property
    def kind(self) -> str:
        return self.output_mode

    @property
    def output_mode(self) -> OutputMode:
        return "complete" if self.complete else "append"

    def beside(self, table: TableSpec) -> tuple[TableSpec, ...]:
        return ()

    def table_schema(self, rows: StructType) -> StructType:
        return rows

    def beside_schema(self, rows: StructType) -> StructType:
        return rows

    def write(self, batch: DataFrame, target: Target) -> None:
        if self.complete:
            batch.write.format("delta").mode("overwrite").save(target.uri)
        else:
            append_rows(batch, target.uri)


def append() -> AppendSink:
    """Add each batch's rows to the table."""
    return AppendSink()


def complete() -> AppendSink:
    """Replace the whole table with the aggregate's present result, each batch."""
    return AppendSink(complete=True)


@dataclass(frozen=True, slots=True)
class ForeachBatchSink:
    function: BatchFunction
    output_mode: OutputMode = "append"
    kind = "foreach_batch"
    is_native = False

    @property
    def outside(self) -> str:
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"{getattr(self.function, '__module__', '')}.{name}"

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.output_mode not in get_args(OutputMode):
            yield f"foreach_batch: output_mode={self.output_mode!r} is not known", "use append, update or complete"

    def judge(self, rows: DataFrame) -> None: ...

    def prepare(self, rows: DataFrame) -> None: ...

    def write(self, batch: DataFrame, target: Target) -> None:
        batch.persist()  # it may be used for several tables: state and observed counts must not run twice
        try:
            self.function(batch, target.batch_id, batch.sparkSession)
        finally:
            batch.unpersist()


def foreach_batch(function: BatchFunction, *, output_mode: OutputMode = "append") -> ForeachBatchSink:
    """Call `function(rows, batch_id, session)` for each batch. The stream has no table of its own.

    What is written to Delta tables through `session`, or through `rows`, is committed once, however often the batch is
    replayed: one commit a table and batch, and Delta passes over a second one. Anything else that the function does
    happens at least once.
    """
    return ForeachBatchSink(function, output_mode)
