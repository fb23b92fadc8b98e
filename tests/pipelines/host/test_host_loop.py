"""The host against a runner without Spark and a real store: what it starts, stops, records, loses and takes over."""

import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from backend.access import Actor
from backend.errors import StoreError
from backend.settings import load_settings
from backend.store.leases import StoreClock, stream_resource
from backend.store.store import ControlStore
from backend.stream_model.stream import StreamFailure, StreamState
from backend.streams.status import statuses
from backend.work import elapsed
from pipelines.host.__main__ import CLOSE_S, JOBS_LIMIT_S, close
from pipelines.host.metrics import HostMetrics
from pipelines.host.ownership import RAN_OUT
from pipelines.host.progress import ProgressWriter
from pipelines.host.stream_host import Loop, StreamHost, declare, new_heartbeat
from tests.pipelines.host.test_host_metrics import event
from tests.worlds.hosts.in_memory import (
    NAMES,
    TTL_S,
    Runner,
    all_running,
    all_tick_until,
    ask,
    bury,
    declaration,
    host_on,
    running,
    running_host,
    states,
    table_away,
    tick_until,
)
from tests.worlds.processes import wait_until
from tests.worlds.stopwatch import Stopwatch


def test_failures_are_kept_and_counted_and_a_stream_that_keeps_failing_waits_for_a_person(store: ControlStore) -> None:
    runner, metrics = Runner(), HostMetrics()
    host = host_on(store, runner)
    host.recorded = metrics.observed
    runner.broken = {"bronze"}

    def count(kind: str, stream: str) -> float | None:
        return metrics.registry.get_sample_value(f"weir_stream_{kind}_total", {"stream": stream})

    assert count("failures", "silver") is None  # nobody knows yet
    tick_until(host, lambda: states(store) == {"bronze": "FAILED", "silver": "RUNNING", "gold": "RUNNING"})
    failures = store.observed()["bronze"].failures
    assert [(each.error_class, each.message) for each in failures] == [("UNRESOLVED_COLUMN", "no such column")] * 3
    runner.fail("gold")
    tick_until(host, lambda: count("starts", "gold") == 2 and states(store)["gold"] == "RUNNING")
    (failure,) = store.observed()["gold"].failures
    assert (failure.error_class, failure.message, failure.batch_id) == ("SparkException", "boom", 4)
    runner.broken.clear()
    for _ in range(3):
        host.tick()
    assert states(store) == {"bronze": "FAILED", "silver": "RUNNING", "gold": "RUNNING"}
    assert (count("starts", "bronze"), count("failures", "bronze")) == (3, 3)  # max_restarts and the first
    assert (count("starts", "silver"), count("failures", "silver")) == (1, 0)
    assert (count("starts", "gold"), count("failures", "gold")) == (2, 1)
    assert metrics.registry.get_sample_value("weir_stream_batch_duration_seconds_count", {"stream": "silver"}) == 0
    ask(store, "bronze", "start")
    tick_until(host, all_running(store))
    assert store.observed()["bronze"].failures == ()


def test_running_is_not_said_before_the_query_is_active(store: ControlStore) -> None:
    runner, host = Runner(), None
    runner.slow_start["silver"] = threading.Event()
    host = host_on(store, runner)
    tick_until(host, lambda: states(store) == {"bronze": "RUNNING", "silver": "STARTING", "gold": "RUNNING"})
    runner.slow_start["silver"].set()
    tick_until(host, all_running(store))
    assert store.observed()["gold"].query_id == "query-gold"
    assert store.hosts()[0].host_id == store.observed()["gold"].host_id


def test_a_stop_that_takes_long_does_not_hold_up_the_others(store: ControlStore) -> None:
    host, runner = running_host(store)
    runner.slow_stop["bronze"] = threading.Event()
    ask(store, "bronze", "stop")
    tick_until(host, lambda: states(store)["bronze"] == "STOPPING")
    ask(store, "gold", "stop")
    tick_until(host, lambda: states(store) == {"bronze": "STOPPING", "gold": "STOPPED", "silver": "RUNNING"})
    runner.slow_stop["bronze"].set()
    tick_until(host, lambda: states(store)["bronze"] == "STOPPED")
    assert set(runner.active) == {"silver"}


