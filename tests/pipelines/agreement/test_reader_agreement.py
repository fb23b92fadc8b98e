"""What Weir reads of tables that Spark wrote equals what Spark says of them, feature by feature.

Of random tables: their rows, what is said of their bounds and differences, and what a filter finds.
"""

import json
import math
import os
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from backend.cells import cell as value_of
from backend.cells import far_number
from backend.changes.model import DiffMethod, NetCounts
from backend.errors import UnsupportedFeatureError
from backend.lake.files.file_sizes import histogram, partition_files
from backend.lake.files.stats import column_totals
from backend.lake.lake import Lake
from backend.lake.model import Commit, Snapshot, TableRef
from backend.lake.table.schema import columns
from backend.settings import load_settings
from backend.sql.filters import condition_text, parse_filter
from backend.sql.numbers import profiles, readable
from tests.worlds.cases import few
from tests.worlds.lake.diffs import diff
from tests.worlds.spark.delta_tables import RECIPES, make_table
from tests.worlds.spark.spark_answers import (
    FLAT,
    RandomTable,
    SparkAnswers,
    SparkFile,
    Values,
    arrow_rows,
    ask,
    of_arrow,
    random_table,
    spark_ends,
    spark_rows,
    without_zero_signs,
    write,
)

pytestmark = [pytest.mark.spark, pytest.mark.ci, pytest.mark.timeout(900)]

FIRST = ("deletion_vectors_and_change_feed", "mapped_by_name")
NAMES = few(len(FIRST), [*FIRST, *(name for name in RECIPES if name not in FIRST)])


@dataclass(frozen=True, slots=True)
class Pair:
    """One table as Weir and as Spark see it."""

    name: str
    lake: Lake
    ref: TableRef
    spark: SparkAnswers

    @property
    def snapshot(self) -> Snapshot:
        return self.lake.snapshot(self.ref)


