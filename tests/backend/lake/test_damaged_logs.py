"""Damaged, cleaned and changing logs, and fields of a wrong type: right numbers or a named error with a hint.

Rule: damage of one commit's content is in `tests/contracts/test_odd_tables.py`.
"""

import copy
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backend.errors import (
    LakehouseError,
    StorageError,
    TableCorruptError,
    TableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from backend.lake.files.file_sizes import distribute
from backend.lake.lake import Lake
from backend.lake.model import TableRef, UnreadableTable
from backend.lake.table.properties import explain_features, explain_properties, ownership
from backend.lake.table.schema import columns
from backend.settings import load_settings
from tests.worlds.cases import MORE
from tests.worlds.lake.builders import (
    CHANGE_FEED,
    HandLog,
    add,
    commit_info,
    deletion_vector,
    first_rows,
    metadata,
    protocol,
    remove,
    schema_json,
    write,
)
from tests.worlds.lake.logs import commit_name
from tests.worlds.lake.permissions import unreadable
from tests.worlds.streams.replay import read_log


def growing(root, versions: int) -> HandLog:
    """Each version adds a file: f1, f2 …"""
    log = HandLog(root / "t").start()
    for version in range(1, versions + 1):
        log.commit(add(f"f{version}"), commit_info())
    return log


def state(*files: str) -> list[dict]:
    return [protocol(), metadata(), *(add(file) for file in files)]


# commits --------------------------------------------------------------------------------------------------------------


def test_a_half_written_commit_is_read_again_when_it_is_whole(root, lake):
    log = HandLog(root / "t").start()
    whole = json.dumps(add("a")) + "\n" + json.dumps(commit_info("LATE")) + "\n"
    ref = lake.find("t")
    assert lake.snapshot(ref).version == 0
    log.raw(commit_name(1), whole[:30])
    with pytest.raises(TableCorruptError):
        lake.snapshot(ref)
    assert lake.history(ref)[0].problem and isinstance(lake.cards()[0], UnreadableTable)
    log.raw(commit_name(1), whole)
    assert lake.snapshot(ref).num_files == lake.card(ref).num_files == 1
    assert (lake.history(ref)[0].operation, lake.history(ref)[0].problem) == ("LATE", None)
    assert lake.timeline(ref).totals[-1].num_files == 1


def test_an_empty_commit_in_the_middle_is_read_past_with_a_finding(root, open_lake):
    """As Spark reads it. Whoever writes it to its end after all is heard."""
    log = growing(root, 5)
    whole = (log.log / commit_name(3)).read_bytes()
    log.raw(commit_name(3), b"")
    lake = open_lake()
    ref = lake.find("t")
    assert [lake.snapshot(ref, version).num_files for version in (2, 3, 4, 5)] == [2, 2, 3, 4]
    [finding] = lake.snapshot(ref).findings
    assert finding.startswith(f"{commit_name(3)} is empty")
    assert (lake.card(ref).num_files, lake.timeline(ref).totals[-1].num_files) == (4, 4)
    assert [bool(c.problem) for c in lake.history(ref)] == [False, False, True, False, False, False]
    log.raw(commit_name(3), whole)
    assert (lake.snapshot(ref).num_files, lake.snapshot(ref).findings) == (5, ())
    assert not lake.history(ref)[2].problem


def test_versions_that_only_a_log_compaction_holds_are_read(root, lake):
    log = HandLog(root / "t").start()
    for version in range(1, 6):
        log.commit(add(f"f{version}"), remove(f"f{version - 1}"), commit_info())
    actions = (add("f4"), *(remove(f"f{n}") for n in (1, 2, 3)))
    log.raw(f"{2:020d}.{4:020d}.compacted.json", "".join(json.dumps(action) + "\n" for action in actions))
    for version in (2, 3, 4):
        (log.log / commit_name(version)).unlink()
    states = read_log(log.log, compactions=True)
    ref = lake.find("t")
    assert {v for a, b in lake.versions(ref) for v in range(a, b + 1)} == set(states) == {0, 1, 4, 5}
    for version, state in states.items():
        assert set(lake.snapshot(ref, version).files["path"].to_pylist()) == {path for path, _ in state.files}
    for version in (2, 3):
        with pytest.raises((VersionNotFoundError, TableCorruptError)):
            lake.snapshot(ref, version)
    assert lake.timeline(ref).totals[-1].num_files == 1


def test_a_partition_that_a_file_does_not_name_is_null_everywhere(root, open_lake):
    log = HandLog(root / "t").start(columns={"id": "long", "p": "date"}, partition_by=["p"])
    log.commit(add("a", size=1, partitionValues={}), add("b", size=1, partitionValues={"p": None}), commit_info())
    log.commit(add("c", size=1, partitionValues={"p": ""}), commit_info())
    lake = open_lake(health={"min_files": 3})
    ref = lake.find("t")
    assert set(lake.snapshot(ref).files["partition"].to_pylist()) == {"p=__HIVE_DEFAULT_PARTITION__"}
    assert (lake.card(ref).small_files, lake.timeline(ref).totals[-1].small_files) == (3, 3)


# checkpoints and checksums --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["classic", "multi", "sidecar", "parquet", "json"])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99, None])
def test_a_cut_checkpoint_is_passed_over_or_named(root, lake, kind, share):
    """Of None the file is gone."""
    for name in ("whole", "alone"):
        log = HandLog(root / name).start().commit(add("a"), add("b"), commit_info())
        if kind in ("classic", "multi"):
            log.checkpoint(1, state("a", "b"), parts=2 if kind == "multi" else 1)
        else:
            log.v2_checkpoint(1, state("a", "b"), top="json" if kind == "json" else "parquet")
        folder = log.log / "_sidecars" if kind == "sidecar" else log.log
        victim = sorted(folder.glob("*.parquet" if kind == "sidecar" else "*.checkpoint.*"))[-1]
        content = victim.read_bytes()
        victim.unlink()
        if share is not None:
            victim.write_bytes(content[: int(len(content) * share)])
        log.commit(add("c"), commit_info())
        if name == "alone":
            (log.log / commit_name(0)).unlink()
    snapshot = lake.snapshot(lake.find("whole"))
    assert (snapshot.num_files, snapshot.num_rows) == (3, 30)
    assert snapshot.findings or (share is None and kind != "sidecar"), "that it was passed over must be said"
    with pytest.raises(LakehouseError) as caught:
        assert lake.snapshot(lake.find("alone")).num_files is None
    assert caught.value.hint and (kind != "sidecar" or share is not None or "_sidecars" in caught.value.message)
    assert [c.version for c in lake.history(lake.find("alone"))] == [2, 1]


@pytest.mark.parametrize(
    ("files", "stats", "setting"),
    [
        (200, "{}", {"checkpoint_max_files": 150}),
        (2, json.dumps({"x": "y" * 30_000_000}), {"checkpoint_max_bytes": 20_000_000}),
        (600, json.dumps({"x": "y" * 100_000}), {"checkpoint_max_bytes": 20_000_000}),
        (2, "{}", {"max_columns": 1}),
    ],
    ids=["rows", "bytes", "one value in every row", "columns"],
)
def test_a_checkpoint_that_swells_is_refused_by_name_and_hides_no_other_table(root, open_lake, files, stats, setting):
    described = metadata({"id": "long", "v": "long"})
    log = HandLog(root / "bomb").commit(protocol(), described, commit_info())
    log.checkpoint(0, [protocol(), described, *(add(f"f{n}", stats=stats) for n in range(files))])
    assert sum(file.stat().st_size for file in log.log.iterdir()) < 2_000_000
    growing(root, 1)
    lake = open_lake(lake=setting)
    with pytest.raises(UnsupportedFeatureError, match="reads up to"):
        lake.snapshot(lake.find("bomb")).columns(["stats"])
    bomb, other = sorted(lake.cards(), key=lambda card: card.ref.name)
    # A card needs no statistics.
    assert other.num_files == 1 and isinstance(bomb, UnreadableTable) == ("checkpoint_max_bytes" not in setting)
    assert open_lake().snapshot(open_lake().find("bomb")).num_files == files


@pytest.mark.parametrize("stats", ["", "garbage", "[]", '{"numRecords":"5"}', '{"numRecords":-5}', "{}"])
def test_odd_statistics_of_a_checkpoint_make_the_row_count_unknown_not_wrong(root, lake, stats):
    log = HandLog(root / "t").start().commit(add("a", stats=stats), add("b"), commit_info())
    log.checkpoint(1, [protocol(), metadata(), add("a", stats=stats), add("b")])
    snapshot = lake.snapshot(lake.find("t"))
    assert (snapshot.num_files, snapshot.num_rows) == (2, None)
    assert lake.timeline(lake.find("t")).totals[-1].num_rows is None


WHOLE = {"numFiles": 1, "tableSizeBytes": 100, **protocol()}
WHOLE["metadata"] = metadata()["metaData"]


@pytest.mark.parametrize(
    ("checksum", "finding"),
    [
        (json.dumps(WHOLE), None),
        (json.dumps(WHOLE | {"numFiles": 2}), "disagrees"),
        (json.dumps(WHOLE | {"tableSizeBytes": 7}), "disagrees"),
        (json.dumps(WHOLE | protocol(2, 5)), "disagrees"),
        (json.dumps(WHOLE | {"metadata": metadata({"other": "long"})["metaData"]}), "disagrees"),
        ("garbage", "cannot be read"),
        ("[]", "cannot be read"),
    ],
)
def test_a_checksum_that_disagrees_is_a_finding_and_changes_nothing(root, open_lake, checksum, finding):
    HandLog(root / "t").start().commit(add("a"), commit_info()).raw(f"{1:020d}.crc", checksum)
    snapshot = open_lake().snapshot(open_lake().find("t"))
    assert snapshot.num_files == 1 and bool(snapshot.findings) == (finding is not None)
    assert finding is None or finding in snapshot.findings[0]
    assert (snapshot.protocol.min_reader_version, snapshot.metadata.schema_json) == (1, schema_json({"id": "long"}))


def test_a_home_that_may_not_be_written_costs_only_the_kept_timeline(root, open_lake, tmp_path):
    growing(root, 59)
    (tmp_path / "cache").write_text("a file where the folder belongs")
    for lake in (open_lake(), open_lake()):
        assert lake.timeline(lake.find("t")).totals[-1].num_files == 59


# tables that go, and what may not be read -----------------------------------------------------------------------------


def test_a_table_that_vanishes_while_it_is_looked_at(root, lake):
    for name in ("t", "goes", "stays"):
        write(root / name, {"id": [1]})
    refs = lake.tables()
    ref = lake.find("t")
    lake.card(ref)
    shutil.rmtree(root / "t")
    shutil.rmtree(root / "goes" / "_delta_log")
    for read in (lake.latest_version, lake.card, lake.snapshot, lake.history, lake.timeline):
        with pytest.raises(TableNotFoundError):
            read(ref)
    with pytest.raises(TableNotFoundError):
        first_rows(lake, ref, limit=1)
    cards = {card.ref.name: isinstance(card, UnreadableTable) for card in lake.read_cards(refs)}
    assert cards == {"t": True, "goes": True, "stays": False}
    assert [card.ref.name for card in lake.cards()] == ["stays"]


@pytest.mark.parametrize("name", ["_delta_log", f"_delta_log/{commit_name(1)}", f"_delta_log/{1:020d}.crc"])
def test_what_may_not_be_read_is_named_and_hides_no_other_table(root, open_lake, name):
    for table in ("locked", "open"):
        log = HandLog(root / table).start().commit(add("a"), commit_info())
        log.raw(f"{1:020d}.crc", json.dumps(WHOLE))
    with unreadable(root / "locked" / name):
        lake = open_lake()
        cards = {card.ref.name: card for card in lake.cards()}
        assert cards["open"].num_files == 1
        if name.endswith(".crc"):
            assert lake.snapshot(cards["locked"].ref).num_rows == 10
        else:
            assert isinstance(cards["locked"], UnreadableTable)
            assert "permission" in cards["locked"].reason
            with pytest.raises(StorageError):
                lake.snapshot(cards["locked"].ref)


def test_a_root_that_may_not_be_listed_is_named(root, open_lake):
    write(root / "t", {"id": [1]})
    with unreadable(root), pytest.raises(StorageError, match="permission") as caught:
        open_lake().tables()
    assert caught.value.hint


# the change feed ------------------------------------------------------------------------------------------------------


def test_changes_that_deltalake_cannot_read_are_refused_with_the_reason(root, lake):
    for value in ("a b", "plain"):
        for number in range(2):
            write(root / value, {"id": [number], "p": [value]}, partition_by=["p"], configuration=CHANGE_FEED)
    mapped = CHANGE_FEED | {"delta.columnMapping.mode": "name"}
    HandLog(root / "mapped").commit(protocol(2, 5), metadata(configuration=mapped)).commit(add("a"), commit_info())
    assert lake.cdf_support(lake.find("plain"), 0, 1).covered
    assert "percent-encoded" in lake.cdf_support(lake.find("a b"), 0, 1).reason
    assert "column mapping" in lake.cdf_support(lake.find("mapped"), 0, 1).reason


# fields of a wrong type -----------------------------------------------------------------------------------------------

WRONG: tuple[Any, ...] = (None, True, -1, 1.5, 10**30, "text", "", [], [1], {}, {"a": {"b": 1}})
VECTOR = deletion_vector("ab^-aqEH.-t@S}K{vb[*", cardinality=1)
ACTIONS: dict[str, Any] = {
    **add("a", dv=VECTOR, tags={"k": "v"}, baseRowId=1, defaultRowCommitVersion=1, partitionValues={"p": "x"}),
    **remove("b", dv=VECTOR),
    "cdc": {"path": "_change_data/c", "partitionValues": {"p": "x"}, "size": 1, "dataChange": False},
    **metadata({"id": "long", "p": "string"}, partition_by=["p"], configuration={"delta.appendOnly": "false"}),
    **protocol(3, 7, ["deletionVectors"]),
    **commit_info("WRITE", inCommitTimestamp=1, operationMetrics={"numOutputRows": "1"}, userMetadata="x", tags={}),
    "txn": {"appId": "a", "version": 1, "lastUpdated": 1},
    "domainMetadata": {"domain": "d", "configuration": "{}", "removed": False},
    "checkpointMetadata": {"version": 1, "tags": {}},
    "sidecar": {"path": "s.parquet", "sizeInBytes": 1, "modificationTime": 1},
}


def leaves(value: Any, *path: str) -> Iterator[tuple[str, ...]]:
    """Every field of an action and what is in it, and the action itself."""
    yield path
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, *path, name)


