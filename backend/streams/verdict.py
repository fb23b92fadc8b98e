"""What an observation means now: a stream's state, its verdict in one word, and the sentence behind it.

Rule: pure, and judged by the stream's own trigger and history instead of set thresholds (after Burrow's evaluation of
a window: https://github.com/linkedin/Burrow/wiki/Consumer-Lag-Evaluation-Rules).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from backend.streams.model import (
    Desired,
    DesiredState,
    HostHeartbeat,
    Observed,
    Progress,
    StreamDeclaration,
    StreamState,
    Verdict,
)

AT_REST = (StreamState.STOPPED, StreamState.FAILED, StreamState.COMPLETED)  # true without anybody looking
WINDOW = 5  # batches
LEAST_BATCHES = 3  # to call a stream slow
LEAST_STALL_S = 30.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known of one stream. `recent` are its newest batches, oldest first; `host` wrote `observed`."""

    declaration: StreamDeclaration
    desired: Desired | None
    observed: Observed | None
    host: HostHeartbeat | None
    recent: Sequence[Progress] = ()

    @property
    def batches(self) -> list[Progress]:
        """Those of the present run."""
        run_id = self.observed.run_id if self.observed else None
        return [batch for batch in self.recent if batch.run_id == run_id]


@dataclass(frozen=True, slots=True)
class Judgement:
    state: StreamState
    verdict: Verdict
    because: str


def judge(evidence: Evidence, *, now: datetime, heartbeat_stale_s: float) -> Judgement:
    """The state shown and why; the sentence begins with the stream's name."""
    observed, name = evidence.observed, evidence.declaration.name
    if observed is None:
        return Judgement(StreamState.UNKNOWN, Verdict.UNKNOWN, f"{name} has not been taken up by any host yet")
    gone_s = _host_gone_s(evidence.host, now, heartbeat_stale_s)
    if gone_s is not None and observed.state not in AT_REST:
        return Judgement(StreamState.UNKNOWN, Verdict.UNKNOWN, f"{name} is unwatched: {_silence(evidence.host, now)}")
    verdict, because = _of_state(evidence, observed, now)
    if gone_s is not None and _wanted(evidence):
        because += f"; {_silence(evidence.host, now)}"
    return Judgement(observed.state, verdict, f"{name} {because}")


def _of_state(evidence: Evidence, observed: Observed, now: datetime) -> tuple[Verdict, str]:
    match observed.state:
        case StreamState.RUNNING:
            return _of_running(evidence, observed, now)
        case StreamState.STARTING:
            return Verdict.CATCHING_UP, "is starting"
        case StreamState.STOPPING:
            return Verdict.STOPPED, "finishes its running batch and stops"
        case StreamState.COMPLETED:
            return Verdict.OK, "has read all there was and ended"
        case StreamState.FAILED:
            return Verdict.FAILED, f"{_failure(observed, now)}; it waits for a person to start it"
        case StreamState.BACKOFF:
            return Verdict.FAILED, f"{_failure(observed, now)}; {_next_try(observed, now)}"
        case StreamState.STOPPED:
            return Verdict.STOPPED, _stopped(evidence, observed, now)
        case _:
            return Verdict.UNKNOWN, "is in a state that nobody knows"


def _of_running(evidence: Evidence, observed: Observed, now: datetime) -> tuple[Verdict, str]:
    batches = evidence.batches
    quiet_s = (now - _last_sign(observed, batches)).total_seconds()
    if quiet_s > _stall_after_s(evidence.declaration, batches):
        return Verdict.STALLED, f"runs, but no batch has ended for {span(quiet_s)}{_usual(batches)}"
    if not batches:
        if observed.last_trigger_at and observed.started_at and observed.last_trigger_at > observed.started_at:
            return Verdict.IDLE, "runs and has had nothing to read since its start"
        return Verdict.CATCHING_UP, "runs its first batch"
    last = batches[-1]
    if observed.last_trigger_at and observed.last_trigger_at > batch_end(last):
        return Verdict.IDLE, f"has had nothing new to read for {span((now - batch_end(last)).total_seconds())}"
    return _of_pace(evidence, batches[-WINDOW:], now)


