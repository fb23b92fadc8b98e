"""What an observation means now: a stream's state, its verdict in one word, and the sentence behind it.

Rule: pure, and judged by the stream's own trigger and history instead of set thresholds (after Burrow's evaluation of
a window: https://github.com/linkedin/Burrow/wiki/Consumer-Lag-Evaluation-Rules).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from statistics import median

from backend.format import cut, rate_text, span_text, things, utc_text
from backend.stream_model.backlog import Backlog, Lag, Trend, trend, waiting_text
from backend.stream_model.overrides import Setting
from backend.stream_model.stream import (
    Desired,
    DesiredState,
    HostHeartbeat,
    Observed,
    Progress,
    StreamDeclaration,
    StreamFailure,
    StreamState,
)

WINDOW = 10  # batches
FAR = 3  # times its trigger and its usual batch: as far behind as a stream that keeps up may be
LEAST_GROWTH_S = 5.0
LEAST_STALL_S = 30.0


class Verdict(StrEnum):
    """How a stream does, in one word."""

    OK = "OK"
    IDLE = "IDLE"
    CATCHING_UP = "CATCHING UP"
    SLOW = "SLOW"
    STALLED = "STALLED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """One stream: what is wanted and observed of it apart, and what that means now, once it is `judged`.

    `declaration` is as the stream runs; `overrides`: where that is not as it was declared. `recent` are its newest
    batches, oldest first; `host` wrote `observed`. `backlog`: None where nobody looked. `nobody_can`: why no live host
    can run it. `starved_by`: the stream upstream that is stopped or has failed.
    """

    declaration: StreamDeclaration
    desired: Desired | None
    observed: Observed | None
    state: StreamState = StreamState.UNKNOWN
    recent: Sequence[Progress] = ()
    verdict: Verdict = Verdict.UNKNOWN
    because: str = ""
    host: HostHeartbeat | None = None
    backlog: Backlog | None = None
    nobody_can: str = ""
    overrides: tuple[Setting, ...] = ()
    starved_by: str | None = None

    @property
    def progress(self) -> Progress | None:
        """Its newest batch."""
        return self.recent[-1] if self.recent else None

    @property
    def batches(self) -> list[Progress]:
        """Those of the present run."""
        run_id = self.observed.run_id if self.observed else None
        return [batch for batch in self.recent if batch.run_id == run_id]

    @property
    def rows_dropped_by_watermark(self) -> int | None:
        """Of the newest batches, those of earlier runs too: the watermark goes on. None where none tells."""
        counts = [count for batch in self.recent if (count := batch.rows_dropped_by_watermark) is not None]
        return sum(counts) if counts else None

    @property
    def input_rows_per_s(self) -> float | None:
        """Rows read a second until its last sign of life, idle time included, over the time after which a stream
        without a batch stalls, or since the first batch known of its run. None unless it runs, and before that has
        ended. By what the store holds alone, so that all who read it say the same."""
        observed, batches = self.observed, self.batches
        if self.starved_by:
            return 0.0
        if self.state is not StreamState.RUNNING or observed is None or not batches:
            return None
        until = _last_sign(observed, batches)
        began = until - timedelta(seconds=_stall_after_s(self.declaration, batches))
        rows = sum(batch.num_input_rows for batch in batches if batch.progressed_at > began)
        return rows / max(1.0, (until - max(began, batches[0].progressed_at)).total_seconds())

    @property
    def processed_rows_per_s(self) -> float | None:
        """Rows a second while its last batch ran. None where it has read nothing of late."""
        return self.progress.processed_rows_per_s if self.progress and self.input_rows_per_s else None


def is_stopped(desired: Desired | None, observed: Observed | None) -> bool:
    """Whether no host runs it or is about to. Nor one that failed for good or has read all, though wanted."""
    if observed is None:
        return desired is None or desired.wants_stop
    if observed.state is StreamState.STOPPED:
        return desired is None or desired.wants_stop
    return observed.state in (StreamState.FAILED, StreamState.COMPLETED)


def why_not_stopped(status: StreamStatus) -> str:
    """Why its checkpoint and tables may not be touched now; empty where it is stopped."""
    if is_stopped(status.desired, status.observed):
        return ""
    if status.state is StreamState.STOPPED:
        return "it is wanted to run, so a host may start it: stop it first"
    if status.state is StreamState.UNKNOWN:
        return "no host watches it, so it may run: start a host, then stop it"
    return f"it is {status.state.value.lower()}: stop it first"


def judged(status: StreamStatus, *, now: datetime, heartbeat_stale_s: float) -> StreamStatus:
    """With the state that is shown, its verdict, and the sentence behind it, which begins with the stream's name."""
    state, verdict, because = _judge(status, now, heartbeat_stale_s)
    if status.nobody_can and _wanted(status):
        because = f"{because}; {status.nobody_can}"
    backlog = status.backlog
    if backlog is not None and state is not StreamState.RUNNING:
        backlog = replace(backlog, lags=())  # what waits does not shrink now
    return replace(status, state=state, verdict=verdict, because=because, backlog=backlog)


