"""The history: commits as rows, a figure over versions, and who wrote a commit."""

import re
from dataclasses import replace
from datetime import timedelta

import plotly.graph_objects as go
import pytest

from app.history import view as history
from app.search.text import commit_facts, commit_text
from app.summary.view.summary import writers_sentence
from app.ui.lists import list_frame
from app.ui.view import commits, theme
from app.ui.view.commits import last_by_another, writer_text
from app.ui.view.figures import TABLE_SERIES, VERSION_TICKS, series_figure, table_points
from backend.lake.model import OperationMetrics, StreamOrigin, Timeline, VersionTotals
from tests.worlds.lake.made import NOW, commit, totals


def test_what_a_commit_does_not_say_is_a_dash_and_never_nothing() -> None:
    assert commits.rows_text(OperationMetrics()) == "–"
    assert commits.rows_text(OperationMetrics(rows_inserted=0)) == "±0"
    assert commits.rows_text(OperationMetrics(rows_inserted=120, rows_updated=4, rows_deleted=3)) == "+120 ~4 −3"
    assert commits.plus_minus(None, 12) == "−12"
    assert commits.bytes_plus_minus(OperationMetrics(bytes_added=38_214_551)) == "+38.2 MB"
    vacuums = [
        commit(2, "VACUUM END", files_vacuumed=9),
        commit(1, "VACUUM START", files_to_delete=9, bytes_to_delete=5),
    ]
    frame = list_frame(commits.commit_columns(NOW, {}, {}), vacuums)
    assert frame["Files"].tolist() == ["9 vacuumed", "was to delete 9"]
    assert frame["Bytes"].tolist()[1] == "was to delete 5 B"
    assert history.metrics_facts(vacuums[1].metrics)["Files to delete"] == "9"


def draw(totals: tuple[VersionTotals, ...], field: str = "num_rows") -> go.Figure:
    return series_figure(table_points(totals, field), totals, TABLE_SERIES[field])


def test_the_chart_says_its_finding_and_keeps_to_its_points() -> None:
    timeline = Timeline(totals(9_000), 0)
    figure = draw(timeline.totals)
    assert sum(len(trace.x) for trace in figure.data) <= theme.MAX_POINTS + VERSION_TICKS + 1
    assert figure.layout.title.text == "Rows grew from 10 to 90,000 over 9,000 versions"
    assert "9,000 versions thinned" in history.drawn_sentence(timeline, table_points(timeline.totals, "num_rows"))
    line = draw(totals(500)).data[0]
    assert "markers" in line.mode and len(line.customdata) == 500, "every version can be clicked"
    rare = VersionTotals(5_000, NOW + timedelta(days=1), "OPTIMIZE", 1, 1, 1, 0)
    glyphs = draw((*totals(5_000), rare), "num_files").data
    assert "OPTIMIZE" in {trace.name for trace in glyphs}


@pytest.mark.parametrize(
    ("counts", "finding"),
    [
        ((0, None), "Rows: 0 at v0"),
        ((0, 149), "Rows grew from 0 to 149 over 2 versions"),
        ((0, 100, 150, None), "Rows grew from 0 to 150 over 3 versions, v0 to v2"),
        ((None, 7, 9, 7), "Rows: 7 again over 3 versions, v1 to v3"),
        ((7, 7), "Rows stayed at 7 over 2 versions"),
        ((None, None), "Rows: no value at any of 2 versions"),
    ],
)
def test_the_finding_names_the_versions_whose_rows_are_known(counts: tuple[int | None, ...], finding: str) -> None:
    versions = tuple(VersionTotals(v, NOW, "WRITE", 1, 9, count, 0) for v, count in enumerate(counts))
    figure = draw(versions)
    assert figure.layout.title.text == finding
    assert list(figure.data[0].y) == list(counts), "what is not known is a gap"
    lacking = "files lack statistics" in history.drawn_sentence(
        Timeline(versions, 0), table_points(versions, "num_rows")
    )
    assert lacking == (None in counts)


def test_the_caption_counts_every_commit() -> None:
    kinds = ["WRITE"] * 50 + ["MERGE"] * 4 + ["DELETE"] * 3 + ["UPDATE"] * 2 + ["OPTIMIZE"]
    sentence = history.history_sentence([commit(v, kind) for v, kind in enumerate(kinds)])
    assert sentence.startswith("60 commits") and sentence.endswith("50 WRITE, 4 MERGE, 3 DELETE, 2 UPDATE, 1 other")


def test_an_operation_that_is_a_link_is_text_in_the_figure() -> None:
    """Plotly reads tags in names and hovers, and makes an anchor of `<a href=…>`."""
    evil = "<a href='https://evil.example'>WRITE</a>"
    drawn = draw(tuple(VersionTotals(version, NOW, evil, 1, 9, 10, 0) for version in range(3))).to_json()
    assert "evil.example" in drawn and not re.search(r"<a|\\u003ca", drawn)


# Who wrote a commit: the same words on History, Summary, Changes and First bad version -----------------------------

QUERY = "7c1b0a12-0000"


@pytest.mark.parametrize(
    ("origin", "names", "stream", "batch"),
    [
        (StreamOrigin("orders", QUERY, None, 41), {}, "orders", ", batch 41"),
        (StreamOrigin("orders", None, None, None), {}, "orders", ""),
        (StreamOrigin(None, QUERY, None, 0), {QUERY: "orders"}, "orders", ", batch 0"),
        (StreamOrigin(None, QUERY, None, None), {}, "query 7c1b0a12", ""),
    ],
)
def test_a_stream_and_its_batch(origin: StreamOrigin, names: dict[str, str], stream: str, batch: str) -> None:
    wrote = replace(commit(1), origin=origin, user="ann")
    assert writer_text(wrote, names) == stream + batch
    assert list_frame(commits.commit_columns(NOW, names, {}), [wrote])["Who"].tolist() == [stream + batch]
    assert commit_text(wrote, names).startswith(f"WRITE by stream {stream}{batch}, 2026")
    assert commit_facts(wrote, names)["Stream"] == stream + batch
    assert writers_sentence([wrote], names) == f"Its only commit is by stream {stream}."


def test_else_the_user_else_the_engine() -> None:
    assert writer_text(replace(commit(1), user="ann"), {}) == "ann"
    assert writer_text(commit(1), {}) == "Spark"
    assert writer_text(replace(commit(1), engine=None), {}) == "–"


def test_the_last_commit_by_another_writer() -> None:
    batches = [replace(commit(v), origin=StreamOrigin(None, query, None, v)) for v, query in ((4, "q2"), (3, "q1"))]
    ann, bob = replace(commit(2), user="ann"), replace(commit(1), user="bob")
    assert last_by_another([*batches, ann], {"q1": "orders", "q2": "orders"}) == ann, "batches of one stream"
    assert last_by_another([*batches, ann], {}) == batches[1]
    assert last_by_another([ann, replace(ann, version=1), bob], {}) == bob
    assert last_by_another([ann], {}) is None and last_by_another([], {}) is None
