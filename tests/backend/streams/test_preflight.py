"""What evidence says of a start, judged without a table: columns ahead, room, and what only hand-made evidence has."""

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.lake.model import Commit, Metadata, OperationMetrics
from backend.lake.storage.storage import declared_folder
from backend.settings import load_settings
from backend.stream_model.stream import StreamInput
from backend.streams import faults
from backend.streams.faults import Fault
from backend.streams.preflight.judges import LEAST_ROOM_BYTES, judge_checkpoint, judge_room, judge_sink, judge_table
from backend.streams.preflight.model import (
    Check,
    CheckpointSeen,
    FilesLookedFor,
    Outcome,
    Preflight,
    RoomSeen,
    SinkSeen,
    TableSeen,
    Unread,
)
from backend.streams.preflight.reading import lost_state

GB = 10**9
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


def table(*unread: Unread, read_with: Metadata | None = None, present: Metadata | None = None) -> TableSeen:
    source = StreamInput("table", "bronze/events")
    files = FilesLookedFor(0, 0, 0)
    return TableSeen(source, "t-1", "t-1", 9, 5, 5, 5, tuple(unread), read_with, present, files)


@pytest.mark.parametrize(
    ("before", "after", "outcome", "said"),
    [
        (metadata(BASE), metadata({**BASE, "x": "date"}), Outcome.WARNING, "adds x (date)"),
        (metadata(BASE), metadata({"id": "long"}), Outcome.FAILED, "drops name (string)"),
        (metadata(BASE), metadata({**BASE, "id": "string"}), Outcome.FAILED, "type of id: long → string"),
        (metadata(BASE), metadata(BASE, required=("id",)), Outcome.FAILED, "nullability of id: nullable → not null"),
        (metadata(BASE, required=("id",)), metadata(BASE), Outcome.OK, "what no row depends on"),
        (metadata(BASE), metadata(BASE, note="n"), Outcome.OK, "what no row depends on"),
        (metadata(BASE), metadata(BASE), Outcome.OK, "No unread commit changes"),
        (None, metadata(BASE), Outcome.UNKNOWN, "no longer in the log"),
    ],
)
def test_columns_ahead(before: Metadata | None, after: Metadata, outcome: Outcome, said: str) -> None:
    change = Unread(commit(7, "ADD COLUMNS", after), 0, 0)
    (check,) = [
        each for each in judge_table(table(change, read_with=before, present=after)) if each.name.startswith("schema")
    ]
    assert (check.outcome, check.remedy) == (
        outcome,
        faults.SCHEMA_CHANGED.remedy if outcome in (Outcome.WARNING, Outcome.FAILED) else "",
    )
    assert said in check.detail


def test_columns_that_change_and_change_back_fail_too() -> None:
    steps = (
        Unread(commit(6, changed=metadata({"id": "string"})), 1, 0),
        Unread(commit(7, changed=metadata(BASE)), 1, 0),
    )
    found = {
        check.name: check for check in judge_table(table(*steps, read_with=metadata(BASE), present=metadata(BASE)))
    }
    assert found["schema of bronze/events"].outcome is Outcome.FAILED
    assert "v6 (WRITE), v7 (WRITE) ahead" in found["schema of bronze/events"].detail


def test_what_was_not_looked_at_is_not_claimed() -> None:
    seen = replace(table(Unread(commit(5), 1, 0)), files=FilesLookedFor(900, 500, 200))
    checks = {check.name: check for check in judge_table(seen)}
    assert checks["unread files of bronze/events"].outcome is Outcome.UNKNOWN, "any of the other 300 may be gone"
    assert "500 of them replaced since, as far as was looked" in checks["unread files of bronze/events"].detail
    assert checks["changed rows of bronze/events"].detail.endswith("as far as was looked: v5 of 9")
    assert checks["schema of bronze/events"].detail.endswith("as far as was looked: v5 of 9")


@pytest.mark.parametrize(
    ("files", "option", "fault", "outcome"),
    [
        (0, "", faults.ROWS_DELETED, Outcome.FAILED),
        (0, "ignoreDeletes", None, Outcome.OK),
        (0, "ignoreChanges", None, Outcome.OK),
        (2, "", faults.ROWS_CHANGED, Outcome.FAILED),
        (2, "ignoreDeletes", faults.ROWS_CHANGED, Outcome.FAILED),
        (2, "ignoreChanges", faults.ROWS_CHANGED, Outcome.WARNING),
        (2, "skipChangeCommits", None, Outcome.OK),
    ],
)
def test_commits_that_take_rows_away(files: int, option: str, fault: Fault | None, outcome: Outcome) -> None:
    seen = table(Unread(commit(5), 1, 0), Unread(commit(6, "DELETE"), files, 3))
    seen = replace(seen, source=replace(seen.source, options={option: "true"} if option else {}))
    check = {check.name: check for check in judge_table(seen)}["changed rows of bronze/events"]
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


@pytest.mark.parametrize(
    ("room", "outcome"),
    [
        (RoomSeen(LEAST_ROOM_BYTES), Outcome.OK),
        (RoomSeen(LEAST_ROOM_BYTES - 1), Outcome.WARNING),
        (RoomSeen(5 * GB, state_bytes=GB), Outcome.OK),
        (RoomSeen(5 * GB, state_bytes=2 * GB), Outcome.WARNING),
        (RoomSeen(None, state_bytes=2 * GB), Outcome.UNKNOWN),
    ],
)
def test_room_is_measured_by_the_state(room: RoomSeen, outcome: Outcome) -> None:
    assert judge_room(room).outcome is outcome


def test_a_first_batch_that_is_under_way_is_no_damage() -> None:
    seen = CheckpointSeen("/c", has_metadata=True, planned=(0,), query_id="q")
    assert [check.outcome for check in judge_checkpoint(seen)] == [Outcome.OK, Outcome.OK]


def test_commits_without_any_offsets_are_damage() -> None:
    seen = CheckpointSeen("/c", has_metadata=True, finished=(0, 1), query_id="q")
    (check,) = judge_checkpoint(seen)
    assert (check.outcome, check.remedy) == (Outcome.FAILED, faults.OFFSETS_MISSING.remedy)


@pytest.mark.parametrize(
    ("sink", "planned", "outcome"),
    [
        (SinkSeen(True, 3, 9), (8, 9), Outcome.OK),
        (SinkSeen(True, 3, 8), (8, 9), Outcome.OK),
        (SinkSeen(True, 3, 10), (8, 9), Outcome.FAILED),
        (SinkSeen(True, 3, None), (8, 9), Outcome.OK),
        (SinkSeen(False), (8, 9), Outcome.FAILED),
        (SinkSeen(False), (), Outcome.OK),
        (SinkSeen(None, problem="away"), (8, 9), Outcome.UNKNOWN),
        (SinkSeen(True, problem="damaged"), (8, 9), Outcome.FAILED),
    ],
)
def test_the_sink_beside_the_checkpoint(sink: SinkSeen, planned: tuple[int, ...], outcome: Outcome) -> None:
    assert judge_sink(sink, CheckpointSeen("/c", bool(planned), planned, planned)).outcome is outcome


def test_only_a_failed_check_stands_against_a_start() -> None:
    checks = tuple(Check("c", outcome, "") for outcome in Outcome)
    assert not Preflight("s", checks).ok
    assert Preflight("s", tuple(check for check in checks if check.outcome is not Outcome.FAILED)).ok
    assert [check.ok for check in checks] == [True, True, False, None]
