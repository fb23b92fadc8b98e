"""Where people say that a stream begins again, as options of its first start."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from backend.errors import StreamRefusedError
from backend.lake.lake import Lake
from backend.lake.storage.local_folder import LocalFolder
from backend.settings import load_settings
from backend.stream_model.stream import InputKind, StreamDeclaration, StreamInput
from backend.streams.reset.starts import begun_at, parse_starts, read_starts
from backend.times import Clock
from tests.worlds.lake.builders import HandLog, commit_info, metadata, protocol
from tests.worlds.store.values import DECLARATION

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


def of(*inputs: StreamInput) -> StreamDeclaration:
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
        ("2026-11-20 12:00+02:00", 2),
        ("2026-11-20T10:30:00+00:00", 3),
        ("2031-01-01T00:00Z", 4),
        ("1999-01-01T00:00Z", 0),
        ("2026-11-20T09:00", 1),  # UTC
        ("yesterday 10:30", 2),  # an hour ahead
        ("1 d ago", 2),
        ("friday", 0),
    ],
)
def test_a_version_or_the_first_commit_at_or_after_a_time(
    lake: Lake, table: StreamInput, where: str, version: int
) -> None:
    assert parse_starts(lake, of(table), [where], CLOCK) == {table.uri: {"startingVersion": str(version)}}


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("5", "has no version 5"),
        ("99999999999999999999", "is no place in bronze/orders"),
        ("-1", "is no place"),
        ("tomorrow", "is no place"),
        ("", "is no place"),
    ],
)
def test_what_is_no_place_is_refused(lake: Lake, table: StreamInput, where: str, said: str) -> None:
    with pytest.raises(StreamRefusedError, match=said):
        parse_starts(lake, of(table), [where], CLOCK)


def test_a_version_that_was_cleaned_away_is_refused(lake: Lake, table: StreamInput, tmp_path: Path) -> None:
    for version in (0, 1):
        (Path(table.uri) / "_delta_log" / f"{version:020}.json").unlink()

    with pytest.raises(StreamRefusedError, match="no longer in its log"):
        parse_starts(lake, of(table), ["1"], CLOCK)


@pytest.mark.parametrize(
    ("where", "options"),
    [
        ("earliest", {"startingOffsets": "earliest"}),
        ('{"orders": {"0": 42}}', {"startingOffsets": '{"orders": {"0": 42}}'}),
        (
            "2026-11-20T09:00Z",
            {"startingTimestamp": "1795424400000", "startingOffsetsByTimestampStrategy": "latest"},
        ),
    ],
)
def test_topics_begin_at_offsets_or_a_time(lake: Lake, where: str, options: dict[str, str]) -> None:
    if "startingTimestamp" in options:
        options["startingTimestamp"] = str(round(HOURS[1].timestamp() * 1_000))
    assert parse_starts(lake, of(TOPIC), [where], CLOCK) == {TOPIC.name: options}


def test_offsets_that_are_none_are_refused(lake: Lake) -> None:
    with pytest.raises(StreamRefusedError, match="these are no offsets"):
        parse_starts(lake, of(TOPIC), ['{"orders": 42}'], CLOCK)


def test_each_of_several_sources_is_named(lake: Lake, table: StreamInput) -> None:
    found = parse_starts(lake, of(table, TOPIC), ["bronze/orders=2", f"{TOPIC.name}=latest"], CLOCK)
    assert found == {table.uri: {"startingVersion": "2"}, TOPIC.name: {"startingOffsets": "latest"}}

    with pytest.raises(StreamRefusedError, match="each source needs a place") as refused:
        parse_starts(lake, of(table, TOPIC), ["bronze/orders=2"], CLOCK)
    assert refused.value.hint == f"say --from '{TOPIC.name}=…'"


def test_what_has_no_place_is_not_asked_for(lake: Lake, table: StreamInput) -> None:
    rates = StreamInput(InputKind.PRESENT_ROWS, "present rows of bronze/rates", table.uri)
    declared = of(replace(table, options={"startingTimestamp": "2026-11-20", "maxFilesPerTrigger": "3"}), rates)
    starts = parse_starts(lake, declared, ["2"], CLOCK)
    assert starts == {table.uri: {"startingVersion": "2"}}
    first, other = begun_at(declared, starts).inputs
    assert first.options == {"startingVersion": "2", "maxFilesPerTrigger": "3"}, "Delta takes one beginning"
    assert other == rates


def test_within_files_nobody_can_begin(lake: Lake) -> None:
    with pytest.raises(StreamRefusedError, match="kind files"):
        parse_starts(lake, of(StreamInput(InputKind.FILES, "files in /landing", "/landing")), ["1"], CLOCK)


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


def test_a_declaration_has_the_options_of_its_start(table: StreamInput) -> None:
    options = {"maxFilesPerTrigger": "1", "startingVersion": "0"}
    begun = begun_at(of(replace(table, options=options), TOPIC), {table.uri: {"startingVersion": "2"}})

    assert begun.inputs[0].options == {"maxFilesPerTrigger": "1", "startingVersion": "2"}
    assert begun.inputs[1] == TOPIC
