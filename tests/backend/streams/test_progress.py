"""Progress events as Spark 4.2 writes them, and what is left of damaged ones."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.errors import StreamError
from backend.stream_model.events import MOST_METRICS, observed_metrics, parse_progress
from backend.stream_model.stream import ExpectationCount, ObservedMetric

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


def event(**changes: object) -> str:
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


def test_expectations_in_order_with_none_for_an_empty_batch() -> None:
    assert parse_progress(EVENT).expectations == (
        ExpectationCount("amount_positive", 204, 2),
        ExpectationCount("n_failed", None, 1),
        ExpectationCount("type_known", None, None),
    )


def test_an_output_of_minus_one_is_unknown() -> None:
    assert parse_progress(EVENT).output_rows is None
    assert parse_progress(event(sink={"numOutputRows": 0})).output_rows == 0


@pytest.mark.parametrize("rate", ["NaN", "Infinity", "-Infinity", '"NaN"', '"Infinity"', "null", '"fast"', "[]"])
def test_a_rate_that_is_no_number_is_none(rate: str) -> None:
    read = parse_progress(EVENT.replace("20.6", rate))
    assert read.input_rows_per_s is None
    assert read.processed_rows_per_s == 137.5


def test_the_watermark_of_a_query_that_saw_nothing_is_none() -> None:
    assert parse_progress(event(eventTime={"watermark": "1970-01-01T00:00:00.000Z"})).watermark is None
    assert parse_progress(event(eventTime={})).watermark is None


def test_only_the_identity_is_needed() -> None:
    whole = json.loads(EVENT)
    read = parse_progress(json.dumps({key: whole[key] for key in ("id", "runId", "batchId", "timestamp")}))
    assert (read.stream, read.num_input_rows, read.batch_duration_ms, read.state_rows) == ("", 0, None, None)
    assert read.expectations == ()


@pytest.mark.parametrize("key", ["id", "runId", "batchId", "timestamp"])
def test_an_event_without_identity_is_refused(key: str) -> None:
    whole = json.loads(EVENT)
    del whole[key]
    with pytest.raises(StreamError):
        parse_progress(json.dumps(whole))


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(sorted(set(json.loads(EVENT)) - {"id", "runId", "batchId", "timestamp"})), junk)
def test_junk_in_any_one_field_never_hides_the_batch(key: str, value: object) -> None:
    assert parse_progress(event(**{key: value})).batch_id == 12


@given(st.text(max_size=20) | junk.map(json.dumps))
def test_anything_else_is_a_stream_error(text: str) -> None:
    with pytest.raises(StreamError):
        parse_progress(text)


def test_what_a_function_observed_is_read_beside_the_expectations() -> None:
    assert observed_metrics(parse_progress(EVENT)) == (ObservedMetric("other", "n", 1),)
    ours = event(observedMetrics={"_weir_dead_letters_0": {"read": 3, "letters": 1}})
    assert observed_metrics(parse_progress(ours)) == (), "what a host counts for itself"
    odd = {
        "quality": {"mean": 2.5, "none": None, "word": "x" * 300, "flag": True, "list": [1, "ü"], "vast": 10**400},
        "broken": 7,
    }
    metrics = {metric.name: metric.value for metric in observed_metrics(parse_progress(event(observedMetrics=odd)))}
    assert metrics == {
        "mean": 2.5,
        "none": None,
        "word": "x" * 200,
        "flag": "true",
        "list": '[1, "ü"]',
        "vast": f"1{'0' * 199}",
    }
    many = {"quality": {f"m{number}": number for number in range(2 * MOST_METRICS)}}
    assert len(observed_metrics(parse_progress(event(observedMetrics=many)))) == MOST_METRICS


@pytest.mark.parametrize("text", ["", "{", "[]", '{"observedMetrics": 1}'])
def test_nothing_is_observed_where_nobody_can_read_it(text: str) -> None:
    assert observed_metrics(replace(parse_progress(EVENT), raw_json=text)) == ()
    assert observed_metrics(None) == ()
