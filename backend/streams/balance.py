"""Which host a stream belongs on: spread evenly over those that can run it, and moved no more than that needs.

Rule: pure, and the same for every host that sees the same leases, so that one alone acts. A stopped stream weighs
nothing. A stream moves only to a host that has at least two fewer, so no move can be undone by the next.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from backend.stream_model.stream import HostHeartbeat, StreamDeclaration


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
    move: Move | None
    is_even: bool


def plan_shares(can: Mapping[str, Collection[str]], owners: Mapping[str, str], at_rest: Collection[str]) -> Shares:
    """`can`: what each live host can run; `owners`: whose lease each stream has, also of hosts that are gone."""
    loads = Counter(dict.fromkeys(can, 0))
    loads.update(host for stream, host in owners.items() if host in can and stream not in at_rest)
    able = {
        stream: [host for host in sorted(can) if stream in can[host]] for streams in can.values() for stream in streams
    }
    placed: dict[str, str] = {}
    for stream in sorted(able.keys() - owners.keys(), key=lambda name: (len(able[name]), name)):
        placed[stream] = min(able[stream], key=lambda host: loads[host])
        loads[placed[stream]] += stream not in at_rest
    is_under_way = bool(placed) or any(host not in can for host in owners.values())
    move = None if is_under_way else _move(able, owners, loads, at_rest)
    return Shares(placed, move, not is_under_way and move is None)


def _move(
    able: Mapping[str, list[str]], owners: Mapping[str, str], loads: Mapping[str, int], at_rest: Collection[str]
) -> Move | None:
    """From the fullest host that can give to one with two fewer."""
    possible = [
        Move(stream, host, min(able[stream], key=lambda other: loads[other]))
        for stream, host in sorted(owners.items())
        if stream in able and stream not in at_rest
    ]
    uneven = [move for move in possible if loads[move.host] - loads[move.to] >= 2]
    return min(uneven, key=lambda move: (-loads[move.host], loads[move.to], move.host), default=None)


def why_nobody_can(declared: StreamDeclaration, alive: Iterable[HostHeartbeat]) -> str:
    """ "no host with the tag gpu is up"; empty where one is, or where none is asked for."""
    if not declared.host_tags or any(declared.host_tags <= set(host.tags) for host in alive):
        return ""
    tags = sorted(declared.host_tags)
    return f"no host with the tag{'s' * (len(tags) > 1)} {' and '.join(tags)} is up"
