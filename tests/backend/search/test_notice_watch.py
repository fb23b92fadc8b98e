"""What is noticed where no host lives: as a host notices it, bounded, and written nowhere."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.overview.view import looked_sentence
from backend.errors import StorageError
from backend.health import watch
from backend.health.watch import NoticedSoFar, NoticeWatch
from backend.lake.lake import Lake
from backend.lake.model import TableCard, TableRef
from backend.search import notices
from backend.search.notice import Key, Measure, Notice, notice_text
from backend.search.notices import NoticeLooks
from backend.settings import Settings, load_settings
from tests.backend.search.test_notices import NOW, every_ten_minutes, orders, write
from tests.worlds.lake import builders
from tests.worlds.lake.builders import HandLog
from tests.worlds.processes import wait_until

WEEK = timedelta(days=7)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(home=tmp_path, lake={"refresh_s": 0.01})


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
def bad_batch(tmp_path: Path) -> Iterator[Path]:
    dice, table = random.Random(7), tmp_path / "lake" / "orders"
    write(table, [*[orders(dice) for _ in range(8)], {**orders(dice), "amount": [47_189.0] * 20}])
    yield table


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
    monkeypatch.setattr(watch, "MOST_TABLES", 2)
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


def test_it_says_how_far_it_is() -> None:
    assert looked_sentence(NoticedSoFar((), 38, 600, 600)).endswith(": 38 of 600 tables looked at.")
    assert looked_sentence(NoticedSoFar((), 38, 1_000, 3_000)).endswith(": 38 of 3,000 tables looked at.")
    written_last = ": 1,000 of 3,000 tables looked at, those written last."
    assert looked_sentence(NoticedSoFar((), 1_000, 1_000, 3_000)).endswith(written_last)
    assert looked_sentence(NoticedSoFar((), 600, 600, 600)) == "" == looked_sentence(NoticedSoFar(()))


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


def test_a_look_in_steps_finds_what_one_look_finds(
    settings: Settings, bad_batch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builders.write(bad_batch, orders(random.Random(8)), mode="overwrite")
    lake, found = Lake(settings), dict[int, list[Notice]]()
    for at_once in (1_000, 3):
        monkeypatch.setattr(notices, "_AT_ONCE", at_once)
        found[at_once] = NoticeLooks(lake).look(lake.find("orders"), NOW - WEEK, NOW)
    assert found[3] == found[1_000] and any(notice.mended_at for notice in found[3])
