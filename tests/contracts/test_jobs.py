"""What every page keeps to that gives its question to a stream host: no host, queued, running, done, cancelled, failed,
rows that are gone. The terminal's own words are in tests/app/cli."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app import services
from backend.jobs.model import JobEnd, JobState
from tests.worlds.pages.fixtures import Build, Place, home, made, place
from tests.worlds.pages.host_jobs import ChangesOnHost, OnHost, QueryOnHost, World, asked, linked
from tests.worlds.pages.opened import again, open_page, press, words
from tests.worlds.store.stream_store import beat, open_store

__all__ = ["home", "made", "place"]


@pytest.fixture(params=[ChangesOnHost, QueryOnHost], ids=["changes", "query"])
def question(request: pytest.FixtureRequest) -> OnHost:
    kind: OnHost = request.param
    return kind


@pytest.fixture
def world(question: OnHost, home: Path, place: Place, monkeypatch: pytest.MonkeyPatch):
    build: Build = question.build
    place(build, question.table)
    for name, value in question.settings.items():
        monkeypatch.setenv(name, value)
    with closing(open_store(home)) as store:
        yield World(home, store)


def test_without_a_host_its_buttons_say_why_they_are_off(world: World, question: OnHost) -> None:
    app = open_page(question.page, **question.link)
    button = app.button(key=question.ask)
    assert button.disabled and "No stream host has ever reported" in words(app) + (button.help or "")
    beat(world.store, datetime.now(UTC) - timedelta(hours=1))
    app = open_page(question.page, **question.link, on="host")
    assert app.button(key=question.start).disabled
    assert "No stream host is alive: the last one was seen at" in words(app)
    assert world.store.jobs.unfinished() == []


def test_a_click_asks_for_a_job_on_the_record_which_all_viewers_follow_and_one_cancels(
    world: World, question: OnHost
) -> None:
    app = asked(world, question)
    job = world.job()
    (entry,) = [entry for entry in world.store.audit_entries() if entry.action == f"{question.kind} job"]
    assert job.reason == f"asked for on the {question.page.capitalize()} page" == entry.reason
    assert app.button(key="cancel_job") and app.query_params["on"] in ("host", ["host"])
    world.run(job)
    assert "3 of 8" in linked(app, question).get("progress")[0].proto.text
    other = asked(world, question)
    assert world.job().job_id == job.job_id, "a second viewer joins it"
    press(other, "cancel_job")
    assert world.job().cancel_requested
    world.run(job, JobEnd(JobState.CANCELLED))
    for page in (app, other):
        assert question.cancelled in words(again(page)) and question.shown not in words(page)
    assert world.store.jobs.unfinished() == [], "it does not begin anew"


def test_whoever_may_act_cancels_what_others_asked_for_and_nobody_else_does(
    world: World, question: OnHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = asked(world, question)
    job = world.job()
    monkeypatch.setenv("WEIR_UI__ADDRESS", "0.0.0.0")  # after the button was drawn: it is not what refuses
    services.settings.clear()
    app.button(key="cancel_job").click()
    assert f"cancel {question.kind} job" in words(again(app)).lower() and "weir is read-only" in words(app).lower()
    assert world.job() == job
    looks = linked(app, question)
    assert looks.button(key="cancel_job").disabled

    monkeypatch.setenv("WEIR_UI__TRUSTED_PROXIES", '["127.0.0.1"]')
    monkeypatch.setenv("WEIR_UI__USER_HEADER", "X-User")
    services.settings.clear()
    app.user = {"named_by_proxy": "ben"}
    press(again(app), "cancel_job")
    entry = world.store.audit_entries()[0]
    cancelled_where = f"cancelled on the {question.page.capitalize()} page"
    assert (entry.actor, entry.action, entry.reason) == ("ben", f"cancel {question.kind} job", cancelled_where)
    assert entry.detail == f"job {job.job_id}; asked for by: {job.actor}"
    assert world.store.jobs.unfinished() == []


def test_a_finished_job_is_shown_as_any_answer_and_says_who_gave_it(world: World, question: OnHost) -> None:
    app = asked(world, question)
    job = world.job()
    world.run(job, question.answer(world, job))
    for page in (again(app), linked(app, question)):
        assert question.shown in words(page) and "by Spark 4.2.0 on host-a" in words(page)
    assert world.store.jobs.unfinished() == []


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (lambda _: JobEnd(JobState.FAILED, None, "the file part-1 is gone", "ask for newer versions"),
         "the file part-1 is gone"),
        (lambda done: replace(done, result_uri=f"{done.result_uri}-elsewhere"), "the result of job"),
    ],
    ids=["failed", "rows are gone"],
)  # fmt: skip
def test_a_job_without_an_answer_says_why_and_may_be_asked_for_again(
    world: World, question: OnHost, end: Callable[[JobEnd], JobEnd], text: str
) -> None:
    app = asked(world, question)
    first = world.job()
    ended = end(question.answer(world, first))
    world.run(first, ended)
    app = linked(app, question)
    assert text in words(app).lower() and ended.hint in words(app).lower()
    press(app, question.start)
    assert world.job().job_id != first.job_id
