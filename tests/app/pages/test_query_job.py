"""The page Query with statements that a stream host answers: a real store and a real result table, no Spark."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from streamlit.testing.v1 import AppTest

from backend.jobs.host_query import HostAnswer, HostQuery
from backend.jobs.model import Job, JobEnd, JobState
from backend.query.on_host import PLACE
from tests.app.pages.test_changes_job import World
from tests.app.pages.test_query import TEXT, rows, run, url
from tests.worlds.lake import builders
from tests.worlds.pages.opened import again, forget_caches, home, links, open_page, press, words
from tests.worlds.store.stream_store import beat, open_store

__all__ = ["home"]


@pytest.fixture
def world(home: Path) -> Iterator[World]:
    builders.orders_table(home / "lake" / "silver" / "orders")
    made = World(home, open_store(home))
    yield made
    made.store.close()


def asked(world: World, text: str = TEXT) -> AppTest:
    """The page after its button was pressed, with a host that is alive."""
    beat(world.store, datetime.now(UTC))
    app = open_page("query")
    app.text_area(key="query_text").set_value(text)
    return press(app, "query_host")


def kept(world: World, job: Job, *, is_cut: bool = False, columns: tuple[str, str] = ("order_id", "amount")) -> JobEnd:
    """Rows as a host keeps them, which a reader gives in any order."""
    found = {PLACE: [2, 1], "c0": [20, 10], "c1": [2.5, 1.5]}
    uri = world.home / "results" / f"{job.job_id}-1"
    write_deltalake(uri, pa.table(found))
    answer = HostAnswer(columns, 2, is_cut, "Spark 4.2.0 on host-a")
    return JobEnd(JobState.DONE, str(uri), answer=answer.to_json())


def test_without_a_host_the_button_says_why_it_is_off(world: World) -> None:
    app = open_page("query", query=TEXT)
    assert app.button(key="query_host").disabled
    assert "No stream host has ever reported" in app.button(key="query_host").help
    beat(world.store, datetime.now(UTC) - timedelta(hours=1))
    app = open_page("query", query=TEXT, on="host")
    assert app.button(key="query_start_job").disabled and "No stream host is alive" in words(app)
    assert world.store.jobs.unfinished() == []


def test_a_click_asks_for_a_job_at_the_planned_versions_and_follows_it(world: World) -> None:
    app = asked(world)
    job = world.job()
    (read,) = HostQuery.of(job.request).reads
    assert (read.table, str(read.version)) == ("silver/orders", url(app, "versions")) and url(app, "on") == "host"
    assert HostQuery.of(job.request).text == TEXT and job.reason == "asked for on the Query page"
    builders.write(world.home / "lake" / "silver" / "orders", {"order_id": [99], "status": ["new"], "amount": [1.0]})
    linked = open_page("query", query=TEXT, versions=url(app, "versions"), on="host")
    assert linked.button(key="cancel_job") and not linked.dataframe
    assert world.job() == job, "a second viewer asks for nothing new, whatever was committed since"
    press(linked, "cancel_job")
    assert world.store.jobs.unfinished() == []
    assert "Cancelled: no row was kept." in words(again(app)) and not again(app).dataframe


def test_the_rows_that_a_host_kept_are_shown_in_their_order_and_say_who_computed_them(world: World) -> None:
    app = asked(world)
    job = world.job()
    world.run(job, kept(world, job, is_cut=True))
    app = again(app)
    wanted = [{"order_id": 10, "amount": 1.5}, {"order_id": 20, "amount": 2.5}]
    assert rows(app) == wanted and "2 of at least 3 rows from silver/orders v" in words(app)
    assert ", by Spark 4.2.0 on host-a." in words(app)
    linked = open_page("query", query=TEXT, versions=url(app, "versions"), on="host", view="Chart")
    assert len(linked.get("plotly_chart")) == 1 and world.store.jobs.unfinished() == []
    press(app, "export_rows")
    assert "2 rows" in words(app) and "--on host --csv" in app.code[-1].value
    here = run(app, TEXT)
    assert len(rows(here)) == 4 and url(here, "on") == ""
    assert any("on=host" in target for target in links(here).values()), "the earlier one leads to what the host kept"


def test_columns_of_one_name_are_told_apart(world: World) -> None:
    app = asked(world)
    job = world.job()
    world.run(job, kept(world, job, columns=("amount", "amount")))
    assert list(again(app).dataframe[0].value.columns) == ["amount", "amount (2)"]


def test_a_job_that_failed_says_why_and_is_asked_for_again(world: World) -> None:
    app = asked(world)
    first = world.job()
    world.run(first, JobEnd(JobState.FAILED, None, "the file part-1 is gone", "query newer versions"))
    app = again(app)
    assert "The stream host could not answer: the file part-1 is gone" in words(app)
    assert "Query newer versions" in words(app) and not app.dataframe
    press(app, "query_start_job")
    assert world.job().job_id != first.job_id


def test_rows_that_are_gone_are_computed_again(world: World) -> None:
    app = asked(world)
    first = world.job()
    done = kept(world, first)
    world.run(first, replace(done, result_uri=f"{done.result_uri}-elsewhere"))
    app = again(app)
    assert f"The result of job {first.job_id} cannot be read" in words(app)
    press(app, "query_start_job")
    assert world.job().job_id != first.job_id


def test_what_is_too_large_here_is_offered_to_the_host(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_LAKE__QUERY_MAX_BYTES", "10")
    app = run(open_page("query"), TEXT)
    assert app.button(key="query_to_host").disabled and "No stream host has ever reported" in words(app)
    beat(world.store, datetime.now(UTC))
    app = press(run(app, TEXT), "query_to_host")
    assert app.button(key="cancel_job") and HostQuery.of(world.job().request).text == TEXT


def test_what_is_too_large_is_asked_for_at_the_versions_that_the_page_named(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_LAKE__QUERY_MAX_BYTES", "10")
    beat(world.store, datetime.now(UTC))
    linked = open_page("query", query=TEXT, versions="1")
    app = press(linked, "query_to_host")
    assert [read.version for read in HostQuery.of(world.job().request).reads] == [1] and url(app, "versions") == "1"
    press(app, "cancel_job")
    here = run(open_page("query"), TEXT)
    assert "silver/orders v3" in words(here)
    builders.write(world.home / "lake" / "silver" / "orders", {"order_id": [99], "status": ["new"], "amount": [1.0]})
    press(here, "query_to_host")
    assert [read.version for read in HostQuery.of(world.job().request).reads] == [3]


def test_a_link_without_a_job_begins_none_by_itself(world: World) -> None:
    beat(world.store, datetime.now(UTC))
    app = open_page("query", query=TEXT, versions="1", on="host")
    assert "The stream host reads at most 2 files" in words(app) and " from silver/orders v1." in words(app)
    assert app.button(key="query_start_job").label == "Run at these versions" and not app.dataframe
    assert world.store.jobs.unfinished() == []
    press(app, "query_start_job")
    assert [read.version for read in HostQuery.of(world.job().request).reads] == [1]


def test_who_may_only_look_follows_a_job_and_cannot_cancel_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    app = asked(world)
    world.run(world.job())
    monkeypatch.setenv("WEIR_UI__ADDRESS", "0.0.0.0")
    forget_caches()
    looks = open_page("query", query=TEXT, versions=url(app, "versions"), on="host")
    assert "3 of 8 tasks" in looks.get("progress")[0].proto.text and looks.button(key="cancel_job").disabled
    assert looks.button(key="query_host").disabled and "no login" in looks.button(key="query_host").help


def test_a_chart_draws_the_first_of_many_rows_that_a_host_kept(world: World) -> None:
    app = asked(world)
    job = world.job()
    done = kept(world, job)
    places = list(range(5_000))
    many = pa.table({PLACE: places, "c0": places, "c1": [float(place) for place in places]})
    write_deltalake(str(done.result_uri), many, mode="overwrite")
    world.run(job, done)
    linked = open_page("query", query=TEXT, versions=url(app, "versions"), on="host", view="Chart")
    (drawn,) = linked.get("plotly_chart")
    figure = json.loads(drawn.proto.spec)
    assert "the first 2,000 rows" in figure["layout"]["title"]["text"] and "5,000 rows from" in words(linked)


def test_what_a_host_cannot_read_is_said_before_a_job_is_asked_for(world: World) -> None:
    app = asked(world, "SELECT * FROM weir.tables")
    assert "The stream host has no weir.tables" in words(app) and world.store.jobs.unfinished() == []
