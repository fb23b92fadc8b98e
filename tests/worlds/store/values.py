"""Values that the store tests share."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from backend.store.leases import stream_resource
from backend.store.store import ControlStore
from backend.stream_model.stream import (
    ExpectationCount,
    Lease,
    Observed,
    Progress,
    StreamDeclaration,
    StreamFailure,
    StreamState,
)

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)

DECLARATION = StreamDeclaration(
    name="silver_orders",
    description="Orders as they stand",
    source="change feed of bronze/orders",
    sink_uri="/lake/silver/orders",
    sink_table="silver/orders",
    source_tables=("bronze/orders",),
    layer="silver",
    trigger_interval_ms=5_000,
    checkpoint_location="/checkpoints/silver_orders",
    expectations=("amount > 0",),
)

FAILURE = StreamFailure("SparkException", "job aborted", 7, NOW)

OBSERVED = Observed(
    name="silver_orders",
    state=StreamState.RUNNING,
    host_id="host-a",
    generation=1,
    observed_at=NOW,
    query_id="q",
    run_id="r",
    started_at=NOW,
    failures=(FAILURE,),
)


def progress(batch_id: int, *, stream: str = "silver_orders") -> Progress:
    return Progress(
        stream=stream,
        query_id="q",
        run_id=f"run-{stream}",
        batch_id=batch_id,
        progressed_at=NOW + timedelta(seconds=batch_id),
        num_input_rows=10,
        input_rows_per_s=1.5,
        processed_rows_per_s=None,
        batch_duration_ms=900,
        durations_ms={"addBatch": 700, "triggerExecution": 900},
        watermark=NOW,
        state_rows=4,
        expectations=(ExpectationCount("amount > 0", 9, None),),
        raw_json='{"name": "silver_orders"}',
    )


def newest(store: ControlStore) -> dict[str, Progress]:
    """The last batch of each declared stream that has one."""
    return {name: batches[0] for name in store.declarations() if (batches := store.progress(name, limit=1))}


def held(store: ControlStore, *, owner: str = "host-a") -> Lease:
    lease = store.acquire(stream_resource("silver_orders"), owner, ttl_s=15)
    assert lease is not None
    return lease


def observed(**changes: object) -> Observed:
    return replace(OBSERVED, **changes)  # type: ignore[arg-type]
