"""History: metrics of every writer in one vocabulary, times and stream origins."""

from datetime import UTC, datetime

import pytest

from backend.lake.log.commit_info import in_commit_time, normalise_metrics, read_commit, reported_at, stream_origin
from backend.lake.log.commits import CommitRecord, FileCounts

T = 1_700_000_000_000
AT = datetime.fromtimestamp(T / 1000, UTC)


def read(info: object):
    return read_commit(CommitRecord(3, info), None)


@pytest.mark.parametrize(
    ("operation", "raw", "want"),
    [
        ("WRITE", {"numFiles": "1", "numOutputRows": "10"}, (10, None, None)),
        ("WRITE", {"num_added_rows": 10}, (10, None, None)),
        ("STREAMING UPDATE", {"numOutputRows": "5", "numAddedFiles": "1"}, (5, None, None)),
        ("MERGE", {"numOutputRows": "9", "numTargetRowsInserted": "6", "numTargetRowsUpdated": "4"}, (6, 4, None)),
        ("MERGE", {"num_target_rows_inserted": 1, "num_target_rows_deleted": 2}, (1, None, 2)),
        ("DELETE", {"numDeletedRows": "15", "numCopiedRows": "0"}, (None, None, 15)),
        ("UPDATE", {"num_updated_rows": 3}, (None, 3, None)),
        ("OPTIMIZE", {"numOutputRows": "100"}, (None, None, None)),
        ("UNKNOWN", {}, (None, None, None)),
        ("WRITE", {"numOutputRows": "many"}, (None, None, None)),
        ("WRITE", {"numOutputRows": -1}, (None, None, None)),
        ("WRITE", {"numOutputRows": True}, (None, None, None)),
    ],
)
def test_rows_of_every_writer(operation, raw, want):
    found = normalise_metrics(operation, raw, None)
    assert (found.rows_inserted, found.rows_updated, found.rows_deleted) == want


SIZE_TEXT = '{"avg":10.0,"max":12,"min":8,"totalFiles":2,"totalSize":20}'


@pytest.mark.parametrize(
    ("operation", "raw", "want"),
    [
        ("WRITE", {"numFiles": "2", "numOutputBytes": "30"}, (2, None, 30, None)),
        ("WRITE", {"num_added_files": 2, "num_removed_files": 1}, (2, 1, None, None)),
        ("STREAMING UPDATE", {"numAddedFiles": "2", "numRemovedFiles": "0", "numOutputBytes": "7"}, (2, 0, 7, None)),
        ("MERGE", {"numTargetFilesAdded": "1", "numTargetFilesRemoved": "3", "numTargetBytesAdded": "9",
                   "numTargetBytesRemoved": "8"}, (1, 3, 9, 8)),
        ("MERGE", {"num_target_files_added": 1, "num_target_files_removed": 3}, (1, 3, None, None)),
        ("OPTIMIZE", {"numAddedFiles": "1", "numRemovedFiles": "9", "numAddedBytes": "90", "numRemovedBytes": "91"},
         (1, 9, 90, 91)),
        ("OPTIMIZE", {"numFilesAdded": 1, "numFilesRemoved": 2, "filesAdded": SIZE_TEXT, "filesRemoved": SIZE_TEXT},
         (1, 2, 20, 20)),
        ("OPTIMIZE", {"filesAdded": "[not", "filesRemoved": {"totalSize": 5}}, (None, None, None, 5)),
        ("RESTORE", {"numRestoredFiles": "2", "numRemovedFiles": "1", "restoredFilesSize": "20",
                     "removedFilesSize": "10"}, (2, 1, 20, 10)),
        ("RESTORE", {"numRestoredFile": 2, "numRemovedFile": 1}, (2, 1, None, None)),
    ],
)  # fmt: skip
def test_files_and_bytes_of_every_writer_where_the_actions_cannot_be_read(operation, raw, want):
    found = normalise_metrics(operation, raw, None)
    assert (found.files_added, found.files_removed, found.bytes_added, found.bytes_removed) == want


