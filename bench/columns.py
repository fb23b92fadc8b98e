"""What the log of a measured table says: its schema, protocol and metadata, and paths and statistics for many files.

Rule: whole Arrow columns, no object a file.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

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
