"""Every list of the product from its one declaration: page, terminal and JSON cannot disagree."""

import importlib
import pkgutil
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

import app
from app.access import text as access
from app.changes import text as changes_text
from app.changes import view as changes
from app.cli import bisect, diff, expectations, store, stream_acts
from app.cli import health as in_health
from app.cli import history as in_history
from app.cli import lake as in_lake
from app.cli import rows as in_rows
from app.cli import streams as in_streams
from app.cli import versions as in_versions
from app.cli.output import encoded, print_list
from app.columns import NUMBERS, Column, document, shown
from app.files import view as files
from app.health import text as health
from app.history import view as history
from app.overview import view as overview
from app.pipeline import view as pipeline
from app.properties import view as properties
from app.search import text as search
from app.streams.view import lists as streams
from app.summary import text as profiles
from app.summary.view import summary
from app.tables import view as tables
from app.timeline import text as timeline
from app.ui import lake, states
from app.ui.lists import in_words, list_frame
from app.ui.view import acts, commits
from app.ui.view.figures import TABLE_SERIES, Point
from app.versions import view as versions
from backend.access import Grant, Role
from backend.changes.model import CommonChange, NetCounts
from backend.expectations.model import ExpectationKind, Finding, Judgement, State, TableExpectation
from backend.health.health import JudgedTable
from backend.health.model import MaintenanceRun, Offender, Severity
from backend.jobs.model import Job, JobKind, JobState
from backend.lake.files.file_sizes import PartitionFiles
from backend.lake.files.footer import ColumnSize, FileFooter, LoggedFile, RowGroup
from backend.lake.files.stats import ColumnTotals, StatKind
from backend.lake.find import Match, Where
from backend.lake.model import Bucket, TableCard, UnreadableTable
from backend.lake.retention.runs import VersionRun
from backend.lake.table import schema
from backend.lake.table.metadata_diff import ChangeKind, TableChange
from backend.lake.table.properties import FeatureRow, PropertyRow
from backend.maintenance.clone_and_drop import DroppedTable
from backend.maintenance.model import Optimize, TableAct
from backend.maintenance.policies import PolicyPlan, PolicyRuns
from backend.search.condition import Examples, VersionVerdict
from backend.search.notice import Measure, Notice
from backend.search.search import Probe, Purpose
from backend.search.suggest import Held
from backend.settings import AuthSettings
from backend.sql.numbers import Bin, ColumnProfile, Profile, TopValue, VersionValue
from backend.stream_model.backlog import Backlog, SourceBacklog
from backend.stream_model.overrides import Setting
from backend.stream_model.progress import ExpectationTotal
from backend.stream_model.stream import (
    AuditEntry,
    Desired,
    DesiredState,
    HostHeartbeat,
    Observed,
    ObservedMetric,
    Progress,
    Run,
    StreamDeclaration,
    StreamFailure,
    StreamState,
)
from backend.streams.acts import LeftOut
from backend.streams.graph import Edge, Graph, Node
from backend.streams.latency import LayerLatency
from backend.streams.timeline import Event
from backend.streams.verdict import StreamStatus, Verdict
from backend.table_policies import OptimizeWhen, TablePolicy
from tests.backend.health.test_health import WELL
from tests.worlds.lake.diffs import answer_of, but
from tests.worlds.lake.made import NOW, REF, commit

