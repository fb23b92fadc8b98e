"""What happened around a table, against the log as deltalake reads it and the rows that were put into the store."""

import os
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from app.timeline.text import counts_sentence
from app.timeline.view import build_timeline_figure, drawn_range
from app.ui.view.figures import FigureLook
from app.ui.view.theme import MAX_POINTS
from backend.access import Actor
from backend.jobs.model import JobEnd, JobKind, JobRequest, JobState
from backend.lake.lake import Lake
from backend.search.notice import Measure, Notice
from backend.settings import load_settings
from backend.store.leases import job_resource, stream_resource
from backend.store.store import ControlStore
from backend.stream_model.stream import (
    DesiredState,
    InputKind,
    Observed,
    Progress,
    StreamDeclaration,
    StreamFailure,
    StreamInput,
    StreamState,
)
from backend.streams import timeline
from backend.streams.graph import around
from backend.streams.status import statuses
from backend.streams.timeline import Event, EventTimeline, load_timeline
from tests.worlds.lake.builders import write
from tests.worlds.store.values import leased
from tests.worlds.streams.values import stream
from tests.worlds.terminal import Weir, home, weir

__all__ = ["home", "weir"]
ANN = Actor("ann")
NOW = datetime.now(UTC).replace(microsecond=0)
LONG_AGO = NOW - timedelta(hours=3)


def reads(home: Path, name: str, source: str, sink: str) -> StreamDeclaration:
    read = StreamInput(InputKind.TABLE, source, str(home / "lake" / source))
    return stream(name, read, sink_uri=str(home / "lake" / sink), sink_table=sink, source_tables=(source,))


def batch(name: str, number: int, at: datetime, *, run: str = "run-2", ms: int | None = 1_500) -> Progress:
    return Progress(name, f"q-{name}", f"{name}-{run}", number, at, 10 + number, None, None, ms, {"addBatch": 900})


def seen(name: str, state: StreamState, *, failures: tuple[StreamFailure, ...] = ()) -> Observed:
    started = NOW - timedelta(minutes=50)
    return Observed(name, state, "host", 1, NOW, f"q-{name}", f"{name}-run-2", started, failures=failures)


@pytest.fixture
def store(home: Path) -> ControlStore:
    """raw → clean → silver → report → gold, and `aside`, that nobody writes by a stream or reads."""
    for name in ("raw", "silver", "gold", "aside"):
        for number in range(3):
            write(home / "lake" / name, {"id": [number]})
    DeltaTable(home / "lake" / "silver").delete("id = 0")
    kept = ControlStore.open(load_settings())
    declared = [reads(home, "clean", "raw", "silver"), reads(home, "report", "silver", "gold")]
    kept.declare(declared, now=LONG_AGO)
    kept.ensure_all_desired(["clean", "report"], DesiredState.RUNNING, now=LONG_AGO)
    failure = StreamFailure("ZeroDivisionError", "division by zero", 4, NOW - timedelta(minutes=2))
    for observed in (seen("clean", StreamState.RUNNING), seen("report", StreamState.STOPPED, failures=(failure,))):
        kept.observe(observed, token=leased(kept, stream_resource(observed.name), "host").token)
    first = [batch("clean", number, NOW - timedelta(minutes=90 - 2 * number), run="run-1") for number in range(3)]
    later = [batch("clean", number, NOW - timedelta(minutes=40 - 2 * number)) for number in (3, 4)]
    kept.add_progress([*first, *later, batch("report", 3, NOW - timedelta(minutes=5), ms=None)])
    kept.request("report", "stop", reason="prices are wrong", actor=ANN, now=NOW - timedelta(minutes=1))
    request = JobRequest(JobKind.OPTIMIZE, "silver", "optimize silver", "{}", ANN, "many small files", 60.0)
    job = kept.jobs.submit(request, now=NOW - timedelta(minutes=30))
    held = leased(kept, job_resource(job.job_id), "host")
    kept.jobs.begin(held, job.job_id, now=NOW - timedelta(minutes=29))
    kept.jobs.end(held, job.job_id, JobEnd(JobState.FAILED, error="no room"), now=NOW - timedelta(minutes=28))
    uri = str(home / "lake" / "silver")
    told = Notice(uri, "silver", 2, Measure.HIGHEST, "id", "1", "2", "id <= 1", "WRITE", NOW, mended_at=3)
    kept.noticed.keep([told, replace(told, uri="/elsewhere", table="other")], now=NOW)
    return kept


def load(
    store: ControlStore | None, name: str = "silver", *, since: datetime = LONG_AGO, until: datetime | None = None
) -> EventTimeline:
    lake = Lake(load_settings())
    streams = statuses(store, now=NOW, heartbeat_stale_s=1e9) if store else []
    return load_timeline(lake, store, streams, lake.find(name), since=since, until=until, now=datetime.now(UTC))


def counts(found: EventTimeline) -> dict[tuple[str, str], int]:
    return dict(Counter((event.lane, event.kind) for event in found.events))


def of(found: EventTimeline, kind: str, lane: str = "silver") -> list[Event]:
    return [event for event in found.events if (event.kind, event.lane) == (kind, lane)]


