"""From a declared stream to the query that writes it: through Delta's own sink, batch by batch, or computed whole.

Rule: what is written in foreachBatch is stamped first, so a batch that is replayed changes nothing. A materialized
view is computed whole, whenever a table that it reads has a new version, from its inputs at exactly the versions that
its batch names: so a batch that is replayed computes the same.
Former versions read dead letters by a query of their own, the stream `<name>_dead_letters`. Each is in the table once,
wherever either query stood: what the former one had not reached is read once, before the first batch; what it had read
is left out. Where it stood is noted in the stream's own checkpoint, which a reset moves away.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import ArrayType, LongType, StringType, StructType, TimestampType

from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.lake.storage.folder import Folder
from backend.lake.storage.storage import declared_folder
from backend.settings import load_settings
from backend.streams.checkpoint import KafkaPosition, read_checkpoint, read_positions
from backend.streams.checkpoint import query_id as query_id_of
from backend.streams.requeue import REASON
from backend.streams.unread import places
from pipelines.jvm.delta import delta_log
from pipelines.jvm.failures import SpecError
from pipelines.jvm.hadoop import CheckpointFiles
from pipelines.jvm.kafka import Offsets
from pipelines.sinks.commits import append_rows, query_id, stamp
from pipelines.sources.kafka import KafkaSource, by_topic
from pipelines.specs.dead_letters import Kept
from pipelines.specs.ends import Inputs, Target
from pipelines.specs.expectations import BROKEN, OnViolation, breaks_any, names
from pipelines.specs.streams import StreamKind, StreamSpec
from pipelines.specs.tables import parse_schema, quoted

_NOTE = "dead_letters_read.json"
Offset = Mapping[str, int]
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
        if letters_uri:  # after the rows: only what has read the batch knows whether it has any
            running: Any = inputs.session.streams.get(query)
            plan = running._jsq.streamingQuery().lastExecution().executedPlan()
            kept = Kept(session, plan, must=any(source.letters for source in stream.sources))
            if not kept.was_read():
                batch.write.format("noop").mode("overwrite").save()  # the function's state too has to be there anew
            if (letters := kept.dead_letters()) is not None:
                append_rows(not_read_before(letters, before), letters_uri)
            kept.remove()

    return write


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
    """Rows to their destinations; those that break a quarantining expectation to the quarantine, with the reason."""
    if stream.quarantine is None:
        write_rows(batch.drop(BROKEN), stream, target)
        return
    broken = breaks_any(names(stream.expectations, OnViolation.QUARANTINE))
    good, bad = batch.agg(F.count_if(~broken), F.count_if(broken)).first() or (0, 0)
    if good or stream.sink.output_mode == "complete":  # else that one keeps what was
        write_rows(batch.where(~broken).drop(BROKEN), stream, target)
    if bad:
        number = F.lit(target.batch_id).cast("bigint")
        reason = zip(REASON, (F.col(BROKEN), F.lit(stream.name), number, F.current_timestamp()), strict=True)
        append_rows(batch.where(broken).withColumns(dict(reason)), target.uris[stream.quarantine.name])


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


class TableVersions(DataSource):
    """Option `uris`: a JSON list of the tables."""

    @classmethod
    def name(cls) -> str:
        return "weir_table_versions"

    def schema(self) -> str:
        return "uri STRING, version BIGINT"

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: ARG002 (PySpark calls it so)
        return _Reader(json.loads(self.options["uris"]))


class _Reader(SimpleDataSourceStreamReader):
    def __init__(self, uris: Sequence[str]) -> None:
        self._uris = uris
        self._lake: Lake | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"_uris": self._uris, "_lake": None}  # Spark pickles it, and an open reader cannot be

    def initialOffset(self) -> dict[str, int]:
        return {}

    def read(self, start: Offset) -> tuple[Iterator[tuple[str, int]], dict[str, int]]:
        self._lake = self._lake or Lake(load_settings(lake={"roots": list(self._uris)}))
        present = {uri: self._lake.latest_version(TableRef(uri, uri, uri)) for uri in self._uris}
        return iter(() if present == start else present.items()), present

    def readBetweenOffsets(self, start: Offset, end: Offset) -> Iterator[tuple[str, int]]:  # noqa: ARG002
        return iter(end.items())


def read_versions(session: SparkSession, uris: Sequence[str]) -> DataFrame:
    """`uri` and `version` of each table, in a batch whenever one of them has a new version."""
    session.dataSource.register(TableVersions)
    return session.readStream.format(TableVersions.name()).option("uris", json.dumps(list(uris))).load()


def recompute(stream: StreamSpec, target: Target, inputs: Inputs) -> Callable[[DataFrame, int], None]:
    """The whole table anew, from its inputs at the versions that the batch names."""

    def write(batch: DataFrame, batch_id: int) -> None:
        stamp(batch.sparkSession, stream.name, batch_id)
        versions = {row["uri"]: row["version"] for row in batch.collect()}
        rows = stream.rows(replace(inputs, session=batch.sparkSession, versions=versions))
        if stream.table.schema:
            rows = rows.select(*map(quoted, parse_schema(batch.sparkSession, stream.table.schema).names))
        present = batch.sparkSession.read.format("delta").load(target.uri).dtypes
        anew = present != rows.dtypes  # else comments stay
        rows.write.format("delta").mode("overwrite").option("overwriteSchema", str(anew).lower()).save(target.uri)

    return write


def read_before(stream: StreamSpec, inputs: Inputs, letters: str) -> Offsets:
    """Up to where the former query has read; empty without one. `letters`: where the table lies. After this call it has
    those as well that lie between there and the stream's own place."""
    checkpoint, files = stream.checkpoint_location(inputs.settings), CheckpointFiles(inputs.session)
    note = f"{checkpoint}/{_NOTE}"
    if files.exists(note):
        noted = json.loads(files.read(note)).items()
        return {(topic, int(number)): offset for topic, offsets in noted for number, offset in offsets.items()}
    former, own = (declared_folder(inputs.settings, uri) for uri in (f"{checkpoint}_dead_letters", checkpoint))
    if read_checkpoint(former).is_empty or read_checkpoint(own).is_empty:
        return {}
    name = query_id_of(former)
    # the last batch that it wrote, whether or not its checkpoint knows
    written = delta_log(inputs.session, letters).unsafeVolatileSnapshot().transactions().get(name)
    theirs, ours = _place(former, written.get() if written.isDefined() else -1), _place(own)
    for source in stream.sources:
        if isinstance(source, KafkaSource) and source.is_parsed:
            missed = source.dead_letters_between(inputs, theirs, ours)
            if missed is not None and not missed.isEmpty():
                once = {"txnAppId": f"{name}:{source.describe()}", "txnVersion": "0"}
                missed.write.format("delta").options(**once).mode("append").save(letters)
    files.write(note, json.dumps(by_topic(theirs)))
    return theirs


def not_read_before(letters: DataFrame, before: Offsets) -> DataFrame:
    """Without those that the former query has read."""
    read: list[Column] = [
        (F.col("topic") == topic) & (F.col("partition") == partition) & (F.col("offset") < offset)
        for (topic, partition), offset in before.items()
    ]
    return letters.where(~reduce(or_, read)) if read else letters


def _place(checkpoint: Folder, least: int = -1) -> Offsets:
    """Where a query stood after its last batch. `least`: one that is done, whatever the checkpoint knows."""
    done = read_checkpoint(checkpoint).processed_batch
    last = max(least, -1 if done is None else done)
    positions = read_positions(checkpoint, last if last >= 0 else None).values()
    read = [places(position.offsets) for position in positions if isinstance(position, KafkaPosition)]
    return {place: offset for of_source in read for place, offset in of_source}
