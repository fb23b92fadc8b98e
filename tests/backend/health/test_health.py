"""Health of tables by rules on values and one real table, judged in the background; and what needs attention."""

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backend.errors import StorageError
from backend.expectations.model import ExpectationKind, Finding, Judgement, State, TableExpectation
from backend.health.attention import (
    MOST_FINDINGS,
    CalmList,
    attention,
    finding_text,
    grouped,
    severity_of_notice,
)
from backend.health.health import SMALL_LAKE, health_judge, table_health
from backend.health.model import (
    AttentionItem,
    Cause,
    HealthEvidence,
    LogHealth,
    MaintenanceRun,
    Offender,
    Recommendation,
    Severity,
)
from backend.health.rules import (
    gain_in,
    last_run,
    merge_gain,
    partition_offenders,
    recommend,
    small_file_rule,
    trend,
    writer_offenders,
)
from backend.lake.files.file_sizes import PartitionFiles, TargetSize, distribute
from backend.lake.lake import Lake
from backend.lake.model import (
    Commit,
    OperationMetrics,
    StreamOrigin,
    TableCard,
    TableRef,
    Timeline,
    UnreadableTable,
    VersionTotals,
)
from backend.maintenance.files import merge_of
from backend.maintenance.model import Optimize
from backend.search.notice import FIRSTS, Measure, Notice, notice_text
from backend.settings import HealthSettings, load_settings
from backend.stream_model.backlog import Backlog, DataLoss, SourceBacklog
from backend.stream_model.stream import (
    Desired,
    DesiredState,
    HostHeartbeat,
    InputKind,
    Observed,
    StreamFailure,
    StreamInput,
    StreamState,
)
from backend.streams.verdict import StreamStatus, Verdict
from tests.worlds.lake.builders import HandLog, add, commit_info
from tests.worlds.processes import wait_until
from tests.worlds.store.values import JUMP as A_JUMP
from tests.worlds.streams.values import stream as declaration

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
MB = 1_000_000
RULE = small_file_rule(TargetSize(128 * MB, "delta.targetFileSize"), HealthSettings())
LOG = LogHealth(0, 5, NOW - DAY, 4, NOW, 10)
WELL = HealthEvidence(
    now=NOW,
    num_files=100,
    size_bytes=100 * 128 * MB,
    small_files=0,
    small_bytes=0,
    files_after_merge=100,
    rule=RULE,
    partition_columns=(),
    num_partitions=1,
    deleted_rows=0,
    physical_rows=1_000,
    files_without_stats=0,
    offenders=(),
    last_optimize=None,
    last_vacuum=None,
    files_removed=0,
    oldest_removal_at=None,
    retention_s=7 * 86_400,
    log=LOG,
)


def only(evidence: HealthEvidence) -> Recommendation:
    (found,) = recommend(evidence)
    return found


def test_a_table_in_order_says_so_and_asks_for_nothing() -> None:
    found = only(WELL)
    assert (found.severity, found.next_step) == (Severity.FINE, "Nothing to do.")
    assert "no data files" in only(replace(WELL, num_files=0)).finding
    assert (
        only(replace(WELL, num_files=3, small_files=0, size_bytes=6_090)).finding
        == "3 files, 6.09 kB: nothing to merge."
    )


def test_small_files_name_the_gain_the_cause_and_the_last_optimize() -> None:
    stream = Offender("stream", "bronze_events", 900, 900, 900 * MB, commits=451, span_s=450 * 5)
    evidence = replace(
        WELL,
        num_files=1_000,
        size_bytes=2_000 * MB,
        small_files=920,
        small_bytes=920 * MB,
        files_after_merge=20,
        offenders=(stream, Offender("engine", "Trino", 100, 100, 1, 1), Offender("partition", "day=1", 99, 99, 1)),
        last_optimize=MaintenanceRun(3, NOW - 5 * DAY),
    )
    found = only(evidence)
    assert found.severity is Severity.WARNING
    assert "920 of 1,000 files are under 64 MB" in found.finding
    assert "v3, 5 d ago" in found.finding
    assert "about 20 files of 1,000, rewriting 920 MB" in found.next_step
    assert "90 % of those that the log tells of come from the stream bronze_events, of 1 MB" in found.next_step
    assert "2 a commit every 5 s (34,483 a day at this pace)" in found.next_step
    assert "trigger" in found.next_step
    burst = replace(stream, span_s=7.0)
    assert "of 1 MB on average, 2 a commit: a" in only(replace(evidence, offenders=(burst,))).next_step


