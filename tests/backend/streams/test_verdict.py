"""One verdict and one plain sentence for each situation of a stream; which error means which fault; no false alarm."""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.stream_model.backlog import Backlog, Lag, SourceBacklog
from backend.stream_model.stream import (
    Desired,
    DesiredState,
    HostHeartbeat,
    Observed,
    Progress,
    StreamFailure,
    StreamState,
)
from backend.streams import faults
from backend.streams.faults import OTHERS_SEEN, TWELVE, Fault, recognise
from backend.streams.verdict import StreamStatus, Verdict, judged
from tests.worlds.streams.recording import Moment, replay
from tests.worlds.streams.values import stream

WAITS = "12 versions, 12 files, 4,000 rows, 3.1 MB, the oldest"
FIGURES = ("rows", "versions", "files", "size_bytes")
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
STREAM = stream("silver", layer="silver")
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
    backlog: Backlog | None = None,
) -> StreamStatus:
    known = StreamStatus(STREAM, desired, observed, recent=batches, host=host, backlog=backlog)
    return judged(known, now=NOW, heartbeat_stale_s=15)


def told(*batches: Progress, backlog: Backlog | None = None) -> tuple[Verdict, str]:
    """Of a stream that runs."""
    found = verdict(seen(), *batches, backlog=backlog)
    return found.verdict, found.because


def test_a_stream_that_keeps_up() -> None:
    sentence = "silver keeps up: 1,200 rows in its last batch, done in 1.2 s"
    shown = verdict(seen(), batch(10), batch(5, took_s=1.24))
    assert (shown.state, shown.verdict, shown.because) == (StreamState.RUNNING, Verdict.OK, sentence)


def behind(*lags_s: float, rows: Sequence[int | None] = (), waits_s: float | None = None, **source: object) -> Backlog:
    """A backlog after batches that ended 10 s apart, the last just now."""
    last = lags_s[-1] if waits_s is None else waits_s
    ends = [NOW - timedelta(seconds=10 * place) for place in reversed(range(len(lags_s)))]
    counted = rows or [None] * len(lags_s)
    known = {"rows": 4_000, "versions": 12, "files": 12, "size_bytes": 3_100_000} if last else dict.fromkeys(FIGURES, 0)
    oldest = NOW - timedelta(seconds=last) if last else None
    one = replace(SourceBacklog("bronze", "table", oldest_unread_at=oldest, **known), **source)  # type: ignore[arg-type]
    return Backlog((one,), NOW, tuple(Lag(*each) for each in zip(ends, lags_s, counted, strict=True)))


def every_ten_seconds(took_s: float = 8, rows: int = 4_200) -> list[Progress]:
    return [batch(10 * place + took_s, took_s=took_s, rows=rows) for place in reversed(range(10))]


def test_a_batch_that_outlasts_its_trigger_is_not_slow_while_the_backlog_does_not_grow() -> None:
    found = verdict(seen(), *every_ten_seconds(), backlog=behind(*[11, 12, 10, 11, 13, 11, 12, 10, 12, 11]))
    pace = "its batches take 8 s on a trigger of 5 s"
    assert (found.verdict, found.because) == (Verdict.OK, f"silver keeps up without a pause, 11 s behind: {pace}")
    caught_up = verdict(seen(), *every_ten_seconds(), backlog=behind(*[11, 12, 10, 11, 13, 11, 12, 10, 12, 0]))
    assert (caught_up.verdict, "keeps up" in caught_up.because) == (Verdict.OK, True)


def test_batches_that_outlast_their_trigger_with_a_large_lag_are_slow() -> None:
    long = [batch(60 * place + 53, took_s=53) for place in reversed(range(10))]
    found = verdict(seen(), *long, backlog=spaced(behind(*[56.0] * 10), 60))
    assert found.verdict is Verdict.SLOW
    assert found.because == "silver does not hold its trigger: its batches take 53 s on a trigger of 5 s; 56 s behind"
    few = verdict(seen(), *long[-2:], backlog=spaced(behind(56, 56), 60))
    assert few.verdict is Verdict.OK, "too few to say that it stays so"
    shrinks = verdict(seen(), *long, backlog=spaced(behind(*range(150, 50, -10)), 60))
    assert shrinks.verdict is Verdict.OK


