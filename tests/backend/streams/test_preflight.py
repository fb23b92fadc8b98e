"""Whether a stream can go on, told before its start: by evidence made by hand, and over real checkpoints and tables."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Field, Transaction
from deltalake.schema import PrimitiveType

from backend.access import Actor
from backend.lake.lake import Lake
from backend.lake.model import Commit, Metadata, OperationMetrics
from backend.lake.storage.storage import declared_folder
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
from backend.streams.faults import Check, Fault, Outcome, Preflight
from backend.streams.preflight import LEAST_ROOM_BYTES, lost_state, preflight, room_for
from backend.streams.preflight_sources import MOST_FILES, Unread, check_files, check_rows, check_schema
from tests.worlds.lake.builders import CHANGE_FEED, write
from tests.worlds.store.stream_store import open_store
from tests.worlds.store.values import leased
from tests.worlds.streams.checkpoints import QUERY_ID, declare_anew, delta_offset, write_checkpoint
from tests.worlds.streams.values import stream

SOURCE = "bronze/events"
BASE = {"id": "long", "name": "string"}


def metadata(columns: dict[str, str], *, required: tuple[str, ...] = (), note: str = "") -> Metadata:
    fields = [
        {"name": name, "type": kind, "nullable": name not in required, "metadata": {"comment": note} if note else {}}
        for name, kind in columns.items()
    ]
    return Metadata("t-1", json.dumps({"type": "struct", "fields": fields}))


def commit(version: int, operation: str = "WRITE", changed: Metadata | None = None) -> Commit:
    at = datetime(2026, 11, 20, tzinfo=UTC)
    return Commit(version, at, operation, {}, OperationMetrics(), {}, None, None, None, metadata=changed)


def test_columns_ahead() -> None:
    base, required = metadata(BASE), metadata(BASE, required=("id",))
    for before, after, outcome, detail in (
        (base, metadata({**BASE, "x": "date"}), Outcome.WARNING, "adds x (date)"),
        (base, metadata({"id": "long"}), Outcome.FAILED, "drops name (string)"),
        (base, metadata({**BASE, "id": "string"}), Outcome.FAILED, "type of id: long → string"),
        (base, required, Outcome.FAILED, "nullability of id: nullable → not null"),
        (required, base, Outcome.OK, "what no row depends on"),
        (base, metadata(BASE, note="n"), Outcome.OK, "what no row depends on"),
        (base, base, Outcome.OK, "No unread commit changes"),
        (None, base, Outcome.UNKNOWN, "no longer in the log"),
    ):
        check = check_schema(SOURCE, before, after, [Unread(commit(7, "ADD COLUMNS", after), 0, 0)])
        is_told = outcome in (Outcome.WARNING, Outcome.FAILED)
        assert (check.outcome, check.remedy) == (outcome, faults.SCHEMA_CHANGED.remedy if is_told else "")
        assert detail in check.detail


def test_columns_that_change_and_change_back_fail_too() -> None:
    changed, back = commit(6, changed=metadata({"id": "string"})), commit(7, changed=metadata(BASE))
    ahead = [Unread(changed, 1, 0), Unread(back, 1, 0)]
    check = check_schema(SOURCE, metadata(BASE), metadata(BASE), ahead)
    assert check.outcome is Outcome.FAILED
    assert "v6 (WRITE), v7 (WRITE) ahead" in check.detail


def test_what_was_not_looked_at_is_not_claimed() -> None:
    paths, far = [f"f{number}" for number in range(900)], ", as far as was looked: v5 of 9"
    check = check_files(SOURCE, paths, set(paths[400:]), lambda chosen: [True] * len(chosen), far)
    assert check.outcome is Outcome.UNKNOWN, "any of the other 300 may be gone"
    assert "500 of them replaced since, as far as was looked" in check.detail
    ahead = [Unread(commit(5), 1, 0)]
    for check in (
        check_rows(StreamInput("table", SOURCE), ahead, far),
        check_schema(SOURCE, None, metadata(BASE), ahead, far),
    ):
        assert check.outcome is Outcome.OK and check.detail.endswith("as far as was looked: v5 of 9")


def test_commits_that_take_rows_away() -> None:
    for files, option, fault, outcome in (
        (0, "", faults.ROWS_DELETED, Outcome.FAILED),
        (0, "ignoreDeletes", None, Outcome.OK),
        (0, "ignoreChanges", None, Outcome.OK),
        (2, "", faults.ROWS_CHANGED, Outcome.FAILED),
        (2, "ignoreDeletes", faults.ROWS_CHANGED, Outcome.FAILED),
        (2, "ignoreChanges", faults.ROWS_CHANGED, Outcome.WARNING),
        (2, "skipChangeCommits", None, Outcome.OK),
    ):
        source = StreamInput("table", SOURCE, options={option: "true"} if option else {})
        check = check_rows(source, [Unread(commit(5), 1, 0), Unread(commit(6, "DELETE"), files, 3)])
        assert (check.outcome, check.remedy) == (outcome, fault.remedy if fault else "")
        assert "v6 (DELETE) takes out 3 files" in check.detail
        assert ("most of them once more" in check.detail) is (outcome is Outcome.WARNING)


@pytest.mark.parametrize(
    ("lose", "said"),
    [
        ("", ""),
        ("state", "state is gone, though the stream kept rows there at batch 4"),
        ("state/0/1/5.delta", "state/0/1 ends with version 4; batch 4 wrote version 5"),
        ("state/1/0/right-keyToNumValues/5.delta", "state/1/0/right-keyToNumValues ends with version 4; batch 4 wrote"),
        ("state/2/0/5.zip", "state/2/0 ends with version 4; batch 4 wrote version 5"),
        ("state/0/0", "state/0/0 is empty; batch 4 wrote version 5"),
    ],
)
def test_state_that_the_next_batch_needs_is_looked_for(tmp_path: Path, lose: str, said: str) -> None:
    for store in ("0/0", "0/1", "1/0/left-keyToNumValues", "1/0/right-keyToNumValues", "2/0", "2/0/SSTs"):
        (tmp_path / "state" / store).mkdir(parents=True, exist_ok=True)
    (tmp_path / "state/0/_metadata").mkdir()
    (tmp_path / "state/0/0/_metadata").mkdir()
    for version in (4, 5):
        for store in ("0/0", "0/1", "1/0/left-keyToNumValues", "1/0/right-keyToNumValues"):
            (tmp_path / "state" / store / f"{version}.delta").touch()
        (tmp_path / "state/2/0" / f"{version}.zip").touch()
    where = tmp_path / lose
    if lose and where.is_dir():
        shutil.rmtree(where)
        where.mkdir()
    elif lose:
        where.unlink()
    folder = declared_folder(load_settings(home=tmp_path), str(tmp_path))
    lost = list(lost_state(folder, (3, 4), keeps_state=True))
    assert [line[: len(said)] for line in lost] == ([said] if said else [])
    assert list(lost_state(folder, (), keeps_state=True)) == [], "no batch has ended"
    if lose == "state":
        assert list(lost_state(folder, (3, 4), keeps_state=False)) == [], "nothing tells that it needs one"


def test_room_is_measured_by_the_state() -> None:
    for free, state, outcome in (
        (LEAST_ROOM_BYTES, None, Outcome.OK),
        (LEAST_ROOM_BYTES - 1, None, Outcome.WARNING),
        (5 * 10**9, 10**9, Outcome.OK),
        (5 * 10**9, 2 * 10**9, Outcome.WARNING),
        (None, 2 * 10**9, Outcome.UNKNOWN),
    ):
        assert room_for(free, state).outcome is outcome


NOW = datetime.now(UTC)
NAME = "silver_events"


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

    def declaration(self, name: str = NAME, **options: str) -> StreamDeclaration:
        source = StreamInput("table", SOURCE, str(self.source), options)
        place = str(self.home / "checkpoints" / name)
        return stream(name, source, sink_uri=str(self.sink), sink_table="silver/events", checkpoint_location=place)

    def declare(self, *declared: StreamDeclaration, **changes: object) -> None:
        """These, or the stream with these changes."""
        plain = replace(self.declaration(), **changes)  # type: ignore[arg-type]
        declare_anew(self.store, *(declared or (plain,)), now=NOW)

    def stand(self, version: int, index: int = -1, *, is_initial: bool = False, begun: int = 1) -> None:
        """The position after batch 1, and where that began."""
        first = delta_offset(self.table_id, begun)
        last = delta_offset(self.table_id, version, index, is_initial=is_initial)
        write_checkpoint(self.checkpoint, {0: [first], 1: [last]})

    def check(self, name: str = NAME) -> Preflight:
        settings = load_settings(home=self.home)
        return preflight(settings, Lake(settings), self.store, name, now=NOW)

    def said(self, name: str) -> Check:
        return of(self.check(), name)

    def failed(self, name: str, fault: Fault) -> str:
        """The detail of a check that failed for this reason."""
        check = self.said(name)
        assert (check.outcome, check.remedy) == (Outcome.FAILED, fault.remedy), check
        return check.detail


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The world's lake, of which each test has a copy."""
    lake = tmp_path_factory.mktemp("tables") / "lake"
    for first in (0, 10, 20):
        append(lake / "bronze" / "events", first)
    wrote_batch(lake / "silver" / "events", 1)
    return lake