def test_small_files_are_urgent_by_what_merging_gains() -> None:
    for files, small, size_bytes, after, severity in (
        (100, 49, 10_000 * MB, 52, Severity.FINE),  # few of them are small
        (100, 50, 10_000 * MB, 51, Severity.NOTE),
        (30, 30, 276_000, 1, Severity.NOTE),  # all of them, and nobody loses by it
        (501, 501, MB, 1, Severity.WARNING),
        (500, 500, MB, 1, Severity.NOTE),
        (10_000, 10_000, 600_000 * MB, 2_344, Severity.NOTE),  # opening is 5 % of what reading them costs
    ):
        table = replace(WELL, num_files=files, small_files=small, size_bytes=size_bytes, files_after_merge=after)
        assert only(table).severity is severity


def test_other_findings() -> None:
    for changes, subject, words in (
        ({"partition_columns": ("day",), "num_partitions": 100}, "partitioning", "100 partitions by day hold 128 MB"),
        ({"large_files": 3}, "large files", "3 files of 100 are over 5 times the target size"),
        ({"deleted_rows": 60}, "deletion vectors", "60 rows (6 %)"),
        ({"files_without_stats": 1, "physical_rows": None}, "statistics", "1 file of 100"),
        ({"log": replace(LOG, latest_version=30)}, "log", "26 commits"),
        ({"log": replace(LOG, latest_version=30, checkpoint_version=None)}, "log", "31 commits"),
        ({"files_removed": 7, "oldest_removal_at": NOW - 8 * DAY}, "vacuum", "7 files"),
    ):
        found = only(replace(WELL, **changes))
        assert (found.subject, words in found.finding) == (subject, True), found
        assert found.next_step != "Nothing to do."


def test_just_inside_the_limits_is_fine() -> None:
    removed = {"files_removed": 7, "oldest_removal_at": NOW - 8 * DAY}
    for changes in (
        {"partition_columns": ("day",), "num_partitions": 2, "size_bytes": 3_000 * MB},
        {"deleted_rows": 40},
        {"log": replace(LOG, latest_version=24)},
        {**removed, "oldest_removal_at": NOW - 6 * DAY},
        {**removed, "last_vacuum": MaintenanceRun(3, NOW - 6 * DAY)},
    ):
        assert only(replace(WELL, **changes)).severity is Severity.FINE


# -- rules ------------------------------------------------------------------------------------------------------------


def commit(version: int, operation: str = "WRITE", *, stream: str | None = None, **added: int | None) -> Commit:
    """A commit that added a file of 1 MB, or what is said."""
    given = {"files": 1, "size_bytes": MB} | added
    metrics = OperationMetrics(files_added=given["files"], bytes_added=given["size_bytes"])
    origin = StreamOrigin(stream, None, None, None) if stream else None
    return Commit(version, NOW + version * DAY, operation, {}, metrics, {}, None, "Spark", None, origin)


def totals(version: int, files: int = 1, size_bytes: int = MB, small: int = 0) -> VersionTotals:
    return VersionTotals(version, NOW + version * DAY, "WRITE", files, size_bytes, None, small)


EMPTY = Timeline((), 0)


def test_small_files_are_laid_at_the_door_of_the_stream_or_else_the_engine() -> None:
    commits = [
        commit(5, stream="slow", files=1, size_bytes=500 * MB),
        commit(4, stream="fast", files=10),
        commit(3, files=3),
        commit(2, "OPTIMIZE", files=50),
        commit(1, stream="fast", files=5),
    ]
    found = writer_offenders(commits, EMPTY, {}, small_limit_bytes=64 * MB)
    assert [(o.kind, o.name, o.small_files, o.files) for o in found] == [
        ("stream", "fast", 15, 15),
        ("engine", "Spark", 3, 3),
    ]


def test_a_query_id_gets_the_name_of_its_stream_where_it_is_known() -> None:
    written = [replace(commit(1), origin=StreamOrigin(None, "q-1", None, 4))]
    (named,) = writer_offenders(written, EMPTY, {"q-1": "bronze_events"}, small_limit_bytes=64 * MB)
    (bare,) = writer_offenders(written, EMPTY, {}, small_limit_bytes=64 * MB)
    assert (named.name, bare.name) == ("bronze_events", "q-1")


def test_a_writer_that_does_not_say_bytes_is_judged_by_what_the_table_grew() -> None:
    timeline = Timeline((totals(0, 1, MB), totals(1, 3, 3 * MB)), 0)
    (found,) = writer_offenders([commit(1, files=2, size_bytes=None)], timeline, {}, small_limit_bytes=64 * MB)
    assert (found.small_files, found.bytes) == (2, 2 * MB)
    assert writer_offenders([commit(9, files=2, size_bytes=None)], timeline, {}, small_limit_bytes=64 * MB) == ()