AGO = NOW - timedelta(hours=2)
CARD = TableCard(REF, 3, 20, 1_000, 50, 20, AGO, "WRITE", owner="Growth", files_after_merge=1)
BROKEN = UnreadableTable(REF, "commit 3 is missing", "restore it", 7, None, None)
JUDGED = JudgedTable(CARD, replace(WELL, last_optimize=MaintenanceRun(3, AGO)), Severity.WARNING)
FAILURE = StreamFailure("ZeroDivisionError", "division by zero", 4, AGO)
BATCH = Progress("s", "q", "r", 3, AGO, 9, 5.0, 7.0, 2_350, output_rows=8)
SOURCE = SourceBacklog("in", "table", 1, 2, 3_000, 4, AGO)
DECLARED = StreamDeclaration("s", "", "files", "/lake/s", "s", (), "silver", 5_000, "/c")
RUNNING = StreamStatus(
    DECLARED, Desired("s", DesiredState.RUNNING, 1, "", "ann", NOW),
    Observed("s", StreamState.RUNNING, "h", 1, NOW, "q", "r", failures=(FAILURE,)), StreamState.RUNNING,
    (BATCH,), Verdict.OK, "s is well", HostHeartbeat("h", "box", 1, AGO, NOW), Backlog((SOURCE,), NOW),
)  # fmt: skip
UNKNOWN = StreamStatus(DECLARED, None, None, StreamState.UNKNOWN, (), Verdict.UNKNOWN, "nobody knows")
WROTE = commit(4, rows_inserted=120, rows_deleted=3, files_added=3, bytes_added=38_214_551)
SAYS_NOTHING = replace(commit(5), committed_at=None, engine=None, operation=None)
CHANGED = TableChange(ChangeKind.PROPERTY, "delta.appendOnly", None, "true")
ACT = TableAct("/lake/t", "t", 3, Optimize())
JOB = Job("j1", JobKind.OPTIMIZE, "t", "f", ACT.text(), "ann", "slow", 60, JobState.DONE, AGO, ended_at=NOW)
PLAN = PolicyPlan(TablePolicy(tables="*", optimize=OptimizeWhen()), None, PolicyRuns(), "no table is of its pattern")
DROPPED = DroppedTable("j1", "/lake", "/lake/t", "t", 3, None, 2, 900, "ann", "old", AGO.isoformat())
BOX = pipeline.Box(Node("silver", "streaming table", "silver", StreamState.RUNNING), "RUNNING", "▶ Running")
GRAPH = Graph((Node("in", "files"), BOX.node), (Edge("in", "silver", 1_204.0),))
COUNTED = ColumnTotals("id", "bigint", StatKind.INTEGER, False, 4, 1, 9, files_with_bounds=4, files_with_nulls=3)
ID = schema.SchemaColumn("id", ("id",), "long", "long", nullable=False, physical=("id",), comment="the key")
PROFILED = ColumnProfile(
    "id", "bigint", 9, 3, 1, 9, True, 1_204, (TopValue(1, 5),), (Bin(0, 1, 5), Bin(1, 2, 1)), lowest_sign="≥"
)
PROFILE = Profile(3, 9, True, (PROFILED, ColumnProfile("at", "timestamp")))
PROBE = Probe(VersionValue(3, VersionVerdict(False, violations=2)), Purpose.SEARCH, AGO, "WRITE", 0.85)
EXAMPLES = Examples(("id", "note"), ({"id": 1, "note": None}, {"id": 2**60, "note": "x"}))
TOOK = changes.CommitChanges(WROTE, 120, None, 3)
COMPARED = but(
    answer_of(net=NetCounts(1, 310, 2)), changed_cells={"amount": 31}, common=(CommonChange("amount", 1, 2, 9),)
)
LEAF = ColumnSize("id", "INT64", ("PLAIN",), "ZSTD", 500, 900, None, "1", None)
FOOTER = FileFooter("a", LoggedFile(9, 5, 0, None), 5, 1, 1, "x", "2", (RowGroup(0, 5, 9, 9),), (LEAF,))
FILE = {"size_bytes": 900, "num_records": 5, "deleted_rows": 1, "partition": "", "modified_at": AGO, "path": "a"}
BUCKET = Bucket(0, 1_000, 4, 900)
NOTICE = Notice("/lake/t", "t", 4, Measure.ROWS, "", "10", "900", "", "WRITE", AGO)
JUDGEMENT = Judgement(
    TableExpectation("/lake/t", "t", ExpectationKind.FRESH, within_s=60), Finding(State.MET), "h", AGO
)
DECLARATIONS: dict[str, tuple[Sequence[Column[Any]], Sequence[Any]]] = {
    "app.ui.lake.table_columns": (lake.table_columns(NOW, 0.5), [CARD, BROKEN]),
    "app.tables.view.catalog_columns": (tables.catalog_columns([CARD, BROKEN], NOW, 0.5), [CARD, BROKEN]),
    "app.overview.view.table_list_columns": (overview.table_list_columns(NOW, 0.5), [CARD, BROKEN]),
    "app.overview.view.stream_list_columns": (overview.stream_list_columns(NOW), [RUNNING, UNKNOWN]),
    "app.ui.states.stream_columns": (states.stream_columns(NOW), [RUNNING, UNKNOWN]),
    "app.streams.view.lists.build_stream_columns": (streams.build_stream_columns(NOW), [RUNNING, UNKNOWN]),
    "app.streams.view.lists.build_log_columns": (
        streams.build_log_columns(NOW), [AuditEntry(AGO, "ann", "stop", "s", "upgrade")],
    ),
    "app.streams.view.lists.build_source_columns": (
        streams.build_source_columns(NOW), [SOURCE, SourceBacklog("topic", "kafka", unknown="nobody asked")],
    ),
    "app.streams.view.lists.build_run_columns": (
        streams.build_run_columns(NOW), [Run("r", "q", AGO, NOW, 1, 9, 1_204)],
    ),
    "app.streams.view.lists.build_expectation_columns": (
        streams.build_expectation_columns(NOW),
        [ExpectationTotal("positive", 9, 1, AGO), ExpectationTotal("uncounted", None, None, None)],
    ),
    "app.streams.view.lists.METRIC_COLUMNS": (streams.METRIC_COLUMNS, [ObservedMetric("seen", "most", 0.5)]),
    "app.streams.view.lists.build_failure_columns": (streams.build_failure_columns(NOW), [FAILURE]),
    "app.streams.view.lists.build_batch_columns": (
        streams.build_batch_columns({("q", 3): 12}, [FAILURE], NOW), [FAILURE, BATCH],
    ),
    "app.ui.view.commits.commit_columns": (commits.commit_columns(NOW, {}, {4: [CHANGED]}), [WROTE, SAYS_NOTHING]),
    "app.ui.view.commits.TABLE_CHANGES": (commits.TABLE_CHANGES, [CHANGED]),
    "app.history.view.NAME_AND_VALUE": (history.NAME_AND_VALUE, [("mode", "Append"), ("by", ["day"])]),
    "app.ui.lake.health_columns": (lake.health_columns(NOW, {CARD.ref.uri: JUDGED}), [CARD, BROKEN]),
    "app.health.text.offender_columns": (health.offender_columns({"q": "s"}), [Offender("stream", "q", 9, 10, 90)]),
    "app.access.text.ROLES": (
        access.ROLES,
        access.role_rows(AuthSettings(grants=[Grant(role=Role.ADMIN, user="ann", on=("silver/*",))]), who="", on=""),
    ),
    "app.ui.view.acts.act_columns": (
        acts.act_columns(NOW), acts.listed_acts([JOB], [AuditEntry(AGO, "ann", "stop", "s", "upgrade")], ["/lake"])
    ),
    "app.ui.view.acts.policy_columns": (acts.policy_columns(NOW), [PLAN]),
    "app.ui.view.acts.dropped_columns": (acts.dropped_columns(NOW), [DROPPED]),
    "app.timeline.text.event_columns": (timeline.event_columns(NOW), [Event(AGO, "silver", "commit", "v3 WRITE")]),
    "app.properties.view.PROPERTIES": (
        properties.PROPERTIES,
        [PropertyRow("a", "1", None, "A tag.", is_set=True), PropertyRow("b", None, None, "", is_set=False)],
    ),
    "app.properties.view.FEATURES": (properties.FEATURES, [FeatureRow("rowTracking", False, True, "Row ids.")]),
    "app.pipeline.view.box_columns": (pipeline.box_columns(GRAPH), [pipeline.Box(GRAPH.nodes[0]), BOX]),
    "app.files.view.partition_columns": (
        files.partition_columns(with_vectors=True), [PartitionFiles("day=1", 4, 900, 3, None)],
    ),
    "app.files.view.FILES": (files.FILES, [FILE, FILE | {"num_records": None, "deleted_rows": 0}]),
    "app.files.view.footer_columns": (files.footer_columns(FOOTER), FOOTER.columns),
    "app.files.view.GROUPS": (files.GROUPS, FOOTER.groups),
    "app.summary.view.summary.schema_columns": (summary.schema_columns({"id": COUNTED}), [ID]),
    "app.summary.view.summary.CONSTRAINTS": (summary.CONSTRAINTS, [schema.Constraint("positive", "amount > 0")]),
    "app.summary.text.profile_columns": (profiles.profile_columns(PROFILE, {"id": "new"}), PROFILE.columns),
    "app.search.text.probe_columns": (search.probe_columns(NOW), [PROBE]),
    "app.search.text.example_columns": (search.example_columns(EXAMPLES), EXAMPLES.rows),
    "app.search.text.held_columns": (search.held_columns([Held(0, 4, {}), Held(9, 4, {"id": COUNTED})]), ["id"]),
    "app.changes.text.commit_columns": (changes_text.commit_columns(NOW, {}), [TOOK]),
    "app.changes.text.METADATA_CHANGES": (changes_text.METADATA_CHANGES, [("type changed", "country", "int", None)]),
    "app.changes.view.cell_columns": (changes.cell_columns(COMPARED), [("amount", 31)]),
    "app.changes.view.REWRITES": (changes.REWRITES, [TOOK]),
    "app.cli.lake.MATCHES": (in_lake.MATCHES, [("orders", Match(Where.OWNER, "", "Growth"))]),
    "app.cli.lake.bucket_columns": (in_lake.bucket_columns([BUCKET]), [BUCKET]),
    "app.cli.health.NOTICES": (in_health.NOTICES, [NOTICE, replace(NOTICE, committed_at=None, mended_at=6)]),
    "app.cli.versions.RUNS": (in_versions.RUNS, [VersionRun(0, 12, True, True, None, False, None)]),
    "app.cli.streams.edge_columns": (in_streams.edge_columns(GRAPH), [*GRAPH.edges, Edge("silver", "in")]),
    "app.cli.streams.LATENCIES": (
        in_streams.LATENCIES,
        [("shop", LayerLatency("gold", "s", AGO, (), (), NOW)), ("shop", LayerLatency("", None, None, (), (), NOW))],
    ),
    "app.cli.store.job_columns": (store.job_columns([], NOW), [JOB, replace(JOB, state=JobState.RUNNING)]),
    "app.cli.expectations.judgement_columns": (expectations.judgement_columns({}, [], NOW), [JUDGEMENT]),
    "app.cli.stream_acts.SETTINGS": (stream_acts.SETTINGS, [Setting("trigger", "5 s", None, "9 s")]),
    "app.cli.stream_acts.LEFT_OUT": (stream_acts.LEFT_OUT, [LeftOut("s", "it runs")]),
    "app.cli.bisect.CANDIDATES": (bisect.CANDIDATES, [WROTE]),
    "app.versions.view.value_columns": (
        versions.value_columns(TABLE_SERIES["num_rows"]),
        [Point(3, AGO, "WRITE", 2**63 + 1), Point(4, None, None, None, "vacuumed")],
    ),
}  # fmt: skip


