"""Which host a stream belongs on, and what that host does next so that what runs becomes what people want.

Rule: pure, and the same for every host that sees the same leases, so that one alone acts. `plan` sees values and gives
actions; carrying them out and planning again gives no action. The order of one stream's actions matters: what is about
to happen is recorded before it is done. Streams are spread evenly over those that can run them, and moved no more than
that needs: only to a host with room that has at least two fewer, or from a host that has more than it takes, so no move
can be undone by the next. A stopped stream weighs nothing.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush
from types import MappingProxyType

from backend.format import things
from backend.settings import HostSettings
from backend.stream_model.stream import (
    Desired,
    DesiredState,
    HostHeartbeat,
    Observed,
    StreamDeclaration,
    StreamFailure,
    StreamState,
)
from backend.streams.faults import recognise

NO_LIMITS: Mapping[str, int | None] = MappingProxyType({})
NO_STREAMS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Move:
    """`host` should give `stream` up; `to` has the fewest of those that can run it."""

    stream: str
    host: str
    to: str


@dataclass(frozen=True, slots=True)
class Shares:
    """`placed`: the streams that no host has, each with the one that takes it. `is_even`: nothing is on its way."""

    placed: Mapping[str, str]
    moves: tuple[Move, ...]
    is_even: bool


class _Loads:
    """Streams that run on each host. `level` is the same, and endless for a host that takes no more."""

    def __init__(self, running: Mapping[str, int], limits: Mapping[str, int | None]) -> None:
        self.running = dict(running)
        self._limits = {host: math.inf if (most := limits.get(host)) is None else most for host in running}
        self.level = {host: self._level(host) for host in running}

    def add(self, host: str, streams: int) -> None:
        self.running[host] += streams
        self.level[host] = self._level(host)

    def lowest(self, hosts: Collection[str]) -> str:
        return min(hosts, key=self.level.__getitem__)

    def may_move(self, host: str, to: str) -> bool:
        is_over = self.running[host] > self._limits[host]
        return self.running[host] - self.level[to] >= 2 or (is_over and self.level[to] < math.inf)

    def _level(self, host: str) -> float:
        return self.running[host] if self.running[host] < self._limits[host] else math.inf


def plan_shares(
    can: Mapping[str, Collection[str]],
    owners: Mapping[str, str],
    at_rest: Collection[str],
    limits: Mapping[str, int | None] = NO_LIMITS,
) -> Shares:
    """`can`: what each live host can run; `owners`: whose lease each stream has, also of hosts that are gone; `limits`:
    how many running streams a host takes at most. Streams that no host has room for are in no part of the answer."""
    able = defaultdict[str, list[str]](list)
    for host in sorted(can):
        for stream in can[host]:
            able[stream].append(host)
    present = Counter(dict.fromkeys(can, 0))
    present.update(host for host in owners.values() if host in can)
    running = Counter(dict.fromkeys(can, 0))
    running.update(host for stream, host in owners.items() if host in can and stream not in at_rest)
    loads = _Loads(running, limits)
    placed: dict[str, str] = {}
    for stream in sorted(able.keys() - owners.keys(), key=lambda name: (len(able[name]), name)):
        is_at_rest = stream in at_rest
        host = min(able[stream], key=present.__getitem__) if is_at_rest else loads.lowest(able[stream])
        if is_at_rest or loads.level[host] < math.inf:
            placed[stream] = host
            present[host] += 1
            loads.add(host, not is_at_rest)
    is_under_way = bool(placed) or any(host not in can for host in owners.values())
    moves = () if is_under_way else tuple(_moves(able, owners, loads, at_rest))
    return Shares(placed, moves, not is_under_way and not moves)


def _moves(
    able: Mapping[str, list[str]], owners: Mapping[str, str], loads: _Loads, at_rest: Collection[str]
) -> Iterator[Move]:
    """Each from the fullest host that can give to the emptiest that can take, until none has two fewer."""
    # By host and by who can take them: all that go to the same hosts are alike.
    alike = defaultdict[str, dict[tuple[str, ...], list[str]]](dict)
    for stream in sorted(owners, reverse=True):
        if stream in able and stream not in at_rest:
            alike[owners[stream]].setdefault(tuple(able[stream]), []).append(stream)
    fullest = [(-loads.running[host], host) for host in alike]
    heapify(fullest)
    while fullest:
        running, host = heappop(fullest)
        if -running != loads.running[host] or not alike[host]:
            continue  # it took some meanwhile, and stands here once more with them; or it has given all
        targets = {hosts: loads.lowest(hosts) for hosts in alike[host]}
        hosts = min(targets, key=lambda those: (loads.level[targets[those]], alike[host][those][-1]))
        to = targets[hosts]
        if not loads.may_move(host, to):
            continue
        yield Move(alike[host][hosts].pop(), host, to)
        if not alike[host][hosts]:
            del alike[host][hosts]
        for changed, streams in ((host, -1), (to, 1)):
            loads.add(changed, streams)
            heappush(fullest, (-loads.running[changed], changed))


def why_nobody_can(
    declared: StreamDeclaration, alive: Iterable[HostHeartbeat], running: Mapping[str, int] = NO_STREAMS
) -> str:
    """ "no host with the tag gpu is up", or that those are full; empty where one can. `running`: streams by host."""
    able = [host for host in alive if declared.host_tags <= set(host.tags)]
    if not able and declared.host_tags:
        tags = sorted(declared.host_tags)
        return f"no host with the tag{'s' * (len(tags) > 1)} {' and '.join(tags)} is up"
    full = [host for host in able if host.max_streams and running.get(host.host_id, 0) >= host.max_streams]
    if able and len(full) == len(able):
        streams = sum(running[host.host_id] for host in full)
        shown = f"{things(streams, 'stream')} on {things(len(full), 'host')}"
        return f"no host has room for it: {shown}, the most that host.max_streams allows"
    return ""


@dataclass(frozen=True, slots=True)
class Live:
    """What the query of one stream does at this moment: STOPPED where there is none, STARTING or STOPPING while that is
    on its way, COMPLETED where it ended by itself, FAILED where it ended by an error or could not be started.

    `failure` only with FAILED; `read_until`: what its sources took in before then has been read."""

    state: StreamState
    query_id: str | None = None
    run_id: str | None = None
    failure: StreamFailure | None = None
    read_until: datetime | None = None


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
    limits: HostSettings
    now: datetime


def plan(
    desired: Mapping[str, Desired], observed: Mapping[str, Observed], live: Mapping[str, Live], host: Host
) -> tuple[Action, ...]:
    """The next actions for every stream in `live` (those that the host owns) that is desired at all."""
    actions: list[Action] = []
    for name in sorted(live.keys() & desired.keys()):
        want = desired[name]
        unseen = Observed(name, StreamState.STOPPED, "", want.generation - 1, host.now)
        actions += _plan_one(want, observed.get(name) or unseen, live[name], host)
    return tuple(actions)


def _plan_one(want: Desired, seen: Observed, live: Live, host: Host) -> Iterable[Action]:
    match live.state:
        case StreamState.STOPPED:
            return _absent(want, seen, host)
        case StreamState.RUNNING:
            return _active(want, seen, live, host)
        case StreamState.COMPLETED:
            if want.wants_stop or want.generation > seen.generation:
                return _in_order(_absent(want, seen, host), Forget(want.name))
            return (RecordState(_carried_out(want, seen, StreamState.COMPLETED, host)), Forget(want.name))
        case StreamState.FAILED:
            return _failed(want, seen, live, host)
    return ()  # a start or a stop is on its way


def _absent(want: Desired, seen: Observed, host: Host) -> Iterable[Action]:
    if want.wants_stop:
        rest = (StreamState.STOPPED, StreamState.FAILED) if want.drains else (StreamState.STOPPED,)
        if seen.state in rest and seen.generation == want.generation:
            return _adopt(seen, host)
        return (RecordState(_carried_out(want, seen, StreamState.STOPPED, host)),)
    if want.generation == seen.generation:
        if seen.state in (StreamState.FAILED, StreamState.COMPLETED):
            return _adopt(seen, host)
        if seen.state is StreamState.BACKOFF and seen.next_start_at is not None and host.now < seen.next_start_at:
            return _adopt(seen, host)
    return (RecordState(_carried_out(want, seen, StreamState.STARTING, host)), Start(want.name))


def _active(want: Desired, seen: Observed, live: Live, host: Host) -> Iterable[Action]:
    has_read = live.read_until is not None and live.read_until > want.requested_at  # what it shall before it stops
    if (want.wants_stop or want.generation > seen.generation) and (has_read or not want.drains):
        if seen.state is StreamState.STOPPING:
            return (Stop(want.name),)
        stopping = replace(seen, state=StreamState.STOPPING, host_id=host.host_id, observed_at=host.now)
        return (RecordState(stopping), Stop(want.name))
    if seen.state is StreamState.RUNNING and (seen.query_id, seen.run_id) == (live.query_id, live.run_id):
        return _adopt(seen, host)
    running = replace(
        seen,
        state=StreamState.RUNNING,
        host_id=host.host_id,
        observed_at=host.now,
        query_id=live.query_id,
        run_id=live.run_id,
        started_at=host.now,
        next_start_at=None,
    )
    return (RecordState(running),)


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


def _recent(seen: Observed, live: Live, host: Host) -> tuple[StreamFailure, ...]:
    oldest = host.now - timedelta(seconds=host.limits.restart_window_s)
    recent = tuple(failure for failure in seen.failures if failure.failed_at > oldest)
    return (*recent, live.failure or StreamFailure("Unknown", "the query ended with an error", None, host.now))


def backoff_s(failures: int, limits: HostSettings) -> float:
    """The pause after so many failures within the window: 1, 2, 4 … times the first, never above the longest."""
    return float(min(limits.backoff_initial_s * 2 ** min(failures - 1, 30), limits.backoff_max_s))
