"""What can be reached of a table's past: judged from facts alone, and against what deltalake opens."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from backend.errors import PathRefusedError
from backend.lake.lake import Lake
from backend.lake.retention.answers import Reach, VersionAnswer, judge_version, missing_words
from backend.lake.retention.runs import (
    DELETED_FILES,
    LOG_RETENTION,
    DataFiles,
    FilesSeen,
    LogFacts,
    RetentionRuns,
    VacuumRun,
    judge,
    retention_of,
)
from backend.lake.table.properties import parse_interval
from tests.worlds.lake import builders

T0 = datetime(2026, 11, 1, 10, 30, tzinfo=UTC)
DAY = timedelta(days=1)


def facts(latest: int = 20, **changes: object) -> LogFacts:
    """A table with a commit a day from version 0 on, checkpoints at 10 and 20, nothing missing."""
    properties = {str(k): str(v) for k, v in dict(changes.pop("properties", {})).items()}  # type: ignore[call-overload]
    whole: dict[str, object] = {
        "latest": latest,
        "listed": ((0, latest),),
        "spans": ((0, latest),),
        "checkpoints": (10, 20),
        "times": {version: T0 + version * DAY for version in range(latest + 1)},
        "feed": ((0, 4, False), (5, latest, True)),
        "deleted_files": retention_of(properties, DELETED_FILES),
        "log_retention": retention_of(properties, LOG_RETENTION),
        "cleanup": True,
    }
    return LogFacts(**(whole | changes))  # type: ignore[arg-type]


NOW = T0 + 20 * DAY + timedelta(hours=1)


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("interval 1 week", timedelta(days=7)),
        ("INTERVAL 2 Days 3 hours", timedelta(days=2, hours=3)),
        ("30 days", timedelta(days=30)),
        ("interval 1.5 seconds", timedelta(seconds=1.5)),
        ("interval 2 days -3 hours", timedelta(days=1, hours=21)),
        (" interval  90 minutes ", timedelta(minutes=90)),
        ("interval 0 hours", timedelta()),
        ("interval 1 month", None),
        ("interval 1.5 days", None),
        ("interval -1 days", None),
        ("banana", None),
        ("interval", None),
        ("", None),
        ("interval 999999999999 weeks", timedelta.max / 4),
    ],
)
def test_intervals_are_read_as_delta_reads_them(text, duration):
    assert parse_interval(text) == duration


def test_runs_cover_every_version_once_and_change_where_an_answer_changes():
    runs = judge(facts(), NOW).runs
    assert [(r.from_version, r.to_version) for r in runs] == [(0, 4), (5, 13), (14, 20)]
    assert [r.in_retention for r in runs] == [False, False, True]
    assert [r.change_feed for r in runs] == [False, True, True]
    assert [r.data_files for r in runs] == [DataFiles.UNKNOWN, DataFiles.UNKNOWN, DataFiles.EXPECTED]


def answer_for(version: int, now: datetime = NOW, **changes: object) -> VersionAnswer:
    return judge_version(judge(facts(**changes), now), version)


def test_the_last_instant_of_the_retention_is_inside_it():
    """Delta refuses `timestamp < now - retention`: equality passes."""
    at_limit = T0 + 5 * DAY + 7 * DAY
    assert answer_for(5, at_limit).time_travel.verdict is Reach.YES
    late = answer_for(5, at_limit + timedelta(milliseconds=1)).time_travel
    assert late.verdict is Reach.NO and late.until == at_limit


def test_the_latest_version_is_never_refused():
    answer = answer_for(20, NOW + 400 * DAY)
    assert answer.time_travel.verdict is Reach.YES and answer.time_travel.until is None
    assert answer.change_feed.verdict is Reach.YES and answer.restore.verdict is Reach.YES


def test_a_refused_version_says_what_would_open_it_again():
    answer = answer_for(2)
    assert answer.time_travel.verdict is Reach.NO and answer.elsewhere.verdict is Reach.UNKNOWN
    extension = answer.time_travel.extension
    assert extension.suggested == 30 * DAY and "have to be there still" in extension.note


def test_a_log_cleaned_before_the_retention_ends_is_an_estimate():
    properties = {DELETED_FILES: "interval 60 days", LOG_RETENTION: "interval 25 days"}
    travel = answer_for(5, properties=properties).time_travel
    midnight = datetime(2026, 11, 2, tzinfo=UTC)  # version 0's file, then whole days
    assert travel.verdict is Reach.YES and travel.until == midnight + 25 * DAY and not travel.is_promise
    newest = answer_for(20, properties=properties)  # the newest checkpoint is kept whatever its age
    assert newest.log_kept_until is not None and "until a newer checkpoint" in newest.log_words
    uncleaned = answer_for(5, cleanup=False)
    assert uncleaned.log_kept_until is None and "never cleaned" in uncleaned.log_words


@pytest.mark.parametrize("text", ["banana", "interval 1 month"])
def test_a_retention_that_delta_cannot_read_is_unknown(text):
    properties = {DELETED_FILES: text}
    assert answer_for(15, properties=properties).time_travel.verdict is Reach.UNKNOWN
    assert judge(facts(properties=properties), NOW).runs[0].in_retention is None
    assert answer_for(20, properties=properties).time_travel.verdict is Reach.YES


def test_a_checkpoint_without_its_commit_opens_elsewhere_and_not_in_spark():
    answer = answer_for(10, listed=((11, 20),), spans=((10, 20),))
    assert answer.time_travel.verdict is Reach.NO and "also needs its commit file" in answer.time_travel.reasons[0]
    assert answer.elsewhere.verdict is Reach.UNKNOWN


@pytest.mark.parametrize(
    ("vacuum", "at_risk"),
    [
        (VacuumRun(18, T0 + 18 * DAY, timedelta(), 5), range(17)),  # RETAIN 0 HOURS
        (VacuumRun(18, T0 + 18 * DAY, 3 * DAY, 5), range(14)),  # removed before day 15
        (VacuumRun(18, T0 + 18 * DAY, None, 5), range(10)),  # the table's own 7 days
        (VacuumRun(18, T0 + 18 * DAY, timedelta(), 0), range(0)),  # it deleted nothing
        (VacuumRun(18, None, timedelta(), 5), range(0)),
    ],
)
def test_which_versions_a_vacuum_may_have_touched(vacuum, at_risk):
    retention = judge(facts(vacuums=(vacuum,)), NOW)
    hit = [v for v in range(21) if retention.run_of(v).data_files is DataFiles.AT_RISK]  # type: ignore[union-attr]
    assert hit == list(at_risk)


def test_a_sample_claims_no_more_than_it_saw():
    seen = FilesSeen(3, 12_000, 200, 0)
    assert seen.state is DataFiles.SAMPLED and missing_words(seen) == "no file of 200 sampled (of 12,000) is missing"
    assert missing_words(FilesSeen(3, 12, 12, 0)) == "no file of 12 is missing"


@pytest.mark.parametrize(("version", "feed"), [(4, Reach.NO), (5, Reach.NO), (14, Reach.YES), (20, Reach.YES)])
def test_the_change_feed_has_to_be_on_and_inside_the_retention(version, feed):
    assert answer_for(version).change_feed.verdict is feed


# tables ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def overwritten_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("overwritten") / "events"
    for number in range(12):
        mode = "append" if number % 4 else "overwrite"
        configuration = {"delta.checkpointInterval": "5"} if number == 0 else None
        builders.write(path, {"id": [number]}, mode=mode, configuration=configuration)
    return path


@pytest.fixture
def overwritten(root: Path, overwritten_once: Path) -> Path:
    """Versions 0 … 11: every fourth overwrites; delta-rs leaves checkpoints at 4 and 9. A copy of the test's own."""
    return shutil.copytree(overwritten_once, root / "events")