def test_a_stream_whose_stop_failed_is_stopped_again_and_not_said_to_rest(store: ControlStore) -> None:
    host, runner = running_host(store)
    runner.hanging = {"bronze", "silver"}
    ask(store, "bronze", "stop")
    ask(store, "silver", "restart")
    tick_until(host, lambda: min(map(runner.cuts.count, runner.hanging)) >= 3)
    assert states(store) == {"bronze": "STOPPING", "silver": "STOPPING", "gold": "RUNNING"}
    assert runner.started.count("silver") == 1
    runner.hanging = set()
    tick_until(host, lambda: states(store) == {"bronze": "STOPPED", "silver": "RUNNING", "gold": "RUNNING"})


def test_a_drained_stream_stops_once_it_has_read_what_was_there(store: ControlStore) -> None:
    read: dict[str, datetime] = {}
    host = host_on(store, Runner())
    host.read_until = read.get
    tick_until(host, all_running(store))
    read["silver"] = datetime.now(UTC)

    ask(store, "silver", "drain")
    for _ in range(5):
        host.tick()
    assert states(store) == dict.fromkeys(NAMES, "RUNNING"), "what came since then is not read yet"

    read["silver"] = datetime.now(UTC)
    tick_until(host, lambda: states(store)["silver"] == "STOPPED")
    for _ in range(5):
        host.tick()
    assert states(store) == {"bronze": "RUNNING", "silver": "STOPPED", "gold": "RUNNING"}

    ask(store, "silver", "start")
    tick_until(host, all_running(store))


def test_a_stream_of_which_nobody_can_say_anything_holds_up_no_other(store: ControlStore) -> None:
    host, runner = running_host(store)
    runner.mute = {"bronze"}
    ask(store, "bronze", "stop")
    ask(store, "gold", "stop")
    tick_until(host, lambda: states(store) == {"bronze": "RUNNING", "silver": "RUNNING", "gold": "STOPPED"})
    runner.mute.clear()
    tick_until(host, lambda: states(store)["bronze"] == "STOPPED")


def test_shutting_down_leaves_the_wishes_and_frees_each_lease_as_soon_as_its_stream_rests(store: ControlStore) -> None:
    host, runner = running_host(store)
    wishes = store.desired()
    runner.slow_stop["gold"] = threading.Event()
    closing = threading.Thread(target=host.shut_down, args=(60,))
    closing.start()
    wait_until(lambda: set(store.leases()) == {stream_resource("gold")}, "the others' leases are free")
    assert closing.is_alive()
    assert states(store) == {"bronze": "STOPPED", "silver": "STOPPED", "gold": "RUNNING"}
    runner.slow_stop["gold"].set()
    closing.join(60)
    assert (states(store), runner.active, store.leases()) == (dict.fromkeys(NAMES, "STOPPED"), {}, {})
    assert store.desired() == wishes


def test_shutting_down_does_not_wait_for_ever(store: ControlStore) -> None:
    host, runner = running_host(store)
    runner.slow_stop["gold"] = threading.Event()
    host.shut_down(0.1)
    assert set(runner.active) == {"gold"}
    assert set(store.leases()) == {stream_resource("gold")}, "what still runs keeps its lease until it expires"
    runner.slow_stop["gold"].set()


