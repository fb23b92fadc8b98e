"""Bad input ends in an answer that is right or in a named error with a hint: never another exception, never a hang.

Rule: every reading of a table is tried on every damage; the history stays readable wherever its commits are.
"""

import copy
import json
import os
import shutil
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backend.errors import LakehouseError, StorageError, TableCorruptError
from backend.lake.files.file_sizes import distribute
from backend.lake.lake import Lake
from backend.lake.model import TableRef, UnreadableTable
from backend.lake.table.properties import explain_features, explain_properties, ownership
from backend.lake.table.schema import fields
from backend.settings import load_settings
from tests.worlds.cases import MORE
from tests.worlds.lake.builders import (
    HandLog,
    add,
    commit_info,
    deletion_vector,
    first_rows,
    metadata,
    protocol,
    remove,
    write,
)
from tests.worlds.lake.logs import RandomLog, commit_name
from tests.worlds.lake.permissions import unreadable
from tests.worlds.streams.replay import State, key_of, live_rows

WRONG: tuple[Any, ...] = (None, True, -1, 1.5, 10**30, "text", "", [], [1], {}, {"a": {"b": 1}})
VECTOR = deletion_vector("ab^-aqEH.-t@S}K{vb[*", cardinality=1)
WHOLE: dict[str, Any] = {
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


def spoiled(path: tuple[str, ...], wrong: Any) -> dict[str, Any]:
    """The action whose field at `path` holds something else."""
    action = copy.deepcopy({path[0]: WHOLE[path[0]]})
    place = action
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = wrong
    return action


PLACES = [path for kind in WHOLE for path in leaves(WHOLE[kind], kind)]
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
    fields(snapshot.metadata)


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
@pytest.mark.parametrize("kind", list(WHOLE))
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
def test_a_wrong_type_in_a_parquet_checkpoint_is_named_or_harmless(root, open_lake):
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
    lake = open_lake()
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
def test_a_wrong_type_beside_the_log_changes_no_number(root, open_lake, name):
    whole = CHECKSUM if name.endswith(".crc") else {"version": 1, "size": 3, "parts": 1, "v2Checkpoint": {"path": "x"}}
    cases = [(path, wrong) for path in leaves(whole) for wrong in WRONG if path]
    cases = cases[:: 5 if len(cases) > 200 else 2]  # every field and every wrong value, not all their pairs
    for number, (path, wrong) in enumerate(cases):
        body: Any = copy.deepcopy(whole)
        place = body
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = wrong
        log = HandLog(root / f"t{number}").start().commit(add("a"), commit_info())
        log.checkpoint(1, [protocol(), metadata(), add("a")])
        log.raw(name, json.dumps(body))
    lake = open_lake()
    for ref in lake.tables():
        path, wrong = cases[int(ref.name[1:])]
        snapshot = lake.snapshot(ref)
        found = (snapshot.num_files, snapshot.size_bytes, snapshot.num_rows, snapshot.files.num_rows)
        assert found == (1, 100, 10, 1), (path, wrong)
        assert snapshot.protocol.min_reader_version == 1, (path, wrong)
        assert snapshot.metadata.schema_json, (path, wrong)
    for ref in list(lake.tables())[::10]:
        assert reads(lake, ref)["answers"] >= 7, cases[int(ref.name[1:])]


# -- cut files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["classic", "multi", "sidecar", "parquet", "json"])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_cut_checkpoint_is_passed_over_or_named(root, open_lake, kind, share):
    state = [protocol(), metadata(), add("a"), add("b")]
    for name in ("whole", "alone"):
        log = HandLog(root / name).start().commit(add("a"), add("b"), commit_info())
        if kind in ("classic", "multi"):
            log.checkpoint(1, state, parts=2 if kind == "multi" else 1)
        else:
            log.v2_checkpoint(1, state, top="json" if kind == "json" else "parquet")
        folder = log.log / "_sidecars" if kind == "sidecar" else log.log
        pattern = "*.parquet" if kind == "sidecar" else "*.checkpoint.*"
        victim = sorted(folder.glob(pattern))[-1]
        content = victim.read_bytes()
        victim.write_bytes(content[: int(len(content) * share)])
        log.commit(add("c"), commit_info())
        if name == "alone":
            (log.log / commit_name(0)).unlink()
    lake = open_lake()
    snapshot = lake.snapshot(lake.find("whole"))
    assert (snapshot.num_files, snapshot.num_rows) == (3, 30)
    assert snapshot.findings, "that it was passed over must be said"
    with pytest.raises(LakehouseError) as caught:
        assert lake.snapshot(lake.find("alone")).num_files is None
    assert caught.value.hint
    assert [c.version for c in lake.history(lake.find("alone"))] == [2, 1]
    reads(lake, lake.find("alone"))


def test_a_sidecar_that_is_gone_is_named(root, open_lake):
    log = HandLog(root / "t")
    log.v2_checkpoint(1, [protocol(), metadata(), add("a")])
    for path in (log.log / "_sidecars").iterdir():
        path.unlink()
    lake = open_lake()
    with pytest.raises(LakehouseError) as caught:
        assert lake.snapshot(lake.find("t")).num_files is None
    assert "_sidecars" in caught.value.message and caught.value.hint


def test_an_empty_commit_in_the_middle_stops_only_the_versions_after_it(root, open_lake):
    log = HandLog(root / "t").start()
    for version in range(1, 6):
        log.commit(add(f"f{version}"), commit_info())
    log.raw(commit_name(3), b"")
    lake = open_lake()
    ref = lake.find("t")
    assert lake.snapshot(ref, 2).num_files == 2
    for version in (3, 4, 5):
        with pytest.raises(TableCorruptError, match=commit_name(3)):
            lake.snapshot(ref, version)
    assert [bool(c.problem) for c in lake.history(ref)] == [False, False, True, False, False, False]
    log.checkpoint(4, [protocol(), metadata(), *(add(f"f{v}") for v in range(1, 5))])
    log.commit(add("f6"), commit_info())
    lake = open_lake()
    assert (lake.snapshot(ref).num_files, lake.snapshot(ref, 4).num_files) == (6, 4)
    with pytest.raises(TableCorruptError):
        lake.snapshot(ref, 3)


# -- a large commit --------------------------------------------------------------------------------------------------

READ_LARGE = """
    import json, resource, sys, time
    from backend.lake.lake import Lake
    from backend.settings import load_settings

    lake = Lake(load_settings(home=sys.argv[1], lake={"roots": [sys.argv[1]]}))
    ref = lake.find("t")
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds, found = {}, {}
    for name, read in {
        "snapshot": lambda: (lambda s: (s.num_files, s.size_bytes, s.num_rows))(lake.snapshot(ref)),
        "history": lambda: [c.version for c in lake.history(ref)],
        "timeline": lambda: [t.num_files for t in lake.timeline(ref).totals],
    }.items():
        start = time.process_time()
        found[name] = read()
        seconds[name] = time.process_time() - start
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"found": found, "seconds": seconds, "bytes": (most - base) * 1024}))
"""


def test_a_commit_of_many_megabytes_is_read_in_bounded_time_and_memory(root):
    """`WEIR_TEST_LARGE_COMMIT_MB=200` is the size that must work; 8 times the file and 100 MB may be used."""
    wanted_mb = int(os.environ.get("WEIR_TEST_LARGE_COMMIT_MB", "8"))
    log = HandLog(root / "t").start()
    stats = json.dumps({"numRecords": 10, "minValues": {"id": 1}, "maxValues": {"id": 99}, "nullCount": {"id": 0}})
    path, files = log.log / commit_name(1), 0
    with path.open("w") as out:
        out.write(json.dumps(commit_info()) + "\n")
        while out.tell() < wanted_mb * 2**20:
            lines = (json.dumps(add(f"part-{files + n:09d}.snappy.parquet", stats=stats)) + "\n" for n in range(1000))
            out.write("".join(lines))
            files += 1000
    command = [sys.executable, "-c", textwrap.dedent(READ_LARGE), str(root)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    told = json.loads(ran.stdout)
    sys.stdout.write(f"{files} files, {path.stat().st_size >> 20} MB: {ran.stdout}")
    assert told["found"] == {
        "snapshot": [files, files * 100, files * 10],
        "history": [1, 0],
        "timeline": [0, files],
    }
    assert sum(told["seconds"].values()) < 2 + wanted_mb / 2
    assert told["bytes"] < (8 * wanted_mb + 100) * 2**20


# -- a log that changes while it is read -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2])
def test_a_log_that_changes_while_it_is_read_gives_whole_versions_or_named_errors(root, open_lake, seed):
    log = RandomLog(root / "t", Random(seed), ["both"])
    log.wrong_share = 0.0
    log.grow()
    lake = open_lake()
    ref = lake.find("t")
    stop = threading.Event()
    counted: Counter[str] = Counter()
    failures: list[BaseException] = []

    def watch(number: int) -> None:
        random = Random(number)
        try:
            while not stop.is_set():
                counted[read_one(lake, ref, log, random)] += 1
        except BaseException as exc:  # noqa: BLE001 - told by the test's own thread
            failures.append(exc)

    watchers = [threading.Thread(target=watch, args=(number,)) for number in range(2)]
    for watcher in watchers:
        watcher.start()
    for step in range(2_000):
        if failures or (step >= 60 and counted["right"] > max(20, counted["refused"])):
            break
        log.grow()
        if step % 10 == 5:
            log.checkpoint()
        if step % 20 == 15:
            log.clean(log.checkpoints[-1])
    stop.set()
    for watcher in watchers:
        watcher.join()
    assert not failures, failures[0]
    assert counted["right"] > 20, counted
    assert counted["right"] > counted["refused"], counted
    expect(lake, ref, log.version, log.states[-1])


def read_one(lake: Lake, ref: TableRef, log: RandomLog, random: Random) -> str:
    """One reading, compared with what the writer knows; says whether it was right or refused by name."""
    try:
        choice = random.randrange(4)
        if choice == 0:
            snapshot = lake.snapshot(ref)
            expect(lake, ref, snapshot.version, log.states[snapshot.version])
        elif choice == 1:
            expect(lake, ref, version := random.randrange(log.version + 1), log.states[version])
        elif choice == 2:
            for totals in lake.timeline(ref).totals:
                state = log.states[totals.version]
                assert (totals.num_files, totals.num_rows) == (len(state.files), live_rows(state))
        else:
            versions = [commit.version for commit in lake.history(ref, limit=10)]
            assert versions == sorted(versions, reverse=True)
        return "right"
    except LakehouseError as exc:
        assert exc.message
        return "refused"


def expect(lake: Lake, ref: TableRef, version: int, state: State) -> None:
    snapshot = lake.snapshot(ref, version)
    columns = snapshot.columns(["path", "dv_id", "size_bytes"])
    found = Counter(zip(*(column.to_pylist() for column in columns.columns), strict=True))
    assert found == Counter((*key_of(body), body["size"]) for body in state.files.values())
    assert snapshot.num_rows == live_rows(state)


# -- no permission ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["_delta_log", f"_delta_log/{commit_name(1)}", f"_delta_log/{1:020d}.crc"])
def test_what_may_not_be_read_is_named_and_hides_no_other_table(root, open_lake, name):
    for table in ("locked", "open"):
        log = HandLog(root / table).start().commit(add("a"), commit_info())
        log.raw(f"{1:020d}.crc", json.dumps(CHECKSUM))
    with unreadable(root / "locked" / name):
        lake = open_lake()
        cards = {card.ref.name: card for card in lake.cards()}
        assert cards["open"].num_files == 1
        assert reads(lake, cards["locked"].ref)["errors"] or name.endswith(".crc")
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
