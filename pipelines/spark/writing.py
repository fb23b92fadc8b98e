"""From a declared stream to the query that writes it: through Delta's own sink, or batch by batch.

Rule: what is written in foreachBatch is stamped first, so a batch that is replayed changes nothing.
"""

from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from pipelines.declare.expectations import BROKEN, OnViolation, breaks_any, names
from pipelines.declare.spec import StreamKind, StreamSpec
from pipelines.sinks.base import Target, query_id, stamp
from pipelines.sources.base import Inputs
from pipelines.spark.quarantine import append_broken
from pipelines.spark.tables import parse_schema

BatchWriter = Callable[[DataFrame, int], None]


def configure(writer: DataStreamWriter, stream: StreamSpec, inputs: Inputs) -> DataStreamWriter:
    """The writer with its output mode and where it writes to."""
    target = stream.target(inputs.settings)
    if stream.kind is StreamKind.MATERIALIZED_VIEW:
        return writer.foreachBatch(_recompute(stream, target, inputs))
    writer = writer.outputMode(stream.sink.output_mode)
    if is_native(stream):
        return writer.format("delta").option("path", target.uri)
    return writer.foreachBatch(_write(stream, target))


def is_native(stream: StreamSpec) -> bool:
    """Whether Delta's own streaming sink writes it: then its rows must be the table's columns."""
    return stream.kind is StreamKind.STREAMING_TABLE and stream.sink.is_native and stream.quarantine is None


def _write(stream: StreamSpec, target: Target) -> BatchWriter:
    def write(batch: DataFrame, batch_id: int) -> None:
        stamp(batch.sparkSession, stream.name, batch_id)  # one for all tables: Delta keeps it per table
        into = replace(target, query_id=query_id(batch.sparkSession), batch_id=batch_id)
        if stream.quarantine is None:
            stream.sink.write(batch.drop(BROKEN), into)
            return
        batch.persist()  # computed once: state and observed counts must not run twice
        try:
            _write_parted(batch, stream, into)
        finally:
            batch.unpersist()

    return write


def _write_parted(batch: DataFrame, stream: StreamSpec, target: Target) -> None:
    broken = breaks_any(names(stream.expectations, OnViolation.QUARANTINE))
    good, bad = batch.agg(F.count_if(~broken), F.count_if(broken)).first() or (0, 0)
    if good:
        stream.sink.write(batch.where(~broken).drop(BROKEN), target)
    if bad and stream.quarantine:
        uri = target.uris[stream.quarantine.name]
        append_broken(batch.where(broken), uri, stream=stream.name, batch_id=target.batch_id)


def _recompute(stream: StreamSpec, target: Target, inputs: Inputs) -> BatchWriter:
    """The whole table anew, from its inputs at the versions that the batch names."""

    def write(batch: DataFrame, batch_id: int) -> None:
        stamp(batch.sparkSession, stream.name, batch_id)
        versions = {row["uri"]: row["version"] for row in batch.collect()}
        rows = stream.rows(replace(inputs, session=batch.sparkSession, versions=versions))
        if stream.table.schema:
            rows = rows.select(*(f"`{name}`" for name in parse_schema(batch.sparkSession, stream.table.schema).names))
        present = batch.sparkSession.read.format("delta").load(target.uri).schema
        anew = _types(present) != _types(rows.schema)  # else comments stay
        rows.write.format("delta").mode("overwrite").option("overwriteSchema", str(anew).lower()).save(target.uri)

    return write


def _types(schema: StructType) -> list[tuple[str, str]]:
    return [(each.name, each.dataType.simpleString()) for each in schema]
