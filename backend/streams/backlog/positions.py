"""Where a source stands, as its offset in the checkpoint says it.

Rule: an offset is known by its shape; one of an unknown shape is kept as text and counted by nobody.
Source: DeltaSourceOffset, FileStreamSourceOffset and KafkaSourceOffset as Spark writes them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backend.lake.storage.folder import Folder
from backend.streams.checkpoint import read_offsets


@dataclass(frozen=True, slots=True)
class DeltaPosition:
    """Before the file after `index` of `version`. `is_initial`: within the snapshot of that version, file by file."""

    table_id: str
    version: int
    index: int
    is_initial: bool
    by_event_time: bool = False  # an initial snapshot in order of event time has no index

    @property
    def files_read(self) -> int:
        """How many files of `version` were read."""
        return max(0, self.index + 1)


@dataclass(frozen=True, slots=True)
class FilesPosition:
    """After the files of this entry of the source's own log."""

    log_offset: int


@dataclass(frozen=True, slots=True)
class KafkaPosition:
    """The next offset of each partition, by topic."""

    offsets: Mapping[str, Mapping[int, int]]

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self.offsets)


@dataclass(frozen=True, slots=True)
class VersionsPosition:
    """The version of each table, by URI, that a materialized view was computed from."""

    versions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class OtherPosition:
    text: str


Position = DeltaPosition | FilesPosition | KafkaPosition | VersionsPosition | OtherPosition


def read_positions(checkpoint: Folder, batch: int | None) -> dict[int, Position]:
    """Where the sources stood at the end of a batch, by their number in the checkpoint; without those that had nothing
    yet. Raises what `read_offsets` raises."""
    lines = read_offsets(checkpoint, batch).sources if batch is not None else ()
    return {place: parse_position(line) for place, line in enumerate(lines) if line is not None}


def parse_position(text: str) -> Position:
    """Never raises: what is not known is an `OtherPosition`."""
    try:
        return _known(json.loads(text)) or OtherPosition(text)
    except ValueError:
        return OtherPosition(text)


def position_of(offset: object) -> Position:
    """The same of an offset that is read from JSON already."""
    return _known(offset) or OtherPosition(json.dumps(offset))


def _known(offset: object) -> Position | None:
    if not isinstance(offset, dict):
        return None
    if "reservoirId" in offset:
        return _delta(offset)
    if offset.keys() == {"logOffset"} and isinstance(offset["logOffset"], int):
        return FilesPosition(offset["logOffset"])
    if offset and all(isinstance(value, dict) for value in offset.values()):
        return _kafka(offset)
    if offset and all(type(value) is int for value in offset.values()):
        return VersionsPosition(offset)
    return None


def _delta(offset: Mapping[str, Any]) -> DeltaPosition | None:
    table_id, version, index = offset.get("reservoirId"), offset.get("reservoirVersion"), offset.get("index")
    if not isinstance(table_id, str) or type(version) is not int or type(index) is not int:
        return None
    by_event_time = offset.get("eventTimeMillis") is not None
    return DeltaPosition(table_id, version, index, offset.get("isStartingVersion") is True, by_event_time)


def _kafka(found: Mapping[str, Mapping[str, Any]]) -> KafkaPosition | None:
    try:
        return KafkaPosition(
            {
                topic: {int(partition): int(offset) for partition, offset in offsets.items()}
                for topic, offsets in found.items()
            }
        )
    except (TypeError, ValueError):
        return None
