"""Progress events as Spark 4.2 writes them, what is left of damaged ones, and what other applications report."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.errors import StreamError
from backend.stream_model.attached import Attached, AttachedEvent
from backend.stream_model.progress import MOST_METRICS, observed_metrics, parse_progress
from backend.stream_model.stream import ExpectationCount, InputKind, ObservedMetric, StreamInput, StreamState
from tests.worlds.streams.attached import ID, NOW, RUN, beat, event, progress, started

EVENT = """{
  "id" : "5d0a1a3c-63b1-4f62-9f0a-2f3c8f1c9d10", "runId" : "a2f1a2f6-6f0e-45a5-b5e2-3c6d0d7a1f55",
  "name" : "silver_events", "timestamp" : "2026-11-20T10:04:30.005Z", "batchId" : 12, "batchDuration" : 1498,
  "numInputRows" : 206, "inputRowsPerSecond" : 20.6, "processedRowsPerSecond" : 137.5,
  "durationMs" : { "addBatch" : 1203, "getBatch" : 4, "latestOffset" : 33,
                   "triggerExecution" : 1498, "walCommit" : 61 },
  "eventTime" : { "avg" : "2026-11-20T10:04:21.000Z", "watermark" : "2026-11-20T09:54:29.512Z" },
  "stateOperators" : [
    { "operatorName" : "dedupeWithinWatermark", "numRowsTotal" : 3100, "memoryUsedBytes" : 991264,
      "numRowsDroppedByWatermark" : 2 },
    { "operatorName" : "x", "numRowsTotal" : 5, "memoryUsedBytes" : 10, "numRowsDroppedByWatermark" : 1 } ],
  "sources" : [ { "description" : "DeltaSource[file:/lake/bronze/events]", "numInputRows" : 206 } ],
  "sink" : { "description" : "DeltaSink", "numOutputRows" : -1 },
  "observedMetrics" : { "expectations" : { "amount_positive__passed" : 204, "amount_positive__failed" : 2,
                                           "n_failed_failed" : 1,
                                           "type_known__passed" : null }, "other" : { "n" : 1 } } }"""


IDENTITY = ("id", "runId", "batchId", "timestamp")


def spark_event(**changes: object) -> str:
    return json.dumps({**json.loads(EVENT), **changes})


def test_a_whole_event() -> None:
    read = parse_progress(EVENT)
    assert (read.stream, read.batch_id, read.batch_duration_ms) == ("silver_events", 12, 1498)
    assert read.progressed_at == datetime(2026, 11, 20, 10, 4, 30, 5000, tzinfo=UTC)
    assert read.watermark == datetime(2026, 11, 20, 9, 54, 29, 512000, tzinfo=UTC)
    assert (read.num_input_rows, read.input_rows_per_s, read.processed_rows_per_s) == (206, 20.6, 137.5)
    assert (read.state_rows, read.state_bytes, read.rows_dropped_by_watermark) == (3105, 991274, 3)
    assert read.durations_ms["addBatch"] == 1203
    assert read.raw_json == EVENT


def test_expectations_are_in_order_and_what_is_not_told_is_none() -> None:
    assert parse_progress(EVENT).expectations == (
        ExpectationCount("amount_positive", 204, 2),
        ExpectationCount("n_failed", None, 1),
        ExpectationCount("type_known", None, None),
    )
    assert parse_progress(EVENT).output_rows is None, "-1 is unknown"
    assert parse_progress(spark_event(sink={"numOutputRows": 0})).output_rows == 0
    for nothing_seen in ({"watermark": "1970-01-01T00:00:00.000Z"}, {}):
        assert parse_progress(spark_event(eventTime=nothing_seen)).watermark is None


def test_a_rate_that_is_no_number_is_none() -> None:
    for rate in ("NaN", "Infinity", "-Infinity", '"NaN"', '"Infinity"', "null", '"fast"', "[]"):
        read = parse_progress(EVENT.replace("20.6", rate))
        assert (read.input_rows_per_s, read.processed_rows_per_s) == (None, 137.5)


def test_the_identity_is_needed_and_nothing_else() -> None:
    whole = json.loads(EVENT)
    identity = {key: whole[key] for key in IDENTITY}
    read = parse_progress(json.dumps(identity))
    assert (read.stream, read.num_input_rows, read.batch_duration_ms, read.state_rows) == ("", 0, None, None)
    assert read.expectations == ()
    for missing in IDENTITY:
        with pytest.raises(StreamError):
            parse_progress(json.dumps({key: value for key, value in whole.items() if key != missing}))


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(sorted(set(json.loads(EVENT)) - set(IDENTITY))), junk)
def test_junk_in_any_one_field_never_hides_the_batch(key: str, value: object) -> None:
    assert parse_progress(spark_event(**{key: value})).batch_id == 12


@given(st.text(max_size=20) | junk.map(json.dumps))
def test_anything_else_is_a_stream_error(text: str) -> None:
    with pytest.raises(StreamError):
        parse_progress(text)


def test_what_a_function_observed_is_read_beside_the_expectations() -> None:
    assert observed_metrics(parse_progress(EVENT)) == (ObservedMetric("other", "n", 1),)
    ours = spark_event(observedMetrics={"_weir_dead_letters_0": {"read": 3, "letters": 1}})
    assert observed_metrics(parse_progress(ours)) == (), "what a host counts for itself"
    odd = {
        "quality": {"mean": 2.5, "none": None, "word": "x" * 300, "flag": True, "list": [1, "ü"], "vast": 10**400},
        "broken": 7,
    }
    metrics = {
        metric.name: metric.value for metric in observed_metrics(parse_progress(spark_event(observedMetrics=odd)))
    }
    assert metrics == {
        "mean": 2.5,
        "none": None,
        "word": "x" * 200,
        "flag": "true",
        "list": '[1, "ü"]',
        "vast": f"1{'0' * 199}",
    }
    many = {"quality": {f"m{number}": number for number in range(2 * MOST_METRICS)}}
    assert len(observed_metrics(parse_progress(spark_event(observedMetrics=many)))) == MOST_METRICS


def empty(roots: tuple[str, ...] = ("/lake",)) -> Attached:
    return Attached(roots, {}, {}, {})


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
    assert (declared.sink_uri, declared.sink_table) == ("/lake/silver/orders", "silver/orders")
    assert declared.layer == "silver"
    assert (declared.trigger_interval_ms, declared.checkpoint_location) == (5_000, "/cp/orders")
    assert declared.is_attached and not declared.reset_allowed
    assert (seen.state, seen.run_id, seen.host_id) == (StreamState.RUNNING, RUN, "app-1")
    assert [(batch.stream, batch.batch_id) for batch in known.progress] == [("etl.orders", 3)]
    assert known.signs["etl.orders"] == NOW + timedelta(seconds=3)
    assert known.unreadable == 0


def test_what_it_writes_elsewhere_is_named_and_a_table_outside_the_lake_keeps_its_uri() -> None:
    known = empty()
    sink = {"description": "org.apache.spark.sql.execution.streaming.ConsoleTable$@7[numRows=20]"}
    known.take([beat(), started(), progress(sink=sink)])
    declared = known.declarations["etl.orders"]
    assert (declared.sink_uri, declared.sink_table, declared.outside) == ("", "", "ConsoleTable")

    known = empty(roots=("/elsewhere",))
    known.take([beat(), started(query=None), progress(name=None)])
    declared = known.declarations["etl.12345678"]
    assert (declared.sink_table, declared.layer) == ("/lake/silver/orders", None), "without a name it goes by its id"


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
    seen = known.observed["etl.orders"]
    assert (seen.run_id, seen.state) == ("run-2", StreamState.RUNNING)


def test_an_application_leaves_its_own_streams_stopped_and_reaches_no_others() -> None:
    known = empty()
    other = replace(started("app-2", "run-9"), app_id="app-2")
    known.take([beat(), beat("app-2", name="other"), started(), other])
    known.take([event("terminated", "app-2", id=ID, run_id=RUN, problem="boom"), event("idle", "app-2", run_id=RUN)])
    assert known.observed["etl.orders"].state is StreamState.RUNNING and known.unreadable == 2
    known.take([event("ended")])
    assert known.observed["etl.orders"].state is StreamState.STOPPED
    assert known.observed["other.orders"].state is StreamState.RUNNING


@pytest.mark.parametrize(
    "body",
    [
        "",
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