def spaced(backlog: Backlog, apart_s: float) -> Backlog:
    """The same after batches that ended so far apart."""
    last = len(backlog.lags) - 1
    times = [NOW - timedelta(seconds=apart_s * (last - place)) for place in range(last + 1)]
    return replace(backlog, lags=tuple(replace(lag, at=at) for lag, at in zip(backlog.lags, times, strict=True)))


def test_slow_when_it_is_further_behind_after_each_batch_or_stays_far_behind() -> None:
    lags = behind(11, 13, 15, 16, 18, 21, 23, 26, 29, 31, rows=list(range(11_000, 54_201, 4_800)))
    growing = "silver falls behind: reads 420 rows/s, its source gains 900 rows/s; 31 s behind and growing"
    assert told(*every_ten_seconds(), backlog=lags) == (Verdict.SLOW, growing)
    steady = f"silver is 10 min behind and does not catch up: {WAITS} 10 min old"
    assert told(*every_ten_seconds(), backlog=behind(*[600.0] * 10)) == (Verdict.SLOW, steady)


def test_catching_up_says_when_it_will_be_done() -> None:
    lags = behind(*range(1_000, 100, -90), rows=list(range(40_000, 4_000, -3_600)))
    catching_up = "silver is 3 min behind; caught up in about 11 s at this pace"
    assert told(*every_ten_seconds(), backlog=lags) == (Verdict.CATCHING_UP, catching_up)
    began = verdict(seen(), batch(20), batch(10), backlog=behind(900, 800))
    assert began.verdict is Verdict.CATCHING_UP, "until a trend shows"
    assert began.because.startswith("silver is 13 min behind and catching up: 12 versions")


def test_a_first_read_is_catching_up_however_old_the_rows_are() -> None:
    found = verdict(seen(), *every_ten_seconds(), backlog=behind(*range(100, 200, 10), is_first_read=True))
    assert found.verdict is Verdict.CATCHING_UP
    assert "reads its sources for the first time: 12 versions" in found.because


def test_idle_triggers_beside_unread_input_are_a_stall() -> None:
    idle = seen(last_trigger_at=NOW - timedelta(seconds=4))
    left = behind(0, waits_s=600)
    found = verdict(idle, batch(121, took_s=1), backlog=left)
    assert found.verdict is Verdict.STALLED
    assert "takes nothing of what waits: 12 versions" in found.because
    soon = verdict(idle, batch(121, took_s=1), backlog=behind(0, waits_s=8))
    assert (soon.verdict, soon.because) == (Verdict.OK, f"silver takes at its next trigger what came: {WAITS} 8 s old")
    assert verdict(idle, batch(121, took_s=1), backlog=behind(0)).verdict is Verdict.IDLE


def test_a_stream_at_rest_says_what_waits() -> None:
    stopped = verdict(seen(StreamState.STOPPED), desired=UNWANTED, backlog=behind(0, waits_s=300))
    assert stopped.because.endswith(
        "(upgrade); unread: 12 versions, 12 files, 4,000 rows, 3.1 MB, the oldest 5 min old"
    )
    assert verdict(seen(StreamState.STOPPED), backlog=behind(0)).because.endswith("; nothing is unread")
    unknown = Backlog((SourceBacklog("orders", "kafka", unknown="nobody asked"),), NOW)
    at_rest = verdict(seen(StreamState.STOPPED), backlog=unknown)
    assert at_rest.because == "silver has been stopped for 5 min; how far behind it is, nobody knows: nobody asked"
    assert "nobody knows: nobody asked" in verdict(seen(), batch(3), backlog=unknown).because


def test_a_drain_that_was_broken_off_is_told() -> None:
    wanted = replace(UNWANTED, state=DesiredState.DRAINED, requested_at=NOW - timedelta(seconds=60))
    for oldest_s, is_early in ((90, True), (30, False), (None, False)):
        oldest = None if oldest_s is None else NOW - timedelta(seconds=oldest_s)
        left = Backlog((SourceBacklog("in", "files", files=3, oldest_unread_at=oldest),), NOW)
        drained = verdict(seen(StreamState.STOPPED), desired=wanted, backlog=left)
        assert ("its drain ended early" in drained.because) is is_early
        assert "drain" not in verdict(seen(StreamState.STOPPED), desired=UNWANTED, backlog=left).because


FUTURE = datetime(2098, 12, 31, 23, 50, tzinfo=UTC)


