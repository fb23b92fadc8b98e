"""Decides what a host does next so that what runs becomes what people want.

Rule: pure. `plan` sees values and gives actions; carrying them out and planning again gives no action. The order of
one stream's actions matters: what is about to happen is recorded before it is done.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from backend.stream_model.stream import Desired, DesiredState, Observed, StreamFailure, StreamState
from backend.streams.faults import recognise


class Phase(StrEnum):
    """What a query of this host is doing at this moment."""

    ABSENT = "ABSENT"
    STARTING = "STARTING"  # a start is on its way
    ACTIVE = "ACTIVE"
    STOPPING = "STOPPING"  # a stop is on its way
    ENDED = "ENDED"  # ended by itself, without an error
    FAILED = "FAILED"  # ended by an error, or could not be started


@dataclass(frozen=True, slots=True)
class Live:
    """One stream as the host finds it. `failure` only with FAILED; `read_until`: what its sources took in before
    then has been read."""

    phase: Phase
    query_id: str | None = None
    run_id: str | None = None
    failure: StreamFailure | None = None
    read_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class RestartLimits:
    max_restarts: int
    restart_window_s: float
    backoff_initial_s: float
    backoff_max_s: float


@dataclass(frozen=True, slots=True)
class RecordState:
    """Write what is observed from now on."""

    observed: Observed

    @property
    def name(self) -> str:
        return self.observed.name


@dataclass(frozen=True, slots=True)
class Start:
    name: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Let the running micro-batch end, then stop."""

    name: str


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop a query that is over: its end is recorded."""

    name: str


@dataclass(frozen=True, slots=True)
class Offer:
    """Let another host start it, where one can: it failed for what is this host's own."""

    name: str


Action = RecordState | Start | Stop | Forget | Offer


@dataclass(frozen=True, slots=True)
class Host:
    """Who plans, under which limits, and when."""

    host_id: str
    limits: RestartLimits
    now: datetime


def plan(
    desired: Mapping[str, Desired], observed: Mapping[str, Observed], live: Mapping[str, Live], host: Host
) -> tuple[Action, ...]:
    """The next actions for every stream in `live` (those that the host owns) that is desired at all."""
    actions: list[Action] = []
    for name in sorted(live):
        if name in desired:
            actions += _plan_one(desired[name], observed.get(name) or _unseen(desired[name], host), live[name], host)
    return tuple(actions)


def _plan_one(want: Desired, seen: Observed, live: Live, host: Host) -> Iterable[Action]:
    match live.phase:
        case Phase.ABSENT:
            return _absent(want, seen, host)
        case Phase.ACTIVE:
            return _active(want, seen, live, host)
        case Phase.ENDED:
            return _ended(want, seen, host)
        case Phase.FAILED:
            return _failed(want, seen, live, host)
        case Phase.STARTING | Phase.STOPPING:
            return ()


def _absent(want: Desired, seen: Observed, host: Host) -> Iterable[Action]:
    if want.wants_stop:
        return _to_rest(want, seen, host)
    if want.generation == seen.generation:
        if seen.state in (StreamState.FAILED, StreamState.COMPLETED):
            return _adopt(seen, host)
        if seen.state is StreamState.BACKOFF and seen.next_start_at is not None and host.now < seen.next_start_at:
            return _adopt(seen, host)
    return _to_start(want, seen, host)


def _to_rest(want: Desired, seen: Observed, host: Host) -> Iterable[Action]:
    rest = (StreamState.STOPPED, StreamState.FAILED) if want.drains else (StreamState.STOPPED,)
    if seen.state in rest and seen.generation == want.generation:
        return _adopt(seen, host)
    return (RecordState(_carried_out(want, seen, StreamState.STOPPED, host)),)


def _to_start(want: Desired, seen: Observed, host: Host) -> Iterable[Action]:
    return (RecordState(_carried_out(want, seen, StreamState.STARTING, host)), Start(want.name))


