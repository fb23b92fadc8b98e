"""Where the files that a table's log names lie: below the table or, of a shallow clone, below another allowed root.

Rule: a path is resolved, and refused where it leaves all of them, before a folder is asked for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from backend.errors import DataFileMissingError, ObjectMissingError
from backend.lake.storage.folder import Folder
from backend.lake.storage.paths import is_within, resolve_log_path
from backend.lake.storage.storage import Storage

if TYPE_CHECKING:
    import pyarrow as pa


MISSING_STEP = "open a version whose files are still there, or bring the file back"


class TableFile(NamedTuple):
    """A file's own address, the folder that reads it, and its path in there."""

    uri: str
    folder: Folder
    path: str


class TableFiles:
    """The files of one table, by their decoded paths in its log."""

    def __init__(self, storage: Storage, table: str) -> None:
        self._storage, self._table = storage, table
        self._folders: dict[str, Folder] = {}

    def locate(self, path: str) -> TableFile:
        """Where a file has to be; raises `PathRefusedError`."""
        uri = resolve_log_path(path, self._table, self._storage.roots)
        home = self._table if is_within(uri, self._table) else self._storage.root_of(uri)
        folder = self._folders.get(home) or self._folders.setdefault(home, self._storage.folder(home))
        return TableFile(uri, folder, uri.removeprefix(folder.uri).lstrip("/"))

    def open(self, path: str) -> pa.NativeFile:
        """Raises `PathRefusedError`, `DataFileMissingError` or a `StorageError`."""
        file = self.locate(path)
        try:
            return file.folder.open(file.path)
        except ObjectMissingError as exc:
            raise self.gone(path) from exc

    def gone(self, path: str) -> DataFileMissingError:
        return DataFileMissingError(f"{path} of {self._table} is gone", hint=MISSING_STEP)
