"""Values that tests of the store share, and leases as hosts take them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from backend.access import Actor
from backend.expectations.model import ExpectationKind, Finding, Judgement, State, TableExpectation
from backend.jobs.model import Job, JobKind, JobRequest, JobState
from backend.search.notice import Measure, Notice
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


FRESH = TableExpectation("/lake/gold/orders", "gold_orders", ExpectationKind.FRESH, "shop", within_s=900.0)
EARLY = Finding(State.UNKNOWN, "not judged yet", is_early=True)

JUMP = Notice(
    "s3://lake/orders", "orders", 31, Measure.HIGHEST, "amount", "498.2", "47,189", "amount <= 550",
    "MERGE by stream silver_orders", NOW, job="orders", rows=28, where="country = 'ES'", repair="amount = amount / 100",
)  # fmt: skip


JOB = JobRequest(JobKind.DIFF, "silver_orders", "f1", "{}", Actor("ann"), "a first look", 60.0)


def job_of(kind: JobKind, request: str, subject: str = "t") -> Job:
    """As its host has it that runs it."""
    at = datetime.now(UTC)
    return Job("0123456789ab", kind, subject, "f", request, "ann", "why", 60.0, JobState.RUNNING, at, attempts=1)


def judgement(expectation: TableExpectation, finding: Finding = EARLY) -> Judgement:
    return Judgement(expectation, finding, "host-a", NOW)


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


def leased(store: ControlStore, resource: str, owner: str = "host-a", *, ttl_s: float = 60) -> Lease:
    lease = store.acquire(resource, owner, ttl_s=ttl_s)
    assert lease is not None
    return lease


def held(store: ControlStore, *, owner: str = "host-a") -> Lease:
    return leased(store, stream_resource("silver_orders"), owner, ttl_s=15)


def observed(**changes: object) -> Observed:
    return replace(OBSERVED, **changes)  # type: ignore[arg-type]