def too_late(dropped: int, *, watermark: datetime = FUTURE, output_rows: int | None = 0) -> Progress:
    changes = {"rows_dropped_by_watermark": dropped, "watermark": watermark, "output_rows": output_rows}
    return replace(batch(100, rows=100), **changes)  # type: ignore[arg-type]


def test_an_event_of_the_future_that_lets_no_row_through_is_no_idleness() -> None:
    quiet = seen(last_trigger_at=NOW - timedelta(seconds=4))
    found = verdict(quiet, batch(200, rows=2), too_late(100))
    assert found.verdict is Verdict.STALLED
    assert found.because == (
        "silver lets no row through: 100 rows dropped as too late in its last 2 batches: an event of the future moved "
        "its watermark to 2098-12-31 23:50:00 UTC, 26603 d ahead of the clock"
    )
    ended = verdict(seen(StreamState.COMPLETED), too_late(100))
    assert ended.verdict is Verdict.STALLED and "100 rows dropped" in ended.because
    assert verdict(quiet, too_late(3, output_rows=None)).verdict is Verdict.IDLE, "97 of its rows came through"
    late = verdict(quiet, too_late(100, watermark=NOW - timedelta(hours=1)))
    assert (late.verdict, "of the future" in late.because) == (Verdict.IDLE, False)
    assert late.because.endswith("; 100 rows dropped as too late in its last 1 batch")
    assert "too late" not in verdict(quiet, too_late(0)).because


def test_where_nobody_knows_how_far_behind_growing_batches_tell() -> None:
    pace = "its batches take 8 s on a trigger of 5 s"
    steady = f"silver runs without a pause: {pace} and carry no more rows each time; how far behind it is, nobody knows"
    assert told(*every_ten_seconds()) == (Verdict.OK, steady)
    grown = [replace(each, num_input_rows=1_000 * place) for place, each in enumerate(every_ten_seconds())]
    assert told(*grown) == (Verdict.SLOW, f"silver falls behind: {pace} and carry more rows each time")
    shrunk = [replace(each, num_input_rows=10_000 - 1_000 * place) for place, each in enumerate(every_ten_seconds())]
    assert verdict(seen(), *shrunk).verdict is Verdict.OK


@given(st.lists(st.floats(0, 13), min_size=10, max_size=10), st.randoms())
def test_a_lag_within_trigger_and_batch_never_alarms(values: list[float], order: random.Random) -> None:
    order.shuffle(values)
    assert verdict(seen(), *every_ten_seconds(), backlog=behind(*values)).verdict is Verdict.OK


def test_idle_when_spark_reported_nothing_to_read_after_the_last_batch() -> None:
    found = verdict(seen(last_trigger_at=NOW - timedelta(seconds=4)), batch(121, took_s=1))
    assert (found.verdict, found.because) == (Verdict.IDLE, "silver has had nothing new to read for 2 min")
    assert verdict(seen(last_trigger_at=NOW)).verdict is Verdict.IDLE


def rate(observed: Observed, *batches: Progress) -> float | None:
    return StreamStatus(STREAM, WANTED, observed, StreamState.RUNNING, batches, host=ALIVE).input_rows_per_s


def test_the_rate_is_rows_over_time_until_the_last_sign_of_life() -> None:
    steady = [batch(5 * place, rows=100 + place % 2) for place in reversed(range(1, 13))]  # one each 5 s, of 1 s
    assert rate(seen(), *steady) == pytest.approx((3 * 100 + 3 * 101) / 30)
    uneven = [batch(21, rows=10), batch(11, rows=990)]
    assert rate(seen(), *uneven) == pytest.approx(1_000 / 11), "since its first batch"
    idle = seen(last_trigger_at=NOW + timedelta(seconds=15))
    assert rate(idle, *uneven) == pytest.approx(990 / 30), "time without rows counts"
    assert rate(seen(last_trigger_at=NOW + timedelta(minutes=2)), *uneven) == 0
    assert rate(seen()) is rate(seen(), batch(5, run_id="earlier")) is None


def test_stalled_is_judged_by_its_own_pace() -> None:
    quick, slow = batch(100, took_s=1), batch(100, took_s=40)
    assert verdict(seen(), quick).verdict is Verdict.STALLED
    assert "no batch has ended for 1 min; before, one took 1 s" in verdict(seen(), quick).because
    assert verdict(seen(), slow).verdict is Verdict.OK


