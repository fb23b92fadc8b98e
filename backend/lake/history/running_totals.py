"""A table's totals, moved forward one commit at a time.

Rule: a step costs its own file actions, whatever the size of the table: files of the base are rows of arrays, found by
their key through the base's index; only files added later are objects.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backend.lake.files.file_sizes import LARGE, TargetSize, merge_estimate, small_limit, sums, target_for
from backend.lake.log.actions import FileAction
from backend.lake.log.commits import CommitSlice
from backend.lake.log.replay import LogState, damaged
from backend.lake.model import VersionTotals
from backend.lake.table.partitions import by_value
from backend.settings import HealthSettings

File = tuple[int, int | None, str]  # size in bytes, live rows, encoded partition
_COLUMNS = ("kind", "key", "size_bytes", "num_records", "deleted_rows", "encoded_partition")


class RunningTotals:
    """Starts at `base` (None: before the first commit); `apply` moves to the next version."""

    def __init__(self, base: LogState | None, health: HealthSettings) -> None:
        self._health = health
        self._base = _BaseFiles(base) if base else None
        self._later: dict[str, File] = {}
        self._by_size: list[tuple[int, str]] | None = None  # sizes and keys of `_later`, sorted; None: not needed yet
        self._gone: set[int] = set()  # rows of the base that were removed
        self._partitions: dict[str, list[int]] = {}  # files, small files, their bytes
        self._num_files = self._size_bytes = self._rows = self._unknown = self._small = 0
        self._metadata = base.metadata if base else None
        if self._base is not None:
            self._num_files, self._size_bytes = len(self._base.sizes), int(self._base.sizes.sum())
            self._rows, self._unknown = self._base.rows_total()
        self._limit = self._wanted_limit()
        self._count_small()

    def restart(self, state: LogState) -> None:
        """Move to a state that no single commit leads to: a log compaction stands for several."""
        self.__init__(state, self._health)  # type: ignore[misc]

    def apply(self, commit: CommitSlice) -> None:
        """Move to the version of `commit`; raises `TableCorruptError` when it cannot be read."""
        record = commit.record
        if record.problem:
            raise damaged(record.problem, is_first=self._metadata is None)
        if record.metadata is not None:
            self._metadata = record.metadata
        if commit.length:
            self._move(commit.actions)
        limit = self._wanted_limit()
        if limit != self._limit:  # another target size was set, or the table outgrew it
            self._move_limit(limit)

    def totals(self, version: int, at: datetime | None, operation: str | None) -> VersionTotals:
        rows = None if self._unknown else self._rows
        return VersionTotals(version, at, operation, self._num_files, self._size_bytes, rows, self._small)

    def merge_estimate(self) -> tuple[int, int]:
        """As `file_sizes.merge_estimate` has it of the files now."""
        return merge_estimate(self._partitions.values(), self._limit, self._target(), self._health.min_files)

    def large_files(self) -> int:
        """How many files are far above the target."""
        limit = LARGE * self._target().bytes
        base = np.flatnonzero(self._base.sizes > limit).tolist() if self._base else []
        return sum(row not in self._gone for row in base) + sum(file[0] > limit for file in self._later.values())

    def _move(self, actions: pa.Table) -> None:
        columns = {name: actions[name].to_pylist() for name in _COLUMNS}
        rows = self._base.find(columns["key"]) if self._base else {}
        for kind, key, size, records, deleted, partition in zip(*columns.values(), strict=True):
            if kind == FileAction.CDC:
                continue
            self._remove(key, rows.get(key))
            if kind == FileAction.ADD:
                partition = by_value(partition, self._metadata) if self._metadata else partition
                file = (size, None if records is None else records - deleted, partition)
                self._later[key] = file
                if self._by_size is not None:
                    insort(self._by_size, (size, key))
                self._count(file, 1)

    def _remove(self, key: str, row: int | None) -> None:
        file = self._later.pop(key, None)
        if file is not None:
            if self._by_size is not None:
                del self._by_size[bisect_left(self._by_size, (file[0], key))]
            self._count(file, -1)
        elif row is not None and row not in self._gone:
            assert self._base is not None
            self._gone.add(row)
            self._count(self._base.file(row), -1)

    def _count(self, file: File, sign: int) -> None:
        size, rows, partition = file
        self._num_files += sign
        self._size_bytes += sign * size
        self._rows += sign * (rows or 0)
        self._unknown += sign * (rows is None)
        counts = self._partitions.setdefault(partition, [0, 0, 0])
        counts[0] += sign
        if size < self._limit:
            self._small += sign
            counts[1] += sign
            counts[2] += sign * size
        if not counts[0]:
            del self._partitions[partition]

    def _wanted_limit(self) -> int:
        return small_limit(self._target(), self._health.small_file_ratio)

    def _target(self) -> TargetSize:
        return target_for(self._metadata.configuration if self._metadata else {}, self._size_bytes, self._health)

    def _move_limit(self, limit: int) -> None:
        """Only files between the old and the new limit change sides."""
        if self._by_size is None:
            self._by_size = sorted((file[0], key) for key, file in self._later.items())
        low, high = sorted((self._limit, limit))
        sign = 1 if limit > self._limit else -1
        self._limit = limit
        first, last = bisect_left(self._by_size, (low, "")), bisect_left(self._by_size, (high, ""))
        moved = [self._later[key] for _, key in self._by_size[first:last]]
        if self._base is not None:
            moved += [self._base.file(row) for row in self._base.sized(low, high) if row not in self._gone]
        for size, _, partition in moved:
            counts = self._partitions[partition]
            self._small += sign
            counts[1] += sign
            counts[2] += sign * size

    def _count_small(self) -> None:
        self._partitions = self._base.partitions(self._limit, self._gone) if self._base else {}
        for size, _, partition in self._later.values():
            counts = self._partitions.setdefault(partition, [0, 0, 0])
            counts[0] += 1
            if size < self._limit:
                counts[1] += 1
                counts[2] += size
        self._small = sum(small for _, small, _ in self._partitions.values())


class _BaseFiles:
    """The files of the state that totals start from, as arrays."""

    def __init__(self, state: LogState) -> None:
        self._set = state.files
        self.sizes: np.ndarray[Any, Any] = state.files.column("size_bytes").to_numpy()
        self._deleted = state.files.column("deleted_rows")
        self._records = state.files.column("num_records")
        encoded = state.files.column("encoded_partition")
        encoded = encoded if pa.types.is_dictionary(encoded.type) else encoded.dictionary_encode()
        names = [by_value(text, state.metadata) for text in encoded.dictionary.to_pylist()]
        self._names: list[str] = list(dict.fromkeys(names))
        places = {name: place for place, name in enumerate(self._names)}
        self._codes: np.ndarray[Any, Any] = np.array([places[name] for name in names], np.int64)[encoded.indices]
        self._order: np.ndarray[Any, Any] | None = None  # rows by size, when first asked for

    def rows_total(self) -> tuple[int, int]:
        """Live rows of the files that say how many, and how many do not say it."""
        rows = pc.subtract(self._records, self._deleted)
        return int(pc.sum(rows).as_py() or 0), int(rows.null_count)

    def find(self, keys: list[str]) -> dict[str, int]:
        return self._set.find(keys)

    def file(self, row: int) -> File:
        records = self._records[row].as_py()
        rows = None if records is None else records - self._deleted[row].as_py()
        return int(self.sizes[row]), rows, self._names[self._codes[row]]

    def sized(self, low: int, high: int) -> list[int]:
        """Rows whose size is at least `low` and less than `high`."""
        if self._order is None:
            self._order = np.argsort(self.sizes, kind="stable")
        first, last = np.searchsorted(self.sizes, [low, high], sorter=self._order)
        found: list[int] = self._order[first:last].tolist()
        return found

    def partitions(self, limit: int, gone: set[int]) -> dict[str, list[int]]:
        """Files, small files and their bytes per partition, without the rows that are gone."""
        live = np.ones(len(self.sizes), bool)
        live[list(gone)] = False
        codes = self._codes[live]
        files = np.bincount(codes, minlength=len(self._names))
        is_small = self.sizes[live] < limit
        small = np.bincount(codes[is_small], minlength=len(self._names))
        small_bytes = sums(codes[is_small], self.sizes[live][is_small], len(self._names))
        found: Iterator[tuple[str, Any, Any, Any]] = zip(self._names, files, small, small_bytes, strict=True)
        return {name: [int(count), int(few), int(size)] for name, count, few, size in found if count}
