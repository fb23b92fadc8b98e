"""Object stores, read through obstore: connections, one per root, folders in them, and their failures in words.

Rule: every wait is bounded, and every failure names the object and what to do. obstore's texts hold addresses, answers
and settings, and so perhaps credentials: only what kind of failure it was goes on, what has no kind is cleaned first,
and nothing is kept as the cause.
"""

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, TypeVar

import obstore
import pyarrow as pa
from obstore.exceptions import BaseError, GenericError, PermissionDeniedError, PreconditionError, UnauthenticatedError
from obstore.store import from_url

from backend.errors import ObjectMissingError, SettingsError, StorageError
from backend.lake.storage.folder import Content, Entry
from backend.redaction import remember_options, without_secrets

PARALLEL_READS = 32
MAX_RETRIES = 4
# No attempt starts after RETRY_TIME_OUT, none lasts longer than REQUEST_TIME_OUT: a read ends within 30 seconds.
RETRY_TIME_OUT = timedelta(seconds=10)
REQUEST_TIME_OUT = timedelta(seconds=20)
SILENCE_TIME_OUT = timedelta(seconds=8)
CONNECT_TIME_OUT = timedelta(seconds=5)
_TIME_OUTS = {"timeout": REQUEST_TIME_OUT, "read_timeout": SILENCE_TIME_OUT, "connect_timeout": CONNECT_TIME_OUT}
_SWITCHES = frozenset({"allow_http", "allow_invalid_certificates"})
_CLIENT_TEXTS = frozenset({"proxy_url", "proxy_excludes", "root_certificate"})
# Options that people carry over from a writer; a reader has no use for them.
_WRITER_OPTIONS = frozenset({"s3_allow_unsafe_rename", "s3_locking_provider", "delta_dynamo_table_name"})
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|sec|seconds|m|min|minutes|)\s*")
_SETTINGS = "WEIR_LAKE__STORAGE_OPTIONS"

Options = tuple[tuple[str, str], ...]


class ServerDownError(StorageError):
    """The server cannot be reached, is silent or refuses everything: asking for the next object will not help."""


@dataclass(frozen=True, slots=True)
class Server:
    """A root's store, and the threads that read from it: a silent server holds up its own tables alone."""

    store: Any
    pool: ThreadPoolExecutor


@lru_cache(maxsize=64)
def connect(root: str, options: Options) -> Server:
    """The server behind a root; raises `SettingsError` for options that cannot work. Nothing is sent yet."""
    client: dict[str, Any] = dict(_TIME_OUTS)
    retries: dict[str, Any] = {"max_retries": MAX_RETRIES, "retry_timeout": RETRY_TIME_OUT}
    config: dict[str, str] = {}
    remember_options(dict(options))
    for key, value in options:
        short = key.lower().removeprefix("aws_").removeprefix("azure_").removeprefix("google_")
        if short in _SWITCHES:
            client[short] = value.lower() == "true"
        elif short in _TIME_OUTS:
            client[short] = _duration(key, value)
        elif short in _CLIENT_TEXTS:
            client[short] = value
        elif short == "retry_timeout":
            retries[short] = _duration(key, value)
        elif short == "max_retries":
            if not value.isdecimal():
                raise SettingsError(f"the storage option {key} is no whole number", hint=f"check {_SETTINGS}")
            retries[short] = int(value)
        elif short not in _WRITER_OPTIONS:
            config[key.lower()] = value
    try:
        store = from_url(root, config=config, client_options=client, retry_config=retries)  # type: ignore[call-overload]
    except (BaseError, ValueError) as exc:
        reason = without_credentials(str(exc))
        raise SettingsError(f"the root {root} cannot be opened: {reason}", hint=f"check {_SETTINGS}") from None
    return Server(store, ThreadPoolExecutor(PARALLEL_READS, thread_name_prefix="weir-store"))


