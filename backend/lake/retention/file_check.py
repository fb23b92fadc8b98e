"""Which files of a table's folder are there, which VACUUM would delete, and which somebody has yet to read.

Rule: what was looked at is what is claimed; every step of a look reports how far it is, and whoever stops asking ends
the work. Removed files come first, for only those can a VACUUM have deleted. What it would delete goes by Delta's own
rule (PROTOCOL.md, "Data Files"; VacuumCommand): nothing within the retention names it, and it is older than that; where
the log no longer says what was removed within the retention, nothing is claimed. Nothing outside the table and the
allowed roots is looked for.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backend.errors import LakehouseError, VersionNotFoundError
from backend.lake.history.change_feed import arriving
from backend.lake.log.actions import FileAction, read_vector_id
from backend.lake.log.listing import LOG, commit_name
from backend.lake.log.log import TableLog
from backend.lake.model import Snapshot
from backend.lake.retention.runs import FilesSeen
from backend.lake.storage.folder import Entry, Folder, is_remote, is_within, resolve_log_path
from backend.lake.storage.storage import Storage, TableFile, TableFiles

SAMPLE = 200
EXAMPLES = 5
_BATCH = 256  # files between two reports, after each of which the caller may leave
_LIST_FROM = 64  # files of one folder in one batch: from here on one listing is cheaper than single requests


@dataclass(frozen=True, slots=True)
class LogSeen:
    """How far looking for every file of every version is, and the runs of versions that miss at least one."""

    checked: int
    total: int
    missing: int
    runs: tuple[tuple[int, int], ...] = ()

    @property
    def is_done(self) -> bool:
        return self.checked >= self.total


class FileFinder:
    """Looks for the files of one table."""

    def __init__(self, storage: Storage, table: str) -> None:
        self._files = TableFiles(storage, table)
        self._table = table

    def present(self, paths: Sequence[str]) -> list[bool]:
        """Whether each path of the log (decoded) has a file; raises `PathRefusedError` or `StorageError`."""
        files = [self._files.locate(path) for path in paths]
        listed = self._listed(files) if is_remote(self._table) else set()
        by_folder: dict[str, list[TableFile]] = {}
        for file in files:
            if file.uri not in listed:
                by_folder.setdefault(file.folder.uri, []).append(file)
        for asked in by_folder.values():
            entries = asked[0].folder.stat_many([file.path for file in asked])
            listed |= {file.uri for file, entry in zip(asked, entries, strict=True) if entry is not None}
        return [file.uri in listed for file in files]

    def _listed(self, files: Sequence[TableFile]) -> set[str]:
        """The files that a listing of the table's fullest folders shows; the others are asked for one by one."""
        inside = [file for file in files if is_within(file.uri, self._table)]
        found: set[str] = set()
        for parent, count in Counter(file.path.rpartition("/")[0] for file in inside).items():
            if count >= _LIST_FROM:
                folder = inside[0].folder
                names = {entry.name for entry in folder.list(parent) if not entry.is_folder}
                found |= {f"{folder.uri}/{parent}/{name}" if parent else f"{folder.uri}/{name}" for name in names}
        return found


def see_files(
    finder: FileFinder, snapshot: Snapshot, latest: Snapshot | None, *, sample: int | None
) -> Iterator[FilesSeen]:
    """How far looking for a version's files is, after each batch; the last one is the answer. Those that the latest
    version no longer names come first; at most `sample`, None for all."""
    paths = _paths(snapshot)
    version, total, checked, missing = snapshot.version, len(paths), 0, 0
    gone, live = paths[:0], paths
    if latest is not None and latest.version != version:
        mask = pc.is_in(paths, value_set=_paths(latest))
        gone, live = paths.filter(pc.invert(mask)), paths.filter(mask)
    if sample is not None:  # each evenly spread
        gone = _spread(gone, sample)
        live = _spread(live, sample - len(gone))
    paths = pa.concat_arrays([gone, live])
    examples: list[str] = []
    yield FilesSeen(version, total, 0, 0)
    for start in range(0, len(paths), _BATCH):
        batch = paths[start : start + _BATCH].to_pylist()
        lost = [path for path, there in zip(batch, finder.present(batch), strict=True) if not there]
        checked, missing = checked + len(batch), missing + len(lost)
        examples += lost[: EXAMPLES - len(examples)]
        yield FilesSeen(version, total, checked, missing, tuple(examples))