def read_all(table: DeltaTable) -> pa.Table:
    return pa.RecordBatchReader.from_stream(table.scan()).read_all()


def works(read: Callable[[DeltaTable], object], path: Path, version: int) -> bool:
    try:
        read(DeltaTable(str(path), version=version))
    except Exception:  # noqa: BLE001 - whatever deltalake raises: it did not open
        return False
    return True


def commit_file(path: Path, version: int) -> Path:
    return path / "_delta_log" / f"{version:020d}.json"


def judged(lake: Lake, name: str = "events") -> RetentionRuns:
    return judge(lake.retention_facts(lake.find(name)), datetime.now(UTC))


def reconstructable(found: RetentionRuns) -> list[int]:
    return [v for run in found.runs if run.reconstructable for v in range(run.from_version, run.to_version + 1)]


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param([], id="whole"),
        pytest.param(["json 0", "json 1", "json 2", "json 3"], id="prefix up to a checkpoint"),
        pytest.param(["json 0", "json 5"], id="a gap after a checkpoint"),
        pytest.param(["json 6", "json 10"], id="two gaps"),
        pytest.param(["json 0", "checkpoint 4"], id="prefix without the checkpoint that would cover it"),
        pytest.param(["checkpoint 4", "checkpoint 9", "last"], id="no checkpoint"),
        pytest.param([f"json {v}" for v in range(5)], id="a checkpoint without its commit"),
    ],
)
def test_deltalake_opens_exactly_what_is_called_reconstructable(overwritten, open_lake, lost):
    log = overwritten / "_delta_log"
    for item in lost:
        kind, _, number = item.partition(" ")
        name = {"json": "{:020d}.json", "checkpoint": "{:020d}.checkpoint.parquet", "last": "_last_checkpoint"}[kind]
        (log / name.format(int(number or 0))).unlink()
    retention = judged(open_lake())
    assert reconstructable(retention) == [v for v in range(12) if works(DeltaTable.version, overwritten, v)]