def test_the_worst_partitions_the_last_run_and_a_thinned_trend_are_told() -> None:
    parts = [PartitionFiles(f"day={i}", 20, MB, i, None) for i in range(10)]
    assert [o.name for o in partition_offenders(parts)] == ["day=9", "day=8", "day=7", "day=6", "day=5"]
    assert partition_offenders([PartitionFiles("", 20, MB, 20, None)]) == ()
    commits = [commit(4), commit(3, "VACUUM END"), commit(2, "VACUUM START"), commit(1, "OPTIMIZE")]
    for broken_off in ([], [commit(5, "VACUUM START")]):
        assert last_run([*broken_off, *commits], "VACUUM") == MaintenanceRun(3, NOW + 3 * DAY), "it ran to its end"
    assert last_run(commits, "OPTIMIZE") == MaintenanceRun(1, NOW + DAY)
    assert last_run(commits, "RESTORE") is None
    points = trend(Timeline(tuple(totals(v, 10, MB, 5) for v in range(1_000)), 0), points=100)
    assert (len(points), points[-1].version, points[0].small_share) == (100, 999, 0.5)
    assert [p.version for p in trend(Timeline((totals(3),), 3))] == [3]


# -- a real table -----------------------------------------------------------------------------------------------------


def test_a_table_with_many_small_files_before_and_after_compaction(tmp_path: Path) -> None:
    path = tmp_path / "lake" / "events"
    path.parent.mkdir()
    for number in range(30):
        write_deltalake(path, pa.table({"id": [number]}), mode="append")
    settings = load_settings(home=tmp_path, lake={"refresh_s": 0.001})
    lake = Lake(settings)
    (ref,) = lake.tables()

    before = table_health(lake, ref, now=datetime.now(UTC), settings=settings.health)
    (merge,) = (found for found in before.recommendations if found.subject == "small files")
    assert (before.evidence.num_files, before.evidence.small_files, merge.severity) == (30, 30, Severity.NOTE)
    assert (before.evidence.small_files, before.trend[-1].small_files) == (lake.card(ref).small_files, 30)
    assert merge.next_step.startswith("OPTIMIZE would leave about 1 file of 30, rewriting ")
    assert lake.card(ref).files_after_merge == 1
    sizes = pa.table(DeltaTable(path).get_add_actions(flatten=True))["size_bytes"]
    assert before.trend[-1].size_bytes == before.evidence.size_bytes == sum(sizes.to_pylist())
    (offender,) = before.evidence.offenders
    assert (offender.kind, offender.small_files) == ("engine", 30)
    assert before.evidence.last_optimize is None

    DeltaTable(path).optimize.compact()
    DeltaTable(path).create_checkpoint()
    after = table_health(lake, ref, now=datetime.now(UTC), settings=settings.health)
    assert (after.evidence.num_files, after.evidence.small_files, after.severity) == (1, 1, Severity.FINE)
    assert after.evidence.last_optimize.version == 30
    assert (after.evidence.log.checkpoint_version, after.evidence.log.commits_since_checkpoint) == (30, 0)

    later = table_health(lake, ref, now=datetime.now(UTC) + 30 * DAY, settings=settings.health)
    assert [r.subject for r in later.recommendations] == ["vacuum"]
    assert "30 files" in later.recommendations[0].finding


@pytest.mark.parametrize(
    ("each", "partitions", "large", "after", "small_partitions", "merging", "layout"),
    [
        (15, 100, 0, 100, 100, Severity.WARNING, Severity.NOTE),
        (1, 501, 0, 501, 501, Severity.FINE, Severity.WARNING),
        (1, 15, 1, 16, 0, Severity.FINE, Severity.NOTE),
        (2, 7, 0, 14, 0, Severity.FINE, Severity.FINE),
        (2, 8, 0, 8, 0, Severity.NOTE, Severity.FINE),
        (16, 1, 0, 1, 0, Severity.NOTE, Severity.FINE),
    ],
)
def test_every_small_file_counts_and_what_helps_is_judged_alike_by_card_files_and_health(
    tmp_path: Path, each: int, partitions: int, large: int, after: int, small_partitions: int, merging: Severity,
    layout: Severity,
) -> None:  # fmt: skip
    days = [str(day) for day in range(partitions) for _ in range(each)]
    adds = [add(f"f{number}", size=484, partitionValues={"id": day}) for number, day in enumerate(days)]
    adds += [add("large", size=1_280_000_000 + large, partitionValues={"id": "x"})] if large else []
    HandLog(tmp_path / "lake" / "t").start(partition_by=("id",)).commit(*adds, commit_info())
    settings = load_settings(home=tmp_path, lake={"roots": [str(tmp_path / "lake")]})
    lake = Lake(settings)
    ref, now = lake.find("t"), datetime.now(UTC)
    card, snapshot, target = lake.card(ref), lake.snapshot(ref), lake.target_bytes(lake.snapshot(ref))
    files = distribute(snapshot, target, ratio=0.5, min_files=16)
    health = table_health(lake, ref, now=now, settings=settings.health)
    for gain in (merge_gain(card), gain_in(files), gain_in(health.evidence)):
        assert (gain.small_files, gain.files_after, gain.small_partitions) == (len(days), after, small_partitions)
        assert (gain.large_files, gain.merge_severity, gain.layout_severity) == (large, merging, layout)
    merge = merge_of(snapshot, Optimize(small_bytes=128 * MB, target_bytes=256 * MB))
    assert merging is Severity.FINE or len(days) - merge.files_in + (merge.files_out or 0) == after
    causes = {item.cause: item.severity for item in attention([card], [], [], now=now, settings=SETTINGS)}
    wanted = {Cause.SMALL_FILES: merging, Cause.LAYOUT: layout}
    causes.pop(Cause.QUIET_TABLE, None)
    assert causes == {cause: severity for cause, severity in wanted.items() if severity is not Severity.FINE}
    assert {merging, layout} & {Severity.WARNING} == {health.severity} & {Severity.WARNING}


