"""One stream over days: from sums kept per minute and hour, right without the batches, and small on the wire."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app import cache, services
from app.streams.view import figures
from app.ui.view.figure_json import FigureLook
from backend.store.store import ControlStore
from backend.stream_model.backlog import Lag
from backend.stream_model.rollup import HOUR_S
from backend.stream_model.stream import Progress
from backend.streams.points import Points
from tests.worlds.pages.opened import forget_caches, open_page, words
from tests.worlds.store import stream_store

NAME = "silver_events"
RULE = "event_type_not_null"
CHARTS = (
    figures.build_rate_figure,
    figures.build_duration_figure,
    figures.build_rows_figure,
    figures.build_watermark_figure,
    figures.build_state_figure,
)


@pytest.fixture
def month(store: ControlStore, now: datetime) -> list[Progress]:
    """Four batches a day for 29 days, nothing for ten of them, and no batch kept that is older than a week."""
    stream_store.flowing(store, NAME, now, expectations=(RULE,))
    days = [*range(9), *range(19, 29)]
    found = [
        stream_store.batch(NAME, number, now - timedelta(days=day, hours=6 * part + 1), run_id="r", rows=100 + number)
        for number, (day, part) in enumerate((day, part) for day in reversed(days) for part in reversed(range(4)))
    ]
    store.add_progress(found)
    store.roll_up(store.not_rolled_up())
    store.prune_progress(before=now - timedelta(days=7), keep=1_000)
    return sorted([*found, *stream_store.batches(NAME, now)], key=lambda each: each.progressed_at)


def drawn(app: AppTest) -> dict[str, Any]:
    """The charts by the first word of their titles."""
    specs = [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]
    return {spec["layout"]["title"]["text"].split()[0].rstrip(":"): spec for spec in specs}


def since(month: list[Progress], first: datetime) -> list[Progress]:
    return [batch for batch in month if batch.progressed_at > first]


def test_thirty_days_are_there_though_their_batches_are_gone(store: ControlStore, month: list[Progress]) -> None:
    assert len(store.progress(NAME, limit=1_000)) < len(month)
    app = open_page("stream", stream=NAME, window="30 d", view="Row expectations")
    assert f"{len(month)} batches in the last 30 d. Each point is the mean of a batch over 2 h" in words(app)
    dropped = sum(batch.rows_dropped_by_watermark or 0 for batch in month)
    assert f"{dropped} rows dropped as too late." in words(app)
    (counted,) = app.dataframe[-1].value.set_index("Expectation").loc[[RULE]].to_dict("records")
    counts = [count for batch in month for count in batch.expectations if count.name == RULE]
    assert (counted["Passed"], counted["Failed"]) == (sum(c.passed for c in counts), sum(c.failed for c in counts))

    (read, *_) = drawn(app)["Rows"]["data"]
    by_point: dict[int, list[int]] = {}
    for batch in month:
        by_point.setdefault(int(batch.progressed_at.timestamp()) // 7_200, []).append(batch.num_input_rows)
    means = [round(fmean(by_point[place]), 3) for place in sorted(by_point)]
    assert [value for value in read["y"] if value is not None] == means and 0 not in read["y"]
    alone = [before is None or after is None for before, after in zip([None, *read["y"]], read["y"], strict=False)]
    assert sum(alone) > 2 * 70, "with six hours between two batches no line joins them"


def test_the_most_that_waited_is_drawn_with_the_gaps_of_the_others(
    store: ControlStore, now: datetime, month: list[Progress]
) -> None:
    later = [
        stream_store.batch(NAME, 500 + number, now - timedelta(hours=50 - number), run_id="r") for number in (0, 20)
    ]
    store.add_progress(later)
    lags = {each.ended_at: Lag(each.ended_at, None, rows) for each, rows in zip(later, (1_700, 40), strict=True)}
    store.roll_up(store.not_rolled_up(), {NAME: lags})
    app = open_page("stream", stream=NAME, window="30 d")
    assert "The backlog is the most that waited after a batch." in words(app)
    chart = drawn(app)["Backlog"]
    assert chart["layout"]["title"]["text"] == "Backlog: at most 1,700 rows waited"
    assert [value for value in chart["data"][0]["y"] if value is not None] == [1_700, 40]
    assert "the most after each of" in chart["data"][0]["hovertemplate"]


def test_seven_days_are_drawn_by_the_hour_once_for_all_who_look(
    store: ControlStore, now: datetime, month: list[Progress], monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []

    def build(points: Points, look: FigureLook) -> dict[str, Any] | None:
        built.append(look)
        return build_rate_figure(points, look)

    build_rate_figure = figures.build_rate_figure
    monkeypatch.setattr(figures, "build_rate_figure", build)
    monkeypatch.setattr(services, "now", lambda: now)
    app, other = (open_page("stream", stream=NAME, window="7 d") for _ in range(2))
    assert drawn(app) == drawn(other) and len(built) == 1
    week = since(month, now - timedelta(days=7))
    assert f"{len(week)} batches in the last 7 d. Each point is the mean of a batch over 1 h" in words(app)
    longest = max(batch.batch_duration_ms or 0 for batch in week)
    assert f"up to {longest / 1_000:.3g} s" in drawn(app)["Batch"]["layout"]["title"]["text"]
    assert drawn(open_page("stream", stream=NAME, window="30 d")) != drawn(app) and len(built) == 2


def test_a_day_is_whole_by_the_minute_where_its_batches_are_gone_or_too_many_to_keep(
    store: ControlStore, now: datetime, month: list[Progress], monkeypatch: pytest.MonkeyPatch
) -> None:
    day = since(month, now - timedelta(days=1))
    text = f"{len(day)} batches in the last 24 h. Each point is the mean of a batch over 5 min"
    store.roll_up(store.not_rolled_up())
    store.prune_progress(before=now - timedelta(days=7), keep=3)
    assert 0 < len(store.progress(NAME, since=now - timedelta(days=1))) < len(day)
    assert text in words(open_page("stream", stream=NAME, window="24 h"))
    store.prune_progress(before=now - timedelta(hours=6), keep=1_000)
    monkeypatch.setenv("WEIR_STORE__PROGRESS_RETENTION_DAYS", "0.25")
    forget_caches()
    shown = words(open_page("stream", stream=NAME, window="24 h"))
    assert text in shown and "from sums kept per minute." in shown


def test_a_long_window_is_drawn_from_few_points(store: ControlStore, home: Path, now: datetime) -> None:
    """A batch every ten seconds, for a month. How quick that is, `make bench SUITE=ui` measures."""
    stream_store.declare(store, NAME, now)
    stream_store.long_history(home, NAME, now, HOUR_S, days=30, pause=range(100, 130))
    for window_s in (7 * 86_400, 30 * 86_400):
        points = cache.stream_points(store.declarations()[NAME], window_s)
        assert points.batches > 0.9 * (window_s - 30 * 3_600) / 10
        assert [point.goes_on for point in points.bins].count(False) == 1
        assert sum(len(json.dumps(build(points, figures.FigureLook()))) for build in CHARTS) < 400_000
