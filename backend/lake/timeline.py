"""Totals after every version that the log can still reconstruct, in one pass.

Rule: each commit is applied once, as its adds and removes; no version is replayed from its checkpoint.
"""

import threading
from collections.abc import Iterator, Mapping
from datetime import datetime

from backend.errors import TableCorruptError
from backend.lake.actions import Kind
from backend.lake.checkpoint import LogState
from backend.lake.commits import CommitSlice
from backend.lake.files import small_limit, target_for
from backend.lake.log import TableLog
from backend.lake.model import Timeline, VersionTotals
from backend.settings import HealthSettings

File = tuple[int, int | None, str]  # size in bytes, live rows, partition


class RunningTotals:
    """A table's totals, moved forward one commit at a time."""

    def __init__(self, base: LogState | None, health: HealthSettings) -> None:
        self._health = health
        self._files: dict[str, File] = {}
        self._partitions: dict[str, list[int]] = {}  # files, small files
        self._size_bytes = self._rows = self._unknown = self._small = 0
        self._configuration: Mapping[str, str] = base.metadata.configuration if base else {}
        self._has_metadata = base is not None
        self._limit = self._wanted_limit()
        if base is not None:
            self._start(base)

    def apply(self, commit: CommitSlice) -> None:
        """Move to the version of `commit`; raises `TableCorruptError` when it cannot be read."""
        record = commit.record
        if record.problem:
            raise TableCorruptError(record.problem, hint="versions before it can still be read")
        if record.metadata is not None:
            self._configuration, self._has_metadata = record.metadata.configuration, True
        for kind, key, file in _actions(commit):
            self._remove(key)
            if kind == Kind.ADD:
                self._add(key, file)
        self._judge_again()

    def totals(self, version: int, at: datetime | None, operation: str | None) -> VersionTotals:
        rows = None if self._unknown else self._rows
        return VersionTotals(version, at, operation, len(self._files), self._size_bytes, rows, self._small)

    def _start(self, base: LogState) -> None:
        columns = ("key", "size_bytes", "num_records", "deleted_rows", "encoded_partition")
        for key, size, rows, deleted, partition in zip(*(base.files[c].to_pylist() for c in columns), strict=True):
            self._add(key, (size, None if rows is None else rows - deleted, partition))
        self._judge_again()

    def _add(self, key: str, file: File) -> None:
        self._files[key] = file
        self._count(file, 1)

    def _remove(self, key: str) -> None:
        file = self._files.pop(key, None)
        if file is not None:
            self._count(file, -1)

    def _count(self, file: File, sign: int) -> None:
        size, rows, partition = file
        self._size_bytes += sign * size
        self._rows += sign * (rows or 0)
        self._unknown += sign * (rows is None)
        counts = self._partitions.setdefault(partition, [0, 0])
        self._small -= self._judged(counts)
        counts[0] += sign
        counts[1] += sign * (size < self._limit)
        self._small += self._judged(counts)
        if not counts[0]:
            del self._partitions[partition]

    def _judged(self, counts: list[int]) -> int:
        return counts[1] if counts[0] >= self._health.min_files else 0

    def _wanted_limit(self) -> int:
        target = target_for(self._configuration, self._size_bytes, self._health)
        return small_limit(target, self._health.small_file_ratio)

    def _judge_again(self) -> None:
        """Count small files anew when the limit moved: another target size was set, or the table outgrew it."""
        if self._wanted_limit() == self._limit:
            return
        self._limit = self._wanted_limit()
        self._partitions = {}
        for size, _, partition in self._files.values():
            counts = self._partitions.setdefault(partition, [0, 0])
            counts[0] += 1
            counts[1] += size < self._limit
        self._small = sum(self._judged(counts) for counts in self._partitions.values())


class TableTimeline:
    """One table's timeline, kept and moved forward by the new commits alone. Thread-safe."""

    def __init__(self, log: TableLog, health: HealthSettings) -> None:
        self._log = log
        self._health = health
        self._lock = threading.Lock()
        self._start: tuple[int, int] | None = None  # generation of the log, first version
        self._totals: list[VersionTotals] = []
        self._running = RunningTotals(None, health)

    def read(self) -> Timeline:
        """Totals of the newest unbroken run of versions; raises `TableCorruptError` when a commit cannot be read."""
        with self._lock:
            listing = self._log.listing()
            listing.segments(listing.latest)  # raises, with what is missing, when there is nothing to show
            first, last = listing.spans()[-1]
            if self._start != (self._log.generation(), first):
                self._begin(first)
            for commit in self._log.commits(range(first + len(self._totals), last + 1)):
                self._running.apply(commit)
                self._append(commit.record.version, commit)
            return Timeline(tuple(self._totals), first, truncated=first > 0)

    def _begin(self, first: int) -> None:
        listing = self._log.listing()
        base = self._log.state(first) if listing.checkpoints.get(first) else None
        self._running = RunningTotals(base, self._health)
        self._totals = []
        self._start = (self._log.generation(), first)
        if base is not None:
            self._append(first, self._log.commits([first])[0] if first in listing.commits else None)

    def _append(self, version: int, commit: CommitSlice | None) -> None:
        info = commit.record.commit_info if commit else None
        operation = info.get("operation") if isinstance(info, Mapping) else None
        at = self._log.committed_at(version)
        self._totals.append(self._running.totals(version, at, operation if isinstance(operation, str) else None))


def _actions(commit: CommitSlice) -> Iterator[tuple[int, str, File]]:
    actions = commit.actions
    columns = ("kind", "key", "size_bytes", "num_records", "deleted_rows", "encoded_partition")
    for kind, key, size, rows, deleted, partition in zip(*(actions[c].to_pylist() for c in columns), strict=True):
        if kind != Kind.CDC:
            yield kind, key, (size, None if rows is None else rows - deleted, partition)
