"""The thread of the host that judges tables: what it writes to the store, and what happens when things are away."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from structlog.testing import capture_logs

from backend.access import Actor
from backend.expectations.model import ExpectationKind, Judgement, TableExpectation
from backend.lake.lake import Lake
from backend.settings import Settings, load_settings
from backend.store.store import ControlStore
from backend.stream_model.stream import HostHeartbeat
from pipelines.host.periodic import Rounds
from pipelines.host.tables import TableWatch
from tests.worlds.hosts.in_memory import table_away
from tests.worlds.lake import builders
from tests.worlds.processes import wait_until


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    pace = {"freshness_interval_s": 0.05, "expectations_interval_s": 0.05}
    return load_settings(home=tmp_path, host=pace, lake={"refresh_s": 0.01})


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    return builders.write(tmp_path / "lake" / "orders", {"id": [1, 2]})


def rules(path: Path) -> list[TableExpectation]:
    return [
        TableExpectation(str(path), "orders", ExpectationKind.FRESH, "shop", within_s=3600),
        TableExpectation(str(path), "orders", ExpectationKind.ROWS_PER_DAY, "shop"),
        TableExpectation(str(path), "orders", ExpectationKind.UNIQUE, "shop", columns=("id",)),
    ]


def watch(settings: Settings, store: ControlStore, path: Path, host: str = "host-a") -> TableWatch:
    return TableWatch(settings, Lake(settings), store, rules(path), host, ["shop"], lambda: datetime.now(UTC))


def started(watch: TableWatch) -> list[Rounds]:
    watch.declare()
    lines = [Rounds(task) for task in watch.tasks()]
    for rounds in lines:
        rounds.start()
    return lines


def beat(store: ControlStore, host: str, at: datetime) -> None:
    store.beat(HostHeartbeat(host, "box", 1, at, at))


def found(store: ControlStore) -> dict[str, Judgement]:
    return {each.expectation.name: each for each in store.judgements()}


def states(store: ControlStore) -> dict[str, str]:
    return {name: each.state.value for name, each in found(store).items()}


def test_it_judges_until_it_is_told_to_stop_whatever_the_store_does(
    settings: Settings, store: ControlStore, orders: Path
) -> None:
    watching = started(watch(settings, store, orders))
    met = {"fresh": "met", "rows_per_day": "unknown", "unique(id)": "met"}
    wait_until(lambda: states(store) == met, lambda: str(states(store)))
    with table_away(store, "table_expectation"), capture_logs() as logs:
        wait_until(lambda: "expectations_not_judged" in {each["event"] for each in logs}, "a round found no answer")
    builders.write(orders, {"id": [2]})
    wait_until(lambda: states(store) == met | {"unique(id)": "broken"}, lambda: str(states(store)))
    broken = found(store)["unique(id)"]
    assert broken.finding.examples == ("2",) and broken.host_id == "host-a"
    wait_until(lambda: found(store)["unique(id)"].judged_at > broken.judged_at, "it looked again")
    assert found(store)["unique(id)"].broken_since == broken.broken_since
    for rounds in watching:
        rounds.stop(10)
    last = store.judgements()
    DeltaTable(str(orders)).delete("id = 2")
    assert store.judgements() == last


def test_what_is_expected_is_known_at_once_of_two_hosts_one_judges_and_the_other_takes_over(
    settings: Settings, store: ControlStore, orders: Path
) -> None:
    first, second = watch(settings, store, orders), watch(settings, store, orders, "host-b")
    first.declare()
    assert {each.finding.reason for each in store.judgements()} == {"its host has just begun"}, "before it judged"
    beat(store, "host-a", datetime.now(UTC))
    first.round(rules(orders))
    second.round(rules(orders))
    assert {each.host_id for each in store.judgements()} == {"host-a"}
    beat(store, "host-a", datetime.now(UTC) - timedelta(minutes=5))
    second.round(rules(orders))
    assert {each.host_id for each in store.judgements()} == {"host-b"}


def test_what_a_person_expects_is_judged_until_they_expect_it_no_more(
    settings: Settings, store: ControlStore, orders: Path
) -> None:
    watching = started(TableWatch(settings, Lake(settings), store, (), "host-a", [], lambda: datetime.now(UTC)))
    asked = TableExpectation(str(orders), "orders", ExpectationKind.HOLDS, condition="id < 3")
    store.expect_by_hand(asked, actor=Actor("ann"), reason="only two are sold", now=datetime.now(UTC))
    wait_until(lambda: states(store) == {"holds(id < 3)": "met"}, lambda: str(states(store)))
    builders.write(orders, {"id": [3]})
    wait_until(lambda: states(store) == {"holds(id < 3)": "broken"}, lambda: str(states(store)))
    broken = found(store)["holds(id < 3)"]
    assert (broken.host_id, broken.finding.reason) == ("host-a", "1 of 3 rows violates it")
    assert (broken.expectation.by, broken.expectation.why) == ("ann", "only two are sold")
    store.expect_no_more(asked, actor=Actor("ann"), reason="a third one", now=datetime.now(UTC))
    for rounds in watching:
        rounds.stop(10)
    assert store.judgements() == []
