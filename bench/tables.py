"""The tables that are measured: logs written straight, without data files, since no reader of a log opens one.

Rule: the same scale gives the same bytes; a table is complete or not there (made beside its place, then renamed).
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

FORMAT = "2"  # part of the cache's name: a change of what is written makes new tables
DAYS = 200
ADDS, REMOVES, MERGE_EVERY = 11, 10, 10  # each tenth commit also removes ten files: ten more files a commit
CHECKPOINT_EVERY = 100
STARTED_MS, COMMIT_EVERY_MS = 1_767_225_600_000, 60_000
NEVER = np.iinfo(np.int64).max
KB, MB, GB = 1 << 10, 1 << 20, 1 << 30
BINS = np.array(  # as many as Delta writes, finest around the sizes that files should have
    [
        0,
        *(8 * KB << n for n in range(10)),
        *range(8 * MB, 128 * MB, 4 * MB),
        *range(128 * MB, 256 * MB, 8 * MB),
        *range(256 * MB, 512 * MB, 16 * MB),
        *range(512 * MB, GB, 128 * MB),
        *(GB << n for n in range(18)),
    ],
    np.int64,
)
Integers = npt.NDArray[np.int64]

_FIELDS = {"id": "long", "amount": "double", "name": "string", "day": "date"}
SCHEMA = orjson.dumps(
    {
        "type": "struct",
        "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in _FIELDS.items()],
    }
).decode()
PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
METADATA: dict[str, Any] = {
    "format": {"provider": "parquet", "options": {}},
    "schemaString": SCHEMA,
    "partitionColumns": ["day"],
    "configuration": {},
    "createdTime": 1_767_225_600_000,
}
_MAP = pa.map_(pa.string(), pa.string())
ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _MAP),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
    ]
)
_PROTOCOL = pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])
_METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", _MAP)])),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("configuration", _MAP),
        ("createdTime", pa.int64()),
    ]
)


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

    def checkpoints(self) -> list[int]:
        """Versions that have one, oldest first."""
        if self.base_files:
            return [self.base_version]
        return [v for v in self.versions if v % CHECKPOINT_EVERY == 0 and v]


def shapes(scale: float) -> dict[str, Shape]:
    """T1, T2 and T3, at scale 1 of 1,000, 10,000 and 100 commits, and T0: as small as tables are."""
    base = max(1_000, round(1_000_000 * scale))
    found = (
        Shape("T0", 30),
        Shape("T1", max(30, round(1_000 * scale))),
        Shape("T2", max(250, round(10_000 * scale))),
        Shape("T3", 100, base_files=base, base_version=10_000),
    )
    return {shape.name: shape for shape in found}


def make_tables(folder: Path, scale: float, names: Sequence[str] = ("T0", "T1", "T2", "T3")) -> Path:
    """The folder with T1, T2, T3 and, with a `.crc` for each version, T1-crc, T2-crc, T3-crc; made where missing."""
    home = folder / f"weir-bench-{FORMAT}-{scale:g}"
    home.mkdir(parents=True, exist_ok=True)
    for shape in (shapes(scale)[name] for name in names):
        plain, summed = home / shape.name, home / f"{shape.name}-crc"
        if plain.is_dir() and summed.is_dir():
            continue
        files = Files.of(shape)
        with _placed(plain) as log:
            write_log(log, shape, files)
        with _placed(summed) as log:
            _link(plain / "_delta_log", log)
            write_checksums(log, shape, files)
    return home


@dataclass(frozen=True, slots=True)
class Files:
    """Every file that a table ever had: its `add` actions, and the versions that added and removed it."""

    adds: pa.StructArray
    added_in: Integers
    removed_in: Integers

    @classmethod
    def of(cls, shape: Shape) -> "Files":
        count = shape.base_files + ADDS * shape.commits
        draw = np.random.default_rng(len(shape.name) + shape.commits + shape.base_files)
        steps = np.repeat(np.array(shape.versions, np.int64), ADDS)
        added_in = np.concatenate([np.full(shape.base_files, shape.base_version, np.int64), steps])
        own = np.repeat(np.arange(shape.commits) * DAYS // shape.commits, ADDS)
        day_of = np.concatenate([draw.integers(0, DAYS, shape.base_files), own])
        days = pa.array([str(date(2026, 1, 1) + timedelta(n)) for n in range(DAYS)]).take(pa.array(day_of))
        sizes = np.exp(draw.uniform(np.log(10_000), np.log(400_000_000), count)).astype(np.int64)
        rows = draw.integers(1, 100_000, count)
        values = pa.MapArray.from_arrays(pa.array(np.arange(count + 1), pa.int32()), pa.array(["day"] * count), days)
        columns = [
            make_paths(draw, days),
            values,
            pa.array(sizes),
            pa.array(STARTED_MS + np.maximum(added_in, 0) * COMMIT_EVERY_MS),
            pa.array(np.zeros(count, bool)),
            make_stats(rows),
        ]
        return cls(pa.StructArray.from_arrays(columns, fields=list(ADD)), added_in, _removed_in(shape, count))

    @property
    def sizes(self) -> Integers:
        return np.asarray(self.adds.field("size").to_numpy(), np.int64)

    def live_at(self, version: int) -> pa.StructArray:
        return self.adds.filter(pa.array((self.added_in <= version) & (self.removed_in > version)))


def _removed_in(shape: Shape, count: int) -> Integers:
    """Each MERGE removes files that are in a checkpoint wherever there is one so old: no reader gets them for free."""
    found = np.full(count, NEVER, np.int64)
    merges = np.repeat(np.arange(shape.commits // MERGE_EVERY), REMOVES)
    each = np.tile(np.arange(REMOVES), shape.commits // MERGE_EVERY)
    if shape.base_files:
        gone = (merges * REMOVES + each) * 7_919 % shape.base_files
    else:
        gone = merges // 2 * (ADDS * MERGE_EVERY) + merges % 2 * 50 + each
    found[gone] = shape.versions[0] + merges * MERGE_EVERY + MERGE_EVERY - 1
    return found


# the log ---------------------------------------------------------------------------------------------------------


def write_log(log: Path, shape: Shape, files: Files) -> None:
    """Commits, checkpoints and `_last_checkpoint`."""
    head = [] if shape.base_files else [{"protocol": PROTOCOL}, {"metaData": METADATA | {"id": shape.name}}]
    for version, adds, removes in _steps(shape, files):
        body = commit(version, adds, removes, head if version == 0 else ())
        (log / f"{version:020d}.json").write_bytes(body)
    for version in shape.checkpoints():
        live = files.live_at(version)
        whole = pa.concat_tables([checkpoint_head(shape.name), _as_checkpoint(live)], promote_options="default")
        path = log / f"{version:020d}.checkpoint.parquet"
        pq.write_table(whole, path, compression="snappy", row_group_size=250_000)
        hint = {"version": version, "size": whole.num_rows, "numOfAddFiles": len(live)}
        (log / "_last_checkpoint").write_bytes(orjson.dumps(hint))


def commit(version: int, adds: Sequence[Any], removes: Sequence[Any], head: Sequence[Any] = ()) -> bytes:
    """A commit file: a write, or a merge where it removes files."""
    at = STARTED_MS + version * COMMIT_EVERY_MS
    written = sum(each["size"] for each in adds)
    info = {
        "timestamp": at,
        "operation": "MERGE" if removes else "WRITE",
        "operationParameters": {"predicate": "[]"} if removes else {"mode": "Append", "partitionBy": '["day"]'},
        "operationMetrics": {"numFiles": str(len(adds)), "numOutputRows": "1000", "numOutputBytes": str(written)},
        "engineInfo": "Apache-Spark/4.2.0 Delta-Lake/4.4.0",
        "isBlindAppend": not removes,
    }
    when = {"deletionTimestamp": at, "dataChange": True, "extendedFileMetadata": True}
    gone = [{"remove": {k: each[k] for k in ("path", "partitionValues", "size", "stats")} | when} for each in removes]
    actions = [{"commitInfo": info}, *head, *gone, *({"add": each | {"dataChange": True}} for each in adds)]
    return b"\n".join(map(orjson.dumps, actions)) + b"\n"


def next_commits(shape: Shape, count: int) -> dict[str, str]:
    """Commits to append to a table, by version: one file each, always the same."""
    found = {}
    for version in range(shape.latest + 1, shape.latest + 1 + count):
        path = f"day=2026-01-01/part-00000-new-{version}.c000.snappy.parquet"
        stats = orjson.dumps({"numRecords": 10}).decode()
        add = {"path": path, "partitionValues": {"day": "2026-01-01"}, "size": 12_345, "stats": stats}
        found[str(version)] = commit(version, [add | {"modificationTime": STARTED_MS}], ()).decode()
    return found


def append_commit(uri: str, version: int, text: str) -> None:
    """A commit written as a writer does: whole or not at all."""
    path = Path(uri) / "_delta_log" / f"{version:020d}.json"
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(text)
    unfinished.rename(path)


def _steps(shape: Shape, files: Files) -> Iterator[tuple[int, list[Any], list[Any]]]:
    """What each commit adds and removes, as plain objects."""
    own = _plain(files.adds.slice(shape.base_files))
    gone = np.flatnonzero(files.removed_in != NEVER)
    gone = gone[np.argsort(files.removed_in[gone], kind="stable")]
    removed = _plain(files.adds.take(pa.array(gone)))
    bounds = np.searchsorted(files.removed_in[gone], np.array(shape.versions))
    ends = np.searchsorted(files.removed_in[gone], np.array(shape.versions), side="right")
    for at, version in enumerate(shape.versions):
        yield version, own[at * ADDS : (at + 1) * ADDS], removed[bounds[at] : ends[at]]


def _plain(adds: pa.StructArray) -> list[Any]:
    found: list[Any] = adds.to_pylist()
    for each in found:
        each["partitionValues"] = dict(each["partitionValues"])
    return found


def _as_checkpoint(live: pa.StructArray) -> pa.Table:
    return pa.table({"add": live})


# columns of many files -------------------------------------------------------------------------------------------


def checkpoint_head(table_id: str) -> pa.Table:
    """The rows of a checkpoint that hold no file."""
    said = METADATA | {"id": table_id, "configuration": [], "format": {"provider": "parquet", "options": []}}
    return pa.table(
        {
            "protocol": pa.array([PROTOCOL, None], _PROTOCOL),
            "metaData": pa.array([None, said], _METADATA),
            "add": pa.nulls(2, ADD),
        }
    )


def make_paths(draw: np.random.Generator, days: pa.Array) -> pa.Array:
    """Paths as Spark names files: partition, number of the task, a random UUID."""
    count = len(days)
    digits = np.frombuffer(draw.bytes(16 * count).hex().encode(), np.uint8).reshape(count, 32)
    dashed = np.insert(digits, (8, 12, 16, 20), ord("-"), axis=1)
    ids = _text(dashed)
    tasks = pa.array([f"part-{n:05d}" for n in range(200)]).take(pa.array(np.arange(count) % 200))
    return pc.binary_join_element_wise("day=", days, "/", tasks, "-", ids, ".c000.snappy.parquet", "")


def make_stats(rows: npt.NDArray[np.int64]) -> pa.Array:
    """Statistics of three columns, as JSON text."""
    first = np.arange(len(rows), dtype=np.int64) * 10
    nulls = pa.array(rows // 100).cast(pa.string())
    return pc.binary_join_element_wise(
        '{"numRecords":',
        pa.array(rows).cast(pa.string()),
        ',"minValues":{"id":',
        pa.array(first).cast(pa.string()),
        ',"amount":1.5,"name":"aaa"},"maxValues":{"id":',
        pa.array(first + 9).cast(pa.string()),
        ',"amount":99.5,"name":"zzz"},"nullCount":{"id":0,"amount":',
        nulls,
        ',"name":0}}',
        "",
    )


def _text(letters: npt.NDArray[np.uint8]) -> pa.Array:
    count, width = letters.shape
    ends = pa.array(np.arange(count + 1, dtype=np.int32) * width)
    return pa.StringArray.from_buffers(count, ends.buffers()[1], pa.py_buffer(np.ascontiguousarray(letters)))


# checksums -------------------------------------------------------------------------------------------------------


def write_checksums(log: Path, shape: Shape, files: Files) -> None:
    """A `.crc` beside each commit, with the histogram of file sizes as Delta on Spark writes it."""
    first = shape.base_version if shape.base_files else 0
    versions = np.arange(first, shape.latest + 1)
    bins = np.searchsorted(BINS, files.sizes, side="right") - 1
    counts = _running(files, bins, np.ones(len(bins), np.int64), versions)
    totals = _running(files, bins, files.sizes, versions)
    for at, version in enumerate(versions):
        said = {
            "txnId": f"{shape.name}-{version}",
            "tableSizeBytes": int(totals[at].sum()),
            "numFiles": int(counts[at].sum()),
            "numMetadata": 1,
            "numProtocol": 1,
            "setTransactions": [],
            "domainMetadata": [],
            "metadata": METADATA | {"id": shape.name},
            "protocol": PROTOCOL,
            "fileSizeHistogram": {
                "sortedBinBoundaries": BINS,
                "fileCounts": counts[at],
                "totalBytes": totals[at],
            },
        }
        (log / f"{version:020d}.crc").write_bytes(orjson.dumps(said, option=orjson.OPT_SERIALIZE_NUMPY))


def _running(files: Files, bins: Integers, weights: Integers, versions: Integers) -> Integers:
    """Per version and bin, the sum of the weights of the live files."""
    change = np.zeros((len(versions), len(BINS)), np.int64)
    np.add.at(change, (np.maximum(files.added_in - versions[0], 0), bins), weights)
    gone = np.flatnonzero(files.removed_in != NEVER)
    np.subtract.at(change, (files.removed_in[gone] - versions[0], bins[gone]), weights[gone])
    return np.asarray(change.cumsum(axis=0), np.int64)


# places ----------------------------------------------------------------------------------------------------------


def clone(table: Path, place: Path) -> Path:
    """A table of its own that shares the files of another (hard links): what is appended stays there."""
    log = place / "_delta_log"
    log.mkdir(parents=True)
    _link(table / "_delta_log", log)
    return place


def _link(source: Path, target: Path) -> None:
    for entry in os.scandir(source):
        try:
            os.link(entry.path, target / entry.name)
        except OSError:  # another file system
            shutil.copyfile(entry.path, target / entry.name)


class _placed:
    """The `_delta_log` of a table being made; the table appears when the block ends well."""

    def __init__(self, table: Path) -> None:
        self._table, self._unfinished = table, table.with_name(f"{table.name}.{os.getpid()}")

    def __enter__(self) -> Path:
        log = self._unfinished / "_delta_log"
        log.mkdir(parents=True)
        return log

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            shutil.rmtree(self._table, ignore_errors=True)
            self._unfinished.rename(self._table)
        else:
            shutil.rmtree(self._unfinished, ignore_errors=True)
