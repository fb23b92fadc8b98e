"""File actions as Arrow columns, and the live files of one version: a checkpoint's less those that later actions name,
and their adds.

Rule: a column is read when it is asked for; every column has the same order; one block of columns for many commits, no
object per file. Where a checkpoint turns out to be damaged, an older state is used instead and that is a finding.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backend.errors import ObjectMissingError
from backend.lake.log.actions import FileAction
from backend.lake.model import Metadata, files_schema
from backend.lake.table.schema import show_partitions

if TYPE_CHECKING:
    from backend.lake.log.checkpoint import CheckpointState

# A file as the reader keeps it: model.files_schema with the partition encoded, and the key that identifies it.
FILE_FIELDS = (
    pa.field("key", pa.string(), nullable=False),
    pa.field("path", pa.string(), nullable=False),
    pa.field("size_bytes", pa.int64()),
    pa.field("num_records", pa.int64()),
    pa.field("deleted_rows", pa.int64(), nullable=False),
    pa.field("modified_at", pa.timestamp("ms", tz="UTC")),  # of a remove: when its file was removed
    pa.field("encoded_partition", pa.string(), nullable=False),
    pa.field("dv_id", pa.string()),
    pa.field("dv_path", pa.string()),
    pa.field("stats", pa.string()),  # the JSON text as the log holds it
    pa.field("base_row_id", pa.int64()),  # row tracking: the id of the file's first row
)
FILES = pa.schema(FILE_FIELDS)
ACTIONS = pa.schema(
    (
        pa.field("version", pa.int64()),
        pa.field("kind", pa.int8()),
        pa.field("data_change", pa.bool_()),
        pa.field("is_encoded", pa.bool_()),  # the log writes the path with percent signs
        *FILE_FIELDS,
    )
)


_first = threading.Lock()


@cache
def _look_for_pandas() -> None:
    """Arrow does so at its first conversion, and two threads that do it at once fail: here one goes first."""
    with _first:
        pa.array([""])


def action_table(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Rows of `file_action` as a table of `ACTIONS`."""
    _look_for_pandas()
    if not rows:
        return ACTIONS.empty_table()
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, f.type) for column, f in zip(columns, ACTIONS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=ACTIONS)


