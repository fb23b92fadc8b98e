"""Overview: what needs attention, tables by layer, streams, expectations on tables; each row opens its page."""

import random
import re
import threading
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app import cache
from app.overview.page import Visit
from backend.expectations.model import ExpectationKind, Finding, Judgement, State, TableExpectation
from backend.lake.model import TableRef
from backend.search.notice import Notice
from backend.search.notices import NoticeLooks
from backend.store.store import ControlStore
from backend.stream_model.stream import HostHeartbeat
from tests.backend.search.test_notices import orders, write
from tests.worlds.lake import builders
from tests.worlds.pages.opened import again, click, forget_caches, links, metrics, open_page, press, send, words
from tests.worlds.processes import wait_until
from tests.worlds.store import stream_store


def test_a_fresh_lake_needs_nothing_and_a_row_opens_its_table(lake: Path) -> None:
    app = open_page("overview")
    wait_until(lambda: "Nothing needs attention" in words(again(app)), "its commits are looked at")
    figures = {"Tables": "3", "Rows": "9", "Files": "4", "Size": metrics(app)["Size"], "Streams running": "–"}
    assert metrics(app) == figures
    frame = app.dataframe(key="overview_tables").value
    assert frame["Table"].tolist() == ["bronze/orders_raw", "silver/orders", "gold/orders_by_status"]
    assert frame["Rows"].tolist() == [3, 4, 2]
    click(app, "overview_tables", 1, "Table")
    assert app.title[0].value == "orders" and app.query_params == {"table": "silver/orders"}


def test_an_empty_lake_praises_nothing_and_says_how_streams_are_declared(home: Path) -> None:
    text = words(open_page("overview"))
    assert "No stream is declared yet" in text and "weir host" in text
    assert "fresh" not in text  # nothing was looked at, so nothing is praised


def test_a_dead_host_is_said_and_its_streams_are_unknown(lake: Path, store: ControlStore, now: datetime) -> None:
    stream_store.declare(store, "silver_events", now)
    stream_store.beat(store, now - timedelta(minutes=10))
    text = words(open_page("overview"))
    assert re.search(r"is silent\. 1 stream should run and nobody runs it · 10 min( \d+ s)? ago", text)
    assert "1 stream: 1 unknown" in text


def test_of_many_streams_those_in_trouble_are_shown(store: ControlStore, now: datetime) -> None:
    stream_store.failed(store, "silver_broken", now)
    declared = store.declarations()["silver_broken"]
    store.declare([replace(declared, name=f"bronze_{number:03d}") for number in range(60)], now=now)
    app = open_page("overview")
    shown = app.dataframe(key="overview_streams").value["Stream"].tolist()
    assert shown[0] == "silver_broken" and len(shown) == 50
    assert "61 streams: 1 failed, 60 unknown" in words(app) and "50 of them: streams in trouble first" in words(app)
    assert links(app)["All streams"] == ""


def test_a_failed_stream_needs_attention_and_is_new_since_this_browser_looked_last(
    lake: Path, store: ControlStore, now: datetime
) -> None:
    app = open_page("overview")
    assert "you last looked" not in words(app), "it is the first visit"
    app.session_state["_visit_before"] = Visit(now - timedelta(hours=3), 3)
    assert "Nothing new since you last looked, 3 h ago" in words(again(app))
    stream_store.failed(store, "silver_events", now)
    cache.forget_streams()
    app.session_state["_visit_before"] = Visit(now - timedelta(hours=3), 1)
    text = words(again(app)).replace("*", "")
    assert "Since you last looked, 3 h ago" in text
    assert {"1 failed stream", "2 tables more", "Open stream"} <= links(app).keys()
    assert "silver_events failed" in text and "restart it" in text
    assert app.dataframe(key="overview_streams").value["Verdict"].tolist() == ["✕ Failed"]


