"""Events of other Spark applications become streams; whatever is not one of theirs is left out."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from backend.stream_model.attached import Attached, AttachedEvent
from backend.stream_model.stream import InputKind, StreamInput, StreamState

NOW = datetime(2026, 11, 23, 10, tzinfo=UTC)
RUN, ID = "run-1", "12345678-aaaa"
SOURCES = [
    {"description": "DeltaSource[file:/lake/bronze/orders]", "endOffset": {}},
    {"description": "KafkaV2[Subscribe[orders,returns]]", "endOffset": {}},
    {"description": "FileStreamSource[s3a://landing/a b]", "endOffset": {}},
    {"description": "RateStreamV2[rowsPerSecond=1, numPartitions=default", "endOffset": {}},
    {"description": "org.example.OwnSource@1", "endOffset": {}},
]


def empty(roots: tuple[str, ...] = ("/lake",)) -> Attached:
    return Attached(roots, {}, {}, {})


def event(kind: str, app: str = "app-1", seconds: int = 0, **facts: Any) -> AttachedEvent:
    return AttachedEvent(app, NOW + timedelta(seconds=seconds), json.dumps({"event": kind, **facts}))


def beat(app: str = "app-1", seconds: int = 0, name: str = "etl") -> AttachedEvent:
    told = {"name": name, "hostname": "vm", "pid": 7, "spark_version": "3.5.8", "spark_ui_url": None}
    return event("beat", app, seconds, **told)


def started(app: str = "app-1", run_id: str = RUN, query: str | None = "orders") -> AttachedEvent:
    facts = {"trigger": "ProcessingTimeTrigger(5000)", "checkpoint": "file:/cp/orders"}
    return event("started", app, 1, id=ID, run_id=run_id, query=query, **facts)


def progress(batch: int = 3, run_id: str = RUN, name: str | None = "orders", **more: Any) -> AttachedEvent:
    told = {
        "id": ID,
        "runId": run_id,
        "name": name,
        "batchId": batch,
        "timestamp": "2026-11-23T10:00:02.000Z",
        "numInputRows": 5,
        "durationMs": {"triggerExecution": 1_000},
        "sources": SOURCES,
        "sink": {"description": "DeltaSink[file:/lake/silver/orders]"},
    }
    return event("progress", seconds=2, progress=json.dumps({**told, **more}))


def test_a_query_is_a_stream_with_what_it_reads_and_writes() -> None:
    known = empty()
    known.take([beat(), started(), progress()])

    declared, seen = known.declarations["etl.orders"], known.observed["etl.orders"]
    assert declared.inputs == (
        StreamInput(InputKind.TABLE, "bronze/orders", "/lake/bronze/orders"),
        StreamInput(InputKind.KAFKA, "Kafka orders,returns"),
        StreamInput(InputKind.FILES, "files in s3://landing/a b", "s3://landing/a b"),
        StreamInput(InputKind.RATE, "made-up rows"),
        StreamInput(InputKind.OTHER, "org.example.OwnSource@1"),
    )
    assert (declared.sink_uri, declared.sink_table, declared.layer) == (
        "/lake/silver/orders",
        "silver/orders",
        "silver",
    )
    assert (declared.trigger_interval_ms, declared.checkpoint_location) == (5_000, "/cp/orders")
    assert declared.is_attached and not declared.reset_allowed
    assert (seen.state, seen.run_id, seen.host_id) == (StreamState.RUNNING, RUN, "app-1")
    assert [(batch.stream, batch.batch_id) for batch in known.progress] == [("etl.orders", 3)]
    assert known.signs["etl.orders"] == NOW + timedelta(seconds=3)
    assert known.unreadable == 0


def test_what_it_writes_elsewhere_is_named() -> None:
    known = empty()
    sink = {"description": "org.apache.spark.sql.execution.streaming.ConsoleTable$@7[numRows=20]"}
    known.take([beat(), started(), progress(sink=sink)])

    declared = known.declarations["etl.orders"]
    assert (declared.sink_uri, declared.sink_table, declared.outside) == ("", "", "ConsoleTable")


def test_a_table_outside_the_lake_keeps_its_uri() -> None:
    known = empty(roots=("/elsewhere",))
    known.take([beat(), started(), progress()])

    assert known.declarations["etl.orders"].sink_table == "/lake/silver/orders"
    assert known.declarations["etl.orders"].layer is None


def test_a_query_without_a_name_goes_by_its_id() -> None:
    known = empty()
    known.take([beat(), started(query=None), progress(name=None)])

    assert list(known.observed) == ["etl.12345678"]


@pytest.mark.parametrize(
    ("problem", "state", "failure"),
    [
        (None, StreamState.STOPPED, None),
        ("SparkException: Job 72 cancelled because SparkContext was shut down", StreamState.STOPPED, None),
        (
            "org.apache.spark.sql.streaming.StreamingQueryException: failed\nat a\nCaused by: org.apache.spark."
            "SparkRuntimeException: [USER_RAISED_EXCEPTION] thirteen SQLSTATE: P0001\nat b",
            StreamState.FAILED,
            ("USER_RAISED_EXCEPTION", "[USER_RAISED_EXCEPTION] thirteen"),
        ),
        ("java.lang.IllegalStateException: it broke\nat x", StreamState.FAILED, ("IllegalStateException", "it broke")),
        ("   ", StreamState.FAILED, ("Unknown", "no message")),
    ],
)
def test_its_end_is_told(problem: str | None, state: StreamState, failure: tuple[str, str] | None) -> None:
    known = empty()
    known.take([beat(), started(), event("terminated", seconds=9, id=ID, run_id=RUN, problem=problem)])

    seen = known.observed["etl.orders"]
    assert (seen.state, seen.observed_at) == (state, NOW + timedelta(seconds=9))
    last = seen.last_failure
    assert (last and (last.error_class, last.message)) == failure


def test_a_start_that_was_lost_is_seen_by_its_batches() -> None:
    known = empty()
    known.take([beat(), started(), event("terminated", id=ID, run_id=RUN, problem=None), progress(run_id="run-2")])

    assert (known.observed["etl.orders"].run_id, known.observed["etl.orders"].state) == ("run-2", StreamState.RUNNING)


def test_an_application_that_ends_leaves_its_streams_stopped_and_others_alone() -> None:
    known = empty()
    other = replace(started("app-2", "run-9"), app_id="app-2")
    known.take([beat(), beat("app-2", name="other"), started(), other, event("ended")])

    assert known.observed["etl.orders"].state is StreamState.STOPPED
    assert known.observed["other.orders"].state is StreamState.RUNNING


def test_nobody_reaches_another_applications_stream() -> None:
    known = empty()
    known.take([beat(), beat("app-2", name="other"), started()])
    known.take([event("terminated", "app-2", id=ID, run_id=RUN, problem="boom"), event("idle", "app-2", run_id=RUN)])

    assert known.observed["etl.orders"].state is StreamState.RUNNING
    assert known.unreadable == 2


@pytest.mark.parametrize(
    "body",
    [
        "",
        "nothing",
        "[]",
        "null",
        '{"event": "beat"}',
        '{"event": "progress", "progress": "cut {"}',
        '{"event": "progress", "progress": 7}',
        '{"event": "progress"}',
        '{"event": "started"}',
        '{"event": "idle", "run_id": "run-1", "at": "never"}',
        '{"event": ["unknown"]}',
        "[" * 100_000,
        progress(batchDuration=10**15).body,
    ],
)
def test_rubbish_is_counted_and_changes_nothing(body: str) -> None:
    known = empty()
    known.take([beat(), started()])
    before = dict(known.observed), dict(known.declarations)
    known.take([AttachedEvent("app-1", NOW, body), AttachedEvent("app-none", NOW, started().body)])

    assert (known.observed, known.declarations) == before
    assert known.unreadable >= 1
    assert not known.progress