def test_a_first_batch_that_runs_long_is_no_stall() -> None:
    just_began = verdict(seen(started_at=NOW - timedelta(seconds=3)), batch(600, run_id="earlier"))
    assert (just_began.verdict, just_began.because) == (Verdict.CATCHING_UP, "silver runs its first batch")
    began = seen(started_at=NOW - timedelta(minutes=12))
    planned = Backlog((SourceBacklog("in", "files", files=3),), NOW, has_planned=True)
    found = verdict(began, batch(9_000, took_s=2, run_id="earlier"), backlog=planned)
    assert found.verdict is Verdict.CATCHING_UP
    assert found.because == "silver has run its first batch for 12 min; before, one took 2 s"
    assert verdict(began, backlog=replace(planned, has_planned=None)).verdict is Verdict.CATCHING_UP
    hangs = verdict(began, backlog=replace(planned, has_planned=False))
    assert hangs.verdict is Verdict.STALLED, "nothing is planned: its source does not answer"
    assert verdict(began, batch(700), backlog=planned).verdict is Verdict.STALLED, "a later batch that does not end"


def test_failed_names_batch_class_and_message() -> None:
    error = "silver failed 1 min ago in batch 7: SparkException: division by zero at x"
    failed = verdict(seen(StreamState.FAILED, failures=(FAILURE,)))
    assert (failed.verdict, failed.because) == (Verdict.FAILED, f"{error}; it waits for a person to start it")
    spark = replace(FAILURE, error_class="DIVIDE_BY_ZERO", message="[DIVIDE_BY_ZERO] Division by zero.")
    once = verdict(seen(StreamState.FAILED, failures=(spark,)))
    assert "batch 7: DIVIDE_BY_ZERO: Division" in once.because, "the class is not said twice"


def test_back_off_says_when_it_tries_again_and_a_stop_who_asked() -> None:
    waiting = seen(StreamState.BACKOFF, failures=(FAILURE, FAILURE), next_start_at=NOW + timedelta(seconds=4))
    found = verdict(waiting)
    assert (found.state, found.verdict) == (StreamState.BACKOFF, Verdict.FAILED)
    assert found.because.endswith("failure 2 of late, next try in 4 s")
    stopped = verdict(seen(StreamState.STOPPED), desired=UNWANTED)
    assert stopped.verdict is Verdict.STOPPED
    assert stopped.because == "silver has been stopped for 5 min: ann asked for it (upgrade)"


@pytest.mark.parametrize("state", list(StreamState))
def test_nobody_knows_what_a_silent_host_left_but_rest_stays_true(state: StreamState) -> None:
    found = verdict(seen(state), batch(3), host=GONE)
    assert verdict(seen(state)).because.startswith("silver ")
    if state in (StreamState.STOPPED, StreamState.FAILED, StreamState.COMPLETED):
        assert found.state is state and "silent for 57 min" in found.because
        assert "silent" not in verdict(seen(state), host=GONE, desired=UNWANTED).because
    else:
        assert (found.state, found.verdict) == (StreamState.UNKNOWN, Verdict.UNKNOWN)
        assert found.because == "silver is unwatched: its host has been silent for 57 min"
    assert verdict(None).state is StreamState.UNKNOWN, "no host took it up"


STALE_S = 15.0
STARTED_AT = datetime(2026, 11, 24, 11, 0, 54, tzinfo=UTC)
FROZEN_AT = datetime(2026, 11, 24, 11, 36, 26, tzinfo=UTC)
THAWED_AT = datetime(2026, 11, 24, 11, 39, 14, tzinfo=UTC)
FIRST_BATCH = timedelta(seconds=15)
STREAMS = 6

Judgements = dict[str, dict[datetime, StreamStatus]]


# a recording of the demo's six streams, on which Spark was frozen near the end ---------------------------------------


@pytest.fixture(scope="module")
def by_stream() -> Judgements:
    """What each stream is said to be, by moment."""
    found: Judgements = defaultdict(dict)
    for moment in replay("demo.jsonl.xz"):
        for name, judgement in all_judged(moment).items():
            found[name][moment.at] = judgement
    assert len(found) == STREAMS
    return found


def all_judged(moment: Moment) -> dict[str, StreamStatus]:
    return {each.declaration.name: judged(each, now=moment.at, heartbeat_stale_s=STALE_S) for each in moment.streams}