def wrote_batch(sink: Path, batch: int, app_id: str = QUERY_ID) -> None:
    write(sink, {"id": [batch]}, commit_properties=CommitProperties(app_transactions=[Transaction(app_id, batch)]))


@pytest.fixture
def world(tmp_path: Path, tables: Path) -> Iterator[World]:
    shutil.copytree(tables, tmp_path / "lake")
    store = open_store(tmp_path)
    made = World(tmp_path, store)
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
    of_source = ("table id", "start version", "unread files", "schema", "changed rows")
    of_stream = {"checkpoint", "definition", "owner", "other streams", "sink", "room for state"}
    assert {check.name for check in found.checks} == of_stream | {f"{name} of {SOURCE}" for name in of_source}
    assert {check.outcome for check in found.checks} == {Outcome.OK} and found.ok
    assert of(found, faults.START_VERSION).detail == "The stream goes on with v2 of 2; the log still has all from v1 on"
    assert "1 unread file, none of them replaced" in of(found, faults.UNREAD_FILES).detail


def test_a_stream_that_never_ran_has_an_empty_checkpoint_and_no_position(world: World) -> None:
    world.declare(replace(world.declaration("fresh"), sink_uri=str(world.home / "lake" / "none")))
    found = world.check("fresh")
    assert found.ok
    assert "empty" in of(found, faults.CHECKPOINT).detail
    assert "no position" in of(found, faults.READABLE).detail
    assert "not there yet" in of(found, faults.SINK).detail


