"""Query: what it will read is said, it runs after a click, and a link offers the same rows at the same versions."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable
from streamlit.testing.v1 import AppTest

from app import services
from backend.store.store import ControlStore
from tests.worlds.lake import builders
from tests.worlds.pages.host_jobs import QUERY
from tests.worlds.pages.opened import again, linked_params, links, open_page, param, press, send, words


def run(app: AppTest, text: str) -> AppTest:
    app.text_area(key="query_text").set_value(text)
    return press(app, "query_run")


def run_linked(**link: str) -> AppTest:
    return press(open_page("query", **link), "query_run_linked")


def rows(app: AppTest) -> list[dict[str, object]]:
    (frame,) = app.dataframe
    found: list[dict[str, object]] = frame.value.to_dict("records")
    return found


def test_the_rows_are_those_of_the_table_and_the_link_names_text_and_version(orders: Path) -> None:
    app = run(open_page("query"), QUERY)
    table = DeltaTable(str(orders))
    wanted = table.to_pandas().sort_values("order_id")[["order_id", "amount"]]
    assert [tuple(row.values()) for row in rows(app)] == list(wanted.itertuples(index=False, name=None))
    assert f"{len(wanted)} rows from silver/orders v{table.version()}, in " in words(app)
    assert (param(app, "query"), param(app, "versions")) == (QUERY, str(table.version()))
    assert app.dataframe[0].value.columns.tolist() == ["order_id", "amount"]


def test_a_link_offers_the_same_rows_after_the_table_changed_and_runs_by_itself_where_its_viewer_ran_it(
    orders: Path, store: ControlStore
) -> None:
    first = run(open_page("query"), QUERY)
    before, version = rows(first), param(first, "versions")
    DeltaTable(str(orders)).delete("order_id > 2")
    num_asked = len(store.audit_entries())
    linked = open_page("query", query=QUERY, versions=version)
    assert not linked.dataframe and "Run it to see its rows" in words(linked)
    assert len(store.audit_entries()) == num_asked
    linked = press(linked, "query_run_linked")
    assert rows(linked) == before and f"from silver/orders v{version}" in words(linked)
    fresh = run(linked, QUERY)
    assert param(fresh, "versions") == str(int(version) + 1) and len(rows(fresh)) < len(before)
    fresh.query_params["versions"] = version
    assert rows(again(fresh)) == before


def test_nothing_is_read_before_it_runs(orders: Path) -> None:
    app = press(open_page("query"), "query_run")
    assert "There is nothing to run" in words(app) and "Nothing is read until you run it" in words(app)
    (example,) = (label for label in links(app) if label.startswith("Example: SELECT"))
    assert '"silver/orders"' in example and linked_params(links(app)[example])["query"] in example and not app.dataframe
    app = open_page("query", query=QUERY)
    version = DeltaTable(str(orders)).version()
    assert f"from silver/orders v{version}" in words(app) and "Reads at most" in words(app)
    assert not app.dataframe and app.text_area(key="query_text").value == QUERY
    assert rows(press(app, "query_run"))
    app = open_page("query", query=QUERY, versions="1,2")
    assert "the versions are not those of this statement" in app.error[0].value.lower() and not app.dataframe


def test_versions_of_every_place_are_pinned(orders: Path) -> None:
    text = (
        'SELECT (SELECT count(*) FROM "silver/orders" VERSION AS OF 0) a, (SELECT count(*) FROM "silver/orders") b, '
        '(SELECT max(version) FROM "silver/orders$history") c, '
        "(SELECT count(*) FROM \"silver/orders$changes\"(0, 'latest')) d, (SELECT count(*) FROM weir.tables) e"
    )
    first = run(open_page("query"), text)
    latest = DeltaTable(str(orders)).version()
    assert sorted(param(first, "versions").split(",")) == sorted(["0", f"{latest}", f"{latest}", f"0-{latest}", "now"])
    builders.write(orders, DeltaTable(str(orders)).to_pyarrow_table(), mode="append")
    linked = run_linked(query=text, versions=param(first, "versions"))
    assert rows(linked) == rows(first) and "have no versions" in words(linked)


def test_a_mistake_is_a_sentence_and_the_statement_stays(orders: Path) -> None:
    app = run(open_page("query"), 'SELECT amout FROM "silver/orders"')
    assert len(app.error) == 1 and "did you mean amount" in app.error[0].value.lower()
    assert app.text_area(key="query_text").value.startswith("SELECT amout")
    inner = run(app, 'SELECT amount FROM (SELECT order_id FROM "silver/orders")').error[0].value
    assert "silver/orders has it, but what FROM gives there does not" in inner.replace("\\", "")
    assert run(app, "DROP TABLE x").error and not run(app, QUERY).error and rows(app)


def test_the_first_thousand_rows_are_shown_of_at_least_one_more(home: Path) -> None:
    builders.write(home / "lake" / "many", {"n": list(range(1_500))})
    app = run(open_page("query"), "SELECT n FROM many ORDER BY n")
    assert [row["n"] for row in rows(app)] == list(range(1_000)) and "1,000 of at least 1,001 rows" in words(app)
    app = run(app, "SELECT n FROM many ORDER BY n LIMIT 1000")
    assert len(rows(app)) == 1_000 and "1,000 rows from many v0" in words(app)


def test_what_is_too_large_is_read_only_when_confirmed(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_LAKE__QUERY_MAX_BYTES", "10")
    app = run(open_page("query"), QUERY)
    assert "more than 10 B" in app.warning[0].value and not app.dataframe
    assert rows(press(app, "query_confirm"))


def test_another_session_sees_nothing_of_it_and_it_is_in_the_audit_trail(orders: Path, store: ControlStore) -> None:
    app = run(open_page("query"), QUERY)
    assert rows(app) and QUERY in links(app)
    other = open_page("query")
    assert not other.dataframe and "query_result" not in other.session_state
    (entry,) = [entry for entry in store.audit_entries(limit=10) if entry.action == "query"]
    assert QUERY in entry.detail and "silver/orders v" in entry.detail
    assert (datetime.now(UTC) - entry.at).total_seconds() < 600


def test_a_chart_is_drawn_of_what_fits(orders: Path) -> None:
    app = run_linked(query=QUERY, versions="1", view="Chart", title="Orders")
    assert app.selectbox(key="_chart").value == "Scatter" and len(app.get("plotly_chart")) == 1
    app.selectbox(key="_chart").select("Line")
    app = again(app)
    assert param(app, "chart") == "Line"
    app = run(app, 'SELECT count(*) AS orders FROM "silver/orders"')
    labels = {box.label for box in app.selectbox}
    assert app.text_input(key="title").value == "", "a title is of one statement"
    assert app.selectbox(key="_chart").value == "Figure" and not labels & {"X axis", "Series"}
    (drawn,) = app.get("plotly_chart")
    assert json.loads(drawn.proto.spec)["layout"]["annotations"][0]["text"] == "4"
    app = run(app, "SELECT 'a' AS a")
    assert "Nothing to draw" in words(app)


def test_a_query_is_saved_with_its_chart_opened_by_others_and_removed(orders: Path, store: ControlStore) -> None:
    app = run_linked(query=QUERY, versions="1", view="Chart", chart="Line", title="Amounts by order")
    press(app, "query_save")
    (drawn,) = app.get("plotly_chart")
    assert json.loads(drawn.proto.spec)["layout"]["title"]["text"] == "Amounts by order"
    assert app.text_input(key="query_save_title").value == "Amounts by order"
    assert "a reason is needed" in words(press(app, "query_save_send")).lower()
    app.text_input(key="query_save_title").set_value("a/b")
    assert "a saved query needs a name" in words(send(app, "query_save", "for the stand-up")).lower()
    app.text_input(key="query_save_title").set_value("Amounts")
    assert "Amounts is saved" in words(send(app, "query_save", "for the stand-up"))
    assert press(app, "query_tile_result").query_params["tile"][-1] == "Amounts:1", "it is a tile of the dashboard"

    other = open_page("query")
    (label,) = other.selectbox(key="query_saved_name").options
    assert label == f"Amounts · {services.actor().name}"
    other.selectbox(key="query_saved_name").select(label)
    assert linked_params(links(again(other))["Open"]) == {
        "query": QUERY, "view": "Chart", "chart": "Line", "x": "order_id", "y": "amount", "colour": "One colour",
    }  # fmt: skip
    assert not other.dataframe, "it runs once somebody says so"

    assert press(other, "query_remove").session_state["query_saved"] is False, "it would cover the dialog"
    assert "Amounts is removed" in words(send(other, "query_remove", "nobody looks"))
    assert store.saved.all() == []
    acts = [(entry.action, entry.subject, entry.reason) for entry in store.audit_entries() if entry.action != "query"]
    assert acts == [("remove query", "Amounts", "nobody looks"), ("save query", "Amounts", "for the stand-up")]


@pytest.mark.parametrize(
    ("name", "asked", "count"),
    [
        ("table", {"view": "Data", "version": 1, "where": "amount > 15"}, 4),
        ("history", {}, 4),
        ("files", {"version": 0}, 1),
        ("changes", {"from": 0, "to": 1}, 2),
        ("changes", {"from": 0, "to": 1, "rows_where": "amount > 1000"}, 0),
    ],
)
def test_pages_of_a_table_lead_here_with_its_statement(
    orders: Path, name: str, asked: dict[str, str | int], count: int
) -> None:
    link = linked_params(links(open_page(name, table="silver/orders", **asked))["Open in Query"])
    app = open_page("query", query=link["query"])
    assert "Reads at most" in words(app) and not app.dataframe and not app.error
    assert len(rows(press(app, "query_run"))) == count


def test_the_statement_is_copied_as_code_at_its_versions(orders: Path) -> None:
    app = run(open_page("query"), QUERY)
    assert not app.code, "nothing is made before somebody looks"
    app.session_state["query_copy"] = True
    opened = again(app)
    version = DeltaTable(str(orders)).version()
    pandas, arrow, spark, trino = (block.value for block in opened.code)
    assert f"version={version})" in pandas and "to_arrow_table()" in arrow
    assert f"`{orders}` VERSION AS OF {version}" in spark and f'"orders" FOR VERSION AS OF {version}' in trino
    app = run(open_page("query"), "SELECT count(*) AS n FROM weir.tables")
    app.session_state["query_copy"] = True
    assert "Trino has no weir.tables with these rows" in words(again(app)) and not app.code
