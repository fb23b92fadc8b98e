"""Topics of Kafka: each record once, with its place in the topic beside its content.

Rule: every record is a row, or a dead letter with its bytes, or it ends the stream.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from operator import or_
from typing import TypeVar, get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from backend.settings import Settings
from pipelines.jvm.failures import SpecError, passes_unless
from pipelines.jvm.hadoop import CheckpointFiles
from pipelines.jvm.kafka import KafkaClient, Place, Topics, client_settings
from pipelines.jvm.kafka import Offsets as BrokerOffsets
from pipelines.sources.records import (
    FITS,
    TEXT,
    WHOLE,
    avro_by_registry,
    avro_by_schema,
    avro_schema_of,
    columns_of,
    judged,
    reason,
)
from pipelines.specs.dead_letters import without_dead_letters
from pipelines.specs.ends import Inputs, Misfit, Secret, option_texts, revealed, secret_problems, unknown_options
from pipelines.specs.streams import LETTER as CHANGE_LETTER
from pipelines.specs.tables import parse_schema

T = TypeVar("T")
Offsets = Mapping[str, Mapping[int, int]]  # by topic and partition
Starting = str | datetime | Offsets
Ending = datetime | Offsets | None
_EARLIEST = -2  # Spark's number for it
FORMATS = ("bytes", "text", "json", "avro")
RECORD = ("key", "topic", "partition", "offset", "timestamp")
LETTER = tuple(column for column in CHANGE_LETTER if not column.startswith("file_name"))
_RECORDS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
)
_HEADERS = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
_OPTIONS = (
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition"),
    *("failOnDataLoss", "includeHeaders", "groupIdPrefix", "kafkaConsumer.pollTimeoutMs"),
    *("fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
)
_READ_COMMITTED = {"kafka.isolation.level": "read_committed"}  # else records of aborted transactions are rows
_PROBLEM = "_weir_problem"


@dataclass(frozen=True, slots=True)
class Avro:
    """How records are written: raw, by the schema in `file`, or behind a schema's id in `registry`."""

    file: str | None = None
    registry: str | None = None
    login: str | Secret | None = field(default=None, repr=False)

    def problems(self) -> Iterator[tuple[str, str]]:
        """What cannot work, and what to do."""
        if bool(self.file) == bool(self.registry):
            yield "kafka: avro needs either a registry or a schema file", "say registry=URL or avro_schema=PATH"
        if self.registry and "@" in self.registry:
            yield "kafka: the address of the registry holds a login", 'write registry_login=secret("env:NAME")'
        elif self.registry and not self.registry.startswith(("http://", "https://")):
            yield f"kafka: registry {self.registry!r} is no address", "write http://… or https://…"
        if self.login is not None:
            yield from secret_problems("kafka", "the registry's password", self.login)
        if self.file:
            try:
                avro_schema_of(self.file)
            except SpecError as exc:
                yield exc.message, exc.hint

    def decoded(self, value: Column) -> Column:
        """A struct of `json`, the record as text, and `problem`, why there is none; both null for a null."""
        if self.file:
            decode = avro_by_schema(avro_schema_of(self.file))
        else:
            login = self.login.reveal() if isinstance(self.login, Secret) else None
            decode = avro_by_registry(self.registry or "", login)
        as_text = F.udf(decode, "json STRING, problem STRING", useArrow=True)
        return as_text.asNondeterministic()(value)  # else Spark may decode a record once for each use


