"""Checkpoints that resets set aside, each in a folder of its own with a note: what an undo finds again.

Rule: read only; the host that resets writes here, nobody deletes.
"""

import json
from dataclasses import dataclass

from backend.lake.storage.folder import Folder
from backend.lake.storage.storage import declared_folder
from backend.settings import Settings

NOTE, CHECKPOINT = "reset.json", "checkpoint"
_FOLDER = ".set_aside"  # among the checkpoints, so that moving one is a rename


@dataclass(frozen=True, slots=True)
class Note:
    """What a reset found: `versions` of the stream's tables by URI, before it did anything. `undoes`: another's job."""

    job_id: str
    level: str
    at: str
    actor: str
    reason: str
    versions: dict[str, int]
    undoes: str | None = None


def set_aside_folder(settings: Settings, stream: str) -> str:
    return f"{settings.checkpoints_uri}/{_FOLDER}/{stream}"


def set_aside(settings: Settings, stream: str) -> list[str]:
    """Resets that can be taken back, by the names of their folders, oldest first."""
    folder = declared_folder(settings, set_aside_folder(settings, stream))
    names = [each.name for each in folder.list("")]
    notes = {name: read_note(folder, name) for name in names if folder.stat(f"{name}/{NOTE}")}
    kept = [name for name in notes if folder.holds(f"{name}/{CHECKPOINT}")]
    return sorted(kept, key=lambda name: notes[name].at)


def read_note(folder: Folder, name: str) -> Note:
    """The note of one of the folders in that of a stream."""
    return Note(**json.loads(folder.read(f"{name}/{NOTE}")))
