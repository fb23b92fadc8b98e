"""The only door to bytes: local folders and object stores, each below an allowed root.

Rule: nothing outside a root is opened, whatever a log or a symlink says; nothing is ever written; foreign errors end
here as `StorageError`, `ObjectMissingError` or `PathRefusedError`. Local folders are read through the operating system
(a symlink can be seen, and a read costs a tenth), object stores through obstore.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import obstore
import pyarrow as pa
from obstore.exceptions import BaseError
from obstore.store import from_url

from backend.errors import ObjectMissingError, PathRefusedError, SettingsError, StorageError
from backend.lake.paths import is_remote, is_within, normal_uri
from backend.settings import Settings

PARALLEL_READS = 32
TIME_OUT = timedelta(seconds=30)
MAX_RETRIES = 4
_CLIENT_OPTIONS = frozenset({"allow_http", "allow_invalid_certificates", "timeout", "connect_timeout", "proxy_url"})
# Options that people carry over from a writer; a reader has no use for them.
_WRITER_OPTIONS = frozenset({"s3_allow_unsafe_rename", "s3_locking_provider", "delta_dynamo_table_name"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder. `tag` changes when the object does; None where only the name was asked for."""

    name: str
    is_folder: bool = False
    is_link: bool = False
    size_bytes: int | None = None
    modified_at: datetime | None = None
    tag: str | None = None


class Folder(Protocol):
    """A table's or a root's folder. Paths are relative to it and already checked as text."""

    @property
    def uri(self) -> str: ...
    def read(self, path: str) -> bytes: ...
    def read_many(self, paths: Sequence[str]) -> list[bytes | StorageError]: ...
    def stat(self, path: str) -> Entry | None: ...
    def list(self, path: str) -> list[Entry]: ...
    def holds(self, path: str) -> bool: ...
    def open(self, path: str) -> pa.NativeFile: ...


class Storage:
    """The allowed roots. `folder` hands out a reader of one folder below one of them."""

    def __init__(self, settings: Settings) -> None:
        self.roots: tuple[str, ...] = tuple(dict.fromkeys(normal_uri(root) for root in settings.roots))
        self._options = {
            normal_uri(root): {key: value.get_secret_value() for key, value in options.items()}
            for root, options in settings.lake.storage_options.items()
        }

    def root_of(self, uri: str) -> str:
        """The root that a normal URI lies under; raises `PathRefusedError`."""
        for root in sorted(self.roots, key=len, reverse=True):
            if is_within(uri, root) or _is_really_within(uri, root):
                return root
        raise PathRefusedError(
            f"{uri} lies outside every allowed root", hint="add its folder to WEIR_LAKE__ROOTS to allow it"
        )

    def folder(self, uri: str) -> Folder:
        root = self.root_of(uri)
        if not is_remote(root):
            return LocalFolder(uri, self.roots)
        return ObjectFolder(uri, root, self.options(root))

    def options(self, uri: str) -> dict[str, str]:
        """The storage options of the root that a URI lies under: for readers alone, never for logs."""
        return self._options.get(self.root_of(uri), {})


class LocalFolder:
    def __init__(self, uri: str, roots: Sequence[str]) -> None:
        self.uri = uri
        self._real_roots = tuple(real(root) for root in roots if not is_remote(root))
        self._check(uri)

    def read(self, path: str) -> bytes:
        with _os_errors(self.uri, path):
            return Path(self._checked(path)).read_bytes()

    def read_many(self, paths: Sequence[str]) -> list[bytes | StorageError]:
        return [_attempt(self, path) for path in paths]

    def stat(self, path: str) -> Entry | None:
        with _os_errors(self.uri, path):
            try:
                found = Path(self._checked(path)).stat()
            except (FileNotFoundError, NotADirectoryError):
                return None
        modified = datetime.fromtimestamp(found.st_mtime, UTC)
        tag = f"{found.st_ino}-{found.st_mtime_ns}-{found.st_size}"
        return Entry(path, size_bytes=found.st_size, modified_at=modified, tag=tag)

    def list(self, path: str) -> list[Entry]:
        """Names in a sub-folder, sorted; empty where it does not exist."""
        with _os_errors(self.uri, path):
            try:
                with os.scandir(self._checked(path)) as found:
                    entries = [Entry(e.name, is_folder=_is_dir(e), is_link=e.is_symlink()) for e in found]
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted(entries, key=lambda entry: entry.name)

    def holds(self, path: str) -> bool:
        """Whether a sub-folder is there."""
        with _os_errors(self.uri, path):
            return Path(self._checked(path)).is_dir()

    def open(self, path: str) -> pa.NativeFile:
        with _os_errors(self.uri, path):
            return pa.memory_map(self._checked(path))

    def _checked(self, path: str) -> str:
        return self._check(f"{self.uri}/{path}" if path else self.uri)

    def _check(self, full: str) -> str:
        place = real(full)
        if not any(is_within(place, root) for root in self._real_roots):
            raise PathRefusedError(
                f"{full} leads outside every allowed root", hint="a symlink points away; WEIR_LAKE__ROOTS allows places"
            )
        return place