@pytest.fixture(scope="module", params=NAMES)
def pair(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A recipe's table, made and asked about; a fresh reader that has not seen it before."""
    root = tmp_path_factory.mktemp("agreement")
    make_table(spark, root / request.param, RECIPES[request.param])
    lake = Lake(load_settings(home=root, lake={"roots": [str(root)]}))
    return Pair(request.param, lake, lake.find(request.param), ask(spark, root / request.param))


def test_totals_are_those_of_describe_detail_and_of_a_count(pair: Pair) -> None:
    snapshot, detail = pair.snapshot, pair.spark.detail
    assert pair.lake.latest_version(pair.ref) == snapshot.version == pair.spark.history[0].version
    assert (snapshot.num_files, snapshot.size_bytes) == (detail.numFiles, detail.sizeInBytes)
    assert snapshot.num_rows == sum(pair.spark.rows)
    assert snapshot.committed_at == pair.spark.history[0].timestamp.replace(tzinfo=UTC)
    assert snapshot.findings == ()


def test_metadata_and_properties_are_those_of_spark(pair: Pair) -> None:
    metadata, protocol, detail = pair.snapshot.metadata, pair.snapshot.protocol, pair.spark.detail
    assert (metadata.id, metadata.description) == (detail.id, detail.description)
    assert metadata.created_at == detail.createdAt.replace(tzinfo=UTC)
    assert metadata.partition_columns == tuple(detail.partitionColumns)
    assert json.loads(metadata.schema_json) == json.loads(pair.spark.schema_json)
    assert (protocol.min_reader_version, protocol.min_writer_version) == (
        detail.minReaderVersion,
        detail.minWriterVersion,
    )
    assert dict(metadata.configuration) == detail.properties
    added = {f"delta.feature.{feature}": "supported" for feature in protocol.features}
    versions = {
        "delta.minReaderVersion": str(protocol.min_reader_version),
        "delta.minWriterVersion": str(protocol.min_writer_version),
    }
    domain = json.loads(pair.snapshot.domains.get("delta.clustering", "{}"))
    clustered = {"clusteringColumns": json.dumps(domain["clusteringColumns"])} if domain else {}
    assert {**metadata.configuration, **added, **versions, **clustered} == pair.spark.properties
    if protocol.min_writer_version == 7:  # below, Spark lists features that the versions imply
        assert list(protocol.features) == sorted(detail.tableFeatures)


def test_files_are_those_that_delta_itself_lists(pair: Pair) -> None:
    snapshot, theirs = pair.snapshot, pair.spark.files
    ours = snapshot.columns(["path", "size_bytes", "num_records", "deleted_rows", "partition", "dv_id", "stats"])
    found = sorted(_comparable(row) for row in ours.to_pylist())
    assert found == sorted(_comparable_spark(file) for file in theirs)
    assert snapshot.num_deletion_vectors == sum(file.dv is not None for file in theirs)
    assert snapshot.deleted_rows == sum(file.dv["cardinality"] for file in theirs if file.dv)


def test_histogram_and_partition_totals_are_those_of_a_recount(pair: Pair) -> None:
    files: dict[str, list[SparkFile]] = defaultdict(list)
    for file in pair.spark.files:
        files[file.partition].append(file)
    ours = partition_files(pair.snapshot, 1 << 40)
    assert {p.partition: (p.num_files, p.size_bytes) for p in ours} == {
        name: (len(some), sum(file.size_bytes for file in some)) for name, some in files.items()
    }
    assert tuple(sorted(p.num_rows for p in ours if p.num_rows)) == pair.spark.rows
    buckets = histogram(pair.snapshot.columns(["size_bytes"])["size_bytes"])
    sizes = [file.size_bytes for file in pair.spark.files]
    for bucket in buckets:
        inside = [size for size in sizes if bucket.from_bytes <= size < bucket.to_bytes]
        assert (bucket.files, bucket.bytes) == (len(inside), sum(inside))
    assert sum(bucket.files for bucket in buckets) == len(sizes)


def test_history_is_that_of_describe_history(pair: Pair) -> None:
    ours, theirs = pair.lake.history(pair.ref), pair.spark.history
    assert [_ours(commit) for commit in ours] == [
        {
            "version": row.version,
            "operation": row.operation,
            "parameters": row.operationParameters,
            "metrics": row.operationMetrics or {},
            "engine": row.engineInfo,
            "user_metadata": row.userMetadata,
            "isolation_level": row.isolationLevel,
            "read_version": None if row.readVersion == -1 else row.readVersion,  # -1: made from nothing
            "is_blind_append": row.isBlindAppend,
            "problem": None,
        }
        for row in theirs
    ]
    for commit, row in zip(ours, theirs, strict=True):
        assert commit.committed_at == row.timestamp.replace(tzinfo=UTC)
    streamed = [commit for commit in ours if commit.operation == "STREAMING UPDATE"]
    assert [commit.origin.batch_id for commit in streamed] == [*range(len(streamed))][::-1]
    assert all(commit.origin.query_id == commit.parameters["queryId"] for commit in streamed)


def test_every_version_is_that_of_its_checksum(pair: Pair) -> None:
    """Delta's incremental totals of each version, against ours replayed and against ours in one pass."""
    timeline = {totals.version: totals for totals in pair.lake.timeline(pair.ref).totals}
    assert sorted(timeline) == sorted(row.version for row in pair.spark.history)
    for version, checksum in pair.spark.checksums.items():
        snapshot = pair.lake.snapshot(pair.ref, version)
        want = (checksum["numFiles"], checksum["tableSizeBytes"])
        assert (snapshot.num_files, snapshot.size_bytes) == want
        assert (timeline[version].num_files, timeline[version].size_bytes) == want
        assert timeline[version].num_rows == snapshot.num_rows
        assert snapshot.metadata.id == checksum["metadata"]["id"]
        assert dict(snapshot.metadata.configuration) == checksum["metadata"]["configuration"]
        assert snapshot.protocol.min_writer_version == checksum["protocol"]["minWriterVersion"]
        assert snapshot.findings == ()
        if "numDeletionVectorsOpt" in checksum:
            assert snapshot.num_deletion_vectors == checksum["numDeletionVectorsOpt"]
            assert snapshot.deleted_rows == checksum["numDeletedRecordsOpt"]
        assert_histogram_of_checksum(snapshot, checksum["fileSizeHistogram"])
        read = pair.lake.checksum(pair.ref, version)
        assert read is not None
        assert (read.num_files, read.size_bytes, read.metadata) == (*want, snapshot.metadata)
        assert (sum(b.files for b in read.buckets), sum(b.bytes for b in read.buckets)) == want


def assert_histogram_of_checksum(snapshot: Snapshot, theirs: dict[str, list[int]]) -> None:
    """Our sizes in Spark's bins give Spark's counts."""
    counts, totals = [0] * len(theirs["fileCounts"]), [0] * len(theirs["totalBytes"])
    for size in snapshot.columns(["size_bytes"])["size_bytes"].to_pylist():
        place = bisect_right(theirs["sortedBinBoundaries"], size) - 1
        counts[place] += 1
        totals[place] += size
    assert (counts, totals) == (theirs["fileCounts"], theirs["totalBytes"])


def test_a_time_names_the_version_that_spark_reads(spark: SparkSession, tmp_path: Path) -> None:
    path, hours = tmp_path / "late", (0, 3, 1, 4)  # v2 was written by a clock that is two hours late
    began = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=5)
    for version, hour in enumerate(hours):
        spark.range(1).write.format("delta").mode("append").save(str(path))
        os.utime(path / "_delta_log" / f"{version:020d}.json", ((began + timedelta(hours=hour)).timestamp(),) * 2)
    lake = Lake(load_settings(home=tmp_path, lake={"roots": [str(tmp_path)]}))
    for hour in (0, 0.5, 1.5, 2.5, 3, 3.5, 4):
        moment = began + timedelta(hours=hour)
        read = spark.read.format("delta").option("timestampAsOf", moment.strftime("%Y-%m-%d %H:%M:%S"))
        assert lake.version_at(lake.find("late"), moment) == read.load(str(path)).count() - 1
    told = [row.timestamp.replace(tzinfo=UTC) for row in spark.sql(f"DESCRIBE HISTORY delta.`{path}`").collect()]
    assert [commit.committed_at for commit in lake.history(lake.find("late"))] == told


