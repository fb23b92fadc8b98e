"""Checkpoints as Spark writes them, made by hand: for readers of checkpoints that need no stream."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa

from backend.store import schema
from backend.store.store import ControlStore
from backend.stream_model.stream import StreamDeclaration

QUERY_ID = "query-1"


def write_checkpoint(
    place: Path,
    offsets: Mapping[int, Sequence[str | None]],
    *,
    finished: Iterable[int] | None = None,
    at: datetime | None = None,
) -> Path:
    """`offsets`: by batch, each source's offset as JSON. `finished`: batches with a commit, all unless said."""
    for name in ("offsets", "commits"):
        (place / name).mkdir(parents=True, exist_ok=True)
    (place / "metadata").write_text(json.dumps({"id": QUERY_ID}))
    millis = round((at or datetime.now(UTC)).timestamp() * 1_000)
    conf = {"spark.sql.shuffle.partitions": "2"}
    for batch, sources in offsets.items():
        metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": millis, "conf": conf})
        lines = ["v1", metadata, *("-" if each is None else each for each in sources)]
        (place / "offsets" / str(batch)).write_text("\n".join(lines))
        (place / "offsets" / f".{batch}.crc").write_bytes(b"crc")
    for batch in offsets if finished is None else finished:
        (place / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return place


def delta_offset(table_id: str, version: int, index: int = -1, *, is_initial: bool = False) -> str:
    """Where a Delta source stands: before the file after `index` of `version`."""
    return json.dumps(
        {
            "sourceVersion": 1,
            "reservoirId": table_id,
            "reservoirVersion": version,
            "index": index,
            "isStartingVersion": is_initial,
        }
    )


def declare_anew(store: ControlStore, *declared: StreamDeclaration, now: datetime) -> None:
    """As if they had lain where they lie now from the start: the store refuses to let a stream's addresses change."""
    with store._database.writing() as connection:
        for stream in declared:
            connection.execute(sa.delete(schema.declaration).where(schema.declaration.c.name == stream.name))
    store.declare(declared, now=now)
