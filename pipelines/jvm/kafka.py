"""Kafka's own client in Spark's JVM: which partitions there are, where they begin and end, and when a record came.

Rule: only asks; it joins no consumer group and commits no offset. Lists and dicts become Java's by themselves.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from pipelines.jvm.failures import SpecError

Topics = str | Sequence[str] | re.Pattern[str]
Place = tuple[str, int]  # topic and partition
Offsets = dict[Place, int]
PATIENCE = {"default.api.timeout.ms": "8000", "request.timeout.ms": "7000"}  # for a broker that does not answer


def client_settings(servers: str, options: Mapping[str, str]) -> dict[str, str]:
    """Kafka's own settings out of Spark's options."""
    own = {name.removeprefix("kafka."): value for name, value in options.items() if name.startswith("kafka.")}
    return {**own, "bootstrap.servers": servers}


class KafkaClient:
    """Used as a context. `client` are Kafka's settings; some of them may be secret."""

    def __init__(self, session: SparkSession, client: Mapping[str, str]) -> None:
        jvm: Any = session.sparkContext._jvm
        reader = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
        own = {"key.deserializer": reader, "value.deserializer": reader, "enable.auto.commit": "false"}
        self._jvm, self._settings = jvm, {**client, **own}
        self._consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(self._settings)

    def __enter__(self) -> "KafkaClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def partitions(self, topics: Topics) -> list[Place]:
        """Topic and number of each; raises `SpecError` where a topic is not there."""
        there = self._consumer.listTopics()
        if isinstance(topics, re.Pattern):
            names = [name for name in there if topics.fullmatch(name)]
        else:
            names = [topics] if isinstance(topics, str) else list(topics)
        if missing := [name for name in names if name not in there]:
            raise SpecError(f"kafka: there is no topic {', '.join(missing)}", hint="make it, or mend its name")
        return [(name, info.partition()) for name in names for info in there[name]]

    def firsts(self, partitions: Iterable[Place]) -> Offsets:
        """The first offset of each that is still there."""
        return self._offsets(partitions, self._consumer.beginningOffsets)

    def ends(self, partitions: Iterable[Place]) -> Offsets:
        """The next offset of each."""
        return self._offsets(partitions, self._consumer.endOffsets)

    def at(self, partitions: Iterable[Place], moment: datetime) -> Offsets:
        """The first offset of each at this time or later; its end where there is none."""
        places = self._places(partitions)
        asked = dict.fromkeys(places.values(), int(moment.timestamp() * 1_000))
        offsets, ends = self._consumer.offsetsForTimes(asked), self.ends(places)
        return {key: offsets[place].offset() if offsets.get(place) else ends[key] for key, place in places.items()}

    def times(self, offsets: Offsets, *, wait_s: float) -> dict[Place, datetime]:
        """When the record at each offset, or the next one there is, was written; those that answer within the time."""
        times: dict[Place, datetime] = {}
        for partition, offset in offsets.items():
            place = self._jvm.org.apache.kafka.common.TopicPartition(*partition)
            self._consumer.assign([place])
            self._consumer.seek(place, offset)
            records = self._consumer.poll(self._jvm.java.time.Duration.ofMillis(int(wait_s * 1_000)))
            if not records.isEmpty():
                times[partition] = datetime.fromtimestamp(records.iterator().next().timestamp() / 1_000, UTC)
        return times

    def retention_ms(self, topics: Collection[str]) -> dict[str, int | None]:
        """`retention.ms` of each; None where the broker lets nobody read it."""
        types = self._jvm.org.apache.kafka.common.config.ConfigResource
        kind = getattr(self._jvm, "org.apache.kafka.common.config.ConfigResource$Type").TOPIC
        admin = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(self._settings)
        try:
            asked = {name: types(kind, name) for name in topics}
            configs = admin.describeConfigs(list(asked.values())).all().get()
            return {name: int(configs[resource].get("retention.ms").value()) for name, resource in asked.items()}
        except Py4JError:  # not every broker lets a client read its settings
            return dict.fromkeys(topics)
        finally:
            admin.close()

    def _offsets(self, partitions: Iterable[Place], ask: Any) -> Offsets:
        places = self._places(partitions)
        offsets = ask(list(places.values()))
        return {partition: offsets[place] for partition, place in places.items()}

    def _places(self, partitions: Iterable[Place]) -> dict[Place, Any]:
        topic_partition = self._jvm.org.apache.kafka.common.TopicPartition
        return {partition: topic_partition(*partition) for partition in partitions}
