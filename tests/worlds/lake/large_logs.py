"""The tables that are measured: logs written straight, without data files, since no reader of a log opens one.

Rule: the same scale gives the same bytes; a table is complete or not there (made beside its place, then renamed).
"""

import json
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from backend.lake.model import TableRef
from backend.settings import Settings, load_settings
from tests.worlds.lake.builders import (
    ADD_FIELDS,
    CHECKPOINT_TYPES,
    HandLog,
    add,
    commit_info,
    metadata,
    protocol,
    remove,
)

FORMAT = "4"  # part of the cache's name: a change of what is written makes new tables
DAYS = 200
ADDS, REMOVES, MERGE_EVERY = 11, 10, 10  # each tenth commit also removes ten files: ten more files a commit
CHECKPOINT_EVERY = 100
STARTED_MS, COMMIT_EVERY_MS = 1_767_225_600_000, 60_000
NEVER = np.iinfo(np.int64).max
KB, MB, GB = 1 << 10, 1 << 20, 1 << 30
SIZES = (  # as many bins as Delta writes, finest around the sizes that files should have
    [0, *(8 * KB << n for n in range(10))],
    range(8 * MB, 128 * MB, 4 * MB),
    range(128 * MB, 256 * MB, 8 * MB),
    range(256 * MB, 512 * MB, 16 * MB),
    range(512 * MB, GB, 128 * MB),
    [GB << n for n in range(18)],
)
BINS = np.concatenate([np.array(sizes, np.int64) for sizes in SIZES])
Integers = npt.NDArray[np.int64]

SCHEMA = {"id": "long", "amount": "double", "name": "string", "day": "date"}
ADD = pa.struct({name: ADD_FIELDS[name] for name in ADD_FIELDS if name != "deletionVector"} | {"stats": pa.string()})
CHECKPOINT = pa.schema({kind: CHECKPOINT_TYPES[kind] for kind in ("protocol", "metaData")} | {"add": ADD})


@dataclass(frozen=True, slots=True)
class Shape:
    """`base_files` stand in a checkpoint of version `base_version` that the log begins with; 0: it begins with 0."""

    name: str
    commits: int
    base_files: int = 0
    base_version: int = -1

    @property
    def versions(self) -> range:
        """Of its commits."""
        return range(self.base_version + 1, self.base_version + 1 + self.commits)

    @property
    def latest(self) -> int:
        return self.versions[-1]

    @property
    def head(self) -> list[dict[str, Any]]:
        """Protocol and metadata."""
        return [protocol(), metadata(SCHEMA, partition_by=["day"], table_id=self.name)]

    def checkpoints(self) -> list[int]:
        """Versions that have one, oldest first."""
        return [self.base_version] if self.base_files else [v for v in self.versions if v % CHECKPOINT_EVERY == 0 and v]


def shapes(scale: float) -> dict[str, Shape]:
    """T1, T2 and T3, at scale 1 of 1,000, 10,000 and 100 commits, and T0: as small as tables are."""
    base = max(1_000, round(1_000_000 * scale))
    chosen = (
        Shape("T0", 30),
        Shape("T1", max(30, round(1_000 * scale))),
        Shape("T2", max(250, round(10_000 * scale))),
        Shape("T3", 100, base_files=base, base_version=10_000),
    )
    return {shape.name: shape for shape in chosen}


def make_tables(folder: Path, scale: float, names: Sequence[str] = ("T0", "T1", "T2", "T3")) -> Path:
    """The folder with T1, T2, T3 and, with a `.crc` for each version, T1-crc, T2-crc, T3-crc; made where missing."""
    home = folder / f"weir-bench-{FORMAT}-{scale:g}"
    for shape in (shapes(scale)[name] for name in names):
        plain, summed = home / shape.name, home / f"{shape.name}-crc"
        if plain.is_dir() and summed.is_dir():
            continue
        files = Files.of(shape)
        made(plain, partial(write_log, shape=shape, files=files))
        made(summed, partial(write_checksums, plain=plain, shape=shape, files=files))
    return home