def _judge(status: StreamStatus, now: datetime, heartbeat_stale_s: float) -> tuple[StreamState, Verdict, str]:
    observed, name = status.observed, status.declaration.name
    if observed is None:
        return StreamState.UNKNOWN, Verdict.UNKNOWN, f"{name} has not been taken up by any host yet"
    is_gone = status.host is None or status.host.silent_s(now) > heartbeat_stale_s
    if is_gone and not observed.state.has_ended:
        return StreamState.UNKNOWN, Verdict.UNKNOWN, f"{name} is unwatched: {_silence(status, now)}"
    verdict, because = _of_state(status, observed, now)
    if status.rows_dropped_by_watermark and observed.state in (StreamState.RUNNING, StreamState.COMPLETED):
        verdict, because = _with_dropped(verdict, because, status, now)
    if observed.state in (StreamState.RUNNING, StreamState.STOPPED) and (backlog := status.backlog):
        unknown = backlog.unknown if backlog.is_caught_up is None else ""
        because += f"; how far behind it is, nobody knows: {unknown}" if unknown else ""
    if status.desired and status.desired.drains and observed.state is StreamState.RUNNING:
        ago = span_text((now - status.desired.requested_at).total_seconds())
        because += f"; it stops once it has read what was there {ago} ago, when {status.desired.actor} asked for it"
        if status.desired.state is DesiredState.DRAINED_THROUGH:
            because += ", and what the streams that feed it bring until they have stopped"
    if is_gone and _wanted(status):
        because += f"; {_silence(status, now)}"
    return observed.state, verdict, f"{name} {because}"


def _of_state(status: StreamStatus, observed: Observed, now: datetime) -> tuple[Verdict, str]:
    match observed.state:
        case StreamState.RUNNING:
            return _of_running(status, observed, now)
        case StreamState.STARTING:
            return Verdict.CATCHING_UP, "is starting"
        case StreamState.STOPPING:
            return Verdict.STOPPED, "finishes its running batch and stops"
        case StreamState.COMPLETED:
            return Verdict.OK, "has read all there was and ended"
        case StreamState.FAILED:
            waits = _waits(status, now)
            where = f" in {status.declaration.pipeline}" if status.declaration.is_attached else ""
            return Verdict.FAILED, f"{_failure(observed, now)}{waits}; it waits for a person to start it{where}"
        case StreamState.BACKOFF:
            wait_s = (observed.next_start_at - now).total_seconds() if observed.next_start_at else 0.0
            next_try = f"next try in {span_text(wait_s)}" if wait_s > 0 else "next try now"
            return Verdict.FAILED, f"{_failure(observed, now)}; failure {len(observed.failures)} of late, {next_try}"
        case StreamState.STOPPED:
            return Verdict.STOPPED, f"{_stopped(status, observed, now)}{_waits(status, now)}"
        case _:
            return Verdict.UNKNOWN, "is in a state that nobody knows"


def _of_running(status: StreamStatus, observed: Observed, now: datetime) -> tuple[Verdict, str]:
    batches = status.batches
    quiet_s = (now - _last_sign(observed, batches)).total_seconds()
    stalls = quiet_s > _stall_after_s(status.declaration, batches)
    if stalls and not batches and (status.backlog is None or status.backlog.has_planned is not False):
        return Verdict.CATCHING_UP, f"has run its first batch for {span_text(quiet_s)}{_usual(status.recent)}"
    if stalls:
        return Verdict.STALLED, f"runs, but no batch has ended for {span_text(quiet_s)}{_usual(batches)}"
    if not batches:
        if observed.last_trigger_at and observed.started_at and observed.last_trigger_at > observed.started_at:
            return Verdict.IDLE, "runs and has had nothing to read since its start"
        return Verdict.CATCHING_UP, "runs its first batch"
    last, backlog = batches[-1], status.backlog
    if observed.last_trigger_at and observed.last_trigger_at > last.ended_at:
        if backlog and backlog.is_caught_up is False and backlog.behind_s is not None:
            waits = waiting_text(backlog, now=backlog.seen_at)
            if backlog.behind_s > _stall_after_s(status.declaration, batches):
                return Verdict.STALLED, f"runs, but takes nothing of what waits: {waits}"
            return Verdict.OK, f"takes at its next trigger what came: {waits}"
        return Verdict.IDLE, f"has had nothing new to read for {span_text((now - last.ended_at).total_seconds())}"
    window = batches[-WINDOW:]
    behind_s = _behind_s(backlog, window) if backlog else None
    if backlog is None or behind_s is None:
        return _of_rows(status, window)
    return _of_backlog(status, backlog, behind_s, window)


