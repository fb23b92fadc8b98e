"""The Changes page: two versions of a real table compared."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests import builders
from tests.ui.opened import again, home, metrics, open_page, words

__all__ = ["home"]
TABLE = "silver/orders"


@pytest.fixture
def orders(home: Path) -> Path:
    """v0 three orders, v1 the key named, v2 two more, v3 order 2 updated, v4 order 1 deleted; with a change feed."""
    path = home / "lake" / "silver" / "orders"
    builders.write(path, {"order_id": [1, 2, 3], "status": ["new"] * 3}, configuration=builders.CHANGE_FEED)
    DeltaTable(str(path)).alter.set_table_properties({"weir.primaryKey": "order_id"}, raise_if_not_exists=False)
    builders.write(path, {"order_id": [4, 5], "status": ["new"] * 2})
    DeltaTable(str(path)).update(updates={"status": "'paid'"}, predicate="order_id = 2")
    DeltaTable(str(path)).delete("order_id = 1")
    return path


def _frame(app, column: str):
    return next(each.value for each in app.dataframe if column in each.value.columns)


def test_a_link_with_both_versions_shows_net_gross_and_rows(orders: Path) -> None:
    app = open_page("changes", table=TABLE, from_=1, to=4)

    shown, text = metrics(app), words(app)
    assert "v1 → v4, 3 commits" in text
    assert "net 2 inserted, 1 updated, 1 deleted" in text
    assert (shown["Inserted (net)"], shown["Updated (net)"], shown["Deleted (net)"]) == ("+2", "1", "−1")
    assert "did, added up: 2 inserted, 1 updated, 1 deleted" in text


def test_before_and_after_stand_side_by_side(orders: Path) -> None:
    rows = _frame(open_page("changes", table=TABLE, from_=2, to=3), "Change")

    assert list(rows["Change"]) == ["≠ update"]
    row = rows.iloc[0]
    before, after = (next(c for c in rows.columns if c == f"status · {side}") for side in ("before", "after"))
    assert (row[before], row[after]) == ("new", "paid")


def test_without_versions_in_the_link_the_last_commits_are_compared(orders: Path) -> None:
    app = open_page("changes", table=TABLE)

    assert "v0 → v4" in words(app)
    assert app.selectbox(key="pick_to").value == "4"


def test_the_pickers_write_the_url(orders: Path) -> None:
    app = open_page("changes", table=TABLE, from_=1, to=4)

    app.selectbox(key="pick_from").select("3")
    again(app)

    assert app.query_params["from"] in ("3", ["3"])
    assert "v3 → v4, 1 commit" in words(app)


def test_without_a_key_updates_are_said_to_be_among_the_others(home: Path) -> None:
    builders.orders_table(home / "lake" / "silver" / "orders")

    text = words(open_page("changes", table=TABLE, from_=0, to=3))

    assert "net 3 inserted and 2 deleted, updates among them" in text


def test_swapped_versions_tell_what_going_back_changes(orders: Path) -> None:
    app = open_page("changes", table=TABLE, from_=1, to=4)

    app.button(key="swap").click()
    again(app)

    assert "Going back from v4 to v1 undoes 3 commits" in words(app)
    assert metrics(app)["Inserted (net)"] == "+1"


def test_the_same_version_twice_differs_in_nothing(orders: Path) -> None:
    text = words(open_page("changes", table=TABLE, from_=3, to=3))

    assert "v3 and v3 are the same version: nothing differs" in text


@pytest.mark.parametrize(("asked", "said"), [("999", "no version 999"), ("yesterday", "not a version")])
def test_a_version_that_is_not_there_is_said_and_the_pickers_stay(orders: Path, asked: str, said: str) -> None:
    app = open_page("changes", table=TABLE, from_=asked, to=4)

    assert said in words(app).lower()
    assert app.selectbox(key="pick_from").value == asked


def test_offsets_and_latest_are_understood(orders: Path) -> None:
    assert "v3 → v4" in words(open_page("changes", table=TABLE, from_="-1", to="latest"))


def test_where_the_feed_does_not_reach_the_files_that_differ_answer(home: Path) -> None:
    path = builders.orders_table(home / "lake" / "silver" / "orders", change_feed=False)
    DeltaTable(str(path)).alter.set_table_properties(builders.CHANGE_FEED)
    builders.write(path, {"order_id": [9], "status": ["new"], "amount": [1.0]})

    app = open_page("changes", table=TABLE, from_=2, to=5, view="How it knows")

    assert "whole rows" in words(app).lower()
    assert "Not by the change feed" in words(app)


def test_where_the_data_is_gone_the_page_shows_commits_and_from_where_the_feed_covers(home: Path) -> None:
    path = builders.orders_table(home / "lake" / "silver" / "orders", change_feed=False)
    before = set(path.glob("*.parquet"))
    DeltaTable(str(path)).alter.set_table_properties(builders.CHANGE_FEED)
    builders.write(path, {"order_id": [9], "status": ["new"], "amount": [1.0]})
    for file in before:
        file.unlink()

    app = open_page("changes", table=TABLE, from_=0, to=5)

    text = words(app)
    assert "rows cannot be compared" in text
    assert "is gone" in text
    assert list(_frame(app, "Version")["Version"]) == [5, 4, 3, 2, 1]
    app.button(key="first_covered").click()
    again(app)
    assert metrics(app)["Inserted (net)"] == "+1", words(app)


def test_kinds_and_columns_filter_the_rows(orders: Path) -> None:
    deleted = _frame(open_page("changes", table=TABLE, from_=1, to=4, kind="delete"), "Change")
    touched = _frame(open_page("changes", table=TABLE, from_=1, to=4, column="status"), "Change")

    assert list(deleted["Change"]) == ["− delete"]
    assert list(touched["Change"]) == ["≠ update"]


def test_commits_view_names_each_commit_with_its_gross_counts(orders: Path) -> None:
    commits = _frame(open_page("changes", table=TABLE, from_=1, to=4, view="Commits"), "Version")

    assert list(commits["Version"]) == [4, 3, 2]
    assert [list(commits[name]) for name in ("Inserted", "Updated", "Deleted")] == [[0, 0, 2], [0, 1, 0], [1, 0, 0]]


def test_property_changes_are_told(orders: Path) -> None:
    DeltaTable(str(orders)).alter.set_table_properties({"delta.checkpointInterval": "20"})

    properties = _frame(
        open_page("changes", table=TABLE, from_=4, to=5, view="Schema and properties"), "Property"
    ).set_index("Property")

    assert properties.loc["delta.checkpointInterval", "After"] == "20"


def test_how_it_knows_names_method_and_reasons(orders: Path) -> None:
    text = words(open_page("changes", table=TABLE, from_=1, to=4, view="How it knows"))

    assert "Change data feed" in text
    assert "recorded for every commit from v2 to v4" in text


def test_without_a_table_the_page_offers_them(orders: Path) -> None:
    assert "No table chosen" in words(open_page("changes"))


def test_an_empty_lake_teaches(home: Path) -> None:
    assert "No Delta tables here yet" in words(open_page("changes"))


def test_a_vanished_table_is_said(orders: Path) -> None:
    assert "silver/gone" in words(open_page("changes", table="silver/gone"))
