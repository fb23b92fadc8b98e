"""Bad input ends in an answer that is right or in a named error with a hint: never another exception, never a hang.

Rule: every reading of a table is tried on every damage; the history stays readable wherever its commits are.
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

from backend.errors import LakehouseError
from backend.lake.files.file_sizes import distribute
from backend.lake.lake import Lake
from backend.lake.model import TableRef
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
)

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


def spoiled(path: tuple[str, ...], wrong: Any, whole: dict[str, Any] = WHOLE) -> dict[str, Any]:
    """The action whose field at `path` holds something else."""
    action = copy.deepcopy({path[0]: whole[path[0]]})
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