class ObjectFolder:
    def __init__(self, uri: str, root: str, options: Mapping[str, str]) -> None:
        self.uri = uri
        self._store = _object_store(root, tuple(sorted(options.items())))
        self._prefix = uri.removeprefix(root).strip("/")

    def read(self, path: str) -> bytes:
        with _obstore_errors(self.uri, path):
            return bytes(obstore.get(self._store, self._key(path)).bytes())

    def read_many(self, paths: Sequence[str]) -> list[bytes | StorageError]:
        with ThreadPoolExecutor(min(PARALLEL_READS, max(1, len(paths)))) as pool:
            return list(pool.map(lambda path: _attempt(self, path), paths))

    def stat(self, path: str) -> Entry | None:
        try:
            with _obstore_errors(self.uri, path):
                return _entry(path, obstore.head(self._store, self._key(path)))
        except ObjectMissingError:
            return None

    def list(self, path: str) -> list[Entry]:
        with _obstore_errors(self.uri, path):
            found = obstore.list_with_delimiter(self._store, self._key(path) or None)
        folders = [Entry(prefix.rstrip("/").rpartition("/")[2], is_folder=True) for prefix in found["common_prefixes"]]
        objects = [_entry(meta["path"].rpartition("/")[2], meta) for meta in found["objects"]]
        return sorted(folders + objects, key=lambda entry: entry.name)

    def holds(self, path: str) -> bool:
        """Whether anything lies in a sub-folder: one request, however much does."""
        with _obstore_errors(self.uri, path):
            return any(obstore.list(self._store, self._key(path) or None))

    def open(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.read(path))

    def _key(self, path: str) -> str:
        return "/".join(part for part in (self._prefix, path) if part)


def real(path: str) -> str:
    """A local path with every symlink followed."""
    try:
        return os.path.realpath(path)
    except ValueError as exc:  # a null byte
        raise PathRefusedError(f"{path!r} is no path", hint="it holds a character that no path can hold") from exc


def _is_really_within(uri: str, root: str) -> bool:
    return not is_remote(uri) and not is_remote(root) and is_within(real(uri), real(root))


def _is_dir(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in a loop, or to a place without permission: no folder for us
        return False


def _attempt(folder: Folder, path: str) -> bytes | StorageError:
    try:
        return folder.read(path)
    except StorageError as exc:
        return exc


def _entry(name: str, meta: Any) -> Entry:
    return Entry(name, size_bytes=meta["size"], modified_at=meta["last_modified"], tag=str(meta["e_tag"]))


@lru_cache(maxsize=64)
def _object_store(root: str, options: tuple[tuple[str, str], ...]) -> Any:
    client: dict[str, Any] = {"timeout": TIME_OUT}
    config: dict[str, str] = {}
    for key, value in options:
        short = key.lower().removeprefix("aws_").removeprefix("azure_").removeprefix("google_")
        if short in _CLIENT_OPTIONS:
            client[short] = value.lower() == "true" if short.startswith("allow") else value
        elif short not in _WRITER_OPTIONS:
            config[key.lower()] = value
    try:
        return from_url(
            root,
            config=config,
            client_options=client,
            retry_config={"max_retries": MAX_RETRIES, "retry_timeout": TIME_OUT},
        )  # type: ignore[call-overload]
    except (BaseError, ValueError) as exc:
        raise SettingsError(
            f"the root {root} cannot be opened: {_first_line(exc)}", hint="check WEIR_LAKE__STORAGE_OPTIONS"
        ) from exc


@contextmanager
def _os_errors(folder: str, path: str) -> Iterator[None]:
    place = f"{folder}/{path}" if path else folder
    try:
        yield
    except FileNotFoundError as exc:
        raise ObjectMissingError(f"{place} does not exist", hint="it was deleted or never written") from exc
    except PermissionError as exc:
        raise StorageError(f"no permission to read {place}", hint="let the user that runs Weir read it") from exc
    except (OSError, ValueError) as exc:
        raise StorageError(f"{place} cannot be read: {_first_line(exc)}", hint="look at the disk or mount") from exc


@contextmanager
def _obstore_errors(folder: str, path: str) -> Iterator[None]:
    place = f"{folder}/{path}" if path else folder
    try:
        yield
    except FileNotFoundError as exc:
        raise ObjectMissingError(f"{place} does not exist", hint="it was deleted or never written") from exc
    except (BaseError, OSError, ValueError) as exc:
        raise StorageError(
            f"{place} cannot be read: {_first_line(exc)}", hint="check network, endpoint and credentials"
        ) from exc


def _first_line(exc: Exception) -> str:
    return (str(exc).strip().splitlines() or [type(exc).__name__])[0][:300]
