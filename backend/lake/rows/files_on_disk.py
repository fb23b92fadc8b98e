"""Data files on this machine for readers that take names: each is opened below its root, or fetched.

Rule: what was checked is what is read. What a reader would get wrong in a file, it gets in a copy.
"""

import os
import re
import resource
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from backend.errors import LakehouseError, ObjectMissingError, TableCorruptError, UnsupportedFeatureError
from backend.lake.files.footer import parquet_errors
from backend.lake.log.commits import commit_name
from backend.lake.log.listing import LOG
from backend.lake.model import Metadata
from backend.lake.storage.local_folder import LocalFolder, real
from backend.lake.storage.storage import Storage, TableFile, TableFiles
from backend.lake.table.misreadings import (
    MISSPELLED,
    collections,
    goes_by_id,
    in_old_calendar,
    lacks,
    misspelled,
    opened,
    write_filled,
    write_rebased,
    write_spelled,
)

_VECTOR_HEAD = 4  # bytes of the big-endian length before a vector
_OPEN_FILES = Path("/proc/self/fd")  # where Linux names what this process has open
_MOST_OPEN, _FILES_AT_ONCE = 1 << 16, 512  # each keeps about a kilobyte of the kernel's memory


@dataclass(frozen=True, slots=True)
class Remedy:
    """`why` a reader cannot take a file as it is, and what writes a copy that it can: to a path, named in errors."""

    why: str
    write: Callable[[Path, str], None]


Misreading = Callable[[pa.NativeFile], Remedy | None]


def _misreadings(metadata: Metadata, *, by_case: bool) -> list[Misreading]:
    """What readers may get wrong in files of such a table."""
    misreadings: list[Misreading] = []
    if '"date"' in metadata.schema_json or '"timestamp"' in metadata.schema_json:
        misreadings.append(_old_calendar)
    if by_case and goes_by_id(metadata):  # before whatever goes by names
        misreadings.append(partial(_misspelled, metadata))
    if kinds := collections(metadata.schema_json):
        misreadings.append(partial(_lacking, kinds))
    return [*misreadings, partial(_misspelled, metadata)] if by_case else misreadings


def _old_calendar(source: pa.NativeFile) -> Remedy | None:
    """Days counted in the calendar before 1582."""
    if (file := in_old_calendar(source)) is None:
        return None
    return Remedy("counts days in the calendar before 1582", partial(write_rebased, file))


def _lacking(kinds: Mapping[str, Any], source: pa.NativeFile) -> Remedy | None:
    """Maps and arrays whose structs got fields since."""
    file = opened(source)
    stored = {field.name: field.type for field in file.schema_arrow}
    lacking = {name: kind for name, kind in kinds.items() if name in stored and lacks(stored[name], kind)}
    if not lacking:
        return None
    return Remedy(f"lacks fields within {', '.join(lacking)}", lambda copy, _: write_filled(file, copy, lacking))


def _misspelled(metadata: Metadata, source: pa.NativeFile) -> Remedy | None:
    """Names in another case or of other columns, for which deltalake (1.6.6, tried) gives nulls or the other column's
    values, and no error."""
    if (found := misspelled(source, metadata)) is None:
        return None
    return Remedy(f"has {MISSPELLED}", lambda copy, _: write_spelled(*found, copy))