def test_reading_works_exactly_where_the_files_are_said_to_be_there(overwritten, lake):
    DeltaTable(str(overwritten)).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    ref, retention = lake.find("events"), judged(lake)
    assert [v.version for v in retention.facts.vacuums] == [13] and retention.facts.vacuums[0].retention == timedelta(0)
    *_, seen = lake.see_log(ref)
    assert seen.is_done and seen.total == 12 and seen.missing == 8
    looked = judge(retention.facts, retention.now, seen.runs)
    one_by_one = {v: list(lake.see_files(ref, v, sample=None))[-1] for v in range(14)}
    for version in range(14):
        readable = works(read_all, overwritten, version)
        assert looked.run_of(version).data_files is (DataFiles.PRESENT if readable else DataFiles.MISSING)  # type: ignore[union-attr]
        assert one_by_one[version].state is (DataFiles.PRESENT if readable else DataFiles.MISSING)
        assert (judge_version(retention, version, one_by_one[version]).elsewhere.verdict is Reach.YES) == readable
        # before looking: no version that lost a file was promised
        assert readable or retention.run_of(version).data_files is DataFiles.AT_RISK  # type: ignore[union-attr]


def test_a_vacuum_that_never_came_to_its_end_may_have_deleted_files(overwritten, lake):
    DeltaTable(str(overwritten)).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    (overwritten / "_delta_log" / f"{13:020d}.json").unlink()
    retention = judged(lake)
    (vacuum,) = retention.facts.vacuums
    assert (vacuum.version, vacuum.retention, vacuum.deleted_files) == (12, timedelta(0), None)
    lost = [v for v in range(13) if not works(read_all, overwritten, v)]
    assert lost and {retention.run_of(v).data_files for v in lost} == {DataFiles.AT_RISK}