class Reader:
    """Evidence for one table each time the test says so."""

    def __init__(self, *, held: bool = False) -> None:
        self.read: list[str] = []
        self.go_on = threading.Semaphore(0)
        self.held, self.broken = held, set[str]()

    def __call__(self, ref: TableRef) -> HealthEvidence:
        if self.held:
            assert self.go_on.acquire(timeout=60)
        self.read.append(ref.name)
        if ref.name in self.broken:
            raise StorageError("the disk does not answer")
        return WELL


def cards(number: int, spared: int = 0) -> list[TableCard]:
    refs = [TableRef(f"/lake/t{n:03d}", f"t{n:03d}", "/lake") for n in range(number)]
    return [TableCard(ref, 1, 100 + n, 1, 1, n, None, None, files_after_merge=100) for n, ref in enumerate(refs)]


def test_a_small_lake_is_judged_at_once_and_only_changed_tables_again() -> None:
    reader, lake = Reader(), cards(3)
    judge = health_judge(reader)
    assert {found.severity for found in judge.judged(lake).values()} == {Severity.FINE}
    lake[1] = cards(3)[1]
    assert len(judge.judged(lake)) == 3
    assert sorted(reader.read) == ["t000", "t001", "t001", "t002"]
    assert len(judge.judged(lake[:1])) == 1, "a table that is gone is forgotten"


def test_a_big_lake_is_shown_before_it_is_judged_the_most_to_merge_first() -> None:
    reader, lake = Reader(held=True), cards(SMALL_LAKE + 20)
    judge = health_judge(reader)
    assert judge.judged(lake) == {}
    reader.go_on.release(3)
    wait_until(lambda: len(judge.judged(lake)) == 3, "three are judged")
    assert set(reader.read) == {"t117", "t118", "t119"}
    reader.go_on.release(len(lake))
    wait_until(lambda: len(judge.judged(lake)) == len(lake), "all are judged")
    assert len(reader.read) == len(lake)


def test_a_table_that_cannot_be_judged_says_why_and_hides_no_other() -> None:
    reader = Reader()
    reader.broken = {"t001"}
    found = health_judge(reader).judged(cards(3))
    assert found["/lake/t001"].problem == "the disk does not answer"
    assert [each.evidence is None for _, each in sorted(found.items())] == [False, True, False]


HOUR = timedelta(hours=1)
SETTINGS = load_settings(health={"stale_after_s": 86_400}, host={"heartbeat_stale_s": 15})
REF = TableRef("/lake/silver/orders", "silver/orders", "/lake", "silver")
FRESH = TableCard(REF, 5, 100, 1_000, 10, 0, NOW - HOUR, "WRITE")
ALIVE = HostHeartbeat("host-1", "box", 1, NOW - HOUR, NOW)
ERROR = StreamFailure("ValueError", "poisoned", 7, NOW - HOUR)


def stream(
    state: StreamState, verdict: Verdict = Verdict.OK, *, desired: DesiredState = DesiredState.RUNNING
) -> StreamStatus:
    declared = declaration("silver_orders", sink_uri="file:///lake/silver/orders/", sink_table="silver/orders")
    wish = Desired("silver_orders", desired, 1, "", "", NOW)
    failures = (ERROR,) if state in (StreamState.FAILED, StreamState.BACKOFF) else ()
    seen = Observed("silver_orders", state, "host-1", 1, NOW, failures=failures)
    return StreamStatus(declared, wish, seen, state, (), verdict, "because")


RUNNING = stream(StreamState.RUNNING)


def of(
    *tables: TableCard | UnreadableTable,
    streams: tuple[StreamStatus, ...] = (RUNNING,),
    hosts: tuple[HostHeartbeat, ...] = (ALIVE,),
) -> list[AttentionItem]:
    found = attention(tables, streams, hosts, now=NOW, settings=SETTINGS)
    assert all(item.what and item.next_step for item in found), "every item says what and what next"
    return list(found)


