"""Folders: how their addresses are written, what a path in a log means in one, whether it stays where it belongs, and
what the reader of one can be asked, wherever it lies.

Rule: of addresses and paths pure text. A log's path is percent-decoded once (PROTOCOL.md, "Add File"); one that leaves
its table and every allowed root, in any encoding, is refused before anything is opened. Symlinks are the storage's
business. A reader takes paths relative to its folder, with `/` between names; every answer is either whole or one of
Weir's errors.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import unquote

from backend.errors import PathRefusedError, StorageError

if TYPE_CHECKING:
    import pyarrow as pa

SUSPICIOUS = r"^/|^[A-Za-z][A-Za-z0-9+.\-]*:/|^(?i:file):|\\|\x00|(^|/)\.\.(/|$)|(?i:%2e|%2f|%5c|%00)"
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.\-]*)://")
_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "azure": "az", "adl": "az"}
_MAX_DECODINGS = 5
_HARMLESS_WITHOUT = (b"..", b":", b"\\", b"\x00", b"%")


class Entry(NamedTuple):
    """One name in a folder; a tuple, for a log has thousands. `tag` changes when the object does; None where only the
    name was asked for."""

    name: str
    is_folder: bool = False
    is_link: bool = False
    size_bytes: int | None = None
    modified_at: datetime | None = None
    tag: str | None = None


class Content(NamedTuple):
    """What an object holds, and when it was written."""

    data: bytes
    modified_at: datetime


class Folder(Protocol):
    """A table's or a root's folder."""

    @property
    def uri(self) -> str: ...

    def read(self, path: str) -> bytes: ...

    def read_many(self, paths: Sequence[str]) -> list[Content | StorageError]:
        """The contents, or why there is none, in the order asked for; a path that is refused is raised."""
        ...

    def stat(self, path: str) -> Entry | None:
        """None where there is nothing."""
        ...

    def stat_many(self, paths: Sequence[str]) -> list[Entry | None]:
        """The same of many, in the order asked for; an object store is asked for several at once."""
        ...

    def list_after(self, path: str, after: str, *, digits_only: bool = False) -> list[Entry]:
        """The objects directly in a sub-folder whose names sort after `after` ("" for all), sorted.

        `digits_only` keeps the names that begin with a digit; an object store is then asked for no page beyond them,
        so one look for new commits is one request. Local entries hold the name alone; folders may be among them.
        """
        ...

    def list(self, path: str) -> list[Entry]:
        """Names directly in a sub-folder, sorted; empty where it does not exist."""
        ...

    def holds(self, path: str) -> bool:
        """Whether a sub-folder is there (on an object store: anything in it); one request, however much it holds."""
        ...

    def open(self, path: str, *, size_bytes: int | None = None) -> pa.NativeFile:
        """A seekable file for one reader; on an object store by ranges, so let it join its own (`pre_buffer=True`).

        The file's end comes with the first request. `size_bytes` is its size where a listing told it.
        """
        ...


# addresses and paths ----------------------------------------------------------------------------------------------


def is_remote(uri: str) -> bool:
    match = _SCHEME.match(uri)
    return match is not None and match.group(1).lower() != "file"


def normal_uri(uri: str) -> str:
    """One spelling per address: an absolute path for local folders, `scheme://bucket/prefix` for the rest."""
    match = _SCHEME.match(uri)
    if match is None and not uri.lower().startswith("file:"):
        return _collapse(uri)
    if not is_remote(uri):
        return _collapse(unquote(re.sub(r"^(?i:file):(//(localhost)?)?", "", uri)) or "/")
    assert match is not None
    scheme = match.group(1).lower()
    bucket, _, key = uri[match.end() :].partition("/")
    if ".." in key.split("/"):
        raise PathRefusedError(f"{uri} climbs out of its folder", hint="write the address without ..")
    return f"{_ALIASES.get(scheme, scheme)}://{bucket}/{posixpath.normpath(key) if key.strip('/') else ''}".rstrip("/")


def _collapse(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - pathlib raises for an unknown ~user


def is_within(uri: str, folder: str) -> bool:
    """Whether a normal URI is a folder or lies below it."""
    return uri == folder or uri.startswith(folder if folder.endswith("/") else folder + "/")


def check_paths(paths: pa.ChunkedArray | pa.Array, table: str, allowed: Sequence[str]) -> None:
    """Raise `PathRefusedError` when a log's path leaves the table and every allowed root."""
    import pyarrow as pa  # late: most commands look at addresses alone
    import pyarrow.compute as pc

    for chunk in paths.chunks if isinstance(paths, pa.ChunkedArray) else (paths,):
        if not holds(chunk, *_HARMLESS_WITHOUT) and not pc.any(pc.starts_with(chunk, "/")).as_py():
            continue
        odd = chunk.filter(pc.fill_null(pc.match_substring_regex(chunk, SUSPICIOUS), False))
        for path in odd.unique().to_pylist():
            resolve_log_path(path, table, allowed)


def holds(texts: pa.Array, *needles: bytes) -> bool:
    """Whether the bytes of a string array, run together, hold a needle: a quick no for most arrays."""
    data = texts.buffers()[2] if len(texts) else None
    if data is None:
        return False
    offsets = memoryview(texts.buffers()[1]).cast("i")
    content = bytes(memoryview(data)[offsets[texts.offset] : offsets[texts.offset + len(texts)]])
    return any(needle in content for needle in needles)


def resolve_log_path(path: str, table: str, allowed: Sequence[str]) -> str:
    """The normal URI of a decoded log path; raises `PathRefusedError` when it leaves the table and the roots."""
    uri = _uri_of(path, table)
    folders = (table, *allowed)
    if "\x00" in path or not any(is_within(uri, f) for f in folders):
        raise refused(path, table)
    twice = _fully_decoded(path)
    if twice != path and not any(is_within(_uri_of(twice, table), f) for f in folders):
        raise refused(path, table)
    return uri


def refused(path: str, table: str) -> PathRefusedError:
    return PathRefusedError(
        f"the log of {table} names {path!r}, outside the table and every allowed root",
        hint="do not read this table unless you trust who wrote it; WEIR_LAKE__ROOTS lists what may be opened",
    )


def _uri_of(path: str, table: str) -> str:
    slashed = path.replace("\\", "/")
    if _SCHEME.match(slashed) or slashed.lower().startswith("file:"):
        try:
            return normal_uri(slashed)
        except PathRefusedError:
            return ""
    if slashed.startswith("/"):
        return "" if is_remote(table) else posixpath.normpath(slashed)
    head, sep, key = table.partition("://") if is_remote(table) else ("", "", table)
    bucket, slash, prefix = key.partition("/")
    joined = posixpath.normpath(f"/{prefix}/{slashed}")
    climbs = posixpath.normpath(f"{prefix}/{slashed}").startswith("..")
    return "" if climbs else f"{head}{sep}{bucket}{joined}" if slash or sep else joined


def _fully_decoded(path: str) -> str:
    for _ in range(_MAX_DECODINGS):
        decoded = unquote(path)
        if decoded == path:
            break
        path = decoded
    return path
