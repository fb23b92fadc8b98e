"""What a host does with a stream: the reconciler as a transition table and as properties, and when a drain is done."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from backend.access import Actor
from backend.lake.lake import Lake
from backend.settings import HostSettings, Settings, load_settings
from backend.store.leases import stream_resource
from backend.store.store import ControlStore
from backend.stream_model.stream import (
    Desired,
    DesiredState,
    Observed,
    StreamFailure,
    StreamInput,
    StreamState,
    TopicEnds,
)
from backend.streams.reconcile import (
    Action,
    Forget,
    Host,
    Live,
    RecordState,
    Start,
    Stop,
    backoff_s,
    plan,
)
from pipelines.host.backlogs import DrainWatch
from tests.worlds.lake import builders
from tests.worlds.store.values import leased
from tests.worlds.streams.checkpoints import delta_offset, write_checkpoint
from tests.worlds.streams.values import stream

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LIMITS = HostSettings(max_restarts=2, restart_window_s=600, backoff_initial_s=1, backoff_max_s=60)
HOST = Host("me", LIMITS, NOW)
SOON = NOW + timedelta(milliseconds=1)
BROKE = StreamFailure("SparkException", "boom", 3, NOW)
EARLIER = replace(BROKE, failed_at=NOW - timedelta(seconds=10))
LONG_AGO = replace(BROKE, failed_at=NOW - timedelta(seconds=601))

ABSENT, STARTING, STOPPING, ENDED = (
    Live(StreamState(name)) for name in ("STOPPED", "STARTING", "STOPPING", "COMPLETED")
)
ACTIVE = Live(StreamState.RUNNING, "q", "r")
FAILED = Live(StreamState.FAILED, "q", "r", BROKE)
RECURS = replace(FAILED, failure=replace(BROKE, message="nothing orders two changes of one key"))
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
    ("back-off not over", want("RUNNING"), seen("BACKOFF", next_start_at=SOON), ABSENT, []),
    ("back-off over", want("RUNNING"), seen("BACKOFF", next_start_at=NOW), ABSENT, ["STARTING/1", "Start"]),
    (
        "the back-off is cut short",
        want("RUNNING", 2),
        seen("BACKOFF", next_start_at=SOON),
        ABSENT,
        ["STARTING/2", "Start"],
    ),
    ("stopped in back-off", want("STOPPED", 2), seen("BACKOFF", next_start_at=SOON), ABSENT, ["STOPPED/2"]),
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
    ("failed as every start will", want("RUNNING"), seen("RUNNING"), RECURS, ["FAILED/1", "Forget"]),
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


def recorded(wanted: Desired, observed: Observed, live: Live, host: Host = HOST) -> Observed:
    actions = plan({"s": wanted}, {"s": observed}, {"s": live}, host)
    (record,) = [action for action in actions if isinstance(action, RecordState)]
    return record.observed


def test_a_failure_is_kept_with_its_time_and_the_pause_doubles_up_to_its_limit() -> None:
    first = recorded(want("RUNNING"), seen("RUNNING"), FAILED)
    assert (first.failures, first.next_start_at) == ((BROKE,), NOW + timedelta(seconds=1))
    second = recorded(want("RUNNING"), first, FAILED)
    assert (len(second.failures), second.next_start_at) == (2, NOW + timedelta(seconds=2))
    third = recorded(want("RUNNING"), second, FAILED)
    assert (third.state, third.last_failure, third.next_start_at) == (StreamState.FAILED, BROKE, None)
    assert [backoff_s(n, LIMITS) for n in (1, 2, 3, 4, 7, 10_000)] == [1, 2, 4, 8, 60, 60]
    never = replace(HOST, limits=LIMITS.model_copy(update={"max_restarts": 0}))
    assert recorded(want("RUNNING"), seen("RUNNING"), FAILED, never).state is StreamState.FAILED


@pytest.mark.parametrize("state", ["STOPPED", "FAILED", "COMPLETED"])
def test_a_new_host_takes_over_what_rests_without_changing_it(state: str) -> None:
    of_another = seen(state, host_id="other", failures=(EARLIER,))
    wanted = want("STOPPED" if state == "STOPPED" else "RUNNING")
    assert recorded(wanted, of_another, ABSENT) == replace(of_another, host_id="me")


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
                assert live[name].state is StreamState.STOPPED, "a start needs the place to be free"
                live[name] = STARTING
            case Stop(name):
                assert live[name].state is StreamState.RUNNING, "only what is active can be stopped"
                live[name] = STOPPING
            case Forget(name):
                over = (StreamState.COMPLETED, StreamState.FAILED)
                assert live[name].state in over, "only what is over can be forgotten"
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
        live.update({name: ACTIVE for name, it in live.items() if it.state is StreamState.STARTING})
        live.update({name: ABSENT for name, it in live.items() if it.state is StreamState.STOPPING})
    for name in desired.keys() & live.keys():
        drained = ("STOPPED", "FAILED", "RUNNING")  # RUNNING: it never catches up
        rests = {
            DesiredState.STOPPED: ("STOPPED",),
            DesiredState.RUNNING: ("RUNNING", "FAILED", "COMPLETED"),
            DesiredState.DRAINED: drained,
            DesiredState.DRAINED_THROUGH: drained,
        }
        assert observed[name].state in rests[desired[name].state]
        assert (live[name].state is StreamState.RUNNING) == (observed[name].state is StreamState.RUNNING)
        assert live[name] is not CAUGHT_UP or desired[name].state is DesiredState.RUNNING


A_MOMENT = timedelta(seconds=0.5)
ANN = Actor("ann")


FEEDS = stream("bronze", sink_table="bronze/events")


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(home=tmp_path, lake={"roots": [str(tmp_path / "lake")]})


@pytest.fixture
def store(settings: Settings) -> Iterator[ControlStore]:
    opened = ControlStore.open(settings)
    yield opened
    opened.close()


@pytest.fixture
def bronze(tmp_path: Path) -> Path:
    return tmp_path / "lake" / "bronze" / "events"


def write(path: Path) -> None:
    builders.write(path, {"id": [1, 2, 3]})


def table(path: Path) -> StreamInput:
    return StreamInput("table", "bronze/events", str(path))


def drained(store: ControlStore, settings: Settings, *inputs: StreamInput, **more: object) -> Desired:
    """A stream `silver` over these sources that was asked to drain."""
    place = str(settings.home / "checkpoints" / "silver")
    store.declare([stream("silver", *inputs, checkpoint_location=place, **more)], now=now())
    return store.request("silver", "drain", reason="a move", actor=ANN, now=now())


def id_of(table: Path) -> str:
    return str(DeltaTable(table).metadata().id)


def reached(settings: Settings, *offsets: str | None) -> None:
    """The stream's checkpoint ends here."""
    write_checkpoint(settings.home / "checkpoints" / "silver", {7: list(offsets)})


