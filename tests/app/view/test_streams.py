"""What may be asked of a stream in each state, how lists and preflights word it, and its charts."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pandas as pd
import plotly.graph_objects as go
import pytest

from app.streams.acts import chosen_overrides
from app.streams.text import window_sentence
from app.streams.view import figures
from app.streams.view import lists as streams
from app.streams.view.lists import key_figures
from app.ui.lists import list_frame
from app.ui.states import by_urgency, summary_sentence
from app.ui.view.acts import log_columns
from app.ui.view.figures import FigureLook, moment_json
from backend.jobs.model import JobKind
from backend.stream_model.backlog import Backlog, Lag, SourceBacklog
from backend.stream_model.rollup import points_of
from backend.stream_model.stream import (
    AuditEntry,
    Desired,
    DesiredState,
    HostHeartbeat,
    Observed,
    StreamDeclaration,
    StreamFailure,
    StreamState,
)
from backend.streams.acts import blocked
from backend.streams.verdict import StreamStatus, Verdict, judged
from tests.backend.streams.test_stream_batches import event

NOW = datetime(2026, 11, 20, 12, 3, tzinfo=UTC)


def status(
    state: StreamState, wanted: DesiredState | None = DesiredState.RUNNING, *, name: str = "s",
    verdict: Verdict = Verdict.OK,
) -> StreamStatus:  # fmt: skip
    declaration = StreamDeclaration(name, "", "files", f"/lake/{name}", name, (), None, 5_000, f"/checkpoints/{name}")
    desired = Desired(name, wanted, 1, "", "host", NOW) if wanted else None
    return StreamStatus(declaration, desired, None, state, (), verdict, f"{name} is so")


RUN, STOP = DesiredState.RUNNING, DesiredState.STOPPED


@pytest.mark.parametrize(
    ("state", "wanted", "open_acts"),
    [
        (StreamState.RUNNING, RUN, {"stop", "restart"}),
        (StreamState.STARTING, RUN, {"stop", "restart"}),
        (StreamState.BACKOFF, RUN, {"stop", "restart"}),
        (StreamState.FAILED, RUN, {"start", "stop", "restart"}),
        (StreamState.COMPLETED, RUN, {"start", "stop", "restart"}),
        (StreamState.UNKNOWN, RUN, {"stop", "restart"}),
        (StreamState.STOPPED, RUN, {"stop", "restart"}),
        (StreamState.STOPPED, STOP, {"start"}),
        (StreamState.STOPPING, STOP, {"start"}),
        (StreamState.RUNNING, STOP, {"start"}),
        (StreamState.UNKNOWN, None, {"start", "stop", "restart"}),
    ],
)
def test_which_acts_are_open(state: StreamState, wanted: DesiredState | None, open_acts: set[str]) -> None:
    reasons = {action: blocked(status(state, wanted), action) for action in streams.ICONS}
    assert {action for action, why in reasons.items() if why is None} == open_acts
    assert all(why is None or len(why) > 10 for why in reasons.values())


def test_urgent_streams_come_first() -> None:
    verdicts = {"a": Verdict.OK, "b": Verdict.FAILED, "c": Verdict.STOPPED, "d": Verdict.STALLED}
    listed = by_urgency(status(StreamState.RUNNING, name=name, verdict=v) for name, v in verdicts.items())
    assert [each.declaration.name for each in listed] == ["b", "c", "d", "a"]
    starved = replace(status(StreamState.RUNNING, name="a", verdict=Verdict.IDLE), starved_by="c")
    stopped = status(StreamState.STOPPED, name="c", verdict=Verdict.STOPPED)
    assert by_urgency([*listed[2:], starved, stopped])[:2] == [stopped, starved]


def test_the_list_says_what_is_known_of_a_backlog_and_nothing_else() -> None:
    source = SourceBacklog("in", "table", rows=4_000, oldest_unread_at=NOW - timedelta(minutes=12))
    shrinks = tuple(Lag(NOW - timedelta(seconds=10 * back), None, 4_000 + 400 * back) for back in range(5, -1, -1))
    backlogs = (
        (Backlog((source,), NOW, shrinks), "12 min · 4,000 rows · caught up in 1 min"),  # 400 rows fewer in 10 s
        (Backlog((source,), NOW), "12 min · 4,000 rows"),
        (Backlog((replace(source, oldest_unread_at=None),), NOW), "4,000 rows"),
        (Backlog((replace(source, rows=0, oldest_unread_at=None),), NOW), "caught up"),
        (Backlog((SourceBacklog("in", "kafka", unknown="nobody asked"),), NOW), ""),
        (None, ""),
    )
    for backlog, text in backlogs:
        shown = replace(status(StreamState.RUNNING), backlog=backlog)
        assert list_frame(streams.build_stream_columns(NOW), [shown])["Behind"].fillna("")[0] == text


def test_the_operation_log_lists_acts_without_what_is_a_host_s_alone() -> None:
    entries = [
        AuditEntry(NOW, "ann", "restart", "s", "slow", "RUNNING → RUNNING, generation 3; trigger: 5 s → 10 s"),
        AuditEntry(NOW, "ann", f"{JobKind.REQUEUE_PREVIEW} job", "s", "to see", "job 1"),
        AuditEntry(NOW, "ann", f"{JobKind.REQUEUE} job", "s", "mended", "job 2"),
        AuditEntry(NOW, "ann", "clone", "t", "for tests", "/lake/eu/copy becomes a copy of v3; s3://b/x/t, a/b"),
    ]
    columns = log_columns(NOW, ["/", "/lake", "/lake/eu/", "s3://b/x"])
    log = list_frame(columns, streams.newest_acts(entries))
    assert list(log["Act"]) == ["restart", "requeue job", "clone"]
    assert list(log["Detail"]) == [
        "RUNNING → RUNNING; trigger: 5 s → 10 s", "job 2", "copy becomes a copy of v3; t, a/b",
    ]  # fmt: skip


def test_every_state_and_verdict_has_its_words() -> None:
    statuses = [status(state, verdict=verdict) for state in StreamState for verdict in Verdict]
    frame = list_frame(streams.build_stream_columns(NOW), statuses)
    assert all(len(text.split(" ", 1)) == 2 for column in ("Observed", "Verdict") for text in frame[column])


def test_charts_share_an_axis_that_ends_now_and_an_outage_stays_visible() -> None:
    ran = points_of([event(5), event(6), event(100, run="r2"), event(101, run="r2")], trigger_interval_ms=5_000)
    ended, began = event(6).ended_at, event(100, run="r2").progressed_at
    until = event(101).ended_at + timedelta(minutes=2)
    points = replace(ran, since=until - timedelta(minutes=15), until=until)
    assert points.outages(runs=True) == [(ended, began)]
    outages = points.outages(runs=False)
    assert outages == [(ended, began), (event(101).ended_at, until)], "while it lasts, too"
    assert ran.outages(runs=False) == [] and replace(points, bins=()).outages(runs=False) == [(points.since, until)]

    look, since = FigureLook(zone="UTC"), points.since
    assert since is not None
    audit = [
        AuditEntry(ended, "<b>ann", "stop", "s", "upgrade"),
        AuditEntry(since - timedelta(1), "a", "stop", "s", ""),
    ]
    marked = streams.marks(audit, [StreamFailure("ValueError", "bad", 100, began)])
    for build in (figures.build_rate_figure, figures.build_duration_figure):
        layout = go.Figure(figures.on_one_axis(build(points, look), points, outages, marked, look)).layout
        ends = layout.xaxis.autorangeoptions
        assert list(ends.include) == [ends.clipmin, ends.clipmax] == [moment_json(at, "UTC") for at in (since, until)]
        assert layout.xaxis.range is None, "or a zoom would go at each refresh"
        drawn = figures.on_one_axis(build(points, look), points, outages, marked, look)["data"][-1]
        assert list(zip(drawn["x"], drawn["customdata"], strict=True)) == [
            (moment_json(ended, "UTC"), "stop by &lt;b&gt;ann: upgrade"),
            (moment_json(began, "UTC"), "failed: ValueError"),
        ]
        shaded = [(shape.x0, shape.x1) for shape in layout.shapes if shape.type == "rect"]
        assert shaded == [(moment_json(a, "UTC"), moment_json(b, "UTC")) for a, b in outages]
        assert {shape.layer for shape in layout.shapes} == {"below"}, "nothing cuts bars"


def test_each_line_and_bar_has_the_values_of_its_name() -> None:
    more = {"output_rows": 7, "state_rows": 4, "watermark": event(0).progressed_at}
    points = points_of([event(number, dropped=3, **more) for number in range(2)], trigger_interval_ms=5_000)
    look, lags = FigureLook(), [Lag(event(0).ended_at, behind_s=30.0, rows=9)]
    phases = {"compute and write": [1.5] * 2, "commit": [0.1] * 2, "everything else": [0.4] * 2}
    rows = {"read": [10.0] * 2, "written": [7.0] * 2, "dropped as too late": [3.0] * 2}
    for figure, wanted in (
        (figures.build_rate_figure(points, look), {"input": [2.0] * 2, "processing": [5.0] * 2}),
        (figures.build_backlog_figure(lags, look), {"unread": [9]}),
        (figures.build_duration_figure(points, look), phases),
        (figures.build_rows_figure(points, look), rows),
        (figures.build_watermark_figure(points, look), {"watermark": [0.0, 0.083]}),
        (figures.build_state_figure(points, look), {"state": [4] * 2}),
    ):
        assert figure is not None
        assert {trace["name"]: trace["y"] for trace in figure["data"]} == wanted


def test_rows_of_a_long_window_are_a_batch_s_and_the_sum_is_said() -> None:
    points = points_of([event(i, rows=10 + i % 2, state_rows=i, dropped=0) for i in range(17_280)])
    rows = go.Figure(figures.build_rows_figure(points, FigureLook()))
    assert set(rows.data[0].y) == {10.5}
    assert rows.layout.title.text == "Rows: 10.5 a batch, 181 k read in all"
    assert window_sentence(points, window="24 h") == (
        "17,280 batches in the last 24 h. Each point is the mean of a batch over 10 min."
    )
    assert figures.build_state_figure(points_of([event(0)]), FigureLook()) is None, "a stream without state"


@pytest.mark.parametrize("state", list(StreamState))
def test_only_a_running_stream_has_a_rate(state: StreamState) -> None:
    declared, seen = status(state).declaration, Observed("s", state, "h", 1, NOW, "q", "r1")
    host, last = HostHeartbeat("h", "m", 1, NOW, NOW), event(0, progressed_at=NOW)
    shown = judged(StreamStatus(declared, None, seen, recent=[last], host=host), now=NOW, heartbeat_stale_s=15)

    (row,) = list_frame(streams.build_stream_columns(NOW), [shown]).to_dict("records")
    rate = next(figure for figure in key_figures(shown, now=NOW) if figure.label == "Input")
    if state is StreamState.RUNNING:
        assert (row["Rows in"], rate.value, rate.note) == (5.0, "5 rows/s", "5 rows/s in a batch")
        assert summary_sentence([shown]) == "1 stream: 1 running · 5 rows/s in"
    else:
        word = "waiting to restart" if state is StreamState.BACKOFF else state.value.lower()
        assert pd.isna(row["Rows in"]) and summary_sentence([shown]) == f"1 stream: 1 {word}"
        assert (rate.value, rate.note) == ("–", "")
        assert "It does not run." in rate.help


def test_what_is_as_declared_or_empty_is_no_override() -> None:
    typed = {"trigger": " 5 seconds ", "maxFilesPerTrigger": "", "maxBytesPerTrigger": "9"}
    declared = {"trigger": "5 seconds", "spark.sql.a": "1"}
    assert chosen_overrides(declared, typed, {"spark.sql.a": "1", "spark.sql.b": "2"}) == {
        "maxBytesPerTrigger": "9",
        "spark.sql.b": "2",
    }
