"""Summary: key figures, who writes, rows at any version, schema, profile, and what is unusual."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from time import process_time
from typing import Any

import pyarrow as pa
import pytest
import streamlit as st
from deltalake import DeltaTable
from streamlit.testing.v1 import AppTest

from app.summary import page as schema
from backend.search.notice import Measure, Notice
from backend.store.store import ControlStore
from tests.worlds.lake import builders
from tests.worlds.pages.fixtures import Place
from tests.worlds.pages.frames import frame_with
from tests.worlds.pages.opened import MAIN, again, click, keys, links, metrics, open_page, press, send, words
from tests.worlds.processes import wait_until
from tests.worlds.store import stream_store


def data_page(**params: str | int) -> AppTest:
    return open_page("table", table="silver/orders", view="Data", **params)


def test_the_summary_answers_how_big_who_and_which_columns(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spinners: list[str] = []

    @contextmanager
    def spinner(words: str, **_: bool) -> Iterator[None]:
        spinners.append(words)
        yield

    monkeypatch.setattr(st, "spinner", spinner)
    pinned = metrics(open_page("table", table="silver/orders", version=0))
    assert pinned["Rows"] == "3" and pinned["Files"] == "1" and "Committed" in pinned
    assert "Reading every version …" not in spinners
    app = open_page("table", table="silver/orders")
    assert "Reading every version …" in spinners
    figures = metrics(app)
    assert figures["Rows"] == "4" and figures["Files"] == "2" and "Last commit" in figures
    assert "Last 4 commits by delta-rs" in words(app)
    assert "Since v0" in words(app) and "+1 row" in words(app) and "later than usual" not in words(app)
    frame = frame_with(app, "Nullable")
    assert frame["Column"].tolist() == ["order_id", "status", "amount"]
    assert frame["Type"].tolist() == ["bigint", "string", "double"]
    app.segmented_control(key="view").set_value("Details")
    assert "Protocol" in again(app).table[0].value["Name"].tolist()


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
    app = open_page("table", table="said")
    said = words(app)
    assert "Orders as they are *now*" in said
    for trait in ("partitioned by day", "change feed", "log kept: 3 days", "1 check constraint"):
        assert f":gray-badge[{trait}]" in said
    assert frame_with(app, "Constraint")["Every row satisfies"].tolist() == ["id > 0"]
    assert frame_with(app, "Nullable")["Partition"].tolist() == ["", "partition key"]
    assert "A commit every 12 s, the last" in said and "that is later than usual" in said
    assert "In 24 h: no growth." in said and "by Spark/4 (5)" in said


def test_the_summary_links_to_the_streams_that_write_and_read_the_table(
    orders: Path, store: ControlStore, now: datetime
) -> None:
    for name in ("silver_orders", "gold"):
        stream_store.flowing(store, name, now)
    writes = replace(store.declarations()["silver_orders"], sink_table="silver/orders")
    store.declare([writes, replace(store.declarations()["gold"], source_tables=("silver/orders",))], now=now)
    app = open_page("table", table="silver/orders")
    assert "Written by stream" in words(app) and "Read by" in words(app)
    streams = {label: leads_to for label, leads_to in links(app).items() if "stream=" in leads_to}
    assert streams == {"silver_orders": "stream=silver_orders", "gold": "stream=gold"}


def test_a_link_opens_the_rows_of_a_version_its_columns_and_those_of_a_filter(orders: Path) -> None:
    app = data_page(version=0)
    assert sorted(frame_with(app)["order_id"].tolist()) == [1, 2, 3] and "All 3 rows of v0." in words(app)
    assert frame_with(data_page(columns="status")).columns.tolist() == ["status"]
    app = data_page(where="amount > 26 AND status = 'new'")
    assert sorted(frame_with(app)["order_id"].tolist()) == [3, 4, 5]
    assert "All 3 rows of v3 that match." in words(app)
    assert "No row of v3 matches." in words(data_page(where="amount < 0"))
    app = data_page(where="amount >> 1; DROP TABLE x")
    assert len(app.error) == 1 and "character 12" in app.error[0].value and not app.dataframe
    assert app.text_input(key="where").value == "amount >> 1; DROP TABLE x"


def test_a_cut_list_says_so_and_that_its_order_is_its_own(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_LAKE__PREVIEW_ROWS", "2")
    app = data_page(order="amount, rising")
    assert len(frame_with(app)) == 2 and "The first 2 rows of 4 in v3." in words(app)
    assert "Sorted among these rows alone." in words(app)


def test_the_rows_are_offered_as_code_for_other_tools_and_as_a_file(orders: Path) -> None:
    app = data_page(version=1, columns="order_id", where="amount > 15")
    app.session_state["copy_as"] = True
    app = again(app)
    text = words(app)
    assert f"DeltaTable('{orders}', version=1)" in text and "FOR VERSION AS OF 1" in text
    assert f"delta.`{orders}` VERSION AS OF 1" in text and """SELECT "order_id" FROM rows WHERE""" in text
    app.button(key="export_rows").click()
    text = words(again(app))
    assert "Filter: amount > 15" in text
    file = "orders_v1_filtered.csv"
    assert f"weir export silver/orders --version 1 --columns order_id --where 'amount > 15' -o {file}" in text


def test_rows_whose_files_are_gone_are_an_answer_and_the_rest_stays(orders: Path) -> None:
    for file in orders.glob("*.parquet"):
        file.unlink()
    app = data_page()
    assert len(app.error) == 1 and "VACUUM" in app.error[0].value and metrics(app)["Rows"] == "4"


def test_a_broken_newest_commit_leads_to_what_is_still_known(orders: Path) -> None:
    (orders / "_delta_log" / f"{3:020d}.json").write_text('{"add": garbage')
    app = open_page("table", table="silver/orders")
    assert "not JSON" in app.error[0].value
    assert [link.label for link in app.main.page_link] == ["History of the table", "Versions that can still be read"]


def test_rows_that_were_read_are_sorted_by_their_values(home: Path) -> None:
    prices = [Decimal("9.5"), None, Decimal("10.25"), Decimal("-1.00")]  # shown as text, which would sort otherwise
    builders.write(home / "lake" / "silver" / "orders", pa.table({"price": pa.array(prices, pa.decimal128(10, 2))}))
    assert frame_with(data_page(order="price, rising"))["price"].tolist() == ["-1.00", "9.50", "10.25", None]
    assert frame_with(data_page(order="price, falling"))["price"].tolist() == ["10.25", "9.50", "-1.00", None]
    assert len(frame_with(data_page(order="nope, rising"))) == 4


def test_a_click_on_a_value_narrows_the_filter_down(orders: Path) -> None:
    assert data_page().text_input(key="where").placeholder == "amount >= 0"  # of the table's own columns
    app = click(data_page(where="amount > 20 OR amount < 0", order="order_id, rising"), "rows", 1, "status")
    assert "**status** new" in words(app)
    press(app, "narrow_=")
    assert app.text_input(key="where").value == "(amount > 20 OR amount < 0) AND status = 'new'"
    assert sorted(frame_with(app)["order_id"].tolist()) == [3, 4, 5] and "**status** new" not in words(app)
    press(click(app, "rows", 0, "order_id"), "narrow_>=")
    assert len(frame_with(app)) == 3


def test_each_type_has_its_box(home: Path) -> None:
    row = {
        "id": [7], "note": ["x"], "ok": [True], "amount": [1.5],
        "day": [date(2026, 1, 1)], "at": [datetime(2026, 1, 1, tzinfo=UTC)],
    }  # fmt: skip
    builders.write(home / "lake" / "silver" / "orders", pa.table(row))
    boxes: tuple[tuple[str, str, Any, str], ...] = (
        ("day", "date", date(2026, 1, 31), "day = '2026-01-31'"),
        ("at", "timestamp", datetime(2026, 1, 31, 10, 4), "\"at\" = '2026-01-31 10:04:00'"),
        ("ok", "boolean", False, "ok = FALSE"),
        ("id", "bigint", 7, "id = 7"),
        ("note", "string", "it's", "note = 'it''s'"),
        ("amount", "double", "30", "amount >= 30.0"),
    )
    app, conditions = data_page(), []
    for column, kind, value, condition in boxes:
        app.selectbox(key="condition_column").set_value(column)
        again(app)
        app.selectbox(key=f"condition_operator_{kind}").set_value(condition.split()[1])
        box = next(each for each in app.main if getattr(each, "key", None) == f"condition_value_{kind}")
        box.set_value(value)
        again(app)
        press(app, "condition_add")
        conditions.append(condition)
        assert app.text_input(key="where").value == " AND ".join(conditions)


def until_no_work_is_left() -> None:
    wait_until(lambda: not [thread for thread in threading.enumerate() if "(_run)" in thread.name], "its thread ended")


@pytest.mark.ci
def test_a_filter_ends_when_its_viewer_leaves(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows would take minutes of a core, and the limit is far away; leaving is what the runner does at its own."""
    monkeypatch.setenv("WEIR_LAKE__FILTER_TIME_LIMIT_S", "100000")
    builders.write(home / "lake" / "long", pa.table({"text": ["a" * 1_000_000] * 40}))
    begun = process_time()
    app = AppTest.from_file(str(MAIN), default_timeout=6)
    app.switch_page("../pages/table.py")
    app.query_params.update({"table": "long", "view": "Data", "where": f"lower(text) LIKE '%{'_' * 900}b%'"})
    with pytest.raises(RuntimeError, match="timed out"):
        app.run()
    until_no_work_is_left()
    assert 2 < process_time() - begun < 60, "it ran, and not to its end"


