"""Pure builders of overview, summary, history, files and properties."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from app.files.view import distribution as files
from app.history.view import commits as history
from app.history.view import figure as history_figure
from app.overview import view as overview
from app.properties import view as properties
from app.summary.view import summary as table
from app.ui import frame_words as frame
from app.ui import theme
from backend.health.model import AttentionItem, Severity
from backend.lake.files.clustering import DepthPoint, Overlap
from backend.lake.files.file_sizes import FileChoice, TargetSize, VectorLoad, distribute, file_page
from backend.lake.log.file_set import FileSet
from backend.lake.model import (
    FILES_SCHEMA,
    Commit,
    Metadata,
    OperationMetrics,
    Protocol,
    Snapshot,
    TableCard,
    TableRef,
    Timeline,
    UnreadableTable,
    VersionTotals,
)
from backend.lake.table.properties import explain_properties
from backend.streams.model import HostHeartbeat

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
REF = TableRef("/lake/silver/orders", "silver/orders", "/lake", "silver")


def commit(version: int, operation: str | None = "WRITE", **metrics: int) -> Commit:
    at = NOW - timedelta(minutes=100 - version)
    return Commit(version, at, operation, {}, OperationMetrics(**metrics), {}, None, "Spark", None)


def totals(count: int, *, rows: int | None = 10, operation: str = "WRITE") -> tuple[VersionTotals, ...]:
    return tuple(
        VersionTotals(v, NOW + timedelta(seconds=v), operation, v + 1, 100 * (v + 1), rows and rows * (v + 1), 0)
        for v in range(count)
    )


def snapshot(sizes: list[int], partition: str = "") -> Snapshot:
    rows = [(f"{i}.parquet", size, 5, 0, NOW, partition, None) for i, size in enumerate(sizes)]
    columns = [
        pa.array(list(column), field.type) for column, field in zip(zip(*rows, strict=True), FILES_SCHEMA, strict=True)
    ]
    metadata = Metadata("id", "{}")
    files = FileSet.of(pa.Table.from_arrays(columns, schema=FILES_SCHEMA), metadata)
    return Snapshot(REF, 3, NOW, Protocol(1, 2), metadata, files)


# overview --------------------------------------------------------------------------------------------------------


def test_totals_say_what_they_could_not_count() -> None:
    known = TableCard(REF, 3, 10, 1000, 50, 9, NOW, "WRITE")
    rowless = TableCard(REF, 3, 10, 1000, None, 0, NOW, "WRITE")
    broken = UnreadableTable(REF, "cut off", "restore it")
    text = overview.totals_sentence(overview.lake_totals([known, rowless, broken]))
    assert text == "3 tables · 50 rows (unknown in 1 table) · 20 files · 2 kB · 45 % small files · 1 unreadable"


def test_tables_stand_in_the_order_of_the_medallion_and_the_broken_among_them() -> None:
    def named(name: str, layer: str | None) -> UnreadableTable:
        return UnreadableTable(TableRef(f"/{name}", name, "/", layer), "no", "")

    tables = [named("a", None), named("b", "gold"), named("d", "bronze"), named("c", "bronze")]
    ordered = overview.by_layer(tables)
    assert [t.ref.name for t in ordered] == ["c", "d", "b", "a"]
    assert overview.tables_frame(ordered, NOW)["State"].tolist() == ["⚠ unreadable"] * 4


def test_the_heading_tells_urgent_from_notes_and_never_praises_what_is_unknown() -> None:
    note = AttentionItem(Severity.NOTE, "table", "t", "old", "look")
    urgent = AttentionItem(Severity.CRITICAL, "stream", "s", "failed", "restart")
    assert overview.attention_sentence([]) == "Nothing needs attention"
    assert overview.attention_sentence([note]) == "Nothing urgent, 1 note"
    assert overview.attention_sentence([urgent, note]) == "1 thing needs attention"
    assert overview.attention_sentence([], ["streams"]) == "Not known: streams could not be read"


def test_every_item_leads_to_the_page_that_helps() -> None:
    stream = AttentionItem(Severity.CRITICAL, "stream", "s", "failed", "restart")
    broken = AttentionItem(Severity.CRITICAL, "table", "t", "cannot be read", "restore")
    small = AttentionItem(Severity.WARNING, "table", "t", "small files", "optimize")
    host = AttentionItem(Severity.CRITICAL, "host", "h", "silent", "start")
    found = [overview.attention_destination(item) for item in (stream, broken, small, host)]
    assert [(d.page, d.params) for d in found] == [
        ("stream", {"stream": "s"}),
        ("table", {"table": "t"}),
        ("health", {"table": "t"}),
        ("streams", {}),
    ]


# frame -----------------------------------------------------------------------------------------------------------


def beat(seconds_ago: float) -> HostHeartbeat:
    return HostHeartbeat("h", "m", 1, NOW - timedelta(hours=3), NOW - timedelta(seconds=seconds_ago))


def test_the_state_line_of_a_healthy_weir() -> None:
    lake = frame.LakeFreshness(7, NOW - timedelta(seconds=2))
    line = frame.state_line(lake, frame.HostFreshness([beat(1)], 6, 15), NOW)
    assert line.text == "host up 3 h · 6 streams · 7 tables · lake read 2 s ago"
    assert not line.is_amber


@pytest.mark.parametrize(
    ("lake", "host", "words"),
    [
        (frame.LakeFreshness(7, NOW), frame.HostFreshness([beat(60)], 6, 15), "No host since 2026-11-20 11:59:00 UTC"),
        (frame.LakeFreshness(7, NOW), frame.HostFreshness([], 6, 15), "No stream host has reported"),
        (
            frame.LakeFreshness(7, NOW),
            frame.HostFreshness([], 0, 15, "locked"),
            "control store does not answer: locked",
        ),
        (frame.LakeFreshness(0, None, "denied"), frame.HostFreshness([beat(1)], 6, 15), "lake cannot be read: denied"),
    ],
)
def test_the_state_line_is_amber_with_its_reason(
    lake: frame.LakeFreshness, host: frame.HostFreshness, words: str
) -> None:
    line = frame.state_line(lake, host, NOW)
    assert line.is_amber and words in " ".join(line.reasons)


def test_a_lake_that_is_only_browsed_is_not_amber() -> None:
    assert not frame.state_line(frame.LakeFreshness(2, NOW), frame.HostFreshness([], 0, 15), NOW).is_amber


def test_the_place_of_a_table() -> None:
    assert frame.place(REF) == ("lake / silver", "orders")
    assert frame.place(TableRef("/data/lake/t", "lake/t", "/data/lake")) == ("lake", "t")


# summary ---------------------------------------------------------------------------------------------------------


def test_the_trend_compares_with_a_day_before() -> None:
    old = VersionTotals(0, NOW - timedelta(hours=30), "WRITE", 1, 10, 5, 0)
    new = VersionTotals(1, NOW, "WRITE", 2, 20, 12, 0)
    assert table.trend(Timeline((old, new), 0), "num_rows", NOW).change == 7
    assert table.trend(Timeline((new,), 1), "num_rows", NOW).change is None


# history ---------------------------------------------------------------------------------------------------------


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


def test_thinning_keeps_the_peak_and_the_last() -> None:
    spiked = list(totals(5_000))
    spiked[2_345] = VersionTotals(2_345, NOW + timedelta(seconds=2_345), "WRITE", 10**6, 1, 1, 0)
    kept = history_figure.thin(spiked, 1_000, history_figure.FIGURES["Files"])
    assert len(kept) <= 1_000
    assert {2_345, 4_999} <= {item.version for item in kept}


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


# files -----------------------------------------------------------------------------------------------------------


def test_a_file_stands_in_one_bar_and_the_lines_where_they_belong() -> None:
    found = distribute(snapshot([512, 1023, 1024, 5000] * 5), TargetSize(4096, "test"), ratio=0.5, min_files=16)
    figure = files.distribution_figure(found)
    bars = figure.data[0]
    assert sum(bars.y) == 20
    assert dict(zip([c[0] for c in bars.customdata], bars.y, strict=True)) == {512: 10, 1024: 5, 2048: 0, 4096: 5}
    assert [shape.x0 for shape in figure.layout.shapes] == [11.0, 12.0]  # log2 of small limit and target
    assert list(figure.data[1].y)[-1] == pytest.approx(100)
    assert figure.layout.title.text == "75 % of 20 files are small (under 2.05 kB)"


def test_an_empty_version_has_a_title_and_no_bars() -> None:
    empty = snapshot([1])
    empty = Snapshot(
        REF, 3, NOW, Protocol(1, 2), Metadata("id", "{}"), FileSet.of(empty.files.slice(0, 0), empty.metadata)
    )
    found = distribute(empty, TargetSize(4096, "test"), ratio=0.5, min_files=16)
    figure = files.distribution_figure(found)
    assert figure.layout.title.text == "This version has no data files"
    assert len(figure.data) == 0


def test_the_files_of_a_bar_are_half_open() -> None:
    found = distribute(snapshot([512, 1023, 1024]), TargetSize(4096, "test"), ratio=0.5, min_files=16)
    bucket = found.buckets[0]
    choice = FileChoice(from_bytes=bucket.from_bytes, to_bytes=bucket.to_bytes, order="smallest")
    inside = file_page(snapshot([512, 1023, 1024]), choice).files
    assert inside["size_bytes"].to_pylist() == [512, 1023]


def test_deletion_vectors_are_said_with_the_files_to_rewrite() -> None:
    found = distribute(snapshot([10, 10]), TargetSize(4096, "test"), ratio=0.5, min_files=16)
    assert "No deletion vectors" in files.vectors_sentence(found)
    loaded = replace(found, vectors=VectorLoad(2, 30, 70, 1))
    text = files.vectors_sentence(loaded)
    assert text.startswith(
        "2 of 2 files have deletion vectors; 30 % of all rows are deleted. 1 file with more than 5 %"
    )
    unknown = files.vectors_sentence(replace(found, vectors=VectorLoad(1, 30, None, 0)))
    assert "30 rows deleted, of how many is unknown. No file is known" in unknown


def test_overlap_is_said_in_files_that_a_look_up_reads() -> None:
    point = DepthPoint(0.0, "7", 214)
    found = Overlap("id", 1204, 1203, 1, 214.2, 300, 12.0, 30, (point,))
    text = files.overlap_sentence(found, is_chosen_by_table=True)
    assert "reads 214 of 1,204 files on average, at most 300; well clustered would be 1–3" in text
    assert "With its partition named: 12.0" in text and "1 file without bounds" in text and "sorted by" in text
    nothing = Overlap("id", 4, 0, 4, None, None, None, 1, ())
    assert "reads all 4 files" in files.overlap_sentence(nothing, is_chosen_by_table=False)
    assert list(files.overlap_figure(found).data[0].y) == [214]


# properties ------------------------------------------------------------------------------------------------------


def test_set_properties_stand_first_in_their_subject() -> None:
    rows = explain_properties(Metadata("id", "{}", configuration={"delta.logRetentionDuration": "interval 3 days"}))
    group = next(g for g in properties.grouped(rows) if g.subject == "Retention")
    assert group.rows[0].key == "delta.logRetentionDuration" and group.num_set == 1
    shown = properties.properties_frame(group.rows)
    assert shown["Value"][0] == "interval 3 days" and shown["Default"][0] == "interval 30 days"


def test_every_property_has_one_subject_and_search_finds_words() -> None:
    rows = explain_properties(Metadata("id", "{}", configuration={"catalog.team_name": "Data"}))
    groups = properties.grouped(rows)
    assert sum(len(g.rows) for g in groups) == len(rows)
    assert [row.key for row in properties.matching(rows, "TEAM", set_only=True)] == ["catalog.team_name"]


# theme -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "family"),
    [
        ("STREAMING UPDATE", "write"),
        ("UPDATE", "update"),
        ("CREATE TABLE AS SELECT", "write"),
        ("CREATE TABLE", "schema"),
        ("SET TBLPROPERTIES", "schema"),
        ("VACUUM END", "vacuum"),
        ("UNKNOWN", "other"),
        (None, "other"),
    ],
)
def test_an_operation_keeps_its_glyph(operation: str | None, family: str) -> None:
    assert theme.operation_family(operation) == family
    assert theme.operation_style(operation).glyph == theme.operation_style(operation, "dark").glyph


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_words_and_marks_can_be_seen(mode: theme.Mode) -> None:
    surface = theme.SURFACES[mode]
    assert _contrast(surface.text, surface.background) >= 4.5
    assert _contrast(surface.muted, surface.background) >= 4.5
    for state in ("RUNNING", "IDLE", "BACKOFF", "FAILED", "STOPPED"):
        assert _contrast(theme.state_style(state, mode).colour, surface.background) >= 3
    for operation in ("WRITE", "MERGE", "UPDATE", "DELETE", "OPTIMIZE", "VACUUM END", "RESTORE", "SET X", None):
        assert _contrast(theme.operation_style(operation, mode).colour, surface.background) >= 3