def test_the_actions_are_believed_before_the_writer():
    removes = [None, 7]
    counts = FileCounts(1, len(removes), 5, None if None in removes else sum(removes))
    found = normalise_metrics("OPTIMIZE", {"numAddedFiles": "9", "numRemovedBytes": "70"}, counts)
    assert (found.files_added, found.files_removed, found.bytes_added, found.bytes_removed) == (1, 2, 5, 70)


def test_what_vacuum_deletes_stands_apart():
    start = normalise_metrics("VACUUM START", {"numFilesToDelete": 35, "sizeOfDataToDelete": "900"}, None)
    assert (start.files_vacuumed, start.bytes_vacuumed, start.files_removed) == (35, 900, None)
    end = normalise_metrics("VACUUM END", {"numDeletedFiles": "35", "numVacuumedDirectories": "1"}, None)
    assert (end.files_vacuumed, end.bytes_vacuumed) == (35, None)
    assert normalise_metrics("DELETE", {"numDeletedFiles": "3"}, None).files_vacuumed is None


def test_source_rows_and_duration():
    found = normalise_metrics("MERGE", {"numSourceRows": "20", "executionTimeMs": "120"}, None)
    assert (found.rows_source, found.duration_ms) == (20, 120)
    assert normalise_metrics("DELETE", {"execution_time_ms": 11}, None).duration_ms == 11


def test_the_in_commit_timestamp_is_not_what_the_writer_reports():
    both = {"timestamp": T + 5000, "inCommitTimestamp": T}
    assert (in_commit_time(both), reported_at({"timestamp": T})) == (AT, AT) and reported_at(both) > AT
    for odd in ({"timestamp": str(T), "inCommitTimestamp": True}, {}, None):
        assert (in_commit_time(odd), reported_at(odd)) == (None, None)


def test_who_wrote_with_what():
    commit = read({"timestamp": T, "userId": "7", "userName": "ann", "engineInfo": "Spark", "readVersion": 2})
    assert (commit.user, commit.engine, commit.read_version, commit.reported_at) == ("ann", "Spark", 2, AT)
    assert read({"userId": "7"}).user == "7"
    assert read({"clientVersion": "delta-rs"}).engine == "delta-rs"


def test_custom_metadata_of_delta_rs_is_user_metadata():
    assert read({"timestamp": T, "operation": "WRITE", "job": "seed"}).user_metadata == '{"job":"seed"}'
    assert read({"userMetadata": "by hand"}).user_metadata == "by hand"
    assert read({"notebook": {"notebookId": "1"}, "job": {"jobId": "1"}}).user_metadata is None


def test_the_job_that_a_platform_names_is_kept():
    ran = {"jobId": "1", "jobName": "nightly load", "runId": "77", "jobOwnerId": "9", "triggerType": "manual"}
    commit = read({"userMetadata": "by hand", "job": ran, "notebook": {"notebookId": "12"}})
    assert (commit.job, commit.user_metadata) == ("job nightly load, run 77, notebook 12", "by hand")
    assert read({"job": {"jobId": 5}}).job == "job 5" and read({"notebook": {"notebookId": "12"}}).job == "notebook 12"
    assert read({"job": "seed"}).job == read({"userMetadata": '{"job": "seed"}'}).job == "job seed"
    for odd in ({}, {"userMetadata": '{"job": [1]}'}, {"job": {"jobId": {}}, "notebook": []}, {"job": None}):
        assert read(odd).job is None