def _comparable(row: dict) -> tuple:
    stats = json.loads(row["stats"]) if row["stats"] else {}
    assert row["num_records"] == stats.get("numRecords")
    return (row["path"], row["size_bytes"], row["partition"], row["dv_id"] or "", row["deleted_rows"], str(stats))


def _comparable_spark(file: SparkFile) -> tuple:
    dv_id, deleted = "", 0
    if file.dv:
        offset = file.dv.get("offset")
        dv_id = file.dv["storageType"] + file.dv["pathOrInlineDv"] + ("" if offset is None else f"@{offset}")
        deleted = file.dv["cardinality"]
    return (unquote(file.path), file.size_bytes, file.partition, dv_id, deleted, str(file.stats))


def _ours(commit: Commit) -> dict:
    return {
        "version": commit.version,
        "operation": commit.operation,
        "parameters": {
            key: value if value is None or isinstance(value, str) else json.dumps(value, separators=(",", ":"))
            for key, value in commit.parameters.items()
        },
        "metrics": dict(commit.raw_metrics),
        "engine": commit.engine,
        "user_metadata": commit.user_metadata,
        "isolation_level": commit.isolation_level,
        "read_version": commit.read_version,
        "is_blind_append": commit.is_blind_append,
        "problem": commit.problem,
    }


