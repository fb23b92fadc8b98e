"""Files that VACUUM would delete: nothing within the table's retention names them, and they are older than that. And
files that somebody has yet to read, by the same names.

Rule: by Delta's own rule (PROTOCOL.md, "Data Files"; VacuumCommand). Where the log no longer says what was removed
within the retention, nothing is claimed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from backend.errors import LakehouseError, VersionNotFoundError
from backend.lake.history.arrivals import arriving
from backend.lake.log.actions import FileAction, read_vector_id
from backend.lake.log.commits import commit_name
from backend.lake.log.listing import LOG
from backend.lake.log.log import TableLog
from backend.lake.storage.folder import Entry, Folder
from backend.lake.storage.paths import is_within, resolve_log_path
from backend.lake.storage.storage import Storage

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


def unneeded_files(log: TableLog, folder: Folder, roots: Sequence[str], *, removed_before: datetime) -> UnneededFiles:
    """What a VACUUM deletes that keeps all that was removed later; raises `VersionNotFoundError` where the log does not
    say what was."""
    snapshot = log.snapshot(None)
    needed = _files_of(snapshot.columns(["path", "dv_id"])) | _removed_since(log, removed_before)
    kept = _below(folder, roots, needed)
    partitions = tuple(f"{name}=" for name in snapshot.metadata.partition_columns)
    paths, size = [], 0
    for entries in _listed(folder, "", partitions):
        for path, entry in _described(folder, [(path, entry) for path, entry in entries if path not in kept]):
            if entry.modified_at is not None and entry.modified_at < removed_before:
                paths.append(path)
                size += entry.size_bytes or 0
    return UnneededFiles(tuple(sorted(paths)), size, len(kept))


def files_to_read(
    log: TableLog, folder: Folder, roots: Sequence[str], *, since: int, is_first_read: bool, feed: bool
) -> frozenset[str]:
    """Files, deletion vectors too, of a stream that has read all before version `since`, as paths below the table.

    With `is_first_read` it reads the whole of that version, then changes. Commits that are no longer listed name none;
    raises `VersionNotFoundError` where the version is gone.
    """
    listed = log.listing().commits
    changes = [version for version in range(since + is_first_read, log.latest() + 1) if version in listed]
    names = {name for commit in log.commits(changes) for name in _files_of(arriving(commit.actions, feed=feed))}
    if is_first_read:
        names |= _files_of(log.snapshot(since).columns(["path", "dv_id"]))
    return frozenset(_below(folder, roots, names))


def files_between(log: TableLog, folder: Folder, roots: Sequence[str], first: int, last: int) -> frozenset[str]:
    """Files, deletion vectors too, that two versions have, and those of the changes between them, as paths below the
    table. Raises `VersionNotFoundError` where one of the two cannot be rebuilt."""
    listed = log.listing().commits
    names = set[str]()
    for version in {first, last}:
        names |= _files_of(log.snapshot(version).columns(["path", "dv_id"]))
    changes = [version for version in range(first + 1, last + 1) if version in listed]
    names |= _files_of(log.file_actions(log.commits(changes)))
    return frozenset(_below(folder, roots, names))


def is_clone(storage: Storage, uri: str) -> bool:
    """Whether a table began as a clone, which open-source Spark makes shallow alone; False where its first commit
    cannot be read."""
    try:
        with storage.folder(uri).open(f"{LOG}/{commit_name(0)}") as file:
            return b'"operation":"CLONE"' in file.read(_HEAD_BYTES)
    except LakehouseError:
        return False


def files_of_clone(
    log: TableLog, folder: Folder, roots: Sequence[str], *, removed_before: datetime | None
) -> frozenset[str]:
    """Files of a table's folder, as paths below it, that another table's log names: its latest version, and what that
    removed since. Raises `VersionNotFoundError` where the log does not say what that was."""
    names = _files_of(log.snapshot(None).columns(["path", "dv_id"]))
    if removed_before is not None:
        names |= _removed_since(log, removed_before)
    return frozenset(_below(folder, roots, names, named_by=log.ref.uri))


def _below(folder: Folder, roots: Sequence[str], names: set[str], named_by: str = "") -> set[str]:
    """As paths below the table, of those that its log, or that of the table `named_by`, names there."""
    uris = {resolve_log_path(name, named_by or folder.uri, roots) for name in names}
    here = folder.uri.replace("\\", "/") if named_by else folder.uri  # as absolute paths are read
    return {uri.removeprefix(here).lstrip("/") for uri in uris if is_within(uri, here)}


def _removed_since(log: TableLog, moment: datetime) -> set[str]:
    """Files that were removed at or after a moment."""
    before = log.version_at(moment - _SLACK)
    latest, listed = log.latest(), log.listing().commits
    wanted = range(0 if before is None else before + 1, latest + 1)
    if any(version not in listed for version in wanted):
        raise VersionNotFoundError(
            f"the log of {log.ref.name} does not say what was removed since {moment:%Y-%m-%d %H:%M} UTC",
            hint="commits of that time are gone; Spark's VACUUM … DRY RUN knows it from the checkpoint",
        )
    actions = log.file_actions(log.commits(wanted))
    removes = actions.filter(pc.equal(actions["kind"], int(FileAction.REMOVE)))
    return _files_of(removes.filter(pc.fill_null(pc.greater_equal(removes["modified_at"], pa.scalar(moment)), False)))


def _files_of(files: pa.Table) -> set[str]:
    """The data files and those of their deletion vectors."""
    vectors = {read_vector_id(dv_id).file for dv_id in pc.unique(files["dv_id"].drop_null()).to_pylist()}
    return {*files["path"].to_pylist(), *(file for file in vectors if file)}


def _listed(folder: Folder, path: str, partitions: tuple[str, ...]) -> Iterator[list[tuple[str, Entry]]]:
    """The files of each folder that VACUUM looks into."""
    entries = [entry for entry in folder.list(path) if not _is_hidden(entry.name, partitions)]
    yield [(_join(path, entry.name), entry) for entry in entries if not entry.is_folder]
    for entry in entries:
        if entry.is_folder and not entry.is_link:
            yield from _listed(folder, _join(path, entry.name), partitions)


def _is_hidden(name: str, partitions: tuple[str, ...]) -> bool:
    return name == _ICEBERG or (name[0] in "_." and not name.startswith((*_GOES_ALTHOUGH_HIDDEN, *partitions)))


def _described(folder: Folder, files: Sequence[tuple[str, Entry]]) -> Iterator[tuple[str, Entry]]:
    """With size and time, which a local listing does not tell; without those that are gone meanwhile."""
    dark = [path for path, entry in files if entry.modified_at is None]
    stats = dict(zip(dark, folder.stat_many(dark), strict=True))
    for path, entry in files:
        known = stats.get(path, entry)
        if known is not None:
            yield path, known


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name
