"""Streams spread evenly over the hosts that can run them, with no move more than that needs."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.stream_model.stream import HostHeartbeat, StreamDeclaration
from backend.streams.balance import Move, plan_shares, why_nobody_can
from tests.soak import drawn

ALL = ("s1", "s2", "s3", "s4", "s5", "s6")
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def owned(**hosts: str) -> dict[str, str]:
    """`owned(a="s1 s2")`: the owner of each stream."""
    return {stream: host for host, streams in hosts.items() for stream in streams.split()}


@pytest.mark.parametrize(
    ("can", "owners", "at_rest", "placed", "move"),
    [
        ({}, {}, (), {}, None),
        ({"a": ALL}, {}, (), owned(a="s1 s2 s3 s4 s5 s6"), None),
        ({"a": ALL, "b": ALL}, {}, (), owned(a="s1 s3 s5", b="s2 s4 s6"), None),
        ({"a": ALL, "b": ALL}, owned(a="s1 s2 s3 s4 s5 s6"), (), {}, Move("s1", "a", "b")),
        ({"a": ALL, "b": ALL}, owned(a="s2 s3 s4 s5 s6"), (), {"s1": "b"}, None),  # it is under way
        ({"a": ALL, "b": ALL}, owned(a="s3 s4 s5 s6", b="s1 s2"), (), {}, Move("s3", "a", "b")),
        ({"a": ALL[:5], "b": ALL[:5]}, owned(a="s3 s4 s5", b="s1 s2"), (), {}, None),  # they differ by one
        ({"a": ALL, "b": ALL}, owned(a="s1 s2 s3 s4", b="s5 s6"), ("s1", "s2"), {}, None),  # what rests weighs nothing
        ({"a": ALL, "b": ALL}, owned(a="s1 s2 s3 s4 s5 s6"), ALL, {}, None),
        ({"a": ALL, "b": ALL}, owned(a="s1 s2 s3", gone="s4 s5 s6"), (), {}, None),  # leases that have yet to end
        ({"a": ALL, "b": ("s6",)}, owned(a="s1 s2 s3 s4 s5 s6"), (), {}, Move("s6", "a", "b")),
        ({"a": ALL, "b": ("s6",)}, owned(a="s1 s2 s3 s4 s5", b="s6"), (), {}, None),  # the others cannot go there
        ({"a": ALL, "b": ("s6",)}, owned(b="s6"), (), owned(a="s1 s2 s3 s4 s5"), None),
        ({"a": ("s1",), "b": ("s1", "s2")}, {}, (), {"s1": "a", "s2": "b"}, None),  # who can least is placed first
        ({"a": (), "b": ()}, owned(gone="s1"), (), {}, None),
        (
            {"a": ALL, "b": ALL, "c": ALL},
            owned(a="s1 s2", b="s3 s4 s5", c="s6"),
            (),
            {},
            Move("s3", "b", "c"),
        ),
    ],
)
def test_where_streams_go(can: dict, owners: dict, at_rest: tuple, placed: dict, move: Move | None) -> None:
    found = plan_shares(can, owners, at_rest)
    assert (found.placed, found.move) == (placed, move)
    is_waiting = bool(placed) or "gone" in owners.values()
    assert found.is_even == (move is None and not is_waiting)


@dataclass
class World:
    """Hosts that all carry out what they see, one step at a time."""

    can: dict[str, frozenset[str]] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    at_rest: set[str] = field(default_factory=set)
    moves: int = 0

    def join(self, host: str, streams: frozenset[str]) -> None:
        self.can[host] = streams

    def leave(self, host: str) -> None:
        self.can.pop(host, None)
        self.owners = {stream: owner for stream, owner in self.owners.items() if owner != host}

    def loads(self) -> Counter[str]:
        loads = Counter(dict.fromkeys(self.can, 0))
        loads.update(owner for stream, owner in self.owners.items() if stream not in self.at_rest)
        return loads

    def step(self) -> bool:
        plan = plan_shares(self.can, self.owners, self.at_rest)
        for stream, host in plan.placed.items():
            assert stream in self.can[host]
            assert stream not in self.owners, "it has an owner"
        self.owners |= plan.placed
        if plan.move is None:
            return bool(plan.placed)
        stream, loads = plan.move.stream, self.loads()
        assert self.owners[stream] == plan.move.host
        assert loads[plan.move.host] - loads[plan.move.to] >= 2
        del self.owners[stream]  # given up, and free until the others look
        again = plan_shares(self.can, self.owners, self.at_rest)
        assert again.placed == {stream: plan.move.to}, "it goes nowhere else, and not back"
        self.owners |= again.placed
        self.moves += 1
        return True

    def settle(self) -> None:
        for _ in range(200):
            if not self.step():
                return
        raise AssertionError("it never ends")


def needed(loads: Counter[str]) -> int:
    """Moves until hosts of which each can run all differ by one at most."""
    share, more = divmod(loads.total(), len(loads))
    fullest = sorted(loads.values(), reverse=True)
    return sum(max(0, load - share - (place < more)) for place, load in enumerate(fullest))


hosts, streams = st.sampled_from("abcde"), st.frozensets(st.sampled_from(ALL))
events = st.lists(
    st.one_of(
        st.tuples(st.just("join"), hosts, streams),
        st.tuples(st.just("leave"), hosts, st.none()),
        st.tuples(st.just("rest"), st.sampled_from(ALL), st.none()),
    ),
    max_size=20,
)


@drawn(200)
@given(events, st.booleans())
def test_whatever_joins_and_leaves_it_ends_even(happens: list, all_can_run_all: bool) -> None:
    world = World()
    for what, who, can in happens:
        match what:
            case "join":
                world.join(who, frozenset(ALL) if all_can_run_all else can)
            case "leave":
                world.leave(who)
            case "rest":
                world.at_rest ^= {who}
        while plan_shares(world.can, world.owners, world.at_rest).placed:
            world.step()
        before, most, world.moves = dict(world.owners), world.loads(), 0
        world.settle()
        able = {stream for streams in world.can.values() for stream in streams}
        assert able <= world.owners.keys(), "what can run has a host"
        loads = world.loads()
        for stream, owner in world.owners.items():
            others = [loads[host] for host, can in world.can.items() if stream in can and stream not in world.at_rest]
            assert all(loads[owner] - load <= 1 for load in others)
        if all_can_run_all and world.can:
            assert world.moves == needed(most), (before, world.owners)


def test_a_stream_that_no_live_host_can_run_says_so() -> None:
    declared = StreamDeclaration("s", "", "x", "/l/s", "s", (), None, 1_000, "/c/s", tags={"host": "gpu, eu"})
    host = HostHeartbeat("h", "box", 1, NOW, NOW, tags=("eu",))
    assert declared.host_tags == {"eu", "gpu"}
    assert why_nobody_can(declared, [host]) == "no host with the tags eu and gpu is up"
    both = HostHeartbeat("h", "box", 1, NOW, NOW, tags=("gpu", "eu", "big"))
    assert why_nobody_can(declared, [host, both]) == ""
    one = StreamDeclaration("s", "", "x", "/l/s", "s", (), None, 1_000, "/c/s", tags={"host": "gpu"})
    assert why_nobody_can(one, [host]) == "no host with the tag gpu is up"
    plain = StreamDeclaration("s", "", "x", "/l/s", "s", (), None, 1_000, "/c/s", tags={"team": "gpu"})
    assert why_nobody_can(plain, []) == ""
