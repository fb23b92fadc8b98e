"""`weir notices` judges the past of every table, `weir seen` ends what a host has told."""

import random
from datetime import UTC, datetime
from pathlib import Path

from backend.lake.lake import Lake
from backend.search.notices import NoticeLooks
from backend.settings import load_settings
from backend.store.store import ControlStore
from tests.app.cli.test_commands import Weir, home, weir
from tests.backend.search.test_notices import orders, write

__all__ = ["home", "weir"]


def test_the_past_is_told_as_it_would_have_been_then(weir: Weir, home: Path) -> None:
    assert "No commit since" in weir("notices", "--since", "2000-01-01").out
    dice = random.Random(7)
    write(home / "lake" / "orders", [orders(dice) for _ in range(8)])
    write(home / "lake" / "orders", [{**orders(dice), "amount": [47_189.0] * 20}])
    (home / "lake" / "broken" / "_delta_log").mkdir(parents=True)
    (home / "lake" / "broken" / "_delta_log" / f"{0:020d}.json").write_text("{")
    (notice,) = weir("notices", "--since", "1 h", "--json").document
    assert (notice["table"], notice["version"], notice["after"], notice["mended_at"]) == ("orders", 8, "47,189", None)
    told = weir("notices", "--since", "1 h")
    assert "→ 47,189 at v8" in told.out and "broken: cannot be judged: line 1 of" in told.err
    assert weir("notices", "broken").code != 0
    assert weir("notices", "--since", "tomorrow-ish").code == 2


def test_what_was_seen_is_told_no_more(weir: Weir, home: Path) -> None:
    dice, now = random.Random(7), datetime.now(UTC)
    write(home / "lake" / "orders", [*[orders(dice) for _ in range(8)], {**orders(dice), "amount": [9e9] * 20}])
    assert weir("seen", "orders", "8", "--reason", "x").code != 0, "there is no store to keep it"
    settings = load_settings()
    lake, store = Lake(settings), ControlStore.open(settings)
    store.noticed.keep(NoticeLooks(lake).look(lake.find("orders"), datetime(2000, 1, 1, tzinfo=UTC), now), now=now)
    (item,) = [each for each in weir("health", "--json").document["attention"] if each["cause"] == "unusual_commit"]
    assert item["subject"] == "orders" and "at v8, WRITE" in item["what"]
    store.told.failed("the webhook answers HTTP 500", now=store.now())
    assert "warning: webhook notify.webhook: Nobody is told of what needs attention: the webhook" in weir("health").out
    assert weir("seen", "orders", "8").code == 4
    assert "Told no more: highest amount" in weir("seen", "orders", "8", "--reason", "agreed").out
    assert store.noticed.open() == [] and weir("seen", "orders", "8", "--reason", "agreed").code == 4
    store.close()


def test_what_no_host_has_told_is_seen_as_well(weir: Weir, home: Path) -> None:
    dice = random.Random(7)
    write(home / "lake" / "orders", [*[orders(dice) for _ in range(8)], {**orders(dice), "amount": [9e9] * 20}])
    store = ControlStore.open(load_settings())
    assert weir("seen", "orders", "7", "--reason", "x").code == 4
    assert "Told no more: highest amount" in weir("seen", "orders", "8", "--reason", "a gift shop").out
    (kept,) = store.noticed.of_table(
        str(home / "lake" / "orders"), since=datetime(2000, 1, 1, tzinfo=UTC), until=datetime.now(UTC)
    )
    assert kept.seen_reason == "a gift shop" and store.noticed.open() == []
    store.close()
