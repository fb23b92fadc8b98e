"""Which files of a folder a stream has not read: those that are there without those that its own log names.

Rule: nothing is opened but the folder's names and the checkpoint; a folder that cannot be listed the way Spark lists it
is not counted.
Source: FileStreamSourceLog and CompactibleFileStreamLog of Spark (`v1`, then one JSON object a line; `.compact` holds
all before it).
"""

import json
from collections.abc import Iterator, Sequence
from glob import escape, glob, iglob
from pathlib import Path
from urllib.parse import unquote

from backend.errors import CheckpointError, StorageError
from backend.lake.history.change_feed import Arrival
from backend.lake.storage.folder import Entry, Folder, is_remote, is_within, normal_uri
from backend.lake.storage.storage import declared_folder
from backend.settings import Settings
from backend.stream_model.backlog import SourceBacklog, known_sum
from backend.stream_model.stream import StreamInput
from backend.streams.backlog.lags import UNREAD
from backend.streams.backlog.positions import FilesPosition, read_positions

MOST_FILES = 100_000
_PATTERN = frozenset("*?[]{}")
_HIDDEN = (".", "_")


def read_files(settings: Settings, source: StreamInput, *, checkpoint: Folder, place: int | None) -> list[Arrival]:
    """The files that are there, each with the entry of the source's log that names it as its version.

    `place`: the source's number in the checkpoint, None for a first start. Raises `LakehouseError` where they cannot be
    listed as Spark does.
    """
    if why := _uncounted(source):
        raise StorageError(why)
    folder = declared_folder(settings, source.uri)
    named = {} if place is None else _named(checkpoint, place)
    there = list(_files(folder, reads_all=source.options.get("recursiveFileLookup") == "true"))
    if len(there) > MOST_FILES:
        raise StorageError(f"the folder holds more than {MOST_FILES:,} files")
    return [Arrival(named.get(path, UNREAD), each.modified_at, 1, each.size_bytes, None) for path, each in there]


def files_backlog(source: StreamInput, position: FilesPosition | None, files: list[Arrival]) -> SourceBacklog:
    """Those that no finished batch read."""
    left = [file for file in files if position is None or file.version > position.log_offset]
    return SourceBacklog(
        source.name,
        source.kind,
        files=len(left),
        size_bytes=known_sum([0, *(file.size_bytes for file in left)]),
        rows=None if left else 0,
        oldest_unread_at=min((file.committed_at for file in left if file.committed_at), default=None),
        unknown="how many rows a file holds is known once it is read" if left else "",
    )


def files_of_batch(checkpoint: Folder, batch_id: int) -> list[str]:
    """The files that a planned batch reads, of every folder among its sources; raises `LakehouseError`."""
    before = read_positions(checkpoint, batch_id - 1 if batch_id > 0 else None)
    paths: list[str] = []
    for place, position in read_positions(checkpoint, batch_id).items():
        if isinstance(position, FilesPosition):
            last = before.get(place)
            read = last.log_offset if isinstance(last, FilesPosition) else -1
            named = _named(checkpoint, place, after=read)
            paths += [path for path, batch in named.items() if read < batch <= position.log_offset]
    return paths


def named_elsewhere(sources: Sequence[StreamInput], checkpoint: Folder, batch_id: int) -> str:
    """One of the files that the sources' own logs named last, which lies in none of their folders; "" without such.
    Raises `LakehouseError`."""
    places = [place for place, at in read_positions(checkpoint, batch_id).items() if isinstance(at, FilesPosition)]
    for folder in (f"sources/{place}" for place in places):
        names = [entry.name for entry in checkpoint.list_after(folder, "", digits_only=True)]
        newest = sorted(names, key=lambda name: int(name.removesuffix(".compact")))[-1:]
        for path, _ in (entry for name in newest for entry in _entries(checkpoint, f"{folder}/{name}")):
            if not any(has_pattern(each.uri) or is_within(path, normal_uri(each.uri)) for each in sources):
                return path
    return ""


def has_pattern(uri: str) -> bool:
    """Whether an address stands for several folders: not where one is there whose name has such signs itself. An empty
    one says nothing, unless no other folder is meant."""
    if is_remote(uri) or not _PATTERN & set(uri):
        return bool(_PATTERN & set(uri))
    others = glob(uri)  # noqa: PTH207 (any part may be a pattern)
    return not (Path(uri).is_dir() and (not others or any(iglob(f"{escape(uri)}/*"))))  # noqa: PTH207


def _uncounted(source: StreamInput) -> str:
    if not source.uri:
        return "its folder is not known"
    if has_pattern(source.uri) or "pathGlobFilter" in source.options:
        return "its files are chosen by a pattern"
    return "its reader passes over old files" if "maxFileAge" in source.options else ""


def _files(folder: Folder, *, reads_all: bool) -> Iterator[tuple[str, Entry]]:
    """Path and entry of each file that Spark would take, in sub-folders those of partitions unless it `reads_all`; one
    more than `MOST_FILES` at most."""
    asked, num_files = [""], 0
    while asked:
        below = asked.pop()
        entries = [each for each in folder.list(below) if not each.name.startswith(_HIDDEN)]
        paths = [f"{below}/{entry.name}".lstrip("/") for entry in entries]
        folders = (path for path, each in zip(paths, entries, strict=True) if each.is_folder)
        asked += [path for path in folders if reads_all or "=" in path.rpartition("/")[2]]
        files = {path: each for path, each in zip(paths, entries, strict=True) if not each.is_folder}
        unsized = [path for path, each in files.items() if each.size_bytes is None]  # a disk lists names alone
        sized = zip(unsized, folder.stat_many(unsized), strict=True)
        files |= {path: each for path, each in sized if each}
        for path, file in files.items():
            num_files += 1
            yield f"{folder.uri.rstrip('/')}/{path}", file
            if num_files > MOST_FILES:
                return


def _named(checkpoint: Folder, place: int, *, after: int = -1) -> dict[str, int]:
    """The paths that the source's own log names, with the entry that does. Those of entries up to `after` may be
    missing: what holds all before it is then left unread where it can be."""
    folder = f"sources/{place}"
    names = [entry.name for entry in checkpoint.list_after(folder, "", digits_only=True)]
    single = {int(name) for name in names if name.isdigit()}
    newer = range(after + 1, max((int(name.removesuffix(".compact")) for name in names), default=-1) + 1)
    if after >= 0 and single.issuperset(newer):
        return {path: each for number in newer for path, each in _entries(checkpoint, f"{folder}/{number}")}
    compacts = [int(name.removesuffix(".compact")) for name in names if name.endswith(".compact")]
    compact = max(compacts, default=-1)
    wanted = [f"{folder}/{compact}.compact"] if compacts else []
    wanted += [f"{folder}/{name}" for name in names if name.isdigit() and int(name) > compact]
    return {path: each for name in wanted for path, each in _entries(checkpoint, name)}


def _entries(checkpoint: Folder, name: str) -> Iterator[tuple[str, int]]:
    for number, line in enumerate(checkpoint.read(name).decode(errors="replace").splitlines()):
        if number == 0 or not line.strip():
            continue
        try:
            entry = json.loads(line)
            yield _path(entry["path"]), int(entry["batchId"])
        except (ValueError, KeyError, TypeError) as exc:
            raise CheckpointError(f"line {number + 1} of {name} cannot be read", file=name) from exc


def _path(uri: str) -> str:
    """Spark writes addresses with percent signs."""
    return unquote(normal_uri(uri)) if is_remote(uri) else normal_uri(uri)
