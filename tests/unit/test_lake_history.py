"""History: metrics of every writer in one vocabulary, times and stream origins."""

from datetime import UTC, datetime

import pytest

from backend.lake.commits import CommitRecord
from backend.lake.history import committed_at, normalise_metrics, read_commit, stream_origin

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


def test_the_in_commit_timestamp_wins():
    assert committed_at({"timestamp": T + 5000, "inCommitTimestamp": T}) == AT
    assert committed_at({"timestamp": T}) == AT
    assert committed_at({"timestamp": str(T)}) is None
    assert committed_at(None) is None


def test_who_wrote_with_what():
    commit = read({"timestamp": T, "userId": "7", "userName": "ann", "engineInfo": "Spark", "readVersion": 2})
    assert (commit.user, commit.engine, commit.read_version, commit.committed_at) == ("ann", "Spark", 2, AT)
    assert read({"userId": "7"}).user == "7"
    assert read({"clientVersion": "delta-rs"}).engine == "delta-rs"


def test_custom_metadata_of_delta_rs_is_user_metadata():
    assert read({"timestamp": T, "operation": "WRITE", "job": "seed"}).user_metadata == '{"job":"seed"}'
    assert read({"userMetadata": "by hand"}).user_metadata == "by hand"
    assert read({"notebook": {"notebookId": "1"}, "job": {"jobId": "1"}}).user_metadata is None


def test_the_stream_behind_a_commit():
    spark = stream_origin({"operationParameters": {"queryId": "q", "epochId": "12"}})
    assert (spark.query_id, spark.batch_id, spark.stream) == ("q", 12, None)
    ours = stream_origin({"userMetadata": '{"stream":"silver_orders","batch_id":7,"run_id":"r"}'})
    assert (ours.stream, ours.batch_id, ours.run_id) == ("silver_orders", 7, "r")
    assert stream_origin({"userMetadata": '{"a":1}'}) is None
    assert stream_origin({"userMetadata": "{broken"}) is None
    assert stream_origin({}) is None


def test_a_commit_info_of_another_shape_is_said():
    assert "not an object" in read("text").problem
    assert read(None).problem is None
