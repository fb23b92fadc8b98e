"""Changes and Query with what a stream host answers; what holds for both is in tests/contracts/test_jobs.py."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from streamlit.testing.v1 import AppTest

from backend.errors import JobError
from backend.jobs.documents import HostQuery, of_document, question_of
from backend.query.answer import PLACE
from backend.store.store import ControlStore
from tests.app.pages.test_query import rows, run
from tests.worlds.lake import builders
from tests.worlds.pages.fixtures import Place
from tests.worlds.pages.frames import frame_with
from tests.worlds.pages.host_jobs import QUERY, ChangesOnHost, QueryOnHost, World, asked, three_versions
from tests.worlds.pages.opened import again, links, metrics, open_page, param, press, words


@pytest.fixture
def changes(home: Path, place: Place, store: ControlStore, monkeypatch: pytest.MonkeyPatch) -> World:
    """A table whose versions differ by more than is read here."""
    monkeypatch.setenv("WEIR_LAKE__DIFF_MAX_BYTES", "1")
    place(three_versions, "orders")
    return World(home, store)


def changes_page(**more: str) -> AppTest:
    return open_page("changes", **ChangesOnHost.link, **more)


def test_changes_that_a_host_found_are_those_of_its_table_and_no_other_question_is_asked(changes: World) -> None:
    asked(changes, ChangesOnHost)
    job = changes.job()
    changes.run(job, ChangesOnHost.answer(changes, job, truncated=True))
    app = press(changes_page(), "to_host")
    shown, text = metrics(app), words(app)
    assert (shown["Inserted (net)"], shown["Updated (net)"], shown["Deleted (net)"]) == ("+1", "1", "−1")
    assert "What the changed rows have in common is not looked for: the stream host keeps only some of them." in text
    assert sorted(frame_with(app, "Change")["Change"]) == ["+ insert", "− delete", "≠ update"]
    app.text_input(key="rows_where").set_value("order_id = 2")
    assert again(app).button(key="start_job") and changes.store.jobs.unfinished() == []


def test_a_condition_on_rows_goes_to_the_host_with_the_question(changes: World) -> None:
    app = changes_page(on="host", rows_where="order_id IN (SELECT 1)")
    assert "A subquery is not allowed here" in words(app) and changes.store.jobs.unfinished() == []
    app = press(changes_page(on="host", rows_where="order_id = 2"), "start_job")
    job = changes.job()
    question = question_of(job.request, str)
    assert question.on_host and question.where == "order_id = 2"
    with pytest.raises(JobError, match="by another version of Weir"):
        question_of(job.request.replace('"format":', '"format":1'), str)
    changes.run(job, ChangesOnHost.answer(changes, job))
    assert "only rows that satisfy order_id = 2" in words(again(app)).lower()
    assert changes_page(on="host").button(key="start_job"), "without it another question"


# Query ----------------------------------------------------------------


@pytest.fixture
def query(home: Path, orders: Path, store: ControlStore) -> World:
    return World(home, store)


def query_page(app: AppTest | None = None, **more: str) -> AppTest:
    """As linked from a page that had its answer from the host, or begun."""
    link = {"versions": param(app, "versions"), "on": "host"} if app else {}
    return open_page("query", query=QUERY, **link, **more)


def versions_asked(world: World) -> list[int | None]:
    return [read.version for read in of_document(HostQuery, world.job().request).reads]


def test_a_query_is_asked_at_the_planned_versions_and_its_rows_are_the_host_s(query: World) -> None:
    app = asked(query, QueryOnHost)
    job = query.job()
    assert of_document(HostQuery, job.request).text == QUERY and [str(v) for v in versions_asked(query)] == [
        param(app, "versions")
    ]
    builders.write(query.home / "lake" / "silver" / "orders", {"order_id": [99], "status": ["new"], "amount": [1.0]})
    assert query_page(app).button(key="cancel_job") and query.job() == job, "nothing new, whatever was committed since"
    query.run(job, QueryOnHost.answer(query, job, is_cut=True))
    app = again(app)
    assert rows(app) == [{"order_id": 10, "amount": 1.5}, {"order_id": 20, "amount": 2.5}]
    assert "2 of at least 3 rows from silver/orders v" in words(app) and ", by Spark 4.2.0 on host-a." in words(app)
    assert len(query_page(app, view="Chart").get("plotly_chart")) == 1
    press(app, "export_rows")
    assert "There are more: filter or group earlier." in words(app) and "--on host --csv" in app.code[-1].value
    here = run(app, QUERY)
    assert len(rows(here)) == 5 and param(here, "on") == ""
    assert any("on=host" in target for target in links(here).values()), "the earlier one leads to what the host kept"


def test_columns_of_one_name_are_told_apart(query: World) -> None:
    app = asked(query, QueryOnHost)
    job = query.job()
    query.run(job, QueryOnHost.answer(query, job, columns=("amount", "amount")))
    assert list(again(app).dataframe[0].value.columns) == ["amount", "amount (2)"]


def test_what_is_too_large_is_offered_to_the_host_at_the_versions_that_the_page_named(
    query: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_LAKE__QUERY_MAX_BYTES", "10")
    app = press(press(query_page(versions="1"), "query_run_linked"), "query_to_host")
    assert versions_asked(query) == [1] and param(app, "versions") == "1"
    press(app, "cancel_job")
    here = run(open_page("query"), QUERY)
    assert "silver/orders v3" in words(here)
    builders.write(query.home / "lake" / "silver" / "orders", {"order_id": [99], "status": ["new"], "amount": [1.0]})
    press(here, "query_to_host")
    assert versions_asked(query) == [3] and of_document(HostQuery, query.job().request).text == QUERY


def test_a_link_without_a_job_begins_none_by_itself(query: World) -> None:
    app = query_page(versions="1", on="host")
    assert "The stream host reads at most 2 files" in words(app) and " from silver/orders v1." in words(app)
    assert app.button(key="start_job").label == "Run at these versions" and not app.dataframe
    assert query.store.jobs.unfinished() == []
    press(app, "start_job")
    assert versions_asked(query) == [1]


def test_a_chart_draws_the_first_of_many_rows_that_a_host_kept(query: World) -> None:
    app = asked(query, QueryOnHost)
    job = query.job()
    done = QueryOnHost.answer(query, job)
    places = list(range(5_000))
    many = pa.table({PLACE: places, "c0": places, "c1": [float(place) for place in places]})
    write_deltalake(str(done.result_uri), many, mode="overwrite")
    query.run(job, done)
    linked = query_page(app, view="Chart")
    (drawn,) = linked.get("plotly_chart")
    title = json.loads(drawn.proto.spec)["layout"]["title"]["text"]
    assert "the first 2,000 rows" in title and "5,000 rows from" in words(linked)


def test_what_a_host_cannot_read_is_said_before_a_job_is_asked_for(query: World) -> None:
    app = asked(query, QueryOnHost, query="SELECT * FROM weir.tables")
    assert "The stream host has no weir.tables" in words(app) and query.store.jobs.unfinished() == []