# the checkpoint ------------------------------------------------------------------------------------------------------


def remove(world: World, *names: str) -> None:
    for name in names:
        (world.checkpoint / name).unlink()


@pytest.mark.parametrize(
    ("file", "text", "fault", "detail"),
    [
        ("offsets/1", "", faults.OFFSETS_DAMAGED, "offsets/1 is empty: its writer was cut off; batch 1 has no commit"),
        ("offsets/0", None, faults.OFFSETS_DAMAGED, "offsets/0 is missing; batch 0 has a commit"),
        ("commits/1", "", faults.OFFSETS_DAMAGED, "commits/1 is empty"),
        ("metadata", "{half", faults.METADATA_GARBAGE, "metadata is not JSON"),
        ("metadata", None, faults.METADATA_MISSING, "metadata is missing, though the checkpoint has batch 1"),
        ("offsets/1", None, faults.OFFSETS_MISSING, "offsets/1 is missing, and commits/1 is there"),
    ],
)
def test_damage_of_a_checkpoint_names_the_file(
    world: World, file: str, text: str | None, fault: Fault, detail: str
) -> None:
    assert world.check().ok
    remove(world, file, *(["commits/1"] if (file, text) == ("offsets/1", "") else []))
    if text is not None:
        (world.checkpoint / file).write_text(text)
    found = world.check()
    check = of(found, faults.CHECKPOINT)
    assert not found.ok
    assert (check.outcome, check.remedy) == (Outcome.FAILED, fault.remedy)
    assert detail in check.detail