def test_batches_get_what_is_set_to_end_and_the_host_beats_meanwhile(store: ControlStore) -> None:
    host, runner = running_host(store, watch := Stopwatch())
    runner.slow_stop["gold"] = threading.Event()
    limits = dict[str, float]()
    stop = runner.stop
    runner.stop = lambda name, *, timeout_s: (limits.update({name: timeout_s}), stop(name, timeout_s=timeout_s))[1]  # type: ignore[method-assign]
    closing = threading.Thread(target=host.shut_down, args=(5 + CLOSE_S - JOBS_LIMIT_S,))
    closing.start()
    wait_until(lambda: len(limits) == 3, "all are asked")
    before = store.hosts()[0].beat_at
    watch.forward(TTL_S / 4)  # longer than a heartbeat may be old, had it one alone
    wait_until(lambda: not closing.is_alive() or store.hosts()[0].beat_at > before, "it says that it lives")
    runner.slow_stop["gold"].set()
    closing.join(60)
    assert set(limits.values()) == {5}, "host.stop_timeout_s, whole"


def test_a_second_host_waits_and_takes_over_after_the_lease_expires(store: ControlStore) -> None:
    first, second = host_on(store, Runner()), host_on(store, waiting := Runner())
    tick_until(first, all_running(store))
    with capture_logs() as lines:
        for _ in range(3):
            second.tick()
    refused = [line for line in lines if line["event"] == "stream_refused"]
    assert {line["stream"]: line["owner"] for line in refused} == dict.fromkeys(NAMES, first.heartbeat.host_id)
    assert len(refused) == 3, "said once a stream, not each second"
    assert waiting.started == []
    bury(first)
    tick_until(second, lambda: set(waiting.active) == set(NAMES))
    tick_until(second, lambda: {seen.host_id for seen in store.observed().values()} == {second.heartbeat.host_id})


def test_a_stream_starts_with_what_a_person_set_also_after_a_failure_and_on_another_host(store: ControlStore) -> None:
    slower = {"trigger": "1 minute"}
    host, runner = running_host(store)
    assert list(runner.overrides.values()) == [{}, {}, {}]
    now, given = datetime.now(UTC), {"gold": slower}
    store.request_all(("gold",), "restart", reason="test", actor=Actor("ann"), now=now, overrides=given)
    tick_until(host, lambda: runner.overrides["gold"] == slower and all_running(store)())
    runner.overrides.clear()
    runner.fail("gold")
    tick_until(host, lambda: runner.overrides == {"gold": slower} and all_running(store)())
    host.shut_down(60)
    tick_until(host_on(store, other := Runner()), all_running(store))
    assert (other.overrides["gold"], other.overrides["silver"]) == (slower, {})


