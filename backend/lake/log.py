"""One table's log, read once and kept: listing, parsed commits, states.

Rule: a version never changes, so what was read of it is kept; a refresh asks for the newest commit and its successor
alone. When the newest commit is not the one that was seen (the table was made anew), everything is forgotten.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TypeVar

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from backend.errors import (
    LakehouseError,
    ObjectMissingError,
    PathRefusedError,
    StorageError,
    TableCorruptError,
    TableNotFoundError,
    VersionNotFoundError,
)
from backend.lake.checkpoint import LogState, load_checkpoint
from backend.lake.commits import CommitSlice, commit_name, parse_commits
from backend.lake.history import committed_at, read_commit
from backend.lake.listing import LOG, LogListing, Segment, read_listing
from backend.lake.model import Commit, Snapshot, TableRef
from backend.lake.replay import check_paths, check_readable, replay, snapshot_of
from backend.lake.storage import Folder

STATES_KEPT = 3
SNAPSHOTS_KEPT = 6
READ_AT_ONCE = 512

Kept = TypeVar("Kept")


class TableLog:
    """Thread-safe reader of one table's log."""

    def __init__(self, ref: TableRef, folder: Folder, allowed: Sequence[str]) -> None:
        self.ref = ref
        self._folder = folder
        self._allowed = tuple(allowed)
        self._lock = threading.RLock()
        self._forget()

    def latest(self) -> int:
        """The newest version now; raises `TableNotFoundError` when there is no log (any more)."""
        with self._lock:
            self._refresh()
            return self._listed().latest

    def listing(self) -> LogListing:
        with self._lock:
            self._refresh()
            return self._listed()

    def generation(self) -> int:
        """Grows when the table at this place was found to be another one."""
        return self._generation

    def commits(self, versions: Iterable[int]) -> list[CommitSlice]:
        """Parsed commits in the order asked for; raises `VersionNotFoundError` when one is gone.

        One that could not be read is tried again: it may have been half written.
        """
        wanted = list(versions)
        with self._lock:
            missing = [v for v in wanted if v not in self._slices or self._slices[v].record.problem]
            for start in range(0, len(missing), READ_AT_ONCE):
                self._read(missing[start : start + READ_AT_ONCE])
            return [self._slices[v] for v in wanted]

    def state(self, version: int) -> LogState:
        """The log's state at a version; see `Lake.snapshot` for what it raises."""
        with self._lock:
            if version not in self._states:
                _keep(self._states, version, self._reconstruct(version), STATES_KEPT)
            self._states.move_to_end(version)
            return self._states[version]

    def snapshot(self, version: int | None) -> Snapshot:
        with self._lock:
            latest = self.latest()
            version = latest if version is None else version
            if version not in self._snapshots:
                state = self.state(version)
                check_readable(state.protocol)
                self._check(state.files)
                findings = self._compare_checksum(state)
                built = snapshot_of(self.ref, state, self.committed_at(version), findings)
                _keep(self._snapshots, version, built, SNAPSHOTS_KEPT)
            self._snapshots.move_to_end(version)
            return self._snapshots[version]

    def history(self, versions: Iterable[int]) -> list[Commit]:
        """Commits for people, in the order asked for."""
        with self._lock:
            return [self._commit(commit) for commit in self.commits(versions)]

    def committed_at(self, version: int) -> datetime | None:
        """When a version was made; None when its commit was cleaned away."""
        with self._lock:
            if version not in self._listed().commits:
                return None
            return committed_at(self.commits([version])[0].record.commit_info) or self._modified_at(version)

    def _commit(self, commit: CommitSlice) -> Commit:
        record = commit.record
        if record.version not in self._history or record.problem:
            modified_at = None if committed_at(record.commit_info) else self._modified_at(record.version)
            self._history[record.version] = read_commit(commit, modified_at)
        return self._history[record.version]

    def _modified_at(self, version: int) -> datetime | None:
        """The commit file's own time: all there is where a writer left none."""
        entry = self._folder.stat(f"{LOG}/{commit_name(version)}")
        return entry.modified_at if entry else None

    def _forget(self) -> None:
        self._generation = getattr(self, "_generation", -1) + 1
        self._listing: LogListing | None = None
        self._tag: str | None = None
        self._slices: dict[int, CommitSlice] = {}
        self._history: dict[int, Commit] = {}
        self._states: OrderedDict[int, LogState] = OrderedDict()
        self._snapshots: OrderedDict[int, Snapshot] = OrderedDict()

    def _listed(self) -> LogListing:
        if self._listing is None:
            self._list()
        assert self._listing is not None
        return self._listing

    def _list(self) -> None:
        entries = self._folder.list(LOG)
        listing = read_listing(entry.name for entry in entries)
        if not listing.commits and not listing.checkpoints:
            self._forget()
            what = "its log is empty" if entries else "there is no _delta_log"
            raise TableNotFoundError(f"{self.ref.uri} is not a Delta table: {what}", hint="it may have been deleted")
        self._listing = listing
        self._tag = self._tag_of(listing.latest)

    def _refresh(self) -> None:
        if self._listing is None:
            self._list()
            return
        latest = self._listing.latest
        if self._tag_of(latest) != self._tag:
            self._forget()
            self._list()
        elif self._folder.stat(f"{LOG}/{commit_name(latest + 1)}") is not None:
            self._list()

    def _tag_of(self, version: int) -> str | None:
        assert self._listing is not None
        name = commit_name(version)
        if version not in self._listing.commits:
            name = self._listing.checkpoints[version][0].files[0]
        entry = self._folder.stat(f"{LOG}/{name}")
        return entry.tag if entry else None

    def _read(self, versions: Sequence[int]) -> None:
        contents = self._folder.read_many([f"{LOG}/{commit_name(v)}" for v in versions])
        for version, content in zip(versions, contents, strict=True):
            if isinstance(content, ObjectMissingError):
                self._list()
                raise VersionNotFoundError(
                    f"commit {version} of {self.ref.uri} is gone", hint="it was cleaned while it was read"
                ) from content
            if isinstance(content, StorageError):
                raise content
        pairs = ((v, c) for v, c in zip(versions, contents, strict=True) if isinstance(c, bytes))
        self._slices.update((commit.record.version, commit) for commit in parse_commits(pairs))

    def _reconstruct(self, version: int) -> LogState:
        base = self._nearest_state(version)
        if base is not None:
            return self._checked_replay(base, range(base.version + 1, version + 1))
        first_error: LakehouseError | None = None
        for segment in self._listed().segments(version):
            try:
                return self._from_segment(segment, first_error)
            except (TableCorruptError, ObjectMissingError) as exc:
                first_error = first_error or exc
        assert first_error is not None
        raise first_error

    def _from_segment(self, segment: Segment, earlier: LakehouseError | None) -> LogState:
        base = load_checkpoint(self._folder, segment.checkpoint) if segment.checkpoint else None
        state = self._checked_replay(base, segment.commits)
        if earlier is None:
            return state
        finding = f"{earlier.message}; read from an older state instead"
        return LogState(state.version, state.protocol, state.metadata, state.files, (*state.findings, finding))

    def _checked_replay(self, base: LogState | None, versions: range) -> LogState:
        commits = self.commits(versions)
        for commit in commits:
            if commit.length:
                self._check(commit.actions)
        return replay(base, commits)

    def _check(self, files: pa.Table) -> None:
        check_paths(files["path"], self.ref.uri, self._allowed)
        check_paths(files["dv_path"].drop_null(), self.ref.uri, self._allowed)

    def _nearest_state(self, version: int) -> LogState | None:
        listed = self._listed().commits
        below = [v for v in self._states if v < version and all(c in listed for c in range(v + 1, version + 1))]
        return self._states[max(below)] if below else None

    def _compare_checksum(self, state: LogState) -> tuple[str, ...]:
        if state.version not in self._listed().checksums:
            return ()
        name = f"{state.version:020d}.crc"
        try:
            checksum = orjson.loads(self._folder.read(f"{LOG}/{name}"))
            said = (checksum["numFiles"], checksum["tableSizeBytes"])
        except (StorageError, PathRefusedError, orjson.JSONDecodeError, KeyError, TypeError):
            return (f"checksum {name} cannot be read",)
        found = (state.files.num_rows, int(pc.sum(state.files["size_bytes"]).as_py() or 0))
        if said == found:
            return ()
        return (f"checksum of version {state.version} disagrees: it says {said[0]} files and {said[1]} bytes, "
                f"the log holds {found[0]} files and {found[1]} bytes",)  # fmt: skip


def _keep(cache: OrderedDict[int, Kept], version: int, value: Kept, most: int) -> None:
    cache[version] = value
    while len(cache) > most:
        cache.popitem(last=False)
