"""The only door to bytes: local folders and object stores, each below an allowed root.

Rule: nothing outside a root is opened, whatever a log or a symlink says; nothing is ever written; foreign errors end
here as `StorageError`, `ObjectMissingError` or `PathRefusedError`. Object stores are read through obstore, local
folders through the operating system: it sees a symlink, and a read costs a tenth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from backend.errors import DataFileMissingError, ObjectMissingError, PathRefusedError
from backend.lake.storage.folder import Folder, is_remote, is_within, normal_uri, resolve_log_path
from backend.lake.storage.local_folder import LocalFolder, real
from backend.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa


class Storage:
    """The allowed roots, and those `beside` them. `folder` hands out a reader of one folder below one of them."""

    def __init__(self, settings: Settings, *, beside: Sequence[str] = ()) -> None:
        self.roots: tuple[str, ...] = tuple(dict.fromkeys(normal_uri(root) for root in (*settings.roots, *beside)))
        for root in filter(is_remote, (*self.roots, *settings.lake.storage_options)):
            from backend.lake.storage.object_store import check_address  # with obstore, which a local lake spares

            check_address(root)
        self._options = {
            normal_uri(root): {key: value.get_secret_value() for key, value in options.items()}
            for root, options in settings.lake.storage_options.items()
        }

    def root_of(self, uri: str) -> str:
        """The root that a normal URI lies under; raises `PathRefusedError`."""
        for root in sorted(self.roots, key=len, reverse=True):
            is_local = not is_remote(uri) and not is_remote(root)
            if is_within(uri, root) or (is_local and is_within(real(uri), real(root))):
                return root
        raise PathRefusedError(
            f"{uri} lies outside every allowed root", hint="add its folder to WEIR_LAKE__ROOTS to allow it"
        )

    def folder(self, uri: str) -> Folder:
        root = self.root_of(uri)
        if not is_remote(root):
            return LocalFolder(uri, self.roots)
        from backend.lake.storage.object_store import ObjectFolder

        return ObjectFolder(uri, root, self.options(root))

    def options(self, uri: str) -> dict[str, str]:
        """The storage options of a URI's root, or of what holds that: for readers alone, never for logs."""
        root = self.root_of(uri)
        given = [option for option in self._options if is_within(root, option)]
        return self._options[max(given, key=len)] if given else {}


def declared_folder(settings: Settings, uri: str) -> Folder:
    """A folder that a stream was declared with, a checkpoint or files: below an allowed root, `$WEIR_HOME` or the
    checkpoints; raises `PathRefusedError`."""
    return Storage(settings, beside=[str(settings.home), settings.checkpoints_uri]).folder(normal_uri(uri))


# files of one table -----------------------------------------------------------------------------------------------

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
