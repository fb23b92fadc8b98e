"""What a list shows of each table, remembered for as long as the table does not change.

Rule: an unchanged table costs one look at its log; a table that fails shows its reason and hides no other. A reason is
remembered for `RETRY_S` at most, and not at all when the storage, not the table, gave it.
"""

import time
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import PurePath
from typing import Protocol

from backend.errors import LakehouseError, StorageError, TableNotFoundError
from backend.lake.log.commits import commit_name
from backend.lake.log.listing import LOG
from backend.lake.model import Commit, TableCard, TableRef, UnreadableTable
from backend.lake.storage.folder import Folder
from backend.lake.storage.paths import is_remote
from backend.lake.storage.storage import Storage

RETRY_S = 60.0

Table = TableCard | UnreadableTable


class Reader(Protocol):
    """What reads one table's log."""

    def latest_version(self, ref: TableRef) -> int: ...
    def history(self, ref: TableRef, *, limit: int) -> list[Commit]: ...


@dataclass(frozen=True, slots=True)
class _Known:
    """A table as last read, and the newest commit's file by which a change is noticed."""

    ref: TableRef
    folder: Folder
    table: Table
    version: int
    tag: str
    read_at_s: float

    def still_holds(self, ref: TableRef) -> bool:
        old = isinstance(self.table, UnreadableTable) and time.monotonic() - self.read_at_s > RETRY_S
        return not old and self.ref == ref and newest_tag(self.folder, self.version) == self.tag


class Cards:
    """Thread-safe. `make` reads a table's card anew and raises `LakehouseError`."""

    def __init__(self, storage: Storage, reader: Reader, make: Callable[[TableRef], TableCard]) -> None:
        self._storage, self._reader, self._make = storage, reader, make
        self._known: dict[str, _Known] = {}
        self._lost: set[str] = set()

    def card(self, ref: TableRef) -> TableCard:
        """The card of a table at its latest version; raises `LakehouseError`."""
        known = self._known.get(ref.uri)
        if known is not None and isinstance(known.table, TableCard) and known.still_holds(ref):
            return known.table
        card = self._make(ref)
        self._remember(card, card.version)
        return card

    def read(self, ref: TableRef) -> Table:
        """The card of a table, or why there is none; raises nothing."""
        known = self._known.get(ref.uri)
        try:
            if known is not None and known.still_holds(ref):
                return known.table
            return self.card(ref)
        except LakehouseError as exc:
            return self._reason(ref, exc)
        except Exception as exc:  # noqa: BLE001 - one table's boundary: whatever a log holds hides no other table
            return UnreadableTable(ref, *_unexpected(exc))

    def forget(self, uris: Collection[str]) -> None:
        """Drops what is kept of all other tables."""
        for uri in [uri for uri in self._known if uri not in uris]:
            self._known.pop(uri, None)

    def take_lost(self) -> set[str]:
        """Tables (URIs) that had no log when they were last read: each is named once."""
        lost, self._lost = self._lost, set()
        return lost

    def _reason(self, ref: TableRef, exc: LakehouseError) -> UnreadableTable:
        if isinstance(exc, TableNotFoundError):
            self._lost.add(ref.uri)
        newest = None
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
            self._remember(reason, version)
        return reason

    def _remember(self, table: Table, version: int) -> None:
        folder = self._storage.folder(table.ref.uri)
        tag = newest_tag(folder, version)
        if tag is not None:
            self._known[table.ref.uri] = _Known(table.ref, folder, table, version, tag, time.monotonic())


def _unexpected(exc: Exception) -> tuple[str, str]:
    frame = traceback.extract_tb(exc.__traceback__)[-1]
    what = f"Weir failed on its log: {type(exc).__name__}"
    return what, f"a fault of Weir, please report it: {PurePath(frame.filename).name}:{frame.lineno} in {frame.name}"


def newest_tag(folder: Folder, version: int) -> str | None:
    """What names the content of a version's commit file; None when it is not there or no longer the newest."""
    name, after = commit_name(version), commit_name(version + 1)
    if is_remote(folder.uri):  # one request; a local look at two names costs less than listing the log
        entries = folder.list_after(LOG, name.removesuffix("n"), digits_only=True)
        tags = {entry.name: entry.tag for entry in entries}
        return None if after in tags else tags.get(name)
    if folder.stat(f"{LOG}/{after}") is not None:
        return None
    entry = folder.stat(f"{LOG}/{name}")
    return entry.tag if entry else None
