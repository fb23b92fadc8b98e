"""Whether a stream can go on, by hand-made checkpoints over real tables: each fault is named before the start."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Field, Transaction
from deltalake.schema import PrimitiveType

from backend.access import Actor
from backend.lake.lake import Lake
from backend.lake.table.properties import KEYS
from backend.settings import load_settings
from backend.store.leases import stream_resource
from backend.store.store import ControlStore
from backend.stream_model.stream import (
    DeclaredTable,
    DesiredState,
    HostHeartbeat,
    Observed,
    Output,
    StreamDeclaration,
    StreamFailure,
    StreamInput,
    StreamState,
    TopicEnds,
)
from backend.streams import faults
from backend.streams.faults import Fault
from backend.streams.preflight.model import Check, Outcome, Preflight
from backend.streams.preflight.reading import MOST_FILES, preflight
from tests.worlds.lake.builders import CHANGE_FEED, write
from tests.worlds.streams.checkpoints import QUERY_ID, declare_anew, delta_offset, write_checkpoint

NOW = datetime.now(UTC)
NAME = "silver_events"
SOURCE = "bronze/events"


@dataclass
class World:
    """bronze/events with three commits, of which a stream has read two, in batches 0 and 1; its sink has both."""

    home: Path
    store: ControlStore

    @property
    def source(self) -> Path:
        return self.home / "lake" / "bronze" / "events"

    @property
    def sink(self) -> Path:
        return self.home / "lake" / "silver" / "events"

    @property
    def checkpoint(self) -> Path:
        return self.home / "checkpoints" / NAME

    @property
    def table_id(self) -> str:
        return DeltaTable(str(self.source)).metadata().id

    def declaration(self, name: str = NAME, kind: str = "table", **options: str) -> StreamDeclaration:
        source = StreamInput(kind, SOURCE, str(self.source), options)
        place = str(self.home / "checkpoints" / name)
        sink = str(self.sink)
        return StreamDeclaration(name, "", "", sink, "silver/events", (), None, 0, place, inputs=(source,))

    def declare(self, *declared: StreamDeclaration) -> None:
        declare_anew(self.store, *declared, now=NOW)

    def stand(self, version: int, index: int = -1, *, is_initial: bool = False, begun: int = 1) -> None:
        """The position after batch 1, and where that began."""
        first = delta_offset(self.table_id, begun)
        write_checkpoint(
            self.checkpoint, {0: [first], 1: [delta_offset(self.table_id, version, index, is_initial=is_initial)]}
        )

    def check(self) -> Preflight:
        settings = load_settings(home=self.home)
        return preflight(settings, Lake(settings), self.store, NAME, now=NOW)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    (tmp_path / "store").mkdir()
    store = ControlStore(f"sqlite:///{tmp_path / 'store' / 'weir.db'}")
    made = World(tmp_path, store)
    for first in (0, 10, 20):
        append(made.source, first)
    wrote = CommitProperties(app_transactions=[Transaction(QUERY_ID, 1)])
    write(made.sink, {"id": [0]}, commit_properties=wrote)
    made.declare(made.declaration())
    store.beat(HostHeartbeat("host-1", "box", 1, NOW, NOW))
    made.stand(2)
    yield made
    store.close()


def append(table: Path, first: int) -> None:
    write(table, {"id": [first, first + 1], "name": ["a", "b"]})


def of(found: Preflight, name: str) -> Check:
    (check,) = [each for each in found.checks if each.name in (name, f"{name} of {SOURCE}")]
    return check


def test_a_sound_stream_passes_every_check(world: World) -> None:
    found = world.check()
    assert {check.name: check.outcome for check in found.checks} == {
        "checkpoint": Outcome.OK,
        "definition": Outcome.OK,
        "owner": Outcome.OK,
        "other streams": Outcome.OK,
        f"table id of {SOURCE}": Outcome.OK,
        f"start version of {SOURCE}": Outcome.OK,
        f"unread files of {SOURCE}": Outcome.OK,
        f"schema of {SOURCE}": Outcome.OK,
        f"changed rows of {SOURCE}": Outcome.OK,
        "sink": Outcome.OK,
        "room for state": Outcome.OK,
    }
    assert found.ok
    assert of(found, faults.START_VERSION).detail == "The stream goes on with v2 of 2; the log still has all from v1 on"
    assert "1 unread file, none of them replaced" in of(found, faults.UNREAD_FILES).detail


def test_a_stream_that_never_ran_has_an_empty_checkpoint_and_no_position(world: World) -> None:
    world.declare(replace(world.declaration("fresh"), sink_uri=str(world.home / "lake" / "none")))
    settings = load_settings(home=world.home)
    found = preflight(settings, Lake(settings), world.store, "fresh", now=NOW)
    assert found.ok
    assert "empty" in of(found, faults.CHECKPOINT).detail
    assert "no position" in of(found, faults.READABLE).detail
    assert "not there yet" in of(found, faults.SINK).detail


# the checkpoint ------------------------------------------------------------------------------------------------------


def remove(world: World, *names: str) -> None:
    for name in names:
        (world.checkpoint / name).unlink()


def empty_offsets(world: World) -> None:
    remove(world, "commits/1")
    (world.checkpoint / "offsets" / "1").write_text("")


def garbage_metadata(world: World) -> None:
    (world.checkpoint / "metadata").write_text("{half")


def empty_commit(world: World) -> None:
    (world.checkpoint / "commits" / "1").write_text("")


@pytest.mark.parametrize(
    ("inject", "fault", "said"),
    [
        (empty_offsets, faults.OFFSETS_DAMAGED, "offsets/1 is empty: its writer was cut off; batch 1 has no commit"),
        (lambda w: remove(w, "offsets/0"), faults.OFFSETS_DAMAGED, "offsets/0 is missing; batch 0 has a commit"),
        (empty_commit, faults.OFFSETS_DAMAGED, "commits/1 is empty"),
        (garbage_metadata, faults.METADATA_GARBAGE, "metadata is not JSON"),
        (
            lambda w: remove(w, "metadata"),
            faults.METADATA_MISSING,
            "metadata is missing, though the checkpoint has batch 1",
        ),
        (lambda w: remove(w, "offsets/1"), faults.OFFSETS_MISSING, "offsets/1 is missing, and commits/1 is there"),
    ],
)
def test_damage_of_the_checkpoint_names_the_file(
    world: World, inject: Callable[[World], None], fault: Fault, said: str
) -> None:
    assert world.check().ok
    inject(world)
    found = world.check()
    check = of(found, faults.CHECKPOINT)
    assert not found.ok
    assert (check.outcome, check.remedy) == (Outcome.FAILED, fault.remedy)
    assert said in check.detail


def test_without_commits_the_last_batch_is_replayed_and_that_is_a_warning(world: World) -> None:
    remove(world, "commits/0", "commits/1")
    found = world.check()
    assert found.ok
    assert of(found, faults.REPLAY) == Check(
        "last batch", Outcome.WARNING, "No batch has a commit: batch 1 runs again", faults.COMMITS_GONE.remedy
    )


def test_a_checkpoint_that_may_not_be_opened_is_unknown(world: World) -> None:
    world.declare(replace(world.declaration(), checkpoint_location="/elsewhere/cp"))
    found = world.check()
    assert of(found, faults.CHECKPOINT).outcome is Outcome.UNKNOWN
    assert of(found, faults.READABLE).outcome is Outcome.UNKNOWN
    assert found.ok, "what is not known fails nothing"


def test_a_file_that_the_disk_does_not_give_is_unknown_and_no_damage(world: World) -> None:
    remove(world, "offsets/1")
    (world.checkpoint / "offsets" / "1").mkdir()
    check = of(world.check(), faults.CHECKPOINT)
    assert check.outcome is Outcome.UNKNOWN
    assert "offsets/1 cannot be read" in check.detail


# the source ----------------------------------------------------------------------------------------------------------


def recreate(world: World) -> None:
    world.source.rename(world.source.with_name("old"))
    for first in (0, 10, 20):
        append(world.source, first)


def test_a_source_made_anew_is_told_by_both_ids(world: World) -> None:
    before = world.table_id
    recreate(world)
    check = of(world.check(), faults.TABLE_ID)
    assert (check.outcome, check.remedy) == (Outcome.FAILED, faults.SOURCE_RECREATED.remedy)
    assert before in check.detail
    assert world.table_id in check.detail


def clean_log(world: World, *versions: int) -> None:
    DeltaTable(str(world.source)).create_checkpoint()
    for version in versions:
        (world.source / "_delta_log" / f"{version:020d}.json").unlink()


def test_a_log_cleaned_beyond_the_position_says_how_many_versions_are_lost(world: World) -> None:
    append(world.source, 30)
    world.stand(1)
    clean_log(world, 0, 1, 2)
    check = of(world.check(), faults.START_VERSION)
    assert check.outcome is Outcome.FAILED
    assert check.detail == "A start needs the log from v1 on. 2 versions are no longer in the log (v1 to v2)"
    world.declare(world.declaration(failOnDataLoss="false"))
    assert of(world.check(), faults.START_VERSION).outcome is Outcome.WARNING


def test_all_of_the_rest_of_the_log_may_be_gone(world: World) -> None:
    clean_log(world, 0, 1, 2)
    assert of(world.check(), faults.START_VERSION).detail.endswith("2 versions are no longer in the log (v1 to v2)")


def test_a_stream_that_has_read_all_waits_for_the_next_version(world: World) -> None:
    world.stand(3, begun=3)
    clean_log(world, 0, 1, 2)
    found = world.check()
    assert found.ok
    assert of(found, faults.START_VERSION).detail == "All is read: the stream waits for v3"


def test_the_last_batch_is_planned_again_so_its_commits_are_needed_too(world: World) -> None:
    world.stand(3, begun=2)
    assert world.check().ok
    clean_log(world, 0, 1, 2)
    check = of(world.check(), faults.START_VERSION)
    assert check.outcome is Outcome.FAILED
    assert "from v2 on, where Spark plans the last batch again. 1 version is no longer in the log (v2)" in check.detail


def test_the_snapshot_that_a_batch_began_with_must_be_there(world: World) -> None:
    write_checkpoint(world.checkpoint, {0: [delta_offset(world.table_id, 1, 0, is_initial=True)], 1: ["{}"]})
    write_checkpoint(world.checkpoint, {1: [delta_offset(world.table_id, 2)]})
    assert world.check().ok
    clean_log(world, 0, 1)
    check = of(world.check(), faults.START_VERSION)
    assert check.outcome is Outcome.FAILED
    assert "A start needs the log from v1 on" in check.detail


def test_an_unread_file_that_vacuum_took_is_named(world: World) -> None:
    world.stand(1)
    (old,) = [each["path"] for each in _adds(world.source, 1)]
    DeltaTable(str(world.source)).optimize.compact()
    DeltaTable(str(world.source)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    check = of(world.check(), faults.UNREAD_FILES)
    assert (check.outcome, check.remedy) == (Outcome.FAILED, faults.FILE_VACUUMED.remedy)
    assert old in check.detail
    assert "2 files are gone (looked for 2 of 2 unread files, 2 of them replaced since)" in check.detail


def _adds(table: Path, version: int) -> list[dict[str, str]]:
    log = (table / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    return [each["add"] for each in map(json.loads, log) if "add" in each]


def test_files_of_the_first_snapshot_count_as_unread(world: World) -> None:
    world.stand(1, 0, is_initial=True)
    lost = [each["path"] for version in (0, 1) for each in _adds(world.source, version)]
    check = of(world.check(), faults.UNREAD_FILES)
    assert "looked for 2 of 2 unread files" in check.detail, "one of the snapshot's two, one appended since"
    (world.source / lost[0]).unlink()
    assert world.check().ok, "it was read"
    (world.source / lost[1]).unlink()
    assert lost[1] in of(world.check(), faults.UNREAD_FILES).detail


def test_of_many_unread_files_it_says_how_many_were_looked_for(world: World) -> None:
    rows = {"id": list(range(MOST_FILES + 5)), "name": ["a"] * (MOST_FILES + 5)}
    many = world.home / "lake" / "bronze" / "many"
    write(many, rows, partition_by=["id"])
    source = StreamInput("table", SOURCE, str(many))
    world.declare(replace(world.declaration(), inputs=(source,)))
    write_checkpoint(world.checkpoint, {1: [delta_offset(DeltaTable(str(many)).metadata().id, 0)], 0: ["{}"]})
    check = of(world.check(), faults.UNREAD_FILES)
    assert check.outcome is Outcome.OK
    assert f"looked for {MOST_FILES} of {MOST_FILES + 5} unread files" in check.detail


def test_added_columns_ahead_are_a_warning_with_version_operation_and_column(world: World) -> None:
    DeltaTable(str(world.source)).alter.add_columns([Field("amount", PrimitiveType("double"))])
    check = of(world.check(), faults.SCHEMA)
    assert check.outcome is Outcome.WARNING
    assert check.detail.startswith("v3 (ADD COLUMN) ahead: adds amount (double)")


def test_a_column_of_another_type_ahead_fails(world: World) -> None:
    rows = pa.table({"id": pa.array(["x"]), "name": pa.array(["y"])})
    write(world.source, rows, mode="overwrite", schema_mode="overwrite")
    found = world.check()
    assert "type of id: long → string" in of(found, faults.SCHEMA).detail
    assert of(found, faults.SCHEMA).outcome is Outcome.FAILED
    world.stand(4)
    assert world.check().ok, "behind the position it is no matter"


def test_changed_rows_ahead_fail_unless_the_options_pass_them(world: World) -> None:
    DeltaTable(str(world.source)).delete("id = 0")
    check = of(world.check(), faults.APPENDS)
    assert (check.outcome, check.remedy) == (Outcome.FAILED, faults.ROWS_CHANGED.remedy)
    assert check.detail == "v3 (DELETE) takes out 1 file"
    for option, outcome in (
        ("skipChangeCommits", Outcome.OK),
        ("ignoreChanges", Outcome.WARNING),  # the file's other row comes again
        ("ignoreDeletes", Outcome.FAILED),  # the file's other row is written anew
    ):
        world.declare(world.declaration(**{option: "true"}))
        assert of(world.check(), faults.APPENDS).outcome is outcome, option
    world.stand(4)
    world.declare(world.declaration())
    assert of(world.check(), faults.APPENDS).outcome is Outcome.OK


def test_whole_files_deleted_pass_with_ignore_deletes(world: World) -> None:
    DeltaTable(str(world.source)).delete("id >= 20")
    assert not world.check().ok
    world.declare(world.declaration(ignoreDeletes="true"))
    assert world.check().ok


def test_a_compaction_changes_no_rows(world: World) -> None:
    DeltaTable(str(world.source)).optimize.compact()
    assert of(world.check(), faults.APPENDS).outcome is Outcome.OK


def test_the_change_feed_may_bring_every_kind_of_commit(world: World) -> None:
    feed = world.home / "lake" / "bronze" / "feed"
    write(feed, {"id": [1, 2]}, configuration=CHANGE_FEED)
    DeltaTable(str(feed)).delete("id = 1")
    world.declare(replace(world.declaration(), inputs=(StreamInput("change feed", SOURCE, str(feed)),)))
    write_checkpoint(world.checkpoint, {0: ["{}"], 1: [delta_offset(DeltaTable(str(feed)).metadata().id, 0)]})
    found = world.check()
    assert found.ok
    assert "looked for 2 of 2 unread files" in of(found, faults.UNREAD_FILES).detail, "one of data, one of changes"
    assert faults.APPENDS not in " ".join(check.name for check in found.checks)
    for file in (feed / "_change_data").glob("*"):
        file.unlink()
    assert of(world.check(), faults.UNREAD_FILES).outcome is Outcome.FAILED


def test_two_tables_are_told_apart_by_their_ids(world: World) -> None:
    side = world.home / "lake" / "bronze" / "side"
    append(side, 0)
    inputs = (StreamInput("table", "bronze/side", str(side)), *world.declaration().inputs)
    world.declare(replace(world.declaration(), inputs=inputs))
    check = of(world.check(), faults.DEFINITION)
    assert (check.outcome, check.remedy) == (Outcome.FAILED, faults.SOURCES_CHANGED.remedy)
    assert check.detail == "It reads 2 sources, the checkpoint has 1"
    places = [delta_offset(world.table_id, 2), delta_offset(DeltaTable(str(side)).metadata().id, 1)]
    write_checkpoint(world.checkpoint, {0: places, 1: places})
    found = world.check()
    assert found.ok
    assert "v2 of 2" in of(found, faults.START_VERSION).detail
    assert "All is read" in of(found, "start version of bronze/side").detail


def test_a_source_that_is_gone_fails_and_one_outside_the_roots_is_unknown(world: World) -> None:
    world.source.rename(world.home / "moved")
    assert of(world.check(), faults.READABLE).outcome is Outcome.FAILED
    outside = StreamInput("table", SOURCE, "/elsewhere/table")
    world.declare(replace(world.declaration(), inputs=(outside,)))
    assert of(world.check(), faults.READABLE).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("kind", "folder", "outcome"),
    [
        ("files", "landing", Outcome.OK),
        ("files", "nowhere", Outcome.FAILED),
        ("files", "landing/*.json", Outcome.UNKNOWN),
        ("files", "/", Outcome.UNKNOWN),
    ],
)
def test_sources_without_a_log_are_looked_at_as_far_as_can_be(
    world: World, kind: str, folder: str, outcome: Outcome
) -> None:
    (world.home / "landing").mkdir()
    uri = str(world.home / folder) if folder else ""
    world.declare(replace(world.declaration(), inputs=(StreamInput(kind, SOURCE, uri),)))
    check = of(world.check(), faults.READABLE)
    assert check.outcome is outcome
    assert check.detail


@pytest.mark.parametrize("name", ["cut.json.gz", "cut [1].json.gz"])
def test_a_file_that_the_stream_ended_at_stands_against_a_start_until_it_is_another(world: World, name: str) -> None:
    landing = world.home / "land ing"
    landing.mkdir()
    (landing / name).write_bytes(b"x")
    os.utime(landing / name, times=(NOW.timestamp(), NOW.timestamp()))
    world.declare(replace(world.declaration(), inputs=(StreamInput("files", SOURCE, str(landing)),)))
    message = (
        f"[FAILED_READ_FILE.NO_HINT] Encountered error while reading file {(landing / name).as_uri()}. SQLSTATE: KD001"
    )
    later = NOW + timedelta(minutes=1)
    end_with(world, StreamFailure("FAILED_READ_FILE.NO_HINT", message, 1, later))
    check = of(world.check(), faults.UNREAD_FILES)
    assert (check.outcome, check.remedy) == (Outcome.FAILED, faults.FILE_UNREADABLE.remedy)
    assert check.detail == f"The stream ended at {landing / name}, which has not changed since"
    os.utime(landing / name, times=(later.timestamp() + 1, later.timestamp() + 1))
    assert world.check().ok, "another file lies there"
    (landing / name).unlink()
    assert world.check().ok


@pytest.mark.parametrize("newest", ["7", "9.compact"])
def test_a_checkpoint_whose_files_lie_in_another_folder_stands_against_a_start(world: World, newest: str) -> None:
    """A host whose folder has another path: the batch that was planned fails there, and every file would be new."""
    landing, theirs = world.home / "landing", "/mnt/a/landing"
    landing.mkdir()
    world.declare(replace(world.declaration(), inputs=(StreamInput("files", SOURCE, str(landing)),)))
    write_checkpoint(world.checkpoint, {batch: ['{"logOffset":7}'] for batch in (0, 1)})
    log = world.checkpoint / "sources" / "0"
    log.mkdir(parents=True)
    for name, folder in (("6", landing), (newest, theirs)):
        entry = {"path": f"file://{folder}/1.json", "timestamp": 1, "batchId": 7}
        (log / name).write_text(f"v1\n{json.dumps(entry)}")
    check = of(world.check(), faults.UNREAD_FILES)
    assert (check.outcome, check.remedy) == (Outcome.FAILED, faults.FOLDER_ELSEWHERE.remedy)
    assert check.detail == f"The checkpoint names {theirs}/1.json, which is not below {landing}"
    (log / newest).write_text((log / "6").read_text())
    assert world.check().ok


def end_with(world: World, failure: StreamFailure) -> None:
    lease = world.store.acquire(stream_resource(NAME), "host-1", ttl_s=60)
    assert lease
    seen = Observed(NAME, StreamState.FAILED, "host-1", 1, NOW, failures=(failure,))
    world.store.observe(seen, token=lease.token)


TOPIC = StreamInput("kafka", SOURCE)


@pytest.mark.parametrize(
    ("heard", "outcome", "said"),
    [
        (None, Outcome.UNKNOWN, "no host has asked the broker yet"),
        (TopicEnds(NAME, SOURCE, NOW, problem="refused"), Outcome.UNKNOWN, "refused"),
        (TopicEnds(NAME, SOURCE, NOW, {"t": {0: 0}}, {"t": {0: 12}}), Outcome.OK, "5 records unread, none of them"),
        (TopicEnds(NAME, SOURCE, NOW, {"t": {0: 9}}, {"t": {0: 12}}), Outcome.FAILED, "2 records were deleted before"),
        (TopicEnds(NAME, SOURCE, NOW, {"t": {0: 0}}, {"t": {0: 3}}), Outcome.OK, "0 records unread"),  # it read on
        (
            TopicEnds(NAME, SOURCE, NOW, {"t": {0: 0}}, {"t": {0: 3}}, read={"t": {0: 7}}),
            Outcome.FAILED,
            "the topic was made anew",
        ),
        (
            TopicEnds(NAME, SOURCE, NOW - timedelta(hours=2), {"t": {0: 0}}, {"t": {0: 12}}),
            Outcome.UNKNOWN,
            "last asked the broker 2 h ago",
        ),
    ],
)
def test_topics_are_judged_by_what_a_host_heard(
    world: World, heard: TopicEnds | None, outcome: Outcome, said: str
) -> None:
    world.declare(replace(world.declaration(), inputs=(TOPIC,)))
    write_checkpoint(world.checkpoint, {0: ['{"t":{"0":2}}'], 1: ['{"t":{"0":7}}']})
    if heard:
        world.store.note_ends(heard)
    check = of(world.check(), faults.RECORDS)
    assert (check.outcome, said in check.detail) == (outcome, True), check
    if outcome is Outcome.FAILED:
        assert check.remedy == faults.RECORDS_LOST.remedy
        world.declare(replace(world.declaration(), inputs=(replace(TOPIC, options={"failOnDataLoss": "false"}),)))
        assert of(world.check(), faults.RECORDS).outcome is Outcome.WARNING


# sink, owners --------------------------------------------------------------------------------------------------------


def test_an_older_checkpoint_beside_a_newer_sink_fails(world: World) -> None:
    wrote = CommitProperties(app_transactions=[Transaction(QUERY_ID, 7)])
    write(world.sink, {"id": [1]}, commit_properties=wrote)
    check = of(world.check(), faults.SINK)
    assert (check.outcome, check.remedy) == (Outcome.FAILED, faults.OLD_CHECKPOINT.remedy)
    assert check.detail == "The table has batch 7 of this query, the checkpoint ends with batch 1"


def test_batches_of_foreach_batch_are_known_by_their_stamp(world: World) -> None:
    wrote = CommitProperties(app_transactions=[Transaction(f"{NAME}:{QUERY_ID}", 7)])
    write(world.sink, {"id": [1]}, commit_properties=wrote)
    assert "batch 7" in of(world.check(), faults.SINK).detail


def test_every_table_that_takes_the_rows_is_looked_at(world: World) -> None:
    also = Output("gold/events", str(world.home / "lake" / "gold" / "events"), "append")
    world.declare(replace(world.declaration(), also=(also,)))
    gone = of(world.check(), faults.SINK)
    wrote = CommitProperties(app_transactions=[Transaction(f"{NAME}:{QUERY_ID}", 7)])
    write(Path(also.uri), {"id": [1]}, commit_properties=wrote)
    ahead = of(world.check(), faults.SINK)
    assert gone.outcome is not Outcome.OK and gone.detail != ahead.detail
    assert (ahead.outcome, "batch 7" in ahead.detail) == (Outcome.FAILED, True)


def test_other_keys_than_those_of_the_rows_stand_against_a_start(world: World) -> None:
    def declare(*keys: str) -> Check:
        table = DeclaredTable("silver/events", str(world.sink), keys=keys)
        world.declare(replace(world.declaration(), tables=(table,)))
        return of(world.check(), faults.SINK)

    assert declare("id").outcome is Outcome.OK, "the table notes none"
    DeltaTable(str(world.sink)).alter.set_table_properties({KEYS: "id, Region"}, raise_if_not_exists=False)
    assert declare("region", "id").outcome is Outcome.OK
    check = declare("id")
    assert (check.outcome, check.remedy) == (Outcome.FAILED, faults.KEYS_CHANGED.remedy)
    assert "by the keys id, Region" in check.detail
    DeltaTable(str(world.sink)).delete()
    assert declare("id").outcome is Outcome.OK, "nothing is there to be found"


def test_an_empty_checkpoint_beside_a_full_table_is_a_warning(world: World) -> None:
    world.checkpoint.rename(world.home / "aside")
    check = of(world.check(), faults.SINK)
    assert check.outcome is Outcome.WARNING
    assert "holds 1 file: all is written again" in check.detail


def test_a_sink_that_is_gone_fails(world: World) -> None:
    world.sink.rename(world.home / "aside")
    assert of(world.check(), faults.SINK).outcome is Outcome.FAILED


def hold(world: World, name: str, host: str, *, silent_s: float = 0) -> None:
    world.store.beat(HostHeartbeat(host, "box", 2, NOW, NOW - timedelta(seconds=silent_s)))
    world.store.ensure_desired(name, DesiredState.RUNNING, now=NOW)
    assert world.store.acquire(stream_resource(name), host, ttl_s=60)


def test_another_stream_on_the_same_checkpoint_is_named(world: World) -> None:
    twin = replace(world.declaration("twin"), checkpoint_location=f"{world.checkpoint}/", sink_uri="/other")
    world.declare(world.declaration(), twin)
    assert of(world.check(), faults.OTHERS).outcome is Outcome.WARNING
    world.store.ensure_desired("twin", DesiredState.RUNNING, now=NOW)
    check = of(world.check(), faults.OTHERS)
    assert (check.outcome, check.remedy) == (Outcome.FAILED, faults.SECOND_START.remedy)
    assert check.detail == "twin has the same checkpoint and is wanted running"


def test_a_sink_that_another_host_writes_is_refused_by_name(world: World) -> None:
    world.declare(world.declaration(), world.declaration("twin"))
    hold(world, "twin", "host-2")
    check = of(world.check(), faults.OTHERS)
    assert (check.outcome, check.remedy) == (Outcome.FAILED, faults.SINK_LEASED.remedy)
    assert check.detail == "twin writes the same table; host host-2 runs it"
    hold(world, NAME, "host-2")
    assert of(world.check(), faults.OTHERS).outcome is Outcome.WARNING


def test_a_lease_says_who_holds_it_and_whether_that_host_lives(world: World) -> None:
    hold(world, NAME, "host-2")
    assert of(world.check(), faults.OWNER).detail == "Host host-2 holds the lease and is alive"
    world.store.beat(HostHeartbeat("host-2", "box", 2, NOW, NOW - timedelta(minutes=2)))
    check = of(world.check(), faults.OWNER)
    assert check.outcome is Outcome.WARNING
    assert "host-2" in check.detail
    assert "silent for 2 min" in check.detail


def test_a_stream_whose_tag_no_live_host_has_is_told(world: World) -> None:
    world.declare(replace(world.declaration(), tags={"host": "gpu"}))
    check = of(world.check(), faults.OWNER)
    assert (check.outcome, check.detail) == (Outcome.WARNING, "No host with the tag gpu is up")
    world.store.beat(HostHeartbeat("host-2", "box", 2, NOW, NOW, tags=("gpu",)))
    assert of(world.check(), faults.OWNER).detail == "The lease is free; 1 host can take it"


def test_without_a_live_host_nobody_starts_it(world: World) -> None:
    world.store.beat(HostHeartbeat("host-1", "box", 1, NOW, NOW - timedelta(hours=1)))
    assert of(world.check(), faults.OWNER).outcome is Outcome.WARNING


def test_a_declaration_that_changed_is_told_before_the_start(world: World) -> None:
    said = {"catalog.team_name": "sales", "delta.enableChangeDataFeed": "true"}
    tables = (DeclaredTable("silver/events", str(world.sink), "Events", said, ("id",)), DeclaredTable("none", "/no"))
    world.declare(replace(world.declaration(), tables=tables))
    at_once, *waiting = (check for check in world.check().checks if check.name == faults.TABLES)
    assert at_once.outcome is Outcome.OK
    assert at_once.detail == (
        "A start sets comment of silver/events: not set → Events; catalog.team_name of silver/events: not set → sales"
    )
    assert [check.outcome for check in waiting] == [Outcome.WARNING] * 2
    assert "delta.enableChangeDataFeed of silver/events: not set → true: it raises" in waiting[0].detail
    assert 'weir restart silver_events --set "table_changes=delta.enableChangeDataFeed"' in waiting[0].remedy
    assert "cluster_by of silver/events: not set → id: it raises" in waiting[1].detail

    word = {NAME: {"table_changes": "delta.enableChangeDataFeed"}}
    world.store.ensure_desired(NAME, DesiredState.RUNNING, now=NOW)
    world.store.request_all([NAME], "restart", reason="wanted", actor=Actor("ana"), now=NOW, overrides=word)
    at_once, waiting_still = (check for check in world.check().checks if check.name == faults.TABLES)
    assert "delta.enableChangeDataFeed of silver/events: not set → true" in at_once.detail
    assert '--set "table_changes=cluster_by,delta.enableChangeDataFeed"' in waiting_still.remedy


def test_a_database_beside_a_stream_is_none_of_its_sources(world: World) -> None:
    declared = world.declaration()
    customers = StreamInput("jdbc", "customers at db/shop")
    world.declare(replace(declared, inputs=(*declared.inputs, customers)))
    assert of(world.check(), faults.DEFINITION).outcome is Outcome.OK


def test_nobody_here_can_look_into_a_function_that_writes(world: World) -> None:
    world.declare(replace(world.declaration(), sink="foreach_batch", outside="shop.save"))
    sink = of(world.check(), faults.SINK)
    assert (sink.outcome, sink.detail) == (Outcome.UNKNOWN, "function shop.save: nobody here can look")
