"""Where a stream of Kafka begins, on its first start.

Rule: "latest" and a time are looked up once, and noted beside the checkpoint. A stream and its dead letters begin at
different moments; looked up twice, a record between them would be in neither.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pipelines.failures import SpecError
from pipelines.sources.base import Inputs

Topics = str | Sequence[str] | re.Pattern[str]
Offsets = Mapping[str, Mapping[int, int]]
Starting = str | datetime | Offsets
_EARLIEST = -2  # Spark's number for it


def starting_offsets(
    inputs: Inputs, topics: Topics, starting: Starting, *, stream: str, client: Mapping[str, str]
) -> str:
    """Spark's `startingOffsets`. `stream`: in whose checkpoint folder the position is noted."""
    checkpoints = inputs.settings.home / "checkpoints"
    if starting == "earliest" or (checkpoints / inputs.stream / "offsets").exists():
        return "earliest"  # a checkpoint knows better than any option
    if isinstance(starting, Mapping):
        return json.dumps(starting)
    note = checkpoints / stream / f"kafka_start_{_digest(client['bootstrap.servers'], topics)}.json"
    with _Positions(inputs.session, client) as positions:
        partitions = positions.partitions(topics)
        if not note.exists():
            _write_once(note, positions.at(partitions, starting))
    noted = json.loads(note.read_text(encoding="utf-8"))
    known = {topic: {} for topic, _ in partitions}  # type: dict[str, dict[int, int]]
    for topic, number in partitions:
        known[topic][number] = noted.get(topic, {}).get(str(number), _EARLIEST)
    return json.dumps(known)


class _Positions:
    """Kafka's own client in Spark's JVM."""

    def __init__(self, session: SparkSession, client: Mapping[str, str]) -> None:
        jvm: Any = session.sparkContext._jvm
        settings = jvm.java.util.HashMap()
        reader = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
        for name, value in {**client, "key.deserializer": reader, "value.deserializer": reader}.items():
            settings.put(name, value)
        self._jvm, self._consumer = jvm, jvm.org.apache.kafka.clients.consumer.KafkaConsumer(settings)

    def __enter__(self) -> "_Positions":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def partitions(self, topics: Topics) -> list[tuple[str, int]]:
        """Topic and number of each; raises `SpecError` where a topic is not there."""
        there = self._consumer.listTopics()
        if isinstance(topics, re.Pattern):
            names = [name for name in there if topics.fullmatch(name)]
        else:
            names = [topics] if isinstance(topics, str) else list(topics)
        if missing := [name for name in names if name not in there]:
            raise SpecError(f"kafka: there is no topic {', '.join(missing)}", hint="make it, or mend its name")
        return [(name, info.partition()) for name in names for info in there[name]]

    def at(self, partitions: Iterable[tuple[str, int]], starting: Starting) -> dict[str, dict[int, int]]:
        """The offset of each that is latest, or the first at this time or later."""
        places = {each: self._jvm.org.apache.kafka.common.TopicPartition(*each) for each in partitions}
        asked = self._jvm.java.util.HashMap()
        for place in places.values():
            asked.put(place, int(starting.timestamp() * 1_000) if isinstance(starting, datetime) else 0)
        ends = self._consumer.endOffsets(asked.keySet())
        found = self._consumer.offsetsForTimes(asked) if isinstance(starting, datetime) else {}
        offsets: dict[str, dict[int, int]] = {}
        for (topic, number), place in places.items():
            first = found.get(place)
            offsets.setdefault(topic, {})[number] = first.offset() if first else ends.get(place)
        return offsets


def _write_once(note: Path, offsets: Mapping[str, Mapping[int, int]]) -> None:
    """Whoever comes first decides; the file is never half there."""
    note.parent.mkdir(parents=True, exist_ok=True)
    draft = note.with_suffix(f".{os.getpid()}-{id(offsets)}")
    draft.write_text(json.dumps(offsets), encoding="utf-8")
    try:
        os.link(draft, note)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def _digest(servers: str, topics: Topics) -> str:
    return hashlib.sha256(f"{servers} {topics}".encode()).hexdigest()[:8]
