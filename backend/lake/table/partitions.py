"""Partition values as one text per file, for grouping and for people.

Rule: inside, `physical=escaped value` joined by "/" in the order of names. Nulls are left out, for a log writes them as
null, as an empty text or not at all. Shown are the table's own column names in its order, with Hive's word for null.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from backend.lake.model import Metadata

_MOST_COUNTED = 1 << 20  # combinations of values that are counted; more of them are sorted
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def encode_partition(values: Mapping[str, str | None]) -> str:
    return "/".join(_encoded(name, value) for name, value in sorted(values.items()) if value)


def encode_partitions(maps: pa.Array, names: Sequence[str]) -> pa.DictionaryArray:
    """`encode_partition` for a column of map<string, string>, dictionary-encoded: each distinct text is made once."""
    if not (pa.types.is_map(maps.type) or pa.types.is_null(maps.type)):
        raise pa.ArrowTypeError(f"partitionValues is no map of text to text but {maps.type}")
    codes, texts = np.zeros(len(maps), np.int64), [""]
    if pa.types.is_null(maps.type):
        names = ()
    for name in sorted(names):
        values = _values(maps, name).dictionary_encode()
        parts = [_encoded(name, value) if value else "" for value in (*values.dictionary.to_pylist(), None)]
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
    physical = physical_names(metadata)
    shown = pa.array([show_partition(text, metadata, physical) for text in codes.dictionary.to_pylist()], pa.string())
    unique = shown.dictionary_encode()
    return pa.DictionaryArray.from_arrays(unique.indices.take(codes.indices), unique.dictionary)


def show_partition(encoded: str, metadata: Metadata, physical: Mapping[str, str]) -> str:
    values = dict(_pair(text) for text in encoded.split("/") if text)
    return "/".join(
        f"{column}={values.get(_escape(physical.get(column, column)), NULL_PARTITION)}"
        for column in metadata.partition_columns
    )


def partition_values(shown: str, metadata: Metadata) -> dict[str, str | None]:
    """The values in `day=2026-01-01/country=NL`, by the table's column names; None is null."""
    values: dict[str, str | None] = {}
    for column in metadata.partition_columns:
        head = f"{column}="
        value, _, shown = shown.removeprefix(head).partition("/") if shown.startswith(head) else ("", "", shown)
        values[column] = value.replace("%2F", "/").replace("%25", "%") if value not in ("", NULL_PARTITION) else None
    return values


def physical_names(metadata: Metadata) -> dict[str, str]:
    """Each top-level column's name in files and partition values (differs under column mapping)."""
    try:
        fields = orjson.loads(metadata.schema_json)["fields"]
        return {
            str(f["name"]): str((f.get("metadata") or {}).get("delta.columnMapping.physicalName", f["name"]))
            for f in fields
        }
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return {}


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
    found = np.full(len(maps), -1, np.int64)
    found[rows[::-1]] = at[::-1]
    if maps.null_count:
        found[pc.is_null(maps).to_numpy(zero_copy_only=False)] = -1
    return items.take(pa.array(found, pa.int64(), mask=found < 0))


def _encoded(name: str, value: str) -> str:
    return f"{_escape(name)}={_escape(value)}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value