def spoiled(path: tuple[str, ...], wrong: Any, whole: dict[str, Any] = ACTIONS) -> dict[str, Any]:
    """The action whose field at `path` holds something else."""
    action = copy.deepcopy({path[0]: whole[path[0]]})
    place = action
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = wrong
    return action


PLACES = [path for kind in ACTIONS for path in leaves(ACTIONS[kind], kind)]
# Every field and every wrong value; all their pairs in `make soak`.
CASES = [
    (path, wrong)
    for place, path in enumerate(PLACES)
    for number, wrong in enumerate(WRONG)
    if MORE > 1 or (place + number) % 3 == 0
]

READINGS: list[Callable[[Lake, TableRef], object]] = [
    lambda lake, ref: everything_of(lake, ref, None),
    lambda lake, ref: lake.timeline(ref),
    lambda lake, ref: lake.card(ref),
    lambda lake, ref: lake.history(ref),
    lambda lake, ref: everything_of(lake, ref, 0),
    lambda lake, ref: lake.versions(ref),
    lambda lake, ref: lake.cdf_support(ref, 0, 1),
    lambda lake, ref: first_rows(lake, ref, limit=1),
]


def reads(lake: Lake, ref: TableRef, most: int = len(READINGS)) -> Counter[str]:
    """Read the table in every way; counts answers and named errors, any other exception is the test's failure."""
    done: Counter[str] = Counter()
    for read in READINGS[:most]:
        try:
            read(lake, ref)
            done["answers"] += 1
        except LakehouseError as exc:
            assert exc.message and exc.hint, exc
            done["errors"] += 1
    return done