def read_until(store: ControlStore, settings: Settings, idle_at: datetime | None = None) -> datetime | None:
    watch = DrainWatch(settings, Lake(settings), store, lambda _: idle_at, now)
    watch.look()
    return watch.read_until("silver")


def test_a_table_is_read_up_to_its_oldest_unread_commit(store: ControlStore, settings: Settings, bronze: Path) -> None:
    for _ in range(2):
        write(bronze)
    asked_at = drained(store, settings, table(bronze)).requested_at
    write(bronze)  # it goes on
    table_id, lake = id_of(bronze), Lake(settings)
    written = {commit.version: commit.committed_at for commit in lake.history(lake.find("events"))}

    reached(settings, delta_offset(table_id, 1))
    assert read_until(store, settings) == written[1] < asked_at, "version 1 was there, and is not read"
    reached(settings, delta_offset(table_id, 2))
    assert read_until(store, settings) == written[2] > asked_at, "version 2 came later"
    reached(settings, delta_offset(table_id, 3))
    started = now()
    until = read_until(store, settings)
    assert until >= started, "nothing waits"


def test_a_topic_is_read_up_to_ends_told_after_the_request(store: ControlStore, settings: Settings) -> None:
    asked_at = drained(store, settings, StreamInput("kafka", "orders", "")).requested_at
    idle_at = asked_at + timedelta(minutes=1)  # Spark leaves records to wait, and says that it is idle
    watch = DrainWatch(settings, Lake(settings), store, lambda _: idle_at, now)

    def tell(end: int, after_s: float) -> datetime:
        at = asked_at + timedelta(seconds=after_s)
        first, ends = {"orders": {0: 0}}, {"orders": {0: end}}
        store.note_ends(TopicEnds("silver", "orders", at, firsts=first, ends=ends, starts=first))
        watch.look()
        return at

    def seen(read: int) -> datetime | None:
        reached(settings, json.dumps({"orders": {"0": read}}))
        watch.look()
        return watch.read_until("silver")

    before = tell(80, -1)
    assert seen(70) is None
    assert seen(80) == before < asked_at, "80 were there before the request: how many at the request nobody said"
    mark = tell(100, 1)
    assert seen(90) is None
    tell(300, 2)
    assert seen(100) == mark > asked_at