def test_a_forged_row_keeps_no_other_stream_from_its_wish(store: ControlStore) -> None:
    engine = sa.create_engine(store.shown_url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE desired SET state = 'PAUSED' WHERE name = 'silver'"))
        connection.execute(sa.text("UPDATE desired SET overrides = '{\"half\": ' WHERE name = 'gold'"))
        connection.execute(sa.text("UPDATE declaration SET body = '7' WHERE name = 'silver'"))
    host = host_on(store, runner := Runner())
    tick_until(host, lambda: states(store) == {"bronze": "RUNNING"})
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE desired SET overrides = '{}' WHERE name = 'gold'"))
        connection.execute(sa.text("UPDATE desired SET state = 'RUNNING' WHERE name = 'silver'"))
    engine.dispose()
    tick_until(host, all_running(store))
    assert sorted(runner.started) == sorted(NAMES)


@pytest.mark.ci
def test_a_host_that_joins_gets_its_share_and_what_it_leaves_is_taken_over(store: ControlStore) -> None:
    (first, _), second = running_host(store, watch := Stopwatch()), host_on(store, Runner(), watch)
    for _ in range(10):
        second.tick(), first.tick()
    assert running(second) == set(), "not before it has been there for two leases"
    for _ in range(5):  # renewed meanwhile
        watch.forward(TTL_S / 2)
        second.tick(), first.tick()
    all_tick_until([first, second], lambda: len(running(first)) == 2 and len(running(second)) == 1)
    assert running(first) | running(second) == set(NAMES)
    assert first.runner.cuts == [], "after its batch"  # type: ignore[attr-defined]
    starts = len(first.runner.started) + len(second.runner.started)  # type: ignore[attr-defined]
    for _ in range(10):
        watch.forward(TTL_S / 2)
        second.tick(), first.tick()
    assert len(first.runner.started) + len(second.runner.started) == starts == 4, "no more moves"  # type: ignore[attr-defined]
    bury(first)
    tick_until(second, lambda: running(second) == set(NAMES))
    assert {seen.host_id for seen in store.observed().values()} == {second.heartbeat.host_id}


@pytest.mark.ci
def test_a_stream_that_comes_back_is_what_the_other_host_left(store: ControlStore) -> None:
    (first, _), second = running_host(store, watch := Stopwatch()), host_on(store, Runner(), watch)
    second.runner.broken = set(NAMES)  # type: ignore[attr-defined]
    for _ in range(5):
        watch.forward(TTL_S / 2)
        second.tick(), first.tick()
    all_tick_until([first, second], lambda: "FAILED" in states(store).values())
    (failed,) = [name for name, state in states(store).items() if state == "FAILED"]
    second.shut_down(60)
    all_tick_until([first], lambda: store.observed()[failed].host_id == first.heartbeat.host_id)
    for _ in range(5):
        first.tick()
    assert states(store)[failed] == "FAILED", "it waits for a person"
    assert first.runner.started.count(failed) == 1  # type: ignore[attr-defined]


def test_a_stream_runs_only_on_a_host_that_has_its_tags(store: ControlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = (declaration("bronze"), declaration("silver", "gpu"), declaration("gold", "gpu eu"))
    declare(store, declared, datetime.now(UTC))

    def host_with(*tags: str) -> StreamHost:
        heartbeat = new_heartbeat(datetime.now(UTC), tags)
        return StreamHost(load_settings(), store, Runner(), declared, heartbeat, StoreClock(store.now))

    def because(name: str) -> str:
        found = statuses(store, now=store.now(), heartbeat_stale_s=15)
        return next(each.because for each in found if each.declaration.name == name)

    plain = host_with("eu")
    tick_until(plain, lambda: states(store) == {"bronze": "RUNNING"})
    assert because("silver") == "silver has not been taken up by any host yet; no host with the tag gpu is up"
    assert because("gold") == "gold has not been taken up by any host yet; no host with the tags eu and gpu is up"
    gpu = host_with("gpu")
    all_tick_until([plain, gpu], lambda: states(store) == {"bronze": "RUNNING", "silver": "RUNNING"})
    assert "tag" not in because("silver")
    both = host_with("gpu", "eu")
    all_tick_until([plain, gpu, both], all_running(store))
    assert [running(host) for host in (plain, gpu, both)] == [{"bronze"}, {"silver"}, {"gold"}]
    both.shut_down(60)
    all_tick_until([plain, gpu], lambda: states(store)["gold"] == "STOPPED")
    assert running(plain) | running(gpu) == {"bronze", "silver"}


def test_a_host_takes_no_more_than_it_has_room_for(store: ControlStore) -> None:
    def small_host() -> StreamHost:
        heartbeat, declared = new_heartbeat(datetime.now(UTC), max_streams=2), tuple(map(declaration, NAMES))
        return StreamHost(load_settings(), store, Runner(), declared, heartbeat, StoreClock(store.now))

    first = small_host()
    tick_until(first, lambda: len(running(first)) == 2 and len(states(store)) == 2)
    for _ in range(3):
        first.tick()
    (waits,) = set(NAMES) - running(first)
    second = small_host()
    all_tick_until([first, second], all_running(store))
    assert running(second) == {waits}


def test_a_host_that_lost_its_leases_cuts_its_queries_and_writes_no_more(store: ControlStore) -> None:
    """Its stopwatch stood still, as if its machine had slept: the store alone tells it."""
    stood = [elapsed()]
    first = host_on(store, losing := Runner(), lambda: stood[0])
    second = host_on(store, Runner())
    tick_until(first, all_running(store))
    bury(first)
    tick_until(second, lambda: set(second.runner.active) == set(NAMES))  # type: ignore[attr-defined]
    tick_until(second, all_running(store))
    stood[0] += TTL_S / 2  # a renewal is due, and nothing has run out
    tick_until(first, lambda: not losing.active)
    first.tick()
    assert sorted(losing.cuts) == sorted(NAMES)
    assert {seen.host_id for seen in store.observed().values()} == {second.heartbeat.host_id}


def test_a_host_that_was_frozen_cuts_its_queries_before_it_asks_the_store(store: ControlStore) -> None:
    host, runner = running_host(store, watch := Stopwatch())
    tokens = {name: lease.token for name, lease in store.leases().items()}
    runs = {name: seen.run_id for name, seen in store.observed().items()}
    watch.forward(TTL_S * 0.9)
    with capture_logs() as lines:
        host.tick()
        assert said(lines, "stream_")[: len(NAMES)] == ["stream_lost"] * len(NAMES)
        tick_until(host, lambda: all_running(store)() and not any(_runs(store).items() & runs.items()))
    assert sorted(runner.cuts) == sorted(NAMES)
    assert {name: lease.token for name, lease in store.leases().items()} == {name: tokens[name] + 1 for name in tokens}
    assert "COMPLETED" not in {line.get("state") for line in lines}


def _runs(store: ControlStore) -> dict[str, str | None]:
    return {name: seen.run_id for name, seen in store.observed().items()}


def test_queries_are_held_for_less_than_their_leases_last(store: ControlStore) -> None:
    host, runner = running_host(store, watch := Stopwatch())
    held = dict(runner.until)
    for lease in store.leases().values():
        left_s = (lease.expires_at - store.now()).total_seconds()
        assert held[lease.resource.removeprefix("stream/")] - elapsed() < left_s
    watch.forward(TTL_S / 2)
    host.tick()
    assert all(runner.until[name] > held[name] for name in NAMES)


def test_a_silent_store_stops_nothing_and_is_said_once(
    store: ControlStore,
) -> None:
    host, runner = running_host(store)
    stop = threading.Event()
    metrics = HostMetrics()
    loop = threading.Thread(target=Loop(host, stop, interval_s=0.02, metrics=metrics).run)
    with capture_logs() as lines:
        loop.start()
        with table_away(store, "desired"):
            wait_until(lambda: said(lines, "store_"), "the host says that the store is silent")
            with pytest.raises(StoreError):
                store.desired()
            assert set(runner.active) == set(NAMES)
            assert metrics.registry.get_sample_value("weir_host_store_up") == 0
        ask(store, "gold", "stop")
        wait_until(lambda: states(store)["gold"] == "STOPPED", "the stream is stopped")
        stop.set()
        loop.join(60)
    assert metrics.registry.get_sample_value("weir_host_store_up") == 1
    assert states(store) == {"bronze": "RUNNING", "silver": "RUNNING", "gold": "STOPPED"}
    assert said(lines, "store_") == ["store_silent", "store_back"]


def test_a_store_that_is_silent_for_longer_than_leases_last_has_the_streams_cut_and_run_anew(
    store: ControlStore,
) -> None:
    host, runner = running_host(store, watch := Stopwatch())
    with capture_logs() as lines:
        with table_away(store, "lease"):
            watch.forward(TTL_S / 2)
            with pytest.raises(StoreError):
                host.tick()
            assert set(runner.active) == set(NAMES), "their leases last"
            watch.forward(TTL_S / 2)
            with pytest.raises(StoreError):
                host.tick()
            wait_until(lambda: not runner.active, "all are cut")
        tick_until(host, lambda: len(runner.active) == 3 and all_running(store)())
    assert {line["reason"] for line in lines if line["event"] == "stream_lost"} == {RAN_OUT}
    assert "COMPLETED" not in {line.get("state") for line in lines}


def said(lines: Sequence[Mapping[str, object]], prefix: str) -> list[str]:
    return [event for line in list(lines) if (event := str(line["event"])).startswith(prefix)]


def test_a_dead_jvm_ends_the_process_with_an_error(store: ControlStore) -> None:
    host, runner = running_host(store)
    runner.lost = True
    assert Loop(host, threading.Event(), interval_s=0.01).run() == 1
    assert StreamState.FAILED not in {seen.state for seen in store.observed().values()}


def test_after_a_dead_jvm_the_progress_that_was_told_is_written(store: ControlStore) -> None:
    runner, writer = Runner(), ProgressWriter(store)
    host = host_on(store, runner)
    tick_until(host, all_running(store))
    runner.lost = True
    writer.start()
    writer.put(event(7, name="gold"))
    with capture_logs() as lines:
        close(lambda: host.shut_down(60), writer.close, lambda: [][0])
    assert [batch.batch_id for batch in store.progress("gold")] == [7]
    assert said(lines, "host_") == ["host_stopping", "host_close_failed", "host_close_failed", "host_stopped"]


# what is a host's own -------------------------------------------------------------------------------------------------

WRONG_PATH = StreamFailure(
    "SparkException",
    "Wrong basePath file:/b/landing for the root path: file:/a/landing/1.json",
    None,
    datetime.now(UTC),
)


class Elsewhere(Runner):
    """A host whose folder has another path: `bad` fails there as soon as it has started."""

    def __init__(self, bad: str, failure: StreamFailure = WRONG_PATH) -> None:
        super().__init__()
        self.bad, self.failure = bad, failure

    def poll(self, name: str):  # type: ignore[no-untyped-def]
        if name == self.bad and name in self.active:
            del self.active[name]
            self.failures[name] = self.failure
        return super().poll(name)


def on(store: ControlStore, name: str) -> str:
    return store.leases()[stream_resource(name)].owner


def two_hosts(store: ControlStore, failure: StreamFailure = WRONG_PATH) -> tuple[StreamHost, StreamHost]:
    """The first has the folder elsewhere and all streams; the second has just come."""
    wrong, right = host_on(store, Elsewhere("silver", failure)), host_on(store, Runner())
    wrong.tick()
    right.beat()
    return wrong, right


def test_it_runs_on_the_host_that_can_and_stays_there(store: ControlStore) -> None:
    wrong, right = two_hosts(store)
    all_tick_until([wrong, right], all_running(store))
    assert on(store, "silver") == right.heartbeat.host_id
    assert running(right) == {"silver"}, "the others did not move for it"
    for _ in range(5):
        wrong.tick()
        right.tick()
    assert wrong.runner.started.count("silver") == 1  # type: ignore[attr-defined]
    assert store.hosts()[0].streams, "both say what they can run"
    assert "silver" not in {host.host_id: host.streams for host in store.hosts()}[wrong.heartbeat.host_id]


def test_what_any_host_would_meet_stays_where_it_failed(store: ControlStore) -> None:
    wrong, right = two_hosts(store, StreamFailure("USER_RAISED_EXCEPTION", "division by zero", None, datetime.now(UTC)))
    all_tick_until([wrong, right], lambda: states(store)["silver"] == "FAILED")
    assert on(store, "silver") == wrong.heartbeat.host_id


def test_once_each_host_has_tried_it_is_failed_and_asked_for_anew_it_is_tried_again(
    store: ControlStore,
) -> None:
    hosts = [host_on(store, Elsewhere("silver")) for _ in range(2)]
    hosts[0].tick()
    hosts[1].beat()
    all_tick_until(hosts, lambda: states(store)["silver"] == "FAILED")
    tried = [host.runner.started.count("silver") for host in hosts]  # type: ignore[attr-defined]
    assert tried == [1, 2]
    ask(store, "silver", "start")
    all_tick_until(hosts, lambda: hosts[0].runner.started.count("silver") == 2)  # type: ignore[attr-defined]


def test_when_the_host_that_can_is_gone_it_is_not_left_alone(store: ControlStore) -> None:
    wrong, right = two_hosts(store)
    all_tick_until([wrong, right], all_running(store))
    bury(right)
    tick_until(wrong, lambda: states(store)["silver"] == "FAILED")
    assert on(store, "silver") == wrong.heartbeat.host_id
