"""The live files of one version, column by column: a checkpoint's less those that later actions name, and their adds.

Rule: a column is read when it is asked for; every column has the same order; no object per file. Where a checkpoint
turns out to be damaged, an older state is used instead and that is a finding.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backend.errors import LakehouseError, ObjectMissingError, TableCorruptError
from backend.lake.actions import ACTIONS, FILES, Kind
from backend.lake.model import FILES_SCHEMA, Metadata
from backend.lake.partitions import show_partitions

Lock = AbstractContextManager[Any]


class Base(Protocol):
    """A state with its files in a fixed order: a checkpoint."""

    @property
    def num_files(self) -> int: ...
    def column(self, name: str) -> pa.Array: ...
    def check(self) -> None: ...
    def places(self, keys: pa.Array) -> "tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]": ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What a version's files are made of: a base, and the file actions after it in their order (`ACTIONS`)."""

    base: Base | None
    actions: pa.Table


@dataclass(slots=True)
class FileSet:
    """Thread-safe. `load` gives the ways to read the files, best first, an error for one that cannot be read."""

    metadata: Metadata
    load: Callable[[], Iterable[Parts | LakehouseError]]
    lock: Lock = field(default_factory=threading.RLock)
    _parts: Parts | None = None
    _kept: pa.Array | None = None
    _added: pa.Table = field(default_factory=FILES.empty_table)
    _later: dict[str, int] | None = None
    _problem: LakehouseError | None = None

    @classmethod
    def of(cls, files: pa.Table, metadata: Metadata) -> "FileSet":
        """Files given as a table of `FILES_SCHEMA`, with `stats` if it is there."""
        return _GivenFiles(metadata, lambda: [Parts(None, ACTIONS.empty_table())], _files=files)

    @property
    def num_files(self) -> int:
        self.resolve()
        assert self._parts is not None
        kept = 0 if self._parts.base is None else self._parts.base.num_files if self._kept is None else len(self._kept)
        return kept + int(self._added.num_rows)

    @property
    def findings(self) -> tuple[str, ...]:
        """What was odd about the files that the state was read from, as far as it was read."""
        return (f"{self._problem.message}; read from an older state instead",) if self._problem else ()

    def column(self, name: str) -> pa.Array:
        """A column of `FILES_SCHEMA` or of `actions.FILES`."""
        if name == "partition":
            return show_partitions(self.column("encoded_partition"), self.metadata)
        self.resolve()
        assert self._parts is not None
        added = self._added[name].combine_chunks()
        if self._parts.base is None:
            return _one(added)
        found = self._parts.base.column(name)
        if self._kept is not None:
            found = found.take(self._kept)
        if not len(added):
            return found
        if pa.types.is_dictionary(found.type):
            both = pa.chunked_array([found, _one(added).dictionary_encode()]).unify_dictionaries()
            return pa.concat_arrays(both.chunks)
        return pa.concat_arrays([found, _one(added)])

    def table(self, names: Sequence[str]) -> pa.Table:
        """Columns of `FILES_SCHEMA` (or `stats`), one row a file."""
        columns = {name: self.column(name) for name in names}
        return pa.table({name: _plain(column) for name, column in columns.items()}).cast(
            pa.schema([FILES_SCHEMA.field(n) if n in FILES_SCHEMA.names else FILES.field(n) for n in names])
        )

    def find(self, keys: Sequence[str]) -> dict[str, int]:
        """The row of each key `(path, deletion vector)` that is live here."""
        self.resolve()
        assert self._parts is not None
        if self._later is None:
            start = self.num_files - self._added.num_rows
            self._later = {key: start + at for at, key in enumerate(self._added["key"].to_pylist())}
        found = {key: self._later[key] for key in keys if key in self._later}
        if self._parts.base is not None:
            wanted = list(dict.fromkeys(keys))
            at, rows = self._parts.base.places(pa.array(wanted, pa.string()))
            if self._kept is not None:
                kept = self._kept.to_numpy()
                place = np.minimum(np.searchsorted(kept, rows), max(0, len(kept) - 1))
                live = kept[place] == rows if len(kept) else np.zeros(len(rows), bool)
                at, rows = at[live], place[live]
            found |= {wanted[key]: int(row) for key, row in zip(at, rows, strict=True)}
        return found

    def resolve(self) -> "FileSet":
        """Find out which files of the base are live; raises what reading the log raises."""
        with self.lock:
            if self._parts is None:
                for found in self.load():
                    if self._try(found):
                        return self
                assert self._problem is not None
                raise self._problem
        return self

    def _try(self, found: Parts | LakehouseError) -> bool:
        try:
            if isinstance(found, LakehouseError):
                raise found
            self._kept, self._added = _decide(found)
        except (TableCorruptError, ObjectMissingError) as exc:
            self._problem = self._problem or exc
            return False
        self._parts = found
        return True


@dataclass(slots=True)
class _GivenFiles(FileSet):
    _files: pa.Table = field(default_factory=FILES_SCHEMA.empty_table)

    @property
    def num_files(self) -> int:
        return int(self._files.num_rows)

    def column(self, name: str) -> pa.Array:
        return _one(self._files[name].combine_chunks())


def last_actions(actions: pa.Table) -> pa.Table:
    """The last action on each key `(path, deletion vector)`, in their order; change files are none."""
    actions = actions.filter(pc.not_equal(actions["kind"], int(Kind.CDC)))
    if not actions.num_rows:
        return actions
    codes = _one(actions["key"].combine_chunks()).dictionary_encode()
    last = np.zeros(len(codes.dictionary), np.int64)
    last[codes.indices.to_numpy()] = np.arange(actions.num_rows)
    return actions.take(pa.array(np.sort(last)))


def _decide(parts: Parts) -> tuple[pa.Array | None, pa.Table]:
    """Rows of the base that no later action names (None: all), and the files added last."""
    decided = last_actions(parts.actions)
    added = decided.filter(pc.equal(decided["kind"], int(Kind.ADD))).select(FILES.names).combine_chunks()
    if parts.base is None:
        return None, added
    _, named = parts.base.places(_one(decided["key"].combine_chunks()))
    parts.base.check()
    if not len(named):
        return None, added
    live = np.ones(parts.base.num_files, bool)
    live[named] = False
    return pa.array(np.flatnonzero(live)), added


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary.take(column.indices) if pa.types.is_dictionary(column.type) else column


def _one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column