def everything_of(lake: Lake, ref: TableRef, version: int | None) -> None:
    snapshot = lake.snapshot(ref, version)
    assert snapshot.num_files == snapshot.files.num_rows
    assert snapshot.num_rows is None or snapshot.num_rows >= 0
    assert snapshot.size_bytes >= 0
    distribute(snapshot, lake.target_bytes(snapshot), ratio=0.5, min_files=1)
    explain_properties(snapshot.metadata)
    explain_features(snapshot.protocol)
    ownership(snapshot.metadata)
    columns(snapshot.metadata)


@pytest.fixture(scope="module")
def spoiled_lake(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, dict[str, TableRef]]:
    """A table for every field and wrong value: half of them in a commit, the others in a JSON checkpoint."""
    root = tmp_path_factory.mktemp("spoiled")
    for number, (path, wrong) in enumerate(CASES):
        action = spoiled(path, wrong)
        if number % 2 or path[0] == "commitInfo":
            HandLog(root / f"commit{number}").start().commit(action, add("z"))
            continue
        rest = [a for a in (protocol(), metadata(), add("z")) if a.keys() != action.keys()]
        lines = "\n".join(json.dumps(a) for a in (*rest, action))
        log = HandLog(root / f"json{number}").start()
        log.raw(f"{1:020d}.checkpoint.00000000-aaaa-aaaa-aaaa-aaaaaaaaaaaa.json", lines)
    lake = Lake(load_settings(home=root, lake={"roots": [str(root)]}))
    return lake, {ref.name: ref for ref in lake.tables()}


