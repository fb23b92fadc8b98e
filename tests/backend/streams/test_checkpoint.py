"""A stream's checkpoint: what was planned and finished, where its sources stood, and where people say it begins."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from backend.errors import CheckpointError, ObjectMissingError, PathRefusedError, StreamRefusedError
from backend.lake.lake import Lake
from backend.lake.storage.folder import Folder
from backend.lake.storage.local_folder import LocalFolder
from backend.lake.storage.storage import declared_folder
from backend.settings import load_settings
from backend.stream_model.stream import InputKind, StreamDeclaration, StreamInput
from backend.streams.checkpoint import begun_at, query_id, read_checkpoint, read_offsets, read_starts
from backend.streams.reset import parse_starts
from backend.times import Clock
from tests.worlds.lake.builders import HandLog, commit_info, metadata, protocol
from tests.worlds.store.values import DECLARATION
from tests.worlds.streams.checkpoints import write_checkpoint

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints" / "silver"


@pytest.fixture
def folder(tmp_path: Path, place: Path) -> Folder:
    return declared_folder(load_settings(home=tmp_path), str(place))


@pytest.mark.parametrize(
    ("planned", "finished", "processed"),
    [
        ([], [], None),
        ([0], [], None),
        ([0], [0], 0),
        ([7, 8, 9], [7, 8], 8),
        ([7, 8, 9], [7, 8, 9], 9),
        ([8, 9], [], 8),  # its commits are gone: Spark runs the last batch again, and no other
        ([9, 10], [9, 10, 11], 10),
    ],
)
def test_the_last_batch_that_spark_will_not_run_again(
    place: Path, folder: Folder, planned, finished, processed
) -> None:
    write_checkpoint(place, {batch: ["{}"] for batch in planned}, finished=finished)
    found = read_checkpoint(folder)
    assert (found.planned, found.finished, found.processed_batch) == (tuple(planned), tuple(finished), processed)


def test_no_folder_is_an_empty_checkpoint_and_one_elsewhere_is_refused(folder: Folder, tmp_path: Path) -> None:
    assert read_checkpoint(folder).is_empty
    with pytest.raises(ObjectMissingError):
        query_id(folder)
    with pytest.raises(PathRefusedError):
        declared_folder(load_settings(home=tmp_path / "home"), str(tmp_path / "elsewhere"))


def test_offsets_name_each_source_and_what_had_none(place: Path, folder: Folder) -> None:
    write_checkpoint(place, {3: ['{"logOffset":3}', None]}, at=AT)
    found = read_offsets(folder, 3)
    assert found.sources == ('{"logOffset":3}', None)
    assert found.conf == {"spark.sql.shuffle.partitions": "2"}
    assert query_id(folder) == "query-1"


def test_offsets_that_cannot_be_read_name_the_file(place: Path, folder: Folder) -> None:
    write_checkpoint(place, {3: ["{}"]})
    file = place / "offsets" / "3"
    for content, why in (
        (b"", "offsets/3 is empty"),
        (b"v1\n{}", "names no source"),
        (b"v1\n{\n{}", "offsets/3 is not JSON"),
        (b"v7\n{}\n{}", "has format v7"),
        (b"\x00\xff\n", "is no text"),
        (b"garbage", "begins with 'garbage'"),
        (None, "offsets/3 is missing"),
    ):
        file.unlink() if content is None else file.write_bytes(content)
        with pytest.raises(CheckpointError, match=why) as refused:
            read_offsets(folder, 3)
        assert refused.value.file == "offsets/3"


HOURS = [datetime(2026, 11, 20, hour, tzinfo=UTC) for hour in (8, 9, 10, 11)]
CLOCK = Clock(datetime(2026, 11, 21, 9, 30, tzinfo=UTC), timezone(timedelta(hours=1)))
TOPIC = StreamInput(InputKind.KAFKA, "orders at broker:9092")


@pytest.fixture
def table(tmp_path: Path) -> StreamInput:
    """Versions 0 to 3, an hour apart."""
    log = HandLog(tmp_path / "lake" / "bronze" / "orders")
    for number, hour in enumerate(HOURS):
        begin = () if number else (protocol(), metadata())
        log.commit(*begin, commit_info(timestamp=round(hour.timestamp() * 1_000)))
    log.checkpoint(2, [protocol(), metadata()])
    return StreamInput(InputKind.TABLE, "bronze/orders", str(log.table))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(load_settings(home=tmp_path))


def reading(*inputs: StreamInput) -> StreamDeclaration:
    return replace(DECLARATION, inputs=inputs)


@pytest.mark.parametrize(
    ("where", "version"),
    [
        ("0", 0),
        ("v2", 2),
        ("3", 3),
        ("4", 4),
        ("latest", 4),
        ("2026-11-20T09:00Z", 1),
        ("2026-11-20T09:00:00.001Z", 2),
        ("2026-11-20T10:30:00+00:00", 3),
        ("1999-01-01T00:00Z", 0),
        ("2026-11-20T09:00", 1),  # UTC
        ("yesterday 10:30", 2),  # an hour ahead
    ],
)
def test_a_version_or_the_first_commit_since_a_time(lake: Lake, table: StreamInput, where: str, version: int) -> None:
    assert parse_starts(lake, reading(table), [where], CLOCK) == {table.uri: {"startingVersion": str(version)}}


@pytest.mark.parametrize(
    ("where", "why"),
    [("5", "has no version 5"), ("9" * 20, "is no place in bronze/orders"), ("tomorrow", "is no place"), ("", "is no")],
)
def test_what_is_no_place_is_refused(lake: Lake, table: StreamInput, where: str, why: str) -> None:
    with pytest.raises(StreamRefusedError, match=why):
        parse_starts(lake, reading(table), [where], CLOCK)


def test_a_cleaned_version_and_a_place_within_files_are_refused(lake: Lake, table: StreamInput) -> None:
    for version in (0, 1):
        (Path(table.uri) / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(StreamRefusedError, match="no longer in its log"):
        parse_starts(lake, reading(table), ["1"], CLOCK)
    with pytest.raises(StreamRefusedError, match="kind files"):
        parse_starts(lake, reading(StreamInput(InputKind.FILES, "files in /landing", "/landing")), ["1"], CLOCK)


def test_topics_begin_at_offsets_or_a_time(lake: Lake) -> None:
    at = {"startingTimestamp": str(round(HOURS[1].timestamp() * 1_000)), "startingOffsetsByTimestampStrategy": "latest"}
    for where, options in {
        "earliest": {"startingOffsets": "earliest"},
        '{"orders": {"0": 42}}': {"startingOffsets": '{"orders": {"0": 42}}'},
        "2026-11-20T09:00Z": at,
    }.items():
        assert parse_starts(lake, reading(TOPIC), [where], CLOCK) == {TOPIC.name: options}
    with pytest.raises(StreamRefusedError, match="these are no offsets"):
        parse_starts(lake, reading(TOPIC), ['{"orders": 42}'], CLOCK)


def test_each_of_several_sources_is_named(lake: Lake, table: StreamInput) -> None:
    found = parse_starts(lake, reading(table, TOPIC), ["bronze/orders=2", f"{TOPIC.name}=latest"], CLOCK)
    assert found == {table.uri: {"startingVersion": "2"}, TOPIC.name: {"startingOffsets": "latest"}}

    with pytest.raises(StreamRefusedError, match="each source needs a place") as refused:
        parse_starts(lake, reading(table, TOPIC), ["bronze/orders=2"], CLOCK)
    assert refused.value.hint == f"say --from '{TOPIC.name}=…'"


def test_what_has_no_place_is_not_asked_for(lake: Lake, table: StreamInput) -> None:
    rates = StreamInput(InputKind.PRESENT_ROWS, "present rows of bronze/rates", table.uri)
    declared = reading(replace(table, options={"startingTimestamp": "2026-11-20", "maxFilesPerTrigger": "3"}), rates)
    starts = parse_starts(lake, declared, ["2"], CLOCK)
    assert starts == {table.uri: {"startingVersion": "2"}}
    first, other = begun_at(declared, starts).inputs
    assert first.options == {"startingVersion": "2", "maxFilesPerTrigger": "3"}, "Delta takes one beginning"
    assert other == rates


def test_they_hold_until_a_batch_has_a_place_in_each_source(tmp_path: Path) -> None:
    starts = {"/lake/orders": {"startingVersion": "2"}}
    place = tmp_path / "checkpoint"
    folder = LocalFolder(str(place), [str(tmp_path)])
    assert read_starts(folder) == {}

    place.mkdir()
    (place / "start.json").write_text(json.dumps(starts))
    assert read_starts(folder) == starts

    (place / "offsets").mkdir()
    assert read_starts(folder) == starts, "it was stopped before its first batch"
    head = 'v1\n{"batchTimestampMs":0}\n'
    (place / "offsets" / "0").write_text(f"{head}{{}}\n-")
    assert read_starts(folder) == starts, "its second source had nothing yet"
    (place / "offsets" / "1").write_text(f"{head}{{}}\n{{}}")
    assert read_starts(folder) == {}
