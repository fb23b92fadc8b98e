"""Streams spread evenly over the hosts that can run them, with no move more than that needs."""

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.stream_model.stream import HostHeartbeat
from backend.streams.reconcile import Move, plan_shares, why_nobody_can
from tests.worlds.cases import drawn
from tests.worlds.streams.values import stream as declaration

ALL = ("s1", "s2", "s3", "s4", "s5", "s6")
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def owned(**hosts: str) -> dict[str, str]:
    """`owned(a="s1 s2")`: the owner of each stream."""
    return {stream: host for host, streams in hosts.items() for stream in streams.split()}


def moves(streams: str, host: str, to: str) -> tuple[Move, ...]:
    return tuple(Move(stream, host, to) for stream in streams.split())


@pytest.mark.parametrize(
    ("can", "owners", "at_rest", "placed", "given"),
    [
        ({"a": ALL, "b": ALL}, {}, (), owned(a="s1 s3 s5", b="s2 s4 s6"), ()),
        ({"a": ALL, "b": ALL}, {}, ALL, owned(a="s1 s3 s5", b="s2 s4 s6"), ()),  # who starts them finds them spread
        ({"a": ALL, "b": ALL}, owned(a="s1 s2 s3 s4 s5 s6"), (), {}, moves("s1 s2 s3", "a", "b")),
        ({"a": ALL, "b": ALL}, owned(a="s2 s3 s4 s5 s6"), (), {"s1": "b"}, ()),  # it is under way
        ({"a": ALL, "b": ALL}, owned(a="s1 s2 s3 s4", b="s5 s6"), ("s1", "s2"), {}, ()),  # what rests weighs nothing
        ({"a": ALL, "b": ALL}, owned(a="s1 s2 s3", gone="s4 s5 s6"), (), {}, ()),  # leases that have yet to end
        ({"a": ALL, "b": ("s6",)}, owned(a="s1 s2 s3 s4 s5 s6"), (), {}, moves("s6", "a", "b")),
        ({"a": ALL, "b": ("s6",)}, owned(a="s1 s2 s3 s4 s5", b="s6"), (), {}, ()),  # the others cannot go there
        ({"a": ALL, "b": ("s6",)}, owned(b="s6"), (), owned(a="s1 s2 s3 s4 s5"), ()),
        ({"a": ("s1",), "b": ("s1", "s2")}, {}, (), {"s1": "a", "s2": "b"}, ()),  # who can least is placed first
        ({"a": (), "b": ()}, owned(gone="s1"), (), {}, ()),
        ({"a": ALL, "b": ALL, "c": ALL}, owned(a="s1 s2", b="s3 s4 s5", c="s6"), (), {}, moves("s3", "b", "c")),
        (
            {"a": ALL, "b": ALL[2:], "c": ALL},
            owned(a="s1 s2 s3 s4 s5 s6"),
            (),
            {},
            (*moves("s1", "a", "c"), *moves("s3", "a", "b"), *moves("s2", "a", "c"), *moves("s4", "a", "b")),
        ),
    ],
)
def test_where_streams_go(can: dict, owners: dict, at_rest: tuple, placed: dict, given: tuple[Move, ...]) -> None:
    found = plan_shares(can, owners, at_rest)
    assert (found.placed, found.moves) == (placed, given)
    is_waiting = bool(placed) or "gone" in owners.values()
    assert found.is_even == (not given and not is_waiting)