# random tables --------------------------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(250))
def test_a_random_table_is_read_as_by_spark(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    agrees(spark, tmp_path, random_table(seed, tmp_path / "lake" / "t"))


def agrees(spark: SparkSession, home: Path, table: RandomTable) -> None:
    write(spark, table)
    lake = Lake(load_settings(home=home, lake={"roots": [str(home / "lake")]}))
    newest = lake.snapshot(lake.find("t"))
    versions = (2, newest.version)
    theirs = [spark_rows(spark, home / "lake" / "t", version, table.columns) for version in versions]
    try:
        for version, rows in zip(versions, theirs, strict=True):
            found = lake.read_files(lake.snapshot(newest.ref, version)).read_all()
            ours = arrow_rows(found, table.columns)
            assert ours == rows, (
                f"v{version}: {[(key, ours.get(key), row) for key, row in rows.items() if row != ours.get(key)]}"
            )
        ends = spark_ends(spark, home / "lake" / "t", newest.version, table.columns)
        _same_bounds(lake, newest, ends, table)
        _same_differences(lake, newest, versions, (theirs[0], theirs[1]))
        _same_filtered(lake, newest, table, theirs[1])
    except UnsupportedFeatureError as exc:  # nested, or by another clock
        if not (table.is_old and "in the calendar before 1582" in exc.message):
            raise


def _same_bounds(lake: Lake, snapshot: Snapshot, ends: Mapping[str, tuple[Any, Any]], table: RandomTable) -> None:
    *_, last = profiles().over(lake, snapshot.ref, "", [snapshot.version])
    (profile,) = readable(last.values).values()
    for column in profile.columns:
        if column.column in ends:
            found = tuple(_number(value, table.columns[column.column]) for value in (column.lowest, column.highest))
            assert _zeros(found) == _zeros(ends[column.column]), f"{column} of the rows"
    for name, (low, high) in ends.items():
        (totals,) = column_totals(snapshot, [name])
        for is_exact, found, right in (
            (totals.lowest_is_exact, totals.lowest, low),
            (totals.highest_is_exact, totals.highest, high),
        ):
            if is_exact and found is not None:
                assert _zeros(_number(found, table.columns[name])) == _zeros(right), f"{totals} of the log"


def _number(value: Any, kind: str) -> Any:
    """A value of Weir's as `spark_rows` has it."""
    if value is not None and kind.startswith(("DATE", "TIMESTAMP")):
        return far_number(value if isinstance(value, str) else value.isoformat())
    if isinstance(value, float):  # of a FLOAT the log has the shortest text, 0.1
        return repr(float(np.float32(value)) if kind == "FLOAT" else value)
    return value


def _zeros(value: Any) -> Any:
    (without,) = without_zero_signs({0: value if isinstance(value, tuple) else (value,)}).values()
    return without


def _same_differences(lake: Lake, newest: Snapshot, versions: tuple[int, int], theirs: tuple[Values, Values]) -> None:
    before, after = (without_zero_signs(rows) for rows in theirs)
    updated = sum(before[key] != after[key] for key in before.keys() & after.keys())
    net = NetCounts(len(after.keys() - before.keys()), updated, len(before.keys() - after.keys()))
    whole = Counter(after.items()) - Counter(before.items()), Counter(before.items()) - Counter(after.items())
    for method in (None, DiffMethod.KEY_JOIN):
        answer = diff(lake, newest.ref, *versions, method=method, key=("id",))
        assert answer.changes.net == net, answer.reasons
    answer = diff(lake, newest.ref, *versions, method=DiffMethod.MULTISET)
    found = answer.changes.net.inserted, answer.changes.net.deleted
    assert found == (whole[0].total(), whole[1].total()), answer.reasons


def _same_filtered(lake: Lake, snapshot: Snapshot, table: RandomTable, rows: Values) -> None:
    """A click on each value of a cell finds the rows that hold it."""
    schema = columns(snapshot.metadata)
    shown = lake.read_files(snapshot).read_all()
    for number, (name, kind) in enumerate(table.columns.items()):
        if kind not in FLAT or not rows:
            continue
        cell = shown[name][0]
        if pa.types.is_floating(cell.type) and cell.is_valid and math.isinf(cell.as_py()):
            continue  # which no filter can name
        where = parse_filter(condition_text(name, "=", value_of(cell), kind=kind.lower()), schema)
        found = lake.read_files(snapshot, columns=["id"], where=where).read_all()["id"].to_pylist()
        wanted = _zeros(of_arrow(cell))
        right = [key for key, row in rows.items() if _zeros(row[number]) == wanted]
        assert sorted(found) == sorted(right), f"{name} = {value_of(cell)!r}"
