"""Which host a stream belongs on: spread evenly over those that can run it, and moved no more than that needs.

Rule: pure, and the same for every host that sees the same leases, so that one alone acts. A stopped stream weighs
nothing. A stream moves only to a host with room that has at least two fewer, or from a host that has more than it
takes, so no move can be undone by the next.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from types import MappingProxyType

from backend.format import things
from backend.stream_model.stream import HostHeartbeat, StreamDeclaration

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
        return f"no host has room for it: {shown}, and host.max_streams allows no more"
    return ""