def test_an_unusual_commit_is_told_until_somebody_has_seen_it(orders: Path, home: Path) -> None:
    store = stream_store.open_store(home)
    jump = Notice(
        str(orders), "silver/orders", 2, Measure.HIGHEST, "amount", "498.2", "47,189", "amount <= 550", "WRITE",
        datetime.now(UTC),
    )  # fmt: skip
    again = replace(jump, kind=Measure.WRITER, subject="", condition="")
    store.noticed.keep([jump, again], now=datetime.now(UTC))
    assert "highest amount 498.2 → 47,189 at v2, WRITE · and 1 more" in words(open_page("overview"))
    app = open_page("table", table="silver/orders")
    assert "Highest amount 498.2 → 47,189 at v2, WRITE." in words(app) and "writer 498.2 → 47,189" in words(app).lower()
    assert links(app)["What changed"] == "table=silver%2Forders&from=1&to=2"
    assert links(app)["First bad version"] == "table=silver%2Forders&good=1&condition=amount+%3C%3D+550"
    assert links(app)["Open an incident…"] == "table=silver%2Forders&from=1&to=2"
    assert [button.label for button in app.button if str(button.key).startswith("repair_")] == [
        "Take back what v2 did…"
    ]
    between = open_page("changes", **{"table": "silver/orders", "from": 1, "to": 2})
    assert "Highest amount 498.2 → 47,189 at v2, WRITE." in words(between) and "repair_0" in keys(between)
    assert "Highest amount" not in words(open_page("changes", **{"table": "silver/orders", "from": 2, "to": 2}))
    press(app, "expect_2_highest_amount")
    assert ":green-badge[:material/check_circle: OK]" in words(app) or ":orange-badge" in words(app), "judged at once"
    assert "A host judges it again every 5 min." in words(app) and "Would never have fired in " in words(app)
    send(app, "expect", "nothing costs more")
    (expected,) = (judgement.expectation for judgement in store.judgements())
    assert (expected.uri, expected.condition, expected.why) == (str(orders), "amount <= 550", "nothing costs more")
    assert "1 table expectation: 1 too early to tell" in words(app)
    assert f"expected by {expected.by}: nothing costs more" in words(app)
    press(app, "expect_no_more_holds(amount <= 550)")
    send(app, "expect", "something does")
    assert store.judgements() == [] and "table expectation" not in words(app)
    press(app, "seen_2_highest_amount")
    send(app, "seen", "a price list in cents")
    app = open_page("table", table="silver/orders")
    assert "Highest amount" not in words(app) and [notice.kind for notice in store.noticed.open()] == [again.kind]
    overview = words(open_page("overview"))  # a note alone, and yet not nothing
    assert "Nothing urgent" not in overview
    assert "1 finding to look at" in overview or "still being looked at, 1 note so far" in overview
    assert [entry.reason for entry in store.audit_entries(subject="silver/orders")] == [
        "a price list in cents", "something does", "nothing costs more",
    ]  # fmt: skip
    store.close()