@pytest.mark.drawn
@pytest.mark.parametrize("kind", list(ACTIONS))
def test_a_wrong_type_in_any_field_is_named_or_harmless(spoiled_lake, kind):
    lake, refs = spoiled_lake
    numbers = [number for number, (path, _) in enumerate(CASES) if path[0] == kind]
    chosen = {refs[name]: CASES[n] for n in numbers for name in (f"commit{n}", f"json{n}") if name in refs}
    assert len(chosen) == len(numbers)
    assert surprises(lake, chosen) == []


def surprises(lake: Lake, cases: dict[TableRef, Any]) -> list[str]:
    """The cases in which a reading ended in a foreign exception, or the history was hidden."""
    found = []
    for number, (ref, (path, wrong)) in enumerate(cases.items()):
        try:
            reads(lake, ref, len(READINGS) if number % 5 == 0 else 3)
            assert [c.version for c in lake.history(ref)] == ([1, 0] if ref.name.startswith("commit") else [0])
        except Exception as exc:  # noqa: BLE001 - which exception it was is what the test tells
            found.append(f"{ref.name}: {'.'.join(path)} = {wrong!r}: {type(exc).__name__}: {exc}"[:200])
    return found


@pytest.mark.drawn
def test_a_wrong_type_in_a_parquet_checkpoint_is_named_or_harmless(root, lake):
    """Arrow takes the column's type from the wrong value, as a writer's mistake would."""
    for number, (path, wrong) in enumerate(CASES):
        if path[0] not in ("add", "metaData", "protocol") or len(path) > 3 or number % 2:
            continue
        action = spoiled(path, wrong)
        actions = [a for a in (protocol(), metadata(), add("z")) if a.keys() != action.keys()] + [action]
        log = HandLog(root / f"t{number}").start()
        try:
            table = pa.table({kind: [held(a.get(kind)) for a in actions] for kind in ("add", "metaData", "protocol")})
            pq.write_table(table, log.log / f"{1:020d}.checkpoint.parquet")
        except (pa.ArrowException, TypeError, ValueError, OverflowError):  # no column can hold that
            shutil.rmtree(log.table)
    cases = {ref: CASES[int(ref.name[1:])] for ref in lake.tables()}
    assert len(cases) > 50
    assert surprises(lake, cases) == []


