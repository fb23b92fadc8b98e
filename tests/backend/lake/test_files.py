"""Files of a version, and what tells two versions apart: sizes, what is small, targets, footers, differences."""

import json
import math
import random
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backend.errors import DataFileMissingError
from backend.lake.files.file_difference import DIFFERENCE_COLUMNS, FileDifference, file_difference, looked_up
from backend.lake.files.file_sizes import (
    MB,
    TB,
    FileChoice,
    TargetSize,
    distribute,
    file_page,
    parse_size,
    partition_files,
    small_limit,
    target_for,
)
from backend.lake.lake import Lake
from backend.lake.log.actions import VectorId, read_vector_id
from backend.lake.log.checkpoint import CheckpointState
from backend.lake.log.log import TableLog
from backend.lake.model import TableRef
from backend.lake.storage.local_folder import LocalFolder
from backend.settings import HealthSettings, LakeSettings
from tests.worlds.lake.builders import (
    HandLog,
    add,
    column,
    commit_info,
    metadata,
    protocol,
    put,
    remove,
)
from tests.worlds.lake.diffs import prepare
from tests.worlds.lake.made import snapshot
from tests.worlds.lake.vectors import write_vector


def test_small_means_strictly_below_the_share_of_the_target():
    made = snapshot([49, 50, 51])
    assert distribute(made, TargetSize(100, "table size"), ratio=0.5, min_files=1).small_files == 1


def test_totals_of_partitions_equal_a_recount_row_by_row():
    chance = random.Random(4)
    count = 500
    sizes = [chance.choice([0, 5, 2**53 + 1, 2**40, chance.randrange(10**6)]) for _ in range(count)]
    names = [f"p={chance.randrange(7)}" for _ in range(count)]
    rows = [chance.choice([None, 100]) if name == "p=3" else 100 for name in names]
    deleted = [chance.choice([0, 0, 3, 50]) for _ in range(count)]
    parts = partition_files(snapshot(sizes, partitions=names, rows=rows, deleted=deleted), 1000)
    assert parts == tuple(sorted(parts, key=lambda part: (-part.size_bytes, part.partition)))
    assert {part.partition for part in parts} == set(names)
    for part in parts:
        own = [n for n in range(count) if names[n] == part.partition]
        assert part.num_files == len(own) and part.size_bytes == sum(sizes[n] for n in own)
        assert part.small_files == sum(sizes[n] < 1000 for n in own)
        assert part.files_with_vectors == sum(deleted[n] > 0 for n in own)
        assert part.deleted_rows == sum(deleted[n] for n in own)
        whole = [rows[n] for n in own]
        assert part.num_rows == (None if None in whole else sum(whole) - part.deleted_rows)


def test_skew_and_the_load_of_deletion_vectors():
    made = snapshot([60, 20, 10, 10], partitions=["a", "b", "c", "c"], rows=[100] * 4, deleted=[0, 6, 5, 0])
    distribution = distribute(made, TargetSize(4, "table size"), ratio=0.5, min_files=1)
    vectors = distribution.vectors
    assert (distribution.skew, distribution.median_bytes, distribution.small_limit_bytes) == (3.0, 10, 2)
    assert (vectors.files, vectors.deleted_rows, vectors.heavy_files) == (2, 11, 1)
    assert vectors.deleted_share == pytest.approx(11 / 400)
    assert distribution.partitions[1].deleted_share == pytest.approx(0.06)
    unknown = distribute(snapshot([1], rows=[None], deleted=[7]), TargetSize(4, "x"), ratio=0.5, min_files=1)
    assert (unknown.vectors.deleted_share, unknown.vectors.heavy_files, unknown.skew) == (None, 0, None)