def test_what_of_a_checkpoint_may_not_be_opened_or_cannot_be_read_is_unknown_and_no_damage(world: World) -> None:
    remove(world, "offsets/1")
    (world.checkpoint / "offsets" / "1").mkdir()
    check = world.said(faults.CHECKPOINT)
    assert check.outcome is Outcome.UNKNOWN and "offsets/1 cannot be read" in check.detail
    world.declare(checkpoint_location="/elsewhere/cp")
    found = world.check()
    assert of(found, faults.CHECKPOINT).outcome is of(found, faults.READABLE).outcome is Outcome.UNKNOWN
    assert found.ok, "what is not known fails nothing"


def test_a_first_batch_that_is_under_way_is_no_damage_and_commits_without_any_offsets_are(world: World) -> None:
    shutil.rmtree(world.checkpoint)
    write_checkpoint(world.checkpoint, {0: [delta_offset(world.table_id, 1)]}, finished=())
    names = (faults.CHECKPOINT, faults.REPLAY)
    checks = [check.outcome for check in world.check().checks if check.name in names]
    assert checks == [Outcome.OK, Outcome.OK]
    world.stand(2)
    shutil.rmtree(world.checkpoint / "offsets")
    world.failed(faults.CHECKPOINT, faults.OFFSETS_MISSING)


# the source ----------------------------------------------------------------------------------------------------------


def test_a_source_made_anew_is_told_by_both_ids(world: World) -> None:
    before = world.table_id
    world.source.rename(world.source.with_name("old"))
    append(world.source, 0)
    detail = world.failed(faults.TABLE_ID, faults.SOURCE_RECREATED)
    assert before in detail and world.table_id in detail


def clean_log(world: World, *versions: int) -> None:
    DeltaTable(str(world.source)).create_checkpoint()
    for version in versions:
        (world.source / "_delta_log" / f"{version:020d}.json").unlink()


def test_a_log_cleaned_beyond_the_position_says_how_many_versions_are_lost(world: World) -> None:
    append(world.source, 30)
    world.stand(1)
    clean_log(world, 0, 1, 2)
    check = world.said(faults.START_VERSION)
    assert check.outcome is Outcome.FAILED
    assert check.detail == "A start needs the log from v1 on. 2 versions are no longer in the log (v1 to v2)"
    world.declare(world.declaration(failOnDataLoss="false"))
    assert world.said(faults.START_VERSION).outcome is Outcome.WARNING


def test_the_last_batch_is_planned_again_so_its_commits_are_needed_too(world: World) -> None:
    world.stand(3, begun=2)
    assert world.check().ok
    clean_log(world, 0, 1, 2)
    check = world.said(faults.START_VERSION)
    assert check.outcome is Outcome.FAILED
    assert "from v2 on, where Spark plans the last batch again. 1 version is no longer in the log (v2)" in check.detail
    world.stand(3, begun=3)
    assert world.check().ok
    assert world.said(faults.START_VERSION).detail == "All is read: the stream waits for v3"


