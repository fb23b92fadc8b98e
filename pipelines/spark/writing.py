"""From a declared stream to the query that writes it: through Delta's own sink, or batch by batch.

Rule: what is written in foreachBatch is stamped first, so a batch that is replayed changes nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from pipelines.sinks.commits import query_id, stamp
from pipelines.spark.quarantine import append_broken
from pipelines.specs.expectations import BROKEN, OnViolation, breaks_any, names
from pipelines.specs.sinks import Target
from pipelines.specs.sources import BatchCheck, Inputs
from pipelines.specs.streams import StreamKind, StreamSpec
from pipelines.specs.tables import parse_schema

BatchWriter = Callable[[DataFrame, int], None]


def configure(writer: DataStreamWriter, stream: StreamSpec, inputs: Inputs) -> DataStreamWriter:
    """The writer with its output mode and where it writes to."""
    target = stream.target(inputs.settings)
    if stream.kind is StreamKind.MATERIALIZED_VIEW:
        return writer.foreachBatch(_recompute(stream, target, inputs))
    writer = writer.outputMode(stream.sink.output_mode)
    if is_native(stream, inputs):
        return writer.format("delta").option("path", target.uri)
    return writer.foreachBatch(_write(stream, target, inputs.checks))


def is_native(stream: StreamSpec, inputs: Inputs) -> bool:
    """Whether Delta's own streaming sink writes it: then its rows must be the table's columns."""
    is_plain = stream.quarantine is None and not stream.also and not inputs.checks
    return stream.kind is StreamKind.STREAMING_TABLE and stream.sink.is_native and is_plain


def _write(stream: StreamSpec, target: Target, checks: Sequence[BatchCheck]) -> BatchWriter:
    def write(batch: DataFrame, batch_id: int) -> None:
        for check in checks:
            check(batch_id)
        stamp(batch.sparkSession, stream.name, batch_id)  # one for all tables: Delta keeps it per table
        into = replace(target, query_id=query_id(batch.sparkSession), batch_id=batch_id)
        if stream.quarantine is None and not stream.also:
            stream.sink.write(batch.drop(BROKEN), into)
            return
        batch.persist()  # computed once: state and observed counts must not run twice
        try:
            _write_parted(batch, stream, into)
        finally:
            batch.unpersist()

    return write


def write_rows(rows: DataFrame, stream: StreamSpec, target: Target) -> None:
    """To each destination in turn: the stamp is kept per table, so a replay goes on where it broke off."""
    if not stream.also:
        stream.sink.write(rows, target)
        return
    for each in stream.destinations:
        part = rows.where(each.where) if each.where else rows
        if not part.isEmpty():
            each.sink.write(part, replace(target, table=each.table))


def _write_parted(batch: DataFrame, stream: StreamSpec, target: Target) -> None:
    if stream.quarantine is None:
        write_rows(batch.drop(BROKEN), stream, target)
        return
    broken = breaks_any(names(stream.expectations, OnViolation.QUARANTINE))
    good, bad = batch.agg(F.count_if(~broken), F.count_if(broken)).first() or (0, 0)
    if good or stream.sink.output_mode == "complete":  # else that one keeps what was
        write_rows(batch.where(~broken).drop(BROKEN), stream, target)
    if bad:
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