def test_all_that_happened_around_a_table_is_there_once(store: ControlStore, home: Path) -> None:
    found = load(store)
    assert found.lanes == ("raw", "stream clean", "silver", "stream report", "gold")
    assert counts(found) == {
        ("raw", "commit"): 3, ("gold", "commit"): 3, ("silver", "commit"): 4, ("silver", "notice"): 1,
        ("silver", "act"): 1, ("silver", "failure"): 1,
        ("stream clean", "batch"): 5, ("stream clean", "start"): 2, ("stream clean", "stop"): 1,
        ("stream report", "batch"): 1, ("stream report", "start"): 1, ("stream report", "stop"): 1,
        ("stream report", "failure"): 1, ("stream report", "act"): 1,
    }  # fmt: skip
    history = DeltaTable(home / "lake" / "silver").history()[::-1]
    commits = of(found, "commit")
    assert [(event.version, event.operation) for event in commits] == [
        (each["version"], each["operation"]) for each in history
    ]
    for event, each in zip(commits, history, strict=True):
        assert abs(event.at.timestamp() - each["timestamp"] / 1_000) < 2
    assert commits[-1].what == "v3 DELETE; −1 rows" and found.versions == (0, 3)
    assert [event.at for event in found.events] == sorted(event.at for event in found.events)
    batches = of(found, "batch", "stream clean")
    assert [(event.at, event.ended_at) for event in batches] == [
        (each.progressed_at, each.progressed_at + timedelta(milliseconds=1_500)) for each in store.progress("clean")
    ]
    assert batches[0].what == "batch 0: 10 rows in 1.5 s"
    assert of(found, "batch", "stream report")[0].what == "batch 3: 13 rows", "how long it took nobody said"
    assert [event.what for event in of(found, "stop", "stream clean")] == ["run clean-ru… ended with batch 2"]
    assert of(found, "failure", "stream report")[0].what == "ZeroDivisionError in batch 4: division by zero"
    assert of(found, "act", "stream report")[0].what.startswith("stop by ann: prices are wrong (")
    assert of(found, "failure")[0].what.startswith("optimize failed by ann: many small files (job ")
    assert of(found, "notice")[0].what == "highest id 1 → 2 at v2, WRITE; mended at v3"
    assert found.left_out == ()


def test_a_time_has_two_ends_and_may_be_all_that_there_is(store: ControlStore) -> None:
    found = load(store, since=NOW - timedelta(minutes=45), until=NOW - timedelta(minutes=29))
    assert counts(found) == {("stream clean", "batch"): 2, ("silver", "act"): 1} and found.versions is None
    assert load(store, since=NOW - timedelta(days=3), until=NOW - timedelta(days=2)).events == ()
    found = load(store, since=datetime.min.replace(tzinfo=UTC), until=datetime.max.replace(tzinfo=UTC))
    assert counts(found) == counts(load(store)) and build_timeline_figure(found, FigureLook())["data"]


