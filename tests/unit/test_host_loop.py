"""The host against a runner without Spark and a real store: what it starts, stops, records, loses and takes over."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from backend.errors import StoreError
from backend.settings import load_settings
from backend.store.leases import stream_resource
from backend.store.store import ControlStore
from backend.streams.model import StreamDeclaration, StreamState
from pipelines.host.__main__ import Loop
from pipelines.host.fleet import utc_now
from pipelines.host.metrics import HostMetrics
from pipelines.host.stream_host import StreamHost, declare, new_heartbeat
from pipelines.spark.failures import SparkLostError, StreamStartError
from pipelines.spark.runtime import QueryFailure, QueryState, RunningQuery
from tests.processes import wait_until

NAMES = ("bronze", "silver", "gold")


def declaration(name: str) -> StreamDeclaration:
    return StreamDeclaration(name, "", "x", f"/l/{name}", name, (), None, 1_000, f"/c/{name}")


class Runner:
    """Queries that exist in memory; `slow_stop` holds up the stop of one stream, `broken` refuses starts."""

    def __init__(self) -> None:
        self.active: dict[str, RunningQuery] = {}
        self.failures: dict[str, QueryFailure] = {}
        self.broken: set[str] = set()
        self.slow_stop: dict[str, threading.Event] = {}
        self.slow_start: dict[str, threading.Event] = {}
        self.started: list[str] = []
        self.cuts: list[str] = []
        self.lost = False

    def start(self, name: str) -> RunningQuery:
        if name in self.slow_start:
            self.slow_start[name].wait(10)
        if name in self.broken:
            raise StreamStartError("no such column", error_class="UNRESOLVED_COLUMN")
        self.started.append(name)
        self.failures.pop(name, None)
        self.active[name] = RunningQuery(name, f"query-{name}", f"run-{len(self.started)}")
        return self.active[name]

    def stop(self, name: str, *, timeout_s: float) -> None:
        if name in self.slow_stop:
            self.slow_stop[name].wait(10)
        self.active.pop(name, None)

    def cut(self, name: str) -> None:
        self.cuts.append(name)
        self.active.pop(name, None)

    def poll(self, name: str) -> QueryState:
        if self.lost:
            raise SparkLostError("gone")
        query = self.active.get(name)
        if query is None:
            return QueryState(active=False, batch_id=4, failure=self.failures.get(name))
        return QueryState(active=True, query_id=query.query_id, run_id=query.run_id)

    def fail(self, name: str) -> None:
        del self.active[name]
        self.failures[name] = QueryFailure("SparkException", "boom")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlStore]:
    monkeypatch.setenv("WEIR_HOME", str(tmp_path))
    for key, value in {"LEASE_TTL_S": 1, "BACKOFF_INITIAL_S": 0.05, "MAX_RESTARTS": 2, "STOP_TIMEOUT_S": 5}.items():
        monkeypatch.setenv(f"WEIR_HOST__{key}", str(value))
    opened = ControlStore.open(load_settings())
    declare(opened, tuple(map(declaration, NAMES)), datetime.now(UTC))
    yield opened
    opened.close()


def host_on(store: ControlStore, runner: Runner, clock: Callable[[], datetime] = utc_now) -> StreamHost:
    now = datetime.now(UTC)
    return StreamHost(load_settings(), store, runner, tuple(map(declaration, NAMES)), new_heartbeat(now), clock)


def tick_until(host: StreamHost, condition: Callable[[], bool], *, limit_s: float = 5) -> None:
    def ticked() -> bool:
        if condition():
            return True
        host.tick()
        return False

    wait_until(ticked, lambda: str(states(host.store)), limit_s=limit_s)


def states(store: ControlStore) -> dict[str, str]:
    return {name: seen.state.value for name, seen in store.observed().items()}


def all_running(store: ControlStore) -> Callable[[], bool]:
    return lambda: states(store) == dict.fromkeys(NAMES, "RUNNING")


def ask(store: ControlStore, name: str, action: str) -> None:
    store.request(name, action, reason="test", actor="ann", now=datetime.now(UTC))  # type: ignore[arg-type]


def test_starts_and_failures_are_counted_once_each(store: ControlStore) -> None:
    runner, metrics = Runner(), HostMetrics()
    now = datetime.now(UTC)
    declared = tuple(map(declaration, NAMES))
    host = StreamHost(load_settings(), store, runner, declared, new_heartbeat(now), recorded=metrics.observed)
    runner.broken = {"bronze"}

    def count(kind: str, stream: str) -> float | None:
        return metrics.registry.get_sample_value(f"weir_stream_{kind}_total", {"stream": stream})

    assert count("failures", "silver") is None  # nobody knows yet
    tick_until(host, lambda: states(store) == {"bronze": "FAILED", "silver": "RUNNING", "gold": "RUNNING"})
    runner.fail("gold")
    tick_until(host, lambda: count("starts", "gold") == 2 and states(store)["gold"] == "RUNNING")
    for _ in range(3):
        host.tick()
    assert (count("starts", "bronze"), count("failures", "bronze")) == (3, 3)  # max_restarts and the first
    assert (count("starts", "silver"), count("failures", "silver")) == (1, 0)
    assert (count("starts", "gold"), count("failures", "gold")) == (2, 1)
    assert metrics.registry.get_sample_value("weir_stream_batch_duration_seconds_count", {"stream": "silver"}) == 0


def test_new_streams_are_started_and_recorded_with_their_ids(store: ControlStore) -> None:
    runner = Runner()
    tick_until(host_on(store, runner), all_running(store))
    assert store.observed()["gold"].query_id == "query-gold"
    assert store.hosts()[0].host_id == store.observed()["gold"].host_id


def test_running_is_not_said_before_the_query_is_active(store: ControlStore) -> None:
    runner, host = Runner(), None
    runner.slow_start["silver"] = threading.Event()
    host = host_on(store, runner)
    tick_until(host, lambda: states(store) == {"bronze": "RUNNING", "silver": "STARTING", "gold": "RUNNING"})
    runner.slow_start["silver"].set()
    tick_until(host, all_running(store))


def test_a_stop_that_takes_long_does_not_hold_up_the_others(store: ControlStore) -> None:
    runner = Runner()
    host = host_on(store, runner)
    tick_until(host, all_running(store))
    runner.slow_stop["bronze"] = threading.Event()
    ask(store, "bronze", "stop")
    tick_until(host, lambda: states(store)["bronze"] == "STOPPING")
    ask(store, "gold", "stop")
    tick_until(host, lambda: states(store) == {"bronze": "STOPPING", "gold": "STOPPED", "silver": "RUNNING"})
    runner.slow_stop["bronze"].set()
    tick_until(host, lambda: states(store)["bronze"] == "STOPPED")
    assert set(runner.active) == {"silver"}


def test_restart_is_a_new_run_and_leaves_the_others_alone(store: ControlStore) -> None:
    runner = Runner()
    host = host_on(store, runner)
    tick_until(host, all_running(store))
    before = store.observed()["silver"].run_id
    ask(store, "silver", "restart")
    tick_until(host, lambda: states(store)["silver"] == "RUNNING" and store.observed()["silver"].run_id != before)
    assert len(runner.started) == 4


def test_a_drained_stream_stops_once_a_later_trigger_had_nothing_to_read(store: ControlStore) -> None:
    idle: dict[str, datetime] = {}
    host = host_on(store, Runner())
    host.idle_at = idle.get
    tick_until(host, all_running(store))
    idle["silver"] = datetime.now(UTC)

    ask(store, "silver", "drain")
    for _ in range(5):
        host.tick()
    assert states(store) == dict.fromkeys(NAMES, "RUNNING"), "what came since then is not read yet"

    idle["silver"] = datetime.now(UTC)
    tick_until(host, lambda: states(store)["silver"] == "STOPPED")
    for _ in range(5):
        host.tick()
    assert states(store) == {"bronze": "RUNNING", "silver": "STOPPED", "gold": "RUNNING"}

    ask(store, "silver", "start")
    tick_until(host, all_running(store))


def test_a_stream_that_keeps_failing_ends_failed_and_waits_for_a_person(store: ControlStore) -> None:
    runner = Runner()
    runner.broken.add("silver")
    host = host_on(store, runner)
    tick_until(host, lambda: states(store).get("silver") == "BACKOFF")
    tick_until(host, lambda: states(store)["silver"] == "FAILED")
    failures = store.observed()["silver"].failures
    assert [(failure.error_class, failure.message) for failure in failures] == [
        ("UNRESOLVED_COLUMN", "no such column")
    ] * 3
    runner.broken.clear()
    for _ in range(20):
        host.tick()
    assert states(store) == {"bronze": "RUNNING", "silver": "FAILED", "gold": "RUNNING"}
    ask(store, "silver", "start")
    tick_until(host, all_running(store))
    assert store.observed()["silver"].failures == ()


def test_a_failure_while_running_is_recorded_with_its_batch(store: ControlStore) -> None:
    runner = Runner()
    host = host_on(store, runner)
    tick_until(host, all_running(store))
    runner.fail("gold")
    tick_until(host, lambda: bool(store.observed()["gold"].failures))
    failure = store.observed()["gold"].failures[0]
    assert (failure.error_class, failure.message, failure.batch_id) == ("SparkException", "boom", 4)
    tick_until(host, all_running(store))
    assert runner.started.count("gold") == 2
    assert runner.started.count("bronze") == 1


def test_shutting_down_leaves_the_wishes_and_frees_the_leases(store: ControlStore) -> None:
    runner = Runner()
    host = host_on(store, runner)
    tick_until(host, all_running(store))
    wishes = store.desired()
    host.shut_down(5)
    assert (states(store), runner.active, store.leases()) == (dict.fromkeys(NAMES, "STOPPED"), {}, {})
    assert store.desired() == wishes
    tick_until(host_on(store, Runner()), all_running(store))


def test_shutting_down_does_not_wait_for_ever(store: ControlStore) -> None:
    runner = Runner()
    host = host_on(store, runner)
    tick_until(host, all_running(store))
    runner.slow_stop["gold"] = threading.Event()
    began = time.monotonic()
    host.shut_down(0.1)
    assert time.monotonic() - began < 4
    assert set(store.leases()) == {stream_resource("gold")}, "what still runs keeps its lease until it expires"
    runner.slow_stop["gold"].set()


def test_failed_stays_failed_under_a_new_host(store: ControlStore) -> None:
    runner = Runner()
    runner.broken.add("silver")
    first = host_on(store, runner)
    tick_until(first, lambda: states(store).get("silver") == "FAILED")
    first.shut_down(5)
    healthy = Runner()
    second = host_on(store, healthy)
    tick_until(second, lambda: states(store) == {"bronze": "RUNNING", "silver": "FAILED", "gold": "RUNNING"})
    for _ in range(10):
        second.tick()
    assert "silver" not in healthy.started
    assert store.observed()["silver"].host_id == second.heartbeat.host_id


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
    tick_until(second, lambda: set(waiting.active) == set(NAMES))  # the first no longer renews
    tick_until(second, lambda: {seen.host_id for seen in store.observed().values()} == {second.heartbeat.host_id})


def test_a_host_that_lost_its_leases_cuts_its_queries_and_writes_no_more(store: ControlStore) -> None:
    first = host_on(store, losing := Runner())
    second = host_on(store, Runner(), lambda: utc_now() + timedelta(seconds=2))
    tick_until(first, all_running(store))  # and is frozen for longer than its leases last
    tick_until(second, lambda: set(second.runner.active) == set(NAMES))  # type: ignore[attr-defined]
    tick_until(second, all_running(store))
    tick_until(first, lambda: not losing.active)
    first.tick()
    assert sorted(losing.cuts) == sorted(NAMES)
    assert {seen.host_id for seen in store.observed().values()} == {second.heartbeat.host_id}


def test_a_silent_store_stops_nothing_and_is_said_once(store: ControlStore, tmp_path: Path) -> None:
    runner = Runner()
    host = host_on(store, runner)
    tick_until(host, all_running(store))
    stop = threading.Event()
    engine = sa.create_engine(store.shown_url)
    metrics = HostMetrics()
    loop = threading.Thread(target=Loop(host, stop, interval_s=0.02, metrics=metrics).run)
    with capture_logs() as lines:
        loop.start()
        _sql(engine, "ALTER TABLE desired RENAME TO away")
        wait_until(lambda: said(lines, "store_"), "the host says that the store is silent")
        with pytest.raises(StoreError):
            store.desired()
        assert set(runner.active) == set(NAMES)
        assert metrics.registry.get_sample_value("weir_host_store_up") == 0
        _sql(engine, "ALTER TABLE away RENAME TO desired")
        ask(store, "gold", "stop")
        wait_until(lambda: states(store)["gold"] == "STOPPED", "the stream is stopped")
        stop.set()
        loop.join(5)
    engine.dispose()
    assert metrics.registry.get_sample_value("weir_host_store_up") == 1
    assert states(store) == {"bronze": "RUNNING", "silver": "RUNNING", "gold": "STOPPED"}
    assert said(lines, "store_") == ["store_silent", "store_back"]


def said(lines: Sequence[Mapping[str, object]], prefix: str) -> list[str]:
    return [event for line in list(lines) if (event := str(line["event"])).startswith(prefix)]


def _sql(engine: sa.Engine, statement: str) -> None:
    with engine.begin() as connection:
        connection.execute(sa.text(statement))


def test_a_dead_jvm_ends_the_process_with_an_error(store: ControlStore) -> None:
    runner = Runner()
    host = host_on(store, runner)
    tick_until(host, all_running(store))
    runner.lost = True
    assert Loop(host, threading.Event(), interval_s=0.01).run() == 1
    assert StreamState.FAILED not in {seen.state for seen in store.observed().values()}