def test_all_well_needs_nobody_and_a_lake_without_streams_misses_no_host() -> None:
    assert of(FRESH) == []
    assert of(FRESH, streams=(), hosts=()) == []


def test_streams_in_trouble() -> None:
    for status, severity, words in (
        (stream(StreamState.FAILED), Severity.CRITICAL, "ValueError: poisoned"),
        (stream(StreamState.BACKOFF), Severity.WARNING, "ValueError"),
        (stream(StreamState.RUNNING, Verdict.STALLED), Severity.WARNING, "because"),
        (stream(StreamState.RUNNING, Verdict.SLOW), Severity.WARNING, "because"),
    ):
        (item,) = of(streams=(status,))
        assert (item.kind, item.subject, item.severity) == ("stream", "silver_orders", severity)
        assert words in item.what


def test_a_stream_that_a_person_stopped_is_a_note_with_who_and_why() -> None:
    stopped = stream(StreamState.STOPPED, Verdict.STOPPED, desired=DesiredState.STOPPED)
    by = replace(stopped, desired=replace(stopped.desired, actor="ana", reason="schema change"))
    (item,) = of(streams=(by,))
    assert (item.severity, item.since) == (Severity.NOTE, NOW)
    assert item.what == "silver_orders was stopped by ana: schema change"


def test_a_dead_host_is_critical_only_while_its_streams_should_run() -> None:
    dead = replace(ALIVE, beat_at=NOW - HOUR)
    (item,) = of(hosts=(dead,))
    assert (item.kind, item.severity, item.since) == ("host", Severity.CRITICAL, NOW - HOUR)
    stopped = stream(StreamState.STOPPED, desired=DesiredState.STOPPED)
    host, note = of(streams=(stopped,), hosts=(dead,))
    assert (host.severity, note.cause) == (Severity.NOTE, Cause.STOPPED_STREAM)
    assert of(hosts=(dead, replace(ALIVE, host_id="host-2"))) == [], "another host took over"


def test_a_stream_that_nobody_took_over_is_named_while_another_host_lives() -> None:
    (item,) = of(streams=(stream(StreamState.UNKNOWN, Verdict.UNKNOWN),))
    assert (item.kind, item.subject, item.severity) == ("stream", "silver_orders", Severity.WARNING)
    unwanted = stream(StreamState.UNKNOWN, Verdict.UNKNOWN, desired=DesiredState.STOPPED)
    assert of(streams=(unwanted,)) == []
    (only,) = of(streams=(stream(StreamState.UNKNOWN, Verdict.UNKNOWN),), hosts=(replace(ALIVE, beat_at=NOW - HOUR),))
    assert only.kind == "host", "one line for the dead host, not one for each of its streams"


def test_an_unreadable_table_says_why_and_what_next() -> None:
    (item,) = of(UnreadableTable(REF, "commit 3 is missing", "restore it"))
    assert (item.severity, item.next_step) == (Severity.CRITICAL, "restore it")
    assert "commit 3 is missing" in item.what
    (item,) = of(UnreadableTable(REF, "odd", ""))
    assert "_delta_log" in item.next_step


def test_a_stale_table_matters_when_a_stream_should_write_it() -> None:
    old = replace(FRESH, last_commit_at=NOW - timedelta(days=3))
    (fed,) = of(old)
    assert (fed.severity, "silver_orders" in fed.what, "for 3 d " in fed.what) == (Severity.WARNING, True, True)
    (quiet,) = of(old, streams=())
    assert quiet.severity is Severity.NOTE
    assert of(replace(FRESH, last_commit_at=None)) == [], "unknown is not stale"


def table(name: str) -> TableRef:
    return replace(REF, name=name, uri=f"/lake/{name}")


def small(name: str, files: int, size_bytes: int, after: int) -> TableCard:
    counts = {"num_files": files, "small_files": files, "size_bytes": size_bytes, "files_after_merge": after}
    return replace(FRESH, ref=table(name), **counts)  # type: ignore[arg-type]


def test_the_most_urgent_comes_first() -> None:
    quiet = replace(FRESH, ref=table("c"), last_commit_at=NOW - timedelta(days=9))
    failed = stream(StreamState.FAILED)
    found = of(small("slow", 5_000, 5_000_000_000, 20), unreadable("b", "x"), quiet, streams=(failed,))
    assert [item.severity for item in found] == [Severity.CRITICAL, Severity.CRITICAL, Severity.WARNING, Severity.NOTE]


def unreadable(name: str, reason: str) -> UnreadableTable:
    return UnreadableTable(table(name), reason, "")


