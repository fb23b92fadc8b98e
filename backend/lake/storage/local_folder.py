"""A local folder below an allowed root.

Rule: nothing outside the roots is opened, also not through a link that appears meanwhile: every file is reached from
its root's own folder, name by name, and no link is followed on the way. Where one is met, its target is looked up,
checked, and then reached in the same manner.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from backend.errors import ObjectMissingError, PathRefusedError, StorageError
from backend.lake.storage.folder import Content, Entry, is_remote, is_within

if TYPE_CHECKING:
    import pyarrow as pa

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe that lies in a table's folder would wait for its writer for ever.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ_AT_ONCE = 1 << 30
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FOLDERS_AT_ONCE = 64  # a table may have more partitions than a process may have open files
_DOTS = frozenset({".", ".."})
_KINDS = {stat.S_IFIFO: "pipe", stat.S_IFDIR: "folder"}


class LocalFolder:
    """`follow` gives a path with every symlink followed."""

    def __init__(self, uri: str, roots: Sequence[str], *, follow: Callable[[str], str] | None = None) -> None:
        self.uri = uri
        self._follow = follow or real
        self._real_roots = sorted((real(root) for root in roots if not is_remote(root)), key=len, reverse=True)
        self._is_linked = self._check(uri) != uri

    def read(self, path: str) -> bytes:
        with _os_errors(self.uri, path), _Opened() as opened:
            return _content(self._open_file(path, opened)).data

    def read_many(self, paths: Sequence[str]) -> list[Content | StorageError]:
        with _Opened() as opened:
            return [self._attempt(path, opened) for path in paths]

    def stat(self, path: str) -> Entry | None:
        return self.stat_many([path])[0]

    def stat_many(self, paths: Sequence[str]) -> list[Entry | None]:
        with _Opened() as opened:
            return [self._entry(path, opened) for path in paths]

    def list_after(self, path: str, after: str, *, digits_only: bool = False) -> list[Entry]:
        with _os_errors(self.uri, path), _Opened() as opened:
            try:
                names = os.listdir(self._open_listable(path, opened))  # noqa: PTH208 - pathlib takes no descriptor
            except (FileNotFoundError, NotADirectoryError):
                return []
        after_name = [name for name in names if name > after and (not digits_only or "0" <= name[0] <= "9")]
        return [Entry(name) for name in sorted(after_name)]

    def list(self, path: str) -> list[Entry]:
        with _os_errors(self.uri, path), _Opened() as opened:
            try:
                with os.scandir(self._open_listable(path, opened)) as found:
                    entries = [Entry(e.name, is_folder=_is_dir(e), is_link=e.is_symlink()) for e in found]
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted(entries, key=lambda entry: entry.name)

    def holds(self, path: str) -> bool:
        with _os_errors(self.uri, path), _Opened() as opened:
            try:
                opened.keep(self._open_folder(path))
            except (FileNotFoundError, NotADirectoryError):
                return False
        return True

    def open(self, path: str, *, size_bytes: int | None = None) -> pa.NativeFile:  # noqa: ARG002 - a disk tells it for free
        import pyarrow as pa

        file = self.descriptor(path)
        try:
            with _os_errors(self.uri, path):
                return pa.OSFile(f"/dev/fd/{file}")  # the file that was checked; its name may mean another one by now
        finally:
            os.close(file)

    def descriptor(self, path: str) -> int:
        """A regular file, opened; the caller closes it."""
        with _os_errors(self.uri, path), _Opened() as opened:
            file = self._open_file(path, opened)
            try:
                _require_file(os.fstat(file))
            except OSError:
                os.close(file)
                raise
            return file

    def _attempt(self, path: str, opened: _Opened) -> Content | StorageError:
        try:
            return _content(self._open_file(path, opened))
        except (OSError, ValueError) as exc:
            return _storage_error(exc, self.uri, path)

    def _entry(self, path: str, opened: _Opened) -> Entry | None:
        with _os_errors(self.uri, path):
            try:
                status = self._stat(path, opened)
            except (FileNotFoundError, NotADirectoryError):
                return None
        modified = _modified_at(status)
        tag = f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"
        return Entry(path, size_bytes=status.st_size, modified_at=modified, tag=tag)

    def _open_file(self, path: str, opened: _Opened) -> int:
        folder, name = self._reach(path, opened)
        try:
            return os.open(name, _FILE, dir_fd=folder)
        except OSError as exc:
            if exc.errno != errno.ELOOP:
                raise
        folder, name = self._reach_target(path, opened)
        return os.open(name, _FILE, dir_fd=folder)

    def _stat(self, path: str, opened: _Opened) -> os.stat_result:
        folder, name = self._reach(path, opened)
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISLNK(status.st_mode):
            return status
        folder, name = self._reach_target(path, opened)
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return status

    def _open_listable(self, path: str, opened: _Opened) -> int:
        folder = opened.keep(self._open_folder(path))
        return opened.keep(os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder))

    def _reach(self, path: str, opened: _Opened) -> tuple[int, str]:
        """The open folder in which a path's last name lies, and that name, which may be a link."""
        head, _, name = path.rpartition("/")
        if name in _DOTS:
            return self._reach_target(path, opened)
        return opened.folder(head, self._open_folder), name or "."

    def _reach_target(self, path: str, opened: _Opened) -> tuple[int, str]:
        """The same for where a path leads once every link is followed."""
        head, name = os.path.split(self._check(self._full(path)))
        return opened.folder(head, self._walk), name

    def _open_folder(self, path: str) -> int:
        full = self._full(path)
        if not self._is_linked and _DOTS.isdisjoint(path.split("/")):
            try:
                return self._walk(full)
            except NotADirectoryError:  # this is also what a link looks like
                pass
        return self._walk(self._check(full))

    def _walk(self, path: str) -> int:
        """Open a folder from its root down; a link anywhere below the root ends it as `NotADirectoryError`."""
        root = self._root_of(path)
        folder = os.open(root, _FOLDER)
        for name in path[len(root) :].split("/"):
            if name:
                above = folder
                try:
                    folder = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
                finally:
                    os.close(above)
        return folder

    def _full(self, path: str) -> str:
        return f"{self.uri}/{path}" if path else self.uri

    def _check(self, full: str) -> str:
        path = self._follow(full)
        self._root_of(path, named=full)
        return path

    def _root_of(self, path: str, *, named: str = "") -> str:
        for root in self._real_roots:
            if is_within(path, root):
                return root
        raise PathRefusedError(
            f"{named or path} leads outside every allowed root",
            hint="a symlink points away; WEIR_LAKE__ROOTS allows places",
        )


