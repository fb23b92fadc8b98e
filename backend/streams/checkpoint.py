"""The checkpoint of a stream as Spark left it in its folder: what was planned, what was finished, where sources stood;
and where a first start begins, which a reset left there.

Rule: reads and never judges; a file that cannot be read is named in the error.
An offset is known by its shape; one of an unknown shape is kept as text and counted by nobody.
Spark honours options of a first start until its checkpoint has a place in the source, and never afterwards. So they lie
in the new, empty checkpoint's folder, and go away with it.
Source: the layout that Spark's StreamingCheckpointConstants and OffsetSeqLog write (`v1`, a line of metadata, a line a
source), and offsets as DeltaSourceOffset, FileStreamSourceOffset and KafkaSourceOffset write them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from backend.errors import (
    CheckpointError,
    LakehouseError,
    ObjectMissingError,
)
from backend.lake.storage.folder import Folder
from backend.lake.storage.storage import declared_folder
from backend.settings import Settings
from backend.stream_model.stream import InputKind, StreamDeclaration, StreamInput

START = "start.json"
Starts = Mapping[str, Mapping[str, str]]  # options of each source's reader, by `key_of`
_NONE = "-"  # a source that had nothing to offer yet


@dataclass(frozen=True, slots=True)
class StreamCheckpoint:
    """Batches by id, ascending. `planned`: their offsets are there; `finished`: so is their commit."""

    folder: Folder
    has_metadata: bool
    planned: tuple[int, ...]
    finished: tuple[int, ...]

    def until(self, batch: int) -> "StreamCheckpoint":
        """As if nothing behind this batch had been planned."""
        planned, finished = (tuple(each for each in of if each <= batch) for of in (self.planned, self.finished))
        return replace(self, planned=planned, finished=finished)

    @property
    def is_empty(self) -> bool:
        return not (self.has_metadata or self.planned or self.finished)

    @property
    def processed_batch(self) -> int | None:
        """The newest batch that Spark will not run again; None before the first one ended.

        Of a planned batch without a commit Spark runs the last one again, whatever else is missing.
        """
        if not self.planned:
            return None
        last = self.planned[-1]
        if last in self.finished:
            return last
        return last - 1 if last > 0 else None


@dataclass(frozen=True, slots=True)
class Offsets:
    """Where the sources stood at the end of a batch, in Spark's order: each as its JSON, None for "nothing yet".
    `conf`: Spark's settings that the checkpoint goes on with."""

    sources: tuple[str | None, ...]
    conf: Mapping[str, str]


def read_checkpoint(folder: Folder) -> StreamCheckpoint:
    """The names in a checkpoint's folder: empty where there is none yet; raises `StorageError`."""
    has_metadata = folder.stat("metadata") is not None
    return StreamCheckpoint(folder, has_metadata, _batches(folder, "offsets"), _batches(folder, "commits"))


def query_id(folder: Folder) -> str:
    """The query's id as `metadata` keeps it; raises `CheckpointError`, or `ObjectMissingError` without the file."""
    metadata = _json(_text(folder, "metadata"), "metadata")
    if not isinstance(metadata.get("id"), str):
        raise CheckpointError("metadata: it names no query id", file="metadata")
    return str(metadata["id"])


def read_offsets(folder: Folder, batch_id: int) -> Offsets:
    """Raises `CheckpointError` naming the file that cannot be read."""
    name = f"offsets/{batch_id}"
    try:
        lines = _text(folder, name).splitlines()
    except ObjectMissingError as exc:
        raise CheckpointError(f"{name} is missing", file=name, hint="an older copy of the folder may hold it") from exc
    if not lines or not lines[0].startswith("v"):
        fault = "is empty" if not lines else f"begins with {lines[0][:20]!r} instead of a version"
        raise CheckpointError(f"{name} {fault}: its writer was cut off", file=name)
    if lines[0] != "v1":
        raise CheckpointError(f"{name} has format {lines[0]}, which is not known here", file=name)
    if len(lines) < 3:
        raise CheckpointError(f"{name} names no source: its writer was cut off", file=name)
    metadata = _json(lines[1], name)
    conf = {str(key): str(value) for key, value in (metadata.get("conf") or {}).items()}
    return Offsets(tuple(None if line == _NONE else line for line in lines[2:]), conf)


