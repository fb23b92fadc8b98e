"""Whether the files of a version are still there: removed ones first, for only those can a VACUUM have deleted.

Rule: what was looked at is what is claimed; every step reports how far it is, and whoever stops asking ends the work.
Nothing outside the table and the allowed roots is looked for.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backend.lake.log.actions import FileAction, read_vector_id
from backend.lake.log.log import TableLog
from backend.lake.model import Snapshot
from backend.lake.retention.runs import FilesSeen
from backend.lake.storage.paths import is_remote, is_within
from backend.lake.storage.storage import Storage, TableFile, TableFiles

SAMPLE = 200
EXAMPLES = 5
_BATCH = 256  # files between two reports, after each of which the caller may leave
_LIST_FROM = 64  # files of one folder in one batch: from here on one listing is cheaper than single requests


@dataclass(frozen=True, slots=True)
class FilesToSee:
    """The files of a version to look for, in the order to look; `total` is how many it has."""

    version: int
    paths: pa.Array
    total: int
    removed: int


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


def files_to_see(snapshot: Snapshot, latest: Snapshot | None, *, sample: int | None) -> FilesToSee:
    """The files of a version, those that the latest no longer names first; at most `sample`, None for all."""
    own = _paths(snapshot)
    if latest is None or latest.version == snapshot.version:
        gone = pa.array([], pa.string())
        live = own
    else:
        mask = pc.is_in(own, value_set=_paths(latest))
        gone, live = own.filter(pc.invert(mask)), own.filter(mask)
    chosen = pa.concat_arrays([gone, live]) if sample is None else _sample(gone, live, sample)
    return FilesToSee(snapshot.version, chosen, len(own), len(gone))


def see_files(finder: FileFinder, wanted: FilesToSee) -> Iterator[FilesSeen]:
    """How far looking is, after each batch; the last one is the answer."""
    checked = missing = 0
    examples: list[str] = []
    yield FilesSeen(wanted.version, wanted.total, 0, 0)
    for start in range(0, len(wanted.paths), _BATCH):
        batch = wanted.paths[start : start + _BATCH].to_pylist()
        lost = [path for path, there in zip(batch, finder.present(batch), strict=True) if not there]
        checked, missing = checked + len(batch), missing + len(lost)
        examples += lost[: EXAMPLES - len(examples)]
        yield FilesSeen(wanted.version, wanted.total, checked, missing, tuple(examples))


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


def _sample(gone: pa.Array, live: pa.Array, most: int) -> pa.Array:
    """Removed files first, then live ones, each evenly spread."""
    first = _spread(gone, most)
    return pa.concat_arrays([first, _spread(live, most - len(first))])


def _spread(values: pa.Array, most: int) -> pa.Array:
    if len(values) <= most:
        return values
    return values.take(pa.array(np.linspace(0, len(values) - 1, most).round().astype(np.int64)))


def _lives(log: TableLog, spans: Sequence[tuple[int, int]]) -> dict[str, list[tuple[int, int]]]:
    """For each file the runs of versions that name it."""
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
