"""The demo's medallion, run in two rounds (the second from its checkpoints), against a recomputation without Spark."""

import json
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from backend.lake.lake import Lake
from backend.store.store import ControlStore
from backend.streams.faults import Outcome
from backend.streams.preflight import preflight
from pipelines.declare.pipeline import declarations, load_registry
from tests.worlds.spark.host_process import check_lake
from tests.worlds.spark.lakes import DemoLake, demo_lake
from tests.worlds.streams.demo_ledger import Kind

# The first test's set-up runs everything: half a minute on two idle cores, minutes on busy ones.
pytestmark = [pytest.mark.spark, pytest.mark.ci, pytest.mark.timeout(900)]

EVENTS = ("bronze_events", "silver_events", "gold_events_hourly")
ORDERS = ("bronze_orders", "silver_orders", "gold_orders_by_status")


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DemoLake:
    """Two rounds: files land, six streams read them all and end."""
    made = demo_lake(tmp_path_factory.mktemp("medallion"))
    for files in (1, 2):
        made.land(files)
        made.process(*EVENTS, *ORDERS)
    return made


def expectation_counts(lake: DemoLake, stream: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for progress in lake.heard.progress:
        if progress["name"] == stream:
            counts.update(progress.get("observedMetrics", {}).get("expectations", {}))
    return counts


def test_every_table_equals_the_ledger(lake: DemoLake) -> None:
    landed, bronze = Counter(lake.ledger.lines("events")), lake.rows("bronze/bronze_events")
    assert Counter(row.raw for row in bronze) == landed
    assert bronze[0].file_name.startswith("events-") and bronze[0].ingested_at is not None
    tables = SimpleNamespace(
        ledger=lake.ledger, rows=lambda name: pa.table(DeltaTable(lake.uri(name)).scan().read_all())
    )
    check_lake(tables)
    events, orders = list(lake.ledger.events()), map(json.loads, lake.ledger.lines("orders"))
    assert len(events) < landed.total() and {Kind.LATE, Kind.BEYOND} <= {event.kind for event in events}
    assert (lsns := [order["source"]["lsn"] for order in orders]) != sorted(lsns), "orders come out of order"
    assert len({start for start, _ in lake.ledger.expected_gold()}) >= 6
    deleted = {row.order_id for row in lake.rows("silver/silver_orders_tombstones")}
    assert deleted and not deleted & lake.ledger.expected_orders().keys()


def test_broken_rows_are_quarantined_with_their_reason_none_lost_none_merged(lake: DemoLake) -> None:
    expected = lake.ledger.expected_quarantined()
    reasons = Counter(
        reason for row in lake.rows("silver/silver_events_quarantine") for reason in row.broken_expectations
    )
    assert reasons == {
        "well_formed": expected[Kind.MALFORMED],
        "event_type_not_null": expected[Kind.UNTYPED],
        "amount_positive": expected[Kind.NOT_POSITIVE],
    }
    raws = {row.raw for row in lake.rows("silver/silver_events_quarantine")}
    broken = {event.line for event in lake.ledger.events() if event.kind in expected}
    assert raws == broken


def test_rows_beyond_the_watermark_are_dropped_and_counted_and_so_is_each_expectation(lake: DemoLake) -> None:
    counts = expectation_counts(lake, "silver_events")
    of_silver = [progress for progress in lake.heard.progress if progress["name"] == "silver_events"]
    dropped = sum(state.get("numRowsDroppedByWatermark", 0) for each in of_silver for state in each["stateOperators"])
    assert dropped > 0
    assert dropped + counts["on_time_failed"] == len(lake.ledger.expected_beyond_event_ids())
    silver, quarantined = len(lake.rows("silver/silver_events")), lake.ledger.expected_quarantined()
    judged = silver + sum(quarantined.values()) + counts["on_time_failed"]
    assert counts["well_formed_failed"] == quarantined[Kind.MALFORMED]
    assert counts["event_type_not_null_failed"] == quarantined[Kind.UNTYPED]
    assert counts["amount_positive_failed"] == quarantined[Kind.NOT_POSITIVE]
    assert counts["well_formed_passed"] + counts["well_formed_failed"] == judged
    orders = expectation_counts(lake, "silver_orders")
    assert orders["envelope_complete_passed"] == len(list(lake.ledger.lines("orders")))
    assert orders["envelope_complete_failed"] == 0


def test_commits_name_stream_batch_and_run(lake: DemoLake) -> None:
    merges = [info for info in lake.history("silver/silver_orders") if info["operation"] == "MERGE"]
    notes = [json.loads(info["userMetadata"]) for info in merges]
    runs = {progress["runId"] for progress in lake.heard.progress if progress["name"] == "silver_orders"}
    assert [(note["stream"], note["batch_id"]) for note in notes] == [("silver_orders", n) for n in range(len(merges))]
    assert {note["run_id"] for note in notes} <= runs
    streaming = [info for info in lake.history("bronze/bronze_orders") if info["operation"] == "STREAMING UPDATE"]
    assert all(info["operationParameters"]["queryId"] for info in streaming)


def test_a_preflight_finds_nothing_against_any_stream_and_each_sinks_last_batch(lake: DemoLake) -> None:
    (lake.settings.home / "store").mkdir()
    now = datetime.now(UTC)
    with closing(ControlStore.open(lake.settings)) as store:
        store.declare(declarations(load_registry(lake.settings), lake.settings), now=now)
        reader = Lake(lake.settings)
        checks = {name: preflight(lake.settings, reader, store, name, now=now).checks for name in (*EVENTS, *ORDERS)}
    odd = [(name, check) for name, of in checks.items() for check in of if check.outcome is not Outcome.OK]
    assert {check.name for _, check in odd} == {"owner"}, odd  # no host reports here
    for name, of in checks.items():
        (sink,) = [check for check in of if check.name == "sink"]
        assert "Its last batch of this query is" in sink.detail, name
