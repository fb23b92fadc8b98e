"""The demo's medallion, run in two rounds (the second from its checkpoints), against a recomputation without Spark."""

import json
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from backend.lake.lake import Lake
from backend.store.store import ControlStore
from backend.streams.preflight.model import Outcome
from backend.streams.preflight.reading import preflight
from pipelines.declare.registry import declarations, load_registry
from pipelines.demo.producers import RecordKind
from tests.worlds.spark.demo_lake import check_lake
from tests.worlds.spark.lakes import DemoLake, demo_lake

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


def silver_from_bronze(lake: DemoLake) -> set[str]:
    """Ids that silver must hold, read off bronze by the rules as the issue words them."""
    passing = set()
    for row in lake.rows("bronze/bronze_events"):
        event = parsed(row.raw)
        if event is None or event["event_type"] is None or event["amount"] <= 0:
            continue
        if datetime.fromisoformat(event["timestamp"]) > row.file_modified_at.astimezone(UTC) - timedelta(minutes=30):
            passing.add(event["event_id"])
    return passing


def parsed(raw: str) -> dict[str, Any] | None:
    try:
        event: dict[str, Any] = json.loads(raw)
    except ValueError:
        return None
    return event if isinstance(event["amount"], float | int) else None


def expectation_counts(lake: DemoLake, stream: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for progress in lake.heard.progress:
        if progress["name"] == stream:
            counts.update(progress.get("observedMetrics", {}).get("expectations", {}))
    return counts


def dropped_by_watermark(lake: DemoLake) -> int:
    return sum(
        operator.get("numRowsDroppedByWatermark", 0)
        for progress in lake.heard.progress
        if progress["name"] == "silver_events"
        for operator in progress["stateOperators"]
    )


def test_bronze_keeps_every_landed_line_as_it_was(lake: DemoLake) -> None:
    landed = Counter(record.line for record in lake.ledger.records("events"))
    assert Counter(row.raw for row in lake.rows("bronze/bronze_events")) == landed
    row = lake.rows("bronze/bronze_events")[0]
    assert row.file_name.startswith("events-")
    assert row.ingested_at is not None


def test_silver_and_gold_equal_the_ledger(lake: DemoLake) -> None:
    tables = SimpleNamespace(
        ledger=lake.ledger, rows=lambda name: pa.table(DeltaTable(lake.uri(name)).scan().read_all())
    )
    check_lake(tables)
    assert lake.ledger.expected_silver_event_ids() == silver_from_bronze(lake)
    assert any(record.kind is RecordKind.DUPLICATE for record in lake.ledger.records("events"))
    assert len({start for start, _ in lake.ledger.expected_gold()}) >= 6
    deleted = {row.order_id for row in lake.rows("silver/silver_orders_tombstones")}
    assert deleted and not deleted & lake.ledger.expected_orders().keys()


def test_broken_rows_are_quarantined_with_their_reason_none_lost_none_merged(lake: DemoLake) -> None:
    expected = lake.ledger.expected_quarantined()
    reasons = Counter(
        reason for row in lake.rows("silver/silver_events_quarantine") for reason in row.broken_expectations
    )
    assert reasons == {
        "well_formed": expected[RecordKind.MALFORMED],
        "event_type_not_null": expected[RecordKind.UNTYPED],
        "amount_positive": expected[RecordKind.NOT_POSITIVE],
    }
    raws = {row.raw for row in lake.rows("silver/silver_events_quarantine")}
    broken = {r.line for r in lake.ledger.records("events") if r.kind in expected}
    assert raws == broken


def test_rows_beyond_the_watermark_are_dropped_and_counted(lake: DemoLake) -> None:
    beyond = lake.ledger.expected_beyond_event_ids()
    assert dropped_by_watermark(lake) > 0
    assert dropped_by_watermark(lake) + expectation_counts(lake, "silver_events")["on_time_failed"] == len(beyond)


def test_expectation_counts_equal_naive_counts(lake: DemoLake) -> None:
    counts = expectation_counts(lake, "silver_events")
    silver, quarantined = len(lake.rows("silver/silver_events")), lake.ledger.expected_quarantined()
    judged = silver + sum(quarantined.values()) + counts["on_time_failed"]
    assert counts["well_formed_failed"] == quarantined[RecordKind.MALFORMED]
    assert counts["event_type_not_null_failed"] == quarantined[RecordKind.UNTYPED]
    assert counts["amount_positive_failed"] == quarantined[RecordKind.NOT_POSITIVE]
    assert counts["well_formed_passed"] + counts["well_formed_failed"] == judged
    orders = expectation_counts(lake, "silver_orders")
    assert orders["envelope_complete_passed"] == len(list(lake.ledger.records("orders")))
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


def test_tables_carry_owner_comments_and_change_feed(lake: DemoLake) -> None:
    log = Path(lake.uri("silver/silver_orders"), "_delta_log", f"{0:020}.json").read_text().splitlines()
    metadata = next(action["metaData"] for action in map(json.loads, log) if "metaData" in action)
    assert metadata["configuration"]["delta.enableChangeDataFeed"] == "true"
    assert metadata["configuration"]["catalog.team_name"] == "data-platform"
    assert metadata["description"]
    assert all(column["metadata"]["comment"] for column in json.loads(metadata["schemaString"])["fields"])


@pytest.mark.parametrize(
    ("stream", "tables"),
    [
        ("silver_orders", ("silver/silver_orders", "silver/silver_orders_tombstones")),
        ("silver_events", ("silver/silver_events", "silver/silver_events_quarantine")),
    ],
)
def test_a_replayed_batch_changes_nothing(lake: DemoLake, stream: str, tables: tuple[str, ...]) -> None:
    before = {table: (lake.versions(table), Counter(map(str, lake.rows(table)))) for table in tables}
    replayed = lake.forget_last_batch(stream)
    heard = len(lake.heard.progress)
    lake.process(stream)
    again = {progress["batchId"]: progress["numInputRows"] for progress in lake.heard.progress[heard:]}
    assert again[replayed] > 0  # it did run again, with rows
    assert {table: (lake.versions(table), Counter(map(str, lake.rows(table)))) for table in tables} == before
