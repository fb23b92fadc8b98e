"""Partition values of many files as Arrow columns, each distinct text made once.

Rule: the texts are those of `partitions`.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backend.lake.model import Metadata
from backend.lake.table.partitions import column_types, encode_value, physical_names, show_partition

_MOST_COUNTED = 1 << 20  # combinations of values that are counted; more of them are sorted


def encode_partitions(maps: pa.Array, names: Sequence[str]) -> pa.DictionaryArray:
    """`encode_partition` of each in a column of map<string, string>, dictionary-encoded."""
    if not (pa.types.is_map(maps.type) or pa.types.is_null(maps.type)):
        raise pa.ArrowTypeError(f"partitionValues is no map of text to text but {maps.type}")
    codes, texts = np.zeros(len(maps), np.int64), [""]
    if pa.types.is_null(maps.type):
        names = ()
    for name in sorted(names):
        values = _values(maps, name).dictionary_encode()
        parts = ["" if value is None else encode_value(name, value) for value in (*values.dictionary.to_pylist(), None)]
        own = pc.fill_null(values.indices, len(parts) - 1).to_numpy(zero_copy_only=False)
        used, codes = _used(codes * len(parts) + own, len(texts) * len(parts))
        texts = ["/".join(t for t in (texts[at // len(parts)], parts[at % len(parts)]) if t) for at in used.tolist()]
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(texts, pa.string()))


def _used(codes: npt.NDArray[np.int64], count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The codes below `count` that occur, and for each code its position among them."""
    if count > _MOST_COUNTED:
        used, positions = np.unique(codes, return_inverse=True)
        return used, positions
    occurs = np.bincount(codes, minlength=count) > 0
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[codes]


def show_partitions(encoded: pa.Array, metadata: Metadata) -> pa.DictionaryArray:
    """What people read: `day=2026-01-01/country=NL`; each distinct text is worked out once."""
    if not metadata.partition_columns:
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(encoded), np.int32)), pa.array([""], pa.string()))
    codes = encoded if pa.types.is_dictionary(encoded.type) else encoded.dictionary_encode()
    own = physical_names(metadata), column_types(metadata.schema_json)
    shown = pa.array([show_partition(text, metadata, *own) for text in codes.dictionary.to_pylist()], pa.string())
    unique = shown.dictionary_encode()
    return pa.DictionaryArray.from_arrays(unique.indices.take(codes.indices), unique.dictionary)


def _values(maps: pa.Array, name: str) -> pa.Array:
    """The value of one key in each map, the first where a key occurs twice; null where it is absent."""
    offsets = maps.offsets.to_numpy()
    start, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    is_name = pc.equal(maps.keys.slice(start, count).cast(pa.string()), name)
    at = np.flatnonzero(pc.fill_null(is_name, False).to_numpy(zero_copy_only=False))
    rows = np.searchsorted(offsets - start, at, side="right") - 1
    items = maps.items.slice(start, count).cast(pa.string())
    if len(at) == len(maps) and bool((np.diff(rows) == 1).all()) and not maps.null_count:
        return items.take(pa.array(at))
    positions = np.full(len(maps), -1, np.int64)
    positions[rows[::-1]] = at[::-1]
    if maps.null_count:
        positions[pc.is_null(maps).to_numpy(zero_copy_only=False)] = -1
    return items.take(pa.array(positions, pa.int64(), mask=positions < 0))