# The document of a row where it is not the one of its fields.
DOCUMENTS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(
        ("app.ui.lake.table_columns", "app.tables.view.catalog_columns", "app.overview.view.table_list_columns"),
        lambda table: encoded(table, in_lake.SHAPES),
    ),
    **dict.fromkeys(
        (
            "app.ui.states.stream_columns", "app.overview.view.stream_list_columns",
            "app.streams.view.lists.build_stream_columns",
        ),
        lambda status: encoded(in_streams.line(status), in_streams.SHAPES),
    ),
    **dict.fromkeys(
        ("app.ui.view.commits.commit_columns", "app.cli.bisect.CANDIDATES"), in_history.commit_document
    ),
    "app.changes.text.commit_columns": lambda changed: encoded(changed, diff.SHAPES),
    "app.ui.view.acts.policy_columns": lambda plan: encoded(in_health.PLAN(plan)),
    "app.cli.expectations.judgement_columns": lambda judgement: encoded(
        expectations.judgement_document(judgement, {}, is_stale=False)
    ),
    "app.summary.text.profile_columns": lambda column: encoded(column, in_rows.SHAPES),
    "app.search.text.probe_columns": lambda probe: encoded(bisect.PROBE(probe)),
    "app.cli.streams.LATENCIES": lambda latency: encoded(document(in_streams.LATENCIES, latency)),
}  # fmt: skip


