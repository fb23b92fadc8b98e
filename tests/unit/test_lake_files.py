"""File sizes: half-open buckets, one definition of small, targets from the right place."""

import itertools

import pyarrow as pa
import pytest

from backend.lake.file_set import FileSet
from backend.lake.files import (
    MB,
    TB,
    TargetSize,
    distribute,
    histogram,
    parse_size,
    small_file_count,
    target_for,
    target_size,
)
from backend.lake.model import FILES_SCHEMA, Metadata, Protocol, Snapshot, TableRef
from backend.settings import HealthSettings

METADATA = Metadata("id", "{}")


def snapshot(sizes: list[int], partitions: list[str] | None = None, rows: list[int | None] | None = None) -> Snapshot:
    count = len(sizes)
    files = pa.table(
        {
            "path": [f"f{n}" for n in range(count)],
            "size_bytes": sizes,
            "num_records": rows or [1] * count,
            "deleted_rows": [0] * count,
            "modified_at": [None] * count,
            "partition": partitions or [""] * count,
            "dv_id": [None] * count,
        },
        schema=FILES_SCHEMA,
    )
    return Snapshot(TableRef("/t", "t", "/"), 0, None, Protocol(1, 2), METADATA, FileSet.of(files, METADATA))


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
    assert small_file_count(made, target, ratio=0.5, min_files=16) == 16
    assert small_file_count(made, target, ratio=0.5, min_files=15) == 31


def test_small_means_strictly_below_the_share_of_the_target():
    made = snapshot([49, 50, 51])
    assert small_file_count(made, TargetSize(100, "table size"), ratio=0.5, min_files=1) == 1


def test_the_distribution_names_extremes_median_and_partitions():
    found = distribute(
        snapshot([5, 1, 3], ["a", "a", "b"], [1, None, 2]), TargetSize(4, "table size"), ratio=0.5, min_files=1
    )
    assert found.smallest["size_bytes"].to_pylist() == [1, 3, 5]
    assert found.largest["size_bytes"].to_pylist() == [5, 3, 1]
    assert (found.median_bytes, found.num_files, found.size_bytes, found.small_limit_bytes) == (3, 3, 9, 2)
    assert [(p.partition, p.num_files, p.small_files, p.num_rows) for p in found.partitions] == [
        ("a", 2, 1, None),
        ("b", 1, 0, 2),
    ]


def test_an_empty_table_has_a_distribution_too():
    found = distribute(snapshot([]), TargetSize(4, "table size"), ratio=0.5, min_files=1)
    assert (found.buckets, found.partitions, found.median_bytes, found.largest.num_rows) == ((), (), None, 0)


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