def between(judgements: dict[datetime, StreamStatus], first: datetime, last: datetime) -> set[Verdict]:
    verdicts = {found.verdict for at, found in judgements.items() if first <= at < last}
    assert verdicts, "nothing was recorded then"
    return verdicts


def test_no_alarm_is_raised_while_nothing_is_wrong(by_stream: Judgements) -> None:
    for judgements in by_stream.values():
        assert sum(at < FROZEN_AT for at in judgements) > 200
        assert between(judgements, STARTED_AT, STARTED_AT + FIRST_BATCH) <= {Verdict.CATCHING_UP, Verdict.OK}
        assert between(judgements, STARTED_AT + FIRST_BATCH, FROZEN_AT) == {Verdict.OK}
        assert between(judgements, THAWED_AT + FIRST_BATCH, datetime.max.replace(tzinfo=UTC)) == {Verdict.OK}


def test_a_frozen_spark_is_an_alarm_as_long_as_it_is_frozen(by_stream: Judgements) -> None:
    for judgements in by_stream.values():
        seen_from = FROZEN_AT + timedelta(seconds=STALE_S + 5)
        assert between(judgements, seen_from, THAWED_AT) == {Verdict.UNKNOWN}


def test_no_verdict_goes_back_and_forth(by_stream: Judgements) -> None:
    for name, judgements in by_stream.items():
        verdicts = [judgements[at].verdict for at in sorted(judgements)]
        changes = [(a, b) for a, b in pairwise(verdicts) if a is not b]
        assert len(changes) <= 4, f"{name}: {changes}"


PAGE = Path(__file__).parents[3] / "docs" / "streams.md"


def failure_of(error_class: str, message: str = "") -> StreamFailure:
    return StreamFailure(error_class, message, 3, datetime(2026, 11, 20, tzinfo=UTC))


@pytest.mark.parametrize(
    ("error_class", "message", "expected"),
    [
        ("CONCURRENT_STREAM_LOG_UPDATE", "", (faults.OTHER_DRIVER, faults.OFFSETS_MISSING)),
        ("IllegalStateException", "Incomplete log file in /c/offsets/3", (faults.OFFSETS_DAMAGED,)),
        ("JsonEOFException", "", (faults.OFFSETS_DAMAGED, faults.METADATA_GARBAGE)),
        ("IllegalStateException", "batch 7 doesn't exist", (faults.OFFSETS_DAMAGED,)),
        ("CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS", "", (faults.STATE_LOST,)),
        ("STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED", "", (faults.STATE_LOST, faults.STATE_CHANGED)),
        ("STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA", "", (faults.STATE_CHANGED,)),
        ("KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED", "", (faults.RECORDS_LOST,)),
        ("OutOfMemoryError", "Java heap space", (faults.OUT_OF_MEMORY,)),
        (
            "FAILED_READ_FILE.NO_HINT",
            "Encountered error while reading file file:///in/1.gz.",
            (faults.FILE_UNREADABLE,),
        ),
        ("FAILED_READ_FILE.FILE_NOT_EXIST", "", (faults.FILE_VACUUMED,)),
        ("SchemaMismatchError", "silver_x is keyed by id, but declared with no", (faults.KEYS_CHANGED,)),
        ("USER_RAISED_EXCEPTION", "record 3 of … cannot be parsed: not JSON", (faults.MISFIT, faults.USER_CODE)),
        ("USER_RAISED_EXCEPTION", "nothing orders two …", (faults.CHANGE_REFUSED, faults.USER_CODE)),
        ("SparkException", "Wrong basePath file:/b for the root path: file:/a/1", (faults.FOLDER_ELSEWHERE,)),
        ("IOException", "No space left on device", (faults.DISK_FULL,)),
        ("ZeroDivisionError", "division by zero", ()),
    ],
)
def test_an_error_is_known_by_its_class_or_words(error_class: str, message: str, expected: tuple[Fault, ...]) -> None:
    assert recognise(failure_of(error_class, message)) == expected


def test_every_fault_has_a_cause_a_remedy_and_a_sign() -> None:
    assert len(TWELVE) == len({fault.name for fault in TWELVE}) == 12
    for fault in (*TWELVE, *OTHERS_SEEN):
        assert fault.cause.endswith("."), fault
        assert fault.remedy.endswith("."), fault
        assert fault.classes or fault.words or fault.shown, fault


def test_the_page_names_every_remedy() -> None:
    assert all(fault.remedy in PAGE.read_text() for fault in TWELVE)
