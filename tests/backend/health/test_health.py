"""Health rules and recommendations on values, and one real table end to end."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backend.health.health import table_health
from backend.health.model import HealthEvidence, LogHealth, MaintenanceRun, Offender, Recommendation, Severity
from backend.health.recommend import recommend
from backend.health.rules import (
    MergeGain,
    last_run,
    partition_offenders,
    small_file_rule,
    small_files_text,
    trend,
    writer_offenders,
)
from backend.lake.files.file_sizes import PartitionFiles, TargetSize
from backend.lake.lake import Lake
from backend.lake.model import Commit, OperationMetrics, StreamOrigin, Timeline, VersionTotals
from backend.settings import HealthSettings, load_settings

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


def test_the_rule_says_itself_in_one_sentence() -> None:
    assert RULE.small_limit_bytes == 64 * MB
    assert (
        "64 MB" in RULE.text
        and "128 MB" in RULE.text
        and "delta.targetFileSize" in RULE.text
        and "16 files" in RULE.text
    )


def test_a_table_in_order_says_so_and_asks_for_nothing() -> None:
    found = only(WELL)
    assert (found.severity, found.next_step) == (Severity.FINE, "Nothing to do.")
    assert "no data files" in only(replace(WELL, num_files=0)).finding
    assert only(replace(WELL, num_files=3, small_files=0, size_bytes=6_090)).finding == "Fine: 3 files, 6.09 kB."


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


@pytest.mark.parametrize(
    ("files", "small", "size_bytes", "after", "severity"),
    [
        (100, 49, 10_000 * MB, 52, Severity.FINE),  # few of them are small
        (100, 50, 10_000 * MB, 51, Severity.NOTE),
        (30, 30, 276_000, 1, Severity.NOTE),  # all of them, and nobody loses by it
        (501, 501, MB, 1, Severity.WARNING),
        (500, 500, MB, 1, Severity.NOTE),
        (10_000, 10_000, 600_000 * MB, 2_344, Severity.NOTE),  # opening is 5 % of what reading them costs
    ],
)
def test_small_files_are_as_urgent_as_merging_them_gains(
    files: int, small: int, size_bytes: int, after: int, severity: Severity
) -> None:
    table = replace(WELL, num_files=files, small_files=small, size_bytes=size_bytes, files_after_merge=after)
    assert only(table).severity is severity


def test_small_files_have_one_judgement_that_does_not_jump_where_the_rule_begins() -> None:
    small = [small_files_text(MergeGain(files, files if files >= 16 else 0, files * 2_000, 1)) for files in (15, 16)]
    assert small == ["Fine", "16 of 16"]
    assert small_files_text(MergeGain(1_310, 1_204, 10**9, 111)) == "1,204 of 1,310"
    assert small_files_text(MergeGain(100, 49, 10**9, 52)) == "Fine", "the same as of none"


def test_the_share_of_a_read_that_merging_saves_counts_an_opened_file_as_four_mebibytes() -> None:
    gain = MergeGain(num_files=1_000, small_files=1_000, size_bytes=1_000 * 2**20, files_after=4)
    assert gain.read_share == pytest.approx(996 * 4 / (1_000 + 4 * 1_000))
    assert (MergeGain(0, 0, 0, 0).read_share, MergeGain(3, 0, 9, 3).spared) == (0.0, 0)


@pytest.mark.parametrize(
    ("evidence", "subject", "words"),
    [
        (
            replace(WELL, partition_columns=("day",), num_partitions=100),
            "partitioning",
            "100 partitions by day hold 128 MB",
        ),
        (replace(WELL, deleted_rows=60), "deletion vectors", "60 rows (6 %)"),
        (replace(WELL, files_without_stats=1, physical_rows=None), "statistics", "1 file of 100"),
        (replace(WELL, log=replace(LOG, latest_version=30)), "log", "26 commits"),
        (replace(WELL, log=replace(LOG, latest_version=30, checkpoint_version=None)), "log", "31 commits"),
        (replace(WELL, files_removed=7, oldest_removal_at=NOW - 8 * DAY), "vacuum", "7 files"),
    ],
)
def test_other_findings(evidence: HealthEvidence, subject: str, words: str) -> None:
    found = only(evidence)
    assert (found.subject, words in found.finding) == (subject, True), found
    assert found.next_step != "Nothing to do."


@pytest.mark.parametrize(
    "evidence",
    [
        replace(WELL, partition_columns=("day",), num_partitions=2, size_bytes=3_000 * MB),
        replace(WELL, deleted_rows=40),
        replace(WELL, log=replace(LOG, latest_version=24)),
        replace(WELL, files_removed=7, oldest_removal_at=NOW - 6 * DAY),
        replace(WELL, files_removed=7, oldest_removal_at=NOW - 8 * DAY, last_vacuum=MaintenanceRun(3, NOW - 6 * DAY)),
    ],
)
def test_just_inside_the_limits_is_fine(evidence: HealthEvidence) -> None:
    assert only(evidence).severity is Severity.FINE


# -- rules ------------------------------------------------------------------------------------------------------------


def commit(
    version: int,
    operation: str = "WRITE",
    *,
    files: int | None = 1,
    size_bytes: int | None = MB,
    stream: str | None = None,
) -> Commit:
    metrics = OperationMetrics(files_added=files, bytes_added=size_bytes)
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
    found = writer_offenders(commits, EMPTY, small_limit_bytes=64 * MB)
    assert [(o.kind, o.name, o.small_files, o.files) for o in found] == [
        ("stream", "fast", 15, 15),
        ("engine", "Spark", 3, 3),
    ]


def test_a_query_id_gets_the_name_of_its_stream_where_it_is_known() -> None:
    written = replace(commit(1), origin=StreamOrigin(None, "q-1", None, 4))
    (named,) = writer_offenders([written], EMPTY, small_limit_bytes=64 * MB, stream_names={"q-1": "bronze_events"})
    (bare,) = writer_offenders([written], EMPTY, small_limit_bytes=64 * MB)
    assert (named.name, bare.name) == ("bronze_events", "q-1")


def test_a_writer_that_does_not_say_bytes_is_judged_by_what_the_table_grew() -> None:
    timeline = Timeline((totals(0, 1, MB), totals(1, 3, 3 * MB)), 0)
    (found,) = writer_offenders([commit(1, files=2, size_bytes=None)], timeline, small_limit_bytes=64 * MB)
    assert (found.small_files, found.bytes) == (2, 2 * MB)
    assert writer_offenders([commit(9, files=2, size_bytes=None)], timeline, small_limit_bytes=64 * MB) == ()


def test_the_worst_partitions_are_named_and_an_unpartitioned_table_has_none() -> None:
    parts = [PartitionFiles(f"day={i}", 20, MB, i, None) for i in range(10)]
    assert [o.name for o in partition_offenders(parts)] == ["day=9", "day=8", "day=7", "day=6", "day=5"]
    assert partition_offenders([PartitionFiles("", 20, MB, 20, None)]) == ()


def test_the_last_run_is_the_newest_and_vacuum_has_two_names() -> None:
    commits = [commit(4), commit(3, "VACUUM END"), commit(2, "VACUUM START"), commit(1, "OPTIMIZE")]
    assert last_run(commits, "VACUUM") == MaintenanceRun(3, NOW + 3 * DAY)
    assert last_run(commits, "OPTIMIZE") == MaintenanceRun(1, NOW + DAY)
    assert last_run(commits, "RESTORE") is None


def test_a_long_trend_is_thinned_and_keeps_its_end() -> None:
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
    assert (after.evidence.num_files, after.evidence.small_files, after.severity) == (1, 0, Severity.FINE)
    assert after.evidence.last_optimize is not None
    assert after.evidence.last_optimize.version == 30
    assert (after.evidence.log.checkpoint_version, after.evidence.log.commits_since_checkpoint) == (30, 0)

    later = table_health(lake, ref, now=datetime.now(UTC) + 30 * DAY, settings=settings.health)
    assert [r.subject for r in later.recommendations] == ["vacuum"]
    assert "30 files" in later.recommendations[0].finding