@dataclass(frozen=True, slots=True)
class KafkaSource:
    servers: str
    topics: Topics
    format: str = "bytes"
    schema: str | None = None
    starting: Starting = "earliest"
    ending: Ending = None
    options: Mapping[str, str | Secret] = field(default_factory=dict, repr=False)
    avro: Avro | None = None
    misfit: Misfit = "dead letter"
    prefix: str = ""
    kind = "kafka"
    tables: tuple[str, ...] = ()

    @property
    def is_parsed(self) -> bool:
        return self.format in ("json", "avro")

    @property
    def letters(self) -> tuple[str, ...]:
        return LETTER if self.is_parsed and self.misfit != "fail" else ()

    def describe(self) -> str:
        named = self.topics if isinstance(self.topics, str) else getattr(self.topics, "pattern", None)
        return f"{named or ', '.join(self.topics)} at {self.servers}"  # type: ignore[arg-type]

    def prepare(self, settings: Settings) -> None: ...

    def problems(self) -> Iterator[tuple[str, str]]:
        """What cannot work, and what to do."""
        if self.format not in FORMATS:
            yield f"kafka: format {self.format!r} is not known", f"use {', '.join(FORMATS)}"
        if self.misfit not in get_args(Misfit):
            yield f"kafka: misfit={self.misfit!r} is not known", f"use {', '.join(get_args(Misfit))}"
        if self.is_parsed and not self.schema:
            yield f"kafka: {self.format} needs a schema", 'write schema="id BIGINT, name STRING"'
        if (self.format == "avro") != (self.avro is not None):
            yield "kafka: a registry or an Avro schema goes with format='avro'", "say both, or neither"
        elif self.avro is not None:
            yield from self.avro.problems()
        for time in (self.starting, self.ending):
            if isinstance(time, datetime) and time.tzinfo is None:
                yield f"kafka: {time} has no time zone", "write datetime(…, tzinfo=UTC)"
        if isinstance(self.starting, str) and self.starting not in ("earliest", "latest"):
            yield f"kafka: starting={self.starting!r} is not known", "use earliest, latest, offsets or a time"
        for name, value in self.options.items():
            yield from secret_problems("kafka", name, value)
            yield from unknown_options("kafka", [name], _OPTIONS, ("kafka.",))

    def client(self) -> dict[str, str]:
        """Kafka's own settings, with their secrets: for a client alone."""
        return client_settings(self.servers, revealed(self.options))

    def read(self, inputs: Inputs) -> DataFrame:
        if inputs.versions is not None:
            raise SpecError("a materialized view cannot read Kafka", hint="read a streaming table of the topic")
        records = self._ended(self._records(inputs))
        names = (*RECORD, *(name for name in records.columns if name == "headers"))
        own = {name: f"{self.prefix}{name}" for name in names}
        columns = [F.col(name).alias(ours) for name, ours in own.items()]
        if not self.is_parsed:
            value = F.col("value") if self.format == "bytes" else F.make_valid_utf8(F.col("value").cast("string"))
            return records.withColumn("value", value).select("value", *columns)
        schema = parse_schema(inputs.session, self.schema or "")
        if taken := [name for name in schema.names if name.lower() in map(str.lower, own.values())]:
            raise SpecError(
                f"kafka: schema has {', '.join(taken)}, which is the record's own",
                hint='write prefix="kafka_" to call the record\'s own kafka_…',
            )
        texts = self._judged(records, inputs, schema)
        if self.misfit == "fail":
            place = F.format_string("record %d of partition %d of topic %s", "offset", "partition", "topic")
            message = F.concat(place, F.lit(" cannot be parsed: "), F.coalesce(_PROBLEM, reason(schema)))
            texts = texts.where(passes_unless(~self._is_row, message))
        else:
            texts = without_dead_letters(texts, self._letter(schema), spread_by="offset")
        return texts.select(*columns_of(schema), *columns)

    def dead_letters_between(self, inputs: Inputs, starts: BrokerOffsets, ends: BrokerOffsets) -> DataFrame | None:
        """Dead letters from one place up to another, of a partition without a start from its first record; None where
        nothing lies between."""
        firsts = {place: starts.get(place, _EARLIEST) for place, end in ends.items() if starts.get(place, -1) < end}
        firsts = {place: first for place, first in firsts.items() if self._reads(place[0])}
        if not firsts:
            return None
        options = {**revealed(self.options), "kafka.bootstrap.servers": self.servers}
        options |= {"startingOffsets": json.dumps(by_topic(firsts))}
        options |= {"endingOffsets": json.dumps(by_topic({place: ends[place] for place in firsts}))}
        options |= {"assign": json.dumps({topic: [*of] for topic, of in by_topic(firsts).items()})}
        records = self._ended(inputs.session.read.format("kafka").options(**options).load())
        schema = parse_schema(inputs.session, self.schema or "")
        letters = self._judged(records, inputs, schema).withColumn("letter", self._letter(schema))
        return letters.where(F.col("letter").isNotNull()).select("letter.*")

    def _reads(self, topic: str) -> bool:
        if isinstance(self.topics, re.Pattern):
            return bool(self.topics.fullmatch(topic))
        return topic in ([self.topics] if isinstance(self.topics, str) else self.topics)

    def _judged(self, records: DataFrame, inputs: Inputs, schema: StructType) -> DataFrame:
        """Each record as JSON text, parsed, and why it has none."""
        if self.avro is None:
            texts = records.withColumn(TEXT, F.col("value").cast("string")).withColumn(_PROBLEM, F.lit(None))
        elif inputs.schemas is not None:  # rows that never come: nobody needs the registry's password
            texts = records.withColumn(TEXT, F.lit(None).cast("string")).withColumn(_PROBLEM, F.col(TEXT))
        else:
            decoded = records.withColumn(_PROBLEM, self.avro.decoded(F.col("value")))
            texts = decoded.withColumn(TEXT, F.col(f"{_PROBLEM}.json"))
            texts = texts.withColumn(_PROBLEM, F.col(f"{_PROBLEM}.problem"))
        strict = {"allowSingleQuotes": "false", "allowNonNumericNumbers": str(self.avro is not None).lower()}
        return judged(texts, schema, strict)

    @property
    def _is_row(self) -> Column:
        return F.col("value").isNull() | F.col(WHOLE if self.misfit == "null" else FITS)

    def _letter(self, schema: StructType) -> Column:
        own = (name.split()[0] for name in LETTER[:-1])
        return F.when(~self._is_row, F.struct(*own, F.coalesce(_PROBLEM, reason(schema)).alias("reason")))

    def _records(self, inputs: Inputs) -> DataFrame:
        if inputs.schemas is not None:
            headers = f", {_HEADERS}" if str(self.options.get("includeHeaders")).lower() == "true" else ""
            return inputs.stream_of(parse_schema(inputs.session, _RECORDS + headers))
        begins = inputs.starts.get(self.describe())
        if begins is None:
            begins = {"startingOffsets": self._starting_offsets(inputs)}
        if isinstance(self.topics, re.Pattern):
            subscription = {"subscribePattern": self.topics.pattern}
        else:
            subscription = {"subscribe": self.topics if isinstance(self.topics, str) else ",".join(self.topics)}
        options = {**revealed(self.options), **inputs.limits(self)}
        options |= {"kafka.bootstrap.servers": self.servers, **begins, **subscription}
        return inputs.session.readStream.format("kafka").options(**options).load()

    def _starting_offsets(self, inputs: Inputs) -> str:
        """Spark's `startingOffsets`. "latest" and a time are looked up once, and noted in the checkpoint's folder: a
        stream that did not get to its first batch begins where it was to begin."""
        starting, checkpoint = self.starting, f"{inputs.settings.checkpoints_uri}/{inputs.stream}"
        files = CheckpointFiles(inputs.session)
        if starting == "earliest" or files.exists(f"{checkpoint}/offsets"):
            return "earliest"  # a checkpoint knows better than any option
        if isinstance(starting, Mapping):
            return json.dumps(starting)
        digest = hashlib.sha256(f"{self.servers} {self.topics}".encode()).hexdigest()[:8]
        note = f"{checkpoint}/kafka_start_{digest}.json"
        with KafkaClient(inputs.session, self.client()) as broker:
            partitions = broker.partitions(self.topics)
            if not files.exists(note):
                offsets = broker.at(partitions, starting) if isinstance(starting, datetime) else broker.ends(partitions)
                files.write_once(note, json.dumps(by_topic(offsets)))
        noted = json.loads(files.read(note))
        starts = {place: noted.get(place[0], {}).get(str(place[1]), _EARLIEST) for place in partitions}
        return json.dumps(by_topic(starts))

    def _ended(self, records: DataFrame) -> DataFrame:
        if self.ending is None:
            return records
        if isinstance(self.ending, datetime):
            return records.where(F.col("timestamp") < F.lit(self.ending))
        beyond = [
            (F.col("topic") == topic) & (F.col("partition") == partition) & (F.col("offset") >= offset)
            for topic, offsets in self.ending.items()
            for partition, offset in offsets.items()
        ]
        return records.where(~reduce(or_, beyond, F.lit(False)))