def test_removed_files_are_looked_at_first(overwritten, lake):
    """A sample of one finds the only vacuumed file of a version that shares the others with the latest."""
    (victim,) = map(Path, DeltaTable(str(overwritten), version=8).file_uris())
    DeltaTable(str(overwritten)).delete("id = 8")
    victim.unlink()
    for sample, checked in ((1, 1), (200, 4)):
        *_, seen = lake.see_files(lake.find("events"), 11, sample=sample)
        assert (seen.total, seen.checked, seen.missing, seen.examples) == (4, checked, 1, (victim.name,))


def test_the_change_feed_is_followed_through_its_switches(root, lake):
    path = builders.write(root / "events", {"id": [1]})
    table = DeltaTable(str(path))
    table.alter.set_table_properties(builders.CHANGE_FEED)
    builders.write(path, {"id": [2]})
    DeltaTable(str(path)).alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
    builders.write(path, {"id": [3]})
    assert lake.retention_facts(lake.find("events")).feed == ((0, 0, False), (1, 2, True), (3, 4, False))
    for version in (1, 2, 3, 4):
        covered = lake.cdf_support(lake.find("events"), version - 1, version).covered
        assert covered == (judge_version(judged(lake), version).change_feed.verdict is Reach.YES)


def test_the_switch_is_known_behind_a_cleaned_log(overwritten, open_lake):
    for version in range(4):
        commit_file(overwritten, version).unlink()
    assert open_lake().retention_facts(open_lake().find("events")).feed == ((4, 11, False),)


def test_times_are_those_of_the_commit_files_unless_the_table_carries_its_own(root, lake):
    builders.HandLog(root / "old").start().commit(builders.commit_info(timestamp=1_000_000_000_000))
    on = {"delta.enableInCommitTimestamps": "true"}
    own = builders.HandLog(root / "own").start(configuration=on)
    own.commit(builders.commit_info(inCommitTimestamp=1_700_000_000_000))
    old, own_facts = lake.retention_facts(lake.find("old")), lake.retention_facts(lake.find("own"))
    written = datetime.fromtimestamp(commit_file(root / "old", 1).stat().st_mtime, UTC)
    assert abs(old.times[1] - written) < timedelta(milliseconds=1)
    assert own_facts.in_commit_timestamps and own_facts.times[1] == datetime.fromtimestamp(1_700_000_000, UTC)


def test_a_broken_commit_takes_its_followers_along_up_to_the_next_checkpoint(overwritten, open_lake):
    commit_file(overwritten, 6).write_text("{ not json")
    retention = judged(open_lake())
    assert reconstructable(retention) == [*range(6), 9, 10, 11]
    assert any("00000006.json" in problem for problem in retention.facts.problems)


def test_files_outside_the_roots_are_never_looked_for(root, lake):
    builders.HandLog(root / "sly").start().commit(builders.commit_info(), builders.add("../../../../etc/passwd"))
    with pytest.raises(PathRefusedError):
        list(lake.see_files(lake.find("sly"), 1, sample=10))


def test_looking_tells_how_far_it_is_and_ends_when_nobody_asks(root, lake):
    log = builders.HandLog(root / "many").start()
    log.commit(builders.commit_info(), *(builders.add(f"{n}.parquet") for n in range(1_000)))
    (root / "many" / "7.parquet").touch()
    steps = list(lake.see_files(lake.find("many"), 1, sample=None))
    assert [step.checked for step in steps] == [0, 256, 512, 768, 1000]
    assert steps[-1] == FilesSeen(1, 1000, 1000, 999, steps[-1].examples) and len(steps[-1].examples) == 5
    *_, sampled = lake.see_files(lake.find("many"), 1, sample=200)
    assert (sampled.checked, sampled.total) == (200, 1000)


def test_a_copy_of_the_log_is_judged_by_its_new_times(overwritten, lake):
    """What Spark does: a table copied today is young again, whatever its commits say."""
    shutil.copytree(overwritten, overwritten.parent / "copy", copy_function=shutil.copy)
    facts = lake.retention_facts(lake.find("copy"))
    assert min(facts.times.values()) > max(lake.retention_facts(lake.find("events")).times.values())
