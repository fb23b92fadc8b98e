"""Where a stream of Kafka begins, on its first start.

Rule: "latest" and a time are looked up once, and noted beside the checkpoint. A stream and its dead letters begin at
different moments; looked up twice, a record between them would be in neither.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import TypeVar

from pipelines.jvm.hadoop import CheckpointFiles
from pipelines.jvm.kafka import KafkaClient, Place, Topics
from pipelines.specs.sources import Inputs

T = TypeVar("T")
Offsets = Mapping[str, Mapping[int, int]]
Starting = str | datetime | Offsets
_EARLIEST = -2  # Spark's number for it


def starting_offsets(
    inputs: Inputs, topics: Topics, starting: Starting, *, stream: str, client: Mapping[str, str]
) -> str:
    """Spark's `startingOffsets`. `stream`: in whose checkpoint folder the position is noted."""
    checkpoints, files = inputs.settings.checkpoints_uri, CheckpointFiles(inputs.session)
    if starting == "earliest" or files.exists(f"{checkpoints}/{inputs.stream}/offsets"):
        return "earliest"  # a checkpoint knows better than any option
    if isinstance(starting, Mapping):
        return json.dumps(starting)
    note = f"{checkpoints}/{stream}/kafka_start_{_digest(client['bootstrap.servers'], topics)}.json"
    with KafkaClient(inputs.session, client) as broker:
        partitions = broker.partitions(topics)
        if not files.exists(note):
            found = broker.at(partitions, starting) if isinstance(starting, datetime) else broker.ends(partitions)
            files.write_once(note, json.dumps(by_topic(found)))
    noted = json.loads(files.read(note))
    known = {place: noted.get(place[0], {}).get(str(place[1]), _EARLIEST) for place in partitions}
    return json.dumps(by_topic(known))


def by_topic(offsets: Mapping[Place, T]) -> dict[str, dict[int, T]]:
    """As Spark writes them: by topic, then by partition."""
    found: dict[str, dict[int, T]] = {}
    for (topic, number), offset in offsets.items():
        found.setdefault(topic, {})[number] = offset
    return found


def _digest(servers: str, topics: Topics) -> str:
    return hashlib.sha256(f"{servers} {topics}".encode()).hexdigest()[:8]