class FilesOnDisk:
    """The files of one table on this machine for readers that take names: each is opened below its root, or fetched.

    What was checked is what is read: a name from here leads to the open file, whatever the file's own name means by
    then. Where the system has no names for open files (no `/proc`) it is the name that was checked a moment before.
    """

    def __init__(self, storage: Storage, table: str, folder: Path, *, is_for_many: bool) -> None:
        most_open = _most_open()  # for everybody: the limit is raised here
        self._most_open = most_open if is_for_many else None
        self._files, self._table, self.folder = TableFiles(storage, table), table, folder
        self._names: dict[str, str] = {}  # by address: a file has one name here, however often it is asked for
        self._readable: dict[tuple[str, bool], str] = {}
        self._numbers = count()  # of copies
        self._paths: dict[int, str] = {}  # what the log calls an open file
        self._link = folder / "fd"  # a folder's name is new each time: no cache takes one open file for another
        self._by_descriptor = _OPEN_FILES.is_dir()
        if self._by_descriptor:
            self._link.symlink_to(f"/proc/{os.getpid()}/fd")  # so a query's process reads it too
        else:
            self._link.mkdir()

    def path_of(self, path: str) -> str:
        """The absolute path on this machine of a regular file that is there and may be read."""
        file = self._files.locate(path)
        if file.uri not in self._names:
            self._names[file.uri] = self._opened(path, file) or self._copy(path, file)
        return self._names[file.uri]

    def _opened(self, path: str, file: TableFile) -> str | None:
        """None for a file on an object store."""
        if not isinstance(file.folder, LocalFolder):
            return None
        try:
            descriptor = file.folder.descriptor(file.path)
        except ObjectMissingError as exc:
            raise self._files.gone(path) from exc
        if not self._by_descriptor:
            os.close(descriptor)
            descriptor = len(self._paths)
            (self._link / str(descriptor)).symlink_to(real(file.uri))
        elif self._most_open is not None and descriptor >= self._most_open:  # numbers are given from the lowest up
            os.close(descriptor)
            raise UnsupportedFeatureError(
                f"{self._table} has more files to compare than may be open at once ({self._most_open:,})",
                hint="raise the limit of open files (ulimit -n), or compare a shorter range",
            )
        self._paths[descriptor] = path
        return f"{self._link}/{descriptor}"

    def rows_of(self, path: str, metadata: Metadata, *, by_case: bool = False) -> str:
        """The same for a file of rows; of a copy where a reader would get something in it wrong. `by_case`: a reader
        that tells names apart by case. Raises `UnsupportedFeatureError` among many, whose copies may be more than fit
        beside the table."""
        key = self.path_of(path), by_case
        if key not in self._readable:
            self._readable[key] = self._copied(path, key[0], _misreadings(metadata, by_case=by_case))
        return self._readable[key]

    def _copied(self, path: str, local: str, misreadings: Sequence[Misreading]) -> str:
        """The file itself where none of these holds; else a copy without the first, of which the others are asked."""
        name = f"{path} of {self._table}"
        if not misreadings:
            return local
        with pa.OSFile(local) as source, parquet_errors(path, self._table):
            for number, misread in enumerate(misreadings, 1):
                if (remedy := misread(source)) is None:
                    continue
                if self._most_open is not None:
                    raise UnsupportedFeatureError(f"{name} {remedy.why}")
                copy = self.folder / f"{next(self._numbers)}.parquet"
                remedy.write(copy, name)
                return self._copied(path, str(copy), misreadings[number:])
        return local

    def _copy(self, path: str, file: TableFile) -> str:
        copy = self.folder / f"{next(self._numbers)}{Path(file.path).suffix}"
        try:
            copy.write_bytes(file.folder.read(file.path))
        except ObjectMissingError as exc:
            raise self._files.gone(path) from exc
        return str(copy)

    def vector_bytes(self, path: str, offset: int) -> int:
        """The length that a deletion vector's file states at an offset."""
        with Path(self.path_of(path)).open("rb") as file:
            file.seek(offset)
            head = file.read(_VECTOR_HEAD)
        if len(head) < _VECTOR_HEAD:
            raise TableCorruptError(f"{path} of {self._table} ends before its deletion vector", hint="the file is torn")
        return int.from_bytes(head, "big")

    def named(self, message: str) -> str:
        """A reader's message with the files' own names."""
        link = re.escape(str(self._link).lstrip("/"))
        return re.sub(rf"/?{link}/(\d+)", lambda match: self._paths.get(int(match[1]), match[0]), message)

    def write_commit(self, version: int, actions: Sequence[Any]) -> None:
        """Into a log beside the files."""
        log = self.folder / LOG
        log.mkdir(exist_ok=True)
        (log / commit_name(version)).write_bytes(b"".join(orjson.dumps(action) + b"\n" for action in actions))

    def close(self) -> None:
        if self._by_descriptor:
            self._link.unlink()  # first: a number that is free again may soon mean another file
            for descriptor in self._paths:
                os.close(descriptor)


@contextmanager
def files_on_disk(storage: Storage, table: str, *, is_for_many: bool = False) -> Iterator[FilesOnDisk]:
    """Held as long as they are read, in a folder that nobody else may enter; errors name the files as the log does.
    `is_for_many` keeps some for others, and then raises `UnsupportedFeatureError`."""
    with tempfile.TemporaryDirectory(prefix="weir-rows-") as folder:
        on_disk = FilesOnDisk(storage, table, Path(folder), is_for_many=is_for_many)
        try:
            yield on_disk
        except LakehouseError as exc:
            exc.message = on_disk.named(exc.message)
            exc.args = (exc.message,)
            raise
        finally:
            on_disk.close()


@cache
def _most_open() -> int:
    """How many files a reader of many may have open: a quarter of what the system allows is left to all others. Most
    systems let a process ask for far more than the 1,024 that it begins with."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard and _OPEN_FILES.is_dir():
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return _MOST_OPEN if hard == resource.RLIM_INFINITY else min(_MOST_OPEN, hard // 4 * 3)


def files_at_once() -> int:
    """How many files one reader of a few has open at a time: there may be several."""
    return max(1, min(_FILES_AT_ONCE, _most_open() // 8))