def kafka(
    servers: str,
    topics: Topics,
    *,
    format: str = "bytes",
    schema: str | None = None,
    starting: Starting = "earliest",
    ending: Ending = None,
    registry: str | None = None,
    registry_login: Secret | None = None,
    avro_schema: str | None = None,
    misfit: Misfit = "dead letter",
    prefix: str = "",
    options: Mapping[str, str | Secret] | None = None,
    **more: object,
) -> KafkaSource:
    """Records of topics (a name, a list of names, or `re.compile(…)`), each once, with `key`, `topic`, `partition`,
    `offset` and `timestamp` beside their columns.

    `format`: bytes or text (`value`), or json or avro with `schema` as DDL. A record that cannot be parsed, or has a
    value that is none of its column's type, goes to `<name>_dead_letters`. With `misfit="fail"` it ends the stream;
    with "null" such a value is null. `prefix` is put before the names of the record's own columns. Of avro, `registry`
    is the address of a schema registry, `registry_login` a secret `user:password`; without one `avro_schema` is the
    file of the schema that all records are written by. `starting`: "earliest", "latest",
    `{topic: {partition: offset}}` or a time, on the first start alone. `ending`: offsets or a time that no row reaches.
    Options are Spark's by name (`maxOffsetsPerTrigger=10_000`), and Kafka's in `options`
    (`"kafka.security.protocol": "SASL_SSL"`); a secret among them is `secret("env:NAME")`.
    """
    avro = Avro(avro_schema, registry, registry_login) if registry or avro_schema or format == "avro" else None
    named = {**_READ_COMMITTED, **(options or {}), **option_texts(more)}
    return KafkaSource(servers, topics, format, schema, starting, ending, named, avro, misfit, prefix)


def by_topic(offsets: Mapping[Place, T]) -> dict[str, dict[int, T]]:
    """Offsets as Spark's JSON nests them: by topic, then by partition."""
    topics: dict[str, dict[int, T]] = {}
    for (topic, number), offset in offsets.items():
        topics.setdefault(topic, {})[number] = offset
    return topics
