"""Summary: key figures, who writes, schema, rows at any version."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from time import process_time

import pyarrow as pa
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from backend.search.notice import Measure, Notice
from tests.worlds.lake import builders
from tests.worlds.pages.frames import frame_with
from tests.worlds.pages.opened import MAIN, again, home, links, metrics, open_page, press, send, words
from tests.worlds.processes import wait_until
from tests.worlds.store import stream_store

__all__ = ["home"]


@pytest.fixture
def orders(home: Path) -> Path:
    return builders.orders_table(home / "lake" / "silver" / "orders")


def test_the_summary_answers_how_big_and_who(orders: Path) -> None:
    app = open_page("table", table="silver/orders")
    found = metrics(app)
    assert found["Rows"] == "4" and found["Files"] == "2" and "Last commit" in found
    assert "Last 4 commits by delta-rs" in words(app)


def test_the_summary_says_that_it_reads_every_version(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    @contextmanager
    def spinner(words: str, **_: bool) -> Iterator[None]:
        said.append(words)
        yield

    monkeypatch.setattr(st, "spinner", spinner)
    open_page("table", table="silver/orders", version=1)
    assert "Reading every version …" not in said
    open_page("table", table="silver/orders")
    assert "Reading every version …" in said


def test_the_summary_says_what_it_is_how_it_grew_and_how_often(home: Path) -> None:
    log = builders.HandLog(home / "lake" / "said")
    settings = {
        **builders.CHANGE_FEED,
        "delta.logRetentionDuration": "interval 3 days",
        "delta.constraints.positive": "id > 0",
    }
    start = builders.metadata({"id": "long", "day": "string"}, partition_by=["day"], configuration=settings)
    start["metaData"]["description"] = "Orders as they are *now*"
    log.commit(builders.protocol(), start, builders.commit_info("CREATE TABLE"))
    for number in range(1, 6):
        info = builders.commit_info(timestamp=1_700_000_000_000 + 12_000 * number, engineInfo="Spark/4")
        log.commit(info, builders.add(f"{number}.parquet", size=1_000, rows=10))
    said = words(open_page("table", table="said"))
    assert "Orders as they are *now*" in said
    for trait in ("partitioned by day", "change feed", "log kept: 3 days", "1 check constraint"):
        assert f":gray-badge[{trait}]" in said
    assert "A commit every 12 s, the last" in said and "that is later than usual" in said
    assert "In 24 h: no growth." in said and "by Spark/4 (5)" in said


def test_the_summary_links_to_the_streams_that_write_and_read_the_table(orders: Path, home: Path) -> None:
    now, store = datetime.now(UTC), stream_store.open_store(home)
    for name, said in (
        ("silver_orders", {"sink_table": "silver/orders"}),
        ("gold", {"source_tables": ("silver/orders",)}),
    ):
        stream_store.flowing(store, name, now)
        store.declare([replace(store.declarations()[name], **said)], now=now)  # type: ignore[arg-type]
    store.close()
    app = open_page("table", table="silver/orders")
    assert "Written by stream" in words(app) and "Read by" in words(app)
    found = {label: leads_to for label, leads_to in links(app).items() if "stream=" in leads_to}
    assert found == {"silver_orders": "stream=silver_orders", "gold": "stream=gold"}


def test_a_young_table_grew_since_it_was_made(orders: Path) -> None:
    app = open_page("table", table="silver/orders")
    assert "+1 rows" in words(app) or "+1 row" in words(app)
    assert "Since v0" in words(app) and "later than usual" not in words(app)


def test_a_pinned_version_shows_its_own_figures(orders: Path) -> None:
    found = metrics(open_page("table", table="silver/orders", version=0))
    assert found["Rows"] == "3" and found["Files"] == "1" and "Committed" in found


def test_the_schema_is_the_first_view(orders: Path) -> None:
    frame = frame_with(open_page("table", table="silver/orders"), "Nullable")
    assert frame["Column"].tolist() == ["order_id", "status", "amount"]
    assert frame["Type"].tolist() == ["bigint", "string", "double"]


def test_a_link_opens_the_rows_of_a_version(orders: Path) -> None:
    app = open_page("table", table="silver/orders", version=0, view="Data")
    assert sorted(frame_with(app)["order_id"].tolist()) == [1, 2, 3]
    assert "All 3 rows of v0." in words(app)


def test_the_row_cap_says_that_it_cut(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_LAKE__PREVIEW_ROWS", "2")
    app = open_page("table", table="silver/orders", view="Data")
    assert len(frame_with(app)) == 2
    assert "The first 2 rows of 4 in v3." in words(app)


def test_columns_are_chosen_in_the_link(orders: Path) -> None:
    app = open_page("table", table="silver/orders", view="Data", columns="status")
    assert frame_with(app).columns.tolist() == ["status"]


def test_values_reach_the_screen_whole(home: Path) -> None:
    rows = pa.table(
        {"id": [2**60, 1], "price": pa.array([Decimal("12345678901234567.89"), None], pa.decimal128(38, 2))}
    )
    builders.write(home / "lake" / "exact", rows)
    frame = frame_with(open_page("table", table="exact", view="Data"), "price")
    assert sorted(frame["id"]) == ["1", "1152921504606846976"]
    assert "12345678901234567.89" in frame["price"].tolist()


def test_partition_keys_and_nullability_are_said(home: Path) -> None:
    builders.partitioned_table(home / "lake" / "events")
    app = open_page("table", table="events")
    assert "partitioned by day" in words(app)
    assert frame_with(app, "Nullable")["Partition"].tolist() == ["", "partition key"]


def test_rows_whose_files_are_gone_are_an_answer_and_the_rest_stays(orders: Path) -> None:
    for file in orders.glob("*.parquet"):
        file.unlink()
    app = open_page("table", table="silver/orders", view="Data")
    assert len(app.error) == 1 and "VACUUM" in app.error[0].value
    assert metrics(app)["Rows"] == "4"


def test_a_broken_newest_commit_leads_to_what_is_still_known(orders: Path) -> None:
    (orders / "_delta_log" / f"{3:020d}.json").write_text('{"add": garbage')
    app = open_page("table", table="silver/orders")
    assert "not JSON" in app.error[0].value
    assert [link.label for link in app.main.page_link] == ["History of the table", "Versions that can still be read"]


def test_details_are_a_view_of_their_own(orders: Path) -> None:
    app = open_page("table", table="silver/orders")
    app.segmented_control(key="view").set_value("Details")
    again(app)
    assert "Protocol" in app.table[0].value["Name"].tolist()
    assert "Protocol" in open_page("table", table="silver/orders", view="Details").table[0].value["Name"].tolist()


def test_a_link_opens_filtered_rows(orders: Path) -> None:
    app = open_page("table", table="silver/orders", view="Data", where="amount > 26 AND status = 'new'")
    assert sorted(frame_with(app)["order_id"].tolist()) == [3, 4, 5]
    assert "All 3 rows of v3 that match." in words(app)


def test_the_rows_are_offered_as_code_for_other_tools(orders: Path) -> None:
    app = open_page("table", table="silver/orders", view="Data", version=0, columns="status", where="amount > 26")
    said = words(app)
    assert f"DeltaTable('{orders}', version=0)" in said and "FOR VERSION AS OF 0 WHERE" in said
    assert ".option('versionAsOf', 0)" in said and """SELECT "status" FROM rows WHERE""" in said


def test_a_filter_that_matches_nothing_says_so(orders: Path) -> None:
    assert "No row of v3 matches." in words(open_page("table", table="silver/orders", view="Data", where="amount < 0"))


def test_a_filter_that_is_none_says_where_and_reads_nothing(orders: Path) -> None:
    app = open_page("table", table="silver/orders", view="Data", where="amount >> 1; DROP TABLE x")
    assert len(app.error) == 1 and "character 12" in app.error[0].value and not app.dataframe
    assert app.text_input(key="where").value == "amount >> 1; DROP TABLE x"


def data_page(**params: str | int) -> AppTest:
    return open_page("table", table="silver/orders", view="Data", **params)


def click(app: AppTest, row: int, column: str) -> AppTest:
    app.session_state["rows"] = {"selection": {"rows": [], "columns": [], "cells": [(row, column)]}}
    return again(app)


def test_rows_that_were_read_are_sorted_by_their_values(home: Path) -> None:
    prices = [Decimal("9.5"), None, Decimal("10.25"), Decimal("-1.00")]  # shown as text, which would sort otherwise
    builders.write(home / "lake" / "silver" / "orders", pa.table({"price": pa.array(prices, pa.decimal128(10, 2))}))
    assert frame_with(data_page(order="price, rising"))["price"].tolist() == ["-1.00", "9.50", "10.25", None]
    assert frame_with(data_page(order="price, falling"))["price"].tolist() == ["10.25", "9.50", "-1.00", None]
    assert len(frame_with(data_page(order="nope, rising"))) == 4


def test_a_cut_list_says_that_its_order_is_its_own(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_LAKE__PREVIEW_ROWS", "2")
    assert "Sorted among these rows alone." in words(data_page(order="amount, rising"))


def test_a_click_on_a_value_narrows_the_filter_down(orders: Path) -> None:
    app = click(data_page(where="amount > 20 OR amount < 0", order="order_id, rising"), 1, "status")
    assert "**status** new" in words(app)
    press(app, "narrow_=")
    assert app.text_input(key="where").value == "(amount > 20 OR amount < 0) AND status = 'new'"
    assert sorted(frame_with(app)["order_id"].tolist()) == [3, 4, 5] and "**status** new" not in words(app)
    app = click(app, 0, "order_id")
    app.button(key="narrow_>=").click()
    assert len(frame_with(again(app))) == 3


def test_a_condition_comes_from_boxes_of_the_columns_type(orders: Path) -> None:
    app = data_page()
    assert app.text_input(key="where").placeholder == "amount >= 0"  # of the table's own columns
    app.selectbox(key="condition_column").set_value("amount")
    again(app)
    app.selectbox(key="condition_operator_double").set_value(">=")
    app.text_input(key="condition_value_double").set_value("30")
    again(app)
    press(app, "condition_add")
    assert app.text_input(key="where").value == "amount >= 30.0"
    assert sorted(frame_with(app)["order_id"].tolist()) == [3, 4, 5]


@pytest.mark.parametrize(
    ("column", "kind", "value", "written"),
    [
        ("day", "date", date(2026, 1, 31), "day = '2026-01-31'"),
        ("at", "timestamp", datetime(2026, 1, 31, 10, 4), "\"at\" = '2026-01-31 10:04:00'"),
        ("ok", "boolean", False, "ok = FALSE"),
        ("id", "bigint", 7, "id = 7"),
        ("note", "string", "it's", "note = 'it''s'"),
    ],
)
def test_each_type_has_its_box(home: Path, column: str, kind: str, value: object, written: str) -> None:
    row = {
        "id": [7], "note": ["x"], "ok": [True], "day": [date(2026, 1, 1)], "at": [datetime(2026, 1, 1, tzinfo=UTC)]
    }  # fmt: skip
    builders.write(home / "lake" / "silver" / "orders", pa.table(row))
    app = data_page()
    app.selectbox(key="condition_column").set_value(column)
    again(app)
    box = next(each for each in app.main if getattr(each, "key", None) == f"condition_value_{kind}")
    box.set_value(value)
    again(app)
    app.button(key="condition_add").click()
    assert again(app).text_input(key="where").value == written


def test_the_whole_table_is_offered_as_a_file(orders: Path) -> None:
    app = data_page(version=1, columns="order_id", where="amount > 15")
    app.button(key="export_rows").click()
    said = words(again(app))
    assert "as CSV: 4 rows of 1 column." in said and "Filter: amount > 15" in said
    assert (
        "weir export silver/orders --version 1 --columns order_id --where 'amount > 15' -o orders_v1_filtered.csv"
        in said
    )


def test_a_filter_that_takes_too_long_is_stopped_in_a_sentence(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_LAKE__FILTER_TIME_LIMIT_S", "0.1")
    builders.write(home / "lake" / "long", pa.table({"text": ["a" * 1_000_000] * 5}))
    app = open_page("table", table="long", view="Data", where=f"lower(text) LIKE '%{'_' * 300}b%'")
    assert app.error and "the filter took longer than" in words(app).lower()
    assert "WEIR_LAKE__FILTER_TIME_LIMIT_S" in words(app)
    until_no_work_is_left()


def until_no_work_is_left() -> None:
    wait_until(lambda: not [thread for thread in threading.enumerate() if "(_run)" in thread.name], "its thread ended")


@pytest.mark.ci
def test_a_filter_ends_when_its_viewer_leaves(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows would take minutes of a core, and the limit is far away; leaving is what the runner does at its own."""
    monkeypatch.setenv("WEIR_LAKE__FILTER_TIME_LIMIT_S", "100000")
    builders.write(home / "lake" / "long", pa.table({"text": ["a" * 1_000_000] * 40}))
    begun = process_time()
    app = AppTest.from_file(str(MAIN), default_timeout=15)
    app.switch_page("../pages/table.py")
    app.query_params.update({"table": "long", "view": "Data", "where": f"lower(text) LIKE '%{'_' * 900}b%'"})
    with pytest.raises(RuntimeError, match="timed out"):
        app.run()
    until_no_work_is_left()
    assert 5 < process_time() - begun < 60, "it ran, and not to its end"