def check_commit(folder: Folder, batch_id: int) -> None:
    """Raises `CheckpointError` where the commit of a batch cannot be read."""
    name = f"commits/{batch_id}"
    version, _, rest = _text(folder, name).partition("\n")
    if not version.startswith("v"):
        fault = "is empty" if not version else f"begins with {version[:20]!r} instead of a version"
        raise CheckpointError(f"{name} {fault}: its writer was cut off", file=name)
    _json(rest.partition("\n")[0], name)


def pinned_by(settings: Settings, declared: StreamDeclaration) -> Mapping[str, str]:
    """Spark's settings that every start goes on with, whatever it is told: those of its checkpoint's newest batch.

    Empty before a batch, and where the checkpoint cannot be read: a preflight says so.
    """
    try:
        folder = declared_folder(settings, declared.checkpoint_location)
        planned = read_checkpoint(folder).planned
        return read_offsets(folder, planned[-1]).conf if planned else {}
    except LakehouseError:
        return {}


def _batches(folder: Folder, path: str) -> tuple[int, ...]:
    names = (entry.name for entry in folder.list_after(path, "", digits_only=True))
    return tuple(sorted(int(name) for name in names if name.isdigit()))


def _text(folder: Folder, name: str) -> str:
    try:
        return folder.read(name).decode()
    except UnicodeDecodeError as exc:
        raise CheckpointError(f"{name} is no text: {exc.reason}", file=name) from exc


def _json(text: str, name: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError as exc:
        raise CheckpointError(f"{name} is not JSON: cut off or garbage", file=name) from exc
    if not isinstance(body, dict):
        raise CheckpointError(f"{name} holds no JSON object", file=name)
    return body


# positions -----------------------------------------------------------------------------------------------------------


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
Placed = tuple[int, Position]  # a position, and its source's number in the checkpoint
_OF_KIND: dict[InputKind, type[Position]] = {
    InputKind.TABLE: DeltaPosition,
    InputKind.CHANGE_FEED: DeltaPosition,
    InputKind.FILES: FilesPosition,
    InputKind.KAFKA: KafkaPosition,
}


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


def matched(
    inputs: Sequence[StreamInput], placed: Sequence[Placed], table_ids: Sequence[str | None]
) -> Mapping[int, Placed]:
    """Positions by the input's number: tables by their id, since Spark's plan orders the sources, what is left in the
    order of both."""
    left, matches = list(placed), dict[int, Placed]()

    def take(number: int, fitting: Iterator[Placed]) -> None:
        if (first := next(fitting, None)) is not None:
            matches[number] = first
            left.remove(first)

    for number, table_id in enumerate(table_ids):
        tables = ((pair, at) for pair in left if isinstance(at := pair[1], DeltaPosition))
        take(number, (pair for pair, at in tables if at.table_id == table_id))
    for number, source in enumerate(inputs):
        kind = _OF_KIND.get(InputKind(source.kind))
        if number not in matches and kind is not None:
            take(number, (pair for pair in left if isinstance(pair[1], kind)))
    return matches


# where a first start begins ------------------------------------------------------------------------------------------


def key_of(source: StreamInput) -> str:
    return source.uri or source.name


def begun_at(declared: StreamDeclaration, starts: Starts) -> StreamDeclaration:
    """The declaration with the options of a first start from there."""
    inputs = (
        replace(source, options=begun(source.options, starts.get(key_of(source), {}))) if source.has_place else source
        for source in declared.inputs
    )
    return replace(declared, inputs=tuple(inputs))


def begun(declared: Mapping[str, str], start: Mapping[str, str]) -> dict[str, str]:
    """A reader's options; a start takes the place of where it was declared to begin."""
    others = {key: value for key, value in declared.items() if not (start and key.lower().startswith("starting"))}
    return {**others, **start}


def read_starts(checkpoint: Folder) -> Starts:
    """Those that a reset left; {} once a batch has a place in each source, or where there are none."""
    if checkpoint.stat(START) is None:
        return {}
    planned = read_checkpoint(checkpoint).planned
    if planned and None not in read_offsets(checkpoint, planned[-1]).sources:
        return {}
    starts: Starts = json.loads(checkpoint.read(START))
    return starts
