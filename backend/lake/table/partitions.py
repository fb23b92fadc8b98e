"""Partition values as one text per file, for grouping and for people; of many files as Arrow columns.

Rule: inside, `physical=escaped value` joined by "/" in the order of names; nulls are left out. Shown are the table's
own column names in its order, with Hive's word for null, and that word escaped where it is a value. An empty text is
a value of a column of texts, and null in any other. A decimal has its type's scale, however its writer put it.
Source: what Spark 4.2 with Delta 4.4, and deltalake 1.6.6, read; of an empty text PROTOCOL.md says that it is null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import TYPE_CHECKING

import orjson

from backend.lake.model import Metadata

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_THE_WORD = NULL_PARTITION.replace("_", "%5F", 1)
_DIGITS = Context(prec=76, rounding=ROUND_HALF_UP)  # as Spark casts a text


def encode_partition(values: Mapping[str, str | None]) -> str:
    return "/".join(encode_value(name, value) for name, value in sorted(values.items()) if value is not None)


def show_partition(encoded: str, metadata: Metadata, physical: Mapping[str, str], types: Mapping[str, str]) -> str:
    """`types` as `column_types` gives them."""
    pairs = (text.partition("=") for text in encoded.split("/") if text)
    values = {name: value for name, _, value in pairs}

    def shown(column: str) -> str:
        value = _typed(values.get(_escape(physical.get(column, column))), types.get(column, ""))
        if value is None:
            return NULL_PARTITION
        return _THE_WORD if value == NULL_PARTITION else value

    return "/".join(f"{column}={shown(column)}" for column in metadata.partition_columns)


def _typed(value: str | None, kind: str) -> str | None:
    """A value's one text in a column of this type."""
    if not value:
        return value if kind in ("string", "binary") else None
    if not kind.startswith("decimal("):
        return value
    try:
        scale = int(kind.removesuffix(")").partition(",")[2])
        return f"{Decimal(value).quantize(Decimal(1).scaleb(-scale), context=_DIGITS):f}"
    except (InvalidOperation, ValueError):
        return value


def partition_values(shown: str, metadata: Metadata) -> dict[str, str | None]:
    """The values in `day=2026-01-01/country=NL`, by the table's column names; None is null."""
    values: dict[str, str | None] = {}
    for column in metadata.partition_columns:
        head = f"{column}="
        if not shown.startswith(head):
            values[column] = None
            continue
        value, _, shown = shown.removeprefix(head).partition("/")
        text = NULL_PARTITION if value == _THE_WORD else value.replace("%2F", "/").replace("%25", "%")
        values[column] = None if value == NULL_PARTITION else text
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


def has_decimals(metadata: Metadata) -> bool:
    """Whether the log may write a partition's value in several ways."""
    types = column_types(metadata.schema_json)
    return any(types.get(name, "").startswith("decimal") for name in metadata.partition_columns)


@lru_cache(maxsize=256)
def column_types(schema_json: str) -> Mapping[str, str]:
    """The types of the top-level columns that are not nested, as the log names them."""
    try:
        fields = orjson.loads(schema_json)["fields"]
        return {str(f["name"]): f["type"] for f in fields if isinstance(f["type"], str)}
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return {}


def encode_value(name: str, value: str) -> str:
    return f"{_escape(name)}={_escape(value)}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")


_MOST_COUNTED = 1 << 20  # combinations of values that are counted; more of them are sorted


def encode_partitions(maps: pa.Array, names: Sequence[str]) -> pa.DictionaryArray:
    """`encode_partition` of each in a column of map<string, string>, dictionary-encoded."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

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
    import numpy as np

    if count > _MOST_COUNTED:
        used, positions = np.unique(codes, return_inverse=True)
        return used, positions
    occurs = np.bincount(codes, minlength=count) > 0
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[codes]


def show_partitions(encoded: pa.Array, metadata: Metadata) -> pa.DictionaryArray:
    """What people read: `day=2026-01-01/country=NL`; each distinct text is worked out once."""
    import numpy as np
    import pyarrow as pa

    if not metadata.partition_columns:
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(encoded), np.int32)), pa.array([""], pa.string()))
    codes = encoded if pa.types.is_dictionary(encoded.type) else encoded.dictionary_encode()
    own = physical_names(metadata), column_types(metadata.schema_json)
    shown = pa.array([show_partition(text, metadata, *own) for text in codes.dictionary.to_pylist()], pa.string())
    unique = shown.dictionary_encode()
    return pa.DictionaryArray.from_arrays(unique.indices.take(codes.indices), unique.dictionary)


def _values(maps: pa.Array, name: str) -> pa.Array:
    """The value of one key in each map, the first where a key occurs twice; null where it is absent."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

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
