"""The files that tell two versions apart: by what commits say alone where that is all there is, else by the states.

Rule: each case is compared with the difference of two states read whole. Random logs are in `test_random_logs`.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from backend.lake.files.file_difference import DIFFERENCE_COLUMNS, FileDifference, file_difference, looked_up
from backend.lake.lake import Lake
from backend.lake.log.checkpoint import CheckpointState
from backend.lake.log.log import TableLog
from backend.lake.model import Snapshot, TableRef
from backend.lake.storage.local_folder import LocalFolder
from tests.worlds.cases import few
from tests.worlds.lake.builders import HandLog, add, commit_info, metadata, protocol, remove
from tests.worlds.lake.diffs import prepare

OpenLake = Callable[[], Lake]
STATS = json.dumps({"numRecords": 10})
VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 4,
    "sizeInBytes": 40,
    "cardinality": 1,
}
TRACKED = {"delta.enableRowTracking": "true"}


def gone(path: str, **more: Any) -> dict[str, Any]:
    """A remove that says of its file what Spark says."""
    return remove(path, **({"stats": STATS} | more))


def quietly(path: str, **more: Any) -> dict[str, Any]:
    return add(path, dataChange=False, **more)


CASES: dict[str, tuple[bool, list[list[dict[str, Any]]]]] = {  # whether commits suffice; the commits after v1 (a, b, c)
    "append": (True, [[add("d")]]),
    "delete": (True, [[gone("a")]]),
    "rewrite": (True, [[gone("a"), add("d"), add("e", size=7)], [gone("d"), gone("b"), add("f")]]),
    "compaction": (True, [[gone("a", dataChange=False), gone("b", dataChange=False), quietly("d", size=200)]]),
    "deletion vector": (True, [[gone("a"), add("a", dv=VECTOR)]]),
    "brought back": (True, [[gone("a")], [add("a")]]),
    "came and went": (True, [[add("d")], [gone("d")]]),
    "came, went and came": (True, [[add("d")], [gone("d")], [add("d", size=5)]]),
    "nothing": (True, [[]]),
    "statistics again": (False, [[quietly("a", rows=10), quietly("b")]]),
    "added twice": (False, [[add("a")]]),
    "a remove of no file": (False, [[gone("z"), add("d")]]),
    "a remove without its size": (False, [[remove("a", size=None)]]),
    "a remove without its rows": (False, [[remove("a")]]),
    "a remove without its partition": (False, [[gone("p=1/x", partitionValues={})]]),
    "a remove without its row id": (False, [[gone("a"), add("d", baseRowId=50)]]),
}


def _bases(name: str) -> tuple[bool, ...]:
    """With and without a checkpoint; those that builders write hold no row ids."""
    return (False,) if "row id" in name else (False, True)


def table(place: Path, commits: list[list[dict[str, Any]]], *, partitioned: bool, tracked: bool) -> HandLog:
    """v0 is empty, v1 has a, b and c; a checksum for each version, as the states have it."""
    options = {"partition_by": ["p"]} if partitioned else {}
    log = HandLog(place).start(
        columns={"id": "long", "p": "string"}, configuration=TRACKED if tracked else None, **options
    )
    ids = [{"baseRowId": n * 10} if tracked else {} for n in range(3)]
    partition = {"partitionValues": {"p": "1"}} if partitioned else {}
    log.commit(*(add(path, **more) for path, more in zip("abc", ids, strict=True)), add("p=1/x", **partition))
    for actions in commits:
        log.commit(*actions, commit_info())
    return log


def write_checksums(log: HandLog, lake: Lake) -> None:
    ref = lake.find(log.table.name)
    for version in range(log.next_version):
        snapshot = lake.snapshot(ref, version)
        said = {"numFiles": snapshot.num_files, "tableSizeBytes": snapshot.size_bytes}
        log.raw(f"{version:020d}.crc", json.dumps(said | {"numMetadata": 1, "numProtocol": 1}))


def by_states(first: Snapshot, second: Snapshot) -> tuple[set[Any], set[Any]]:
    ours, theirs = (
        {tuple(row.values()) for row in each.columns(DIFFERENCE_COLUMNS).to_pylist()} for each in (first, second)
    )
    keys = [{(row[0], row[DIFFERENCE_COLUMNS.index("dv_id")]) for row in rows} for rows in (ours, theirs)]
    return (
        {row for row in ours if (row[0], row[DIFFERENCE_COLUMNS.index("dv_id")]) not in keys[1]},
        {row for row in theirs if (row[0], row[DIFFERENCE_COLUMNS.index("dv_id")]) not in keys[0]},
    )


def as_sets(apart: FileDifference) -> tuple[set[Any], set[Any]]:
    first, second = (
        [tuple(row.values()) for row in each.to_pylist()] for each in (apart.only_first, apart.only_second)
    )
    assert len({*first}) == len(first) and len({*second}) == len(second)
    return set(first), set(second)


def found_with(root: Path, first: int, second: int) -> tuple[FileDifference, bool]:
    """The difference of two versions of the table `t`, and whether files were looked up in the states for it."""
    seen: list[int] = []

    def watched(*args: Any) -> FileDifference:
        seen.append(1)
        return looked_up(*args)

    folder = LocalFolder(str(root / "t"), [str(root)])
    log = TableLog(TableRef(folder.uri, "t", str(root)), folder, [str(root)])
    return file_difference(log, first, second, look_up=watched), bool(seen)


@pytest.mark.parametrize(("name", "checkpointed"), [(name, kind) for name in CASES for kind in _bases(name)])
def test_commits_alone_tell_what_the_states_tell_or_are_not_believed(
    root: Path, open_lake: OpenLake, name: str, checkpointed: bool
) -> None:
    suffice, commits = CASES[name]
    log = table(root / "t", commits, partitioned="partition" in name, tracked="row id" in name)
    if checkpointed:
        adds = [{"add": body} for line in log.log.joinpath(f"{1:020d}.json").read_text().splitlines()
                for body in [json.loads(line).get("add")] if body]  # fmt: skip
        head = [json.loads(line) for line in log.log.joinpath(f"{0:020d}.json").read_text().splitlines()]
        log.checkpoint(1, [action for action in head if "commitInfo" not in action] + adds)
    write_checksums(log, open_lake())
    lake, newest = open_lake(), log.next_version - 1
    ref = lake.find("t")
    for first, second in ((1, newest), (newest, 1), (newest - 1, newest), (0, newest), (newest, newest)):
        found, was_looked_up = found_with(root, first, second)
        assert as_sets(found) == by_states(lake.snapshot(ref, first), lake.snapshot(ref, second)), (first, second)
        if (first, second) == (1, newest):
            assert was_looked_up is not suffice


def test_checksums_that_do_not_bear_the_commits_out_or_are_not_there_send_to_the_states(
    root: Path, open_lake: OpenLake
) -> None:
    log = table(root / "t", [[gone("a"), add("d")]], partitioned=False, tracked=False)
    write_checksums(log, open_lake())
    whole = log.log.joinpath(f"{2:020d}.crc").read_text()
    for text in ('{"numFiles": 5', "[]", whole.replace('"numFiles": 4', '"numFiles": 5'), whole.replace("400", "401")):
        log.raw(f"{2:020d}.crc", text)
        assert found_with(root, 1, 2)[1], text
    log.raw(f"{2:020d}.crc", whole)
    assert not found_with(root, 1, 2)[1]
    log.log.joinpath(f"{1:020d}.crc").unlink()
    assert found_with(root, 1, 2)[1]


def test_what_the_log_tells_of_a_few_commits_looks_at_no_file_of_a_large_checkpoint(
    root: Path, open_lake: OpenLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = HandLog(root / "t").start()
    files = [add(f"f{n}") for n in range(300)]
    log.commit(*files).checkpoint(1, [protocol(), metadata(), *files])
    log.commit(gone("f7"), add("g", size=40, rows=4), commit_info())
    write_checksums(log, open_lake())

    def refused(*_: Any) -> Any:
        raise AssertionError("files of the checkpoint were read")

    for name in ("column", "matches", "total"):
        monkeypatch.setattr(CheckpointState, name, refused)
    for name in ("f7", "g"):
        (root / "t" / name).write_bytes(b"")
    lake = open_lake()
    found = prepare(lake, lake.find("t"), 1, 2).log.files
    assert (found.added, found.removed, found.more_rows, found.bytes_added - found.bytes_removed) == (1, 1, -6, -60)


@pytest.mark.parametrize("seed", few(6, range(20)))
def test_files_taken_at_places_are_those_of_the_columns(root: Path, open_lake: OpenLake, seed: int) -> None:
    draw = np.random.default_rng(seed)
    log = HandLog(root / "t").start(columns={"id": "long", "p": "string"}, partition_by=["p"])
    files = [
        add(f"f{n}", size=n, rows=None if n % 5 == 0 else n, partitionValues={"p": str(n % 3)}, baseRowId=n * 100)
        for n in range(60)
    ]
    log.commit(*files).checkpoint(1, [protocol(), metadata({"id": "long", "p": "string"}, partition_by=["p"]), *files])
    late = [add(f"g{n}", size=n, partitionValues={"p": "9"}) for n in range(int(draw.integers(0, 5)))]
    log.commit(*(remove(f"f{n}") for n in draw.permutation(60)[: int(draw.integers(0, 60))]), *late, commit_info())
    lake = open_lake()
    snapshot = lake.snapshot(lake.find("t"))
    names = [*DIFFERENCE_COLUMNS, "modified_at", "stats"]
    places = draw.permutation(snapshot.num_files)[: int(draw.integers(0, snapshot.num_files + 1))]
    assert snapshot.rows_at(places, names).equals(snapshot.columns(names).take(pa.array(places)))
