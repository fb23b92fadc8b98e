"""A folder in an object store, read through obstore.

Rule: every wait is bounded, and every failure names the object and what to do. No credential reaches an error or a
log: what obstore says is read for its kind, and is not kept as the cause.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import obstore
import pyarrow as pa
from obstore.exceptions import BaseError, GenericError

from backend.errors import ObjectMissingError, StorageError
from backend.lake.storage.folder import Content, Entry
from backend.lake.storage.object_store import ServerDownError, broke_off, connect, storage_error

PIECE_BYTES = 32 << 20  # a larger object is read piece by piece, each with a time-out of its own
TAIL_BYTES = 64 << 10  # a parquet reader's first look at a file
LISTED_AT_ONCE = 50  # divides a store's page, so that the next page is asked for when its first name is wanted
_WITHOUT_SUFFIX_RANGES = ("az://", "abfss://")

Listed = TypeVar("Listed")


class ObjectFolder:
    def __init__(self, uri: str, root: str, options: Mapping[str, str]) -> None:
        self.uri = uri
        self._root = root
        self._server = connect(root, tuple(sorted(options.items())))
        self._prefix = uri.removeprefix(root).strip("/")

    def read(self, path: str) -> bytes:
        return self._content(path).data

    def read_many(self, paths: Sequence[str]) -> list[Content | StorageError]:
        down = threading.Event()
        return list(self._server.pool.map(lambda path: self._attempt(path, down), paths))

    def stat(self, path: str) -> Entry | None:
        try:
            with self._errors(path):
                return _entry(path, obstore.head(self._server.store, self._key(path)))
        except ObjectMissingError:
            return None

    def stat_many(self, paths: Sequence[str]) -> list[Entry | None]:
        return list(self._server.pool.map(self.stat, paths))

    def list_after(self, path: str, after: str, *, digits_only: bool = False) -> list[Entry]:
        with self._errors(path):
            return _twice(lambda: [*self._names_after(path, after, digits_only=digits_only)])

    def list(self, path: str) -> list[Entry]:
        with self._errors(path):
            listed = _twice(lambda: obstore.list_with_delimiter(self._server.store, self._key(path) or None))
        folders = [Entry(prefix.rstrip("/").rpartition("/")[2], is_folder=True) for prefix in listed["common_prefixes"]]
        inside = (meta for meta in listed["objects"] if meta["path"] != self._key(path))  # not the folder's marker
        objects = [_entry(meta["path"].rpartition("/")[2], meta) for meta in inside]
        return sorted(folders + objects, key=lambda entry: entry.name)

    def holds(self, path: str) -> bool:
        with self._errors(path):
            return any(obstore.list(self._server.store, self._key(path) or None))

    def open(self, path: str, *, size_bytes: int | None = None) -> pa.NativeFile:
        return pa.PythonFile(_RangedFile(self, path, size_bytes), mode="r")

    def tail(self, path: str) -> tuple[int, bytes, str | None]:
        """An object's size, its last `TAIL_BYTES` at most, and its tag."""
        with self._errors(path):
            try:
                if not self._root.startswith(_WITHOUT_SUFFIX_RANGES):
                    got = self._get(path, range={"suffix": TAIL_BYTES})
                    return got.meta["size"], bytes(got.bytes()), got.meta["e_tag"]
            except GenericError:
                pass  # an empty object has no range, and some servers know none
            meta = obstore.head(self._server.store, self._key(path))
        size, tag = meta["size"], meta["e_tag"]
        content, _ = self.between(path, max(0, size - TAIL_BYTES), size, tag) if size else (b"", tag)
        return size, content, tag

    def between(self, path: str, start: int, end: int, tag: str | None) -> tuple[bytes, str | None]:
        """The bytes from `start` up to `end` of the object with this tag, and its tag."""
        with self._errors(path):
            got = self._get(path, range=(start, end), if_match=tag)
            return bytes(got.bytes()), got.meta["e_tag"]

    def _content(self, path: str) -> Content:
        with self._errors(path):
            got = self._get(path)
            size, modified_at, tag = (got.meta[name] for name in ("size", "last_modified", "e_tag"))
            if size <= PIECE_BYTES:
                return Content(bytes(got.bytes()), modified_at)
            del got
            ranges = [(start, min(start + PIECE_BYTES, size)) for start in range(0, size, PIECE_BYTES)]
            pieces = (self._get(path, range=r, if_match=tag).bytes() for r in ranges)
            return Content(b"".join(pieces), modified_at)

    def _get(self, path: str, **options: Any) -> Any:
        chosen = {name: value for name, value in options.items() if value is not None}
        return obstore.get(self._server.store, self._key(path), options=chosen or None)  # type: ignore[arg-type]

    def _names_after(self, path: str, after: str, *, digits_only: bool) -> Iterator[Entry]:
        prefix = f"{self._key(path)}/".lstrip("/")
        offset = prefix + after if after else None
        for chunk in obstore.list(self._server.store, prefix or None, offset=offset, chunk_size=LISTED_AT_ONCE):
            for meta in chunk:
                name = meta["path"].removeprefix(prefix)
                if name == self._key(path):  # the marker of the folder itself: an empty object, as Hadoop makes them
                    continue
                if digits_only and name > ":":  # the character after 9: stores list in this order
                    return
                # Some stores (Azure's emulator) take no notice of where a listing shall start.
                if name > after and "/" not in name and not (digits_only and name < "0"):
                    yield _entry(name, meta)

    def _attempt(self, path: str, down: threading.Event) -> Content | StorageError:
        """One of many: when the server was just found to be down, the rest is not tried, or it would never end."""
        if down.is_set():
            return ServerDownError(f"{self.uri}/{path} was not asked for", hint="its server failed a moment ago")
        try:
            return self._content(path)
        except ServerDownError as exc:
            down.set()
            return exc
        except StorageError as exc:
            return exc

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError, ValueError) as exc:
            raise storage_error(exc, f"{self.uri}/{path}" if path else self.uri, self._root) from None

    def _key(self, path: str) -> str:
        return "/".join(part for part in (self._prefix, path) if part)


class _RangedFile:
    """What pyarrow reads: one range a request, the file's end kept from the first one."""

    def __init__(self, folder: ObjectFolder, path: str, size_bytes: int | None) -> None:
        self._folder, self._path = folder, path
        self._at = 0
        self._tag: str | None = None
        self.closed = False
        if size_bytes is None:
            self._size, self._tail, self._tag = folder.tail(path)
        else:
            self._size = size_bytes
            self._tail = self._fetch(max(0, size_bytes - TAIL_BYTES), size_bytes)

    def read(self, size: int = -1) -> bytes:
        start = min(self._at, self._size)
        end = self._size if size is None or size < 0 else min(start + size, self._size)
        self._at = end
        kept_from = self._size - len(self._tail)
        if start >= kept_from:
            return self._tail[start - kept_from : end - kept_from]
        fetched = self._fetch(start, min(end, kept_from))
        return fetched if end <= kept_from else fetched + self._tail[: end - kept_from]

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        self.closed = True

    def _fetch(self, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        content, self._tag = self._folder.between(self._path, start, end, self._tag)
        return content


def _twice(listed: Callable[[], Listed]) -> Listed:
    """obstore continues an object that broke off, but not a listing."""
    try:
        return listed()
    except GenericError as exc:
        if not broke_off(exc):
            raise
    return listed()


def _entry(name: str, meta: Any) -> Entry:
    return Entry(name, size_bytes=meta["size"], modified_at=meta["last_modified"], tag=str(meta["e_tag"]))
