"""Totals after every version that the log can still reconstruct, in one pass.

Rule: each commit is applied once, as its adds and removes; no version is replayed from its checkpoint. What was worked
out for a version never changes, so it is kept on disk too, and believed while the newest commit that it covers is the
same. Lost or damaged, a file costs time alone.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from backend.errors import LakehouseError, ObjectMissingError, TableCorruptError, VersionNotFoundError
from backend.lake.log.commits import CommitSlice
from backend.lake.log.log import TableLog
from backend.lake.model import Timeline, VersionTotals
from backend.private_files import write_private
from backend.settings import HealthSettings

if TYPE_CHECKING:  # counts with numpy: for whoever asks for totals
    import pyarrow as pa

    from backend.lake.history.running_totals import RunningTotals

AT_ONCE = 512  # commits; a long history is not held in memory as a whole
SAVE_AFTER = 50  # versions that were worked out and are not on disk yet
FORMAT = "3"  # of a file, which is named by table, table id and the rule for small files
MOST_FILES = 2_000
_LAST_TAG = b"weir.last_commit"

_log = logging.getLogger(__name__)  # structlog would cost each command 0.2 s


class TableTimeline:
    """One table's totals, kept and moved forward by the new commits alone. Thread-safe."""

    def __init__(self, log: TableLog, health: HealthSettings, store: TimelineStore) -> None:
        self._log = log
        self._health = health
        self._store = store
        self._lock = threading.Lock()
        self._generation = -1
        self._totals: list[VersionTotals] = []
        self._running: RunningTotals | None = None
        self._saved = 0

    def newest(self) -> tuple[VersionTotals, tuple[int, int], int]:
        """Totals of the latest version: from the newest checkpoint, and then from the new commits alone. With what
        `file_sizes.merge_estimate` tells of it, and its files far above the target."""
        with self._lock:
            latest = self._log.latest()
            self._forget_another_table()
            if not self._totals or self._totals[-1].version > latest:
                self._begin(latest if self._log.base_version(latest) > 0 else 0)
            self._reach(latest)
            running = self._running_at(latest)
            return self._totals[-1], running.merge_estimate(), running.large_files()

    def read(self) -> Timeline:
        """Totals of the newest unbroken run of versions; raises `TableCorruptError` when a commit cannot be read."""
        with self._lock:
            listing = self._log.listing()
            listing.segments(listing.latest)  # raises, with what is missing, when there is nothing to show
            first, last = listing.spans()[-1]
            self._forget_another_table()
            if not self._totals:
                self._totals = self._store.load(self._log, self._health, first)
                self._saved = len(self._totals)
            if not self._totals or self._totals[-1].version > last:
                self._begin(first)
            if self._totals[0].version > first:
                before, running = self._started(first)
                self._totals = before + self._walk(running, range(first + 1, self._totals[0].version)) + self._totals
            self._reach(last)
            self._save()
            first = max(first, self._totals[0].version)
            shown = self._totals[first - self._totals[0].version :]
            return Timeline(tuple(shown), first, truncated=first > 0)

    def _forget_another_table(self) -> None:
        if self._log.generation() != self._generation:
            self._generation = self._log.generation()
            self._totals, self._running, self._saved = [], None, 0

    def _begin(self, first: int) -> None:
        """Start at a version that the log can reconstruct."""
        self._totals, self._running = self._started(first)
        self._saved = 0

    def _started(self, first: int) -> tuple[list[VersionTotals], RunningTotals]:
        from backend.lake.history.running_totals import RunningTotals

        commit = self._log.commits([first])[0] if self._log.has_commit(first) else None
        if first == 0 and commit is not None:
            running = RunningTotals(None, self._health)
            running.apply(commit)
        else:
            running = RunningTotals(self._log.state(first), self._health)
        return [self._total(running, first, commit)], running

    def _reach(self, last: int) -> None:
        """Move on to a version; where a commit on the way is damaged or gone, start again behind it."""
        try:
            self._move_to(last)
        except (TableCorruptError, VersionNotFoundError, ObjectMissingError):
            self._begin(max(0, self._log.base_version(last)))
            self._move_to(last)

    def _move_to(self, last: int) -> None:
        at = self._totals[-1].version
        if at >= last:
            return
        self._totals += self._walk(self._running_at(at), range(at + 1, last + 1))

    def _running_at(self, version: int) -> RunningTotals:
        """Those that stand at a version: made from its state where the totals before it were on disk."""
        if self._running is None:
            from backend.lake.history.running_totals import RunningTotals

            self._running = RunningTotals(self._log.state(version), self._health)
        return self._running

    def _walk(self, running: RunningTotals, versions: range) -> list[VersionTotals]:
        found: list[VersionTotals] = []
        there = self._log.listing().commits if len(versions) else frozenset()
        for start in range(versions.start, versions.stop, AT_ONCE):
            batch = range(start, min(versions.stop, start + AT_ONCE))
            commits = {c.record.version: c for c in self._log.commits(v for v in batch if v in there)}
            for version in batch:
                if version in commits:
                    running.apply(commits[version])
                else:
                    running.restart(self._log.state(version))
                found.append(self._total(running, version, commits.get(version)))
        return found

    def _total(self, running: RunningTotals, version: int, commit: CommitSlice | None) -> VersionTotals:
        if commit is None:
            return running.totals(version, None, None)
        info = commit.record.commit_info
        operation = info.get("operation") if isinstance(info, Mapping) else None
        return running.totals(
            version, self._log.committed_at(version), operation if isinstance(operation, str) else None
        )

    def _save(self) -> None:
        if len(self._totals) - self._saved >= SAVE_AFTER:
            self._store.save(self._log, self._health, self._totals)
            self._saved = len(self._totals)


