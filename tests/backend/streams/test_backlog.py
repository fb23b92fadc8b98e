"""How far a stream is behind: checkpoints over real tables beside naive recounts, lags, and what hosts keep."""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable

from app.cli.output import encoded
from app.cli.streams import SHAPES
from backend.lake.history.change_feed import Arrival
from backend.lake.lake import Lake
from backend.settings import Settings, load_settings
from backend.store.store import ControlStore
from backend.stream_model.backlog import Backlog, Lag, SourceBacklog
from backend.stream_model.stream import Progress, StreamInput, TopicEnds
from backend.streams.backlog import BacklogReader, BatchEnd, batch_end, lags, lags_since
from backend.streams.checkpoint import KafkaPosition
from backend.streams.unread import UNREAD, kafka_backlog
from pipelines.host import backlogs
from pipelines.host.backlogs import keep_backlogs
from tests.worlds.hosts.rounds import rounds_of
from tests.worlds.lake import builders
from tests.worlds.store import large
from tests.worlds.streams.checkpoints import delta_offset, write_checkpoint
from tests.worlds.streams.values import ended_batch, stream

NOW = datetime.now(UTC)


Look = Callable[..., Backlog]


@pytest.fixture(scope="module")
def five_commits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five commits of two files each: version n brings 10 * (n + 1) rows."""
    path = tmp_path_factory.mktemp("five") / "events"
    for version in range(5):
        count = 10 * (version + 1)
        half = {"part": ["a"] * (count // 2) + ["b"] * (count // 2), "id": list(range(count))}
        builders.write(path, half, partition_by=["part"])
    return path


@pytest.fixture
def table(tmp_path: Path, five_commits: Path) -> Path:
    """A copy of its own."""
    return Path(shutil.copytree(five_commits, tmp_path / "lake" / "bronze" / "events"))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(home=tmp_path, lake={"roots": [str(tmp_path / "lake")]})


@pytest.fixture
def look(tmp_path: Path, settings: Settings) -> Look:
    def look(*inputs: StreamInput, offsets: list[str | None] | None = None, kind: str = "streaming table") -> Backlog:
        place = tmp_path / "checkpoints" / "silver"
        if offsets is not None:
            write_checkpoint(place, {4: offsets})
        declared = stream("silver", *inputs, kind=kind, checkpoint_location=str(place))
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
def test_what_lies_after_the_offset_is_what_its_commits_add(look: Look, table: Path, version: int) -> None:
    found = look(source(table), offsets=[delta_offset(table_id(table), version)])
    assert figures(found) == recount(table, range(version, 5))
    assert found.versions == 5 - version
    assert found.is_caught_up == (version == 5)
    if version < 5:
        written = written_at(table, version)
        assert found.oldest_unread_at == written and found.data_loss is not None
        assert found.data_loss.at == written + timedelta(days=30)
        assert found.data_loss.setting == "delta.logRetentionDuration"
    else:
        assert (found.oldest_unread_at, found.data_loss, found.behind_s) == (None, None, 0.0)


def test_an_offset_inside_a_commit_leaves_its_other_files(look: Look, table: Path) -> None:
    found = look(source(table), offsets=[delta_offset(table_id(table), 3, 0)])
    files, size, rows = recount(table, range(3, 5))
    first = commit_adds(table, 3)[0]
    assert figures(found) == (files - 1, size - first["size"], rows - 20)  # type: ignore[operator]
    assert found.versions == 2
    at_its_last = look(source(table), offsets=[delta_offset(table_id(table), 3, 1)])
    assert (figures(at_its_last), at_its_last.versions, at_its_last.lost) == (recount(table, range(4, 5)), 1, 0)


def test_an_initial_snapshot_half_read_leaves_its_newer_files(look: Look, table: Path) -> None:
    adds = [add for version in range(4) for add in commit_adds(table, version)]
    left = sorted(adds, key=lambda add: (add["modificationTime"], add["path"]))[3:]
    later = recount(table, range(4, 5))
    found = look(source(table), offsets=[delta_offset(table_id(table), 3, 2, is_initial=True)])
    assert found.files == len(left) + later[0]
    assert found.size_bytes == sum(add["size"] for add in left) + later[1]  # type: ignore[misc]
    assert found.rows == sum(json.loads(str(add["stats"]))["numRecords"] for add in left) + later[2]
    assert found.sources[0].detail == "the first read of v3: 3 of 8 files done"


def test_before_the_first_batch_all_is_unread(look: Look, table: Path) -> None:
    found = look(source(table))
    assert figures(found) == recount(table, range(5))
    assert found.sources[0].detail == "not begun: all of v4"
    later = look(source(table, startingVersion="latest"))
    assert (figures(later), later.is_caught_up) == ((None, None, None), None)
    assert "not begun" in later.unknown
    assert figures(look(source(table, startingVersion="3"))) == recount(table, range(3, 5))


def test_compaction_brings_nothing_and_a_skipped_change_neither(look: Look, table: Path) -> None:
    DeltaTable(str(table)).optimize.compact()
    DeltaTable(str(table)).delete("id < 3")
    offsets = [delta_offset(table_id(table), 5)]
    found = look(source(table, skipChangeCommits="true"), offsets=offsets)
    assert (figures(found), found.versions, found.is_caught_up) == ((0, 0, 0), 2, True)
    told = look(source(table), offsets=offsets)
    assert figures(told) == recount(table, range(5, 7))


def test_files_that_a_later_commit_replaced_go_with_vacuum(look: Look, table: Path) -> None:
    """Compaction moves rows and changes none, so its removes are no data change; the files go all the same."""
    DeltaTable(str(table)).optimize.compact()
    compacted = written_at(table, DeltaTable(str(table)).version())
    loss = look(source(table), offsets=[delta_offset(table_id(table), 2)]).data_loss
    assert (loss.at, loss.setting) == (compacted + timedelta(days=7), "delta.deletedFileRetentionDuration")
    assert loss.what == "files of v2 that v5 replaced, at the next VACUUM"


def test_commits_cleaned_away_before_they_were_read_are_lost(look: Look, table: Path) -> None:
    DeltaTable(str(table)).create_checkpoint()
    for version in range(3):
        (table / "_delta_log" / f"{version:020d}.json").unlink()
    found = look(source(table), offsets=[delta_offset(table_id(table), 1)])
    assert (found.versions, found.lost) == (4, 2)
    assert figures(found) == recount(table, range(3, 5))
    assert found.sources[0].detail == "2 unread versions are no longer in the log"


def test_a_table_made_anew_is_not_counted(look: Look, table: Path) -> None:
    found = look(source(table), offsets=[delta_offset("another", 1)])
    assert (figures(found), found.versions, found.is_caught_up) == ((None, None, None), None, None)
    assert "made anew" in found.unknown


def test_the_change_feed_counts_changes(look: Look, tmp_path: Path) -> None:
    """Version 1 appends two orders, 2 updates one, 3 deletes one: 2 + 2 + 1 rows of the feed."""
    path = builders.orders_table(tmp_path / "lake" / "orders")
    feed = DeltaTable(str(path)).load_cdf(starting_version=1).read_all()
    found = look(source(path, "change feed"), offsets=[delta_offset(table_id(path), 1)])
    assert found.rows == feed.num_rows == 5
    assert (found.versions, found.is_caught_up) == (3, False)


def test_rows_without_statistics_are_unknown_and_no_zero(look: Look, tmp_path: Path) -> None:
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


def test_two_sources_add_up_whatever_their_order_in_the_plan(look: Look, table: Path, tmp_path: Path) -> None:
    other = builders.write(tmp_path / "lake" / "rates", {"id": [1, 2, 3]})
    offsets = [delta_offset(table_id(other), 0), delta_offset(table_id(table), 4)]
    found = look(source(table), replace(source(other), name="rates"), offsets=offsets)
    assert [each.rows for each in found.sources] == [50, 3]
    assert (found.rows, found.versions) == (53, 2)
    broken = look(source(table), replace(source(tmp_path / "lake" / "none"), name="gone"), offsets=offsets)
    assert (broken.rows, broken.is_caught_up) == (None, False)


def test_a_view_counts_versions(look: Look, table: Path) -> None:
    found = look(source(table), offsets=[json.dumps({str(table): 2})], kind="materialized view")
    assert (found.versions, found.rows, found.is_caught_up) == (2, None, False)
    done = look(source(table), offsets=[json.dumps({str(table): 4})], kind="materialized view")
    assert (done.versions, done.rows, done.is_caught_up) == (0, 0, True)


def note_read(tmp_path: Path, batch: int, file: Path) -> None:
    """An entry of the source's log: the file of a batch."""
    log = tmp_path / "checkpoints" / "silver" / "sources" / "0"
    log.mkdir(parents=True, exist_ok=True)
    entry = {"path": file.as_uri(), "timestamp": NOW.timestamp() * 1_000, "batchId": batch}
    (log / str(batch)).write_text(f"v1\n{json.dumps(entry)}")