def test_what_has_one_cause_is_one_line_with_what_it_has_in_common() -> None:
    feature = "the table needs the reader feature catalogOwned, which Weir does not know"
    gap = "version {0} cannot be read: commit {0} is missing from the log"
    tables = [
        *(unreadable(f"f{n:02d}", feature) for n in range(40)),
        *(unreadable(f"g{n}", gap.format(n)) for n in range(3)),
        *(unreadable(f"h{n}", f"the log of /lake/h{n} names '/etc/{n}', outside the table") for n in range(2)),
        unreadable("odd", "no permission to read /lake/odd/_delta_log"),
        *(small(f"s{n}", 20, 1_000, 1) for n in range(5)),
    ]
    groups = grouped(of(*tables))
    assert [(group.severity, group.cause, len(group.items)) for group in groups] == [
        (Severity.CRITICAL, Cause.UNREADABLE, 46),
        (Severity.NOTE, Cause.SMALL_FILES, 5),
    ]
    assert groups[0].what == (
        "46 tables cannot be read: reader feature catalogOwned (40), version … cannot be read: commit … is missing "
        "from the log (3), the log of … names …, outside the table (2) and 1 other reason."
    )
    assert groups[1].what == "5 tables hold mostly small files: merging would spare 95 files."


@pytest.mark.parametrize("cause", list(Cause))
def test_every_cause_has_words_for_one_and_for_many(cause: Cause) -> None:
    def item(name: str) -> AttentionItem:
        return AttentionItem(Severity.WARNING, cause, name, "what", "step", detail="why", spared=3)

    (one,), (many,) = grouped([item("a")]), grouped([item(f"t{n}") for n in range(6)])
    assert (one.what, one.next_step, one.only is not None, many.only) == ("what", "step", True, None)
    assert many.what.startswith(f"6 {cause.kind}s ") and many.what.endswith(".") and many.next_step.endswith(".")
    names = "t0, t1, t2, t3 and 2 more" in many.what
    assert names is (cause not in (Cause.UNREADABLE, Cause.SMALL_FILES))


def behind(age: timedelta, *, until: timedelta, lost: int = 0) -> StreamStatus:
    loss = DataLoss(NOW + until, "the log entry of v12", "delta.logRetentionDuration")
    source = SourceBacklog(
        "bronze", "table", versions=3, files=3, rows=30, oldest_unread_at=NOW - age, lost=lost, data_loss=loss
    )
    return replace(RUNNING, backlog=Backlog((source,), NOW))


def test_unread_input_that_retention_deletes_soon_is_told_with_the_setting() -> None:
    (item,) = of(streams=(behind(28 * 24 * HOUR, until=48 * HOUR),))
    assert (item.cause, item.severity) == (Cause.EXPIRING_STREAM, Severity.WARNING)
    assert item.what == (
        "silver_orders: unread input may be deleted from 2026-03-03 12:00:00 UTC on (in 2 d): "
        "the log entry of v12; delta.logRetentionDuration moves that."
    )
    assert "raise delta.logRetentionDuration" in item.next_step
    assert of(streams=(behind(timedelta(seconds=5), until=HOUR),)) == [], "it keeps up"
    assert of(streams=(behind(5 * 24 * HOUR, until=25 * 24 * HOUR),)) == []
    (gone,) = of(streams=(behind(timedelta(seconds=5), until=HOUR, lost=2),))
    assert (gone.cause, gone.severity) == (Cause.EXPIRING_STREAM, Severity.CRITICAL)
    assert "2 versions were deleted before it read them" in gone.what


def test_a_cause_is_told_once_and_its_victims_are_named() -> None:
    stopped = stream(StreamState.STOPPED, Verdict.STOPPED, desired=DesiredState.STOPPED)
    gold = declaration("gold_orders", sink_uri="/lake/gold/orders", sink_table="gold/orders")
    starved = replace(RUNNING, declaration=gold, starved_by="silver_orders", verdict=Verdict.IDLE)
    stale = replace(FRESH, ref=table("gold/orders"), last_commit_at=NOW - 99 * HOUR)
    (item,) = of(stale, streams=(stopped, starved))
    assert item.cause is Cause.STOPPED_STREAM
    assert item.what.endswith("It starves gold_orders.")


# expectations on tables --------------------------------------------------------------------------------------------

KEY = TableExpectation("/lake/silver/orders", "silver_orders", ExpectationKind.UNIQUE, columns=("id",))
DAILY = replace(KEY, kind=ExpectationKind.ROWS_PER_DAY, columns=())
TIMED = replace(KEY, kind=ExpectationKind.FRESH, columns=(), within_s=900)
BROKEN = Finding(State.BROKEN, broken_keys=1, broken_rows=2, examples=("7",))