def see_log(finder: FileFinder, log: TableLog, spans: Sequence[tuple[int, int]]) -> Iterator[LogSeen]:
    """Look for every file of every version, each file once."""
    lives = _lives(log, spans)
    paths = sorted(lives)
    lost: list[str] = []
    yield LogSeen(0, len(paths), 0)
    for start in range(0, len(paths), _BATCH):
        batch = paths[start : start + _BATCH]
        lost += [path for path, there in zip(batch, finder.present(batch), strict=True) if not there]
        checked = start + len(batch)
        runs = _merged(life for path in lost for life in lives[path]) if checked == len(paths) else ()
        yield LogSeen(checked, len(paths), len(lost), runs)


def _paths(snapshot: Snapshot) -> pa.Array:
    """Data files and deletion-vector files of a version, each once."""
    table = snapshot.columns(["path", "dv_id"])
    paths = table["path"].unique()
    vectors = sorted(
        {v for text in table["dv_id"].drop_null().unique().to_pylist() if (v := read_vector_id(text).file)}
    )
    return pa.concat_arrays([paths.cast(pa.string()), pa.array(vectors, pa.string())])


def _spread(values: pa.Array, most: int) -> pa.Array:
    if len(values) <= most:
        return values
    return values.take(pa.array(np.linspace(0, len(values) - 1, most).round().astype(np.int64)))


def _lives(log: TableLog, spans: Sequence[tuple[int, int]]) -> dict[str, list[tuple[int, int]]]:
    """The runs of versions that name a file, by file."""
    lives: dict[str, list[tuple[int, int]]] = {}
    for first, last in spans:
        table = log.snapshot(first).columns(["path", "dv_id"])
        open_since = dict.fromkeys(zip(table["path"].to_pylist(), table["dv_id"].to_pylist(), strict=True), first)
        for commit in log.commits(range(first + 1, last + 1)):
            actions, version = commit.actions, commit.record.version
            for kind, path, dv_id in zip(
                actions["kind"].to_pylist(), actions["path"].to_pylist(), actions["dv_id"].to_pylist(), strict=True
            ):
                if kind == FileAction.REMOVE and (path, dv_id) in open_since:
                    _close(lives, path, dv_id, (open_since.pop((path, dv_id)), version - 1))
                elif kind == FileAction.ADD:
                    open_since.setdefault((path, dv_id), version)
        for (path, dv_id), since in open_since.items():
            _close(lives, path, dv_id, (since, last))
    return lives


def _close(lives: dict[str, list[tuple[int, int]]], path: str, dv_id: str | None, life: tuple[int, int]) -> None:
    lives.setdefault(path, []).append(life)
    vector = read_vector_id(dv_id).file if dv_id else None
    if vector is not None:
        lives.setdefault(vector, []).append(life)


def _merged(lives: Iterator[tuple[int, int]] | Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    runs: list[tuple[int, int]] = []
    for first, last in sorted(lives):
        if last < first:
            continue  # added and removed in one commit
        if runs and first <= runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], max(last, runs[-1][1]))
        else:
            runs.append((first, last))
    return tuple(runs)


_SLACK = timedelta(hours=1)  # between a removal by its writer's clock, and its commit
_GOES_ALTHOUGH_HIDDEN = ("_delta_index", "_change_data")
_HEAD_BYTES = 8_192  # of a commit: its first line begins with what it did
_ICEBERG = "metadata"  # of tables that are readable as Iceberg, too


@dataclass(frozen=True, slots=True)
class UnneededFiles:
    """Paths below the table, sorted, and their bytes together; `kept`: files that versions in the retention need."""

    paths: tuple[str, ...]
    size_bytes: int
    kept: int


