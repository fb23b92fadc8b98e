"""What a reset of a stream or requeued rows would do, said before it is done; and that nobody starts it meanwhile."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backend.access import Actor
from backend.errors import QueryError, StreamError, StreamRefusedError
from backend.jobs.model import JobKind, JobRequest
from backend.store.store import ControlStore
from backend.stream_model.backlog import Backlog, SourceBacklog
from backend.stream_model.stream import Desired, DesiredState, Observed, StreamDeclaration, StreamInput, StreamState
from backend.streams.requeue import RequeueRequest, checked, parse_repairs, quarantine_of, why_never, why_not
from backend.streams.reset import ResetLevel, ResetPreview, ResetRequest, preview, why_kept
from backend.streams.verdict import StreamStatus, Verdict, is_stopped
from tests.worlds.store.stream_store import open_store
from tests.worlds.streams.values import stream

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
BRONZE = StreamInput("table", "bronze/x", "/l/bronze")
SILVER = stream("silver", BRONZE, sink_table="silver/x", source_tables=("bronze/x",))
AGAIN = Backlog((SourceBacklog("bronze/x", "table", 1, 3, 2_000, 50),), NOW)
WANTED = Desired("silver", DesiredState.RUNNING, 1, "", "ana", NOW)
UNWANTED = replace(WANTED, state=DesiredState.STOPPED)


def seen(state: StreamState) -> Observed:
    return Observed("silver", state, "h", 1, NOW)


def reader(name: str, kind: str = "table", **options: str) -> StreamDeclaration:
    """A stream that reads silver's table."""
    inputs = (StreamInput(kind, "silver/x", "/l/silver", options),)
    return replace(SILVER, name=name, sink_uri=f"/l/{name}", sink_table=f"gold/{name}", inputs=inputs)


def of(level: ResetLevel = ResetLevel.FULL, *others: StreamDeclaration, **more: Any) -> ResetPreview:
    """What is said of a reset of `declared`, stopped unless `state` says otherwise."""
    given = {"declared": SILVER, "state": StreamState.STOPPED, "set_aside": ("job-1",), "kept": ""} | more
    declared, state = given["declared"], given["state"]
    status = StreamStatus(declared, UNWANTED, seen(state), state, (), Verdict.STOPPED, "")
    everybody = [declared, *others]
    return preview(status, level, everybody, again=AGAIN, set_aside=given["set_aside"], kept=given["kept"])


@pytest.mark.parametrize("level", ResetLevel)
def test_a_table_that_only_grows_is_not_emptied_nor_one_rebuilt_whose_source_has_expired(level: ResetLevel) -> None:
    why = why_kept("silver/x", {"delta.appendOnly": "true"}, level)
    assert why.startswith("silver/x is append-only: take delta.appendOnly from it" if level is ResetLevel.FULL else "")
    assert of(level, kept=why).refused == why
    expired = why_kept("bronze/x", {"pipelines.reset.allowed": "False"}, level)
    assert bool(expired) is (level is not ResetLevel.UNDO)
    assert why_kept("bronze/x", {"pipelines.reset.allowed": "true"}, level) == ""


def test_rows_are_twice_where_a_sink_only_appends() -> None:
    assert any("is there twice" in risk for risk in of(ResetLevel.REPROCESS).risks)
    by_key = of(ResetLevel.REPROCESS, declared=replace(SILVER, sink="upsert"))
    assert not any("twice" in risk for risk in by_key.risks)
    assert not any("twice" in risk for risk in of(ResetLevel.FULL).risks)


@pytest.mark.parametrize(
    ("level", "other", "said"),
    [
        (ResetLevel.FULL, reader("gold"), "gold fails at the commit that takes rows away: reset it as well"),
        (ResetLevel.FULL, reader("gold", skipChangeCommits="true"), "gold passes over the commit"),
        (ResetLevel.FULL, reader("gold", ignoreDeletes="true"), "gold passes over the commit"),
        (ResetLevel.UNDO, reader("gold", ignoreDeletes="true"), "gold fails at the commit that takes rows away"),
        (ResetLevel.FULL, reader("gold", "change feed"), "gold gets each change as a change"),
        (ResetLevel.REPROCESS, reader("gold"), "gold gets the doubled rows as new ones"),
        (ResetLevel.UNDO, reader("gold"), "gold fails at the commit that takes rows away"),
        (ResetLevel.FULL, replace(reader("gold"), kind="materialized view"), "gold is computed anew"),
    ],
)
def test_downstream_streams_are_told_of(level: ResetLevel, other: StreamDeclaration, said: str) -> None:
    stranger = replace(reader("other"), inputs=(BRONZE,))
    (line,) = of(level, other, stranger).downstream
    assert line.startswith(said)


def test_what_lies_outside_the_lake_is_never_emptied() -> None:
    outside = replace(SILVER, sink_uri="", sink_table="", sink="postgresql", outside="public.orders at db/shop")
    assert "nobody here empties PostgreSQL table public.orders at db/shop" in of(declared=outside).refused
    again = of(ResetLevel.REPROCESS, declared=outside)
    assert again.refused == ""
    assert "those that the source has no longer stay" in again.risks[0]
    (stays,) = of(ResetLevel.UNDO, declared=outside).risks
    assert stays == "PostgreSQL table public.orders at db/shop keeps what the stream wrote since the reset"


def test_what_may_not_be_done_says_why() -> None:
    guarded = replace(SILVER, reset_allowed=False)
    assert "reset_allowed=False" in of(declared=guarded).refused
    assert of(ResetLevel.UNDO, declared=guarded).refused == ""
    assert of(ResetLevel.UNDO, set_aside=()).refused == "it has no checkpoint that was set aside"
    assert of(state=StreamState.RUNNING).refused == "it is running: stop it first"


