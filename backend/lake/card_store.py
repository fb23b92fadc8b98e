"""Cards on disk, so that a process begins with what the one before it read.

Rule: one file for the roots and settings that its cards were made with, replaced as a whole. A card in it is a claim,
which `cards` believes only while the table's log is the same. Lost or damaged, the file costs time alone.
"""

import hashlib
import logging
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from backend.lake.log.replay import READER_FEATURES
from backend.lake.model import CardColumn, TableCard, TableRef, UnreadableTable
from backend.settings import Settings

FORMAT = 1
LEAST = 20  # tables; fewer are read as fast as a file
MOST_FILES = 8

Table = TableCard | UnreadableTable

_log = logging.getLogger(__name__)  # structlog would cost each command 0.2 s


@dataclass(frozen=True, slots=True)
class StoredCard:
    """A table as it was read, and by what a change of it is noticed. `is_lasting`: a reason that the log alone gave."""

    table: Table
    version: int
    tag: str
    read_at_s: float
    is_lasting: bool = True


class CardStore:
    """`folder` is made when there is something to keep; None keeps nothing. Safe beside other processes."""

    def __init__(self, folder: Path | None, settings: Settings, *, least: int = LEAST) -> None:
        self._path = None if folder is None else folder / f"{_fingerprint(settings)}.json"
        self._least = least

    def load(self) -> list[StoredCard]:
        """What was kept; empty when there is nothing, or nothing that can be believed."""
        if self._path is None:
            return []
        try:
            checksum, _, body = self._path.read_bytes().partition(b"\n")
            if checksum != _checksum(body):
                raise ValueError("the checksum does not fit")
            return [_kept(document) for document in orjson.loads(body)]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError) as exc:
            _log.warning("cards in %s cannot be read: %.200s", self._path, exc)
            return []

    def save(self, stored: Iterable[StoredCard]) -> None:
        cards = list(stored)
        if self._path is None or len(cards) < self._least:
            return
        unfinished = self._path.with_suffix(f".{os.getpid()}")
        body = b"[" + b",".join(_documents(cards)) + b"]"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            unfinished.write_bytes(_checksum(body) + b"\n" + body)
            unfinished.replace(self._path)
            self._prune(self._path.parent)
        except OSError as exc:
            _log.warning("cards are not kept in %s: %.200s", self._path, exc)

    @staticmethod
    def _prune(folder: Path) -> None:
        """Files of other settings, and what a killed process left, go when newer ones come."""
        for file in sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime)[:-MOST_FILES]:
            file.unlink(missing_ok=True)


def _fingerprint(settings: Settings) -> str:
    """What a card depends on besides its table. Of the options of a store only where it is: never a secret."""
    health = settings.health
    places = sorted(
        (root, name, value.get_secret_value())
        for root, options in settings.lake.storage_options.items()
        for name, value in options.items()
        if "endpoint" in name.lower()
    )
    rule = (health.min_files, health.small_file_ratio, health.target_file_bytes)
    named = (FORMAT, settings.roots, places, rule, sorted(READER_FEATURES))
    return hashlib.sha256(repr(named).encode()).hexdigest()[:32]


def _checksum(body: bytes) -> bytes:
    return b"%08x" % zlib.crc32(body)


def _documents(cards: Iterable[StoredCard]) -> Iterator[bytes]:
    """Each as JSON; a table whose name or texts are no Unicode is left out, and so read each time."""
    for card in cards:
        with suppress(TypeError):
            yield orjson.dumps(_document(card), default=tuple)


def _document(card: StoredCard) -> Mapping[str, Any]:
    kind = "card" if isinstance(card.table, TableCard) else "unreadable"
    return {
        kind: card.table,
        "version": card.version,
        "tag": card.tag,
        "read_at_s": card.read_at_s,
        "is_lasting": card.is_lasting,
    }


def _kept(document: dict[str, Any]) -> StoredCard:
    card, reason = document.pop("card", None), document.pop("unreadable", None)
    values = reason if card is None else card
    values["ref"] = TableRef(**values["ref"])
    at = values["last_commit_at"]
    values["last_commit_at"] = None if at is None else datetime.fromisoformat(at)
    if card is None:
        return StoredCard(UnreadableTable(**values), **document)
    values["columns"] = tuple(CardColumn(*column) for column in values["columns"])
    return StoredCard(TableCard(**values), **document)