def test_a_findings_values_are_looked_for_in_other_tables(orders: Path, home: Path) -> None:
    high = {"order_id": [4711], "status": ["paid"], "amount": [47_189.0]}
    builders.write(orders, high)
    version = DeltaTable(str(orders)).version()
    builders.write(home / "lake" / "gold" / "sales", {"order_id": [1, 4711, 4711], "amount": [1.0, 47_189.0, 47_189.0]})
    notice = Notice(
        str(orders), "silver/orders", version, Measure.HIGHEST, "amount", "498.2", "47,189", "amount <= 550", "WRITE",
        datetime.now(UTC) - timedelta(minutes=1), rows=1, where="amount > 550",
    )  # fmt: skip
    store = stream_store.open_store(home)
    store.noticed.keep([notice, replace(notice, kind=Measure.WRITER, subject="")], now=datetime.now(UTC))
    store.close()
    app = open_page("table", table="silver/orders")
    assert [button.label for button in app.button if str(button.key).startswith("carried_")] == ["In other tables…"]
    press(app, f"carried_{version}_highest_amount")
    labels = [link.label.replace("\\", "") for link in app.get("page_link")]
    assert "gold/sales: 2 rows of v0 carry it, by amount and order_id" in labels
    assert "1 table with this column looked at" in words(app)