def judged(*findings: tuple[TableExpectation, Finding], host: str = "host-1") -> list[AttentionItem]:
    said = [Judgement(expected, finding, host, NOW, NOW - HOUR) for expected, finding in findings]
    return list(attention([FRESH], (RUNNING,), (ALIVE,), judgements=said, now=NOW, settings=SETTINGS))


def test_a_host_that_is_away_leaves_what_it_found_and_says_so() -> None:
    broken, met = judged((KEY, BROKEN), (TIMED, Finding(State.MET, last_data_at=NOW)), host="gone")
    assert broken.severity is Severity.WARNING and "Last judged just now: its host is away." in broken.what
    assert (met.severity, met.cause) == (Severity.NOTE, Cause.UNKNOWN_EXPECTATION) and "its host is away" in met.what
    (group,) = grouped(judged((KEY, BROKEN), (DAILY, BROKEN), host="gone"))
    assert "(id is unique, last judged just now; as many new rows" in group.what


def test_a_table_whose_freshness_is_expected_is_not_stale_by_the_general_limit() -> None:
    old = replace(FRESH, last_commit_at=NOW - timedelta(days=3))
    week = Judgement(replace(TIMED, within_s=7 * 86_400), Finding(State.MET, last_data_at=NOW), "host-1", NOW)
    assert len(of(old)) == 1
    assert attention([old], (RUNNING,), (ALIVE,), judgements=[week], now=NOW, settings=SETTINGS) == ()


def test_several_broken_expectations_are_one_line_by_tables() -> None:
    (group,) = grouped(judged((KEY, BROKEN), (TIMED, replace(BROKEN, last_data_at=NOW - HOUR))))
    assert group.what == "1 table breaks 2 table expectations: silver/orders (id is unique; new data every 15 min)."
    other = replace(KEY, uri="/lake/x", table="x")
    (both,) = grouped(judged((KEY, BROKEN), (other, BROKEN), (replace(other, columns=("b",)), BROKEN)))
    assert both.what == "2 tables break 3 table expectations: silver/orders, x."


def test_what_comes_and_goes_is_listed_once_it_has_stood_for_a_minute_and_until_it_is_gone_for_one() -> None:
    slow = AttentionItem(Severity.WARNING, Cause.SLOW_STREAM, "gold", "gold is slow.", "Look.")
    failed = replace(slow, severity=Severity.CRITICAL, cause=Cause.FAILED_STREAM)
    calm = CalmList()
    readings = [
        ((), 0),
        ((slow, failed), 5),
        ((slow,), 64),
        ((slow,), 65),
        ((), 100),
        ((slow,), 110),
        ((), 169),
        ((), 170),
    ]
    listed = [calm.listed(items, NOW + timedelta(seconds=after_s)) for items, after_s in readings]
    assert listed == [(), (failed,), (), (slow,), (slow,), (slow,), (slow,), ()]
    assert calm.listed([slow], NOW + 2 * HOUR) == (slow,), "nobody has read for an hour: it may have stood as long"
    old = replace(slow, subject="old", since=NOW)
    assert calm.listed([slow, old], NOW + 2 * HOUR) == (slow, old), "it says itself how long it has stood"


JUMP = replace(A_JUMP, uri=REF.uri, table=REF.name, committed_at=NOW - HOUR, job="", rows=None, where="")


def reading(name: str, source: str, sink: str) -> StreamStatus:
    declared = declaration(name, StreamInput(InputKind.TABLE, source, source), sink_uri=sink)
    return replace(RUNNING, declaration=declared)


def test_an_unusual_commit_says_what_it_did_and_whom_it_reaches() -> None:
    streams = (
        reading("gold", "file:///lake/silver/orders", "/lake/gold"),
        reading("more", "/lake/gold/", "/lake/silver/orders"),  # back to where it began
        reading("apart", "/lake/other", "/lake/more"),
    )
    (item,) = attention([], streams, [ALIVE], notices=[JUMP], now=NOW, settings=SETTINGS)
    assert (item.severity, item.cause, item.subject) == (Severity.WARNING, Cause.UNUSUAL_COMMIT, "silver/orders")
    assert item.what == (
        "highest amount 498.2 → 47,189 at v31, MERGE by stream silver_orders · 1 h ago. Downstream: gold, more."
    )
    latest = replace(FRESH, version=79)
    for hosts, is_current in (([ALIVE], False), ([], True), ([], False)):  # where nobody looks, nobody knows
        found = attention(
            [latest], [], hosts, notices=[JUMP], are_notices_current=is_current, now=NOW, settings=SETTINGS
        )
        assert ("still so at v79" in found[0].what) is bool(hosts or is_current)
    hurt = replace(JUMP, job="nightly load", rows=1_234)
    assert finding_text(hurt) == f"1,234 rows: {notice_text(hurt)} · nightly load"
    assert finding_text(replace(hurt, mended_at=33), 79).endswith("silver_orders · mended at v33 · nightly load")
    assert finding_text(replace(JUMP, after="20 (7 %)", rows=20)).startswith("highest"), "its rows are told"