def test_what_cannot_be_read_is_not_said_to_be_read(store: ControlStore, settings: Settings, bronze: Path) -> None:
    asked_at = drained(store, settings, table(bronze)).requested_at
    reached(settings, delta_offset("gone", 3))
    assert read_until(store, settings) is None
    idle_at = asked_at + timedelta(seconds=3)
    assert read_until(store, settings, idle_at) == pytest.approx(idle_at, abs=A_MOMENT), "Spark found nothing more"


def test_sparks_machines_clock_is_held_against_the_stores(store: ControlStore, settings: Settings) -> None:
    asked_at = drained(store, settings, StreamInput("table", "bronze/events", "/gone")).requested_at
    hour = timedelta(hours=1)
    watch = DrainWatch(settings, Lake(settings), store, lambda _: asked_at + hour, lambda: now() - hour)
    watch.look()
    assert watch.read_until("silver") == pytest.approx(asked_at, abs=A_MOMENT), "this machine is an hour ahead"


def test_made_up_rows_do_not_wait_nor_does_what_nobody_drains(store: ControlStore, settings: Settings) -> None:
    asked_at = drained(store, settings, StreamInput("rate", "rate", "")).requested_at
    until = read_until(store, settings)
    assert until > asked_at
    store.request("silver", "start", reason="go on", actor=ANN, now=now())
    assert read_until(store, settings) is None


def test_drained_through_it_waits_for_what_feeds_it(store: ControlStore, settings: Settings, bronze: Path) -> None:
    write(bronze)
    drained(store, settings, table(bronze), source_tables=("bronze/events",))
    store.declare([FEEDS], now=now())
    store.request("bronze", "drain through", reason="a move", actor=ANN, now=now())
    table_id = id_of(bronze)
    reached(settings, delta_offset(table_id, 1))
    assert read_until(store, settings) is not None, "drained alone it waits for nobody"
    names = ("bronze", "silver")
    feeding, reading = store.request_all(names, "drain through", reason="a move", actor=ANN, now=now())
    assert (feeding.state, reading.drains) == (DesiredState.DRAINED_THROUGH, True)
    lease = leased(store, stream_resource("bronze"), "host")

    def bronze_is(state: StreamState, generation: int = feeding.generation) -> None:
        store.observe(Observed("bronze", state, "host", generation, now()), token=lease.token)

    assert read_until(store, settings) is None, "nobody has seen what feeds it"
    bronze_is(StreamState.RUNNING)
    assert read_until(store, settings) is None, "all is read, and more may come"
    bronze_is(StreamState.STOPPED, feeding.generation - 1)
    assert read_until(store, settings) is None, "it was stopped before that was asked"
    write(bronze)
    bronze_is(StreamState.STOPPED)
    assert read_until(store, settings) is None, "its last rows are not read"
    reached(settings, delta_offset(table_id, 2))
    rested_at, until = store.observed()["bronze"].observed_at, read_until(store, settings)
    assert until > rested_at
    bronze_is(StreamState.FAILED)
    assert read_until(store, settings) is not None, "one that failed brings no more"
