# ruff: noqa: F811
"""A stream that fails for what is a host's own is offered to the other hosts before it is said to have failed."""

from backend.store.leases import stream_resource
from backend.store.store import ControlStore
from pipelines.host.stream_host import StreamHost
from pipelines.spark.runtime import QueryFailure
from tests.pipelines.host.test_host_loop import (
    NAMES,
    Runner,
    all_running,
    all_tick_until,
    ask,
    bury,
    host_on,
    running,
    states,
    store,  # noqa: F401 (a fixture)
    tick_until,
)

WRONG_PATH = QueryFailure("SparkException", "Wrong basePath file:/b/landing for the root path: file:/a/landing/1.json")


class Elsewhere(Runner):
    """A host whose folder has another path: `bad` fails there as soon as it has started."""

    def __init__(self, bad: str, failure: QueryFailure = WRONG_PATH) -> None:
        super().__init__()
        self.bad, self.failure = bad, failure

    def poll(self, name: str):  # type: ignore[no-untyped-def]
        if name == self.bad and name in self.active:
            del self.active[name]
            self.failures[name] = self.failure
        return super().poll(name)


def on(store: ControlStore, name: str) -> str:
    return store.leases()[stream_resource(name)].owner


def two_hosts(store: ControlStore, failure: QueryFailure = WRONG_PATH) -> tuple[StreamHost, StreamHost]:
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
    wrong, right = two_hosts(store, QueryFailure("USER_RAISED_EXCEPTION", "division by zero"))
    all_tick_until([wrong, right], lambda: states(store)["silver"] == "FAILED")
    assert on(store, "silver") == wrong.heartbeat.host_id


def test_where_no_other_host_can_it_fails_as_ever(store: ControlStore) -> None:
    wrong = host_on(store, Elsewhere("silver"))
    tick_until(wrong, lambda: states(store) == {**dict.fromkeys(NAMES, "RUNNING"), "silver": "FAILED"})
    assert wrong.runner.started.count("silver") == 3  # type: ignore[attr-defined]


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