def check_address(root: str) -> None:
    """Refuse a root whose address holds credentials: addresses are shown, logged and part of every link."""
    scheme, _, rest = root.partition("://")
    user = rest.split("/")[0].rpartition("@")[0]
    if ":" in user or "?" in rest:
        raise SettingsError(
            f"a {scheme}:// root in WEIR_LAKE__ROOTS holds credentials",
            hint=f"move them to {_SETTINGS}, under that root",
        )


def storage_error(exc: Exception, uri: str, root: str) -> StorageError:
    """A failure to read `uri`, in words."""
    text = str(exc)
    status = _found(r"status code: (\d{3})", text)
    if isinstance(exc, FileNotFoundError):
        return ObjectMissingError(f"{uri} does not exist", hint="it was deleted or never written")
    if isinstance(exc, PermissionDeniedError | UnauthenticatedError) or status in ("401", "403"):
        code = " ".join(part for part in (status, _found(r"<Code>(\w+)</Code>", text)) if part)
        hint = f"the credentials in {_SETTINGS} for {root}, or in the environment, must be right and may read and list"
        return StorageError(f"access to {uri} was denied{f' ({code})' if code else ''}", hint=hint)
    if isinstance(exc, PreconditionError):
        return StorageError(f"{uri} changed while it was read", hint="read it again")
    if status == "404":
        return StorageError(f"{uri} cannot be listed: there is no such bucket", hint=f"check the root {root}")
    if "builder error" in text and (plain := _found(r"(http://[^/\s]+)", text)):
        hint = f"use https, or set AWS_ALLOW_HTTP=true (AZURE_…, GOOGLE_…) in {_SETTINGS} for {root}"
        return StorageError(f"{uri} was not asked for: {plain} is not encrypted, which is refused", hint=hint)
    server = _found(r"https?://(?:[^/\s]*@)?([^/\s?@,\"]+)", text) or "the server"
    if "kind: Connect" in text:
        reason, hint = "cannot be reached", f"check the network, and the endpoint in {_SETTINGS}"
    elif "kind: Timeout" in text:
        reason, hint = "did not answer in time", f"try again; `timeout` and `read_timeout` in {_SETTINGS} allow more"
    elif broke_off(exc):
        reason = "broke off in the middle of its answer, again and again"
        hint = "look at the network and at proxies in between"
    elif status.startswith("5") or status == "429":
        reason, hint = f"answered {status} again and again", "it is overloaded or down: try again later"
    else:  # not the server's doing
        hint = f"check network, endpoint and {_SETTINGS}"
        return StorageError(f"{uri} cannot be read: {without_credentials(text)}", hint=hint)
    return ServerDownError(f"{uri} cannot be read: {server} {reason}", hint=hint)


def broke_off(exc: Exception) -> bool:
    """Whether an answer ended before it was whole."""
    return "kind: Interrupted" in str(exc) or "kind: Body" in str(exc)


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match.group(1) if match else ""


def without_credentials(text: str) -> str:
    """The first line of a foreign error, without logins, a server's answer and queries."""
    line = (text.strip().splitlines() or ["unknown"])[0]
    line = re.sub(r"(status code: \d{3}[^:]*).*", r"\1", line)
    line = re.sub(r"://[^/\s\"]*@", "://", line)
    return without_secrets(re.sub(r"(https?://[^\s?\"]+)\?\S*", r"\1", line))[:300]


def _duration(key: str, value: str) -> timedelta:
    match = _DURATION.fullmatch(value)
    if match is None or float(match.group(1)) <= 0:
        raise SettingsError(f"the storage option {key} is no time", hint=f"write it like 500ms or 30s in {_SETTINGS}")
    unit = {"ms": 0.001, "": 1.0, "s": 1.0}.get(match.group(2)) or (60.0 if match.group(2)[0] == "m" else 1.0)
    return timedelta(seconds=float(match.group(1)) * unit)


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
