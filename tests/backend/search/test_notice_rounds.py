"""The rounds of the host that notices what commits do: which tables are read, and what becomes known to everybody."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backend.errors import StoreError
from backend.lake.lake import Lake
from backend.lake.model import Snapshot
from backend.search.notice import notice_text
from backend.settings import Settings, load_settings
from backend.store.store import ControlStore
from pipelines.host.notice_rounds import NoticeRounds
from tests.backend.search.test_notices import NOW, aggregate, appended, every_ten_minutes, orders, write
from tests.worlds.lake import builders
from tests.worlds.lake.builders import HandLog
from tests.worlds.processes import wait_until


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "store").mkdir()
    return load_settings(home=tmp_path, lake={"refresh_s": 0.01})


@pytest.fixture
def store(settings: Settings) -> Iterator[ControlStore]:
    opened = ControlStore.open(settings)
    yield opened
    opened.close()


def rounds(settings: Settings, store: ControlStore, host: str = "host-a") -> NoticeRounds:
    return NoticeRounds(Lake(settings), store, host, lambda: datetime.now(UTC))


def test_a_bad_batch_is_known_after_one_round_and_its_end_after_another(
    settings: Settings, store: ControlStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice, table = random.Random(7), tmp_path / "lake" / "orders"
    write(table, [orders(dice) for _ in range(8)])
    (tmp_path / "lake" / "broken" / "_delta_log").mkdir(parents=True)
    watching = rounds(settings, store)
    watching.once()
    assert store.noticed.open() == []

    write(table, [{**orders(dice), "amount": [47_189.0] * 20}])
    watching.once()
    (notice,) = store.noticed.open()
    assert notice.table == "orders" and "→ 47,189 at v8, WRITE" in notice_text(notice)

    read: list[int] = []
    looked = Lake.snapshot

    def looks(lake: Lake, ref: object, version: int | None = None) -> Snapshot:
        read.append(1)
        return looked(lake, ref, version)

    monkeypatch.setattr(Lake, "snapshot", looks)
    watching.once()
    assert read == [], "no table has another latest version"
    builders.write(table, orders(dice), mode="overwrite")
    watching.once()
    assert store.noticed.open() == [] or {each.kind for each in store.noticed.open()} == {"rows"}


def test_a_host_that_ends_gives_its_turn_to_another(settings: Settings, store: ControlStore) -> None:
    first = rounds(settings, store, "host-a")
    first.rounds.start()
    wait_until(lambda: "notices" in store.leases(), "the first round")
    first.rounds.stop(10)
    assert store.leases() == {}
    rounds(settings, store, "host-b").once()
    assert store.leases()["notices"].owner == "host-b"


def test_of_two_hosts_one_notices(settings: Settings, store: ControlStore, tmp_path: Path) -> None:
    dice = random.Random(7)
    write(tmp_path / "lake" / "orders", [*[orders(dice) for _ in range(8)], {**orders(dice), "amount": [9e9] * 20}])
    first, second = rounds(settings, store), rounds(settings, store, "host-b")
    lease = store.acquire("notices", "host-a", ttl_s=60)
    assert lease is not None
    second.once()
    assert store.noticed.open() == []
    first.once()
    assert len(store.noticed.open()) == 1


def test_what_was_noticed_while_the_store_was_away_is_kept_later(
    settings: Settings, store: ControlStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(7)
    write(tmp_path / "lake" / "orders", [*[orders(dice) for _ in range(8)], {**orders(dice), "amount": [9e9] * 20}])
    watching = rounds(settings, store)

    def away(*_: object, **__: object) -> None:
        raise StoreError("the store does not answer")

    with monkeypatch.context() as patched, pytest.raises(StoreError):
        patched.setattr(type(store.noticed), "keep", away)
        watching._look(watching._lake.find("orders"), is_due=True)
    watching.once()
    assert [notice.version for notice in store.noticed.open()] == [8]


def test_what_has_to_stand_for_a_while_is_known_without_another_commit(
    settings: Settings, store: ControlStore, tmp_path: Path
) -> None:
    log, clock = HandLog(tmp_path / "lake" / "averages"), [NOW]
    for version, lowest in enumerate([98.0, 97.5, 98.4, 98.1, 97.9, 98.2, 12.0]):
        aggregate(log, lowest, NOW + timedelta(seconds=40 * version - 241))
    watching = NoticeRounds(Lake(settings), store, "host-a", lambda: clock[0])
    watching.once()
    assert store.noticed.open() == []
    clock[0] += timedelta(minutes=3)
    watching.once()
    assert [notice.after for notice in store.noticed.open()] == ["12"]


def test_a_rhythm_that_stops_is_known_and_goes_with_the_next_commit(
    settings: Settings, store: ControlStore, tmp_path: Path
) -> None:
    log = HandLog(tmp_path / "lake" / "orders")
    last = every_ten_minutes(log, 20)[-1]
    clock = [last + timedelta(minutes=59)]
    watching = NoticeRounds(Lake(settings), store, "host-a", lambda: clock[0])
    watching.once()
    assert store.noticed.open() == []
    clock[0] += timedelta(minutes=5)
    watching.once()
    assert store.noticed.open() == [], "it was looked at a moment ago"
    watching._silences_due_s = 0.0
    watching.once()
    (notice,) = store.noticed.open()
    assert notice_text(notice) == "commits every 10 min → none since v19, WRITE"

    appended(log, timestamp=int(NOW.timestamp() * 1_000))
    clock[0] = NOW + timedelta(hours=8)
    NoticeRounds(Lake(settings), store, "host-a", lambda: clock[0]).once()  # one that began meanwhile
    assert store.noticed.open() == []