# Schema ----------------------------------------------------------------


@pytest.fixture
def people(home: Path) -> Path:
    city = pa.struct([("city", pa.string()), ("no", pa.int32())])
    homes = pa.array([{"city": "Ede", "no": 1}, {"city": None, "no": 2}, None], city)
    rows = pa.table({"id": pa.array([1, 2, 3]), "home": homes, "long": ["a" * 40, "b", "c"]})
    return builders.write(home / "lake" / "people", rows)


def cells(app: AppTest) -> dict[str, dict[str, str]]:
    """The lines of the schema by their column."""
    frame = frame_with(app, "Nullable")
    return {row["Column"].strip(): row for row in frame.to_dict("records")}


def test_statistics_come_with_the_tree(people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = open_page("table", table="people")
    lines = cells(app)
    assert (lines["id"]["Min"], lines["id"]["Max"], lines["id"]["Null share"]) == ("1", "3", "0 %")
    assert (lines["city"]["Min"], lines["city"]["Null share"]) == ("Ede", "67 %")
    assert lines["long"]["Min"].startswith("≥ aaaa") and lines["long"]["Max"] == "c"
    assert lines["home"]["Min"] == "" and lines["city"]["Column"].startswith("\u2003")
    assert "From the statistics of 1 file" in words(app)
    monkeypatch.setattr(schema, "AUTO_FILES", 0)
    app = open_page("table", table="people")
    assert "Min" not in frame_with(app, "Nullable").columns, "those of many files are read when asked for"
    app.toggle(key="statistics").set_value(True)
    assert cells(again(app))["id"]["Max"] == "3"


def test_search_and_statistics_are_in_the_link(people: Path) -> None:
    app = open_page("table", table="people", find="city", statistics="false")
    assert list(cells(app)) == ["home", "city"] and "Min" not in frame_with(app, "Nullable").columns
    assert "2 of 5 lines match" in words(app)
    app.text_input(key="find").set_value("nothing")
    assert "No column matches" in words(again(app))


def test_three_thousand_columns_come_in_pages(home: Path) -> None:
    names = {f"c{number:04d}": "long" for number in range(3000)}
    builders.HandLog(home / "lake" / "wide").start(columns=names).commit(builders.add("a.parquet"))
    app = open_page("table", table="wide", schema_page=30)
    assert len(cells(app)) == 100 and list(cells(app))[-1] == "c2999"
    assert "Lines 2,901–3,000 of 3,000." in words(app)


def test_a_schema_that_cannot_be_read_is_an_error_and_the_rest_stays(home: Path) -> None:
    action = builders.metadata()
    action["metaData"]["schemaString"] = "{broken"
    builders.HandLog(home / "lake" / "t").commit(builders.protocol(), action, builders.add("a.parquet", rows=5))
    app = open_page("table", table="t")
    assert "schema cannot be read" in app.error[0].value and metrics(app)["Rows"] == "5"


# Profile ----------------------------------------------------------------


def two_hundred_and_a_hundred_more(path: Path) -> Path:
    """0: a mail for each of 200; 1: 100 more without one."""
    ids = list(range(200))
    builders.write(path, {"land": ["nl" if n % 4 else "de" for n in ids], "id": ids, "email": [f"{n}@x" for n in ids]})
    more = pa.table({"land": ["nl"] * 100, "id": list(range(200, 300)), "email": pa.nulls(100, pa.string())})
    return builders.write(path, more)


@pytest.fixture
def customers(place: Place) -> Path:
    return place(two_hundred_and_a_hundred_more, "customers")


def profile(**params: str) -> AppTest:
    return open_page("table", table="customers", view="Profile", **params)


def test_a_profile_is_there_at_once_from_the_log_and_exact_after_a_click(customers: Path) -> None:
    app = profile()
    frame = frame_with(app, "Null share")
    assert frame["Null share"].tolist() == [0, 0, pytest.approx(1 / 3)] and frame["Highest"].tolist()[1] == "299"
    assert "from the log's statistics alone" in words(app) and "in 2 data files" in words(app)
    assert "Distinct" not in frame.columns
    press(app, "read_profile")
    frame = frame_with(app, "Distinct")
    assert "counted over 300 rows" in words(app) and frame["Null share"].tolist()[2] == pytest.approx(1 / 3)
    assert frame["Commonest"].tolist()[0] == "nl 83 %, de 17 %" and "read_profile" not in keys(app.button)
    assert "counted over 300 rows" in words(profile()), "it is kept"


def test_two_versions_are_compared_from_the_log_and_from_the_rows(customers: Path) -> None:
    app = profile(compare="0")
    frame = frame_with(app, "Against")
    assert frame["Column"].tolist() == ["id", "email", "land"], "what differs leads"
    assert "2 columns differ from v0." in words(app)
    assert frame["Against"].tolist() == ["highest 199 → 299", "null share 0 % → 33 %", ""]
    press(app, "read_profile")
    assert "null share 0 % → 33 %" in frame_with(app, "Against")["Against"][1]
    assert "counted over 300 rows" in words(app) and "read_profile" not in keys(app.button)


def test_a_version_that_is_not_there_and_rows_that_are_gone_are_an_answer(customers: Path) -> None:
    app = profile(compare="99")
    assert len(app.error) == 1 and "99" in app.error[0].value
    for file in customers.glob("*.parquet"):
        file.unlink()
    app = press(profile(), "read_profile")
    assert len(app.error) == 1 and "could not be read" in app.error[0].value
