"""Rows of the quarantine, requeued from the stream's page: tried on the host first, then with a reason and the name."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from backend.access import Actor
from backend.jobs.model import Job, JobEnd, JobKind, JobState
from backend.store.leases import job_resource
from backend.stream_model.stream import StreamState
from backend.streams.requeue import RequeueAnswer, RequeueRequest, Sample
from tests.worlds.pages.opened import again, home, open_page, press, send, words
from tests.worlds.store import stream_store

__all__ = ["home"]
NAME = "silver_orders"
SAMPLES = (
    Sample({"id": 1, "amount": -5.0}, {"id": 1, "amount": 5.0}, (), goes=True),
    Sample({"id": 2, "amount": None}, {"id": 2, "amount": None}, ("priced",), goes=False),
)
FOUND = RequeueAnswer(15, 12, {"priced": 3}, samples=SAMPLES)


@pytest.fixture
def store(home: Path):
    now = datetime.now(UTC)
    rows = pa.table(
        {"id": [1, 2], "amount": [-5.0, None], "broken_expectations": [["priced"]] * 2, "stream": [NAME] * 2}
    )
    (home / "lake" / "silver").mkdir()
    write_deltalake(home / "lake" / "silver" / f"{NAME}_quarantine", rows)
    store = stream_store.open_store(home)
    stream_store.beat(store, now)
    stream_store.flowing(store, NAME, now, expectations=("priced",))
    yield store
    store.close()


def stopped(store) -> None:
    now = datetime.now(UTC)
    store.request(NAME, "stop", reason="a bad price list", actor=Actor("ana"), now=now)
    stream_store.observe(store, NAME, StreamState.STOPPED, now)


def asked(app):
    """The dialog, with a repair that was sent to the host."""
    press(app, "one_requeue")
    app.text_input(key="requeue_where").set_value("amount < 0")
    app.text_area(key="requeue_set").set_value("amount = abs(amount)\n\n")
    app.button(key="requeue_try").click()
    return again(app)


def answer(store, job: Job, end: JobEnd) -> None:
    """What a host would do."""
    now = datetime.now(UTC)
    lease = store.acquire(job_resource(job.job_id), "host-a", ttl_s=60)
    assert lease is not None
    store.jobs.begin(lease, job.job_id, now=now)
    store.jobs.end(lease, job.job_id, end, now=now)


def found(store, job: Job) -> None:
    answer(store, job, JobEnd(JobState.DONE, answer=FOUND.text()))


def test_rows_are_tried_then_requeued_as_they_were_tried(store) -> None:
    stopped(store)
    app = asked(open_page("stream", stream=NAME))
    (trial,) = store.jobs.newest(5)
    request = RequeueRequest(NAME, 0, "amount < 0", {"amount": "abs(amount)"})
    assert (trial.kind, RequeueRequest.parse(trial.request)) == (JobKind.REQUEUE_PREVIEW, request)
    assert "requeue_send" not in {button.key for button in app.button}, "nothing is sent before it was tried"

    found(store, trial)
    again(app)
    said = words(app)
    assert "Chosen: 15 rows of silver/silver_orders_quarantine, version 0" in said
    assert "Stay as they are: 3 rows; even repaired, 3 break priced" in said
    shown = next(each.value for each in app.dataframe if "Goes" in each.value)
    assert list(shown["amount"]) == ["-5.0 → 5.0", "null"]
    assert app.button(key="requeue_send").label == "Requeue 12 rows"

    send(app, "requeue", "prices had a sign", typed="silver")
    assert "the name are needed" in words(app)
    app.text_input(key="requeue_name").set_value(NAME)
    press(app, "requeue_send")

    act = store.jobs.newest(1)[0]
    assert (act.kind, act.subject, act.reason) == (JobKind.REQUEUE, NAME, "prices had a sign")
    assert act.request == trial.request
    assert "its host does it next" in words(app)
    answer(store, act, JobEnd(JobState.DONE, "/r", detail=FOUND.sentence()))
    log = open_page("stream", stream=NAME, view="Operation log").dataframe[-1].value
    assert log.iloc[0]["Act"] == "requeue done"
    assert log.iloc[0]["Detail"].endswith("12 of 15 rows requeued; 3 stay: 3 break priced")


def test_rows_of_a_running_stream_can_be_tried_alone(store) -> None:
    app = asked(open_page("stream", stream=NAME))
    found(store, store.jobs.newest(1)[0])
    again(app)
    assert "Nothing can be requeued now: it is running: stop it first" in words(app)
    assert "requeue_send" not in {button.key for button in app.button}


def test_a_trial_can_be_cancelled(store) -> None:
    app = asked(open_page("stream", stream=NAME))
    press(app, "cancel_job")
    assert store.jobs.newest(1)[0].state is JobState.CANCELLED
    assert "Cancelled: nothing was tried." in words(app)


def test_what_the_host_could_not_try_says_why(store) -> None:
    app = asked(open_page("stream", stream=NAME))
    failed = JobEnd(JobState.FAILED, None, "Could not convert string 'x' to INT64.", "TRY_CAST gives null")
    answer(store, store.jobs.newest(1)[0], failed)
    again(app)
    assert "Could not convert string 'x' to INT64. TRY_CAST gives null" in words(app)


def test_sql_that_may_not_run_is_told_at_once(store) -> None:
    app = open_page("stream", stream=NAME)
    press(app, "one_requeue")
    app.text_input(key="requeue_where").set_value("amount <")
    press(app, "requeue_try")
    assert "Syntax error at or near" in words(app)
    assert store.jobs.newest(5) == []


def test_a_stream_whose_rows_cannot_come_later_says_why(store) -> None:
    store.declare([replace(store.declarations()[NAME], sink="complete")], now=datetime.now(UTC))
    button = open_page("stream", stream=NAME).button(key="one_requeue")
    assert button.disabled and "each batch replaces its table" in button.help
