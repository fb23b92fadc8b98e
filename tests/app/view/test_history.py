"""The history: commits as rows, and a figure over versions."""

import re
from dataclasses import replace
from datetime import timedelta

from app.history.view import commits as history
from app.history.view import figure as history_figure
from app.ui.view import over_versions, theme
from backend.lake.history.unusual import unusual_jumps
from backend.lake.model import Commit, OperationMetrics, Timeline, VersionTotals
from tests.worlds.lake.made import NOW, commit, totals


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
    assert figure.layout.title.text == "Rows grew from 10 to 90,000 over 9,000 versions"
    assert "9,000 versions thinned" in history_figure.drawn_sentence(timeline)


def test_the_finding_names_the_versions_whose_rows_are_known() -> None:
    def said(*counts: int | None) -> str:
        found = [VersionTotals(v, NOW, "WRITE", 1, 9, count, 0) for v, count in enumerate(counts)]
        return history_figure.history_finding(found, history_figure.FIGURES["Rows"])

    assert said(0, None) == "Rows: 0 at v0"
    assert said(0, 100, 150, None) == "Rows grew from 0 to 150 over 3 versions, v0 to v2"
    assert said(None, 7, 9, 7) == "Rows: 7 again over 3 versions, v1 to v3"
    assert said(7, 7) == "Rows stayed at 7 over 2 versions"


def test_a_figure_is_built_once_for_the_same_versions() -> None:
    rows = history_figure.FIGURES["Rows"]
    first = history_figure.history_figure(Timeline(totals(60), 0), rows)
    assert history_figure.history_figure(Timeline(totals(60), 0), rows, jumps=[]) is first
    assert history_figure.history_figure(Timeline(totals(60), 0), rows, mode="dark") is not first
    assert history_figure.history_figure(Timeline(totals(60), 0), rows, zone="Asia/Tokyo") is not first
    other = (*totals(60)[:-1], replace(totals(60)[-1], num_rows=7))
    changed = history_figure.history_figure(Timeline(other, 0), rows)
    assert changed.data[0].y[-1] == 7 and first.data[0].y[-1] != 7


def test_rare_operations_keep_their_glyph_among_thousands() -> None:
    many = [*totals(5_000), VersionTotals(5_000, NOW + timedelta(days=1), "OPTIMIZE", 1, 1, 1, 0)]
    figure = history_figure.history_figure(Timeline(tuple(many), 0), history_figure.FIGURES["Files"])
    assert "OPTIMIZE" in {trace.name for trace in figure.data}


def test_glyphs_that_would_lie_upon_each_other_are_one_that_counts_them() -> None:
    timeline = Timeline((*totals(600), VersionTotals(600, NOW + timedelta(hours=1), "MERGE", 1, 1, 1, 0)), 0)
    figure = history_figure.history_figure(timeline, history_figure.FIGURES["Rows"])
    writes, merges = (trace for trace in figure.data if trace.yaxis == "y2")
    assert merges.name == "MERGE" and len(merges.x) == 1
    assert 1 < len(writes.x) <= over_versions.GLYPH_SLOTS
    versions = [point[0] for point in writes.customdata]
    assert versions == sorted(versions) and versions[-1] == 599
    firsts = [int(point[2].rpartition("from v")[2].split()[0]) for point in writes.customdata if "newest" in point[2]]
    counted = sum(int(point[2].split("newest of ")[1].split()[0]) if "newest" in point[2] else 1
                  for point in writes.customdata)  # fmt: skip
    assert counted == 600 and firsts[0] == 0


def test_a_jump_is_marked_where_it_is() -> None:
    rows = [10 * v for v in range(1, 31)]
    rows[20:] = [each + 5_000 for each in rows[20:]]
    versions = tuple(VersionTotals(v, NOW + timedelta(seconds=v), "WRITE", 1, 1, n, 0) for v, n in enumerate(rows))
    jumps = unusual_jumps(versions)
    figure = history_figure.history_figure(Timeline(versions, 0), history_figure.FIGURES["Rows"], jumps=jumps)
    (mark,) = [trace for trace in figure.data if trace.marker.symbol == "circle-open" and trace.yaxis is None]
    assert mark.customdata == ([20],) and list(mark.y) == [5_210]
    assert figure.layout.annotations[0].text == "v20: +5,010"
    assert history_figure.jump_text(jumps[0]) == "+5,010 rows; a commit usually brings +10"


def test_every_version_of_a_long_line_can_be_clicked() -> None:
    line = history_figure.history_figure(Timeline(totals(500), 0), history_figure.FIGURES["Rows"]).data[0]
    assert "markers" in line.mode and line.marker.opacity == 0 and len(line.customdata) == 500


def test_a_table_that_began_empty_grew_from_nothing() -> None:
    first = VersionTotals(0, NOW, "CREATE TABLE", 0, 0, 0, 0)
    last = VersionTotals(1, NOW, "WRITE", 1, 1, 149, 0)
    assert history_figure.history_finding((first, last), history_figure.FIGURES["Rows"]) == (
        "Rows grew from 0 to 149 over 2 versions"
    )


def test_the_caption_counts_every_commit() -> None:
    kinds = ["WRITE"] * 50 + ["MERGE"] * 4 + ["DELETE"] * 3 + ["UPDATE"] * 2 + ["OPTIMIZE"]
    sentence = history.history_sentence([commit(v, kind) for v, kind in enumerate(kinds)])
    assert sentence.startswith("60 commits") and sentence.endswith("50 WRITE, 4 MERGE, 3 DELETE, 2 UPDATE, 1 other")


def test_who_stands_before_what_is_often_empty() -> None:
    by = replace(commit(1), user="ann")
    columns = list(history.commits_frame([by], NOW).columns)
    assert columns[:6] == ["Version", "When", "Committed at", "Operation", "Who", "Rows"] and "Changed" not in columns
    frame = history.commits_frame([by, replace(by, job="job hourly count")], NOW)
    assert list(frame["Job"]) == ["", "job hourly count"]


def test_unknown_rows_are_a_gap_and_said() -> None:
    figure = history_figure.history_figure(Timeline(totals(3, rows=None), 0), history_figure.FIGURES["Rows"])
    assert list(figure.data[0].y) == [None, None, None]
    assert figure.layout.title.text == "Rows: not known, files lack statistics"


def test_without_times_versions_are_the_axis() -> None:
    timeless = tuple(VersionTotals(v, None, "WRITE", v, v, v, 0) for v in range(3))
    figure = history_figure.history_figure(Timeline(timeless, 0), history_figure.FIGURES["Rows"])
    assert list(figure.data[0].x) == [0, 1, 2]
    assert figure.layout.xaxis.title.text == "Version"


def test_an_operation_that_is_a_link_is_text_in_the_figure() -> None:
    """Plotly reads tags in names and hovers, and makes an anchor of `<a href=…>`."""
    evil = "<a href='https://evil.example'>WRITE</a>"
    history = Timeline(tuple(VersionTotals(version, NOW, evil, 1, 9, 10, 0) for version in range(3)), 0)
    drawn = history_figure.history_figure(history, history_figure.FIGURES["Rows"]).to_json()
    assert "evil.example" in drawn and not re.search(r"<a|\\u003ca", drawn)