def _active(want: Desired, seen: Observed, live: Live, host: Host) -> Iterable[Action]:
    if (want.wants_stop or want.generation > seen.generation) and not _drains(want, live):
        if seen.state is StreamState.STOPPING:
            return (Stop(want.name),)
        stopping = replace(seen, state=StreamState.STOPPING, host_id=host.host_id, observed_at=host.now)
        return (RecordState(stopping), Stop(want.name))
    if seen.state is StreamState.RUNNING and (seen.query_id, seen.run_id) == (live.query_id, live.run_id):
        return _adopt(seen, host)
    return (RecordState(_running(seen, live, host)),)


def _drains(want: Desired, live: Live) -> bool:
    """Whether it has yet to read what was there when its stop was asked for."""
    read = live.read_until is not None and live.read_until > want.requested_at
    return want.drains and not read


def _running(seen: Observed, live: Live, host: Host) -> Observed:
    return replace(
        seen,
        state=StreamState.RUNNING,
        host_id=host.host_id,
        observed_at=host.now,
        query_id=live.query_id,
        run_id=live.run_id,
        started_at=host.now,
        next_start_at=None,
    )


def _ended(want: Desired, seen: Observed, host: Host) -> Iterable[Action]:
    if want.wants_stop or want.generation > seen.generation:
        return _in_order(_absent(want, seen, host), Forget(want.name))
    return (RecordState(_carried_out(want, seen, StreamState.COMPLETED, host)), Forget(want.name))


def _failed(want: Desired, seen: Observed, live: Live, host: Host) -> Iterable[Action]:
    if want.drains:  # it ended too early, and a person should know
        broken = replace(_carried_out(want, seen, StreamState.FAILED, host), failures=_recent(seen, live, host))
        return (RecordState(broken), Forget(want.name))
    if want.generation > seen.generation:  # a person has asked anew: the old run's end no longer matters
        return _in_order(_absent(want, seen, host), Forget(want.name))
    broken = replace(seen, failures=_recent(seen, live, host))
    if want.state is DesiredState.STOPPED:
        return (RecordState(_carried_out(want, broken, StreamState.STOPPED, host)), Forget(want.name))
    faults = recognise(broken.failures[-1])
    if len(broken.failures) > host.limits.max_restarts or any(fault.recurs for fault in faults):
        return (RecordState(_carried_out(want, broken, StreamState.FAILED, host)), Forget(want.name))
    waiting = _carried_out(want, broken, StreamState.BACKOFF, host)
    pause = timedelta(seconds=backoff_s(len(broken.failures), host.limits))
    offered = (Offer(want.name),) if any(fault.is_hosts_own for fault in faults) else ()
    return (RecordState(replace(waiting, next_start_at=host.now + pause)), Forget(want.name), *offered)


def _in_order(actions: Iterable[Action], forget: Forget) -> Iterable[Action]:
    """A finished query is forgotten before the next start of its stream."""
    actions = tuple(actions)
    before = tuple(action for action in actions if isinstance(action, RecordState))
    return (*before, forget, *(action for action in actions if not isinstance(action, RecordState)))


def _carried_out(want: Desired, seen: Observed, state: StreamState, host: Host) -> Observed:
    """The observation after `want` is carried out; a new request also clears the failures of the one before."""
    return replace(
        seen,
        state=state,
        host_id=host.host_id,
        generation=want.generation,
        observed_at=host.now,
        next_start_at=None,
        failures=seen.failures if want.generation == seen.generation else (),
    )


def _adopt(seen: Observed, host: Host) -> Iterable[Action]:
    """Nothing to do but to say who watches now, after another host."""
    return () if seen.host_id == host.host_id else (RecordState(replace(seen, host_id=host.host_id)),)


def _unseen(want: Desired, host: Host) -> Observed:
    return Observed(want.name, StreamState.STOPPED, "", want.generation - 1, host.now)


def _recent(seen: Observed, live: Live, host: Host) -> tuple[StreamFailure, ...]:
    oldest = host.now - timedelta(seconds=host.limits.restart_window_s)
    recent = tuple(failure for failure in seen.failures if failure.failed_at > oldest)
    return (*recent, live.failure or StreamFailure("Unknown", "the query ended with an error", None, host.now))


def backoff_s(failures: int, limits: RestartLimits) -> float:
    """The pause after so many failures within the window: 1, 2, 4 … times the first, never above the longest."""
    return float(min(limits.backoff_initial_s * 2 ** min(failures - 1, 30), limits.backoff_max_s))