def test_the_stream_behind_a_commit():
    spark = stream_origin({"operationParameters": {"queryId": "q", "epochId": "12"}})
    assert (spark.query_id, spark.batch_id, spark.stream) == ("q", 12, None)
    ours = stream_origin({"userMetadata": '{"stream":"silver_orders","batch_id":7,"run_id":"r"}'})
    assert (ours.stream, ours.batch_id, ours.run_id) == ("silver_orders", 7, "r")
    assert stream_origin({"userMetadata": '{"a":1}'}) is None
    assert stream_origin({"userMetadata": "{broken"}) is None
    assert stream_origin({}) is None


TRINO = {"version": 1, "timestamp": 1726049350561, "userId": "admin", "userName": "admin", "operation": "WRITE",
         "operationParameters": {"queryId": "20240911_100906_00088_2dq6g"}, "clusterId": "trino-455-coordinator-kdsrf",
         "readVersion": 0, "isolationLevel": "WriteSerializable", "isBlindAppend": True}  # fmt: skip
DATABRICKS = {"timestamp": 1697547600000, "userId": "8122", "userName": "ann@example.org", "operation": "MERGE",
              "operationParameters": {"predicate": "[]"}, "clusterId": "1017-083220-abc", "readVersion": 4,
              "engineInfo": "Databricks-Runtime/13.3.x-scala2.12", "txnId": "8f"}  # fmt: skip
SPARK_STREAM = {"operation": "STREAMING UPDATE", "engineInfo": "Apache-Spark/3.4.1-amzn-2 Delta-Lake/2.4.0",
                "operationParameters": {"outputMode": "Append", "queryId": "5c2e", "epochId": "7"}}  # fmt: skip
FABRIC = {"operation": "WRITE", "operationParameters": {"mode": "Append", "partitionBy": "[]"}, "tags": {},
          "engineInfo": "Apache-Spark/3.4.3.5.3 Delta-Lake/2.4.0.24", "txnId": "a1"}  # fmt: skip
FLINK = {"operation": "STREAMING UPDATE", "operationParameters": {"mode": "Append", "partitionBy": "[]"},
         "engineInfo": "flink-engine/1.16.1 flink-delta-connector/0.6.0 Delta-Standalone/0.6.0"}  # fmt: skip
INGEST = {"operation": "STREAMING UPDATE", "clientVersion": "delta-rs.0.18.2",
          "operationParameters": {"outputMode": "Append", "queryId": "logs-app", "epochId": 3}}  # fmt: skip
DUCKDB = {"timestamp": T, "operation": "UNKNOWN", "operationParameters": {}, "kernelVersion": "v0.14.0",
          "engineInfo": "DuckDB"}  # fmt: skip


@pytest.mark.parametrize(
    ("info", "user", "engine", "stream"),
    [
        (TRINO, "admin", "trino-455-coordinator-kdsrf", None),
        (DATABRICKS, "ann@example.org", "Databricks-Runtime/13.3.x-scala2.12", None),
        (SPARK_STREAM, None, "Apache-Spark/3.4.1-amzn-2 Delta-Lake/2.4.0", ("5c2e", 7)),
        (FABRIC, None, "Apache-Spark/3.4.3.5.3 Delta-Lake/2.4.0.24", None),
        (FLINK, None, "flink-engine/1.16.1 flink-delta-connector/0.6.0 Delta-Standalone/0.6.0", None),
        (INGEST, None, "delta-rs.0.18.2", ("logs-app", 3)),
        (DUCKDB, None, "DuckDB", None),
        ({"operation": "UNKNOWN", "kernelVersion": "v0.14.0"}, None, "delta-kernel v0.14.0", None),
        ({"operation": "WRITE", "clusterId": "1017-083220-abc"}, None, None, None),
    ],
)
def test_each_writer_is_read_as_it_tells_of_itself(info, user, engine, stream):
    commit = read(info)
    origin = commit.origin and (commit.origin.query_id, commit.origin.batch_id)
    assert (commit.user, commit.engine, origin, commit.user_metadata) == (user, engine, stream, None)


def test_a_commit_info_of_another_shape_is_said():
    assert "not an object" in read("text").problem
    assert read(None).problem is None