@pytest.mark.parametrize("order", ["largest", "smallest"])
def test_pages_of_files_are_those_of_a_whole_stable_sort(order):
    chance = random.Random(7)
    sizes = [chance.randrange(12) for _ in range(230)]
    made = snapshot(sizes, partitions=[f"p={n % 3}" for n in range(230)])
    choice = FileChoice(from_bytes=2, to_bytes=9, partition="p=1", order=order)
    inside = [n for n in range(230) if 2 <= sizes[n] < 9 and n % 3 == 1]
    want = sorted(inside, key=lambda n: sizes[n] if order == "smallest" else -sizes[n])
    got = []
    for start in range(0, len(inside), 7):
        page = file_page(made, choice, start=start, length=7)
        assert (page.start, page.total) == (start, len(inside))
        got += page.files["path"].to_pylist()
    assert got == [f"{n}.parquet" for n in want]
    last = file_page(made, choice, start=10**6, length=7)
    assert last.start == (len(inside) - 1) // 7 * 7 and last.files.num_rows
    assert file_page(snapshot([]), choice).total == 0


def test_files_with_deleted_rows_come_with_the_largest_share_first():
    made = snapshot([1] * 5, rows=[10, 100, None, 10, 10], deleted=[1, 50, 7, 0, 9])
    page = file_page(made, FileChoice(order="deleted"))
    assert page.files["path"].to_pylist() == [f"{n}.parquet" for n in (4, 1, 0, 2)]


@pytest.mark.parametrize(
    ("text", "size"),
    [("134217728", 134217728), ("128mb", 2**27), ("128 MB", 2**27), ("1g", 2**30)]
    + [(text, None) for text in ("", "banana", "-1", "0", "1.5gb", "mb")],
)
def test_sizes_as_engines_write_them(text, size):
    assert parse_size(text) == size


def test_the_target_comes_from_the_property_then_the_setting_then_the_size():
    plain, chosen = HealthSettings(), HealthSettings(target_file_bytes=7)
    assert target_for({"delta.targetFileSize": "1kb"}, 0, chosen) == TargetSize(1024, "delta.targetFileSize")
    assert target_for({"delta.targetFileSize": "banana"}, 0, chosen).source == "setting health.target_file_bytes"
    assert target_for({}, 1, plain) == TargetSize(256 * MB, "table size")
    assert target_for({}, 20 * TB, plain).bytes == 1000 * MB
    middle = target_for({}, 6_280_000 * MB, plain).bytes
    assert 627 * MB < middle < 629 * MB


# totals over versions -------------------------------------------------------------------------------------------------


def test_small_files_follow_a_target_that_grows_with_the_table(root, open_lake):
    random = Random(1)
    log, sizes = HandLog(root / "t").start(), dict[str, int]()
    states = [dict(sizes)]
    for version in range(1, 40):
        new = {f"a{version}": random.randrange(TB), f"b{version}": random.randrange(100 * MB, 400 * MB)}
        gone = random.sample(sorted(sizes), min(len(sizes), random.randrange(3)))
        log.commit(*(remove(path) for path in gone), *(add(p, size=s) for p, s in new.items()), commit_info())
        sizes = {path: size for path, size in sizes.items() if path not in gone} | new
        states.append(dict(sizes))
        if version == 20:
            log.checkpoint(20, [protocol(), metadata(), *(add(p, size=s) for p, s in sizes.items())])
    lake, late = (open_lake(health={"min_files": 1}) for _ in range(2))
    ref = lake.find("t")
    want = []
    for version, state in enumerate(states):
        target = lake.target_bytes(lake.snapshot(ref, version))
        limit = small_limit(target, HealthSettings().small_file_ratio)
        want.append(sum(size < limit for size in state.values()))
    assert len(set(want)) > 5
    assert [totals.small_files for totals in lake.timeline(ref).totals] == want
    assert late.card(ref).small_files == want[-1]
    small = [size for size in states[-1].values() if size < limit]
    merged = min(len(small), max(1, math.ceil(sum(small) / target.bytes)))
    assert {lake.card(ref).files_after_merge, late.card(ref).files_after_merge} == {
        len(states[-1]) - len(small) + merged
    }