def held(value: Any) -> Any:
    """As parquet can hold it: no struct without a field."""
    if not isinstance(value, dict):
        return value
    return {name: held(inner) for name, inner in value.items()} or {"k": "v"}


CHECKSUM: dict[str, Any] = {
    "tableSizeBytes": 100,
    "numFiles": 1,
    "numMetadata": 1,
    "numProtocol": 1,
    "metadata": metadata()["metaData"],
    "protocol": protocol()["protocol"],
    "numDeletedRecordsOpt": 0,
    "numDeletionVectorsOpt": 0,
    "fileSizeHistogram": {"sortedBinBoundaries": [0, 8192], "fileCounts": [1, 0], "totalBytes": [100, 0]},
}


@pytest.mark.parametrize("name", [f"{1:020d}.crc", "_last_checkpoint"])
def test_a_wrong_type_beside_the_log_changes_no_number(root, lake, name):
    whole = CHECKSUM if name.endswith(".crc") else {"version": 1, "size": 3, "parts": 1, "v2Checkpoint": {"path": "x"}}
    cases = [(path, wrong) for path in leaves(whole) for wrong in WRONG if path]
    cases = cases[:: 5 if len(cases) > 200 else 2]  # every field and every wrong value, not all their pairs
    for number, (path, wrong) in enumerate(cases):
        log = HandLog(root / f"t{number}").start().commit(add("a"), commit_info())
        log.checkpoint(1, [protocol(), metadata(), add("a")])
        log.raw(name, json.dumps(whole | spoiled(path, wrong, whole)))
    for ref in lake.tables():
        path, wrong = cases[int(ref.name[1:])]
        snapshot = lake.snapshot(ref)
        found = (snapshot.num_files, snapshot.size_bytes, snapshot.num_rows, snapshot.files.num_rows)
        assert found == (1, 100, 10, 1), (path, wrong)
        assert snapshot.protocol.min_reader_version == 1, (path, wrong)
        assert snapshot.metadata.schema_json, (path, wrong)
    for ref in list(lake.tables())[::10]:
        assert reads(lake, ref)["answers"] >= 7, cases[int(ref.name[1:])]