def test_each_table_of_a_group_of_unusual_commits_has_a_link_on_overview(orders: Path, home: Path) -> None:
    gold, now = builders.orders_table(home / "lake" / "gold" / "orders"), datetime.now(UTC)
    cause, later = (
        Notice(str(path), name, 2, Measure.HIGHEST, "amount", "498.2", "47,189", "amount <= 550", "WRITE", at)
        for path, name, at in ((orders, "silver/orders", now - timedelta(minutes=5)), (gold, "gold/orders", now))
    )
    store = stream_store.open_store(home)
    store.noticed.keep([later, cause], now=now)
    store.close()
    found = {name: to for name, to in links(open_page("overview")).items() if to.startswith("table=")}
    assert list(found.items()) == [("silver/orders", "table=silver%2Forders"), ("gold/orders", "table=gold%2Forders")]


def test_an_unusual_commit_is_told_until_somebody_has_seen_it(orders: Path, home: Path) -> None:
    store = stream_store.open_store(home)
    jump = Notice(
        str(orders), "silver/orders", 2, Measure.HIGHEST, "amount", "498.2", "47,189", "amount <= 550", "WRITE",
        datetime.now(UTC),
    )  # fmt: skip
    store.noticed.keep([jump], now=datetime.now(UTC))
    assert "highest amount 498.2 → 47,189 at v2, WRITE" in words(open_page("overview"))
    app = open_page("table", table="silver/orders")
    assert "Highest amount 498.2 → 47,189 at v2, WRITE." in app.warning[0].value.replace("\\", "")
    assert links(app)["What changed"] == "table=silver%2Forders&from=1&to=2"
    assert links(app)["First bad version"] == "table=silver%2Forders&good=1&condition=amount+%3C%3D+550"
    press(app, "expect_2")
    send(app, "expect", "nothing costs more")
    (expected,) = (judgement.expectation for judgement in store.judgements())
    assert (expected.uri, expected.condition, expected.why) == (str(orders), "amount <= 550", "nothing costs more")
    assert "1 table expectation: 1 too early to tell" in words(app)
    assert f"expected by {expected.by}: nothing costs more" in words(app)
    press(app, "expect_no_more_holds(amount <= 550)")
    send(app, "expect", "something does")
    assert store.judgements() == [] and "table expectation" not in words(app)
    press(app, "seen_2")
    send(app, "seen", "a price list in cents")
    assert not open_page("table", table="silver/orders").warning and store.noticed.open() == []
    assert [entry.reason for entry in store.audit_entries(subject="silver/orders")] == [
        "a price list in cents", "something does", "nothing costs more",
    ]  # fmt: skip
    store.close()