# footers --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def one_file(root):
    path = root / "t"
    path.mkdir()
    rows = pa.table({"id": list(range(10)), "name": ["x", None] * 5})
    pq.write_table(rows, path / "f 1.parquet", row_group_size=4, compression={"id": "NONE", "name": "SNAPPY"})
    size = (path / "f 1.parquet").stat().st_size
    log = HandLog(path).commit(protocol(3, 7, ["deletionVectors"]), metadata({"id": "long", "name": "string"}))
    log.commit(add("f%201.parquet", size=size, rows=10, dv=write_vector(path, [1, 2])), commit_info())
    return path


def test_row_groups_encodings_and_sizes_are_those_of_the_footer(one_file, lake):
    footer = lake.footer(lake.snapshot(lake.find("t")), "f 1.parquet")
    meta = pq.read_metadata(one_file / "f 1.parquet")
    assert (footer.num_rows, footer.num_groups, footer.num_columns) == (10, 3, 2)
    assert [group.num_rows for group in footer.groups] == [4, 4, 2]
    sizes = [meta.row_group(number).total_byte_size for number in range(3)]
    assert [group.uncompressed_bytes for group in footer.groups] == sizes
    for number, chunked in enumerate(footer.columns):
        chunks = [meta.row_group(group).column(number) for group in range(3)]
        assert chunked.compressed_bytes == sum(chunk.total_compressed_size for chunk in chunks)
        assert set(chunked.encodings) == {encoding for chunk in chunks for encoding in chunk.encodings}
    identity, name = footer.columns
    assert (identity.path, identity.compression, identity.minimum, identity.maximum) == ("id", "UNCOMPRESSED", "0", "9")
    assert (name.path, name.compression, name.null_count, name.type) == ("name", "SNAPPY", 5, "BYTE_ARRAY (String)")
    assert footer.compressed_bytes == sum(group.compressed_bytes for group in footer.groups)


def test_columns_carry_the_tables_names_under_mapping(root, lake):
    mapped = {"delta.columnMapping.mode": "name"}
    made = metadata([column("id", number=1, physical="col-1")], configuration=mapped)
    HandLog(root / "t").commit(protocol(2, 5), made, put(root / "t", "f.parquet", {"col-1": [1]}), commit_info())
    assert [shown.path for shown in lake.footer(lake.snapshot(lake.find("t")), "f.parquet").columns] == ["id"]


def test_a_file_that_the_version_does_not_name_is_not_opened(one_file, lake):
    pq.write_table(pa.table({"id": [1]}), one_file / "stray.parquet")
    for path in ("stray.parquet", "../t/f 1.parquet", "_delta_log/00000000000000000000.json", ""):
        with pytest.raises(DataFileMissingError, match="holds no file"):
            lake.footer(lake.snapshot(lake.find("t")), path)
    with pytest.raises(DataFileMissingError):
        lake.footer(lake.snapshot(lake.find("t"), 0), "f 1.parquet")


# deletion vectors' ids ------------------------------------------------------------------------------------------------

UUID = "d2c639aa-8816-431a-aaf6-d3fe2512ff61"  # the example of PROTOCOL.md


@pytest.mark.parametrize(
    ("dv_id", "file", "offset"),
    [
        ("uab^-aqEH.-t@S}K{vb[*k^@1", f"ab/deletion_vector_{UUID}.bin", 1),
        ("u^-aqEH.-t@S}K{vb[*k^", f"deletion_vector_{UUID}.bin", 0),
        ("ps3://b/t/x.bin@7", "s3://b/t/x.bin", 7),
        ("iabc", None, 0),  # it lies in the log itself
        ("u~~~~~aqEH.-t@S}K{vb", None, 0),  # no base85
        ("u" + "#" * 20, None, 0),  # base85, but beyond 32 bits
        ("ushort", None, 0),
        ("", None, 0),
    ],
)
def test_a_vectors_file_is_named_by_its_id(dv_id, file, offset):
    vector = read_vector_id(dv_id)
    assert (vector.file, vector.offset) == (file, offset)


