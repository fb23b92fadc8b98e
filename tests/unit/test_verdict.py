"""One verdict and one plain sentence for each situation that a stream can be in."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from backend.store.store import ControlStore
from backend.streams.model import (
    Desired,
    DesiredState,
    HostHeartbeat,
    Observed,
    Progress,
    StreamDeclaration,
    StreamFailure,
    StreamState,
    Verdict,
)
from backend.streams.status import statuses
from backend.streams.verdict import Evidence, Judgement, judge, span

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
STREAM = StreamDeclaration("silver", "", "bronze", "/l/silver", "silver/x", (), "silver", 5_000, "/c/silver")
ALIVE = HostHeartbeat("h", "box", 1, NOW - timedelta(hours=3), NOW - timedelta(seconds=1))
GONE = replace(ALIVE, beat_at=NOW - timedelta(minutes=57))
WANTED = Desired("silver", DesiredState.RUNNING, 1, "declared", "host", NOW)
UNWANTED = Desired("silver", DesiredState.STOPPED, 2, "upgrade", "ann", NOW)
FAILURE = StreamFailure("SparkException", "division by zero\n  at x", 7, NOW - timedelta(seconds=90))


def seen(state: StreamState = StreamState.RUNNING, **changes: object) -> Observed:
    at = NOW - timedelta(minutes=5)
    return replace(Observed("silver", state, "h", 1, at, "q", "r", started_at=at), **changes)  # type: ignore[arg-type]


def batch(ago_s: float, *, took_s: float = 1, rows: int = 1_200, run_id: str = "r") -> Progress:
    at = NOW - timedelta(seconds=ago_s)
    return Progress("silver", "q", run_id, int(1000 - ago_s), at, rows, None, None, int(took_s * 1000))


def verdict(
    observed: Observed | None = None,
    *batches: Progress,
    desired: Desired = WANTED,
    host: HostHeartbeat | None = ALIVE,
) -> Judgement:
    evidence = Evidence(STREAM, desired, observed, host, batches)
    return judge(evidence, now=NOW, heartbeat_stale_s=15)


def test_a_stream_that_keeps_up() -> None:
    found = verdict(seen(), batch(10), batch(5, took_s=1.24))
    assert found == Judgement(
        StreamState.RUNNING, Verdict.OK, "silver keeps up: 1,200 rows in its last batch, done in 1.2 s"
    )


def test_slow_when_batches_take_longer_than_the_trigger() -> None:
    found = verdict(seen(), batch(66, took_s=14), batch(52, took_s=14), batch(38, took_s=14))
    assert (found.verdict, found.because) == (
        Verdict.SLOW,
        "silver is 38 s behind: its batches take 14 s on a trigger of 5 s",
    )


def test_catching_up_when_slow_batches_shrink() -> None:
    found = verdict(seen(), *(batch(ago, took_s=9, rows=ago * 100) for ago in (30, 20, 10)))
    assert found.verdict is Verdict.CATCHING_UP
    assert "is 10 s behind and catching up" in found.because


def test_two_slow_batches_after_a_start_do_not_make_a_stream_slow() -> None:
    found = verdict(seen(), batch(20, took_s=9), batch(10, took_s=9))
    assert (found.verdict, found.because) == (
        Verdict.CATCHING_UP,
        "silver is 10 s behind after its start: its first batches take 9 s on a trigger of 5 s",
    )


def test_idle_when_spark_reported_nothing_to_read_after_the_last_batch() -> None:
    found = verdict(seen(last_trigger_at=NOW - timedelta(seconds=4)), batch(121, took_s=1))
    assert (found.verdict, found.because) == (Verdict.IDLE, "silver has had nothing new to read for 2 min")
    assert verdict(seen(last_trigger_at=NOW)).verdict is Verdict.IDLE


def test_stalled_is_judged_by_its_own_pace() -> None:
    quick, slow = batch(100, took_s=1), batch(100, took_s=40)
    assert verdict(seen(), quick).verdict is Verdict.STALLED
    assert "no batch has ended for 1 min; before, one took 1 s" in verdict(seen(), quick).because
    assert verdict(seen(), slow).verdict is Verdict.CATCHING_UP


def test_batches_of_an_earlier_run_say_nothing_about_this_one() -> None:
    found = verdict(seen(started_at=NOW - timedelta(seconds=3)), batch(600, run_id="earlier"))
    assert (found.verdict, found.because) == (Verdict.CATCHING_UP, "silver runs its first batch")


def test_failed_names_batch_class_and_message() -> None:
    found = verdict(seen(StreamState.FAILED, failures=(FAILURE,)))
    assert found.verdict is Verdict.FAILED
    assert found.because == (
        "silver failed 1 min ago in batch 7: SparkException: division by zero at x; it waits for a person to start it"
    )


def test_the_class_is_not_said_twice() -> None:
    spark = replace(FAILURE, error_class="DIVIDE_BY_ZERO", message="[DIVIDE_BY_ZERO] Division by zero.")
    assert "batch 7: DIVIDE_BY_ZERO: Division" in verdict(seen(StreamState.FAILED, failures=(spark,))).because


def test_backoff_says_when_it_tries_again() -> None:
    waiting = seen(StreamState.BACKOFF, failures=(FAILURE, FAILURE), next_start_at=NOW + timedelta(seconds=4))
    found = verdict(waiting)
    assert (found.state, found.verdict) == (StreamState.BACKOFF, Verdict.FAILED)
    assert found.because.endswith("failure 2 of late, next try in 4 s")


def test_stopped_says_who_asked() -> None:
    found = verdict(seen(StreamState.STOPPED), desired=UNWANTED)
    assert (found.verdict, found.because) == (
        Verdict.STOPPED,
        "silver has been stopped for 5 min: ann asked for it (upgrade)",
    )


@pytest.mark.parametrize(
    "state", [StreamState.RUNNING, StreamState.STARTING, StreamState.STOPPING, StreamState.BACKOFF]
)
def test_nobody_knows_what_a_silent_host_left(state: str) -> None:
    found = verdict(seen(StreamState(state)), batch(3), host=GONE)
    assert (found.state, found.verdict) == (StreamState.UNKNOWN, Verdict.UNKNOWN)
    assert found.because == "silver is unwatched: its host has been silent for 57 min (since 11:03 UTC)"


@pytest.mark.parametrize("state", [StreamState.STOPPED, StreamState.FAILED, StreamState.COMPLETED])
def test_rest_stays_true_without_a_host_and_says_that_none_is_there(state: StreamState) -> None:
    assert verdict(seen(state), host=GONE).state is state
    assert "silent for 57 min" in verdict(seen(state), host=GONE).because
    assert "silent" not in verdict(seen(state), host=GONE, desired=UNWANTED).because


def test_a_stream_that_no_host_took_up() -> None:
    assert verdict(None).state is StreamState.UNKNOWN


@pytest.mark.parametrize("state", list(StreamState))
def test_every_state_has_a_sentence_about_the_stream(state: StreamState) -> None:
    assert verdict(seen(state)).because.startswith("silver ")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 s"),
        (0.42, "0.4 s"),
        (9.96, "10 s"),
        (59.9, "1 min"),
        (7_800, "2 h 10 min"),
        (7_200, "2 h"),
        (300_000, "3 d"),
    ],
)
def test_spans(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_statuses_reads_the_store(tmp_path) -> None:
    store = ControlStore(f"sqlite:///{tmp_path / 'weir.db'}")
    store.declare([STREAM, replace(STREAM, name="bronze")], now=NOW)
    store.ensure_desired("silver", DesiredState.RUNNING, now=NOW)
    store.beat(ALIVE)
    lease = store.acquire("stream/silver", "h", ttl_s=15, now=NOW)
    assert lease
    store.observe(seen(), token=lease.token)
    store.add_progress([batch(10), batch(5)])
    bronze, silver = statuses(store, now=NOW, heartbeat_stale_s=15)
    store.close()
    assert (bronze.state, bronze.progress, bronze.desired) == (StreamState.UNKNOWN, None, None)
    assert (silver.state, silver.verdict) == (StreamState.RUNNING, Verdict.OK)
    assert silver.progress == batch(5)
    assert silver.desired is not None
