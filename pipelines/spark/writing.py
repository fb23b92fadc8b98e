"""From a declared stream to the query that writes it: through Delta's own sink, or batch by batch.

Rule: what is written in foreachBatch is stamped first, so a batch that is replayed changes nothing.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import ArrayType, LongType, StringType, StructType, TimestampType

from backend.streams.requeue import REASON
from pipelines.jvm.failures import SpecError
from pipelines.jvm.kafka import Offsets
from pipelines.sinks.commits import append_rows, query_id, stamp
from pipelines.spark.former_letters import not_read_before, read_before
from pipelines.spark.materialized_views import recompute
from pipelines.specs.dead_letters import Kept
from pipelines.specs.ends import Inputs, Target
from pipelines.specs.expectations import BROKEN, OnViolation, breaks_any, names
from pipelines.specs.streams import StreamKind, StreamSpec

BatchWriter = Callable[[DataFrame, int], None]


def configure(writer: DataStreamWriter, stream: StreamSpec, inputs: Inputs) -> DataStreamWriter:
    """The writer with its output mode and where it writes to."""
    target = stream.target(inputs.settings)
    if stream.kind is StreamKind.MATERIALIZED_VIEW:
        return writer.foreachBatch(recompute(stream, target, inputs))
    writer = writer.outputMode(stream.sink.output_mode)
    if is_native(stream, inputs):
        return writer.format("delta").option("path", target.uri)
    return writer.foreachBatch(_write(stream, target, inputs))


def is_native(stream: StreamSpec, inputs: Inputs) -> bool:
    """Whether Delta's own streaming sink writes it: then its rows must be the table's columns."""
    return stream.dead_letters is None and _has_native_rows(stream, inputs)


def _has_native_rows(stream: StreamSpec, inputs: Inputs) -> bool:
    """Whether Delta's own sink could write its rows, and did before they had dead letters beside them."""
    is_plain = stream.quarantine is None and not stream.also and not inputs.checks
    return stream.kind is StreamKind.STREAMING_TABLE and stream.sink.is_native and is_plain


def _write(stream: StreamSpec, target: Target, inputs: Inputs) -> BatchWriter:
    letters_uri = target.uris[stream.dead_letters.name] if stream.dead_letters else ""
    before = read_before(stream, inputs, letters_uri) if letters_uri else {}

    def write(batch: DataFrame, batch_id: int) -> None:
        for check in inputs.checks:
            check(batch_id)
        session, query = batch.sparkSession, query_id(batch.sparkSession)
        # one for all tables: Delta keeps it per table
        stamp(session, stream.name, batch_id, as_native=_has_native_rows(stream, inputs))
        into = replace(target, query_id=query, batch_id=batch_id)
        if stream.quarantine is None and not stream.also:
            stream.sink.write(batch.drop(BROKEN), into)
        else:
            batch.persist()  # computed once: state and observed counts must not run twice
            try:
                _write_parted(batch, stream, into)
            finally:
                batch.unpersist()
        if letters_uri:
            must = any(source.letters for source in stream.sources)
            kept = Kept(session, _plan_of(inputs.session.streams.get(query)), must=must)
            _append_dead_letters(batch, kept, before, letters_uri)
            kept.remove()

    return write


def _append_dead_letters(batch: DataFrame, kept: Kept, before: Offsets, uri: str) -> None:
    """After the rows: only what has read the batch knows whether it has any."""
    if not kept.was_read():
        batch.write.format("noop").mode("overwrite").save()  # the function's state too has to be there anew
    letters = kept.dead_letters()
    if letters is not None:
        append_rows(not_read_before(letters, before), uri)


def _plan_of(query: Any) -> Any:
    """The physical plan of the batch that it is at."""
    return query._jsq.streamingQuery().lastExecution().executedPlan()


def write_rows(rows: DataFrame, stream: StreamSpec, target: Target) -> None:
    """To each destination in turn: the stamp is kept per table, so a replay goes on where it broke off."""
    if not stream.also:
        stream.sink.write(rows, target)
        return
    for destination in stream.destinations:
        part = rows.where(destination.where) if destination.where else rows
        if not part.isEmpty():
            destination.sink.write(part, replace(target, table=destination.table))


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
        _append_broken(batch.where(broken), uri, stream=stream.name, batch_id=target.batch_id)


def quarantine_schema(rows: StructType) -> StructType:
    """The row as the function returned it, the rules it breaks, the stream, the batch and when; raises `SpecError`
    where both have a column of one name."""
    if taken := [name for name in rows.names if name.lower() in REASON]:
        raise SpecError(f"the function returns {', '.join(taken)}", hint="its quarantine adds it: rename")
    kinds = (ArrayType(StringType()), StringType(), LongType(), TimestampType())
    columns = StructType(list(rows.fields))
    for name, kind in zip(REASON, kinds, strict=True):
        columns.add(name, kind)
    return columns


def _append_broken(broken: DataFrame, uri: str, *, stream: str, batch_id: int) -> None:
    """Add rows that break an expectation to the quarantine, with the reason."""
    reason = (F.col(BROKEN), F.lit(stream), F.lit(batch_id).cast("bigint"), F.current_timestamp())
    append_rows(broken.withColumns(dict(zip(REASON, reason, strict=True))), uri)
