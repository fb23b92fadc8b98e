"""How far a stream is behind, from hand-made checkpoints over real tables: each figure beside a naive recount."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from backend.lake.lake import Lake
from backend.settings import Settings, load_settings
from backend.stream_model.backlog import Backlog, SourceBacklog
from backend.stream_model.stream import StreamDeclaration, StreamInput
from backend.streams.backlog.files import has_pattern
from backend.streams.backlog.reader import BacklogReader
from tests.worlds.lake import builders
from tests.worlds.streams.checkpoints import delta_offset, write_checkpoint

NOW = datetime.now(UTC)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Five commits of two files each: version n brings 10 * (n + 1) rows."""
    path = tmp_path / "lake" / "bronze" / "events"
    for version in range(5):
        count = 10 * (version + 1)
        half = {"part": ["a"] * (count // 2) + ["b"] * (count // 2), "id": list(range(count))}
        builders.write(path, half, partition_by=["part"])
    return path


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(home=tmp_path, lake={"roots": [str(tmp_path / "lake")]})


@pytest.fixture
def look(tmp_path: Path, settings: Settings) -> Callable[..., Backlog]:
    def look(*inputs: StreamInput, offsets: list[str | None] | None = None, kind: str = "streaming table") -> Backlog:
        place = tmp_path / "checkpoints" / "silver"
        if offsets is not None:
            write_checkpoint(place, {4: offsets})
        declared = StreamDeclaration(
            "silver", "", "", "/l/silver", "silver/x", (), "silver", 5_000, str(place), kind=kind, inputs=inputs
        )
        return BacklogReader(settings, Lake(settings)).read(declared, [], now=NOW)

    return look


def source(path: Path, kind: str = "table", **options: str) -> StreamInput:
    return StreamInput(kind, "bronze/events", str(path), options)


def table_id(path: Path) -> str:
    return str(DeltaTable(str(path)).metadata().id)


def written_at(table: Path, version: int) -> datetime:
    """When a commit's file was written, in the whole milliseconds that Delta compares."""
    millis = (table / "_delta_log" / f"{version:020d}.json").stat().st_mtime_ns // 10**6
    return datetime.fromtimestamp(millis // 1000, UTC) + timedelta(milliseconds=millis % 1000)


def commit_adds(path: Path, version: int) -> list[dict[str, object]]:
    """The naive count: lines of the commit file that add data."""
    lines = (path / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    adds = [json.loads(line)["add"] for line in lines if '"add"' in line]
    return [add for add in adds if add["dataChange"]]


def recount(path: Path, versions: range) -> tuple[int, int, int]:
    adds = [add for version in versions for add in commit_adds(path, version)]
    return len(adds), sum(add["size"] for add in adds), sum(json.loads(add["stats"])["numRecords"] for add in adds)


def figures(found: Backlog | SourceBacklog) -> tuple[int | None, int | None, int | None]:
    return found.files, found.size_bytes, found.rows


@pytest.mark.parametrize("version", [0, 2, 4, 5])
def test_what_lies_after_the_offset_is_what_its_commits_add(
    look: Callable[..., Backlog], table: Path, version: int
) -> None:
    found = look(source(table), offsets=[delta_offset(table_id(table), version)])
    assert figures(found) == recount(table, range(version, 5))
    assert found.versions == 5 - version
    assert found.is_caught_up == (version == 5)
    if version < 5:
        written = written_at(table, version)
        assert found.oldest_unread_at == written
        assert found.data_loss is not None
        assert (found.data_loss.at, found.data_loss.setting) == (
            written + timedelta(days=30),
            "delta.logRetentionDuration",
        )
    else:
        assert (found.oldest_unread_at, found.data_loss, found.behind_s) == (None, None, 0.0)


def test_an_offset_inside_a_commit_leaves_its_other_files(look: Callable[..., Backlog], table: Path) -> None:
    found = look(source(table), offsets=[delta_offset(table_id(table), 3, 0)])
    files, size, rows = recount(table, range(3, 5))
    first = commit_adds(table, 3)[0]
    assert figures(found) == (files - 1, size - first["size"], rows - 20)  # type: ignore[operator]
    assert found.versions == 2


def test_an_offset_at_the_last_file_of_a_commit_leaves_none_of_it(look: Callable[..., Backlog], table: Path) -> None:
    found = look(source(table), offsets=[delta_offset(table_id(table), 3, 1)])
    assert (figures(found), found.versions, found.lost) == (recount(table, range(4, 5)), 1, 0)


def test_an_initial_snapshot_half_read_leaves_its_newer_files(look: Callable[..., Backlog], table: Path) -> None:
    adds = [add for version in range(4) for add in commit_adds(table, version)]
    left = sorted(adds, key=lambda add: (add["modificationTime"], add["path"]))[3:]
    later = recount(table, range(4, 5))
    found = look(source(table), offsets=[delta_offset(table_id(table), 3, 2, is_initial=True)])
    assert found.files == len(left) + later[0]
    assert found.size_bytes == sum(add["size"] for add in left) + later[1]  # type: ignore[misc]
    assert found.rows == sum(json.loads(str(add["stats"]))["numRecords"] for add in left) + later[2]
    assert found.sources[0].detail == "the first read of v3: 3 of 8 files done"


def test_before_the_first_batch_all_is_unread(look: Callable[..., Backlog], table: Path) -> None:
    found = look(source(table))
    assert figures(found) == recount(table, range(5))
    assert found.sources[0].detail == "not begun: all of v4"
    later = look(source(table, startingVersion="latest"))
    assert (figures(later), later.is_caught_up) == ((None, None, None), None)
    assert "not begun" in later.unknown
    assert figures(look(source(table, startingVersion="3"))) == recount(table, range(3, 5))


def test_compaction_brings_nothing_and_a_skipped_change_neither(look: Callable[..., Backlog], table: Path) -> None:
    DeltaTable(str(table)).optimize.compact()
    DeltaTable(str(table)).delete("id < 3")
    offsets = [delta_offset(table_id(table), 5)]
    found = look(source(table, skipChangeCommits="true"), offsets=offsets)
    assert (figures(found), found.versions, found.is_caught_up) == ((0, 0, 0), 2, True)
    told = look(source(table), offsets=offsets)
    assert figures(told) == recount(table, range(5, 7))


def test_files_that_a_later_commit_replaced_go_with_vacuum(look: Callable[..., Backlog], table: Path) -> None:
    DeltaTable(str(table)).optimize.compact()
    compacted = written_at(table, DeltaTable(str(table)).version())
    found = look(source(table), offsets=[delta_offset(table_id(table), 2)])
    # Compaction moves rows and changes none, so its removes are no data change; the files go all the same.
    assert found.data_loss is not None
    assert (found.data_loss.at, found.data_loss.setting) == (
        compacted + timedelta(days=7),
        "delta.deletedFileRetentionDuration",
    )
    assert found.data_loss.what == "files of v2 that v5 replaced, at the next VACUUM"


def test_commits_cleaned_away_before_they_were_read_are_lost(look: Callable[..., Backlog], table: Path) -> None:
    DeltaTable(str(table)).create_checkpoint()
    for version in range(3):
        (table / "_delta_log" / f"{version:020d}.json").unlink()
    found = look(source(table), offsets=[delta_offset(table_id(table), 1)])
    assert (found.versions, found.lost) == (4, 2)
    assert figures(found) == recount(table, range(3, 5))
    assert found.sources[0].detail == "2 unread versions are no longer in the log"


def test_a_table_made_anew_is_not_counted(look: Callable[..., Backlog], table: Path) -> None:
    found = look(source(table), offsets=[delta_offset("another", 1)])
    assert (figures(found), found.versions, found.is_caught_up) == ((None, None, None), None, None)
    assert "made anew" in found.unknown


def test_the_change_feed_counts_changes(look: Callable[..., Backlog], tmp_path: Path) -> None:
    """Version 1 appends two orders, 2 updates one, 3 deletes one: 2 + 2 + 1 rows of the feed."""
    path = builders.orders_table(tmp_path / "lake" / "orders")
    feed = DeltaTable(str(path)).load_cdf(starting_version=1).read_all()
    found = look(source(path, "change feed"), offsets=[delta_offset(table_id(path), 1)])
    assert found.rows == feed.num_rows == 5
    assert (found.versions, found.is_caught_up) == (3, False)


def test_rows_without_statistics_are_unknown_and_no_zero(look: Callable[..., Backlog], tmp_path: Path) -> None:
    path = tmp_path / "lake" / "plain"
    builders.write(path, {"id": [1, 2]}, configuration={"delta.dataSkippingNumIndexedCols": "0"})
    log = path / "_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        line.get("add", {}).pop("stats", None)
    log.write_text("\n".join(json.dumps(line) for line in lines))
    found = look(source(path), offsets=[delta_offset(table_id(path), 0)])
    assert (found.files, found.rows, found.is_caught_up) == (1, None, False)
    assert "how many rows" in found.unknown


def test_two_sources_add_up_whatever_their_order_in_the_plan(
    look: Callable[..., Backlog], table: Path, tmp_path: Path
) -> None:
    other = builders.write(tmp_path / "lake" / "rates", {"id": [1, 2, 3]})
    offsets = [delta_offset(table_id(other), 0), delta_offset(table_id(table), 4)]
    found = look(source(table), replace(source(other), name="rates"), offsets=offsets)
    assert [each.rows for each in found.sources] == [50, 3]
    assert (found.rows, found.versions) == (53, 2)
    broken = look(source(table), replace(source(tmp_path / "lake" / "none"), name="gone"), offsets=offsets)
    assert (broken.rows, broken.is_caught_up) == (None, False)


def test_a_view_counts_versions(look: Callable[..., Backlog], table: Path) -> None:
    found = look(source(table), offsets=[json.dumps({str(table): 2})], kind="materialized view")
    assert (found.versions, found.rows, found.is_caught_up) == (2, None, False)
    done = look(source(table), offsets=[json.dumps({str(table): 4})], kind="materialized view")
    assert (done.versions, done.rows, done.is_caught_up) == (0, 0, True)


def test_files_that_the_sources_log_does_not_name_wait(look: Callable[..., Backlog], tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    (landing / "day=1").mkdir(parents=True)
    for name, text in (("a 1.json", "{}"), ("b.json", "{}\n{}"), ("day=1/c.json", "{}"), ("_hidden", ""), (".x", "")):
        (landing / name).write_text(text)
    log = tmp_path / "checkpoints" / "silver" / "sources" / "0"
    log.mkdir(parents=True)
    paths = [(landing / name).as_uri() for name in ("a 1.json", "b.json")]
    for batch, path in enumerate(paths):
        (log / str(batch)).write_text("v1\n" + json.dumps({"path": path, "timestamp": 1, "batchId": batch}))
    files = StreamInput("files", "files in landing", str(landing))
    found = look(files, offsets=['{"logOffset":0}'])
    assert (found.files, found.size_bytes, found.rows) == (2, 7, None), "b.json was planned and never committed"
    done = look(files, offsets=['{"logOffset":1}'])
    assert (done.files, done.size_bytes) == (1, 2)
    (landing / "day=1" / "c.json").unlink()
    assert look(files, offsets=['{"logOffset":1}']).is_caught_up


def test_files_wait_however_old_they_are_beside_the_newest_that_was_read(
    look: Callable[..., Backlog], tmp_path: Path
) -> None:
    landing, log = tmp_path / "landing", tmp_path / "checkpoints" / "silver" / "sources" / "0"
    landing.mkdir()
    log.mkdir(parents=True)
    for day in range(21):
        (landing / f"{day}.json").write_text("{}")
        written = NOW.timestamp() + day * 86_400
        os.utime(landing / f"{day}.json", (written, written))
    files = StreamInput("files", "files in landing", str(landing))
    assert look(files, offsets=None).files == 21, "a first start reads all"

    def read(batch: int, *days: int) -> None:
        lines = [
            {"path": (landing / f"{day}.json").as_uri(), "timestamp": (NOW.timestamp() + day * 86_400) * 1_000}
            for day in days
        ]
        (log / str(batch)).write_text("\n".join(["v1", *(json.dumps({**each, "batchId": batch}) for each in lines)]))

    read(0, *range(5))
    assert look(files, offsets=['{"logOffset":0}']).files == 16
    read(1, *range(6, 21))
    assert look(files, offsets=['{"logOffset":1}']).files == 1, "day 5, two weeks before the newest"
    assert look(files, offsets=['{"logOffset":0}']).files == 16


@pytest.mark.parametrize("folder", ["land [1]", "land {a,b}", "land%20it"])
def test_folders_and_files_with_odd_names_are_counted(
    look: Callable[..., Backlog], tmp_path: Path, folder: str
) -> None:
    landing, log = tmp_path / folder, tmp_path / "checkpoints" / "silver" / "sources" / "0"
    landing.mkdir()
    log.mkdir(parents=True)
    for name in ("a b.json", "c[1].json", "d%20e.json", "f{g}.json"):
        (landing / name).write_text("{}")
    files = StreamInput("files", f"files in {folder}", str(landing))
    assert look(files, offsets=None).files == 4
    line = json.dumps({"path": (landing / "a b.json").as_uri(), "timestamp": 1, "batchId": 0})
    (log / "0").write_text(f"v1\n{line}")
    assert look(files, offsets=['{"logOffset":0}']).files == 3


def test_a_folder_named_like_a_pattern_is_none_once_something_lies_in_it(tmp_path: Path) -> None:
    (tmp_path / "in[12]").mkdir()
    assert not has_pattern(str(tmp_path / "in[12]")), "no other folder is meant"
    (tmp_path / "in1").mkdir()
    assert has_pattern(str(tmp_path / "in[12]")), "an empty one may be left of nothing"
    (tmp_path / "in[12]" / "a").write_text("")
    assert not has_pattern(str(tmp_path / "in[12]"))
    assert has_pattern(str(tmp_path / "in*")) and has_pattern("s3://lake/in[12]")
    assert not has_pattern(str(tmp_path / "in1"))


def test_a_compacted_log_of_files_is_read(look: Callable[..., Backlog], tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    for number in range(12):
        (landing / f"{number}.json").write_text("{}")
    log = tmp_path / "checkpoints" / "silver" / "sources" / "0"
    log.mkdir(parents=True)
    lines = [json.dumps({"path": (landing / f"{n}.json").as_uri(), "timestamp": 1, "batchId": n}) for n in range(11)]
    (log / "9.compact").write_text("\n".join(["v1", *lines[:10]]))
    (log / "10").write_text("\n".join(["v1", lines[10]]))
    files = StreamInput("files", "files in landing", str(landing))
    assert look(files, offsets=['{"logOffset":10}']).files == 1
    assert look(files, offsets=['{"logOffset":7}']).files == 4


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (StreamInput("files", "files in x", "/elsewhere"), "outside every allowed root"),
        (StreamInput("files", "files in x", "/land/*.json"), "chosen by a pattern"),
        (StreamInput("kafka", "orders at broker"), "no host has asked the broker yet"),
    ],
)
def test_what_nobody_can_count_is_unknown(look: Callable[..., Backlog], files: StreamInput, said: str) -> None:
    found = look(files, offsets=["{}"])
    assert (found.files, found.rows, found.is_caught_up, found.behind_s) == (None, None, None, None)
    assert said in found.unknown


def test_a_damaged_checkpoint_hides_no_stream(look: Callable[..., Backlog], table: Path, tmp_path: Path) -> None:
    look(source(table), offsets=[delta_offset(table_id(table), 1)])
    (tmp_path / "checkpoints" / "silver" / "offsets" / "4").write_text("")
    found = look(source(table))
    assert (found.rows, found.is_caught_up) == (None, None)
    assert "offsets/4 is empty" in found.unknown


@pytest.mark.parametrize(("finished", "has_planned"), [(None, None), ([4], False), ([3], True), ([], True)])
def test_a_planned_batch_that_has_not_ended_is_known(
    tmp_path: Path, settings: Settings, finished: list[int] | None, has_planned: bool | None
) -> None:
    place = tmp_path / "checkpoints" / "silver"
    if finished is not None:
        write_checkpoint(place, {4: ['{"logOffset":0}']}, finished=finished)
    inputs = (StreamInput("files", "files in x", "/elsewhere"),)
    at = str(place) if finished is not None else "/elsewhere/checkpoint"
    declared = StreamDeclaration("silver", "", "", "/l/silver", "silver/x", (), "silver", 5_000, at, inputs=inputs)
    backlog = BacklogReader(settings, Lake(settings)).read(declared, [], now=NOW)
    assert backlog.has_planned is has_planned
    assert backlog.unknown
