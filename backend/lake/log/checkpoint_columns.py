"""How each column of `file_columns.FILES` is decoded from the leaves of a checkpoint's `add` struct.

Rule: pure and vectorised, no object per file. A leaf that a writer left out decodes to unknown (null) or to none (no
deletion vector), never to a guess.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from backend.cells import cells
from backend.lake.log.actions import NUM_RECORDS, UUID_CHARS, stats_rows
from backend.lake.storage.paths import holds
from backend.lake.table.partition_columns import encode_partitions

Arrays = dict[str, pa.Array]
_VECTOR_ID = ("deletionVector.storageType", "deletionVector.pathOrInlineDv", "deletionVector.offset")
_PREFIX_BYTES = 64  # numRecords is written first: enough to find it without reading all statistics
_TIME = pa.timestamp("ms", tz="UTC")
_LAST_MS = 253_402_300_800_000


@dataclass(frozen=True, slots=True)
class Decoded:
    """A checkpoint file's view of one group: which leaves to read, and what to make of them."""

    leaves: tuple[str, ...]
    decode: Callable[[pa.Array], Arrays]
    missing: Callable[[int], Arrays]


@dataclass(frozen=True, slots=True)
class FileColumn:
    """Columns that are decoded together. `cached`: small enough to stay in memory once read."""

    names: tuple[str, ...]
    build: Callable[[frozenset[str], tuple[str, ...]], Decoded]
    cached: bool = True


def file_columns(fields: frozenset[str], name: str, partition_names: tuple[str, ...]) -> Decoded:
    """How to read column `name` of a file whose `add` has these `fields` (dotted, two deep)."""
    return COLUMNS[name].build(fields, partition_names)


def _path(_fields: frozenset[str], _names: tuple[str, ...]) -> Decoded:
    return Decoded(("path",), lambda add: {"path": paths_of(add)}, _nulls("path", pa.string()))


def _key(fields: frozenset[str], _names: tuple[str, ...]) -> Decoded:
    leaves = tuple(leaf for leaf in _VECTOR_ID if leaf in fields)
    if len(leaves) < 2:
        return Decoded(("path",), lambda add: {"key": paths_of(add)}, _nulls("key", pa.string()))

    def decode(add: pa.Array) -> Arrays:
        paths, unique = paths_of(add), _vector_ids(add, leaves)
        marked = pc.binary_join_element_wise(paths, unique, "\x00")
        return {"key": pc.if_else(pc.is_valid(unique), marked, paths)}

    return Decoded(("path", *leaves), decode, _nulls("key", pa.string()))


def _size(fields: frozenset[str], _names: tuple[str, ...]) -> Decoded:
    return Decoded(
        ("size",) if "size" in fields else (),
        lambda add: {"size_bytes": pc.struct_field(add, "size").cast(pa.int64())},
        _nulls("size_bytes", pa.int64()),
    )


def _base_row_id(fields: frozenset[str], _names: tuple[str, ...]) -> Decoded:
    return Decoded(
        ("baseRowId",) if "baseRowId" in fields else (),
        lambda add: {"base_row_id": pc.struct_field(add, "baseRowId").cast(pa.int64())},
        _nulls("base_row_id", pa.int64()),
    )


def _modified_at(fields: frozenset[str], _names: tuple[str, ...]) -> Decoded:
    def decode(add: pa.Array) -> Arrays:
        millis = pc.struct_field(add, "modificationTime").cast(pa.int64())
        sane = pc.and_(pc.greater_equal(millis, 0), pc.less(millis, _LAST_MS))
        return {"modified_at": pc.if_else(sane, millis, pa.scalar(None, pa.int64())).cast(_TIME)}

    leaves = ("modificationTime",) if "modificationTime" in fields else ()
    return Decoded(leaves, decode, _nulls("modified_at", _TIME))