def _of_pace(evidence: Evidence, window: Sequence[Progress], now: datetime) -> tuple[Verdict, str]:
    trigger_ms = evidence.declaration.trigger_interval_ms
    durations = [batch.batch_duration_ms for batch in window if batch.batch_duration_ms is not None]
    last = window[-1]
    behind = f"is {span((now - last.progressed_at).total_seconds())} behind"
    if durations and 0 < trigger_ms < median(durations):
        pace = f"batches take {span(median(durations) / 1000)} on a trigger of {span(trigger_ms / 1000)}"
        if len(durations) < LEAST_BATCHES:
            return Verdict.CATCHING_UP, f"{behind} after its start: its first {pace}"
        if last.num_input_rows < 0.8 * window[0].num_input_rows:
            return Verdict.CATCHING_UP, f"{behind} and catching up: {pace}, but carry fewer rows each time"
        return Verdict.SLOW, f"{behind}: its {pace}"
    took = span((last.batch_duration_ms or 0) / 1000)
    return Verdict.OK, f"keeps up: {last.num_input_rows:,} rows in its last batch, done in {took}"


def _stopped(evidence: Evidence, observed: Observed, now: datetime) -> str:
    since = f"has been stopped for {span((now - observed.observed_at).total_seconds())}"
    wanted = evidence.desired
    if wanted is None or wanted.state is DesiredState.RUNNING:
        return since
    return f"{since}: {wanted.actor} asked for it ({wanted.reason})"


def _failure(observed: Observed, now: datetime) -> str:
    failure = observed.last_failure
    if failure is None:
        return "failed"
    batch = f" in batch {failure.batch_id}" if failure.batch_id is not None else ""
    ago = span((now - failure.failed_at).total_seconds())
    message = failure.message.removeprefix(f"[{failure.error_class}] ")  # as Spark begins its messages
    return f"failed {ago} ago{batch}: {failure.error_class}: {_short(message)}"


def _next_try(observed: Observed, now: datetime) -> str:
    wait_s = (observed.next_start_at - now).total_seconds() if observed.next_start_at else 0.0
    tries = f"failure {len(observed.failures)} of late"
    return f"{tries}, next try in {span(wait_s)}" if wait_s > 0 else f"{tries}, next try now"


def batch_end(batch: Progress) -> datetime:
    """Spark's timestamp is the trigger's start."""
    return batch.progressed_at + timedelta(milliseconds=batch.batch_duration_ms or 0)


def _last_sign(observed: Observed, batches: Sequence[Progress]) -> datetime:
    signs = (observed.last_trigger_at, observed.started_at, batch_end(batches[-1]) if batches else None)
    return max((sign for sign in signs if sign is not None), default=observed.observed_at)


def _stall_after_s(declaration: StreamDeclaration, batches: Sequence[Progress]) -> float:
    slowest_ms = max((batch.batch_duration_ms or 0 for batch in batches), default=0)
    return max(LEAST_STALL_S, 5 * max(declaration.trigger_interval_ms, slowest_ms) / 1000)


def _usual(batches: Sequence[Progress]) -> str:
    durations = [batch.batch_duration_ms for batch in batches if batch.batch_duration_ms is not None]
    return f"; before, one took {span(median(durations) / 1000)}" if durations else ""


def _host_gone_s(host: HostHeartbeat | None, now: datetime, stale_s: float) -> float | None:
    """Seconds since the host's last sign; None while it is alive."""
    if host is None:
        return float("inf")
    silent_s = (now - host.beat_at).total_seconds()
    return silent_s if silent_s > stale_s else None


def _silence(host: HostHeartbeat | None, now: datetime) -> str:
    if host is None:
        return "its host is not known"
    ago = span((now - host.beat_at).total_seconds())
    return f"its host has been silent for {ago} (since {host.beat_at:%H:%M} UTC)"


def _wanted(evidence: Evidence) -> bool:
    return evidence.desired is not None and evidence.desired.state is DesiredState.RUNNING


def _short(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= 200 else f"{line[:199]}…"


def span(seconds: float) -> str:
    """A length of time in words: "0.4 s", "38 s", "12 min", "2 h 10 min", "3 d"."""
    whole = round(max(seconds, 0))
    if seconds < 9.95:
        return f"{max(seconds, 0):.1f} s" if seconds % 1 and seconds > 0 else f"{whole} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} min"
    if whole < 86_400:
        minutes = whole % 3_600 // 60
        return f"{whole // 3_600} h {minutes} min" if minutes else f"{whole // 3_600} h"
    return f"{whole // 86_400} d"