def _with_dropped(verdict: Verdict, because: str, status: StreamStatus, now: datetime) -> tuple[Verdict, str]:
    """Rows that come later than the watermark are in no table; an event of the future lets none through after it."""
    recent, watermark = status.recent, status.recent[-1].watermark
    dropped, batches = status.rows_dropped_by_watermark or 0, things(len(recent), "batch", "batches")
    late = f"{things(dropped, 'row')} dropped as too late in its last {batches}"
    if watermark is None or watermark <= now:
        return verdict, f"{because}; {late}"
    ahead = span_text((watermark - now).total_seconds())
    cause = f"an event of the future moved its watermark to {utc_text(watermark)}, {ahead} ahead of the clock"
    last = next((batch for batch in reversed(recent) if batch.num_input_rows), None)
    passes = last is None or (last.output_rows != 0 and (last.rows_dropped_by_watermark or 0) < last.num_input_rows)
    if passes:
        return verdict, f"{because}; {late}: {cause}"
    return Verdict.STALLED, f"lets no row through: {late}: {cause}"


def _of_backlog(
    status: StreamStatus, backlog: Backlog, behind_s: float, window: Sequence[Progress]
) -> tuple[Verdict, str]:
    """By how far behind it was after each batch: batches may outlast their trigger while that does not grow."""
    if backlog.is_first_read:
        return (
            Verdict.CATCHING_UP,
            f"reads its sources for the first time: {waiting_text(backlog, now=backlog.seen_at)}",
        )
    trigger_s = status.declaration.trigger_interval_ms / 1_000
    lags = [lag for lag in backlog.lags if lag.at > window[0].progressed_at]
    behind_by = [seconds for seconds in (_behind_s(lag, window) for lag in lags) if seconds is not None]
    behind = f"{span_text(behind_s) if backlog.behind_s is not None else things(backlog.rows or 0, 'row')} behind"
    tendency = trend(behind_by, tolerance=max(trigger_s, LEAST_GROWTH_S))
    usual_s = trigger_s + _usual_s(window)  # what came since the last batch was planned
    if tendency is Trend.GROWING and behind_by[-1] > usual_s:
        return Verdict.SLOW, f"falls behind: {_gains(lags, window)}{behind} and growing"
    if behind_s <= FAR * usual_s:
        if not 0 < trigger_s < _usual_s(window) or behind_s <= trigger_s:
            return Verdict.OK, _keeps_up(window, behind if behind_s > usual_s else "")
        stays = tendency in (Trend.STEADY, Trend.GROWING) and median(behind_by) > max(FAR * trigger_s, LEAST_STALL_S)
        if stays:
            return Verdict.SLOW, f"does not hold its trigger: {_pace(trigger_s, window)}; {behind}"
        return Verdict.OK, f"keeps up without a pause, {behind}: {_pace(trigger_s, window)}"
    waits = waiting_text(backlog, now=backlog.seen_at)
    if tendency is Trend.STEADY:
        return Verdict.SLOW, f"is {behind} and does not catch up: {_gains(lags, window)}{waits}"
    if backlog.drain_s is not None:
        return Verdict.CATCHING_UP, f"is {behind}; caught up in about {span_text(backlog.drain_s)} at this pace"
    return Verdict.CATCHING_UP, f"is {behind} and catching up: {waits}"


def _behind_s(backlog: Backlog | Lag, window: Sequence[Progress]) -> float | None:
    """The age of the oldest unread input; where its sources keep no times, how long its reading takes."""
    if backlog.behind_s is not None:
        return backlog.behind_s
    elapsed_s = (window[-1].ended_at - window[0].progressed_at).total_seconds()
    read = sum(batch.num_input_rows for batch in window)
    return backlog.rows * elapsed_s / read if backlog.rows is not None and read else None


def _of_rows(status: StreamStatus, window: Sequence[Progress]) -> tuple[Verdict, str]:
    """Where nobody knows how far behind: batches that take longer than the trigger and carry more each time."""
    trigger_s, usual_s = status.declaration.trigger_interval_ms / 1_000, _usual_s(window)
    if not 0 < trigger_s < usual_s:
        return Verdict.OK, _keeps_up(window, "")
    pace, unknown = _pace(trigger_s, window), "how far behind it is, nobody knows"
    if trend([batch.num_input_rows for batch in window], tolerance=1) is Trend.GROWING:
        return Verdict.SLOW, f"falls behind: {pace} and carry more rows each time"
    return Verdict.OK, f"runs without a pause: {pace} and carry no more rows each time; {unknown}"