# on disk ---------------------------------------------------------------------------------------------------------


class TimelineStore:
    """`folder` None: nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def load(self, log: TableLog, health: HealthSettings, first: int) -> list[VersionTotals]:
        """Totals from version `first` on, as far as they were kept; empty when they cannot be believed."""
        path = self._path(log, health)
        if path is None or not path.is_file():
            return []
        import pyarrow as pa

        try:
            with pa.memory_map(str(path)) as source:
                table = pa.ipc.open_file(source).read_all()
            rows = [VersionTotals(**row) for row in table.to_pylist()]
            kept_tag = (table.schema.metadata or {}).get(_LAST_TAG, b"").decode()
        except (OSError, pa.ArrowException, TypeError) as exc:
            _log.warning("the timeline in %s cannot be read: %.200s", path, exc)
            return []
        rows = [row for row in rows if row.version >= first]
        if not rows or rows[0].version != first or kept_tag != log.commit_tag(rows[-1].version):
            return []
        return rows

    def save(self, log: TableLog, health: HealthSettings, totals: Sequence[VersionTotals]) -> None:
        path = self._path(log, health)
        if path is None:
            return
        tag = log.commit_tag(totals[-1].version)
        if not tag:
            return
        import pyarrow as pa

        columns = {name: [getattr(item, name) for item in totals] for name in _schema().names}
        table = pa.table(columns, schema=_schema().with_metadata({_LAST_TAG: tag.encode()}))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        try:
            write_private(path, sink.getvalue())
            self._prune()
        except OSError as exc:
            _log.warning("the timeline is not kept in %s: %.200s", path, exc)

    def _path(self, log: TableLog, health: HealthSettings) -> Path | None:
        if self._folder is None or not self._folder.parent.is_dir():
            return None
        try:
            table_id = log.state(log.latest()).metadata.id
        except LakehouseError:
            return None
        rule = (health.small_file_ratio, health.target_file_bytes)
        named = "\0".join((FORMAT, log.ref.uri, table_id, str(rule)))
        return self._folder / f"{hashlib.sha256(named.encode()).hexdigest()[:32]}.arrow"

    def _prune(self) -> None:
        assert self._folder is not None
        files = sorted(self._folder.glob("*.arrow"), key=lambda file: file.stat().st_mtime)
        for file in files[:-MOST_FILES]:
            file.unlink(missing_ok=True)


@cache
def _schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [
            ("version", pa.int64()),
            ("committed_at", pa.timestamp("us", tz="UTC")),
            ("operation", pa.string()),
            ("num_files", pa.int64()),
            ("size_bytes", pa.int64()),
            ("num_rows", pa.int64()),
            ("small_files", pa.int64()),
        ]
    )