class _Opened:
    """The descriptors of one call, closed at its end; a folder is opened once, as long as few others come between."""

    __slots__ = ("_descriptors", "_folders")

    def __init__(self) -> None:
        self._folders: dict[str, int] = {}  # those below the reader's folder by relative paths, others by absolute ones
        self._descriptors: list[int] = []

    def keep(self, descriptor: int) -> int:
        self._descriptors.append(descriptor)
        return descriptor

    def folder(self, path: str, open_one: Callable[[str], int]) -> int:
        if path not in self._folders:
            descriptor = open_one(path)
            if len(self._folders) == _FOLDERS_AT_ONCE:
                os.close(self._folders.pop(next(iter(self._folders))))
            self._folders[path] = descriptor
        return self._folders[path]

    def __enter__(self) -> _Opened:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in (*self._descriptors, *self._folders.values()):
            os.close(descriptor)


def real(path: str) -> str:
    """A local path with every symlink followed."""
    try:
        return os.path.realpath(path)
    except ValueError as exc:  # a null byte
        raise PathRefusedError(f"{path!r} is no path", hint="it holds a character that no path can hold") from exc


def _content(file: int) -> Content:
    """The whole file; its descriptor is closed."""
    try:
        status = os.fstat(file)
        _require_file(status)
        content = os.read(file, min(status.st_size, _READ_AT_ONCE) + 1)
        modified_at = _modified_at(status)
        if len(content) <= status.st_size < _READ_AT_ONCE:
            return Content(content, modified_at)
        rest, most = [content], status.st_size + _READ_AT_ONCE  # one that grows as fast as it is read has an end too
        while rest[-1] and sum(map(len, rest)) < most:  # it grew, or is larger than one call may read
            rest.append(os.read(file, _READ_AT_ONCE))
        return Content(b"".join(rest), modified_at)
    finally:
        os.close(file)


def _modified_at(status: os.stat_result) -> datetime:
    """Cut, not rounded: Delta's milliseconds are cut too."""
    return _EPOCH + timedelta(microseconds=status.st_mtime_ns // 1000)


def _require_file(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "device")
        raise _NotRegularError(errno.EINVAL, f"it is a {kind}, not a regular file")


class _NotRegularError(OSError):
    """Reading it may wait without end."""


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in a loop, or to a folder without permission: no folder for us
        return False


@contextmanager
def _os_errors(folder: str, path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as exc:
        raise _storage_error(exc, folder, path) from exc


def _storage_error(exc: OSError | ValueError, folder: str, path: str) -> StorageError:
    full = f"{folder}/{path}" if path else folder
    if isinstance(exc, FileNotFoundError):
        return ObjectMissingError(f"{full} does not exist", hint="it was deleted or never written")
    if isinstance(exc, PermissionError):
        return StorageError(f"no permission to read {full}", hint="let the user that runs Weir read it")
    reason, number = (exc.strerror or str(exc), exc.errno) if isinstance(exc, OSError) else (str(exc), None)
    hint = "look at the disk or mount"
    if number == errno.ENXIO:
        reason = "it is a socket or a device, not a regular file"  # which opening it says, before anyone can look at it
    if number == errno.ENXIO or isinstance(exc, _NotRegularError):
        hint = "put the table's own file back in its place, or remove it"
    if number in (errno.EMFILE, errno.ENFILE):
        hint = "raise the limit of open files (ulimit -n), or read fewer files at once"
    return StorageError(f"{full} cannot be read: {reason}", hint=hint)