@dataclass(frozen=True, slots=True)
class Files:
    """Every file that a table ever had: its `add` actions, and the versions that added and removed it."""

    adds: list[dict[str, Any]]
    added_in: Integers
    removed_in: Integers

    @classmethod
    def of(cls, shape: Shape) -> "Files":
        count = shape.base_files + ADDS * shape.commits
        draw = np.random.default_rng(len(shape.name) + shape.commits + shape.base_files)
        steps = np.repeat(np.array(shape.versions, np.int64), ADDS)
        added_in = np.concatenate([np.full(shape.base_files, shape.base_version, np.int64), steps])
        own = np.repeat(np.arange(shape.commits) * DAYS // shape.commits, ADDS)
        days = np.concatenate([draw.integers(0, DAYS, shape.base_files), own])
        sizes = np.exp(draw.uniform(np.log(10_000), np.log(400_000_000), count)).astype(np.int64)
        rows = draw.integers(1, 100_000, count)
        times = STARTED_MS + np.maximum(added_in, 0) * COMMIT_EVERY_MS
        numbers = zip(*(each.tolist() for each in (np.arange(count), days, sizes, rows, times)), strict=True)
        return cls([_file(UUID(bytes=draw.bytes(16)), *each) for each in numbers], added_in, _removed_in(shape, count))

    def live_at(self, version: int) -> npt.NDArray[np.bool_]:
        return (self.added_in <= version) & (self.removed_in > version)


def _file(id: UUID, number: int, day: int, size: int, rows: int, at: int) -> dict[str, Any]:
    """Its path as Spark names files (partition, number of the task, a UUID), and statistics of three columns."""
    named = str(date(2026, 1, 1) + timedelta(day))
    stats = {
        "numRecords": rows,
        "minValues": {"id": number * 10, "amount": 1.5, "name": "aaa"},
        "maxValues": {"id": number * 10 + 9, "amount": 99.5, "name": "zzz"},
        "nullCount": {"id": 0, "amount": rows // 100, "name": 0},
    }
    return {
        "path": f"day={named}/part-{number % 200:05d}-{id}.c000.snappy.parquet",
        "partitionValues": {"day": named},
        "size": size,
        "modificationTime": at,
        "dataChange": False,
        "stats": orjson.dumps(stats).decode(),
    }


def _removed_in(shape: Shape, count: int) -> Integers:
    """Each MERGE removes files that are in a checkpoint wherever there is one so old: no reader gets them for free."""
    removed_in = np.full(count, NEVER, np.int64)
    merges = np.repeat(np.arange(shape.commits // MERGE_EVERY), REMOVES)
    turn = np.tile(np.arange(REMOVES), shape.commits // MERGE_EVERY)
    if shape.base_files:
        gone = (merges * REMOVES + turn) * 7_919 % shape.base_files
    else:
        gone = merges // 2 * (ADDS * MERGE_EVERY) + merges % 2 * 50 + turn
    removed_in[gone] = shape.versions[0] + merges * MERGE_EVERY + MERGE_EVERY - 1
    return removed_in


def write_log(table: Path, shape: Shape, files: Files) -> None:
    """Commits, checkpoints and `_last_checkpoint`."""
    log, gone = HandLog(table), defaultdict[int, list[Any]](list)
    for number in np.flatnonzero(files.removed_in != NEVER):
        gone[files.removed_in[number]].append(files.adds[number])
    for step, version in enumerate(shape.versions):
        first = shape.base_files + step * ADDS
        head = shape.head if version == 0 else ()
        log.commit(*commit(version, files.adds[first : first + ADDS], gone[version], head), version=version)
    columns = pa.array(files.adds, ADD)
    for version in shape.checkpoints():
        live = columns.filter(pa.array(files.live_at(version)))
        rows = [pa.Table.from_pylist(shape.head, CHECKPOINT), pa.table({"add": live})]
        whole = pa.concat_tables(rows, promote_options="default")
        path = log.log / f"{version:020d}.checkpoint.parquet"
        pq.write_table(whole, path, compression="snappy", row_group_size=250_000)
        hint = {"version": version, "size": whole.num_rows, "numOfAddFiles": len(live)}
        log.raw("_last_checkpoint", json.dumps(hint))


def commit(version: int, adds: Sequence[Any], removes: Sequence[Any], head: Sequence[Any] = ()) -> list[dict[str, Any]]:
    """A write, or a merge where it removes files."""
    at = STARTED_MS + version * COMMIT_EVERY_MS
    written = sum(each["size"] for each in adds)
    info = commit_info(
        "MERGE" if removes else "WRITE",
        timestamp=at,
        operationParameters={"predicate": "[]"} if removes else {"mode": "Append", "partitionBy": '["day"]'},
        operationMetrics={"numFiles": str(len(adds)), "numOutputRows": "1000", "numOutputBytes": str(written)},
        engineInfo="Apache-Spark/4.2.0 Delta-Lake/4.4.0",
        isBlindAppend=not removes,
    )
    kept = ("partitionValues", "stats")
    gone = [
        remove(each["path"], size=each["size"], deletionTimestamp=at, **{name: each[name] for name in kept})
        for each in removes
    ]
    return [info, *head, *gone, *({"add": each | {"dataChange": True}} for each in adds)]


def next_commits(shape: Shape, count: int) -> dict[str, str]:
    """Commits to append to a table, by version: one file each, always the same."""
    commits = {}
    for version in range(shape.latest + 1, shape.latest + 1 + count):
        path = f"day=2026-01-01/part-00000-new-{version}.c000.snappy.parquet"
        file = add(path, size=12_345, partitionValues={"day": "2026-01-01"}, modificationTime=STARTED_MS)["add"]
        commits[str(version)] = "".join(json.dumps(action) + "\n" for action in commit(version, [file], ()))
    return commits


def append_commit(uri: str, version: int, text: str) -> None:
    """A commit written as a writer does: whole or not at all."""
    HandLog(Path(uri)).raw(f"{version:020d}.json", text)


def write_checksums(table: Path, plain: Path, shape: Shape, files: Files) -> None:
    """The table again, with a `.crc` beside each commit: the histogram of file sizes as Delta on Spark writes it."""
    log = clone(plain, table) / "_delta_log"
    first = shape.base_version if shape.base_files else 0
    sizes = np.array([file["size"] for file in files.adds], np.int64)
    bins = np.searchsorted(BINS, sizes, side="right") - 1
    protocol, metadata = (action for each in shape.head for action in each.values())
    for version in range(first, shape.latest + 1):
        live = files.live_at(version)
        counts = np.bincount(bins[live], minlength=len(BINS))
        totals = np.bincount(bins[live], sizes[live], len(BINS)).astype(np.int64)
        checksum = {
            "txnId": f"{shape.name}-{version}",
            "tableSizeBytes": int(totals.sum()),
            "numFiles": int(counts.sum()),
            "numMetadata": 1,
            "numProtocol": 1,
            "setTransactions": [],
            "domainMetadata": [],
            "metadata": metadata,
            "protocol": protocol,
            "fileSizeHistogram": {"sortedBinBoundaries": BINS, "fileCounts": counts, "totalBytes": totals},
        }
        (log / f"{version:020d}.crc").write_bytes(orjson.dumps(checksum, option=orjson.OPT_SERIALIZE_NUMPY))


def opened(uri: str, **lake: Any) -> tuple[Settings, TableRef]:
    """A lake whose root is the table's folder, in the home of this process; looks for news whenever it is asked."""
    root, _, name = uri.rpartition("/")
    settings = load_settings(lake={"roots": [root], "refresh_s": 0.001, **lake})
    (settings.home / "cache").mkdir(parents=True, exist_ok=True)
    return settings, TableRef(uri, name, settings.roots[0])


def made(place: Path, make: Callable[[Path], object]) -> Path:
    """A folder that is made where it is missing: complete or not there."""
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        beside = place.with_name(f"{place.name}.{os.getpid()}")
        try:
            make(beside)
            beside.rename(place)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return place


def clone(table: Path, place: Path) -> Path:
    """A table of its own that shares the files of another (hard links): what is appended stays there."""
    shutil.copytree(table, place, copy_function=os.link)
    return place