def test_without_a_host_the_server_looks_at_commits_itself_and_says_how_far_it_is(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice, table = random.Random(7), home / "lake" / "orders"
    write(table, [*[orders(dice) for _ in range(8)], {**orders(dice), "amount": [47_189.0] * 20}])
    for name in ("a", "b"):
        builders.write(home / "lake" / name, orders(dice))
    let_go, look = threading.Event(), NoticeLooks.look

    def held(looks: NoticeLooks, ref: TableRef, since: datetime, now: datetime) -> list[Notice]:
        assert let_go.wait(60)
        return look(looks, ref, since, now)

    monkeypatch.setattr(NoticeLooks, "look", held)
    app = open_page("overview")
    wait_until(lambda: "0 of 3 tables looked at" in words(again(app)), "it has begun")
    assert "Not known yet: tables are still being looked at" in words(app) and "Nothing" not in words(app)
    let_go.set()
    wait_until(lambda: "tables looked at" not in words(again(app)), "all are looked at")
    assert "→ 47,189 at v8, WRITE" in words(app) and "so far" not in words(app)

    app = open_page("table", table="orders")
    assert "→ 47,189 at v8, WRITE" in words(app)
    press(app, "seen_8_highest_amount")
    send(app, "seen", "a price list in cents")
    assert "47,189 at" not in words(open_page("table", table="orders"))
    assert "47,189" not in words(open_page("overview")), "and no more on any page"
    forget_caches()
    wait_until(lambda: "tables looked at" not in words(open_page("overview")), "another server looks")
    assert "47,189" not in words(open_page("overview"))


def test_a_host_that_has_just_begun_says_how_far_it_looked(orders: Path, home: Path) -> None:
    now = datetime.now(UTC)
    with closing(stream_store.open_store(home)) as store:
        store.beat(HostHeartbeat("leads", "box", 1, now, now, tables_looked_at=38, tables_found=3_000))
        store.beat(HostHeartbeat("another", "box", 2, now, now))
        app = open_page("overview")
        looked = "The stream host looks at what commits did, the newest first: 38 of 3,000 tables looked at."
        assert looked in words(app)
        assert "Not known yet: tables are still being looked at" in words(app)
        store.beat(HostHeartbeat("leads", "box", 1, now, now, tables_looked_at=3_000, tables_found=3_000))
    forget_caches()
    assert "looked at" not in words(open_page("overview"))


# Expectations on tables: on Summary, on Overview and in the list of tables, as the store has them --------------------


BROKEN = Finding(State.BROKEN, broken_keys=7, broken_rows=15, examples=("1", "2", "3", "4", "5"), version=3)
LARGE = Finding(State.UNKNOWN, "1.2 TB, limit 10 GB")
EARLY = Finding(State.UNKNOWN, "3 of 7 full days before 2026-03-01 are known", is_early=True)
KEY = {"kind": ExpectationKind.UNIQUE, "columns": ("order_id",)}
REFERS = {
    "kind": ExpectationKind.REFERENCES,
    "columns": ("customer_id",),
    "other": "silver_customers",
    "other_column": "id",
}
FRESH = {"kind": ExpectationKind.FRESH, "within_s": 900.0}


def judge(lake: Path, at: datetime, *found: tuple[dict[str, Any], Finding], table: str = "silver/orders") -> None:
    """What a host that was alive at that time found of these expectations of a table."""
    with closing(stream_store.open_store(lake.parent)) as store:
        stream_store.beat(store, at)
        for expected, finding in found:
            expectation = TableExpectation(str(lake / table), table.replace("/", "_"), pipeline="shop", **expected)
            since = at - timedelta(minutes=30) if finding.state is State.BROKEN else None
            store.note_judgement(Judgement(expectation, finding, stream_store.HOST, at, since))


def fill(lake: Path, at: datetime, table: str = "silver/orders") -> None:
    """Broken, unknown and met."""
    met = Finding(State.MET, last_data_at=at - timedelta(minutes=4), version=3)
    judge(lake, at, (KEY, BROKEN), (REFERS, LARGE), (FRESH, met), table=table)


def test_the_summary_shows_what_is_expected_and_found_and_overview_leads_there(lake: Path, now: datetime) -> None:
    fill(lake, now)
    text = words(open_page("table", table="silver/orders"))
    assert "3 table expectations: 1 broken, 1 unknown, 1 OK" in text
    assert "**order_id is unique** · 7 keys are repeated, in 15 rows: 1 · 2 · 3 · 4 · 5 and 2 more" in text
    assert "broken for 30 min" in text and "judged at v3" in text
    assert "**customer_id is in silver_customers.id** · not judged: 1.2 TB, limit 10 GB" in text
    assert "**new data every 15 min** · the last came 4 min" in text
    assert "Not judged for" not in text
    assert "expectation" not in words(open_page("table", table="gold/orders_by_status"))
    assert "expectation" not in words(open_page("table", table="silver/orders", version=1)), "they are of the latest"
    app = open_page("overview")
    text = words(app)
    assert "1 thing needs attention" in text
    assert "**silver/orders** · Expected: order_id is unique. Found: 7 keys are repeated" in text
    assert "Expected: customer_id is in silver_customers.id. It is not judged: 1.2 TB, limit 10 GB" in text
    leads_to = {link.proto.query_string for link in app.main.page_link if link.proto.label == "Open table"}
    assert leads_to == {"table=silver%2Forders"}


def test_a_host_that_is_away_makes_them_unknown_since_then(lake: Path, now: datetime) -> None:
    fill(lake, now - timedelta(minutes=10))
    text = words(open_page("table", table="silver/orders"))
    assert "3 table expectations: 1 broken, 2 unknown" in text
    assert "Not judged for 10 min" in text and "the host that did is away" in text
    assert "it was broken: 7 keys are repeated" in text and "it was OK: the last came" in text
    assert "broken for" not in text, "nobody knows how it is now"
    overview = words(open_page("overview"))
    assert "its host is away" in overview


def test_met_expectations_are_praised_and_young_ones_are_no_news(lake: Path, now: datetime) -> None:
    judge(lake, now, (FRESH, Finding(State.MET, last_data_at=now)), ({"kind": ExpectationKind.ROWS_PER_DAY}, EARLY))
    app = open_page("overview")
    assert "Nothing needs attention" in words(app)
    assert "1 table expectation is OK" in words(app)
    summary = words(open_page("table", table="silver/orders"))
    assert "3 of 7 full days" in summary and "2 table expectations: 1 too early to tell, 1 OK" in summary
    assert "0 of 3 tables match" in words(open_page("tables", show="Not as expected"))


def test_several_tables_lead_to_a_list_of_them(lake: Path, now: datetime) -> None:
    fill(lake, now)
    fill(lake, now, table="bronze/orders_raw")
    app = open_page("overview")
    said = [each.value for each in app.markdown]
    assert any("**2 tables** break 2 table expectations\\: bronze/orders_raw, silver/orders" in each for each in said)
    link = next(link.proto for link in app.main.page_link if link.proto.label == "Open the list")
    assert link.query_string == "show=Not+as+expected"
    listed = open_page("tables", show="Not as expected")
    assert listed.dataframe(key="catalog").value["Table"].tolist() == ["bronze/orders_raw", "silver/orders"]