@dataclass(frozen=True, slots=True)
class FolderFiles:
    """Files of a table's folder, deletion vectors too, as paths below it, by what a log says of them: its own, or that
    of a table which began as its clone. Raises `VersionNotFoundError` where the log does not say it any more."""

    log: TableLog
    folder: Folder
    roots: Sequence[str]

    def unneeded(self, *, removed_before: datetime) -> UnneededFiles:
        """What a VACUUM deletes that keeps all that was removed later."""
        snapshot, folder = self.log.snapshot(None), self.folder
        kept = self._below(_files_of(snapshot.columns(["path", "dv_id"])) | self._removed_since(removed_before))
        partitions = tuple(f"{name}=" for name in snapshot.metadata.partition_columns)
        paths, size = [], 0
        for entries in _listed(folder, "", partitions):
            for path, entry in _described(folder, [(path, entry) for path, entry in entries if path not in kept]):
                if entry.modified_at is not None and entry.modified_at < removed_before:
                    paths.append(path)
                    size += entry.size_bytes or 0
        return UnneededFiles(tuple(sorted(paths)), size, len(kept))

    def to_read(self, *, since: int, is_first_read: bool, feed: bool) -> frozenset[str]:
        """Files that a stream has yet to read which has read all before version `since`. With `is_first_read` it reads
        the whole of that version, then changes. Commits that are no longer listed name none."""
        listed = self.log.listing().commits
        changes = [version for version in range(since + is_first_read, self.log.latest() + 1) if version in listed]
        names = {name for one in self.log.commits(changes) for name in _files_of(arriving(one.actions, feed=feed))}
        if is_first_read:
            names |= _files_of(self.log.snapshot(since).columns(["path", "dv_id"]))
        return frozenset(self._below(names))

    def between(self, first: int, last: int) -> frozenset[str]:
        """Files that two versions have, and those of the changes between them."""
        listed = self.log.listing().commits
        names = set[str]()
        for version in {first, last}:
            names |= _files_of(self.log.snapshot(version).columns(["path", "dv_id"]))
        changes = [version for version in range(first + 1, last + 1) if version in listed]
        names |= _files_of(self.log.file_actions(self.log.commits(changes)))
        return frozenset(self._below(names))

    def of_latest(self, *, removed_before: datetime | None) -> frozenset[str]:
        """Files of the latest version, and what was removed since."""
        names = _files_of(self.log.snapshot(None).columns(["path", "dv_id"]))
        if removed_before is not None:
            names |= self._removed_since(removed_before)
        return frozenset(self._below(names))

    def _below(self, names: set[str]) -> set[str]:
        """Names that lie below the folder, as paths there."""
        here, table = self.folder.uri, self.log.ref.uri
        uris = {resolve_log_path(name, table, self.roots) for name in names}
        here = here.replace("\\", "/") if table != here else here  # as absolute paths are read
        return {uri.removeprefix(here).lstrip("/") for uri in uris if is_within(uri, here)}

    def _removed_since(self, moment: datetime) -> set[str]:
        """Files that were removed at or after a moment."""
        log, before = self.log, self.log.version_at(moment - _SLACK)
        latest, listed = log.latest(), log.listing().commits
        wanted = range(0 if before is None else before + 1, latest + 1)
        if any(version not in listed for version in wanted):
            raise VersionNotFoundError(
                f"the log of {log.ref.name} does not say what was removed since {moment:%Y-%m-%d %H:%M} UTC",
                hint="commits of that time are gone; Spark's VACUUM … DRY RUN knows it from the checkpoint",
            )
        actions = log.file_actions(log.commits(wanted))
        removes = actions.filter(pc.equal(actions["kind"], int(FileAction.REMOVE)))
        is_late = pc.greater_equal(removes["modified_at"], pa.scalar(moment))
        return _files_of(removes.filter(pc.fill_null(is_late, False)))


def is_clone(storage: Storage, uri: str) -> bool:
    """Whether a table began as a clone, which open-source Spark makes shallow alone; False where its first commit
    cannot be read."""
    try:
        with storage.folder(uri).open(f"{LOG}/{commit_name(0)}") as file:
            return b'"operation":"CLONE"' in file.read(_HEAD_BYTES)
    except LakehouseError:
        return False


def _files_of(files: pa.Table) -> set[str]:
    """The data files and those of their deletion vectors."""
    vectors = {read_vector_id(dv_id).file for dv_id in pc.unique(files["dv_id"].drop_null()).to_pylist()}
    return {*files["path"].to_pylist(), *(file for file in vectors if file)}


def _listed(folder: Folder, path: str, partitions: tuple[str, ...]) -> Iterator[list[tuple[str, Entry]]]:
    """The files of each folder that VACUUM looks into."""
    shown = (*_GOES_ALTHOUGH_HIDDEN, *partitions)
    every = (entry for entry in folder.list(path) if entry.name != _ICEBERG)
    entries = [entry for entry in every if entry.name[0] not in "_." or entry.name.startswith(shown)]
    yield [(_join(path, entry.name), entry) for entry in entries if not entry.is_folder]
    for entry in entries:
        if entry.is_folder and not entry.is_link:
            yield from _listed(folder, _join(path, entry.name), partitions)


def _described(folder: Folder, files: Sequence[tuple[str, Entry]]) -> Iterator[tuple[str, Entry]]:
    """Entries with size and time, which a local listing does not tell; without files that are gone meanwhile."""
    dark = [path for path, entry in files if entry.modified_at is None]
    stats = dict(zip(dark, folder.stat_many(dark), strict=True))
    for path, entry in files:
        known = stats.get(path, entry)
        if known is not None:
            yield path, known


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name
