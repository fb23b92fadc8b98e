"""Where a stream of Kafka begins, on its first start.

Rule: "latest" and a time are looked up once, and noted beside the checkpoint. A stream and its dead letters begin at
different moments; looked up twice, a record between them would be in neither.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from pipelines.sources.base import Inputs
from pipelines.sources.kafka_client import KafkaClient, Place, Topics

T = TypeVar("T")
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
    with KafkaClient(inputs.session, client) as broker:
        partitions = broker.partitions(topics)
        if not note.exists():
            found = broker.at(partitions, starting) if isinstance(starting, datetime) else broker.ends(partitions)
            _write_once(note, by_topic(found))
    noted = json.loads(note.read_text(encoding="utf-8"))
    known = {place: noted.get(place[0], {}).get(str(place[1]), _EARLIEST) for place in partitions}
    return json.dumps(by_topic(known))


def by_topic(offsets: Mapping[Place, T]) -> dict[str, dict[int, T]]:
    """As Spark writes them: by topic, then by partition."""
    found: dict[str, dict[int, T]] = {}
    for (topic, number), offset in offsets.items():
        found.setdefault(topic, {})[number] = offset
    return found


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