def _partition(fields: frozenset[str], names: tuple[str, ...]) -> Decoded:
    def missing(count: int) -> Arrays:
        return {"encoded_partition": encode_partitions(pa.nulls(count, pa.map_(pa.string(), pa.string())), names)}

    return Decoded(
        ("partitionValues",) if names and "partitionValues" in fields else (),
        lambda add: {"encoded_partition": encode_partitions(pc.struct_field(add, "partitionValues"), names)},
        missing,
    )


def _num_records(fields: frozenset[str], _names: tuple[str, ...]) -> Decoded:
    """From the parsed struct where it is there and says it, else from the JSON text."""
    parsed, text = "stats_parsed.numRecords" in fields, "stats" in fields
    leaves = (("stats_parsed.numRecords",) if parsed else ()) + (("stats",) if text else ())

    def decode(add: pa.Array) -> Arrays:
        rows = pa.nulls(len(add), pa.int64())
        if parsed:
            rows = pc.struct_field(add, ["stats_parsed", "numRecords"]).cast(pa.int64())
        if text and rows.null_count:
            rows = pc.coalesce(rows, rows_in_texts(pc.struct_field(add, "stats").cast(pa.string())))
        return {"num_records": rows}

    return Decoded(leaves, decode, _nulls("num_records", pa.int64()))


def _stats(fields: frozenset[str], _names: tuple[str, ...]) -> Decoded:
    """The JSON texts; a writer that left only parsed statistics has them written as JSON here."""
    if "stats" in fields:
        return Decoded(
            ("stats",),
            lambda add: {"stats": pc.struct_field(add, "stats").cast(pa.string())},
            _nulls("stats", pa.string()),
        )
    leaves = tuple(sorted(field for field in fields if field.startswith("stats_parsed.")))
    return Decoded(
        leaves,
        lambda add: {"stats": _as_json(pc.struct_field(add, "stats_parsed"))},
        _nulls("stats", pa.string()),
    )


def _vectors(fields: frozenset[str], _names: tuple[str, ...]) -> Decoded:
    ids = tuple(leaf for leaf in _VECTOR_ID if leaf in fields)

    def missing(count: int) -> Arrays:
        none = pa.nulls(count, pa.string())
        return {"deleted_rows": pa.array([0] * count, pa.int64()), "dv_id": none, "dv_path": none}

    def decode(add: pa.Array) -> Arrays:
        unique = _vector_ids(add, ids)
        if unique.null_count == len(unique):
            return missing(len(add))
        marked = pc.struct_field(add, ["deletionVector", "cardinality"]).cast(pa.int64())
        if pc.any(pc.and_(pc.is_valid(unique), pc.is_null(marked))).as_py():
            raise ValueError("a deletion vector without its cardinality")
        kind = pc.struct_field(add, ["deletionVector", "storageType"]).cast(pa.string())
        text = pc.struct_field(add, ["deletionVector", "pathOrInlineDv"]).cast(pa.string())
        folder = pc.utf8_slice_codeunits(text, 0, -UUID_CHARS)
        path = pc.if_else(pc.equal(kind, "p"), unquoted(text), pc.if_else(pc.equal(kind, "u"), folder, None))
        path = pc.if_else(pc.equal(path, ""), None, path)
        return {"deleted_rows": pc.fill_null(marked, 0), "dv_id": unique, "dv_path": path}

    leaves = (*ids, "deletionVector.cardinality") if len(ids) > 1 and "deletionVector.cardinality" in fields else ()
    return Decoded(leaves, decode, missing)


COLUMNS: Mapping[str, FileColumn] = {
    "path": FileColumn(("path",), _path, cached=False),
    "key": FileColumn(("key",), _key, cached=False),
    "size_bytes": FileColumn(("size_bytes",), _size),
    "num_records": FileColumn(("num_records",), _num_records),
    "modified_at": FileColumn(("modified_at",), _modified_at),
    "encoded_partition": FileColumn(("encoded_partition",), _partition),
    "stats": FileColumn(("stats",), _stats, cached=False),
    "base_row_id": FileColumn(("base_row_id",), _base_row_id),
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


def _nulls(name: str, kind: pa.DataType) -> Callable[[int], Arrays]:
    return lambda count: {name: pa.nulls(count, kind)}