def _pace(trigger_s: float, window: Sequence[Progress]) -> str:
    return f"its batches take {span_text(_usual_s(window))} on a trigger of {span_text(trigger_s)}"


def _keeps_up(window: Sequence[Progress], more: str) -> str:
    last = window[-1]
    took = span_text((last.batch_duration_ms or 0) / 1_000)
    return f"keeps up: {last.num_input_rows:,} rows in its last batch, done in {took}" + (f"; {more}" if more else "")


def _gains(lags: Sequence[Lag], window: Sequence[Progress]) -> str:
    """ "reads 420 rows/s, its source gains 900; " where both are known."""
    before, after = lags[0], lags[-1]
    elapsed_s = (after.at - before.at).total_seconds()
    if elapsed_s <= 0 or before.rows is None or after.rows is None:
        return ""
    read = sum(batch.num_input_rows for batch in window if batch.ended_at > before.at) / elapsed_s
    gained = read + (after.rows - before.rows) / elapsed_s
    return f"reads {rate_text(read)}, its source gains {rate_text(gained)}; " if gained > read else ""


def _waits(status: StreamStatus, now: datetime) -> str:
    """Of a stopped stream."""
    backlog = status.backlog
    if backlog is None or backlog.is_caught_up is None:
        return ""
    return "; nothing is unread" if backlog.is_caught_up else f"; unread: {waiting_text(backlog, now=now)}"


def _usual_s(window: Sequence[Progress]) -> float:
    durations = [batch.batch_duration_ms for batch in window if batch.batch_duration_ms is not None]
    return median(durations) / 1_000 if durations else 0.0


def _stopped(status: StreamStatus, observed: Observed, now: datetime) -> str:
    since = f"has been stopped for {span_text((now - observed.observed_at).total_seconds())}"
    wanted = status.desired
    if wanted is None or wanted.state is DesiredState.RUNNING:
        return since
    asked = f"{since}: {wanted.actor} asked for it ({wanted.reason})"
    early = "; its drain ended early, unless what is unread came since, with older times"
    return f"{asked}{early}" if drained_early(wanted, status.backlog) else asked


def drained_early(wanted: Desired, backlog: Backlog | None) -> bool:
    """Whether what a drained stream has not read is older than its drain: its host was away, or ended."""
    oldest_at = backlog.oldest_unread_at if backlog and not backlog.is_caught_up else None
    return wanted.drains and oldest_at is not None and oldest_at < wanted.requested_at


def _failure(observed: Observed, now: datetime) -> str:
    failure = observed.last_failure
    if failure is None:
        return "failed"
    batch = f" in batch {failure.batch_id}" if failure.batch_id is not None else ""
    ago = span_text((now - failure.failed_at).total_seconds())
    return f"failed {ago} ago{batch}{failure_text(failure)}"


def failure_text(failure: StreamFailure) -> str:
    """ ": DIVIDE_BY_ZERO: Division by zero", as `because` of a failed stream has it."""
    message = failure.message.removeprefix(f"[{failure.error_class}] ")  # as Spark begins its messages
    return f": {failure.error_class}: {cut(' '.join(message.split()), 200).rstrip('.')}"


def _last_sign(observed: Observed, batches: Sequence[Progress]) -> datetime:
    signs = (observed.last_trigger_at, observed.started_at, batches[-1].ended_at if batches else None)
    return max((sign for sign in signs if sign is not None), default=observed.observed_at)


def _stall_after_s(declaration: StreamDeclaration, batches: Sequence[Progress]) -> float:
    slowest_ms = max((batch.batch_duration_ms or 0 for batch in batches), default=0)
    return max(LEAST_STALL_S, 5 * max(declaration.trigger_interval_ms, slowest_ms) / 1000)


def _usual(batches: Sequence[Progress]) -> str:
    return f"; before, one took {span_text(_usual_s(batches))}" if batches else ""


def _silence(status: StreamStatus, now: datetime) -> str:
    runner, host = "application" if status.declaration.is_attached else "host", status.host
    if host is None:
        return f"its {runner} is not known"
    return f"its {runner} has been silent for {span_text(host.silent_s(now))}"


def _wanted(status: StreamStatus) -> bool:
    return status.desired is not None and status.desired.state is DesiredState.RUNNING