def _adds(table: Path, version: int) -> list[dict[str, str]]:
    log = (table / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    return [each["add"] for each in map(json.loads, log) if "add" in each]


def test_files_of_the_first_snapshot_count_as_unread(world: World) -> None:
    world.stand(1, 0, is_initial=True)
    (read,), (unread,) = (_adds(world.source, version) for version in (0, 1))
    detail = world.said(faults.UNREAD_FILES).detail
    assert "looked for 2 of 2 unread files" in detail, "one of the snapshot's two, one appended since"
    (world.source / read["path"]).unlink()
    assert world.check().ok
    (world.source / unread["path"]).unlink()
    assert unread["path"] in world.said(faults.UNREAD_FILES).detail


def test_of_many_unread_files_it_says_how_many_were_looked_for(world: World) -> None:
    rows = {"id": list(range(MOST_FILES + 5)), "name": ["a"] * (MOST_FILES + 5)}
    many = world.home / "lake" / "bronze" / "many"
    write(many, rows, partition_by=["id"])
    source = StreamInput("table", SOURCE, str(many))
    world.declare(inputs=(source,))
    write_checkpoint(world.checkpoint, {1: [delta_offset(DeltaTable(str(many)).metadata().id, 0)], 0: ["{}"]})
    check = world.said(faults.UNREAD_FILES)
    assert check.outcome is Outcome.OK
    assert f"looked for {MOST_FILES} of {MOST_FILES + 5} unread files" in check.detail


def test_columns_ahead_are_told_with_version_operation_and_column(world: World) -> None:
    DeltaTable(str(world.source)).alter.add_columns([Field("amount", PrimitiveType("double"))])
    check = world.said(faults.SCHEMA)
    assert check.outcome is Outcome.WARNING
    assert check.detail.startswith("v3 (ADD COLUMN) ahead: adds amount (double)")
    rows = pa.table({"id": pa.array(["x"]), "name": pa.array(["y"])})
    write(world.source, rows, mode="overwrite", schema_mode="overwrite")
    check = world.said(faults.SCHEMA)
    assert check.outcome is Outcome.FAILED and "type of id: long → string" in check.detail
    world.stand(5)
    assert world.check().ok, "behind the position it is no matter"


def test_changed_rows_ahead_fail_unless_the_options_pass_them(world: World) -> None:
    DeltaTable(str(world.source)).optimize.compact()
    assert world.said(faults.APPENDS).outcome is Outcome.OK, "a compaction changes no rows"
    DeltaTable(str(world.source)).delete("id = 0")
    assert world.failed(faults.APPENDS, faults.ROWS_CHANGED) == "v4 (DELETE) takes out 1 file"
    world.declare(world.declaration(skipChangeCommits="true"))
    assert world.said(faults.APPENDS).outcome is Outcome.OK
    world.declare(world.declaration())
    world.stand(5)
    assert world.said(faults.APPENDS).outcome is Outcome.OK, "behind the position it is no matter"


def test_the_change_feed_may_bring_every_kind_of_commit(world: World) -> None:
    feed = world.home / "lake" / "bronze" / "feed"
    write(feed, {"id": [1, 2]}, configuration=CHANGE_FEED)
    DeltaTable(str(feed)).delete("id = 1")
    world.declare(inputs=(StreamInput("change feed", SOURCE, str(feed)),))
    write_checkpoint(world.checkpoint, {0: ["{}"], 1: [delta_offset(DeltaTable(str(feed)).metadata().id, 0)]})
    found = world.check()
    assert found.ok
    assert "looked for 2 of 2 unread files" in of(found, faults.UNREAD_FILES).detail, "one of data, one of changes"
    assert faults.APPENDS not in " ".join(check.name for check in found.checks)
    for file in (feed / "_change_data").glob("*"):
        file.unlink()
    assert world.said(faults.UNREAD_FILES).outcome is Outcome.FAILED


def test_two_tables_are_told_apart_by_their_ids(world: World) -> None:
    side = world.home / "lake" / "bronze" / "side"
    append(side, 0)
    inputs = (StreamInput("table", "bronze/side", str(side)), *world.declaration().inputs)
    world.declare(inputs=inputs)
    assert world.failed(faults.DEFINITION, faults.SOURCES_CHANGED) == "It reads 2 sources, the checkpoint has 1"
    places = [delta_offset(world.table_id, 2), delta_offset(DeltaTable(str(side)).metadata().id, 1)]
    write_checkpoint(world.checkpoint, {0: places, 1: places})
    found = world.check()
    assert found.ok
    assert "v2 of 2" in of(found, faults.START_VERSION).detail
    assert "All is read" in of(found, "start version of bronze/side").detail


def test_what_is_no_readable_source_fails_and_what_cannot_be_looked_at_is_unknown(world: World) -> None:
    world.source.rename(world.home / "moved")
    assert world.said(faults.READABLE).outcome is Outcome.FAILED
    (world.home / "landing").mkdir()
    for kind, place, outcome in (
        ("table", "/elsewhere/table", Outcome.UNKNOWN),
        ("files", f"{world.home}/landing", Outcome.OK),
        ("files", f"{world.home}/nowhere", Outcome.FAILED),
        ("files", f"{world.home}/landing/*.json", Outcome.UNKNOWN),
        ("files", "/", Outcome.UNKNOWN),
    ):
        world.declare(inputs=(StreamInput(kind, SOURCE, place),))
        check = world.said(faults.READABLE)
        assert check.outcome is outcome and check.detail


@pytest.mark.parametrize("name", ["cut.json.gz", "cut [1].json.gz"])
def test_a_file_that_the_stream_ended_at_stands_against_a_start_until_it_is_another(world: World, name: str) -> None:
    landing = world.home / "land ing"
    landing.mkdir()
    (landing / name).write_bytes(b"x")
    os.utime(landing / name, times=(NOW.timestamp(), NOW.timestamp()))
    world.declare(inputs=(StreamInput("files", SOURCE, str(landing)),))
    error, later = "FAILED_READ_FILE.NO_HINT", NOW + timedelta(minutes=1)
    message = f"[{error}] Encountered error while reading file {(landing / name).as_uri()}. SQLSTATE: KD001"
    failures = (StreamFailure(error, message, 1, later),)
    ended = Observed(NAME, StreamState.FAILED, "host-1", 1, NOW, failures=failures)
    world.store.observe(ended, token=leased(world.store, stream_resource(NAME), "host-1").token)
    assert (
        world.failed(faults.UNREAD_FILES, faults.FILE_UNREADABLE)
        == f"The stream ended at {landing / name}, which has not changed since"
    )
    os.utime(landing / name, times=(later.timestamp() + 1, later.timestamp() + 1))
    assert world.check().ok, "another file lies there"
    (landing / name).unlink()
    assert world.check().ok


@pytest.mark.parametrize("newest", ["7", "9.compact"])
def test_a_checkpoint_whose_files_lie_in_another_folder_stands_against_a_start(world: World, newest: str) -> None:
    """A host whose folder has another path: the batch that was planned fails there, and every file would be new."""
    landing, theirs = world.home / "landing", "/mnt/a/landing"
    landing.mkdir()
    world.declare(inputs=(StreamInput("files", SOURCE, str(landing)),))
    write_checkpoint(world.checkpoint, {batch: ['{"logOffset":7}'] for batch in (0, 1)})
    log = world.checkpoint / "sources" / "0"
    log.mkdir(parents=True)
    for name, folder in (("6", landing), (newest, theirs)):
        entry = {"path": f"file://{folder}/1.json", "timestamp": 1, "batchId": 7}
        (log / name).write_text(f"v1\n{json.dumps(entry)}")
    assert (
        world.failed(faults.UNREAD_FILES, faults.FOLDER_ELSEWHERE)
        == f"The checkpoint names {theirs}/1.json, which is not below {landing}"
    )
    (log / newest).write_text((log / "6").read_text())
    assert world.check().ok


TOPIC = StreamInput("kafka", SOURCE)


def heard(first: int = 0, end: int = 0, *, ago: timedelta = timedelta(), **more: Any) -> TopicEnds:
    ends = {} if more.get("problem") else {"firsts": {"t": {0: first}}, "ends": {"t": {0: end}}}
    return TopicEnds(NAME, SOURCE, NOW - ago, **ends, **more)


@pytest.mark.parametrize(
    ("heard", "outcome", "detail"),
    [
        (None, Outcome.UNKNOWN, "no host has asked the broker yet"),
        (heard(problem="refused"), Outcome.UNKNOWN, "refused"),
        (heard(0, 12), Outcome.OK, "5 records unread, none of them"),
        (heard(9, 12), Outcome.FAILED, "2 records were deleted before"),
        (heard(0, 3), Outcome.OK, "0 records unread"),  # it read on
        (heard(0, 3, read={"t": {0: 7}}), Outcome.FAILED, "the topic was made anew"),
        (heard(0, 12, ago=timedelta(hours=2)), Outcome.UNKNOWN, "last asked the broker 2 h ago"),
    ],
)
def test_topics_are_judged_by_what_hosts_heard(
    world: World, heard: TopicEnds | None, outcome: Outcome, detail: str
) -> None:
    world.declare(inputs=(TOPIC,))
    write_checkpoint(world.checkpoint, {0: ['{"t":{"0":2}}'], 1: ['{"t":{"0":7}}']})
    if heard:
        world.store.note_ends(heard)
    check = world.said(faults.RECORDS)
    assert (check.outcome, detail in check.detail) == (outcome, True), check
    if outcome is Outcome.FAILED:
        assert check.remedy == faults.RECORDS_LOST.remedy
        world.declare(inputs=(replace(TOPIC, options={"failOnDataLoss": "false"}),))
        assert world.said(faults.RECORDS).outcome is Outcome.WARNING


# sink, owners --------------------------------------------------------------------------------------------------------


def test_the_sink_beside_the_checkpoint(world: World) -> None:
    assert world.said(faults.SINK).detail == "Its last batch of this query is 1; the checkpoint agrees"
    log = sorted((world.sink / "_delta_log").glob("*.json"))
    log[-1].write_text("no json")
    assert world.said(faults.SINK).outcome is Outcome.FAILED
    world.declare(sink_uri="/elsewhere/table")
    assert world.said(faults.SINK).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("app_id", [QUERY_ID, f"{NAME}:{QUERY_ID}"], ids=["delta sink", "foreach batch"])
def test_an_older_checkpoint_beside_a_newer_sink_fails(world: World, app_id: str) -> None:
    wrote_batch(world.sink, 7, app_id)
    assert (
        world.failed(faults.SINK, faults.OLD_CHECKPOINT)
        == "The table has batch 7 of this query, the checkpoint ends with batch 1"
    )


def test_every_table_that_takes_the_rows_is_looked_at(world: World) -> None:
    also = Output("gold/events", str(world.home / "lake" / "gold" / "events"), "append")
    world.declare(also=(also,))
    gone = world.said(faults.SINK)
    wrote_batch(Path(also.uri), 7, f"{NAME}:{QUERY_ID}")
    ahead = world.said(faults.SINK)
    assert gone.outcome is not Outcome.OK and gone.detail != ahead.detail
    assert (ahead.outcome, "batch 7" in ahead.detail) == (Outcome.FAILED, True)


def test_other_keys_than_those_of_the_rows_stand_against_a_start(world: World) -> None:
    def declare(*keys: str) -> Check:
        table = DeclaredTable("silver/events", str(world.sink), keys=keys)
        world.declare(tables=(table,))
        return world.said(faults.SINK)

    assert declare("id").outcome is Outcome.OK, "the table notes none"
    DeltaTable(str(world.sink)).alter.set_table_properties({KEYS: "id, Region"}, raise_if_not_exists=False)
    assert declare("region", "id").outcome is Outcome.OK
    check = declare("id")
    assert (check.outcome, check.remedy) == (Outcome.FAILED, faults.KEYS_CHANGED.remedy)
    assert "is keyed by id, Region" in check.detail
    DeltaTable(str(world.sink)).delete()
    assert declare("id").outcome is Outcome.OK, "nothing is there to be found"


def test_an_empty_checkpoint_beside_a_full_table_is_a_warning_and_a_sink_that_is_gone_fails(world: World) -> None:
    aside = world.checkpoint.rename(world.home / "aside")
    check = world.said(faults.SINK)
    assert check.outcome is Outcome.WARNING and "holds 1 file: all is written again" in check.detail
    aside.rename(world.checkpoint)
    world.sink.rename(world.home / "gone")
    assert world.said(faults.SINK).outcome is Outcome.FAILED


def hold(world: World, name: str, host: str) -> None:
    world.store.beat(HostHeartbeat(host, "box", 2, NOW, NOW))
    world.store.ensure_all_desired([name], DesiredState.RUNNING, now=NOW)
    leased(world.store, stream_resource(name), host)


def test_another_stream_on_the_same_checkpoint_or_sink_is_named(world: World) -> None:
    twin = replace(world.declaration("twin"), checkpoint_location=f"{world.checkpoint}/", sink_uri="/other")
    world.declare(world.declaration(), twin)
    assert world.said(faults.OTHERS).outcome is Outcome.WARNING
    world.store.ensure_all_desired(["twin"], DesiredState.RUNNING, now=NOW)
    same = "twin has the same checkpoint and is wanted running"
    assert world.failed(faults.OTHERS, faults.SECOND_START) == same

    world.declare(world.declaration(), world.declaration("twin"))
    hold(world, "twin", "host-2")
    same = "twin writes the same table; host host-2 runs it"
    assert world.failed(faults.OTHERS, faults.SINK_LEASED) == same
    hold(world, NAME, "host-2")
    assert world.said(faults.OTHERS).outcome is Outcome.WARNING


def test_who_holds_the_lease_or_can_take_it_is_told(world: World) -> None:
    world.declare(tags={"host": "gpu"})
    check = world.said(faults.OWNER)
    assert (check.outcome, check.detail) == (Outcome.WARNING, "No host with the tag gpu is up")
    world.store.beat(HostHeartbeat("host-2", "box", 2, NOW, NOW, tags=("gpu",)))
    assert world.said(faults.OWNER).detail == "The lease is free; 1 host can take it"
    hold(world, NAME, "host-2")
    assert world.said(faults.OWNER).detail == "Host host-2 holds the lease and is alive"
    world.store.beat(HostHeartbeat("host-2", "box", 2, NOW, NOW - timedelta(minutes=2)))
    check = world.said(faults.OWNER)
    assert check.outcome is Outcome.WARNING
    assert "host-2" in check.detail and "silent for 2 min" in check.detail


def test_a_declaration_that_changed_is_told_before_the_start(world: World) -> None:
    said = {"catalog.team_name": "sales", "delta.enableChangeDataFeed": "true"}
    tables = (DeclaredTable("silver/events", str(world.sink), "Events", said, ("id",)), DeclaredTable("none", "/no"))
    world.declare(tables=tables)
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
    world.store.ensure_all_desired([NAME], DesiredState.RUNNING, now=NOW)
    world.store.request_all([NAME], "restart", reason="wanted", actor=Actor("ana"), now=NOW, overrides=word)
    at_once, waiting_still = (check for check in world.check().checks if check.name == faults.TABLES)
    assert "delta.enableChangeDataFeed of silver/events: not set → true" in at_once.detail
    assert '--set "table_changes=cluster_by,delta.enableChangeDataFeed"' in waiting_still.remedy


def test_a_database_beside_a_stream_is_none_of_its_sources_and_nobody_looks_into_a_function(world: World) -> None:
    customers = StreamInput("jdbc", "customers at db/shop")
    world.declare(inputs=(*world.declaration().inputs, customers), sink="foreach_batch", outside="shop.save")
    assert world.said(faults.DEFINITION).outcome is Outcome.OK
    sink = world.said(faults.SINK)
    assert (sink.outcome, sink.detail) == (Outcome.UNKNOWN, "function shop.save: nobody here can look")
