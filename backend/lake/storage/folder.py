"""What a reader of one folder can be asked, wherever the folder lies.

Rule: paths are relative to the folder, with `/` between names; every answer is either whole or one of Weir's errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from backend.errors import StorageError

if TYPE_CHECKING:
    import pyarrow as pa


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
