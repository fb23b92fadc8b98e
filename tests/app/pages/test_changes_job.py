"""The Changes page with comparisons that a stream host does: a real store and a real result table, no Spark."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from streamlit.testing.v1 import AppTest

from app import services
from backend.access import Actor
from backend.changes.changed_rows import RowBucket
from backend.changes.host_job import SUMMARY, DiffSummary, SoFar, question_of, to_json
from backend.changes.model import DiffMethod
from backend.jobs.model import Job, JobEnd, JobProgress, JobState
from backend.store.leases import job_resource
from backend.store.store import ControlStore
from tests.worlds.lake import builders
from tests.worlds.pages.frames import frame_with
from tests.worlds.pages.opened import again, home, metrics, open_page, press, words
from tests.worlds.store.stream_store import HOST, beat, open_store

__all__ = ["home"]
LINK = {"table": "orders", "from_": 0, "to": 2, "key": "order_id"}
ROW = pa.struct([("c0", pa.int64()), ("c1", pa.string())])
RESULT = pa.schema(
    [("what", pa.string()), ("number", pa.int64()), ("n", pa.int64()), ("detail", pa.string()), ("before", ROW),
     ("after", ROW)]
)  # fmt: skip


@dataclass
class World:
    """A table whose versions differ by more than is read here, and the store that the pages open."""

    home: Path
    store: ControlStore

    def job(self) -> Job:
        """The only job that was asked for."""
        jobs = self.store.jobs.unfinished()
        assert len(jobs) == 1
        return jobs[0]

    def run(self, job: Job, end: JobEnd | None = None) -> None:
        """As the host would: begin, say how far it is, and end."""
        now = datetime.now(UTC)
        lease = self.store.acquire(job_resource(job.job_id), HOST, ttl_s=60)
        assert lease is not None
        self.store.jobs.begin(lease, job.job_id, now=now)
        self.store.jobs.report(lease, job.job_id, JobProgress("comparing rows", 3, 8))
        if end is not None:
            self.store.jobs.end(lease, job.job_id, end, now=now)

    def result(self, job: Job, so_far: SoFar | None = None, *, truncated: bool = False) -> JobEnd:
        """A result table as Spark writes it: order 2 was paid, order 1 is gone, order 4 came."""
        summary = DiffSummary(
            DiffMethod.KEY_JOIN, ("order_id", "status"), ("order_id",),
            {
                "insert": RowBucket(1, 1 + truncated, 1, 0),
                "update": RowBucket(1, 1, 1, 1),
                "delete": RowBucket(1, 1, 0, 1),
            },
            {"status": 1},
            by="by Spark 4.2.0 on host-a", so_far=so_far,
        )  # fmt: skip
        new = [{"c0": i, "c1": "new"} for i in (1, 2, 4)]
        rows = [
            (SUMMARY, 0, 0, to_json(summary), None, None),
            ("insert", 0, 1, None, None, new[2]),
            ("update", 0, 1, None, new[1], {"c0": 2, "c1": "paid"}),
            ("delete", 0, 1, None, new[0], None),
        ]
        uri = self.home / "results" / f"{job.job_id}-1"
        uri.parent.mkdir(exist_ok=True)
        write_deltalake(uri, pa.Table.from_pylist([dict(zip(RESULT.names, r, strict=True)) for r in rows], RESULT))
        return JobEnd(JobState.DONE, str(uri))


@pytest.fixture
def world(home: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("WEIR_LAKE__DIFF_MAX_BYTES", "1")
    path = home / "lake" / "orders"
    builders.write(path, {"order_id": [1, 2, 3], "status": ["new"] * 3})
    builders.write(path, {"order_id": [4], "status": ["new"]})
    rows = {"order_id": [2, 3, 4], "status": ["paid", "new", "new"]}
    write_deltalake(str(path), pa.table(rows), mode="overwrite")
    assert DeltaTable(str(path)).version() == 2
    return World(home, open_store(home))


def asked(world: World) -> AppTest:
    """The page after its button was pressed, with a host that is alive."""
    beat(world.store, datetime.now(UTC))
    app = open_page("changes", **LINK)
    app.button(key="to_host").click()
    return again(app)


def test_without_a_host_the_button_says_why_it_is_off(world: World) -> None:
    app = open_page("changes", **LINK)
    assert app.button(key="to_host").disabled
    assert "No stream host has ever reported." in words(app)
    beat(world.store, datetime.now(UTC) - timedelta(hours=1))
    app = open_page("changes", **LINK, on="host")
    assert app.button(key="start_job").disabled
    assert "No stream host is alive: the last one was seen at" in words(app)
    assert world.store.jobs.unfinished() == []


def test_a_click_asks_for_a_job_on_the_record_and_follows_it(world: World) -> None:
    app = asked(world)
    job = world.job()
    assert [(entry.action, entry.subject) for entry in world.store.audit_entries()] == [("diff job", "orders")]
    assert question_of(job.request, str).on_host
    assert app.query_params["on"] in ("host", ["host"])
    assert app.button(key="cancel_job")
    world.run(job)
    other = open_page("changes", **LINK, on="host")  # a second viewer, or a reload
    assert other.button(key="cancel_job")
    assert world.job().job_id == job.job_id
    other.button(key="cancel_job").click()
    again(other)
    assert world.job().cancel_requested


def test_whoever_may_act_cancels_what_others_asked_for_and_nobody_else_does(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = asked(world)
    job = world.job()
    monkeypatch.setenv("WEIR_UI__ADDRESS", "0.0.0.0")  # after the button was drawn: it is not what refuses
    services.settings.clear()
    app.button(key="cancel_job").click()
    assert "cancel diff job orders: weir is read-only" in words(again(app)).lower()
    assert world.job() == job

    monkeypatch.setenv("WEIR_UI__TRUSTED_PROXIES", '["127.0.0.1"]')
    services.settings.clear()
    app.user = {"named_by_proxy": "ben"}
    press(again(app), "cancel_job")
    entry = world.store.audit_entries()[0]
    assert (entry.actor, entry.action, entry.reason) == ("ben", "cancel diff job", "cancelled on the Changes page")
    assert entry.detail == f"job {job.job_id}; asked for by: {job.actor}"
    assert world.store.jobs.unfinished() == []


def test_a_finished_job_is_shown_as_any_comparison_and_says_who_did_it(world: World) -> None:
    job_page = asked(world)
    job = world.job()
    world.run(job, world.result(job))
    for app in (again(job_page), open_page("changes", **LINK, on="host")):
        shown, text = metrics(app), words(app)
        assert (shown["Inserted (net)"], shown["Updated (net)"], shown["Deleted (net)"]) == ("+1", "1", "−1")
        assert "by Spark 4.2.0 on host-a" in text
        assert "paired by their key" in text
        assert sorted(frame_with(app, "Change")["Change"]) == ["+ insert", "− delete", "≠ update"]
    assert world.store.jobs.unfinished() == []


def test_where_the_host_listed_only_some_rows_the_page_says_what_that_leaves_out(world: World) -> None:
    asked(world)
    job = world.job()
    world.run(job, world.result(job, truncated=True))
    said = "What the changed rows have in common is not looked for: the stream host keeps only some of them."
    assert said in words(open_page("changes", **LINK, on="host"))


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (JobEnd(JobState.FAILED, None, "the file part-1 is gone", "compare newer versions"), "The file part-1 is gone"),
        (JobEnd(JobState.CANCELLED), "Cancelled: no row was compared."),
    ],
)
def test_a_job_without_an_answer_says_why_and_may_be_asked_again(world: World, end: JobEnd, said: str) -> None:
    app = asked(world)
    first = world.job()
    world.run(first, end)
    again(app)
    assert said.lower() in words(app).lower()
    assert end.hint in words(app)
    press(app, "start_job")
    assert world.job().job_id != first.job_id


@pytest.mark.parametrize("state", [JobState.CANCELLED, JobState.FAILED])
def test_what_a_job_had_found_when_it_was_ended_is_shown_as_that(world: World, state: JobState) -> None:
    app = asked(world)
    first = world.job()
    found = world.result(first, SoFar(4_000, 6_000))
    world.run(first, replace(found, state=state, error="the job took longer than 3600 s and was stopped"))
    app = again(app)
    shown, text = metrics(app), words(app)
    ended = "cancelled" if state is JobState.CANCELLED else "stopped at the time limit of 3600 s"
    partial = f"{ended} when 4,000 of 6,000 rows were compared"
    assert f"so far 1 row inserted, 1 updated, 1 deleted, {partial}" in text
    assert f"{partial.capitalize()}. The numbers below are of the rows that were compared." in text
    assert "by Spark 4.2.0 on host-a" in text
    assert (shown["Updated (net so far)"], shown["Rows changed"]) == ("1", "–")
    assert len(frame_with(app, "Change")) == 3
    assert "No row differs" not in text
    app.button(key="start_job").click()
    app = again(app)
    assert world.job().job_id != first.job_id
    assert app.button(key="cancel_job") and "so far" not in words(app)


def test_a_job_that_a_second_viewer_joined_is_not_begun_anew_when_it_is_cancelled(world: World) -> None:
    asked(world)
    job = world.job()
    world.run(job)
    app = open_page("changes", **LINK)
    app.button(key="to_host").click()
    app = again(app)
    world.store.jobs.cancel(job.job_id, actor=Actor("ann"), reason="enough", now=datetime.now(UTC))
    world.run(job, JobEnd(JobState.CANCELLED))
    app = again(app)
    assert "Cancelled: no row was compared." in words(app) and world.store.jobs.unfinished() == []


def test_an_answer_that_was_there_already_has_no_other_question_asked(world: World) -> None:
    asked(world)
    job = world.job()
    world.run(job, world.result(job))
    app = open_page("changes", **LINK)
    app.button(key="to_host").click()
    app = again(app)
    assert metrics(app)["Updated (net)"] == "1"
    app.text_input(key="rows_where").set_value("order_id = 2")
    assert again(app).button(key="start_job") and world.store.jobs.unfinished() == []


def test_a_result_that_is_gone_is_computed_again(world: World) -> None:
    asked(world)
    first = world.job()
    done = world.result(first)
    world.run(first, replace(done, result_uri=f"{done.result_uri}-elsewhere"))
    app = open_page("changes", **LINK, on="host")
    assert f"The result of job {first.job_id} is gone" in words(app)
    press(app, "start_job")
    assert world.job().job_id != first.job_id


def test_a_condition_on_rows_goes_to_the_host_with_the_question(world: World) -> None:
    beat(world.store, datetime.now(UTC))
    app = open_page("changes", **LINK, on="host", rows_where="order_id = 2")
    app.button(key="start_job").click()
    app = again(app)
    job = world.job()
    assert question_of(job.request, str).where == "order_id = 2"
    world.run(job, world.result(job))
    assert "only rows that satisfy order_id = 2" in words(again(app)).lower()
    assert open_page("changes", **LINK, on="host").button(key="start_job"), "without it another question"


def test_a_condition_that_may_not_run_is_said_before_a_job_is_asked_for(world: World) -> None:
    beat(world.store, datetime.now(UTC))
    app = open_page("changes", **LINK, on="host", rows_where="order_id IN (SELECT 1)")
    assert "A subquery is not allowed here" in words(app)
    assert world.store.jobs.unfinished() == []
