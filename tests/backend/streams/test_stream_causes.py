"""A stream that starves says which one stopped, however far upstream."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from backend.stream_model.stream import Desired, DesiredState, Observed, StreamDeclaration, StreamFailure, StreamState
from backend.streams.graph import landing_rows_per_s, with_causes
from backend.streams.verdict import StreamStatus, Verdict

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def status(
    name: str, *reads: str, state: StreamState = StreamState.RUNNING, verdict: Verdict = Verdict.IDLE
) -> StreamStatus:
    declared = StreamDeclaration(name, "", "", f"/l/{name}", f"x/{name}", reads, None, 5_000, f"/c/{name}")
    return StreamStatus(declared, None, None, state, None, verdict, f"{name} has had nothing new to read for 2 min")


def stopped(name: str, *reads: str) -> StreamStatus:
    at = NOW - timedelta(minutes=2)
    wanted = Desired(name, DesiredState.STOPPED, 2, "upgrade", "root", at)
    return replace(status(name, *reads, state=StreamState.STOPPED, verdict=Verdict.STOPPED), desired=wanted)


def failed(name: str) -> StreamStatus:
    failure = StreamFailure("SparkException", "division by zero", 7, NOW - timedelta(minutes=3))
    seen = Observed(name, StreamState.BACKOFF, "h", 1, NOW, failures=(failure,))
    return replace(status(name, state=StreamState.BACKOFF, verdict=Verdict.FAILED), observed=seen)


def told(*statuses: StreamStatus) -> dict[str, tuple[str | None, str]]:
    return {each.declaration.name: (each.starved_by, each.because) for each in with_causes(statuses, now=NOW)}


def test_an_idle_stream_below_a_stopped_one_is_starved() -> None:
    found = told(stopped("bronze"), status("silver", "x/bronze"), status("gold", "x/silver"))
    said = "starved: bronze was stopped by root 2 min ago"
    assert found["silver"] == ("bronze", f"silver is {said}")
    assert found["gold"] == ("bronze", f"gold is {said}")
    assert found["bronze"][0] is None


def test_a_starved_stream_has_no_rate_of_the_past() -> None:
    last = replace(status("silver", "x/bronze"), input_rows_per_s=34.4)
    assert [each.input_rows_per_s for each in with_causes([stopped("bronze"), last], now=NOW)] == [None, 0.0]


def test_rows_are_counted_once_where_they_land() -> None:
    layers = [
        status("bronze", "elsewhere/orders"),
        status("silver", "x/bronze"),
        status("gold", "x/silver", "x/bronze"),
    ]
    flowing = [replace(each, input_rows_per_s=rate) for each, rate in zip(layers, (24.0, 24.5, 49.0), strict=True)]
    assert landing_rows_per_s(flowing) == 24.0
    assert landing_rows_per_s([*flowing, replace(status("clicks"), input_rows_per_s=6.0)]) == 30.0
    assert landing_rows_per_s([stopped("bronze"), *flowing[1:]]) is None


def test_a_failure_upstream_is_named() -> None:
    found = told(failed("bronze"), status("silver", "x/bronze"))
    assert found["silver"][1] == "silver is starved: bronze failed 3 min ago: SparkException"


def test_nobody_is_starved_by_a_stream_that_runs() -> None:
    idle = status("silver", "x/bronze")
    assert told(status("bronze"), idle)["silver"] == (None, idle.because)


def test_a_stream_that_still_reads_is_not_starved() -> None:
    busy = status("silver", "x/bronze", verdict=Verdict.OK)
    assert told(stopped("bronze"), busy)["silver"][0] is None
    # Nor is what it feeds: silver still writes.
    assert told(stopped("bronze"), busy, status("gold", "x/silver"))["gold"][0] is None


def test_one_writer_of_two_is_enough_to_name_and_a_circle_ends() -> None:
    both = told(status("a"), stopped("b"), status("c", "x/a", "x/b", "elsewhere"))
    assert both["c"][0] == "b"
    circle = told(status("a", "x/b"), status("b", "x/a"))
    assert circle["a"][0] is None
