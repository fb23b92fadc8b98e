"""What a reset of a stream would do, said before it is done; and that nobody starts it meanwhile."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.access import Actor
from backend.errors import StreamError, StreamRefusedError
from backend.jobs.model import JobKind, JobRequest
from backend.store.store import ControlStore
from backend.stream_model.backlog import Backlog, SourceBacklog
from backend.stream_model.stream import Desired, DesiredState, Observed, StreamDeclaration, StreamInput, StreamState
from backend.streams.reset.plan import (
    ResetLevel,
    ResetPreview,
    ResetRequest,
    is_stopped,
    preview,
    reads_again,
    why_kept,
)
from backend.streams.verdict import StreamStatus, Verdict

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
BRONZE = StreamInput("table", "bronze/x", "/l/bronze")
SILVER = StreamDeclaration(
    "silver", "", "", "/l/silver", "silver/x", ("bronze/x",), "silver", 5_000, "/c/silver", inputs=(BRONZE,)
)
AGAIN = Backlog((SourceBacklog("bronze/x", "table", 1, 3, 2_000, 50),), NOW)
WANTED = Desired("silver", DesiredState.RUNNING, 1, "", "ana", NOW)
UNWANTED = replace(WANTED, state=DesiredState.STOPPED)


def seen(state: StreamState) -> Observed:
    return Observed("silver", state, "h", 1, NOW)


def reader(name: str, kind: str = "table", **options: str) -> StreamDeclaration:
    """A stream that reads silver's table."""
    inputs = (StreamInput(kind, "silver/x", "/l/silver", options),)
    return replace(SILVER, name=name, sink_uri=f"/l/{name}", sink_table=f"gold/{name}", inputs=inputs)


def of(
    level: ResetLevel = ResetLevel.FULL,
    *others: StreamDeclaration,
    declared: StreamDeclaration = SILVER,
    state: StreamState = StreamState.STOPPED,
    set_aside: tuple[str, ...] = ("job-1",),
    kept: str = "",
) -> ResetPreview:
    status = StreamStatus(declared, UNWANTED, seen(state), state, None, Verdict.STOPPED, "")
    return preview(status, level, [declared, *others], again=AGAIN, set_aside=set_aside, kept=kept)


def test_a_table_that_only_grows_is_not_emptied() -> None:
    grows = {"delta.appendOnly": "true"}
    why = why_kept("silver/x", grows, ResetLevel.FULL)
    assert of(kept=why).refused == why
    assert why.startswith("silver/x is append-only: take delta.appendOnly from it")
    assert why_kept("silver/x", grows, ResetLevel.REPROCESS) == ""


@pytest.mark.parametrize("level", ResetLevel)
def test_a_table_whose_source_has_expired_is_not_rebuilt(level: ResetLevel) -> None:
    why = why_kept("bronze/x", {"pipelines.reset.allowed": "False"}, level)
    assert bool(why) is (level is not ResetLevel.UNDO)
    assert why_kept("bronze/x", {"pipelines.reset.allowed": "true"}, level) == ""


def test_it_says_what_is_read_again() -> None:
    found = of()
    assert (found.refused, found.again) == ("", AGAIN)
    assert reads_again(found.again) == "50 rows, 3 files, 2 kB"
    assert "its tables are emptied" in found.effect
    unknown = Backlog((SourceBacklog("orders", "kafka", unknown="no host has asked the broker yet"),), NOW)
    assert reads_again(unknown) == "nobody knows how much; no host has asked the broker yet"


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
    assert of(ResetLevel.UNDO, set_aside=()).refused == "no checkpoint of it was set aside"
    assert of(state=StreamState.RUNNING).refused == "it is running: stop it first"


@pytest.mark.parametrize(
    ("desired", "observed", "stopped"),
    [
        (UNWANTED, seen(StreamState.STOPPED), True),
        (WANTED, seen(StreamState.STOPPED), False),  # a host is about to start it
        (WANTED, seen(StreamState.FAILED), True),
        (WANTED, seen(StreamState.COMPLETED), True),
        (WANTED, seen(StreamState.BACKOFF), False),
        (UNWANTED, seen(StreamState.STOPPING), False),
        (WANTED, None, False),
        (UNWANTED, None, True),
    ],
)
def test_only_a_stopped_stream_is_reset(desired: Desired, observed: Observed | None, stopped: bool) -> None:
    assert is_stopped(desired, observed) is stopped


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"stream": "s", "level": "all"}'])
def test_a_request_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(StreamError):
        ResetRequest.parse(text)
    assert ResetRequest.parse(ResetRequest("s", ResetLevel.FULL).text()) == ResetRequest("s", ResetLevel.FULL)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ControlStore]:
    store = ControlStore(f"sqlite:///{tmp_path / 'weir.db'}")
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
