"""File sizes: half-open buckets, one definition of small, targets from the right place."""

import itertools
import random

import pyarrow as pa
import pytest

from backend.lake.files.file_sizes import (
    MB,
    TB,
    FileChoice,
    TargetSize,
    distribute,
    file_page,
    histogram,
    parse_size,
    partition_files,
    target_for,
    target_size,
)
from backend.lake.model import Metadata, Protocol, Snapshot, TableRef, files_schema
from backend.settings import HealthSettings
from tests.worlds.lake.given_files import GivenFiles

METADATA = Metadata("id", "{}")


def snapshot(
    sizes: list[int],
    partitions: list[str] | None = None,
    rows: list[int | None] | None = None,
    deleted: list[int] | None = None,
) -> Snapshot:
    count = len(sizes)
    files = pa.table(
        {
            "path": [f"f{n}" for n in range(count)],
            "size_bytes": sizes,
            "num_records": rows or [1] * count,
            "deleted_rows": deleted or [0] * count,
            "modified_at": [None] * count,
            "partition": partitions or [""] * count,
            "dv_id": [None] * count,
        },
        schema=files_schema(),
    )
    return Snapshot(TableRef("/t", "t", "/"), 0, None, Protocol(1, 2), METADATA, GivenFiles(files))


@pytest.mark.parametrize("sizes", [[], [0], [1], [0, 1, 2, 3, 4], [2**20, 2**20 - 1, 2**20 + 1], [5, 5_000_000_000]])
def test_every_file_lies_in_exactly_one_bucket(sizes):
    buckets = histogram(pa.chunked_array([pa.array(sizes, pa.int64())]))
    for size in sizes:
        assert sum(b.from_bytes <= size < b.to_bytes for b in buckets) == 1
    for bucket in buckets:
        inside = [size for size in sizes if bucket.from_bytes <= size < bucket.to_bytes]
        assert (bucket.files, bucket.bytes) == (len(inside), sum(inside))
    assert all(a.to_bytes == b.from_bytes for a, b in itertools.pairwise(buckets))


def test_a_partition_with_few_files_is_not_judged():
    made = snapshot([10] * 16 + [10] * 15, ["a"] * 16 + ["b"] * 15)
    target = TargetSize(100, "table size")
    assert distribute(made, target, ratio=0.5, min_files=16).small_files == 16
    assert distribute(made, target, ratio=0.5, min_files=15).small_files == 31


def test_small_means_strictly_below_the_share_of_the_target():
    made = snapshot([49, 50, 51])
    assert distribute(made, TargetSize(100, "table size"), ratio=0.5, min_files=1).small_files == 1


def test_the_distribution_names_median_and_partitions():
    found = distribute(
        snapshot([5, 1, 3], ["a", "a", "b"], [1, None, 2]), TargetSize(4, "table size"), ratio=0.5, min_files=1
    )
    assert (found.median_bytes, found.num_files, found.size_bytes, found.small_limit_bytes) == (3, 3, 9, 2)
    assert [(p.partition, p.num_files, p.small_files, p.num_rows) for p in found.partitions] == [
        ("a", 2, 1, None),
        ("b", 1, 0, 2),
    ]


def test_totals_of_partitions_equal_a_recount_row_by_row():
    chance = random.Random(4)
    count = 500
    sizes = [chance.choice([0, 5, 2**53 + 1, 2**40, chance.randrange(10**6)]) for _ in range(count)]
    names = [f"p={chance.randrange(7)}" for _ in range(count)]
    rows = [chance.choice([None, 100]) if name == "p=3" else 100 for name in names]
    deleted = [chance.choice([0, 0, 3, 50]) for _ in range(count)]
    found = partition_files(snapshot(sizes, names, rows, deleted), 1000, min_files=70)
    assert [part.partition for part in found] == [
        name for name, _ in sorted(by_name(names, sizes).items(), key=lambda item: (-sum(item[1]), item[0]))
    ]
    for part in found:
        own = [n for n in range(count) if names[n] == part.partition]
        assert part.num_files == len(own) and part.size_bytes == sum(sizes[n] for n in own)
        small = sum(sizes[n] < 1000 for n in own) if len(own) >= 70 else 0
        assert part.small_files == small
        assert part.files_with_vectors == sum(deleted[n] > 0 for n in own)
        assert part.deleted_rows == sum(deleted[n] for n in own)
        whole = [rows[n] for n in own]
        assert part.num_rows == (None if None in whole else sum(whole) - part.deleted_rows)


