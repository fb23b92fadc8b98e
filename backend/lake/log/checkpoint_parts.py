"""The parquet files of a checkpoint, read in pieces side by side, and how each column of `file_set.FILES` is decoded
from the leaves of their `add` struct.

Rule: a piece gives only the leaves asked for, batch by batch; whatever is wrong inside is `TableCorruptError` with the
file's name. Decoding is pure and vectorised, no object per file. A leaf that a writer left out decodes to unknown
(null) or to none (no deletion vector), never to a guess.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backend.cells import cells
from backend.errors import LakehouseError, TableCorruptError, UnsupportedFeatureError
from backend.lake.log.actions import NUM_RECORDS, UUID_CHARS, BadActionError, stats_rows
from backend.lake.log.file_set import FILES
from backend.lake.storage.folder import Folder, holds, is_remote
from backend.lake.table.misreadings import old_columns
from backend.lake.table.schema import encode_partitions
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
        line = (str(exc).strip().splitlines() or [type(exc).__name__])[0][:200]
        raise TableCorruptError(f"checkpoint file {path} cannot be read: {line}", hint=HINT) from exc


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


Arrays = dict[str, pa.Array]
Decoding = tuple[tuple[str, ...], Callable[[pa.Array], Arrays]]  # leaves of `add`, and what they become
_VECTOR_ID = ("deletionVector.storageType", "deletionVector.pathOrInlineDv", "deletionVector.offset")
_PREFIX_BYTES = 64  # numRecords is written first: enough to find it without reading all statistics
_LAST_MS = 253_402_300_800_000


@dataclass(frozen=True, slots=True)
class FileColumn:
    """Columns that are decoded together. `build` tells which leaves to read of a file whose `add` has these fields
    (dotted, two deep), with the physical names of the partition columns, and what to make of them. `cached`: small
    enough to stay in memory once read."""

    names: tuple[str, ...]
    build: Callable[[frozenset[str], tuple[str, ...]], Decoding]
    cached: bool = True

    def missing(self, count: int, partition_names: Sequence[str]) -> Arrays:
        """What a file says that has none of the leaves."""
        columns = {name: pa.nulls(count, FILES.field(name).type) for name in self.names}
        if "encoded_partition" in columns:
            no_maps = pa.nulls(count, pa.map_(pa.string(), pa.string()))
            columns["encoded_partition"] = encode_partitions(no_maps, partition_names)
        if "deleted_rows" in columns:
            columns["deleted_rows"] = pa.array([0] * count, pa.int64())
        return columns


def _path(_fields: frozenset[str], _names: tuple[str, ...]) -> Decoding:
    return ("path",), lambda add: {"path": paths_of(add)}


def _key(fields: frozenset[str], _names: tuple[str, ...]) -> Decoding:
    leaves = tuple(leaf for leaf in _VECTOR_ID if leaf in fields)

    def decode(add: pa.Array) -> Arrays:
        paths, unique = paths_of(add), _vector_ids(add, leaves)
        marked = pc.binary_join_element_wise(paths, unique, "\x00")
        return {"key": pc.if_else(pc.is_valid(unique), marked, paths)}

    if len(leaves) < 2:
        return ("path",), lambda add: {"key": paths_of(add)}
    return ("path", *leaves), decode


def _number(name: str, leaf: str, fields: frozenset[str], _names: tuple[str, ...]) -> Decoding:
    return (leaf,) if leaf in fields else (), lambda add: {name: pc.struct_field(add, leaf).cast(pa.int64())}


def _modified_at(fields: frozenset[str], _names: tuple[str, ...]) -> Decoding:
    def decode(add: pa.Array) -> Arrays:
        millis = pc.struct_field(add, "modificationTime").cast(pa.int64())
        sane = pc.and_(pc.greater_equal(millis, 0), pc.less(millis, _LAST_MS))
        moments = pc.if_else(sane, millis, pa.scalar(None, pa.int64())).cast(pa.timestamp("ms", tz="UTC"))
        return {"modified_at": moments}

    return ("modificationTime",) if "modificationTime" in fields else (), decode


def _partition(fields: frozenset[str], names: tuple[str, ...]) -> Decoding:
    leaves = ("partitionValues",) if names and "partitionValues" in fields else ()
    return leaves, lambda add: {"encoded_partition": encode_partitions(pc.struct_field(add, "partitionValues"), names)}


def _num_records(fields: frozenset[str], _names: tuple[str, ...]) -> Decoding:
    """From the parsed struct where it is there and says it, else from the JSON text."""
    parsed, text = "stats_parsed.numRecords" in fields, "stats" in fields

    def decode(add: pa.Array) -> Arrays:
        rows = pa.nulls(len(add), pa.int64())
        if parsed:
            rows = pc.struct_field(add, ["stats_parsed", "numRecords"]).cast(pa.int64())
        if text and rows.null_count:
            rows = pc.coalesce(rows, rows_in_texts(pc.struct_field(add, "stats").cast(pa.string())))
        return {"num_records": rows}

    return (("stats_parsed.numRecords",) if parsed else ()) + (("stats",) if text else ()), decode


def _stats(fields: frozenset[str], _names: tuple[str, ...]) -> Decoding:
    """The JSON texts; a writer that left only parsed statistics has them written as JSON here."""
    if "stats" in fields:
        return ("stats",), lambda add: {"stats": pc.struct_field(add, "stats").cast(pa.string())}
    leaves = tuple(sorted(field for field in fields if field.startswith("stats_parsed.")))
    return leaves, lambda add: {"stats": _as_json(pc.struct_field(add, "stats_parsed"))}


def _vectors(fields: frozenset[str], names: tuple[str, ...]) -> Decoding:
    ids = tuple(leaf for leaf in _VECTOR_ID if leaf in fields)

    def decode(add: pa.Array) -> Arrays:
        unique = _vector_ids(add, ids)
        if unique.null_count == len(unique):
            return COLUMNS["dv_id"].missing(len(add), names)
        marked = pc.struct_field(add, ["deletionVector", "cardinality"]).cast(pa.int64())
        if pc.any(pc.and_(pc.is_valid(unique), pc.is_null(marked))).as_py():
            raise ValueError("a deletion vector without its cardinality")
        kind = pc.struct_field(add, ["deletionVector", "storageType"]).cast(pa.string())
        text = pc.struct_field(add, ["deletionVector", "pathOrInlineDv"]).cast(pa.string())
        folder = pc.utf8_slice_codeunits(text, 0, -UUID_CHARS)
        path = pc.if_else(pc.equal(kind, "p"), unquoted(text), pc.if_else(pc.equal(kind, "u"), folder, None))
        path = pc.if_else(pc.equal(path, ""), None, path)
        return {"deleted_rows": pc.fill_null(marked, 0), "dv_id": unique, "dv_path": path}

    is_counted = len(ids) > 1 and "deletionVector.cardinality" in fields
    return (*ids, "deletionVector.cardinality") if is_counted else (), decode


COLUMNS: Mapping[str, FileColumn] = {
    "path": FileColumn(("path",), _path, cached=False),
    "key": FileColumn(("key",), _key, cached=False),
    "size_bytes": FileColumn(("size_bytes",), partial(_number, "size_bytes", "size")),
    "num_records": FileColumn(("num_records",), _num_records),
    "modified_at": FileColumn(("modified_at",), _modified_at),
    "encoded_partition": FileColumn(("encoded_partition",), _partition),
    "stats": FileColumn(("stats",), _stats, cached=False),
    "base_row_id": FileColumn(("base_row_id",), partial(_number, "base_row_id", "baseRowId")),
} | dict.fromkeys(("deleted_rows", "dv_id", "dv_path"), FileColumn(("deleted_rows", "dv_id", "dv_path"), _vectors))


def paths_of(add: pa.Array) -> pa.Array:
    return unquoted(pc.struct_field(add, "path").cast(pa.string()))


def unquoted(paths: pa.Array) -> pa.Array:
    """Percent-decoded; the rare array that holds a percent sign is decoded text by text."""
    if not holds(paths, b"%"):
        return paths
    return pa.array([None if path is None else unquote(path) for path in paths.to_pylist()], pa.string())


def rows_in_texts(texts: pa.Array) -> pa.Array:
    """`numRecords` of JSON statistics, null where a text does not say it."""
    starts = pc.cast(pc.binary_slice(pc.cast(texts, pa.binary()), 0, _PREFIX_BYTES), pa.string(), safe=False)
    extracted = pc.extract_regex(starts, NUM_RECORDS.pattern.replace("(", "(?P<n>", 1))
    rows = pc.struct_field(extracted, "n").cast(pa.int64())
    odd = pc.and_(pc.is_null(rows), pc.is_valid(texts))
    if not pc.any(odd).as_py():
        return rows
    slow = [stats_rows(text) if o else None for text, o in zip(texts.to_pylist(), odd.to_pylist(), strict=True)]
    return pc.coalesce(rows, pa.array(slow, pa.int64()))


def _vector_ids(add: pa.Array, leaves: tuple[str, ...]) -> pa.Array:
    """Unique ids of deletion vectors: kind, text and offset as the protocol joins them."""
    kind = pc.struct_field(add, ["deletionVector", "storageType"]).cast(pa.string())
    text = pc.struct_field(add, ["deletionVector", "pathOrInlineDv"]).cast(pa.string())
    plain = pc.binary_join_element_wise(kind, text, "")
    if "deletionVector.offset" not in leaves:
        return plain
    offset = pc.struct_field(add, ["deletionVector", "offset"]).cast(pa.string())
    return pc.coalesce(pc.binary_join_element_wise(plain, offset, "@"), plain)


def _as_json(parsed: pa.Array) -> pa.Array:
    texts = [None if value is None else orjson.dumps(value, default=str).decode() for value in cells(parsed)]
    return pa.array(texts, pa.string())
