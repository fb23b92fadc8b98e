"""Summary: key figures, who writes, schema, rows at any version."""

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from tests import builders
from tests.ui.frames import frame_with
from tests.ui.opened import again, home, metrics, open_page, words

__all__ = ["home"]


@pytest.fixture
def orders(home: Path) -> Path:
    return builders.orders_table(home / "lake" / "silver" / "orders")


def test_the_summary_answers_how_big_and_who(orders: Path) -> None:
    app = open_page("table", table="silver/orders")
    found = metrics(app)
    assert found["Rows"] == "4" and found["Files"] == "2" and "Last commit" in found
    assert "Last 4 commits by delta-rs" in words(app)


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
    assert "In 24 h: ±0 rows, ±0 B." in said and "by Spark/4 (5)" in said


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
    assert len(app.error) == 1 and "at character" in app.error[0].value and not app.dataframe
    assert app.text_input(key="where").value == "amount >> 1; DROP TABLE x"
