"""The Changes page: two versions of a real table compared."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from streamlit.testing.v1 import AppTest

from app import cache, services
from app.changes.rows import every_row
from backend.changes import cache as diff_cache
from backend.changes.answer import diff
from backend.changes.model import DiffMethod, Question, VersionDiff
from backend.errors import StorageError
from backend.sql.export import FORMATS
from tests.worlds.lake import builders
from tests.worlds.lake.planted import plant
from tests.worlds.pages.fixtures import Place
from tests.worlds.pages.frames import frame_with
from tests.worlds.pages.opened import again, keys, metrics, open_page, param, plain, press, words

TABLE = "silver/orders"


def keyed_orders_with_feed(path: Path) -> Path:
    """v0 three orders, v1 the key named, v2 two more, v3 order 2 updated, v4 order 1 deleted; with a change feed."""
    builders.write(path, {"order_id": [1, 2, 3], "status": ["new"] * 3}, configuration=builders.CHANGE_FEED)
    DeltaTable(str(path)).alter.set_table_properties({"weir.primaryKey": "order_id"}, raise_if_not_exists=False)
    builders.write(path, {"order_id": [4, 5], "status": ["new"] * 2})
    DeltaTable(str(path)).update(updates={"status": "'paid'"}, predicate="order_id = 2")
    DeltaTable(str(path)).delete("order_id = 1")
    return path


def orders_without_feed(path: Path) -> Path:
    return builders.orders_table(path, change_feed=False)


def feed_turned_on_late(path: Path) -> Path:
    """v0 to v3 orders without a change feed, v4 turns it on, v5 one more order."""
    orders_without_feed(path)
    DeltaTable(str(path)).alter.set_table_properties(builders.CHANGE_FEED)
    return builders.write(path, {"order_id": [9], "status": ["new"], "amount": [1.0]})


@pytest.fixture
def orders(place: Place) -> Path:
    return place(keyed_orders_with_feed, TABLE)


@pytest.fixture
def plain_orders(place: Place) -> Path:
    """The same without key and feed."""
    return place(orders_without_feed, TABLE)


def changes(from_: str | int, to: str | int, **params: str | int) -> AppTest:
    return open_page("changes", table=TABLE, from_=from_, to=to, **params)


def test_a_link_with_both_versions_shows_net_gross_and_rows_and_swapped_what_going_back_changes(orders: Path) -> None:
    app = changes(1, 4)
    shown, text = metrics(app), words(app)
    assert "v1 → v4, 3 commits" in text
    assert "2 rows inserted, 1 updated, 1 deleted (80 % of rows); schema and properties unchanged" in text
    assert (shown["Inserted (net)"], shown["Updated (net)"], shown["Deleted (net)"]) == ("+2", "1", "−1")
    assert "Gross" not in text  # both agree
    press(app, "swap")
    assert "Going back from v4 to v1 undoes 3 commits" in words(app)
    assert metrics(app)["Inserted (net)"] == "+1"
    assert "v3 and v3 are the same version: nothing differs" in words(changes(3, 3))


def test_before_and_after_stand_side_by_side_and_kinds_and_columns_filter_the_rows(orders: Path) -> None:
    for link in ({"from_": 2, "to": 3}, {"from_": 1, "to": 4, "column": "status"}):
        rows = frame_with(changes(**link), "Change")
        assert list(rows["Change"]) == ["≠ update"]
        assert (rows["status · before"][0], rows["status · after"][0]) == ("new", "paid")
    assert list(frame_with(changes(1, 4, kind="delete"), "Change")["Change"]) == ["− delete"]


def test_views_show_the_feed_the_commits_what_is_known_and_properties(orders: Path) -> None:
    app = changes(1, 4, view="Change feed")
    feed = frame_with(app, "_change_type")
    listed = list(zip(feed["_commit_version"], feed["_change_type"], feed["order_id"], strict=True))
    assert sorted(listed) == [
        (2, "insert", 4),
        (2, "insert", 5),
        (3, "update_postimage", 2),
        (3, "update_preimage", 2),
        (4, "delete", 1),
    ]
    assert "All 5 rows of v2 to v4, as they were recorded" in words(app)
    assert "weir changes silver/orders --from 1 --to 4 --output changes.parquet" in words(app)
    commits = frame_with(changes(1, 4, view="Commits"), "Version")
    assert list(commits["Version"]) == [4, 3, 2]
    assert [list(commits[name]) for name in ("Inserted", "Updated", "Deleted")] == [[0, 0, 2], [0, 1, 0], [1, 0, 0]]
    text = words(changes(1, 4, view="How it knows"))
    assert "Change data feed" in text and "recorded for every commit from v2 to v4" in text
    DeltaTable(str(orders)).alter.set_table_properties({"delta.checkpointInterval": "20"})
    properties = frame_with(changes(4, 5, view="Schema and properties"), "Name").set_index("Name")
    assert properties.loc["delta.checkpointInterval", "After"] == "20"


def test_every_changed_row_can_be_exported_though_the_page_lists_the_first(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_LAKE__DIFF_ROWS", "10")
    path = builders.write(home / "lake" / "sales", {"sale": list(range(400)), "paid": ["no"] * 400})
    DeltaTable(str(path)).update(updates={"paid": "'yes'"}, predicate="sale >= 250")
    DeltaTable(str(path)).delete("sale < 30")
    app = open_page("changes", table="sales", from_=0, to=2, key="sale")
    assert "Export all 180 changed rows" in words(app)
    question = Question(services.lake().find("sales"), 0, 2, key=("sale",), row_limit=10)
    listed = json.loads(every_row(services.lake(), diff(services.lake(), question), FORMATS["json"]))
    changed = dict.fromkeys(range(30), "delete") | dict.fromkeys(range(250, 400), "update")
    assert {row["key"]["sale"]: row["change"] for row in listed} == changed and len(listed) == 180


def test_without_versions_in_the_link_the_last_commits_are_compared(orders: Path) -> None:
    app = open_page("changes", table=TABLE)
    assert "v0 → v4" in words(app) and app.selectbox(key="pick_to").value == "4"
    assert not [button for button in app.button if button.label.startswith("Compare with")], "young, of one writer"
    text = words(changes(3, 4))
    (commit,) = DeltaTable(str(orders)).history(1)
    assert commit["operation"] == "DELETE" and "DELETE by " in text
    assert f"where {commit['operationParameters']['predicate']}" in text


def test_the_pickers_write_the_url(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = changes(1, 4)
    offered = app.selectbox(key="pick_from").options
    assert not any("UTC" in label for label in offered), "the time is not cut in a narrow picker"
    # The browser answers with the label: one that changes with the clock would come back as a typed version.
    monkeypatch.setattr(services, "now", lambda: datetime.now(UTC) + timedelta(hours=3))
    app.selectbox(key="pick_from").select("3")
    again(app)
    assert app.selectbox(key="pick_from").options == offered
    assert param(app, "from") == "3"
    assert "v3 → v4, 1 commit" in words(app)


def test_the_latest_is_compared_with_a_day_ago_and_with_the_last_one_by_another_writer(home: Path) -> None:
    log = builders.HandLog(home / "lake" / "silver" / "orders").start()
    for hours, user in [(60, "ann"), (30, "bob"), (20, "bob"), (1, "ann"), (0.5, "ann")]:
        at = datetime.now(UTC) - timedelta(hours=hours)
        log.commit(builders.commit_info(timestamp=int(at.timestamp() * 1000), userName=user))
    app = open_page("changes", table=TABLE)
    labels = [button.label for button in app.button if button.label.startswith("Compare with")]
    assert labels == ["Compare with 24 h ago", "Compare with the previous version by another writer"]
    press(app, "compare_with_0")
    assert param(app, "from") == "24 h ago" and "v2 → v5" in words(app)
    assert plain(app.button(key="compare_with_1").help) == "v3 is by bob. All later ones are by ann."
    press(app, "compare_with_1")
    assert "v3 → v5" in words(app)


def test_without_a_key_updates_are_said_to_be_among_the_others(plain_orders: Path) -> None:
    app = changes(0, 3)
    assert "3 rows inserted and 2 deleted, updates among them" in words(app)
    press(app, "pair_by_order_id")
    assert "2 rows inserted, 1 updated, 1 deleted" in words(app) and "No key is known" not in words(app)


def test_where_the_feed_does_not_reach_files_answer_and_where_they_are_gone_commits(place: Place) -> None:
    late_feed = place(feed_turned_on_late, TABLE)
    app = changes(2, 5, view="How it knows")
    assert "whole rows" in words(app).lower() and "Not by the change feed" in words(app)
    added = set(DeltaTable(str(late_feed)).file_uris()) - set(DeltaTable(str(late_feed), version=4).file_uris())
    for file in late_feed.glob("*.parquet"):
        if str(file) not in added:
            file.unlink()
    app = changes(0, 5, rows_where="amount > 0")
    text = words(app)
    assert "rows cannot be compared" in text and "is gone" in text
    assert list(frame_with(app, "Version")["Version"]) == [5, 4, 3, 2, 1]
    press(app, "first_covered")
    assert "v3 → v5" in words(app) and metrics(app)["Inserted (net)"] == "+1", words(app)
    assert "rows_where" not in app.query_params and app.text_input(key="rows_where").value == "", "another comparison"


# long work --------------------------------------------------------------------------------------------------------


@pytest.fixture
def computed(home: Path) -> list[Question]:
    """The question of each comparison of rows that was begun; each reads in its own thread."""
    begun: list[Question] = []

    def counted(*asked: Any) -> VersionDiff:
        begun.append(asked[1])
        return diff(*asked)

    cache.differences().compute = counted
    return begun


def test_nothing_is_computed_twice_for_two_viewers_or_other_views(orders: Path, computed: list[Question]) -> None:
    changes(1, 4)
    app = changes("-3", "latest", view="Commits")
    assert "v1 → v4" in words(app) and len(computed) == 1
    press(app, "pin")
    assert param(app, "to") == "4" and "pin" not in keys(app.button) and len(computed) == 1
    summary = next(each.value for each in app.code if "How it knows" in each.value)
    assert "2 rows inserted, 1 updated, 1 deleted" in summary and "1 row stayed the same." in summary


def test_what_costs_more_waits_for_a_click_that_names_the_bytes(
    plain_orders: Path, computed: list[Question], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diff_cache, "SMALL_BYTES", -1)
    sizes = sum(file.stat().st_size for file in plain_orders.glob("*.parquet"))
    app = changes(0, 3, key="order_id")
    text = words(app)
    assert not computed
    assert "v0 → v3, 3 commits" in text
    assert "rows not compared yet, their number by statistics: +1; schema and properties unchanged" in text
    assert "Join by key" in text and "Not by the change feed" in text
    assert metrics(app)["Inserted (net)"] == "–"
    assert list(frame_with(app, "Version", "Condition")["Version"]) == [3, 2, 1]
    read = int(app.button(key="start").label.split("read ")[1].split()[0].split(".")[0])
    assert 0 < read * 1000 <= sizes
    press(app, "start")
    again(app)
    assert len(computed) == 1
    assert "2 rows inserted, 1 updated, 1 deleted (80 % of rows)" in words(app)


def test_above_the_limit_the_log_answers_and_a_click_reads_all_the_same(
    plain_orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_LAKE__DIFF_MAX_BYTES", "10")
    app = changes(0, 3)
    assert "rows cannot be compared, their number by statistics: +1" in words(app)
    assert "WEIR_LAKE__DIFF_MAX_BYTES" in words(app)
    press(app, "anyway")
    assert param(app, "method") == "multiset"
    assert "3 rows inserted and 2 deleted, updates among them" in words(again(app))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (StorageError("the storage did not answer", hint="try again"), "The storage did not answer"),
        (OverflowError("date value out of range"), "Weir failed: OverflowError"),  # a fault of its own
        (ZeroDivisionError(), "A fault of Weir, please report it: test_changes.py"),
    ],
)
def test_a_failed_comparison_is_said_and_offered_again(orders: Path, error: Exception, said: str) -> None:
    def fails(*_: object) -> VersionDiff:
        raise error

    cache.differences().compute = fails
    app = changes(1, 4)
    assert said in words(app) and "Starting …" not in words(app) and "rows not compared yet" in words(app)
    assert "Stopped before rows were counted" in words(app), "it does not begin again by itself"
    cache.differences().compute = diff
    press(again(app), "start")
    assert "2 rows inserted" in words(again(app))


# how to compare ---------------------------------------------------------------------------------------------------


def test_a_condition_keeps_changes_whose_row_satisfies_it_and_a_click_takes_it_away(orders: Path) -> None:
    app = changes("-3", 4, rows_where="NOT (status <> 'paid')")
    assert plain(app.button(key="where_filter").label) == "Only rows that break status <> 'paid'"
    counts = "0 rows inserted, 1 updated, 0 deleted;"
    assert f"of rows that break status <> 'paid': {counts}" in words(app)
    press(app, "pin")
    assert param(app, "from") == "1" and counts in words(app), "the same comparison"
    assert list(frame_with(app, "Change")["Change"]) == ["≠ update"]
    press(app, "where_filter")
    assert "rows_where" not in app.query_params and app.text_input(key="rows_where").value == ""
    assert "where_filter" not in keys(app.button) and len(frame_with(app, "Change")) > 1


def test_a_condition_and_a_key_to_look_up_that_are_none_are_said(orders: Path, computed: list[Question]) -> None:
    assert changes(1, 4, rows_where="nope >").error and not computed
    for key_of in ("[1]", '{"gone":1}'):
        app = changes(0, 4, key_of=key_of)
        assert ("No column gone to look a key up by" in words(app)) == ("gone" in key_of)
        assert list(frame_with(app, "Change")["Change"])


def test_a_column_left_out_makes_its_updates_none(orders: Path) -> None:
    app = changes(1, 4, without="status")
    assert "2 rows inserted, 0 updated, 1 deleted" in words(app)
    assert "status" not in frame_with(app, "Change").columns


def test_the_link_names_the_method_and_one_that_is_not_possible_is_refused_with_its_reason(
    orders: Path, place: Place
) -> None:
    app = changes(1, 4, method="multiset", view="How it knows")
    assert "Whole rows" in words(app) and "3 rows inserted and 2 deleted, updates among them" in words(app)
    assert app.selectbox(key="pick_method").options == ["Change data feed", "Join by key", "Whole rows", "Log alone"]
    place(orders_without_feed, "silver/plain")
    app = open_page("changes", table="silver/plain", from_=0, to=3, method="change_feed")
    assert "The change feed is not possible" in words(app)
    assert app.selectbox(key="pick_method").value == DiffMethod.CHANGE_FEED


def test_another_table_is_compared_by_key_or_whole_rows(orders: Path, home: Path) -> None:
    builders.write(home / "lake" / "gold" / "copy", {"order_id": [2, 3, 9], "status": ["paid", "new", "new"]})
    text = words(changes(4, 0, against="gold/copy", key="order_id", view="Commits"))
    # orders at v4: 2 paid, 3, 4 and 5 new
    assert "silver/orders v4 → gold/copy v0: 1 row inserted, 0 updated, 2 deleted" in text
    assert "Two tables share no commits" in text
    app = open_page("changes", table=TABLE, against="gold/none")
    assert "gold/none" in words(app)
    app.selectbox(key="pick_against").set_value(None)
    again(app)
    assert "v0 → v4" in words(again(app))


# what leads on ----------------------------------------------------------------------------------------------------


def test_files_view_counts_what_was_only_rewritten(home: Path) -> None:
    path = home / "lake" / "orders"
    for number in range(3):
        builders.write(path, {"id": [number]})
    DeltaTable(str(path)).optimize.compact()
    app = open_page("changes", table="orders", from_=0, to=3, view="Files")
    assert "compaction rewrote 3 files without changing rows" in words(app)
    assert metrics(app)["Only rewritten (gross)"] == "3"
    assert metrics(app)["Files added"] == "1"
    rewrites = frame_with(app, "Version", "Files removed")
    assert list(rewrites["Version"]) == [3]


def test_a_key_has_its_history_over_the_range_and_its_whole_life_beyond(orders: Path) -> None:
    app = changes(3, 4, key_of='{"order_id":2}')
    assert "No commit of this range touched it" in words(app)
    press(app, "key_life")
    assert "History of order_id = 2, v0 → v4" in words(app).replace("**", "")
    steps = frame_with(app, "Version", "At", "Change")
    assert list(steps["Version"]) == ["v3", "v0"] and list(steps["Operation"]) == ["UPDATE", "WRITE"]
    assert list(steps["Change"]) == ["≠ update", "+ insert"] and param(app, "life") == "1"
    assert (steps["status · before"][0], steps["status · after"][0]) == ("new", "paid")
    app = changes(0, 4, key_of='{"order_id":2}')
    assert list(frame_with(app, "Version", "At", "Change")["Version"]) == ["v3"]
    assert "From the change feed of v1 to v4" in words(app)
    press(app, "key_close")
    assert "key_of" not in app.query_params


def test_a_second_row_with_a_key_is_said_where_rows_and_where_the_key_are_shown(orders: Path) -> None:
    builders.write(orders, {"order_id": [2], "status": ["paid"]})
    app = changes(4, 5, key_of='{"order_id":2}')
    assert "v5: a second row with this key." in words(app)
    assert "The inserted row was there already at v4 by `order_id`, in files of v4 (DELETE); an exact copy" in words(
        app
    )
    assert "`order_id` = 2 in 2 rows" in words(app)
    assert list(frame_with(app, "Version", "At", "Change")["Rows with this key"]) == ["1 → 2"]


def test_what_stands_out_is_the_title_without_what_the_filter_asks_for(home: Path) -> None:
    made = plant(home / "lake" / "payments", versions=4, bad_version=2)
    app = open_page("changes", table="payments", from_=1, to=2, rows_where="amount > 100")
    text = words(app)
    (title,) = app.subheader
    assert plain(title.value).startswith(
        f"All {metrics(app)['Updated (net)']} updates multiplied `amount` by 100; all have"
    )
    assert "`currency` = JPY" in title.value and "2026-11-11 or 2026-11-12" in text and "Gross" not in text
    asked = open_page("changes", table="payments", from_=1, to=2, rows_where="amount > 100 AND currency = 'JPY'")
    assert "`currency` =" not in words(asked) and "2026-11-11 or 2026-11-12" in words(asked)
    DeltaTable(str(home / "lake" / "payments")).delete("currency = 'JPY'")
    deleted = words(open_page("changes", table="payments", from_=3, to=4))
    assert "DELETE" in deleted and "`currency` =" not in deleted, "nor what a DELETE was asked for"
    assert made.changed and app.text_input(key="rows_where").placeholder == "amount < 0"


def test_another_table_is_looked_in_where_somebody_chooses_it(home: Path) -> None:
    numbers, lake = range(200), home / "lake"
    builders.write(lake / "amounts", {"invoice_id": numbers, "amount": [1.5 * n for n in numbers]})
    builders.write(lake / "invoices", {"invoice_id": numbers, "source": ["WEB" if n % 4 else "APP" for n in numbers]})
    builders.write(lake / "other", {"amount": [1.5], "source": ["APP"]})
    DeltaTable(str(lake / "amounts")).delete("invoice_id % 4 = 0 OR amount > 297")
    app = open_page("changes", table="amounts", from_=0, to=1)
    assert "The DELETE took 51 rows: `invoice_id % 4 = 0` 50, `amount > 297` 1, both 0." in plain(
        app.subheader[0].value
    )
    assert app.selectbox(key="pick_look_in").options == ["invoices"], "the only table with one of its keys"
    assert "found there" not in words(app)
    app.selectbox(key="pick_look_in").set_value("invoices")
    text = words(again(again(app)))
    assert param(app, "look_in") == "invoices" and "51 of 51 changed rows have one row in `invoices` v0" in text
    assert "50 of the 51 deleted rows found there have `invoices.source` = APP: 98 % against 25 % of the rows" in text


# what is wrong or huge: a clear answer, a way on, no message above 500 kB --------------------------------------------


MOST_BYTES = 500_000


def messages(app: AppTest) -> Iterator[tuple[int, str]]:
    """Size and kind of every element that the browser gets."""
    waiting: list[Any] = [app.main, app.sidebar]
    while waiting:
        node = waiting.pop()
        waiting += getattr(node, "children", {}).values()
        proto = getattr(node, "proto", None)
        if proto is not None and hasattr(proto, "ByteSize"):
            yield proto.ByteSize(), type(node).__name__


def assert_small(app: AppTest) -> None:
    assert max(messages(app)) < (MOST_BYTES, "")


@pytest.mark.parametrize(
    ("asked", "said", "way_on"),
    [
        ({"from_": "latest2"}, "Not a version: 'latest2'", "such as `-5`"),
        ({"from_": "999"}, "no version 999", "versions end at 4"),
        ({"from_": "24 h ago"}, "has no version at", ""),
        ({"from_": "9" * 5_000}, "Not a version: '999", "such as `-5`"),
        ({"rows_where": "order_id > 0; DROP"}, 'Syntax error at or near ";" (character 13)', "No SELECT, FROM or ;"),
        ({"rows_where": "read_text('/etc/passwd') <> ''"}, "function 'read_text' is not allowed", "Such as"),
        ({"key": "x" * 5_000}, "to use as a key", "columns: `order_id`"),
    ],
)
def test_what_cannot_be_compared_is_said_with_a_way_on(
    orders: Path, asked: dict[str, str], said: str, way_on: str
) -> None:
    for file in orders.rglob("*.parquet"):
        file.unlink()  # nothing is read
    app = open_page("changes", table=TABLE, **({"from_": 0, "to": 4} | asked))
    assert said in words(app) and way_on in words(app)
    assert not app.dataframe and app.selectbox(key="pick_to").value == "4"  # and the form stays
    assert app.selectbox(key="pick_from").value == asked.get("from_", "0")
    assert_small(app)


def test_a_log_full_of_huge_texts_stays_a_small_page(home: Path) -> None:
    log = builders.HandLog(home / "lake" / "t").start(columns={f"c{number}": "string" for number in range(3_000)})
    columns = {f"d{number}": "string" for number in range(3_000)}
    properties = {f"p{number}": "x" * 2_000 for number in range(100)}
    log.commit(builders.commit_info(), builders.metadata(columns, configuration=properties))
    huge = {"operationParameters": {"predicate": "y" * 600_000}, "userName": "u" * 600_000}
    log.commit(builders.commit_info("X" * 600_000, **huge))
    for view in ("Commits", "How it knows"):
        app = open_page("changes", table="t", from_=0, to=2, view=view)
        assert "3,000 columns added, 3,000 dropped; 100 properties changed" in words(app)
        assert_small(app)


def test_wide_rows_of_a_megabyte_stay_a_small_page(home: Path) -> None:
    path = home / "lake" / "t"
    for letter in "xy":
        wide = {f"c{number}": [letter] * 20 for number in range(200)}
        builders.write(path, {"id": list(range(20)), "note": [letter * 2**20] * 20} | wide, mode="overwrite")
    app = open_page("changes", table="t", from_=0, to=1, key="id")
    rows = frame_with(app, "Change")
    assert metrics(app)["Updated (net)"] == "20" and len(rows) == 20
    assert len(rows.columns) <= 64 and "more columns are not shown" in words(app)
    assert rows["note · after"][0].endswith("… (1,048,576 characters)")
    assert_small(app)