# -- a large commit --------------------------------------------------------------------------------------------------

READ_LARGE = """
import json, resource, sys, time
from backend.lake.lake import Lake
from backend.settings import load_settings

lake = Lake(load_settings(home=sys.argv[1], lake={"roots": [sys.argv[1]]}))
ref = lake.find("t")
before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
snapshot = lake.snapshot(ref)
versions = [commit.version for commit in lake.history(ref)]
counts = [totals.num_files for totals in lake.timeline(ref).totals]
seconds, most = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([[snapshot.num_files, snapshot.size_bytes, snapshot.num_rows], versions, counts]))
print(seconds, (most - before) * 1024)
"""


def test_a_commit_of_many_megabytes_is_read_in_bounded_time_and_memory(root):
    """`WEIR_TEST_LARGE_COMMIT_MB=200` is the size that must work; 8 times the file and 100 MB may be used."""
    wanted_mb = int(os.environ.get("WEIR_TEST_LARGE_COMMIT_MB", "8"))
    log = HandLog(root / "t").start()
    stats = json.dumps({"numRecords": 10, "minValues": {"id": 1}, "maxValues": {"id": 99}, "nullCount": {"id": 0}})
    line_bytes = len(json.dumps(add(f"part-{0:09d}.snappy.parquet", stats=stats))) + 1
    files = wanted_mb * 2**20 // line_bytes
    log.commit(commit_info(), *(add(f"part-{n:09d}.snappy.parquet", stats=stats) for n in range(files)))
    command = [sys.executable, "-c", READ_LARGE, str(root)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    answers, costs = ran.stdout.splitlines()
    assert json.loads(answers) == [[files, files * 100, files * 10], [1, 0], [0, files]]
    seconds, used_bytes = map(float, costs.split())
    assert seconds < 2 + wanted_mb / 2
    assert used_bytes < (8 * wanted_mb + 100) * 2**20
