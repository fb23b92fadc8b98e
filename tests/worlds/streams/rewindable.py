"""A table that a stopped stream wrote, batch by batch, and its checkpoint: enough to preview a rewind without Spark."""

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from deltalake import CommitProperties, DeltaTable

from backend.store.leases import stream_resource
from backend.store.store import ControlStore
from backend.stream_model.stream import InputKind, Observed, StreamInput, StreamState
from tests.worlds.lake import builders
from tests.worlds.store.values import DECLARATION
from tests.worlds.streams.checkpoints import QUERY_ID, delta_offset, write_checkpoint

TABLE, STREAM = "silver/orders", "silver_orders"


def write_rewindable(home: Path, store: ControlStore, now: datetime, *, batches: int = 4) -> Path:
    """Batch N wrote version N of `silver/orders`, which is all that `bronze/orders` got in its version N."""
    source, table = home / "lake" / "bronze" / "orders", home / "lake" / TABLE
    for batch in range(batches):
        rows = {"id": [10 * batch + 1, 10 * batch + 2], "amount": [1.0, 2.0]}
        builders.write(source, rows)
        stamp = json.dumps({"stream": STREAM, "batch_id": batch, "query_id": QUERY_ID, "run_id": "run-1"})
        builders.write(table, rows, commit_properties=CommitProperties(custom_metadata={"userMetadata": stamp}))
    table_id = str(DeltaTable(source).metadata().id)
    offsets = {batch: [delta_offset(table_id, batch + 1)] for batch in range(batches)}
    place = write_checkpoint(home / "checkpoints" / STREAM, offsets)
    read = StreamInput(name="bronze/orders", kind=InputKind.TABLE, uri=str(source))
    declared = replace(DECLARATION, sink_uri=str(table), checkpoint_location=str(place), inputs=(read,))
    store.declare([declared], now=now)
    lease = store.acquire(stream_resource(STREAM), "host-a", ttl_s=60)
    assert lease is not None
    store.observe(Observed(STREAM, StreamState.STOPPED, "host-a", 1, now, query_id=QUERY_ID), token=lease.token)
    store.release(lease)
    return table
