"""Checkpoints that resets set aside, each in a folder of its own with a note: what an undo finds again.

Rule: read only; the host that resets writes here, nobody deletes.
"""

import json
from dataclasses import dataclass
from pathlib import Path

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


def set_aside_folder(settings: Settings, stream: str) -> Path:
    return settings.home / "checkpoints" / _FOLDER / stream


def set_aside(settings: Settings, stream: str) -> list[Path]:
    """Resets that can be taken back, oldest first."""
    notes = set_aside_folder(settings, stream).glob(f"*/{NOTE}")
    kept = [each.parent for each in notes if (each.parent / CHECKPOINT).exists()]
    return sorted(kept, key=lambda folder: read_note(folder).at)


def read_note(folder: Path) -> Note:
    return Note(**json.loads((folder / NOTE).read_text(encoding="utf-8")))