def test_what_is_too_much_or_gone_is_added_up(store: ControlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MOST_BATCHES", 3)
    monkeypatch.setattr(timeline, "MOST_COMMITS", 2)
    monkeypatch.setattr(timeline, "MOST_ACTS", 1)
    monkeypatch.setattr(timeline, "MOST_AROUND", 1)
    found = load(store)
    assert [*found.lanes] == ["stream clean", "silver", "stream report"]
    assert found.left_out[0] == "2 tables and streams further away"
    monkeypatch.setattr(timeline, "MOST_AROUND", 9)
    found = load(store)
    begins = {each.progressed_at.replace(second=0): 0 for each in store.progress("clean")}
    assert len(of(found, "batch", "stream clean")) == len(begins) == 5, "one a minute, and each in a minute of its own"
    assert [event.version for event in of(found, "commit")] == [2, 3] and found.versions == (1, 3)
    assert len(of(found, "act") + of(found, "failure")) == 1
    assert [words.partition(" before ")[0] for words in found.left_out] == [
        "commits of raw", "commits of silver", "acts of silver", "acts of stream report", "commits of gold",
    ]  # fmt: skip

    expected = Counter(
        (each.run_id, each.progressed_at.replace(minute=0, second=0)) for each in store.progress("clean")
    )
    store.roll_up(list(store.not_rolled_up()))
    store.prune_progress(before=NOW, keep=1)
    monkeypatch.setattr(timeline, "MOST_BATCHES", 500)
    assert len(store.progress("clean")) == 1
    hours = of(load(store, since=NOW - timedelta(days=5)), "batch", "stream clean")
    told = [int(event.what.split()[0]) if " batches, " in event.what else 1 for event in hours]
    assert sorted(told) == sorted(expected.values())


def test_a_table_that_no_stream_knows_and_no_store(store: ControlStore) -> None:
    found = load(store, "aside")
    assert found.lanes == ("aside",) and counts(found) == {("aside", "commit"): 3} and found.left_out == ()
    found = load(None)
    assert counts(found) == {("silver", "commit"): 4}
    assert found.left_out == ("all but commits: no control store is read",)


def test_a_broken_log_hides_no_other(store: ControlStore, home: Path) -> None:
    log = home / "lake" / "silver" / "_delta_log"
    for file in log.glob("*.json"):
        file.write_text("{")
    (home / "lake" / "raw").rename(home / "gone")
    found = load(store)
    raw = str(home / "lake" / "raw")
    assert found.left_out == (f"commits of {raw}: {raw} is not a Delta table",) and found.lanes[0] == raw
    assert len(of(found, "commit", "gold")) == 3 and len(of(found, "notice")) == 1
    assert {event.what.partition("; ")[2].partition(": ")[2][:8] for event in of(found, "commit")} == {"not JSON"}
    for file in (home / "lake" / "gold" / "_delta_log").glob("*.json"):
        file.unlink()
    found = load(store)
    assert len(found.left_out) == 2 and found.left_out[1].startswith("commits of gold: ") and found.lanes[-1] == "gold"


def test_clocks_that_are_late_or_ahead(store: ControlStore, home: Path) -> None:
    log = home / "lake" / "silver" / "_delta_log"
    late = (NOW - timedelta(minutes=30)).timestamp()
    os.utime(log / f"{2:020d}.json", (late, late))
    store.add_progress([batch("clean", 6, NOW + timedelta(minutes=10)), batch("clean", 5, NOW + timedelta(minutes=11))])
    found = load(store)
    assert [event.version for event in of(found, "commit")] == [0, 1, 2, 3], "as Delta's own rule has it"
    assert [event.what.split(":")[0] for event in of(found, "batch", "stream clean")][-2:] == ["batch 6", "batch 5"]
    figure = build_timeline_figure(found, FigureLook())
    assert figure["layout"]["xaxis"]["range"][1] > f"{NOW + timedelta(minutes=11):%Y-%m-%d %H:%M}"


def test_what_feeds_itself_is_there_once(store: ControlStore, home: Path) -> None:
    back = reads(home, "back", "gold", "raw")
    store.declare([back], now=NOW)
    streams = statuses(store, now=NOW, heartbeat_stale_s=1e9)
    above, below = around(str(home / "lake" / "silver"), streams)
    assert set(above) == set(below) == {"clean", "report", "back", *(str(home / "lake" / n) for n in ("raw", "gold"))}
    found = load(store)
    assert len(found.lanes) == 6 and len(of(found, "commit", "raw")) == 3


def test_the_figure_stays_small_and_counts(store: ControlStore) -> None:
    found = load(store)
    figure = build_timeline_figure(found, FigureLook("dark", "Europe/Amsterdam"))
    drawn = {trace["name"]: len(trace["y"]) for trace in figure["data"]}
    assert drawn["batch"] == 6 and drawn["failure"] == 2 and drawn["notice"] == 1 and drawn["delete"] == 1
    many = replace(found, events=tuple(
        Event(LONG_AGO + timedelta(seconds=n), "silver", "commit", f"v{n}", version=n, operation="WRITE")
        for n in range(9_000)
    ))  # fmt: skip
    (trace,) = build_timeline_figure(many, FigureLook())["data"]
    assert len(trace["x"]) <= MAX_POINTS and "the last of " in trace["customdata"][0]
    evil = Event(NOW, "silver", "failure", "<b>x</b>")
    figure = build_timeline_figure(replace(found, events=(evil,)), FigureLook())
    assert "&lt;b&gt;x" in figure["data"][0]["customdata"][0], "a text of others is no markup"
    none = replace(found, events=())
    assert counts_sentence(none) == "" and not build_timeline_figure(none, FigureLook())["data"]
    at_once = replace(found, since=NOW, until=NOW, events=(Event(NOW, "silver", "commit", "v1", operation="stop"),) * 2)
    assert [trace["name"] for trace in build_timeline_figure(at_once, FigureLook())["data"]] == ["other"]


def test_a_drawn_range_is_asked_for_in_whole_seconds() -> None:
    drawn = ["2026-07-01 12:00:09.5", "2026-07-01 12:00:01.25"]
    assert drawn_range(drawn, "Europe/Amsterdam") == ("2026-07-01 10:00:01 UTC", "2026-07-01 10:00:10 UTC")
    in_utc = "2026-07-01 12:00:00 UTC", "2026-07-01 13:00:00 UTC"
    assert drawn_range(["2026-07-01 12:00", "2026-07-01 13:00"], None) == in_utc


def test_the_command(store: ControlStore, weir: Weir) -> None:
    document = weir("timeline", "silver", "--json").document
    assert Counter(event["kind"] for event in document["events"]) == {
        "commit": 10, "batch": 6, "start": 3, "stop": 2, "act": 2, "failure": 2, "notice": 1,
    }  # fmt: skip
    assert (document["table"], document["versions"], document["lanes"][-1]) == ("silver", [0, 3], "gold")
    told = weir("timeline", "silver", "--since", "1 h", "--until", "2000-01-01")
    assert told.code == 0 and told.out.split() == ["at", "kind", "where", "what"]
    assert "v3 DELETE" in weir("timeline", "silver").out
    assert weir("timeline", "nothing").code == 3 and weir("timeline", "silver", "--since", "one day").code == 2
