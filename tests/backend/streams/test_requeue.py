"""Requeued rows: what is asked and said, before any row is touched."""

from dataclasses import replace

import pytest

from app.streams.text import requeue_label, requeue_lines, requeue_samples
from backend.errors import QueryError, StreamError
from backend.jobs.model import JobKind
from backend.stream_model.stream import StreamState
from backend.streams.requeue import (
    RequeueAnswer,
    RequeueRequest,
    Sample,
    checked,
    parse_repairs,
    quarantine_of,
    why_never,
    why_not,
)
from backend.streams.verdict import StreamStatus, Verdict
from tests.backend.jobs.test_job_containment import job_of
from tests.backend.streams.test_reset import SILVER, UNWANTED, WANTED, seen

COLUMNS = ("id", "Amount", "broken_expectations", "stream", "batch_id", "quarantined_at")
PRICED = replace(SILVER, side_tables=("silver/x_tombstones", "silver/x_quarantine"), sink="upsert")
REQUEST = RequeueRequest("silver", 7, "id = 'a'", {"Amount": "abs(Amount)"})


def test_repairs_are_read_as_people_write_them() -> None:
    lines = ["amount = CASE WHEN id = 1 THEN 0 ELSE 1 END", ' "odd "" name" = 2 ']
    assert parse_repairs(lines) == {"amount": "CASE WHEN id = 1 THEN 0 ELSE 1 END", 'odd " name': "2"}
    for wrong in (["amount"], ["= 1"], ["amount ="], ["a = 1", "a = 2"]):
        with pytest.raises(QueryError):
            parse_repairs(wrong)


def test_columns_are_named_as_the_quarantine_spells_them() -> None:
    asked = RequeueRequest("silver", 7, "batch_id = 3", {"AMOUNT": "abs(amount)", "id": "'x'"})
    assert checked(asked, COLUMNS).repairs == {"Amount": "abs(amount)", "id": "'x'"}


@pytest.mark.parametrize(
    ("where", "repairs", "said"),
    [
        ("id IN (SELECT 1)", {}, "a subquery is not allowed"),
        ("max(id) > 1", {}, "has an aggregate"),
        ("", {"Amount": "max(Amount)"}, "has an aggregate"),
        ("", {"Amount": "read_text('/etc/passwd')"}, "'read_text' is not allowed"),
        ("", {"Amount": "1); DROP TABLE x; --"}, "allowed|syntax"),
        ("", {"nothing": "1"}, "no column 'nothing'"),
        ("", {"stream": "'other'"}, "no column 'stream'"),
    ],
)
def test_sql_that_may_not_run_is_refused(where: str, repairs: dict[str, str], said: str) -> None:
    with pytest.raises(QueryError, match=said):
        checked(RequeueRequest("silver", 7, where, repairs), COLUMNS)


def test_which_streams_take_rows_again() -> None:
    assert (quarantine_of(PRICED), why_never(PRICED)) == ("silver/x_quarantine", "")
    assert why_never(SILVER) == "no expectation of it quarantines rows"
    assert "no order" in why_never(replace(PRICED, sink="update"))
    assert "each batch replaces its table" in why_never(replace(PRICED, sink="complete"))
    assert "another Spark application" in why_never(replace(PRICED, kind="attached query", pipeline="nightly"))
    for outside in ("kafka", "postgresql"):
        assert "follow newer ones" in why_never(replace(PRICED, sink=outside, outside="orders at broker"))
    running = StreamStatus(PRICED, UNWANTED, seen(StreamState.RUNNING), StreamState.RUNNING, None, Verdict.OK, "")
    assert why_not(running) == "it is running: stop it first"
    still = replace(running, observed=seen(StreamState.STOPPED), state=StreamState.STOPPED)
    assert why_not(still) == ""
    wanted = replace(still, desired=WANTED)
    assert why_not(wanted) == "it is wanted to run, so a host may start it: stop it first"
    unwatched = replace(running, state=StreamState.UNKNOWN)
    assert why_not(unwatched) == "no host watches it, so it may run: start a host, then stop it"


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"stream": "s", "version": "x"}'])
def test_a_request_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(StreamError):
        RequeueRequest.parse(text)
    assert RequeueRequest.parse(REQUEST.text()) == REQUEST


def test_the_answer_in_words() -> None:
    samples = (
        Sample({"id": "a", "Amount": -1.5}, {"id": "a", "Amount": 1.5}, (), goes=True),
        Sample({"id": None, "Amount": None}, {"id": None, "Amount": None}, ("known",), goes=False),
    )
    found = RequeueAnswer(15, 12, {"priced": 2, "known": 1}, {"small": 1}, samples)
    assert RequeueAnswer.of(replace(job_of(JobKind.REQUEUE_PREVIEW, REQUEST.text()), answer=found.text())) == found
    assert found.sentence() == "12 of 15 rows requeued; 3 stay: 2 break priced, 1 breaks known"
    assert RequeueAnswer(1, 1).sentence() == "1 of 1 row requeued"
    assert requeue_label(found) == "Requeue 12 rows"
    assert requeue_lines(found, REQUEST, PRICED) == [
        "Chosen: 15 rows of silver/x_quarantine, version 7",
        "Go to silver/x: 12 rows",
        "Of these, 1 breaks small, which only warns",
        "Stay as they are: 3 rows; even repaired, 2 break priced, 1 breaks known",
    ]
    assert requeue_lines(RequeueAnswer(0, 0), REQUEST, PRICED) == ["No row of silver/x_quarantine, version 7 is chosen"]
    assert requeue_samples(found) == [
        {"Goes": "yes", "Amount": "-1.5 → 1.5", "id": "a"},
        {"Goes": "stays: breaks known", "Amount": "null", "id": "null"},
    ]
