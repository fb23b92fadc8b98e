"""How many rows of each data file break a condition on rows: judged once, summed up for every version that has it.

Rule: a file (path, deletion vector) never changes, but the condition's columns may be defined anew: what a file gave
is remembered by their definition too. A version's numbers are sums over exactly its files.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from backend.lake.model import FileNumbers, Snapshot
from backend.lake.storage.paths import is_remote
from backend.lake.table.metadata_diff import column_names
from backend.lru import Lru

MOST_FILES = 1_000_000  # of all conditions, the newest one whole: about 200 bytes each
FILES_AT_ONCE = 512
# Files of an object store are fetched whole: beyond this much, a scan that reads the columns alone is cheaper.
REMOTE_FILES, REMOTE_BYTES = 64, 64 << 20

Numbers = npt.NDArray[np.int64]


class Counts(NamedTuple):
    """Of some files: rows that break the condition, for which it gives null, and all."""

    violations: int = 0
    nulls: int = 0
    rows: int = 0

    def plus(self, other: "Counts", sign: int = 1) -> "Counts":
        return Counts(*(own + sign * more for own, more in zip(self, other, strict=True)))


class Question(NamedTuple):
    """What a file is asked: a condition whose columns are defined so, on one table."""

    uri: str
    table_id: str
    text: str
    columns: str


@dataclass(slots=True)
class _Judged:
    """The files that answered one question: batches as they came, joined when they are looked through."""

    keys: list[pa.Array] = field(default_factory=list)
    counts: list[Numbers] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(map(len, self.keys))

    def whole(self) -> tuple[pa.Array, Numbers]:
        if not self.keys:
            return pa.array([], pa.string()), np.zeros((0, 3), np.int64)
        if len(self.keys) > 1:
            self.keys, self.counts = [pa.concat_arrays(self.keys)], [np.concatenate(self.counts)]
        return self.keys[0], self.counts[0]


class JudgedFiles:
    """What files gave, by question; the question that was asked longest ago is forgotten first. Thread-safe."""

    def __init__(self, most: int = MOST_FILES) -> None:
        self._lock = threading.Lock()  # of each question's files, which grow
        self._judged: Lru[Question, _Judged] = Lru(most, len)

    def look_up(self, question: Question, keys: pa.Array) -> tuple[FileNumbers, Numbers]:
        """The numbers of files that nobody judged, and what each file gave (zeros for those)."""
        with self._lock:
            known, counts = (self._judged.get(question) or _Judged()).whole()
        found = pc.index_in(keys, value_set=known)
        at = pc.fill_null(found, -1).to_numpy(zero_copy_only=False)
        given = np.zeros((len(keys), 3), np.int64)
        given[at >= 0] = counts[at[at >= 0]]
        return np.flatnonzero(at < 0).astype(np.int64), given

    def put(self, question: Question, keys: pa.Array, counts: Numbers) -> None:
        with self._lock:
            judged = self._judged.get(question) or _Judged()
            judged.keys.append(keys)
            judged.counts.append(counts)
            self._judged.put(question, judged)


def question_of(snapshot: Snapshot, text: str, columns: Sequence[str]) -> Question:
    """What the files of this version are asked by a condition on these columns."""
    metadata = snapshot.metadata
    defined = [each for each in orjson.loads(metadata.schema_json)["fields"] if each["name"] in columns]
    mapping = metadata.configuration.get("delta.columnMapping.mode", "none").lower()
    partitions = [name for name in metadata.partition_columns if name in columns]
    said = orjson.dumps([defined, mapping, partitions], option=orjson.OPT_SORT_KEYS).decode()
    return Question(snapshot.ref.uri, metadata.id, text.strip(), said)


def file_keys(snapshot: Snapshot, files: pa.Table, columns: Sequence[str]) -> pa.Array:
    """A text for each file: path and deletion vector, and its partition where the condition is about that."""
    names = ["path", "dv_id"]
    if set(columns) & set(snapshot.metadata.partition_columns):
        names.append("partition")
    texts = [pc.fill_null(_array(files[name]), "") for name in names]
    return pc.binary_join_element_wise(*texts, "\x00")


def in_batches(files: FileNumbers) -> Iterator[FileNumbers]:
    """So many files at a time; of none, nothing once: then the condition alone is tried."""
    for start in range(0, max(1, len(files)), FILES_AT_ONCE):
        yield files[start : start + FILES_AT_ONCE]


def tabled(rows: Sequence[Mapping[str, int]], files: int) -> Numbers:
    """What each of so many files gave; one without a row is not among the rows."""
    given = np.zeros((files, 3), np.int64)
    for row in rows:
        given[row["file"]] = row["violations"], row["nulls"], row["total"]
    return given


def total(given: Numbers) -> Counts:
    return Counts(*(int(each) for each in given.sum(axis=0)))


def can_be_fetched(snapshot: Snapshot, files: pa.Table, *, most_files: int = REMOTE_FILES) -> bool:
    """Whether reading these files, and not a word of others, costs less than a scan of the version."""
    if not is_remote(snapshot.ref.uri):
        return True
    if len(files) > most_files:
        return False
    return int(pc.sum(files["size_bytes"]).as_py() or 0) <= REMOTE_BYTES


def free_name(snapshot: Snapshot) -> str:
    """A column that the table does not have."""
    taken, name = {each.lower() for each in column_names(snapshot.metadata)}, "file"
    while name in taken:
        name += "_"
    return name


def _array(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
