"""The preview of a reset, read from the store, the stream's sources, and the checkpoints that earlier resets set aside.

Rule: reads alone; `backend.streams.reset.plan` says what it means. Each reset has a folder of its own with a note, by
which an undo finds it again: the host that resets writes there, nobody deletes.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from backend.errors import LakehouseError, StreamNotFoundError
from backend.lake.lake import Lake
from backend.lake.storage.folder import Folder
from backend.lake.storage.storage import declared_folder
from backend.settings import Settings
from backend.store.store import ControlStore
from backend.stream_model.stream import StreamDeclaration
from backend.streams.backlog.reader import BacklogReader
from backend.streams.reset.plan import ResetLevel, ResetPreview, preview, why_kept
from backend.streams.reset.starts import Starts, begun_at
from backend.streams.verdict import StreamStatus

NOTE, CHECKPOINT = "reset.json", "checkpoint"
_FOLDER = ".set_aside"  # among the checkpoints, so that moving one is a rename


@dataclass(frozen=True, slots=True)
class ResetNote:
    """What a reset found: `versions` of the stream's tables by URI, before it did anything. `undoes`: another's job."""

    job_id: str
    level: str
    at: str
    actor: str
    reason: str
    versions: dict[str, int]
    undoes: str | None = None


def load_preview(
    settings: Settings,
    lake: Lake,
    store: ControlStore,
    statuses: Sequence[StreamStatus],
    *,
    name: str,
    level: ResetLevel,
    now: datetime,
    starts: Starts = MappingProxyType({}),
) -> ResetPreview:
    """`starts`: where each source begins, of FROM. Raises `StreamNotFoundError` or `StoreError`."""
    named = {status.declaration.name: status for status in statuses}
    if name not in named:
        raise StreamNotFoundError(f"no stream {name!r}", hint=f"streams: {', '.join(named) or 'none'}")
    declared = named[name].declaration
    topics = store.topic_ends().get(name, ())
    again = BacklogReader(settings, lake).from_start(begun_at(declared, starts), topics, now=now)
    return preview(
        named[name],
        level,
        [status.declaration for status in statuses],
        again=again,
        set_aside=set_aside(settings, name),
        kept=_kept(lake, declared, level),
    )


def set_aside_folder(settings: Settings, stream: str) -> str:
    return f"{settings.checkpoints_uri}/{_FOLDER}/{stream}"


def set_aside(settings: Settings, stream: str) -> list[str]:
    """Resets that can be taken back, by the names of their folders, oldest first."""
    folder = declared_folder(settings, set_aside_folder(settings, stream))
    names = [entry.name for entry in folder.list("")]
    notes = {name: read_note(folder, name) for name in names if folder.stat(f"{name}/{NOTE}")}
    whole = [name for name in notes if folder.holds(f"{name}/{CHECKPOINT}")]
    return sorted(whole, key=lambda name: notes[name].at)


def read_note(folder: Folder, name: str) -> ResetNote:
    """The note of one of the folders in that of a stream."""
    return ResetNote(**json.loads(folder.read(f"{name}/{NOTE}")))


def _kept(lake: Lake, declared: StreamDeclaration, level: ResetLevel) -> str:
    """Why one of its tables may not be touched. One that cannot be read, or is not there, is not known to say so: the
    host looks again."""
    for output in declared.outputs:
        try:
            properties = lake.snapshot(lake.find(output.uri)).metadata.configuration
        except LakehouseError:
            continue
        if why := why_kept(output.table, properties, level):
            return why
    return ""