@pytest.mark.parametrize("kind", list(Measure))
def test_a_finding_is_as_severe_as_what_it_hurt(kind: Measure) -> None:
    """What is new may well be meant; a day that was loaded twice is there twice, as far as anybody knows."""
    is_new = kind in FIRSTS and kind is not Measure.TWICE
    assert severity_of_notice(replace(JUMP, kind=kind)) is (Severity.NOTE if is_new else Severity.WARNING)
    assert severity_of_notice(replace(JUMP, kind=kind, rows=3)) is Severity.WARNING


def test_findings_have_a_line_each_and_those_of_one_commit_or_one_cause_share_it() -> None:
    def at(minutes: float, **different: object) -> Notice:
        return replace(JUMP, committed_at=NOW - HOUR + timedelta(minutes=minutes), **different)

    def lines(*notices: Notice) -> list[tuple[str, int | None, tuple[str, ...]]]:
        streams = (reading("gold", REF.uri, "/lake/gold"), reading("more", "/lake/gold", "/lake/more"))
        groups = grouped(attention([], streams, [ALIVE], notices=notices, now=NOW, settings=SETTINGS))
        return [(group.what, group.items[0].rows, group.subjects) for group in groups]

    nulls = at(0, kind=Measure.NULLS, subject="email", rows=9)
    ((what, rows, subjects),) = lines(JUMP, nulls, at(0, kind=Measure.WRITER, subject=""))
    assert what.startswith("9 rows: share of nulls of email 498.2 → 47,189 at v31") and " · and 2 more · " in what
    assert (rows, subjects) == (9, (REF.name,)), "the fact that hurt most rows"
    ((what, rows, _),) = lines(at(0, rows=5), at(3, version=33, rows=7))
    assert what.startswith("v31–v33, 12 rows: highest amount 498.2 → 47,189 at v33") and (
        rows,
        "57 min ago" in what,
    ) == (
        12,
        True,
    )
    others = [at(n, uri=f"/lake/t{n}", table=f"t{n}", rows=n, by="DELETE by bob") for n in (1, 2, 3)]
    assert [(rows, subjects) for _, rows, subjects in lines(*others)] == [(n, (f"t{n}",)) for n in (3, 2, 1)]

    gold = at(10, uri="/lake/gold", table="gold", version=7, by="WRITE by stream gold", rows=99)
    more = at(30, uri="/lake/more", table="more", version=8, by="WRITE by stream more")
    ((what, _, subjects),) = lines(gold, more, JUMP)
    assert what.endswith(" Then also: gold, more.") and subjects == (REF.name, "gold", "more")
    assert len(lines(JUMP, replace(gold, by="WRITE by ana"))) == 2, "somebody else wrote it"
    assert len(lines(JUMP, replace(gold, committed_at=NOW + HOUR))) == 2, "long after"
    assert len(lines(JUMP, replace(gold, kind=Measure.COLUMN, rows=None))) == 2, "a note is none of it"
    job = [replace(one, by="WRITE by ana", job="nightly load") for one in (JUMP, gold)]
    assert [subjects for _, _, subjects in lines(*job)] == [(REF.name, "gold")]

    many = [at(n, uri=f"/lake/t{n}", table=f"t{n}", rows=99 - n) for n in range(14)]
    *first, (rest, _, of_rest) = lines(*many)
    assert [subjects for *_, subjects in first] == [(f"t{n}",) for n in range(MOST_FINDINGS)]
    assert rest == "4 tables had unusual commits: t10, t11, t12, t13." and len(of_rest) == 4


def test_silence_is_told_once_by_whoever_knows_most_of_it() -> None:
    silent = replace(JUMP, uri=REF.uri, table=REF.name, kind=Measure.SILENCE, subject="", before="every 5 min")
    old = replace(FRESH, last_commit_at=NOW - timedelta(days=3))
    (item,) = attention([old], [], [ALIVE], notices=[silent], now=NOW, settings=SETTINGS)
    assert (item.severity, item.cause) == (Severity.WARNING, Cause.UNUSUAL_COMMIT)
    (fed,) = attention([old], [RUNNING], [ALIVE], notices=[silent], now=NOW, settings=SETTINGS)
    assert fed.cause is Cause.SILENT_TABLE
    fresh = TableExpectation(REF.uri, REF.name, ExpectationKind.FRESH, within_s=60.0)
    late = Judgement(fresh, Finding(State.BROKEN, since=NOW), ALIVE.host_id, NOW, NOW)
    (expected,) = attention([old], [], [ALIVE], judgements=[late], notices=[silent], now=NOW, settings=SETTINGS)
    assert expected.cause is Cause.BROKEN_EXPECTATION
