"""The reconciler as a transition table, and as properties that hold for every situation."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.stream_model.stream import Desired, DesiredState, Observed, StreamFailure, StreamState
from backend.streams.reconcile import (
    Action,
    Forget,
    Host,
    Live,
    Phase,
    RecordState,
    RestartLimits,
    Start,
    Stop,
    backoff_s,
    plan,
)

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LIMITS = RestartLimits(max_restarts=2, restart_window_s=600, backoff_initial_s=1, backoff_max_s=60)
HOST = Host("me", LIMITS, NOW)
BROKE = StreamFailure("SparkException", "boom", 3, NOW)
EARLIER = replace(BROKE, failed_at=NOW - timedelta(seconds=10))
LONG_AGO = replace(BROKE, failed_at=NOW - timedelta(seconds=601))

ABSENT, STARTING, STOPPING, ENDED = (Live(Phase(name)) for name in ("ABSENT", "STARTING", "STOPPING", "ENDED"))
ACTIVE = Live(Phase.ACTIVE, "q", "r")
FAILED = Live(Phase.FAILED, "q", "r", BROKE)
CAUGHT_UP = replace(ACTIVE, read_until=NOW + timedelta(seconds=1))


def want(state: str, generation: int = 1) -> Desired:
    return Desired("s", DesiredState(state), generation, "why", "ann", NOW)


def seen(state: str, generation: int = 1, **changes: object) -> Observed:
    value = Observed("s", StreamState(state), "me", generation, NOW - timedelta(seconds=30), "q", "r")
    return replace(value, **changes)  # type: ignore[arg-type]


def steps(wanted: Desired, observed: Observed | None, live: Live) -> list[str]:
    """The plan in words: a record by its state and generation, the others by their name."""
    actions = plan({"s": wanted}, {"s": observed} if observed else {}, {"s": live}, HOST)
    return [
        f"{action.observed.state}/{action.observed.generation}"
        if isinstance(action, RecordState)
        else type(action).__name__
        for action in actions
    ]


TABLE = [
    # nothing runs
    ("new, wanted", want("RUNNING"), None, ABSENT, ["STARTING/1", "Start"]),
    ("new, not wanted", want("STOPPED"), None, ABSENT, ["STOPPED/1"]),
    ("started by a person", want("RUNNING", 2), seen("STOPPED"), ABSENT, ["STARTING/2", "Start"]),
    ("stopped, as wanted", want("STOPPED"), seen("STOPPED"), ABSENT, []),
    ("stopped again", want("STOPPED", 2), seen("STOPPED"), ABSENT, ["STOPPED/2"]),
    ("host was restarted while running", want("RUNNING"), seen("RUNNING"), ABSENT, ["STARTING/1", "Start"]),
    ("host was restarted while starting", want("RUNNING"), seen("STARTING"), ABSENT, ["STARTING/1", "Start"]),
    ("host was restarted while stopping", want("STOPPED", 2), seen("STOPPING"), ABSENT, ["STOPPED/2"]),
    ("host was stopped gracefully", want("RUNNING"), seen("STOPPED"), ABSENT, ["STARTING/1", "Start"]),
    ("failed waits for a person", want("RUNNING"), seen("FAILED"), ABSENT, []),
    ("failed, a person starts it", want("RUNNING", 2), seen("FAILED"), ABSENT, ["STARTING/2", "Start"]),
    ("failed, a person stops it", want("STOPPED", 2), seen("FAILED"), ABSENT, ["STOPPED/2"]),
    ("completed stays", want("RUNNING"), seen("COMPLETED"), ABSENT, []),
    ("completed, once more", want("RUNNING", 2), seen("COMPLETED"), ABSENT, ["STARTING/2", "Start"]),
    (
        "back-off not over",
        want("RUNNING"),
        seen("BACKOFF", next_start_at=NOW + timedelta(milliseconds=1)),
        ABSENT,
        [],
    ),
    ("back-off over", want("RUNNING"), seen("BACKOFF", next_start_at=NOW), ABSENT, ["STARTING/1", "Start"]),
    (
        "a person cuts the back-off short",
        want("RUNNING", 2),
        seen("BACKOFF", next_start_at=NOW + timedelta(seconds=9)),
        ABSENT,
        ["STARTING/2", "Start"],
    ),
    (
        "stopped in back-off",
        want("STOPPED", 2),
        seen("BACKOFF", next_start_at=NOW + timedelta(seconds=9)),
        ABSENT,
        ["STOPPED/2"],
    ),
    # on its way
    ("a start is awaited", want("RUNNING"), seen("STARTING"), STARTING, []),
    ("a start cannot be interrupted", want("STOPPED", 2), seen("STARTING"), STARTING, []),
    ("a stop is awaited", want("STOPPED", 2), seen("STOPPING"), STOPPING, []),
    ("a stop cannot be interrupted", want("RUNNING", 3), seen("STOPPING"), STOPPING, []),
    # active
    ("became active", want("RUNNING"), seen("STARTING"), ACTIVE, ["RUNNING/1"]),
    ("runs", want("RUNNING"), seen("RUNNING"), ACTIVE, []),
    ("runs under another run id", want("RUNNING"), seen("RUNNING", run_id="old"), ACTIVE, ["RUNNING/1"]),
    ("not wanted any more", want("STOPPED", 2), seen("RUNNING"), ACTIVE, ["STOPPING/1", "Stop"]),
    ("restart", want("RUNNING", 2), seen("RUNNING"), ACTIVE, ["STOPPING/1", "Stop"]),
    ("a stop did not work, try again", want("STOPPED", 2), seen("STOPPING"), ACTIVE, ["Stop"]),
    ("stopped, then started", want("RUNNING", 3), seen("STOPPING"), ABSENT, ["STARTING/3", "Start"]),
    # stopped once it has caught up
    ("reads on until it has caught up", want("DRAINED", 2), seen("RUNNING"), ACTIVE, []),
    ("had read all before that was asked", want("DRAINED", 2), seen("RUNNING"), replace(ACTIVE, read_until=NOW), []),
    ("has caught up", want("DRAINED", 2), seen("RUNNING"), CAUGHT_UP, ["STOPPING/1", "Stop"]),
    ("stops, caught up", want("DRAINED", 2), seen("STOPPING"), CAUGHT_UP, ["Stop"]),
    ("is stopped, caught up", want("DRAINED", 2), seen("STOPPING"), ABSENT, ["STOPPED/2"]),
    ("rests, caught up", want("DRAINED", 2), seen("STOPPED", 2), ABSENT, []),
    ("became active and reads on", want("DRAINED", 2), seen("STARTING"), ACTIVE, ["RUNNING/1"]),
    ("no longer waits to catch up", want("STOPPED", 3), seen("RUNNING"), ACTIVE, ["STOPPING/1", "Stop"]),
    ("failed before it had caught up", want("DRAINED", 2), seen("RUNNING"), FAILED, ["FAILED/2", "Forget"]),
    ("failed before, and stays so", want("DRAINED", 2), seen("FAILED", 2), ABSENT, []),
    ("ended before it had caught up", want("DRAINED", 2), seen("RUNNING"), ENDED, ["STOPPED/2", "Forget"]),
    # over
    ("ended by itself", want("RUNNING"), seen("RUNNING"), ENDED, ["COMPLETED/1", "Forget"]),
    ("ended while being stopped", want("STOPPED", 2), seen("STOPPING"), ENDED, ["STOPPED/2", "Forget"]),
    ("ended before a restart", want("RUNNING", 2), seen("RUNNING"), ENDED, ["STARTING/2", "Forget", "Start"]),
    ("failed once", want("RUNNING"), seen("RUNNING"), FAILED, ["BACKOFF/1", "Forget"]),
    ("failed at the start", want("RUNNING"), seen("STARTING"), FAILED, ["BACKOFF/1", "Forget"]),
    (
        "failed as often as allowed",
        want("RUNNING"),
        seen("RUNNING", failures=(EARLIER,)),
        FAILED,
        ["BACKOFF/1", "Forget"],
    ),
    ("failed too often", want("RUNNING"), seen("RUNNING", failures=(EARLIER,) * 2), FAILED, ["FAILED/1", "Forget"]),
    (
        "failed long ago does not count",
        want("RUNNING"),
        seen("RUNNING", failures=(LONG_AGO,) * 9),
        FAILED,
        ["BACKOFF/1", "Forget"],
    ),
    ("failed while being stopped", want("STOPPED", 2), seen("STOPPING"), FAILED, ["STOPPED/2", "Forget"]),
    ("failed before a restart", want("RUNNING", 2), seen("RUNNING"), FAILED, ["STARTING/2", "Forget", "Start"]),
]


@pytest.mark.parametrize(
    ("wanted", "observed", "live", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_transition(wanted: Desired, observed: Observed | None, live: Live, expected: list[str]) -> None:
    assert steps(wanted, observed, live) == expected


def recorded(wanted: Desired, observed: Observed, live: Live) -> Observed:
    (record,) = [
        step for step in plan({"s": wanted}, {"s": observed}, {"s": live}, HOST) if isinstance(step, RecordState)
    ]
    return record.observed


def test_a_failure_is_kept_with_its_time_and_the_pause_doubles() -> None:
    first = recorded(want("RUNNING"), seen("RUNNING"), FAILED)
    assert (first.failures, first.next_start_at) == ((BROKE,), NOW + timedelta(seconds=1))
    second = recorded(want("RUNNING"), first, FAILED)
    assert (len(second.failures), second.next_start_at) == (2, NOW + timedelta(seconds=2))
    third = recorded(want("RUNNING"), second, FAILED)
    assert (third.state, third.last_failure, third.next_start_at) == (StreamState.FAILED, BROKE, None)


def test_the_back_off_grows_to_its_limit() -> None:
    assert [backoff_s(n, LIMITS) for n in (1, 2, 3, 4, 7, 10_000)] == [1, 2, 4, 8, 60, 60]


def test_failures_survive_an_automatic_restart_and_end_with_a_persons() -> None:
    waiting = seen("BACKOFF", failures=(EARLIER,), next_start_at=NOW)
    assert recorded(want("RUNNING"), waiting, ABSENT).failures == (EARLIER,)
    assert recorded(want("RUNNING", 2), waiting, ABSENT).failures == ()


def test_with_no_restarts_allowed_the_first_failure_is_final() -> None:
    host = replace(HOST, limits=replace(LIMITS, max_restarts=0))
    record = plan({"s": want("RUNNING")}, {"s": seen("RUNNING")}, {"s": FAILED}, host)[0]
    assert isinstance(record, RecordState)
    assert record.observed.state is StreamState.FAILED


def test_running_carries_the_ids_of_the_query() -> None:
    running = recorded(want("RUNNING"), seen("STARTING", query_id=None, run_id=None), ACTIVE)
    assert (running.query_id, running.run_id, running.started_at) == ("q", "r", NOW)


@pytest.mark.parametrize("state", ["STOPPED", "FAILED", "COMPLETED"])
def test_a_new_host_takes_over_what_rests_without_changing_it(state: str) -> None:
    of_another = seen(state, host_id="other", failures=(EARLIER,))
    wanted = want("STOPPED" if state == "STOPPED" else "RUNNING")
    assert recorded(wanted, of_another, ABSENT) == replace(of_another, host_id="me")


def test_streams_that_the_host_does_not_own_are_left_alone() -> None:
    assert plan({"s": want("RUNNING")}, {}, {}, HOST) == ()
    assert plan({}, {"s": seen("RUNNING")}, {"s": ACTIVE}, HOST) == ()


# properties ----------------------------------------------------------------------------------------------------------

NAMES = ("a", "b", "c")
generations = st.integers(1, 3)
moments = st.integers(-700, 70).map(lambda seconds: NOW + timedelta(seconds=seconds))
failures = st.builds(StreamFailure, st.just("E"), st.just("m"), st.none(), moments)
wants = st.builds(
    Desired, st.just(""), st.sampled_from(DesiredState), generations, st.just("x"), st.just("ann"), st.just(NOW)
)
sights = st.builds(
    Observed,
    st.just(""),
    st.sampled_from(StreamState),
    st.sampled_from(["me", "other"]),
    generations,
    st.just(NOW),
    st.sampled_from([None, "q"]),
    st.sampled_from([None, "r", "old"]),
    next_start_at=st.none() | moments,
    failures=st.lists(failures, max_size=4).map(tuple),
)
lives = st.sampled_from([ABSENT, STARTING, ACTIVE, CAUGHT_UP, STOPPING, ENDED, FAILED])
World = tuple[dict[str, Desired], dict[str, Observed], dict[str, Live]]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    desired = {name: replace(draw(wants), name=name) for name in NAMES if draw(st.booleans())}
    observed = {name: replace(draw(sights), name=name) for name in NAMES if draw(st.booleans())}
    return desired, observed, {name: draw(lives) for name in NAMES if draw(st.booleans())}


def carry_out(actions: Iterable[Action], observed: dict[str, Observed], live: dict[str, Live]) -> None:
    """What a perfect host would do; refuses what makes no sense."""
    for action in actions:
        match action:
            case RecordState(after):
                observed[action.name] = after
            case Start(name):
                assert live[name].phase is Phase.ABSENT, "a start needs the place to be free"
                live[name] = STARTING
            case Stop(name):
                assert live[name].phase is Phase.ACTIVE, "only what is active can be stopped"
                live[name] = STOPPING
            case Forget(name):
                assert live[name].phase in (Phase.ENDED, Phase.FAILED), "only what is over can be forgotten"
                live[name] = ABSENT


@given(worlds())
def test_planning_again_after_carrying_out_gives_no_action(world: World) -> None:
    desired, observed, live = world
    carry_out(plan(desired, observed, live, HOST), observed, live)
    assert plan(desired, observed, live, HOST) == ()


@given(worlds())
def test_streams_do_not_influence_one_another(world: World) -> None:
    desired, observed, live = world
    alone = [plan(desired, observed, {name: live[name]}, HOST) for name in sorted(live)]
    assert plan(desired, observed, live, HOST) == tuple(action for actions in alone for action in actions)


@given(worlds(), st.data())
def test_every_stream_comes_to_what_is_wanted_once_nothing_fails(world: World, data: st.DataObject) -> None:
    """Within a few rounds in which starts succeed and stops end, the world rests at the wish (or at a known end)."""
    desired, observed, live = world
    for round_number in range(8):
        host = replace(HOST, now=NOW + timedelta(seconds=100 * round_number))
        carry_out(plan(desired, observed, live, host), observed, live)
        live.update({name: ACTIVE for name, it in live.items() if it.phase is Phase.STARTING})
        live.update({name: ABSENT for name, it in live.items() if it.phase is Phase.STOPPING})
    for name in desired.keys() & live.keys():
        drained = ("STOPPED", "FAILED", "RUNNING")  # RUNNING: it never catches up
        rests = {
            DesiredState.STOPPED: ("STOPPED",),
            DesiredState.RUNNING: ("RUNNING", "FAILED", "COMPLETED"),
            DesiredState.DRAINED: drained,
            DesiredState.DRAINED_THROUGH: drained,
        }
        assert observed[name].state in rests[desired[name].state]
        assert (live[name].phase is Phase.ACTIVE) == (observed[name].state is StreamState.RUNNING)
        assert live[name] is not CAUGHT_UP or desired[name].state is DesiredState.RUNNING
