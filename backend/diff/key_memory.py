"""The key that a table was last compared by, for whoever compares it next without naming one.

Rule: what was learned is a hint, never an answer: it is kept in a file of its own a table, read again each time, and
lost without harm.
"""

import hashlib
import os
from pathlib import Path

import orjson
import structlog

from backend.diff.model import KeySource, VersionDiff
from backend.lake.model import TableRef

log_ = structlog.get_logger()


class KeyMemory:
    """`folder` is made when something is learned."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def known(self, ref: TableRef) -> tuple[str, ...] | None:
        """The columns of the last key that a person gave and that told the rows apart; None when there is none."""
        try:
            names = orjson.loads(self._path(ref).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, orjson.JSONDecodeError) as exc:
            log_.warning("key_unreadable", table=ref.name, error=str(exc)[:200])
            return None
        return tuple(map(str, names)) if isinstance(names, list) and names else None

    def learn(self, found: VersionDiff) -> None:
        """Keep a key that was given, where no changed row had to be set apart."""
        if found.key is None or found.key.source is not KeySource.GIVEN or found.apart.rows or not found.is_available:
            return
        path = self._path(found.ref)
        unfinished = path.with_suffix(f".{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished.write_bytes(orjson.dumps(found.key.columns))
            unfinished.replace(path)
        except OSError as exc:
            log_.warning("key_not_kept", table=found.ref.name, error=str(exc)[:200])

    def _path(self, ref: TableRef) -> Path:
        return self._folder / f"{hashlib.sha256(ref.uri.encode()).hexdigest()[:32]}.json"


def key_memory(home: Path) -> KeyMemory:
    return KeyMemory(home / "cache" / "keys")
