"""The checkpoint of a stream as Spark left it in its folder: what was planned, what was finished, where sources stood.

Rule: reads and never judges; a file that cannot be read is named in the error.
Source: the layout that Spark's StreamingCheckpointConstants and OffsetSeqLog write (`v1`, a line of metadata, a line a
source).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from backend.errors import CheckpointError, LakehouseError, ObjectMissingError
from backend.lake.storage.folder import Folder
from backend.lake.storage.storage import declared_folder
from backend.settings import Settings
from backend.stream_model.stream import StreamDeclaration

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
    """Where the sources stood at the end of a batch, in Spark's order: each as its JSON, None for "nothing yet"."""

    batch_id: int
    planned_at: datetime | None
    sources: tuple[str | None, ...]
    conf: Mapping[str, str] = field(default_factory=dict)
    watermark: datetime | None = None


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
    return Offsets(
        batch_id,
        _moment(metadata.get("batchTimestampMs")),
        tuple(None if line == _NONE else line for line in lines[2:]),
        {str(key): str(value) for key, value in (metadata.get("conf") or {}).items()},
        _moment(metadata.get("batchWatermarkMs")),
    )


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


def _moment(millis: Any) -> datetime | None:
    """Spark writes 0 until it knows."""
    return datetime.fromtimestamp(millis / 1_000, UTC) if isinstance(millis, int) and millis > 0 else None