def test_files_that_the_sources_log_does_not_name_wait_however_old_they_are(look: Look, tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    texts = {"a 1.json": "{}", "b.json": "{}\n{}", "day=1/c.json": "{}", "done/d.json": "{}", "_hidden": "", ".x": ""}
    for name, text in texts.items():
        (landing / name).parent.mkdir(parents=True, exist_ok=True)
        (landing / name).write_text(text)
    two_weeks_ago = NOW.timestamp() - 14 * 86_400
    os.utime(landing / "day=1" / "c.json", (two_weeks_ago, two_weeks_ago))
    note_read(tmp_path, 0, landing / "a 1.json")
    note_read(tmp_path, 1, landing / "b.json")
    files = StreamInput("files", "files in landing", str(landing))
    found = look(files, offsets=['{"logOffset":0}'])
    assert (found.files, found.size_bytes, found.rows) == (2, 7, None), "b.json was planned and never committed"
    with_folders = replace(files, options={"recursiveFileLookup": "true"})
    assert look(with_folders, offsets=['{"logOffset":0}']).files == 3
    done = look(files, offsets=['{"logOffset":1}'])
    assert (done.files, done.size_bytes) == (1, 2)
    (landing / "day=1" / "c.json").unlink()
    assert look(files, offsets=['{"logOffset":1}']).is_caught_up


@pytest.mark.parametrize("folder", ["land [1]", "land {a,b}", "land%20it"])
def test_folders_and_files_with_odd_names_are_counted(look: Look, tmp_path: Path, folder: str) -> None:
    landing = tmp_path / folder
    landing.mkdir()
    for name in ("a b.json", "c[1].json", "d%20e.json", "f{g}.json"):
        (landing / name).write_text("{}")
    files = StreamInput("files", f"files in {folder}", str(landing))
    assert look(files, offsets=None).files == 4
    note_read(tmp_path, 0, landing / "a b.json")
    assert look(files, offsets=['{"logOffset":0}']).files == 3


def test_what_nobody_can_count_is_unknown(look: Look, table: Path, tmp_path: Path) -> None:
    for counted, why in (
        (StreamInput("files", "files in x", "/elsewhere"), "outside every allowed root"),
        (StreamInput("files", "files in x", "/land/*.json"), "chosen by a pattern"),
        (StreamInput("kafka", "orders at broker"), "no host has asked the broker yet"),
    ):
        found = look(counted, offsets=["{}"])
        assert (found.files, found.rows, found.is_caught_up, found.behind_s) == (None, None, None, None)
        assert why in found.unknown
    (tmp_path / "checkpoints" / "silver" / "offsets" / "4").write_text("")
    damaged = look(source(table))
    assert (damaged.rows, damaged.is_caught_up) == (None, None)
    assert "offsets/4 is empty" in damaged.unknown


@pytest.mark.parametrize(("finished", "has_planned"), [(None, None), ([4], False), ([3], True), ([], True)])
def test_a_planned_batch_that_has_not_ended_is_known(
    tmp_path: Path, settings: Settings, finished: list[int] | None, has_planned: bool | None
) -> None:
    place = Path("/elsewhere/checkpoint")
    if finished is not None:
        place = write_checkpoint(tmp_path / "checkpoints" / "silver", {4: ['{"logOffset":0}']}, finished=finished)
    elsewhere = StreamInput("files", "files in x", "/elsewhere")
    declared = stream("silver", elsewhere, checkpoint_location=str(place))
    backlog = BacklogReader(settings, Lake(settings)).read(declared, [], now=NOW)
    assert backlog.has_planned is has_planned
    assert backlog.unknown


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def delta(version: int, index: int = -1, *, is_initial: bool = False) -> dict[str, object]:
    return {"reservoirId": "t", "reservoirVersion": version, "index": index, "isStartingVersion": is_initial}


def batch(ends_s: float, *ends: dict[str, object] | None, latest: Sequence[object] = ()) -> BatchEnd:
    sources = [{"endOffset": end} for end in ends]
    for source, newest in zip(sources, latest, strict=False):
        source["latestOffset"] = newest  # type: ignore[assignment]
    return ended_batch(at(ends_s), *sources)


COMMITS = [Arrival(version, at(10 * version), 2, 100, 20) for version in range(5)]


def test_what_lay_behind_an_offset_when_a_batch_ended() -> None:
    found = lags(
        [batch(25, delta(1)), batch(26, delta(3)), batch(45, delta(4, 0)), batch(46, delta(4, 1))], {0: COMMITS}
    )
    assert [(lag.behind_s, lag.rows) for lag in found] == [
        (15.0, 40),  # versions 1 and 2 were there
        (0.0, 0),  # version 3 was not yet
        (5.0, 20),  # one of its two files was read: it counts whole
        (0.0, 0),
    ]


def test_a_batch_without_known_offsets_has_no_lag() -> None:
    assert lags([batch(25, delta(1, is_initial=True)), batch(26, None), batch(27)], {0: COMMITS}) == ()
    broken = batch_end(Progress("s", "q", "r", 1, NOON, 1, None, None, 1, raw_json="{"))
    assert broken.positions == () and lags([broken], {0: COMMITS}) == ()


def test_files_wait_until_an_entry_of_the_log_that_was_read_names_them() -> None:
    files = [Arrival(0, at(0), 1, 10, None), Arrival(1, at(5), 1, 10, None), Arrival(UNREAD, at(8), 1, 10, None)]
    found = lags([batch(6, {"logOffset": 0}), batch(9, {"logOffset": 1})], {0: files})
    assert [(lag.behind_s, lag.rows) for lag in found] == [(1.0, None), (1.0, None)]


def test_after_the_last_batch_the_backlog_grows_with_each_arrival() -> None:
    found = lags_since(batch(5, delta(1)), {0: COMMITS}, at(35))
    assert [(lag.at, lag.rows) for lag in found] == [(at(5), 0), (at(10), 20), (at(20), 40), (at(30), 60), (at(35), 60)]
    many = [Arrival(version, at(version), 1, 1, 1) for version in range(5_000)]
    assert len(lags_since(batch(-1, delta(0)), {0: many}, at(6_000))) <= 260


def test_topics_tell_their_ends_and_no_times() -> None:
    (found,) = lags([batch(1, {"orders": {"0": 4, "1": 6}}, latest=[{"orders": {"0": 10, "1": 6}}])], {})
    assert (found.rows, found.behind_s) == (6, None)
    (done,) = lags([batch(1, {"orders": {"0": 10}}, latest=[{"orders": {"0": 10}}])], {})
    assert (done.rows, done.behind_s) == (0, 0.0)


def test_a_topic_is_counted_by_partition() -> None:
    source = StreamInput("kafka", "orders at broker")
    heard = TopicEnds(
        "s", source.name, NOON, firsts={"o": {0: 2, 1: 0}}, ends={"o": {0: 10, 1: 5}}, starts={"o": {0: 2, 1: 0}},
        unread={"o": {0: (4, at(-60))}}, retention_ms={"o": 120_000},
    )  # fmt: skip
    found = kafka_backlog(source, KafkaPosition({"o": {0: 4, 1: 5}}), heard, now=NOON)
    assert (found.rows, found.lost, found.oldest_unread_at) == (6, 0, at(-60))
    assert found.data_loss is not None and found.data_loss.at == at(60)
    begun = kafka_backlog(source, None, heard, now=NOON)
    assert (begun.rows, begun.oldest_unread_at) == (13, None), "times are those of another offset"
    assert kafka_backlog(source, KafkaPosition({"o": {0: 0, 1: 5}}), heard, now=NOON).lost == 2


def test_a_stream_that_read_on_since_the_host_asked_is_not_told_of_another_topic() -> None:
    source, there = StreamInput("kafka", "orders at broker"), {"o": {0: 0, 1: 0}}
    heard = TopicEnds("s", source.name, NOON, there, {"o": {0: 10, 1: 5}}, there, read={"o": {0: 4, 1: 5}})
    ahead = kafka_backlog(source, KafkaPosition({"o": {0: 13, 1: 5}}), heard, now=NOON)
    assert (ahead.rows, ahead.is_caught_up, ahead.unknown) == (0, True, "")
    anew = replace(heard, read={"o": {0: 11, 1: 5}})
    found = kafka_backlog(source, KafkaPosition({"o": {0: 11, 1: 5}}), anew, now=NOON)
    assert found.rows is None and "o-0 lies beyond its end: the topic was made anew" in found.unknown
    begun = kafka_backlog(source, KafkaPosition({"o": {0: 3, 1: 0}}), anew, now=NOON)
    assert (begun.rows, begun.unknown) == (12, ""), "the stream started over since"


def test_the_chart_ends_with_what_the_look_beside_it_saw() -> None:
    source = SourceBacklog("bronze", "table", rows=205, oldest_unread_at=at(-4))
    ran = (Lag(at(-20), 8.0, 300), Lag(at(-10), 9.0, 190), Lag(at(2), 5.0, 408))
    assert Backlog((source,), NOON).lags_until(ran) == (*ran[:2], Lag(NOON, 4.0, 205))
    assert Backlog((source,), NOON).lags_until(()) == ()
    unknown = Backlog((replace(source, rows=None, oldest_unread_at=None, unknown="gone"),), NOON)
    assert unknown.lags_until(ran) == ran


@pytest.mark.parametrize(
    ("rows", "drain_s"),
    [
        ([900, 700, 500, 300], 45.0),  # 600 in 30 s, and 900 wait now
        ([300, 500, 700, 900], None),
        ([103, 108, 99, 104, 101], None),  # it keeps up: what waits goes up and down
        ([900, 300], None),  # too few to tell
    ],
)
def test_a_drain_is_foretold_where_what_waits_surely_shrinks(rows: list[int], drain_s: float | None) -> None:
    ran = tuple(Lag(at(10 * place), None, each) for place, each in enumerate(rows))
    assert Backlog((SourceBacklog("bronze", "table", rows=900),), NOON, ran).drain_s == drain_s


def test_json_has_zeros_where_a_stream_is_caught_up_and_null_where_nobody_knows() -> None:
    source = StreamInput("kafka", "orders at broker")
    heard = TopicEnds("s", source.name, NOON, firsts={"o": {0: 0}}, ends={"o": {0: 5}}, starts={"o": {0: 0}})
    done = Backlog((kafka_backlog(source, KafkaPosition({"o": {0: 5}}), heard, now=NOON),), NOON)
    zeros = dict.fromkeys(("versions", "files", "bytes", "rows"), 0)
    assert encoded(done, SHAPES) == {**zeros, "oldest_unread_at": None, "drain_s": 0.0}
    waits = Backlog((kafka_backlog(source, KafkaPosition({"o": {0: 2}}), heard, now=NOON),), NOON)
    assert encoded(waits, SHAPES) == {**dict.fromkeys(zeros), "rows": 3, "oldest_unread_at": None, "drain_s": None}
    unknown = Backlog((kafka_backlog(source, None, None, now=NOON),), NOON)
    assert set(encoded(unknown, SHAPES).values()) == {None}


STREAMS = 7


@pytest.fixture(scope="module")
def large_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return large.make_lake(tmp_path_factory.mktemp("large"), large.STREAMS + 10)


@pytest.fixture
def large_settings(tmp_path: Path, large_lake: Path) -> Settings:
    return load_settings(home=tmp_path / "home", lake={"roots": [str(large_lake)]})


@pytest.fixture
def large_store(large_settings: Settings, large_lake: Path) -> Iterator[ControlStore]:
    opened = large.make_streams(large_settings, large_lake, streams=STREAMS, now=NOW)
    yield opened
    opened.close()


def test_each_owned_stream_is_kept_as_a_look_sees_it(
    large_settings: Settings, large_store: ControlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlogs, "AT_ONCE", 2)
    declared, owned = list(large_store.declarations().values()), [large.stream_name(number) for number in range(5)]
    look, lake = (
        BacklogReader(large_settings, Lake(large_settings), keep_s=0),
        {stream.name: stream for stream in declared},
    )
    streams = [lake[name] for name in owned]
    rounds_of(partial(keep_backlogs, look, large_store, streams, lambda: NOW)).once()
    seen = {name: look.read(lake[name], large_store.progress(name, limit=10), now=NOW) for name in owned}
    assert large_store.backlogs() == seen
    assert [seen[name].versions for name in owned] == [1, 0, 0, 1, 0]
    assert all(len(seen[name].lags) == 10 for name in owned)
