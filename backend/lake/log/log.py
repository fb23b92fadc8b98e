"""One table's log, read once: names, parsed commits, states.

Rule: a version never changes, so what was read of it is cached, and a refresh costs the new commits alone. When the
table was made anew under the same path, everything is forgotten. Protocol and metadata are those named last; files stay
columns (`FileSet`) and are read when asked for.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from backend.caches import Lru
from backend.errors import (
    LakehouseError,
    ObjectMissingError,
    PathRefusedError,
    StorageError,
    TableCorruptError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from backend.lake.log.actions import Checksum, read_checksum
from backend.lake.log.commit_info import CommitCache
from backend.lake.log.commits import CommitSlice
from backend.lake.log.listing import (
    LOG,
    STAGED,
    Checkpoint,
    LogListing,
    LogNames,
    Segment,
    Step,
    commit_name,
    staged_version_of,
)
from backend.lake.model import Commit, Metadata, Protocol, Snapshot, TableRef
from backend.lake.storage.folder import Folder, check_paths, is_remote
from backend.lake.table.properties import READER_FEATURES
from backend.settings import LakeSettings

if TYPE_CHECKING:
    import pyarrow as pa

    from backend.lake.log.checkpoint import CheckpointState
    from backend.lake.log.file_set import FileSet, LiveFiles

MAX_READER_VERSION = 3
_COLUMN = re.compile(r'"name"\s*:')


@dataclass(slots=True)
class LogState:
    """A table at one version as the log says. `read_past`: what is to be said of commits without a byte; `snapshot`:
    for readers, once one asked."""

    version: int
    segment: Segment  # the way that protocol and metadata were read from
    protocol: Protocol
    metadata: Metadata
    files: FileSet
    small_actions: Callable[[], tuple[Mapping[str, int], Mapping[str, str]]] = field(compare=False)
    read_past: tuple[str, ...] = ()
    snapshot: Snapshot | None = None


def damaged(problem: str, *, is_first: bool) -> TableCorruptError:
    """`is_first`: no version before it is known."""
    rest = ": no version can be read without it" if is_first else "; versions before it can still be read"
    return TableCorruptError(problem, hint=f"restore the file{rest}")


def check_readable(protocol: Protocol, metadata: Metadata, most_columns: int) -> None:
    """Raise `UnsupportedFeatureError` when the protocol asks a reader for more than this one knows, or the schema has
    more columns than may be read: a count without parsing it."""
    if protocol.min_reader_version > MAX_READER_VERSION:
        raise UnsupportedFeatureError(
            f"the table needs reader version {protocol.min_reader_version}; Weir knows up to {MAX_READER_VERSION}",
            hint="its history can still be read",
        )
    unknown = sorted(set(protocol.reader_features) - READER_FEATURES)
    if protocol.min_reader_version == MAX_READER_VERSION and unknown:
        raise UnsupportedFeatureError(
            f"the table needs the reader feature {', '.join(unknown)}, which Weir does not know",
            hint="its history can still be read",
        )
    if (columns := len(_COLUMN.findall(metadata.schema_json))) > most_columns:
        raise UnsupportedFeatureError(
            f"the table has {columns:,} columns, nested ones counted; Weir reads up to {most_columns:,}",
            hint="its history can still be read; the setting lake.max_columns allows more",
        )


POLL_S = 1.0  # an object store is asked for news at most this often, however many viewers look
MOST_STATES = 24
MOST_BASES = 2  # each may hold the columns of a million files

Answer = TypeVar("Answer")


class TableLog:
    """Thread-safe reader of one table's log."""

    def __init__(self, ref: TableRef, folder: Folder, allowed: Sequence[str], limits: LakeSettings) -> None:
        self.ref = ref
        self._folder = folder
        self._allowed, self._limits = tuple(allowed), limits
        self._lock = threading.RLock()
        self._names = LogNames(folder, poll_s=min(POLL_S, limits.refresh_s))
        self._forget()

    def latest(self) -> int:
        """The newest version now; raises `TableNotFoundError` when there is no log (any more)."""
        return self._head().latest

    def listing(self) -> LogListing:
        """Every name of the log now."""
        with self._lock:
            self._head()
            return self._names.whole()

    @contextmanager
    def held(self) -> Iterator[None]:
        """What is read meanwhile is of one moment, and looks for news once."""
        with self._lock:
            self._head()
            self._names.held += 1
        try:
            yield
        finally:
            with self._lock:
                self._names.held -= 1

    def last_checkpoint(self) -> int | None:
        """The version of the newest complete checkpoint: a new one may come without a new commit."""
        with self._lock:
            self._head()
            names = self._names.whole() if self._names.held else self._names.relist()
            return max(names.checkpoints, default=None)

    def generation(self) -> int:
        """Grows when the table at this address was found to be another one."""
        return self._generation

    def commits(self, versions: Iterable[int]) -> list[CommitSlice]:
        """Parsed commits in the order asked for; raises `VersionNotFoundError` when one is gone."""
        with self._lock:
            return self._read([Step(version, version) for version in versions])

    def state(self, version: int) -> LogState:
        """The log's state at a version; see `Lake.snapshot` for what it raises."""
        with self._lock:
            self._head()
            state = self._states.get(version)
            if state is None or self._is_base_gone(state):
                state = self._reconstruct(version)
                if not state.read_past:  # one may yet be written to its end
                    self._states.put(version, state)
            return state

    def snapshot(self, version: int | None) -> Snapshot:
        with self._lock:
            latest = self.latest()
            version = latest if version is None else version
            state = self.state(version)
            if state.snapshot is None:
                check_readable(state.protocol, state.metadata, self._limits.max_columns)
                state.snapshot = Snapshot(
                    self.ref,
                    version,
                    self.committed_at(version),
                    state.protocol,
                    state.metadata,
                    state.files,
                    state.small_actions,
                    partial(self._findings, state),
                )
            return state.snapshot

    def history(self, *, limit: int | None, low: int, high: int | None) -> list[Commit]:
        """Commits for people, newest first, both ends included; those cleaned away are not there."""
        with self._lock:
            head = self._head()
            newest = head.latest if high is None else min(high, head.latest)
            oldest = low if limit is None else max(low, newest - max(0, limit) + 1)
            likely = range(newest, oldest - 1, -1)  # without a look at older names, taking those not listed for there
            if (limit is not None or head.complete_from <= oldest) and all(
                v in head.commits or v < head.complete_from for v in likely
            ):
                with suppress(VersionNotFoundError):
                    return self._history(likely)
            listed = [v for v in sorted(self._names.whole().commits, reverse=True) if low <= v <= newest]
            return self._history(listed if limit is None else listed[: max(0, limit)])

    def commit(self, version: int) -> Commit:
        """One commit for people; raises `VersionNotFoundError`."""
        with self._lock:
            return self._history([version])[0]

    def committed_at(self, version: int) -> datetime | None:
        """When a version was made; None when its commit was cleaned away."""
        with self._lock:
            head = self._head()
            names = head if version >= head.complete_from else self._names.whole()
            return self._commits.committed_at([version])[version] if version in names.commits else None

    def committed_times(self, versions: Iterable[int]) -> dict[int, datetime | None]:
        """When versions whose commits are there were made."""
        with self._lock:
            return self._commits.committed_at(versions)

    def version_at(self, when: datetime) -> int | None:
        """The newest version that was committed at or before a time; None when all are younger."""
        with self._lock:
            head = self._head()
            try:
                configuration = self.state(head.latest).metadata.configuration
            except LakehouseError:
                configuration = {}  # a broken version hides no time of the others
            return self._commits.version_at(when, sorted(self._names.whole().commits), configuration)

    def file_times(self, versions: Sequence[int]) -> dict[int, datetime]:
        """When commit files were written, where they are there."""
        return self._commits.file_times(versions)

    def staged_versions(self) -> tuple[int, ...]:
        """Versions beyond the latest that are written in `_staged_commits`: a table's catalog alone knows which of them
        count (PROTOCOL.md, "Catalog-managed tables")."""
        with self._lock:
            latest = self._head().latest
        staged = (staged_version_of(entry.name) for entry in self._folder.list(STAGED))
        return tuple(sorted({version for version in staged if version is not None and version > latest}))

    def commit_tag(self, version: int) -> str:
        """What tells this commit's file from another one of the same name; empty when it is not there."""
        entry = self._folder.stat(f"{LOG}/{commit_name(version)}")
        return (entry.tag or "") if entry else ""

    def base_version(self, version: int) -> int:
        """The version of the checkpoint that `version` is reconstructed from, -1 when from the first commit."""
        checkpoint = self.state(version).segment.checkpoint
        return checkpoint.version if checkpoint else -1

    def checksum(self, version: int) -> Checksum | None:
        """What the writer said of a version in its `.crc`; None without one, or when it cannot be read."""
        with self._lock:
            head = self._head()
            if is_remote(self._folder.uri) and version not in self._names.for_version(version).checksums:
                return None
            if version > head.latest:
                return None
            if (cached := self._checksums.get(version)) is None:
                try:
                    cached = True, read_checksum(self._folder.read(f"{LOG}/{version:020d}.crc"))
                except ObjectMissingError:
                    cached = False, None
                except (StorageError, PathRefusedError):
                    cached = True, None
                self._checksums.put(version, cached)
            return cached[1]

    def _head(self) -> LogListing:
        with self._lock:
            head = self._names.head()
            if self._names.generation != self._generation:
                self._forget()
            return head

    def _forget(self) -> None:
        self._generation = self._names.generation
        self._commits = CommitCache(self._folder, self._names.times)
        self._bases: Lru[Checkpoint, CheckpointState] = Lru(MOST_BASES)
        self._states: Lru[int, LogState] = Lru(MOST_STATES)
        self._checksums: Lru[int, tuple[bool, Checksum | None]] = Lru(MOST_STATES)  # is there a file, what it says

    def _read(self, steps: Sequence[Step]) -> list[CommitSlice]:
        with self._stale_names():
            return self._commits.read(steps)

    @contextmanager
    def _stale_names(self) -> Iterator[None]:
        """A commit that is gone is a reason to list the log again."""
        try:
            yield
        except VersionNotFoundError:
            self._names.relist()
            raise

    def _history(self, versions: Iterable[int]) -> list[Commit]:
        with self._stale_names():
            return self._commits.commits(versions)

    def _reconstruct(self, version: int) -> LogState:
        from backend.lake.log.file_set import FileSet

        def named_last(segment: Segment) -> tuple[Protocol, Metadata, tuple[str, ...]]:
            base, commits = self._base(segment.checkpoint), self._read(segment.steps)
            protocol, metadata = (base.protocol, base.metadata) if base else (None, None)
            records = [commit.record for commit in commits]
            for record in records:
                if record.problem:
                    raise damaged(record.problem, is_first=protocol is None)
                protocol, metadata = record.protocol or protocol, record.metadata or metadata
            if protocol is None or metadata is None:
                raise TableCorruptError(
                    f"the log up to version {version} holds no protocol or no metaData",
                    hint="the first commit is damaged",
                )
            self.file_actions(commits)  # raises for a path that leads outside
            return protocol, metadata, tuple(str(record.fault) for record in records if record.is_empty)

        segment, (protocol, metadata, read_past), _ = self._first_readable(version, named_last)
        files = FileSet(metadata, lambda again: self._live_files(version, again=again), self._lock)
        return LogState(version, segment, protocol, metadata, files, lambda: self._small_actions(segment), read_past)

    def _is_base_gone(self, state: LogState) -> bool:
        """Whether the checkpoint of a cached state was cleaned away; on an object store the next column read tells."""
        checkpoint = state.segment.checkpoint
        if state.files.is_gone or checkpoint is None or is_remote(self._folder.uri):
            return state.files.is_gone
        return any(entry is None for entry in self._folder.stat_many([f"{LOG}/{name}" for name in checkpoint.files]))

    def _live_files(self, version: int, *, again: bool) -> LiveFiles:
        from backend.lake.log.file_set import decide

        def decided(segment: Segment) -> LiveFiles:
            actions = self.file_actions(self._read(segment.steps))
            return decide(self._base(segment.checkpoint), actions)

        if again:
            self._look_again()
        _, live, problem = self._first_readable(version, decided)
        return replace(live, finding=f"{problem.message}; read from an older state instead") if problem else live

    def file_actions(self, commits: Sequence[CommitSlice]) -> pa.Table:
        """The file actions of commits (`file_set.ACTIONS`); raises `PathRefusedError` for a file that the table may
        not name."""
        from backend.lake.log.file_set import joined_actions

        actions = joined_actions([commit.actions for commit in commits if commit.length])
        check_paths(actions["path"], self.ref.uri, self._allowed)
        check_paths(actions["dv_path"].drop_null(), self.ref.uri, self._allowed)
        return actions

    def _first_readable(
        self, version: int, read: Callable[[Segment], Answer]
    ) -> tuple[Segment, Answer, LakehouseError | None]:
        """What the best readable way to a version gives, and why a better one could not be read."""
        # A name that is gone, or no way that leads anywhere: the log is listed again, once.
        with self._lock:
            try:
                return _first(self._names.for_version(version).segments(version), read, is_fresh=False)
            except (TableCorruptError, ObjectMissingError, VersionNotFoundError):
                self._look_again()
                return _first(self._names.for_version(version).segments(version), read, is_fresh=True)

    def _look_again(self) -> None:
        self._names.relist()
        self._bases.clear()

    def _small_actions(self, segment: Segment) -> tuple[Mapping[str, int], Mapping[str, str]]:
        with self._lock:
            base = self._base(segment.checkpoint)
            transactions: dict[str, int] = {}
            domains: dict[str, str | None] = {}
            records = [commit.record for commit in self._read(segment.steps)]
            for named in (base.small_actions() if base else ({}, {}), *((r.transactions, r.domains) for r in records)):
                transactions |= named[0]
                domains |= named[1]
        return transactions, {name: text for name, text in domains.items() if text is not None}

    def _base(self, checkpoint: Checkpoint | None) -> CheckpointState | None:
        if checkpoint is None:
            return None
        from backend.lake.log.checkpoint import CheckpointState

        with self._lock:
            return self._bases.get_or_make(
                checkpoint, lambda: CheckpointState(self._folder, checkpoint, self._allowed, self._limits)
            )

    def _findings(self, state: LogState) -> tuple[str, ...]:
        """What was odd about the files that were read, what was read past, and where a checksum disagrees."""
        state.files.resolve()
        written, odd = self.checksum(state.version), list[str]()
        if written is None:
            is_there, _ = self._checksums.get(state.version) or (False, None)
            odd += [f"checksum {state.version:020d}.crc cannot be read"] if is_there else []
        elif words := written.disagreement(
            state.files.num_files, state.files.total("size_bytes")[0], state.protocol, state.metadata
        ):
            odd.append(f"checksum of version {state.version} disagrees: {words}")
        return (*state.files.findings, *state.read_past, *odd)


def _first(
    ways: Sequence[Segment], read: Callable[[Segment], Answer], *, is_fresh: bool
) -> tuple[Segment, Answer, LakehouseError | None]:
    """The first way that can be read. Of names just listed, a missing file is damage; of older ones it is raised."""
    problem: LakehouseError | None = None
    for segment in ways:
        try:
            return segment, read(segment), problem
        except TableCorruptError as exc:
            problem = problem or exc
        except (ObjectMissingError, VersionNotFoundError) as exc:
            if not is_fresh:
                raise
            problem = problem or exc
    assert problem is not None
    raise problem
