"""Changes of a table as records of a Kafka topic: by a record's key and position a repeat is recognised.

Rule: Spark's Kafka writer has no transactions, so a batch that is replayed is sent again. Its records have the same
keys and positions then, and those of a key always come in the order of their positions.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipelines.jvm.failures import DeliveryError, SpecError, describe, describe_traceback
from pipelines.jvm.kafka import PATIENCE, KafkaClient, client_settings
from pipelines.sinks.changes import CHANGE_TYPE, COMMIT_VERSION, DELETED, by_version, check_feed, own_columns
from pipelines.specs.ends import OutputMode, Secret, Target, revealed, secret_problems
from pipelines.specs.tables import quoted

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_KEY, _VALUE, _POSITION = "_weir_key", "_weir_value", "_weir_position"
_NO_KEY = "kafka_topic: a row's key is null; drop or quarantine such rows by an expectation"


@dataclass(frozen=True, slots=True)
class KafkaTopicSink:
    """`key`: a SQL expression, or columns as one JSON object. `value`: a SQL expression; None: the row as JSON."""

    servers: str
    topic: str
    key: str | tuple[str, ...]
    value: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    tombstones: bool = True
    options: Mapping[str, str | Secret] = field(default_factory=dict, repr=False)
    output_mode: OutputMode = "append"
    kind = "kafka"
    is_native = False

    @property
    def outside(self) -> str:
        return f"{self.topic} at {self.servers}"

    def problems(self) -> Iterator[tuple[str, str]]:
        if not self.servers.strip():
            yield "kafka_topic: names no server", 'write kafka_topic("broker:9092", …)'
        if not _TOPIC.fullmatch(self.topic):
            yield f"kafka_topic: {self.topic!r} is no topic", "use a-z, 0-9, ., _ and -, at most 249 characters"
        if not self.key:
            yield "kafka_topic: names no key", 'write key="order_id": a repeat is recognised by key and position'
        if taken := [name for name in self.headers if name.startswith("weir.")]:
            yield f"kafka_topic: {', '.join(taken)} is the sink's own header", "give it another name"
        for name, value in self.options.items():
            yield from secret_problems("kafka_topic", name, value)
            if not name.startswith("kafka."):
                yield f"kafka_topic: option {name} is not known", "write Kafka's own as kafka.…"

    def judge(self, rows: DataFrame) -> None:
        """Plans the expressions, so that a column that is missing is reported before anything starts."""
        check_feed("kafka_topic", rows.schema, () if isinstance(self.key, str) else self.key)
        rows.select(self._key(), self._value(rows.columns), *(_bytes(F.expr(text)) for text in self.headers.values()))

    def prepare(self, rows: DataFrame) -> None:
        """Raises `DeliveryError` where the broker does not answer or has no such topic."""
        client = client_settings(self.servers, revealed(self.options))
        try:
            with KafkaClient(rows.sparkSession, {**client, **PATIENCE}) as broker:
                broker.partitions(self.topic)
        except SpecError as exc:
            raise DeliveryError(f"Kafka at {self.servers} has no topic {self.topic}", hint="make it") from exc
        except Py4JError as exc:
            message = f"Kafka at {self.servers} does not answer: {describe(exc)[1]}"
            raise DeliveryError(message, hint="look at its address, its login and whether it runs") from exc

    def write(self, batch: DataFrame, target: Target) -> None:
        options = {**revealed(self.options), "kafka.bootstrap.servers": self.servers, "topic": self.topic}
        records = self._records(batch, target)
        try:
            records.write.format("kafka").options(**options).save()
        except (Py4JError, PySparkException) as exc:
            _, why = describe_traceback(str(exc)) or describe(exc)
            message = f"not all records of a batch reached Kafka topic {self.outside}: {why}"
            raise DeliveryError(message, hint="the whole batch is sent again when the stream restarts") from exc

    def _records(self, batch: DataFrame, target: Target) -> DataFrame:
        """Records of a key in one partition, in their order: the writer keeps it."""
        keyed = batch.withColumns({_KEY: self._key(), _VALUE: self._value(batch.columns)})
        in_order = Window.partitionBy(_KEY).orderBy(COMMIT_VERSION, _VALUE)
        numbered = by_version(keyed, [_KEY]).withColumn(_POSITION, F.row_number().over(in_order))
        position = F.format_string("%019d-%010d-%08d", COMMIT_VERSION, F.lit(target.batch_id).cast("bigint"), _POSITION)
        own = {"weir.stream": F.lit(target.stream), "weir.query": F.lit(target.query_id), "weir.position": position}
        own["weir.change"] = F.when(F.col(DELETED), "delete").otherwise(F.col(CHANGE_TYPE))
        named = {**own, **{name: F.expr(text) for name, text in self.headers.items()}}
        headers = [F.struct(F.lit(name).alias("key"), _bytes(of).alias("value")) for name, of in named.items()]
        value = F.when(~F.col(DELETED), F.col(_VALUE)) if self.tombstones else F.col(_VALUE)
        return numbered.select(F.col(_KEY).alias("key"), value.alias("value"), F.array(*headers).alias("headers"))

    def _key(self) -> Column:
        key = F.expr(self.key) if isinstance(self.key, str) else _json(self.key)
        return F.coalesce(_bytes(key), _bytes(F.raise_error(F.lit(_NO_KEY))))

    def _value(self, names: Sequence[str]) -> Column:
        return _bytes(F.expr(self.value) if self.value else _json(own_columns(names)))


def kafka_topic(
    servers: str,
    topic: str,
    *,
    key: str | Sequence[str],
    value: str | None = None,
    headers: Mapping[str, str] | None = None,
    tombstones: bool = True,
    options: Mapping[str, str | Secret] | None = None,
) -> KafkaTopicSink:
    """Send each change of a table as a record. The stream reads `table(…).changes()`.

    `key`: a SQL expression, or a list of columns, sent as a JSON object. `value`: a SQL expression; by default the
    row as JSON. `headers`: SQL expressions by name, beside `weir.position` and others. `tombstones=False`
    sends a deleted row itself instead of no value. `options`: Kafka's as `kafka.…`.
    """
    keys = key if isinstance(key, str) else tuple(key)
    return KafkaTopicSink(servers, topic, keys, value, dict(headers or {}), tombstones, dict(options or {}))


def _json(names: Sequence[str]) -> Column:
    return F.to_json(F.struct(*map(quoted, names)), {"ignoreNullFields": "false"})


def _bytes(value: Column) -> Column:
    """Bytes as they are, anything else as its text."""
    return value.cast("string").cast("binary")