def test_an_inline_vector_may_end_like_an_offset():
    assert read_vector_id("iabc@1") == VectorId("i", "abc@1")
    assert read_vector_id("iabcde@1") == VectorId("i", "abcde", 1)


# differences of two versions ------------------------------------------------------------------------------------------

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
    "a remove without its bytes": (False, [[remove("a", size=None)]]),
    "a remove without its rows": (False, [[remove("a")]]),
    "a remove without its partition": (False, [[gone("p=1/x", partitionValues={})]]),
    "a remove without its row id": (False, [[gone("a"), add("d", baseRowId=50)]]),
}


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
        sizes = {"numFiles": snapshot.num_files, "tableSizeBytes": snapshot.size_bytes}
        log.raw(f"{version:020d}.crc", json.dumps(sizes | {"numMetadata": 1, "numProtocol": 1}))


def keyed(files: pa.Table) -> dict[tuple[str, str | None], dict[str, Any]]:
    rows = {(row["path"], row["dv_id"]): row for row in files.to_pylist()}
    assert len(rows) == len(files), "a file is there twice"
    return rows


def found_with(root: Path, first: int, second: int) -> tuple[FileDifference, bool]:
    """The difference of two versions of the table `t`, and whether files were looked up in the states for it."""
    seen: list[int] = []

    def watched(*args: Any) -> FileDifference:
        seen.append(1)
        return looked_up(*args)

    folder = LocalFolder(str(root / "t"), [str(root)])
    log = TableLog(TableRef(folder.uri, "t", str(root)), folder, [str(root)], LakeSettings())
    return file_difference(log, first, second, look_up=watched), bool(seen)


@pytest.mark.parametrize(  # a checkpoint of `builders` holds no row ids
    ("name", "checkpointed"),
    [(name, kind) for name in CASES for kind in (False, True) if not (kind and "row id" in name)],
)
def test_commits_alone_tell_what_the_states_tell_or_are_not_believed(root, open_lake, name, checkpointed):
    suffice, commits = CASES[name]
    log = table(root / "t", commits, partitioned="partition" in name, tracked="row id" in name)
    if checkpointed:
        lines = [line for version in (0, 1) for line in (log.log / f"{version:020d}.json").read_text().splitlines()]
        log.checkpoint(1, [json.loads(line) for line in lines if "commitInfo" not in line])
    write_checksums(log, open_lake())
    lake, newest = open_lake(), log.next_version - 1
    ref = lake.find("t")
    for first, second in ((1, newest), (newest, 1), (newest - 1, newest), (0, newest), (newest, newest)):
        apart, was_looked_up = found_with(root, first, second)
        ours, theirs = (keyed(lake.snapshot(ref, version).columns(DIFFERENCE_COLUMNS)) for version in (first, second))
        only_ours, only_theirs = ours.keys() - theirs.keys(), theirs.keys() - ours.keys()
        assert keyed(apart.only_first) == {key: ours[key] for key in only_ours}, (first, second)
        assert keyed(apart.only_second) == {key: theirs[key] for key in only_theirs}, (first, second)
        if (first, second) == (1, newest):
            assert was_looked_up is not suffice


def test_checksums_that_do_not_bear_the_commits_out_or_are_not_there_send_to_the_states(root, open_lake):
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


def test_what_the_log_tells_of_a_few_commits_looks_at_no_file_of_a_large_checkpoint(root, open_lake, monkeypatch):
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
    diff = prepare(lake, lake.find("t"), 1, 2).log.files
    assert (diff.added, diff.removed, diff.more_rows, diff.bytes_added - diff.bytes_removed) == (1, 1, -6, -60)