def joined_actions(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables of `ACTIONS`, one behind the other."""
    _look_for_pandas()
    return pa.concat_tables(tables).combine_chunks() if tables else ACTIONS.empty_table()


Lock = AbstractContextManager[Any]
Answer = TypeVar("Answer")
Rows = np.ndarray[Any, Any]
NO_ROWS: Rows = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """The files of a version: those of a base without the rows `gone` (sorted), and those added after it
    (`FILES`)."""

    base: CheckpointState | None
    gone: Rows
    added: pa.Table
    finding: str | None = None  # why a better way to the version was not taken

    @property
    def num_base_files(self) -> int:
        return 0 if self.base is None else self.base.num_files - len(self.gone)


@dataclass(slots=True)
class FileSet:
    """Thread-safe. `load` finds them; asked with True, it looks at the log's names again first."""

    metadata: Metadata
    load: Callable[[bool], LiveFiles]
    lock: Lock = field(default_factory=threading.RLock)
    is_gone: bool = False  # a file that it stands on was cleaned away
    _live: LiveFiles | None = None
    _is_ordered: bool = False  # rows were handed out in the order of `_live`
    _later: dict[str, int] | None = None

    @property
    def num_files(self) -> int:
        live = self.resolve()
        return live.num_base_files + int(live.added.num_rows)

    @property
    def findings(self) -> tuple[str, ...]:
        """What was odd about the files that the state was read from, as far as it was read."""
        return (self._live.finding,) if self._live is not None and self._live.finding else ()

    def column(self, name: str) -> pa.Array:
        """A column of `files_schema` or of `FILES`; raises what reading the log raises."""
        if name == "partition":
            return show_partitions(self.column("encoded_partition"), self.metadata)
        return self._of_base(lambda live: _column(live, name))

    def total(self, name: str) -> tuple[int, int]:
        """The sum of a column of whole numbers, and how many files do not say it: at the price of the files that came
        or went since the base."""
        return self._of_base(lambda live: _total(live, name))

    def table(self, names: Sequence[str]) -> pa.Table:
        """Columns of `files_schema` (or `stats`), one row a file."""
        return _tabled({name: self.column(name) for name in names})

    def take(self, numbers: Rows, names: Sequence[str]) -> pa.Table:
        """Columns of the files with these numbers, in that order: of a column that the base keeps, only theirs."""
        return _tabled({name: self._taken(name, numbers) for name in names})

    def _taken(self, name: str, numbers: Rows) -> pa.Array:
        if name == "partition":
            return show_partitions(self._taken("encoded_partition", numbers), self.metadata)
        return self._of_base(lambda live: _taken(live, name, numbers))

    def find(self, keys: Sequence[str]) -> dict[str, int]:
        """The row of each key `(path, deletion vector)` that is live here."""
        return self._of_base(lambda live: self._find(live, keys))

    def _find(self, live: LiveFiles, keys: Sequence[str]) -> dict[str, int]:
        if self._later is None:
            self._later = {key: live.num_base_files + at for at, key in enumerate(live.added["key"].to_pylist())}
        places = {key: self._later[key] for key in keys if key in self._later}
        if live.base is not None:
            wanted = list(dict.fromkeys(keys))
            at, rows = live.base.matches(pa.array(wanted, pa.string()))
            is_live = ~np.isin(rows, live.gone)
            at, rows = at[is_live], rows[is_live] - np.searchsorted(live.gone, rows[is_live])
            places |= {wanted[key]: int(row) for key, row in zip(at, rows, strict=True)}
        return places

    def resolve(self) -> LiveFiles:
        """Find out which files of the base are live; raises what reading the log raises."""
        with self.lock:
            if self._live is None:
                self._live = self.load(False)
            return self._live

    def _of_base(self, read: Callable[[LiveFiles], Answer]) -> Answer:
        try:
            result = read(self.resolve())
        except ObjectMissingError:
            with self.lock:
                if self._is_ordered:  # what another base gives would not stand beside what was given before
                    self.is_gone = True
                    raise
                self._live = self.load(True)
            result = read(self._live)
        self._is_ordered = True
        return result


def last_actions(actions: pa.Table) -> pa.Table:
    """The last action on each key `(path, deletion vector)`, in their order; change files are none."""
    return actions.take(pa.array(_last(actions)))


def _last(actions: pa.Table) -> Rows:
    """Where they stand."""
    at = np.flatnonzero(actions["kind"].to_numpy() != FileAction.CDC)
    codes = _one(actions["key"].combine_chunks()).dictionary_encode()
    last = np.full(len(codes.dictionary), -1, np.int64)
    last[codes.indices.to_numpy()[at]] = at
    return np.sort(last[last >= 0])


def decide(base: CheckpointState | None, actions: pa.Table) -> LiveFiles:
    """Which rows of the base no later action (`ACTIONS`, in their order) names, and the files added last."""
    last = _last(actions)
    is_add = actions["kind"].to_numpy()[last] == FileAction.ADD
    added = actions.select(FILES.names).take(pa.array(last[is_add])).combine_chunks()
    if base is None:
        return LiveFiles(None, NO_ROWS, added)
    _, named = base.matches(_one(actions["key"].take(pa.array(last))))
    base.check()
    return LiveFiles(base, np.unique(named), added)


def _total(live: LiveFiles, name: str) -> tuple[int, int]:
    added = _sum(live.added[name])
    if live.base is None:
        return added
    whole, gone = live.base.total(name), _sum(live.base.column(name).take(pa.array(live.gone)))
    return whole[0] - gone[0] + added[0], whole[1] - gone[1] + added[1]


def _sum(column: pa.Array | pa.ChunkedArray) -> tuple[int, int]:
    return int(pc.sum(column).as_py() or 0), int(column.null_count)


def _column(live: LiveFiles, name: str) -> pa.Array:
    added = _one(live.added[name].combine_chunks())
    if live.base is None:
        return added
    values = live.base.column(name)
    if len(live.gone):
        mask = np.ones(len(values), bool)
        mask[live.gone] = False
        values = values.filter(pa.array(mask))
    return concatenated([values, added], added.type) if len(added) else values


def _taken(live: LiveFiles, name: str, numbers: Rows) -> pa.Array:
    late = numbers >= live.num_base_files
    added = _one(live.added[name].take(pa.array(numbers[late] - live.num_base_files)))
    if live.base is None or late.all():
        return added
    before_each = live.gone - np.arange(len(live.gone))  # rows that are left before each row that is gone
    rows = numbers[~late] + np.searchsorted(before_each, numbers[~late], side="right")
    taken = pa.concat_arrays([plain_values(live.base.column(name).take(pa.array(rows))), added])
    order = np.argsort(np.concatenate([np.flatnonzero(~late), np.flatnonzero(late)]))
    return taken.take(pa.array(order))


def _tabled(columns: Mapping[str, pa.Array]) -> pa.Table:
    shown = files_schema()
    fields = [shown.field(n) if n in shown.names else FILES.field(n) for n in columns]
    return pa.table({name: plain_values(column) for name, column in columns.items()}).cast(pa.schema(fields))


def concatenated(chunks: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    """One array of this kind; dictionary-encoded where a chunk is."""
    if any(pa.types.is_dictionary(chunk.type) for chunk in chunks):
        encoded = [chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode() for chunk in chunks]
        return pa.concat_arrays(pa.chunked_array(encoded).unify_dictionaries().chunks)
    return pa.concat_arrays([chunk.cast(kind) for chunk in chunks]) if chunks else pa.array([], kind)


def plain_values(column: pa.Array) -> pa.Array:
    """The values themselves, where a column is dictionary-encoded."""
    return column.dictionary.take(column.indices) if pa.types.is_dictionary(column.type) else column


def _one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column
