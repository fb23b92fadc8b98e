"""What Weir reads of tables that Spark wrote equals what Spark and deltalake say of them, feature by feature."""

import json
import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from backend.lake.files.file_sizes import histogram, partition_files
from backend.lake.lake import Lake
from backend.lake.model import Commit, Snapshot, TableRef
from backend.settings import load_settings
from tests.worlds.spark.delta_tables import AT_ONCE, RECIPES, make_table
from tests.worlds.spark.spark_answers import SparkAnswers, SparkFile, ask

# All tables are made in the first test's set-up: under a minute on two idle cores, minutes on busy ones.
pytestmark = [pytest.mark.spark, pytest.mark.ci, pytest.mark.timeout(900)]

# deltalake 1.6 fails on the history of these: their first commit says that it read version -1.
NO_HISTORY_IN_DELTALAKE = frozenset({"cloned", "converted"})


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


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """Every recipe's table, made and asked about once; a fresh reader that has seen none of them before."""
    root = tmp_path_factory.mktemp("agreement")

    def attempt(name: str) -> SparkAnswers | Exception:
        try:
            make_table(spark, root / name, RECIPES[name])
            return ask(spark, root / name)
        except Exception as exc:  # noqa: BLE001 - told by that table's tests; the others keep theirs
            return exc

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = dict(zip(RECIPES, pool.map(attempt, RECIPES), strict=True))
    lake = Lake(load_settings(home=root, lake={"roots": [str(root)]}))

    def pair(name: str) -> Pair:
        found = answers[name]
        if isinstance(found, Exception):
            raise AssertionError(f"Spark could not write {name} or speak of it") from found
        return Pair(name, lake, lake.find(name), found)

    return pair


@pytest.fixture(params=list(RECIPES))
def pair(request: pytest.FixtureRequest, tables: Callable[[str], Pair]) -> Pair:
    return tables(request.param)


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
    ours = partition_files(pair.snapshot, 1 << 40, min_files=1)
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


def test_deltalake_agrees(pair: Pair) -> None:
    table, snapshot = DeltaTable(pair.ref.uri), pair.snapshot
    actions = pa.table(table.get_add_actions(flatten=True)).to_pydict()
    assert snapshot.version == table.version()
    assert sorted(snapshot.columns(["size_bytes"])["size_bytes"].to_pylist()) == sorted(actions["size_bytes"])
    assert dict(snapshot.metadata.configuration) == table.metadata().configuration
    assert snapshot.metadata.partition_columns == tuple(table.metadata().partition_columns)
    if pair.name in NO_HISTORY_IN_DELTALAKE:
        with pytest.raises(DeltaError):
            table.history()
        return
    theirs, ours = table.history(), pair.lake.history(pair.ref)
    assert [(c.version, c.operation) for c in ours] == [(h["version"], h["operation"]) for h in theirs]
    assert [dict(c.raw_metrics) for c in ours] == [h.get("operationMetrics", {}) for h in theirs]


def test_a_stream_s_commits_name_their_query_and_batch(tables: Callable[[str], Pair]) -> None:
    pair = tables("streamed_and_maintained")
    streamed = [c for c in pair.lake.history(pair.ref) if c.operation == "STREAMING UPDATE"]
    assert [commit.origin.batch_id for commit in streamed] == [1, 0]
    assert {commit.origin.query_id for commit in streamed} == {streamed[0].parameters["queryId"]}


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
