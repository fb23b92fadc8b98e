"""Who looks for notices: a host in rounds, known to everybody; where no host lives, each page for itself."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backend.errors import StorageError, StoreError
from backend.health import health
from backend.health.health import NoticedSoFar, NoticeWatch
from backend.lake.lake import Lake
from backend.lake.model import TableCard, TableRef
from backend.search.notice import Key, Measure, Notice, notice_text
from backend.search.notices import NoticeLooks
from backend.settings import Settings, load_settings
from backend.store.store import ControlStore
from backend.stream_model.stream import HostHeartbeat
from pipelines.host import tables
from pipelines.host.periodic import Rounds
from pipelines.host.tables import CommitWatch
from tests.worlds.hosts.rounds import led, rounds_of
from tests.worlds.lake import builders
from tests.worlds.lake.builders import HandLog
from tests.worlds.lake.watched import (
    NOW,
    aggregate,
    appended,
    every_ten_minutes,
    orders,
    orders_with_a_bad_batch,
    write,
)
from tests.worlds.processes import wait_until


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(home=tmp_path, lake={"refresh_s": 0.01})


@pytest.fixture
def store(settings: Settings) -> Iterator[ControlStore]:
    (settings.home / "store").mkdir()
    opened = ControlStore.open(settings)
    yield opened
    opened.close()


def rounds(settings: Settings, store: ControlStore, host: str = "host-a") -> Rounds:
    return led("notices", CommitWatch(Lake(settings), store, lambda: datetime.now(UTC)).look, store, host)


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
    with monkeypatch.context() as patched:
        patched.setattr(Lake, "snapshot", lambda *_: pytest.fail("no table has another latest version"))
        watching.once()
    builders.write(table, orders(dice), mode="overwrite")
    watching.once()
    assert store.noticed.open() == [] or {each.kind for each in store.noticed.open()} == {"rows"}


def test_of_two_hosts_one_notices_until_it_ends(settings: Settings, store: ControlStore, tmp_path: Path) -> None:
    orders_with_a_bad_batch(tmp_path / "lake" / "orders")
    first, second = rounds(settings, store), rounds(settings, store, "host-b")
    assert store.acquire("notices", "host-a", ttl_s=60)
    second.once()
    assert store.noticed.open() == []
    first.start()
    wait_until(store.noticed.open, "the first round")
    first.stop(10)
    assert store.leases() == {} and len(store.noticed.open()) == 1
    second.once()
    assert store.leases()["notices"].owner == "host-b"


def test_what_was_noticed_while_the_store_was_away_is_kept_later(
    settings: Settings, store: ControlStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders_with_a_bad_batch(tmp_path / "lake" / "orders")
    watching = CommitWatch(Lake(settings), store, lambda: datetime.now(UTC))

    def away(*_: object, **__: object) -> None:
        raise StoreError("the store does not answer")

    with monkeypatch.context() as patched, pytest.raises(StoreError):
        patched.setattr(type(store.noticed), "keep", away)
        watching._look(watching._lake.find("orders"), is_new=True)
    watching.look(rounds_of(watching.look))
    assert [notice.version for notice in store.noticed.open()] == [8]


def test_what_has_to_stand_for_a_while_is_known_without_another_commit(
    settings: Settings, store: ControlStore, tmp_path: Path
) -> None:
    log, clock = HandLog(tmp_path / "lake" / "averages"), [NOW]
    for version, lowest in enumerate([98.0, 97.5, 98.4, 98.1, 97.9, 98.2, 12.0]):
        aggregate(log, lowest, NOW + timedelta(seconds=40 * version - 241))
    watching = rounds_of(CommitWatch(Lake(settings), store, lambda: clock[0]).look)
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
    watch = CommitWatch(Lake(settings), store, lambda: clock[0])
    watching = rounds_of(watch.look)
    watching.once()
    assert store.noticed.open() == []
    clock[0] += timedelta(minutes=5)
    watching.once()
    assert store.noticed.open() == [], "it was looked at a moment ago"
    watch._silences_due_s = 0.0
    watching.once()
    (notice,) = store.noticed.open()
    assert notice_text(notice) == "commits every 10 min → none since v19, WRITE"
    appended(log, timestamp=int(NOW.timestamp() * 1_000))
    clock[0] = NOW + timedelta(hours=8)
    rounds_of(CommitWatch(Lake(settings), store, lambda: clock[0]).look).once()  # one that began meanwhile
    assert store.noticed.open() == []


def test_the_first_host_looks_a_week_back_and_a_later_one_to_where_the_last_looked(
    settings: Settings, store: ControlStore, tmp_path: Path
) -> None:
    orders_with_a_bad_batch(tmp_path / "lake" / "orders")
    written_at = datetime.now(UTC)
    store.beat(HostHeartbeat("before", "box", 1, written_at, written_at))
    for days, host, versions in ((3, "before", [8]), (8, "before", []), (3, "after", [])):
        watch = CommitWatch(Lake(settings), store, lambda days=days: written_at + timedelta(days=days), host)
        watch.look(rounds_of(watch.look))
        assert [notice.version for notice in store.noticed.open()] == versions, (days, host)
        store.noticed.prune(before=written_at + timedelta(days=30))


def test_the_table_written_last_comes_first_and_the_rest_follows_in_the_same_round(
    settings: Settings, store: ControlStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        every_ten_minutes(HandLog(tmp_path / "lake" / f"t{number}"), number + 2)
    looked: list[str] = []
    look = NoticeLooks.look

    def looks(self: NoticeLooks, ref: TableRef, since: datetime, now: datetime) -> list[Notice]:
        looked.append(ref.name)
        if looked == ["t2"]:  # meanwhile somebody writes the oldest
            appended(HandLog(tmp_path / "lake" / "t0", next_version=2), timestamp=int(NOW.timestamp() * 1_000))
        return look(self, ref, since, now)

    monkeypatch.setattr(NoticeLooks, "look", looks)
    monkeypatch.setattr(tables, "_NEWS_AGAIN_S", 0.0)
    watch = CommitWatch(Lake(settings), store, lambda: datetime.now(UTC))
    watch.look(rounds_of(watch.look))
    assert looked == ["t2", "t0", "t1"] and watch.looked_at == 3


WEEK = timedelta(days=7)


# without a host -------------------------------------------------------------------------------------------------------


class Watched:
    """A lake that is watched, as a page asks for it."""

    def __init__(self, settings: Settings, *, at: datetime | None = None) -> None:
        self.lake, self.rests = Lake(settings), list[float]()
        self.watch = NoticeWatch(Lake(settings), lambda: at or datetime.now(UTC), self.rests.append)

    def cards(self) -> list[TableCard]:
        return [card for card in self.lake.cards() if isinstance(card, TableCard)]

    def found(self, known: Sequence[Notice] = (), seen: frozenset[Key] = frozenset()) -> NoticedSoFar:
        return self.watch.found(self.cards(), known, seen, {})

    def whole(self, known: Sequence[Notice] = (), seen: frozenset[Key] = frozenset()) -> NoticedSoFar:
        """Once nothing is under way."""

        def is_done() -> bool:
            cards = self.cards()
            return not self.found().is_partial and len(self.watch._judge.judged(cards)) == len(cards)

        wait_until(is_done, "every table is looked at")
        return self.found(known, seen)


@pytest.fixture
def bad_batch(tmp_path: Path) -> Path:
    orders_with_a_bad_batch(tmp_path / "lake" / "orders")
    return tmp_path / "lake" / "orders"


def test_a_bad_batch_is_found_as_a_host_finds_it_until_it_is_mended(settings: Settings, bad_batch: Path) -> None:
    watched = Watched(settings)
    (notice,) = watched.whole().notices
    lake = Lake(settings)
    assert [notice] == NoticeLooks(lake).look(lake.find("orders"), datetime.now(UTC) - WEEK, datetime.now(UTC))
    assert "→ 47,189 at v8, WRITE" in notice_text(notice)
    assert not list(settings.home.rglob("*.db")), "nothing was written"
    assert len(watched.rests) == 1, "it rests after what it read"
    assert watched.whole(seen=frozenset({notice.key})).notices == ()
    builders.write(bad_batch, orders(random.Random(8)), mode="overwrite")
    assert notice.key not in {each.key for each in watched.whole(known=[notice]).notices}, "although a host told it"


def test_what_a_host_noticed_while_it_lived_stays_and_the_newest_is_first(settings: Settings, bad_batch: Path) -> None:
    watched = Watched(settings)
    (notice,) = watched.whole().notices
    assert notice.committed_at is not None
    older = replace(notice, version=3, committed_at=notice.committed_at - timedelta(days=30))
    assert watched.whole(known=[older, notice]).notices == (notice, older)


def test_a_silence_is_found_and_what_is_older_than_a_week_is_not(settings: Settings, tmp_path: Path) -> None:
    last = every_ten_minutes(HandLog(tmp_path / "lake" / "orders"), 20)[-1]
    (notice,) = Watched(settings, at=last + timedelta(minutes=61)).whole().notices
    assert (notice.kind, notice.version) == (Measure.SILENCE, 19)
    assert Watched(settings, at=last + WEEK + timedelta(hours=2)).whole().notices == ()


def test_the_tables_written_last_are_looked_at_and_no_more_than_that(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "MOST_TABLES", 2)
    for number in range(3):
        log = HandLog(tmp_path / "lake" / f"t{number}")
        every_ten_minutes(log, number + 2)
    looked: list[str] = []
    look = NoticeLooks.look
    monkeypatch.setattr(
        NoticeLooks, "look", lambda looks, ref, since, now: looked.append(ref.name) or look(looks, ref, since, now)
    )
    watched = Watched(settings)
    wait_until(lambda: not watched.found().is_partial, "two are looked at")
    assert looked == ["t2", "t1"] and watched.found() == NoticedSoFar((), 2, 2, 3)
    opened = next(card.ref.uri for card in watched.cards() if card.ref.name == "t0")
    watched.watch.found(watched.cards(), (), frozenset(), {}, opened)
    wait_until(lambda: "t0" in looked, "the one that somebody opens, although it was written long ago")


@pytest.mark.parametrize("fault", [StorageError("the disk does not answer"), ZeroDivisionError()])
def test_a_table_that_cannot_be_looked_at_hides_no_other(
    settings: Settings, bad_batch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    HandLog(tmp_path / "lake" / "broken").start()
    watched, looks = Watched(settings), Lake.history
    watched.cards()

    def history(lake: Lake, ref: TableRef, **more: object) -> list[object]:
        if ref.name == "broken":
            raise fault
        return looks(lake, ref, **more)

    monkeypatch.setattr(Lake, "history", history)
    assert [notice.table for notice in watched.whole().notices] == ["orders"]