@pytest.mark.parametrize(
    ("owners", "limits", "at_rest", "placed", "given"),
    [
        ({}, {"a": 2, "b": 1}, (), owned(a="s1 s3", b="s2"), ()),  # nobody has room for the others
        ({}, {"a": 1}, (), owned(a="s1", b="s2 s3 s4 s5 s6"), ()),
        ({}, {"a": None, "b": 1}, (), owned(a="s1 s3 s4 s5 s6", b="s2"), ()),
        (owned(a="s1 s2", b="s3"), {"a": 2, "b": 1}, (), {}, ()),  # and that is even
        (owned(a="s1 s2", b="s3"), {"a": 2, "b": 1}, ("s4", "s5", "s6"), owned(b="s4 s6", a="s5"), ()),
        (owned(a="s1 s2 s3 s4 s5 s6"), {"b": 2}, (), {}, moves("s1 s2", "a", "b")),
        (owned(a="s1 s2 s3", b="s4 s5 s6"), {"a": 2}, (), {}, moves("s1", "a", "b")),  # it has more than it takes
        (owned(a="s1 s2", b="s3 s4 s5 s6"), {"a": 2}, (), {}, ()),  # and does not come back
        (owned(a="s1 s2 s3", b="s4 s5 s6"), {"a": 2, "b": 2}, (), {}, ()),
    ],
)
def test_a_host_takes_no_more_than_it_has_room_for(
    owners: dict, limits: dict, at_rest: tuple, placed: dict, given: tuple[Move, ...]
) -> None:
    found = plan_shares({"a": ALL, "b": ALL}, owners, at_rest, limits)
    assert (found.placed, found.moves) == (placed, given)
    assert found.is_even == (not placed and not given)


@pytest.mark.parametrize("hosts", [10, 50])
def test_nobody_looks_through_a_thousand_names_for_each_stream_and_host(hosts: int) -> None:
    """Counted in comparisons of names, so that a busy machine changes nothing."""
    compared = 0

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    names = [f"stream_{number:04}" for number in range(1_000)]
    can = {f"host-{number}": tuple(map(Name, names)) for number in range(hosts)}
    found = plan_shares(can, {Name(name): "host-0" for name in names}, {Name(names[0])})
    loads = Counter(move.to for move in found.moves) | Counter({"host-0": 999 - len(found.moves)})
    assert len(loads) == hosts
    assert max(loads.values()) - min(loads.values()) == 1
    assert compared < 20 * hosts * len(names)


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
        if not plan.moves:
            return bool(plan.placed)
        planned = self.loads()
        for move in plan.moves:
            assert self.owners.pop(move.stream) == move.host  # given up, and free until the others look
            assert planned[move.host] - planned[move.to] >= 2
            planned.subtract([move.host])
            planned.update([move.to])
        again = plan_shares(self.can, self.owners, self.at_rest)
        assert again.placed.keys() == {move.stream for move in plan.moves}
        assert not [move for move in plan.moves if again.placed[move.stream] == move.host], "none comes back"
        self.owners |= again.placed
        assert self.loads() == planned, "what was moved lies as evenly as was planned"
        self.moves += len(plan.moves)
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


hosts, some = st.sampled_from("abcde"), st.frozensets(st.sampled_from(ALL))
events = st.lists(
    st.one_of(
        st.tuples(st.just("join"), hosts, some),
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


def test_a_stream_that_no_live_host_can_run_or_has_room_for_says_so() -> None:
    declared = declaration(tags={"host": "gpu, eu"})
    host = HostHeartbeat("h", "box", 1, NOW, NOW, tags=("eu",))
    assert declared.host_tags == {"eu", "gpu"}
    assert why_nobody_can(declared, [host]) == "no host with the tags eu and gpu is up"
    assert why_nobody_can(declared, [host, replace(host, tags=("gpu", "eu", "big"))]) == ""
    assert why_nobody_can(declaration(tags={"team": "gpu"}), []) == ""

    declared = declaration(tags={"host": "gpu"})
    assert why_nobody_can(declared, [host]) == "no host with the tag gpu is up"
    full, other = replace(host, tags=("gpu",), max_streams=2), replace(host, host_id="i", tags=(), max_streams=9)
    no_room = "no host has room for it: 2 streams on 1 host, the most that host.max_streams allows"
    assert why_nobody_can(declared, [full, other], {"h": 2}) == no_room
    assert why_nobody_can(declared, [full, other], {"h": 1}) == ""
    assert why_nobody_can(declared, [full, replace(full, host_id="j", max_streams=None)], {"h": 2}) == ""
