"""RetentionRuns against reality: deltalake opens what is called reconstructable and reads where files are there."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from backend.errors import PathRefusedError, TableNotFoundError
from backend.lake.lake import Lake
from backend.lake.retention.answers import Reach, judge_version
from backend.lake.retention.runs import DataFiles, FilesSeen, RetentionRuns, judge, with_missing
from tests.worlds.lake import builders

OpenLake = Callable[..., Lake]


@pytest.fixture
def overwritten(root: Path) -> Path:
    """Versions 0 … 11: every fourth overwrites; delta-rs leaves checkpoints at 4 and 9."""
    path = root / "events"
    for number in range(12):
        mode = "append" if number % 4 else "overwrite"
        configuration = {"delta.checkpointInterval": "5"} if number == 0 else None
        builders.write(path, {"id": [number]}, mode=mode, configuration=configuration)
    return path


def opens(path: Path, version: int) -> bool:
    try:
        DeltaTable(str(path), version=version)
    except Exception:  # noqa: BLE001 - whatever deltalake raises: it did not open
        return False
    return True


def rows(path: Path, version: int) -> int | None:
    try:
        return pa.RecordBatchReader.from_stream(DeltaTable(str(path), version=version).scan()).read_all().num_rows
    except Exception:  # noqa: BLE001
        return None


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
def test_deltalake_opens_exactly_what_is_called_reconstructable(
    overwritten: Path, open_lake: OpenLake, lost: list[str]
) -> None:
    log = overwritten / "_delta_log"
    for item in lost:
        kind, _, number = item.partition(" ")
        name = {"json": "{:020d}.json", "checkpoint": "{:020d}.checkpoint.parquet", "last": "_last_checkpoint"}[kind]
        (log / name.format(int(number or 0))).unlink()
    found = judged(open_lake())
    assert reconstructable(found) == [v for v in range(12) if opens(overwritten, v)]


def test_reading_works_exactly_where_the_files_are_said_to_be_there(overwritten: Path, open_lake: OpenLake) -> None:
    DeltaTable(str(overwritten)).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    lake = open_lake()
    ref, found = lake.find("events"), judged(lake)
    assert [v.version for v in found.facts.vacuums] == [13] and found.facts.vacuums[0].retention == timedelta(0)
    *_, seen = lake.see_log(ref)
    assert seen.is_done and seen.total == 12 and seen.missing == 8
    looked = with_missing(found, seen.runs)
    one_by_one = {v: list(lake.see_files(ref, v, sample=None))[-1] for v in range(14)}
    for version in range(14):
        readable = rows(overwritten, version) is not None
        assert looked.run_of(version).data_files is (DataFiles.PRESENT if readable else DataFiles.MISSING)  # type: ignore[union-attr]
        assert one_by_one[version].state is (DataFiles.PRESENT if readable else DataFiles.MISSING)
        assert (judge_version(found, version, one_by_one[version]).elsewhere.verdict is Reach.YES) == readable
        # before looking: no version that lost a file was promised
        assert readable or found.run_of(version).data_files is DataFiles.AT_RISK  # type: ignore[union-attr]


def test_a_live_file_deleted_by_hand_is_found(overwritten: Path, open_lake: OpenLake) -> None:
    victim = Path(DeltaTable(str(overwritten)).file_uris()[0])
    victim.unlink()
    lake = open_lake()
    *_, seen = lake.see_files(lake.find("events"), 11, sample=200)
    assert (seen.total, seen.missing, seen.examples) == (4, 1, (victim.name,))


def test_removed_files_are_looked_at_first(overwritten: Path, open_lake: OpenLake) -> None:
    """A sample of one finds the only vacuumed file of a version that shares the others with the latest."""
    victim = DeltaTable(str(overwritten), version=8).file_uris()
    DeltaTable(str(overwritten)).delete("id = 8")
    Path(victim[0]).unlink()
    lake = open_lake()
    *_, seen = lake.see_files(lake.find("events"), 11, sample=1)
    assert (seen.total, seen.checked, seen.missing) == (4, 1, 1)


def test_the_change_feed_is_followed_through_its_switches(root: Path, open_lake: OpenLake) -> None:
    path = builders.write(root / "events", {"id": [1]})
    table = DeltaTable(str(path))
    table.alter.set_table_properties(builders.CHANGE_FEED)
    builders.write(path, {"id": [2]})
    DeltaTable(str(path)).alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
    builders.write(path, {"id": [3]})
    lake = open_lake()
    assert lake.retention_facts(lake.find("events")).feed == ((0, 0, False), (1, 2, True), (3, 4, False))
    for version in (1, 2, 3, 4):
        covered = lake.cdf_support(lake.find("events"), version - 1, version).covered
        assert covered == (judge_version(judged(lake), version).change_feed.verdict is Reach.YES)


def test_the_switch_is_known_behind_a_cleaned_log(overwritten: Path, open_lake: OpenLake) -> None:
    for version in range(4):
        commit_file(overwritten, version).unlink()
    assert open_lake().retention_facts(open_lake().find("events")).feed == ((4, 11, False),)


def test_times_are_those_of_the_commit_files_unless_the_table_carries_its_own(root: Path, open_lake: OpenLake) -> None:
    builders.HandLog(root / "old").start().commit(builders.commit_info(timestamp=1_000_000_000_000))
    on = {"delta.enableInCommitTimestamps": "true"}
    own = builders.HandLog(root / "own").start(configuration=on)
    own.commit(builders.commit_info(inCommitTimestamp=1_700_000_000_000))
    lake = open_lake()
    old, own_facts = lake.retention_facts(lake.find("old")), lake.retention_facts(lake.find("own"))
    written = datetime.fromtimestamp(commit_file(root / "old", 1).stat().st_mtime, UTC)
    assert abs(old.times[1] - written) < timedelta(milliseconds=1)
    assert own_facts.in_commit_timestamps and own_facts.times[1] == datetime.fromtimestamp(1_700_000_000, UTC)


def test_a_broken_commit_takes_its_followers_along_up_to_the_next_checkpoint(
    overwritten: Path, open_lake: OpenLake
) -> None:
    commit_file(overwritten, 6).write_text("{ not json")
    found = judged(open_lake())
    assert reconstructable(found) == [*range(6), 9, 10, 11]
    assert any("00000006.json" in problem for problem in found.facts.problems)


def test_broken_tables_answer_or_raise_weirs_own_errors(root: Path, open_lake: OpenLake) -> None:
    builders.HandLog(root / "gap").start().commit(builders.commit_info(), version=2)
    builders.HandLog(root / "rubbish").raw(f"{0:020d}.json", "rubbish")
    (root / "empty" / "_delta_log").mkdir(parents=True)
    (root / "empty" / "_delta_log" / "x.json").write_text("{}")
    lake = open_lake()
    gap, rubbish = judged(lake, "gap"), judged(lake, "rubbish")
    assert reconstructable(gap) == [0] and judge_version(gap, 2).time_travel.verdict is Reach.NO
    assert reconstructable(rubbish) == [] and rubbish.facts.problems
    assert list(lake.see_log(lake.find("rubbish")))[-1].total == 0
    with pytest.raises(TableNotFoundError):
        lake.retention_facts(lake.find(str(root / "empty")))


def test_files_outside_the_roots_are_never_looked_for(root: Path, open_lake: OpenLake) -> None:
    builders.HandLog(root / "sly").start().commit(builders.commit_info(), builders.add("../../../../etc/passwd"))
    lake = open_lake()
    with pytest.raises(PathRefusedError):
        list(lake.see_files(lake.find("sly"), 1, sample=10))


def test_looking_tells_how_far_it_is_and_ends_when_nobody_asks(root: Path, open_lake: OpenLake) -> None:
    log = builders.HandLog(root / "many").start()
    log.commit(builders.commit_info(), *(builders.add(f"{n}.parquet") for n in range(1_000)))
    (root / "many" / "7.parquet").touch()
    lake = open_lake()
    steps = list(lake.see_files(lake.find("many"), 1, sample=None))
    assert [step.checked for step in steps] == [0, 256, 512, 768, 1000]
    assert steps[-1] == FilesSeen(1, 1000, 1000, 999, steps[-1].examples) and len(steps[-1].examples) == 5
    *_, sampled = lake.see_files(lake.find("many"), 1, sample=200)
    assert (sampled.checked, sampled.total) == (200, 1000)


def test_a_copy_of_the_log_is_judged_by_its_new_times(overwritten: Path, open_lake: OpenLake) -> None:
    """What Spark does: a table copied today is young again, whatever its commits say."""
    shutil.copytree(overwritten, overwritten.parent / "copy", copy_function=shutil.copy)
    lake = open_lake()
    facts = lake.retention_facts(lake.find("copy"))
    assert min(facts.times.values()) > max(lake.retention_facts(lake.find("events")).times.values())