def by_name(names: list[str], sizes: list[int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, size in zip(names, sizes, strict=True):
        found.setdefault(name, []).append(size)
    return found


def test_skew_and_the_load_of_deletion_vectors():
    found = distribute(
        snapshot([60, 20, 10, 10], ["a", "b", "c", "c"], [100] * 4, [0, 6, 5, 0]),
        TargetSize(4, "table size"),
        ratio=0.5,
        min_files=1,
    )
    assert found.skew == 3.0
    assert (found.vectors.files, found.vectors.deleted_rows, found.vectors.heavy_files) == (2, 11, 1)
    assert found.vectors.deleted_share == pytest.approx(11 / 400)
    assert found.partitions[1].deleted_share == pytest.approx(0.06)
    unknown = distribute(snapshot([1], ["a"], [None], [7]), TargetSize(4, "x"), ratio=0.5, min_files=1)
    assert (unknown.vectors.deleted_share, unknown.vectors.heavy_files, unknown.skew) == (None, 0, None)


@pytest.mark.parametrize("order", ["largest", "smallest"])
def test_pages_of_files_are_those_of_a_whole_stable_sort(order):
    chance = random.Random(7)
    sizes = [chance.randrange(12) for _ in range(230)]
    made = snapshot(sizes, [f"p={n % 3}" for n in range(230)])
    choice = FileChoice(from_bytes=2, to_bytes=9, partition="p=1", order=order)
    inside = [n for n in range(230) if 2 <= sizes[n] < 9 and n % 3 == 1]
    want = sorted(inside, key=lambda n: sizes[n] if order == "smallest" else -sizes[n])
    got = []
    for start in range(0, len(inside), 7):
        page = file_page(made, choice, start=start, length=7)
        assert (page.start, page.total) == (start, len(inside))
        got += page.files["path"].to_pylist()
    assert got == [f"f{n}" for n in want]
    last = file_page(made, choice, start=10**6, length=7)
    assert last.start == (len(inside) - 1) // 7 * 7 and last.files.num_rows
    assert file_page(snapshot([]), choice).total == 0


def test_files_with_deleted_rows_come_with_the_largest_share_first():
    made = snapshot([1] * 5, None, [10, 100, None, 10, 10], [1, 50, 7, 0, 9])
    page = file_page(made, FileChoice(order="deleted"))
    assert page.files["path"].to_pylist() == ["f4", "f1", "f0", "f2"]


def test_an_empty_table_has_a_distribution_too():
    found = distribute(snapshot([]), TargetSize(4, "table size"), ratio=0.5, min_files=1)
    assert (found.buckets, found.partitions, found.median_bytes) == ((), (), None)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("134217728", 134217728),
        ("128mb", 2**27),
        ("128 MB", 2**27),
        ("1g", 2**30),
        ("", None),
        ("banana", None),
        ("-1", None),
        ("0", None),
        ("1.5gb", None),
        ("mb", None),
    ],
)
def test_sizes_as_engines_write_them(text, size):
    assert parse_size(text) == size


def test_the_target_comes_from_the_property_then_the_setting_then_the_size():
    plain, chosen = HealthSettings(), HealthSettings(target_file_bytes=7)
    assert target_for({"delta.targetFileSize": "1kb"}, 0, chosen) == TargetSize(1024, "delta.targetFileSize")
    assert target_for({"delta.targetFileSize": "banana"}, 0, chosen).source == "setting health.target_file_bytes"
    assert target_size(snapshot([1]), plain) == TargetSize(256 * MB, "table size")
    assert target_for({}, 20 * TB, plain).bytes == 1000 * MB
    middle = target_for({}, 6_280_000 * MB, plain).bytes
    assert 627 * MB < middle < 629 * MB