def declared(module: ModuleType) -> Iterator[str]:
    """The lists that a module declares: columns, or a function that returns some."""
    known = {id(columns) for columns, _ in DECLARATIONS.values()}
    for name, value in vars(module).items():
        if isinstance(value, tuple) and value and all(isinstance(each, Column) for each in value):
            if id(value) not in known:
                yield f"{module.__name__}.{name}"
        elif callable(value) and getattr(value, "__module__", "") == module.__name__ and not isinstance(value, type):
            returned = typing.get_args(getattr(value, "__annotations__", {}).get("return"))
            if not name.startswith("_") and returned and typing.get_origin(returned[0]) is Column:
                yield f"{module.__name__}.{name}"


def test_every_list_that_is_declared_has_its_sample() -> None:
    names = [found.name for found in pkgutil.walk_packages(app.__path__, "app.")]
    modules = [
        importlib.import_module(name) for name in names if not name.endswith(("__main__", "app.main", "columns"))
    ]
    found = {name for module in modules for name in declared(module)}
    assert found <= set(DECLARATIONS) and len(found) > 20


@pytest.mark.parametrize("name", DECLARATIONS)
def test_page_and_terminal_say_the_same(name: str) -> None:
    columns, rows = DECLARATIONS[name]
    here = shown(columns, rows, "page")
    frame = list_frame(here, rows)
    styled = in_words(frame, here)
    page = frame if styled is frame else pd.DataFrame(styled_cells(styled, len(here)), columns=frame.columns)
    both = [column for column in shown(columns, rows, "terminal") if column in here]
    assert both
    for column in both:
        if column.format not in ("bars", "line"):  # drawn by the browser
            cells = page[column.name].map(lambda cell: "–" if pd.isna(cell) else str(cell))
            assert cells.tolist() == [column.text(row) for row in rows], column.name
    for column in here:
        if column.format in NUMBERS:
            assert pd.api.types.is_numeric_dtype(frame[column.name]), f"{column.name} sorts by its number"


@pytest.mark.parametrize("name", DECLARATIONS)
def test_json_has_the_value_that_the_list_shows(name: str) -> None:
    columns, rows = DECLARATIONS[name]
    keyed = [column for column in columns if column.key]
    documents = [DOCUMENTS.get(name, encoded)(row) for row in rows if keyed]
    for column in keyed:
        assert any(column.key in made for made in documents), f"{column.key} is in no document"
        assert [made.get(column.key) for made in documents] == [encoded(column.value(row)) for row in rows], column.key


def test_a_terminal_prints_the_cells(capsys: pytest.CaptureFixture[str]) -> None:
    for columns, rows in DECLARATIONS.values():
        print_list(columns, rows)
        heads, *lines = capsys.readouterr().out.splitlines()
        listed = shown(columns, rows, "terminal")
        assert heads.split() == " ".join(column.name.lower() for column in listed).split()
        for line, row in zip(lines, rows, strict=True):
            assert line.split() == " ".join(column.text(row) for column in listed).split()


def styled_cells(styled: Any, width: int) -> list[list[str]]:
    """What a browser is given to show."""
    lines = styled.hide(axis="index").hide(axis="columns").to_string(delimiter="\x1f").splitlines()
    return [line.split("\x1f")[:width] for line in lines]
