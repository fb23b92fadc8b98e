"""The parquet files of a checkpoint, read in pieces side by side.

Rule: a piece gives only the leaves asked for, batch by batch; whatever is wrong inside is `TableCorruptError` with the
file's name.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from backend.errors import LakehouseError, TableCorruptError, UnsupportedFeatureError
from backend.lake.log.actions import BadActionError
from backend.lake.storage.folder import Folder
from backend.lake.storage.paths import is_remote
from backend.lake.table.file_times import old_columns
from backend.settings import LakeSettings

BATCH_ROWS = 16_384  # a column of texts of so many files is a few megabytes; four times as many take twice the memory
BUFFER_BYTES = 65_536
BATCH_BYTES = 2**26
DICTIONARY_BYTES = 2**21  # writers end theirs at half of it
FREE_BYTES, SWELLING = 2**28, 200  # what any file may unpack to, and how many times its size; ordinary ones: ten times
AT_ONCE = 2  # each holds a decoded batch; more threads cost memory and win little beside the interpreter's lock
HINT = "restore the file, or rebuild the checkpoint with the engine that writes the table"

_BOUNDS = ("minValues", "maxValues")
_DICTIONARY = 2
_PAGE = re.compile(rb"\x15([\x80-\xff]{0,4}[\x00-\x7f])" * 3)  # of its header: type, bytes unpacked, bytes packed

Item = TypeVar("Item")
Found = TypeVar("Found")


@dataclass(slots=True, eq=False)
class ParquetPart:
    """One parquet file of a checkpoint: opened anew for each reading, its footer read once."""

    folder: Folder
    path: str
    limits: LakeSettings
    footer: pq.FileMetaData | None = None
    _longest: dict[int, int] = field(default_factory=dict)  # value of a dictionary, by where the dictionary lies

    def pieces(self) -> list["Piece"]:
        """What can be read side by side: row groups; on an object store the whole file, whose ranges are joined."""
        if is_remote(self.folder.uri):
            return [Piece(self, None)]
        with self.opened() as (file, _):
            return [Piece(self, (group,)) for group in range(file.num_row_groups)]

    @contextmanager
    def opened(self) -> Iterator[tuple[pq.ParquetFile, pa.NativeFile]]:
        with corrupt_as(self.path), self.folder.open(self.path) as source:
            remote = is_remote(self.folder.uri)
            file = pq.ParquetFile(
                source, metadata=self.footer, pre_buffer=remote, buffer_size=0 if remote else BUFFER_BYTES,
                coerce_int96_timestamp_unit="us",  # of bounds; nanoseconds do not reach year 9999
            )  # fmt: skip
            self.footer = file.metadata
            require_small(self.path, "rows", file.metadata.num_rows, self.limits.checkpoint_max_files)
            yield file, source

    def read(
        self, file: pq.ParquetFile, source: pa.NativeFile, groups: Sequence[int], columns: Sequence[str]
    ) -> Iterator[pa.Array]:
        """The first column, batch after batch. No footer says how often a dictionary's value comes: batches are so
        short that the longest in each row stays within `BATCH_BYTES`, and what they hold is counted."""
        starts, longest, unpacked, swollen = tuple(f"{column}." for column in columns), 1, 0, 0
        for group in map(file.metadata.row_group, groups):
            for chunk in map(group.column, range(group.num_columns)):
                if f"{chunk.path_in_schema}.".startswith(starts):
                    value = self._longest_value(chunk, source)
                    longest, unpacked = max(longest, value), unpacked + chunk.total_uncompressed_size
                    swollen = max(swollen, (chunk.num_values - group.num_rows) * value)  # one row's map may hold it all
        most = min(self.limits.checkpoint_max_bytes, FREE_BYTES + SWELLING * source.size())
        require_small(self.path, "bytes", max(unpacked, swollen), most)
        rows, unpacked = max(1, min(BATCH_ROWS, BATCH_BYTES // longest)), 0
        for batch in file.iter_batches(rows, row_groups=list(groups), columns=list(columns), use_threads=False):
            array = batch.column(0).cast(_plain(batch.column(0).type))
            unpacked += array.nbytes
            require_small(self.path, "bytes", unpacked, most)
            yield array

    def _longest_value(self, chunk: pq.ColumnChunkMetaData, source: pa.NativeFile) -> int:
        """Bytes of the longest text in a chunk's dictionary, at least of its mean one."""
        if not chunk.physical_type.endswith("BYTE_ARRAY"):
            return 8
        size, start = chunk.total_uncompressed_size, chunk.dictionary_page_offset or chunk.data_page_offset
        mean = int(size // max(1, chunk.num_values))
        if not any("DICTIONARY" in encoding for encoding in chunk.encodings):
            return mean
        if start not in self._longest:
            is_small = size <= BATCH_BYTES // BATCH_ROWS
            self._longest[start] = int(size) if is_small else _longest_in(source, start, chunk)
        return max(mean, self._longest[start])

    def fields(self) -> frozenset[str]:
        """Dotted names of `add`'s fields two deep; empty when the file holds no file actions. Parsed bounds that count
        times in the calendar before 1582 are left out, so unknown: a bound that is another day rules out files."""
        with self.opened() as (file, _):
            schema, is_old = file.schema_arrow, bool(old_columns(file.metadata))
        if "add" not in schema.names or not pa.types.is_struct(schema.field("add").type):
            return frozenset()
        names = set()
        for item in schema.field("add").type:
            names.add(item.name)
            if pa.types.is_struct(item.type):
                names |= {f"{item.name}.{inner.name}" for inner in item.type if not (is_old and inner.name in _BOUNDS)}
        return frozenset(names)

    def values(self, column: str, *, most: int | None = None) -> list[dict[str, Any]]:
        """The actions of one small kind (protocol, metaData, txn, …), as dictionaries; once `most` are found, the rest
        of the file is not read."""
        with self.opened() as (file, source):
            if column not in file.schema_arrow.names:
                return []
            if not pa.types.is_struct(file.schema_arrow.field(column).type):
                raise BadActionError(f"{column} is no struct")
            rows: list[dict[str, Any]] = []
            groups = _groups_with(file.metadata, column)
            for batch in self.read(file, source, groups, [column]):
                actions = batch.drop_null().to_pylist()
                rows += [action for action in actions if any(value is not None for value in action.values())]
                if most is not None and len(rows) >= most:
                    break
        return rows


@dataclass(frozen=True, slots=True)
class Piece:
    """Row groups of a parquet file, None for all of them."""

    part: ParquetPart
    groups: tuple[int, ...] | None

    def batches(self, leaves: Sequence[str]) -> Iterator[pa.Array]:
        """The `add` struct with only these leaves, batch after batch, for every row."""
        names = [f"add.{leaf}" for leaf in leaves]
        with self.part.opened() as (file, source):
            groups = range(file.num_row_groups) if self.groups is None else self.groups
            yield from self.part.read(file, source, groups, names)


def require_small(name: str, what: str, count: int, most: int) -> None:
    """Raise `UnsupportedFeatureError` for a checkpoint that costs more than the settings allow."""
    if count > most:
        raise UnsupportedFeatureError(
            f"checkpoint {name} unpacks to {count:,} {what}; Weir reads up to {most:,}",
            hint="rebuild it with the engine that writes the table, or see lake.checkpoint_max_files and _max_bytes",
        )


def side_by_side(work: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
    """In the order of the items; Arrow decodes outside the interpreter's lock."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(work, items))


@contextmanager
def corrupt_as(path: str) -> Iterator[None]:
    """Whatever Arrow or a decoder says of a file's inside becomes `TableCorruptError`."""
    try:
        yield
    except LakehouseError:
        raise
    except (pa.ArrowException, BadActionError, KeyError, ValueError, TypeError, AttributeError, OSError) as exc:
        raise TableCorruptError(f"checkpoint file {path} cannot be read: {_line(exc)}", hint=HINT) from exc


def _plain(kind: pa.DataType) -> pa.DataType:
    """Without the dictionaries that Arrow keeps where a file's own schema asks for them."""
    if pa.types.is_struct(kind):
        return pa.struct([item.with_type(_plain(item.type)) for item in kind])
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _longest_in(source: pa.NativeFile, start: int, chunk: pq.ColumnChunkMetaData) -> int:
    """The longest text of a dictionary. Of one that is larger than a writer's, or packed in another way, all bytes."""
    gap, codec = chunk.data_page_offset - start, chunk.compression.lower()
    page = source.read_at(min(gap or 32, DICTIONARY_BYTES), start)
    header = _PAGE.match(page)
    if header is None:
        raise BadActionError("a page without a header")
    digits = (enumerate(number) for number in header.groups())
    kind, unpacked, packed = (sum((byte & 127) << 7 * place for place, byte in number) >> 1 for number in digits)
    if kind != _DICTIONARY:
        return 0
    is_text = chunk.physical_type == "BYTE_ARRAY" and codec in ("uncompressed", "snappy", "gzip", "zstd", "brotli")
    if not is_text or unpacked > DICTIONARY_BYTES or not 0 < gap <= DICTIONARY_BYTES:
        return int(unpacked)
    texts = page[-packed:] if codec == "uncompressed" else pa.decompress(page[-packed:], unpacked, codec, asbytes=True)
    longest = at = 0
    while at < unpacked:
        size = int.from_bytes(texts[at : at + 4], "little")
        longest, at = max(longest, size), at + 4 + size
    return longest


def _groups_with(footer: pq.FileMetaData, column: str) -> list[int]:
    """The row groups in which some leaf of a column may hold a value, by their statistics."""
    leaves = [i for i in range(footer.num_columns) if footer.schema.column(i).path.partition(".")[0] == column]

    def may_hold(group: int) -> bool:
        chunks = (footer.row_group(group).column(leaf) for leaf in leaves)
        return not all(
            c.is_stats_set and c.statistics.has_null_count and c.statistics.null_count == c.num_values for c in chunks
        )

    return [group for group in range(footer.num_row_groups) if may_hold(group)]


def _line(exc: Exception) -> str:
    return (str(exc).strip().splitlines() or [type(exc).__name__])[0][:200]
