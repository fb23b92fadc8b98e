"""The history: commits as rows, and a figure over versions."""

from datetime import timedelta

from app.history.view import commits as history
from app.history.view import figure as history_figure
from app.ui import theme
from backend.lake.model import Commit, OperationMetrics, Timeline, VersionTotals
from tests.unit.app.made import NOW, commit, totals


def test_what_a_commit_does_not_say_is_a_dash_and_never_nothing() -> None:
    assert history.rows_text(OperationMetrics()) == "–"
    assert history.rows_text(OperationMetrics(rows_inserted=0)) == "±0"
    assert history.rows_text(OperationMetrics(rows_inserted=120, rows_updated=4, rows_deleted=3)) == "+120 ~4 −3"
    assert history.plus_minus(None, 12) == "−12"
    assert history.bytes_plus_minus(OperationMetrics(bytes_added=38_214_551)) == "+38.2 MB"
    vacuums = [commit(2, "VACUUM END", files_vacuumed=9), commit(1, "VACUUM START", files_vacuumed=9, bytes_vacuumed=5)]
    frame = history.commits_frame(vacuums, NOW, history.Known({}, {}))
    assert frame["Files"].tolist() == ["9 vacuumed", "9 to vacuum"] and frame["Bytes"].tolist()[1] == "5 B to vacuum"


def test_one_odd_commit_does_not_hide_the_rest() -> None:
    odd = Commit(1, None, None, {}, OperationMetrics(), {}, None, None, None, problem="commitInfo is not an object")
    shown = history.commits_frame([commit(2), odd], NOW)
    assert shown["Operation"].tolist() == ["● WRITE", "○ not named"]
    assert shown["Note"].tolist() == ["", "commitInfo is not an object"]


def test_the_chart_says_its_finding_and_keeps_to_its_points() -> None:
    timeline = Timeline(totals(9_000), 0)
    figure = history_figure.history_figure(timeline, history_figure.FIGURES["Rows"])
    drawn = sum(len(trace.x) for trace in figure.data)
    assert drawn <= theme.MAX_POINTS + history_figure.VERSION_TICKS + 1
    assert figure.layout.title.text == "Rows grew by 89,990 to 90,000 over 9,000 versions"
    assert "9,000 versions thinned" in history_figure.drawn_sentence(timeline)


def test_rare_operations_keep_their_glyph_among_thousands() -> None:
    many = [*totals(5_000), VersionTotals(5_000, NOW + timedelta(days=1), "OPTIMIZE", 1, 1, 1, 0)]
    figure = history_figure.history_figure(Timeline(tuple(many), 0), history_figure.FIGURES["Files"])
    assert "OPTIMIZE" in {trace.name for trace in figure.data}


def test_unknown_rows_are_a_gap_and_said() -> None:
    figure = history_figure.history_figure(Timeline(totals(3, rows=None), 0), history_figure.FIGURES["Rows"])
    assert list(figure.data[0].y) == [None, None, None]
    assert figure.layout.title.text == "Rows: not known, files lack statistics"


def test_without_times_versions_are_the_axis() -> None:
    timeless = tuple(VersionTotals(v, None, "WRITE", v, v, v, 0) for v in range(3))
    figure = history_figure.history_figure(Timeline(timeless, 0), history_figure.FIGURES["Rows"])
    assert list(figure.data[0].x) == [0, 1, 2]
    assert figure.layout.xaxis.title.text == "Version"