def test_only_a_stopped_stream_is_reset() -> None:
    for desired, observed, stopped in (
        (UNWANTED, seen(StreamState.STOPPED), True),
        (WANTED, seen(StreamState.STOPPED), False),  # a host is about to start it
        (WANTED, seen(StreamState.FAILED), True),
        (WANTED, seen(StreamState.COMPLETED), True),
        (WANTED, seen(StreamState.BACKOFF), False),
        (UNWANTED, seen(StreamState.STOPPING), False),
        (WANTED, None, False),
        (UNWANTED, None, True),
    ):
        assert is_stopped(desired, observed) is stopped


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ControlStore]:
    store = open_store(tmp_path)
    store.declare([SILVER], now=NOW)
    yield store
    store.close()


@pytest.mark.parametrize(
    ("kind", "why"),
    [(JobKind.RESET, "it is being reset"), (JobKind.REQUEUE, "rows of its quarantine are being requeued")],
)
def test_nobody_starts_a_stream_whose_tables_are_being_changed(store: ControlStore, kind: JobKind, why: str) -> None:
    job = store.jobs.submit(JobRequest(kind, "silver", "f1", json.dumps({}), Actor("ana"), "a bad batch", 60), now=NOW)
    with pytest.raises(StreamRefusedError, match=why):
        store.request("silver", "start", reason="go on", actor=Actor("ben"), now=NOW)
    assert store.request("silver", "stop", reason="rest", actor=Actor("ben"), now=NOW).state is DesiredState.STOPPED
    store.jobs.cancel(job.job_id, actor=Actor("ana"), reason="no", now=NOW)
    assert store.request("silver", "start", reason="go on", actor=Actor("ben"), now=NOW).state is DesiredState.RUNNING


COLUMNS = ("id", "Amount", "broken_expectations", "stream", "batch_id", "quarantined_at")
PRICED = replace(SILVER, side_tables=("silver/x_tombstones", "silver/x_quarantine"), sink="upsert")
REQUEST = RequeueRequest("silver", 7, "id = 'a'", {"Amount": "abs(Amount)"})


def test_repairs_are_read_as_people_write_them() -> None:
    lines = ["amount = CASE WHEN id = 1 THEN 0 ELSE 1 END", ' "odd "" name" = 2 ']
    assert parse_repairs(lines) == {"amount": "CASE WHEN id = 1 THEN 0 ELSE 1 END", 'odd " name': "2"}
    for wrong in (["amount"], ["= 1"], ["amount ="], ["a = 1", "a = 2"]):
        with pytest.raises(QueryError):
            parse_repairs(wrong)
    asked = RequeueRequest("silver", 7, "batch_id = 3", {"AMOUNT": "abs(amount)", "id": "'x'"})
    assert checked(asked, COLUMNS).repairs == {"Amount": "abs(amount)", "id": "'x'"}, "as the quarantine spells them"


def test_sql_that_may_not_run_is_refused() -> None:
    for where, repairs, why in (
        ("id IN (SELECT 1)", {}, "a subquery is not allowed"),
        ("max(id) > 1", {}, "has an aggregate"),
        ("", {"Amount": "max(Amount)"}, "has an aggregate"),
        ("", {"Amount": "read_text('/etc/passwd')"}, "'read_text' is not allowed"),
        ("", {"Amount": "1); DROP TABLE x; --"}, "allowed|syntax"),
        ("", {"nothing": "1"}, "no column 'nothing'"),
        ("", {"stream": "'other'"}, "no column 'stream'"),
    ):
        with pytest.raises(QueryError, match=why):
            checked(RequeueRequest("silver", 7, where, repairs), COLUMNS)


def test_which_streams_take_rows_again() -> None:
    assert (quarantine_of(PRICED), why_never(PRICED)) == ("silver/x_quarantine", "")
    assert why_never(SILVER) == "none of its expectations quarantines rows"
    assert "no order" in why_never(replace(PRICED, sink="update"))
    assert "each batch replaces its table" in why_never(replace(PRICED, sink="complete"))
    assert "another Spark application" in why_never(replace(PRICED, kind="attached query", pipeline="nightly"))
    for outside in ("kafka", "postgresql"):
        assert "follow newer ones" in why_never(replace(PRICED, sink=outside, outside="orders at broker"))
    running = StreamStatus(PRICED, UNWANTED, seen(StreamState.RUNNING), StreamState.RUNNING, (), Verdict.OK, "")
    assert why_not(running) == "it is running: stop it first"
    still = replace(running, observed=seen(StreamState.STOPPED), state=StreamState.STOPPED)
    assert why_not(still) == ""
    wanted = replace(still, desired=WANTED)
    assert why_not(wanted) == "it is wanted to run, so a host may start it: stop it first"
    unwatched = replace(running, state=StreamState.UNKNOWN)
    assert why_not(unwatched) == "no host watches it, so it may run: start a host, then stop it"


def test_a_request_comes_back_from_its_text_and_what_is_none_is_refused() -> None:
    reset = ResetRequest("s", ResetLevel.FULL)
    assert ResetRequest.parse(reset.text()) == reset and RequeueRequest.parse(REQUEST.text()) == REQUEST
    for text in ('{"stream": "s", "version": "x"}', '{"stream": "s", "level": "all"}'):
        for parse in (ResetRequest.parse, RequeueRequest.parse):
            with pytest.raises(StreamError):
                parse(text)
