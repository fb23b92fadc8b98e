"""What a list shows of each table, remembered for as long as the table does not change.

Rule: an unchanged table costs one look at its log, also in the next process; a table that fails shows its reason and
hides no other. A reason that the log alone gave lasts as long as the log is the same, another one for `RETRY_S`, one of
the storage not at all. A card on disk is believed only while its table's log is the same.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from backend.caches import DiskCache
from backend.errors import LakehouseError, StorageError, TableNotFoundError, UnsupportedFeatureError, fault
from backend.lake.catalog import as_they_arrive
from backend.lake.log.listing import LOG, commit_name
from backend.lake.model import CardColumn, TableCard, TableRef, UnreadableTable, VersionReader
from backend.lake.storage.folder import Folder, is_remote
from backend.lake.storage.storage import Storage
from backend.lake.table.properties import READER_FEATURES
from backend.settings import Settings

RETRY_S = 60.0
SAVE_EVERY_S = 60.0  # at most, where a process reads again and again
FORMAT = 2  # of the file
LEAST = 20  # tables; fewer are read as fast as a file
MOST_FILES = 8  # one for each choice of roots and settings, replaced as a whole

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


def _depends_on(settings: Settings) -> tuple[object, ...]:
    """What a card depends on besides its table. Of the options of a store only where it is: never a secret."""
    health = settings.health
    places = sorted(
        (root, name, value.get_secret_value())
        for root, options in settings.lake.storage_options.items()
        for name, value in options.items()
        if "endpoint" in name.lower()
    )
    rule = (health.min_files, health.small_file_ratio, health.target_file_bytes)
    return FORMAT, settings.roots, places, rule, sorted(READER_FEATURES)


def _documents(cards: Iterable[StoredCard]) -> Iterator[bytes]:
    """Each as JSON; a table whose name or texts are no Unicode is left out, and so read each time."""
    for card in cards:
        kind = "card" if isinstance(card.table, TableCard) else "unreadable"
        traits = {"version": card.version, "tag": card.tag, "read_at_s": card.read_at_s, "is_lasting": card.is_lasting}
        with suppress(TypeError):
            yield orjson.dumps({kind: card.table, **traits}, default=tuple)


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


# what is known in this process -----------------------------------------------------------------------------------


class Cards:
    """Thread-safe. `make` reads a table's card anew and raises `LakehouseError`."""

    def __init__(
        self, storage: Storage, reader: VersionReader, make: Callable[[TableRef], TableCard], settings: Settings
    ) -> None:
        self._storage, self._reader, self._make = storage, reader, make
        self._store, self._depends_on = DiskCache(settings.home / "cache" / "cards", MOST_FILES), _depends_on(settings)
        self._known: dict[str, StoredCard] = {}
        self._lost: set[str] = set()
        self._there: Collection[str] = ()
        self._roots: dict[str, Folder] = {}
        self._saving = threading.Lock()
        self._is_loaded = self._is_changed = False
        self._save_due_s = 0.0

    def read_all(self, refs: Sequence[TableRef]) -> Iterator[Table]:
        """A card, or why there is none, for each table as it arrives. What another process kept is known from the first
        call on, and what is new is kept for the next one."""
        with self._saving:
            self._roots = {}  # a root may lead elsewhere by now
            if not self._is_loaded:
                self._is_loaded = True
                self._known = {card.table.ref.uri: card for card in self._stored()} | self._known
        left = []
        try:
            for ref in refs:
                table = None
                with suppress(LakehouseError):  # whoever reads the table then says what is wrong
                    table = None if is_remote(ref.uri) else self._unchanged(ref)
                if table is None:
                    left.append(ref)
                else:
                    yield table
            yield from as_they_arrive(self._read, left)
        finally:
            self._save()

    def _save(self) -> None:
        with self._saving:
            if self._is_changed and time.monotonic() >= self._save_due_s:
                self._is_changed, self._save_due_s = False, time.monotonic() + SAVE_EVERY_S
                cards = [card for uri, card in list(self._known.items()) if uri in self._there]
                if len(cards) >= LEAST:
                    self._store.save(b"[" + b",".join(_documents(cards)) + b"]", *self._depends_on)

    def _stored(self) -> list[StoredCard]:
        """What another process kept; empty when there is nothing, or nothing that can be believed."""
        try:
            return [_kept(document) for document in orjson.loads(self._store.load(*self._depends_on) or b"[]")]
        except (ValueError, KeyError, TypeError) as exc:
            _log.warning("kept cards cannot be read: %.200s", exc)
            return []

    def _unchanged(self, ref: TableRef) -> Table | None:
        """What is known of a table whose log is still the same; None where it has to be read."""
        stored = self._known.get(ref.uri)
        if stored is None or stored.table.ref != ref:
            return None
        if not stored.is_lasting and not 0 <= time.time() - stored.read_at_s <= RETRY_S:
            return None
        return stored.table if self._tag(ref, stored.version) == stored.tag else None

    def card(self, ref: TableRef) -> TableCard:
        """The card of a table at its latest version; raises `LakehouseError`."""
        stored = self._unchanged(ref)
        if isinstance(stored, TableCard):
            return stored
        card = self._make(ref)
        self._remember(card, card.version)
        return card

    def _read(self, ref: TableRef) -> Table:
        """The card of a table, or why there is none; raises nothing."""
        try:
            return self._unchanged(ref) or self.card(ref)
        except LakehouseError as exc:
            return self._reason(ref, exc)
        except Exception as exc:  # noqa: BLE001 - one table's boundary: whatever a log holds hides no other table
            error = fault(exc, on="its log")
            return UnreadableTable(ref, error.message, error.hint)

    def forget(self, uris: Collection[str]) -> None:
        """Drops what is kept of all other tables."""
        self._there = uris
        for uri in [uri for uri in self._known if uri not in uris]:
            self._known.pop(uri, None)
            self._is_changed = True

    def take_lost(self) -> set[str]:
        """Tables (URIs) that had no log when they were last read: each is named once."""
        lost, self._lost = self._lost, set()
        return lost

    def _reason(self, ref: TableRef, exc: LakehouseError) -> UnreadableTable:
        if isinstance(exc, TableNotFoundError):
            self._lost.add(ref.uri)
        try:
            version = self._reader.latest_version(ref)
            newest = next(iter(self._reader.history(ref, limit=1)), None)
        except LakehouseError:
            return UnreadableTable(ref, exc.message, exc.hint)
        reason = UnreadableTable(
            ref,
            exc.message,
            exc.hint,
            version,
            newest.committed_at if newest else None,
            newest.operation if newest else None,
        )
        if not isinstance(exc, StorageError):
            self._remember(reason, version, is_lasting=isinstance(exc, UnsupportedFeatureError))
        return reason

    def _remember(self, table: Table, version: int, *, is_lasting: bool = True) -> None:
        tag = self._tag(table.ref, version)
        if tag is not None:
            self._known[table.ref.uri] = StoredCard(table, version, tag, time.time(), is_lasting)
            self._is_changed = True

    def _tag(self, ref: TableRef, version: int) -> str | None:
        """What names the content of a version's commit file, and of a local log around it, which changes with each file
        that comes or goes; None when the commit is not there or no longer the newest. A look costs less than a listing:
        one request of an object store."""
        name, after = commit_name(version), commit_name(version + 1)
        below, log, folder = ref.uri.removeprefix(f"{ref.root.rstrip('/')}/"), LOG, self._roots.get(ref.root)
        if is_remote(ref.uri):
            listed = self._storage.folder(ref.uri).list_after(LOG, name.removesuffix("n"), digits_only=True)
            entries = {entry.name: entry for entry in listed}
            newest = entries.get(name)
            return f"{newest.tag} {newest.modified_at} {newest.size_bytes}" if newest and after not in entries else None
        if below == ref.uri:  # the root itself, or a place that only leads below it
            folder = self._storage.folder(ref.uri)
        else:
            log = f"{below}/{LOG}"
            if folder is None:  # one for all: to look where its links lead takes longer than the look at a log
                folder = self._roots[ref.root] = self._storage.folder(ref.root)
        newest, following, around = folder.stat_many([f"{log}/{name}", f"{log}/{after}", f"{log}/"])
        return f"{newest.tag} {around.tag}" if newest and around and following is None else None
