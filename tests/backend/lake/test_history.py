"""Histories: every writer's commits in one vocabulary, their times, filters over them, and what is unusual in them."""

import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from backend.errors import VersionNotFoundError
from backend.lake.history.history import HistoryFilter, resolve_version
from backend.lake.history.timeline import MOST_JUMPS, rhythm, silences, unusual_jumps
from backend.lake.lake import Lake
from backend.lake.log.commit_info import normalise_metrics, read_commit, time_in
from backend.lake.log.commits import CommitRecord
from backend.lake.model import Commit, OperationMetrics, VersionTotals
from backend.times import Clock
from tests.worlds.lake import builders
from tests.worlds.terminal import home, weir

__all__ = ["home", "weir"]

# commits as their writers tell of them --------------------------------------------------------------------------------

T = 1_700_000_000_000
AT = datetime.fromtimestamp(T / 1000, UTC)


def read(info: object):
    return read_commit(CommitRecord(3, info), None)


ROWS = ("rows_inserted", "rows_updated", "rows_deleted")
FILES = ("files_added", "files_removed", "bytes_added", "bytes_removed")
VACUUMED = ("files_vacuumed", "files_to_delete", "bytes_to_delete", "files_removed")
SIZE_TEXT = '{"avg":10.0,"max":12,"min":8,"totalFiles":2,"totalSize":20}'


@pytest.mark.parametrize(
    ("operation", "raw", "names", "wanted"),
    [
        ("WRITE", {"numFiles": "1", "numOutputRows": "10"}, ROWS, (10, None, None)),
        ("WRITE", {"num_added_rows": 10}, ROWS, (10, None, None)),
        ("STREAMING UPDATE", {"numOutputRows": "5", "numAddedFiles": "1"}, ROWS, (5, None, None)),
        ("MERGE", {"numOutputRows": 9, "numTargetRowsInserted": "6", "numTargetRowsUpdated": "4"}, ROWS, (6, 4, None)),
        ("MERGE", {"num_target_rows_inserted": 1, "num_target_rows_deleted": 2}, ROWS, (1, None, 2)),
        ("DELETE", {"numDeletedRows": "15", "numCopiedRows": "0"}, ROWS, (None, None, 15)),
        ("UPDATE", {"num_updated_rows": 3}, ROWS, (None, 3, None)),
        ("OPTIMIZE", {"numOutputRows": "100"}, ROWS, (None, None, None)),
        ("UNKNOWN", {}, ROWS, (None, None, None)),
        *(("WRITE", {"numOutputRows": odd}, ROWS, (None, None, None)) for odd in ("many", -1, True)),
        ("WRITE", {"numFiles": "2", "numOutputBytes": "30"}, FILES, (2, None, 30, None)),
        ("WRITE", {"num_added_files": 2, "num_removed_files": 1}, FILES, (2, 1, None, None)),
        ("STREAMING UPDATE", {"numAddedFiles": "2", "numRemovedFiles": "0", "numOutputBytes": "7"}, FILES,
         (2, 0, 7, None)),
        ("MERGE", {"numTargetFilesAdded": "1", "numTargetFilesRemoved": "3", "numTargetBytesAdded": "9",
                   "numTargetBytesRemoved": "8"}, FILES, (1, 3, 9, 8)),
        ("MERGE", {"num_target_files_added": 1, "num_target_files_removed": 3}, FILES, (1, 3, None, None)),
        ("OPTIMIZE", {"numAddedFiles": "1", "numRemovedFiles": "9", "numAddedBytes": "90", "numRemovedBytes": "91"},
         FILES, (1, 9, 90, 91)),
        ("OPTIMIZE", {"numFilesAdded": 1, "numFilesRemoved": 2, "filesAdded": SIZE_TEXT, "filesRemoved": SIZE_TEXT},
         FILES, (1, 2, 20, 20)),
        ("OPTIMIZE", {"filesAdded": "[not", "filesRemoved": {"totalSize": 5}}, FILES, (None, None, None, 5)),
        ("RESTORE", {"numRestoredFiles": "2", "numRemovedFiles": "1", "restoredFilesSize": "20",
                     "removedFilesSize": "10"}, FILES, (2, 1, 20, 10)),
        ("RESTORE", {"numRestoredFile": 2, "numRemovedFile": 1}, FILES, (2, 1, None, None)),
        ("VACUUM START", {"numFilesToDelete": 35, "sizeOfDataToDelete": "900"}, VACUUMED, (None, 35, 900, None)),
        ("VACUUM END", {"numDeletedFiles": "35", "numVacuumedDirectories": "1"}, VACUUMED, (35, None, None, None)),
        ("DELETE", {"numDeletedFiles": "3"}, VACUUMED[:1], (None,)),
        ("MERGE", {"numSourceRows": "20", "executionTimeMs": "120"}, ("rows_source", "duration_ms"), (20, 120)),
        ("DELETE", {"execution_time_ms": 11}, ("duration_ms",), (11,)),
    ],
)  # fmt: skip
def test_rows_files_and_bytes_of_every_writer(operation, raw, names, wanted):
    metrics = normalise_metrics(operation, raw, None)
    assert tuple(getattr(metrics, name) for name in names) == wanted


def test_the_actions_are_believed_before_the_writer():
    removes = [None, 7]
    size = None if None in removes else sum(removes)
    counts = OperationMetrics(files_added=1, files_removed=len(removes), bytes_added=5, bytes_removed=size)
    metrics = normalise_metrics("OPTIMIZE", {"numAddedFiles": "9", "numRemovedBytes": "70"}, counts)
    assert (metrics.files_added, metrics.files_removed, metrics.bytes_added, metrics.bytes_removed) == (1, 2, 5, 70)


def test_no_rows_beside_a_removed_file_is_unknown():
    """delta-rs 1.5 reported 0 of the two rows that it deleted; a MERGE may rewrite files and change no row."""
    zero = {"num_deleted_rows": 0, "num_updated_rows": "0"}

    def rows(operation, files_removed):
        metrics = normalise_metrics(operation, zero, OperationMetrics(files_removed=files_removed))
        return metrics.rows_updated, metrics.rows_deleted

    assert (rows("DELETE", 1), rows("UPDATE", 1)) == ((0, None), (None, 0))
    assert rows("DELETE", 0) == rows("MERGE", 1) == (0, 0)


def test_the_in_commit_timestamp_is_not_what_the_writer_reports():
    both = {"timestamp": T + 5000, "inCommitTimestamp": T}
    assert time_in(both, "inCommitTimestamp") == time_in({"timestamp": T}, "timestamp") == AT
    assert time_in(both, "timestamp") > AT
    for odd in ({"timestamp": str(T), "inCommitTimestamp": True}, {}, None):
        assert (time_in(odd, "inCommitTimestamp"), time_in(odd, "timestamp")) == (None, None)


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
        ({"userId": "7"}, "7", None, None),
        ({"operation": "UNKNOWN", "kernelVersion": "v0.14.0"}, None, "delta-kernel v0.14.0", None),
        ({"operation": "WRITE", "clusterId": "1017-083220-abc"}, None, None, None),
    ],
)
def test_each_writer_is_read_as_it_tells_of_itself(info, user, engine, stream):
    commit = read(info)
    origin = commit.origin and (commit.origin.query_id, commit.origin.batch_id)
    assert (commit.user, commit.engine, origin, commit.user_metadata) == (user, engine, stream, None)
    assert (commit.user_id, commit.cluster_id) == (info.get("userId"), info.get("clusterId"))


# filters --------------------------------------------------------------------------------------------------------------

START = datetime(2026, 1, 1, tzinfo=UTC)


def commit(version: int, operation: str | None = "WRITE", **more: object) -> Commit:
    at = START + timedelta(minutes=version)
    fields = {"user": None, "engine": "Spark", "user_metadata": None} | more
    return Commit(version, at, operation, {}, OperationMetrics(), {}, **fields)  # type: ignore[arg-type]


def test_every_group_must_fit():
    ann, bob = commit(1, user="ann"), commit(2, "MERGE", user="bob", engine="delta-rs")
    nobody = commit(3, None, engine=None)
    assert HistoryFilter().is_empty and HistoryFilter().keeps(nobody)
    both = HistoryFilter(operations=frozenset({"WRITE", "MERGE"}), users=frozenset({"bob"}))
    assert [both.keeps(c) for c in (ann, bob, nobody)] == [False, True, False]
    unnamed = HistoryFilter(operations=frozenset({"not named"}), engines=frozenset({"not named"}))
    assert [unnamed.keeps(c) for c in (ann, bob, nobody)] == [False, False, True]
    timeless = Commit(4, None, "WRITE", {}, OperationMetrics(), {}, None, None, None)
    assert HistoryFilter().keeps(timeless) and not HistoryFilter(since=START).keeps(timeless)


# unusual changes of rows ----------------------------------------------------------------------------------------------

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def totals(rows: list[int | None]) -> list[VersionTotals]:
    return [VersionTotals(v, NOW, "WRITE", 1, 1, each, 0) for v, each in enumerate(rows)]


def growing(count: int, step: int = 10) -> list[int | None]:
    return [1_000 + step * number for number in range(count)]


def test_a_jump_among_even_steps_is_found_with_what_is_usual():
    rows = growing(30)
    rows[20:] = [each + 500 for each in rows[20:] if each is not None]
    (jump,) = unusual_jumps(totals(rows))
    assert (jump.version, jump.change, jump.usual, jump.operation) == (20, 510, 10, "WRITE")


def test_a_loss_of_rows_is_a_jump_too_and_maintenance_is_none():
    rows = growing(20)
    rows[10:] = [600] * 5 + [610, 620, 630, 640, 650]  # the four after the loss change no row
    assert [(jump.version, jump.change) for jump in unusual_jumps(totals(rows))] == [(10, -490)]


def test_uneven_steps_and_small_ones_are_usual():
    chance = random.Random(7)
    rows, now = [], 1_000
    for _ in range(500):
        now += chance.randint(50, 150)
        rows.append(now)
    assert unusual_jumps(totals(list(rows))) == []
    still = growing(30, step=1)
    still[15:] = [each + 20 for each in still[15:] if each is not None]  # 2 % of the rows
    assert unusual_jumps(totals(still)) == []


def test_the_first_load_few_commits_and_unknown_rows_are_no_jump():
    assert unusual_jumps(totals([0, *(50_000 + 10 * number for number in range(20))])) == []
    assert unusual_jumps(totals([10, 20, 30, 5_000])) == []
    assert unusual_jumps(totals([None] * 30)) == []


def test_of_many_jumps_the_largest_are_told_oldest_first():
    rows, now = [], 10_000
    for number in range(60):
        now += 10 + 1_000 * number * (number % 10 == 9)
        rows.append(now)
    jumps = unusual_jumps(totals(list(rows)))
    assert len(jumps) == MOST_JUMPS and [jump.version for jump in jumps] == [39, 49, 59]


# how often a table is written -----------------------------------------------------------------------------------------


def test_a_table_is_late_against_its_own_gaps():
    moments = [NOW - timedelta(seconds=12 * number + 4) for number in range(20)]
    pace = rhythm(moments, NOW)
    assert pace is not None and (pace.gap_s, pace.since_s, pace.is_late) == (12.0, 4.0, False)
    late = rhythm(moments, NOW + timedelta(minutes=5))
    assert late is not None and late.is_late
    nightly = rhythm([NOW - timedelta(days=n) for n in range(1, 9)], NOW)
    assert nightly is not None and nightly.gap_s == 86_400 and not nightly.is_late
    weekend = [NOW - timedelta(days=n) for n in (0, 3, 4, 5, 6, 7, 10)]  # a pause as long as one before is not late
    assert not rhythm(weekend, NOW + timedelta(days=3)).is_late  # type: ignore[union-attr]
    assert rhythm([NOW, None, None, None], NOW) is None
    burst = [NOW - timedelta(milliseconds=20 * number) for number in range(20)]
    assert rhythm(burst, NOW + timedelta(days=1)) is None


def test_silence_is_told_after_an_hour_and_five_times_the_longest_gap_before():
    def at(*minutes: int) -> list[datetime]:
        return [NOW + timedelta(minutes=minute) for minute in minutes]

    regular = at(*range(0, 200, 10))  # the last at 190
    assert silences(regular, NOW + timedelta(minutes=250)) == []
    assert silences(regular, NOW + timedelta(minutes=251)) == [(19, NOW + timedelta(minutes=250))]
    paused = [*regular, *at(230)]  # a gap of 40 minutes: 200 are needed now
    assert silences(paused, NOW + timedelta(minutes=430)) == []
    assert silences(paused, NOW + timedelta(minutes=431)) == [(20, NOW + timedelta(minutes=430))]
    ended = [*regular, *at(300)]  # 110 minutes: told at 250, over at 300, and more than that is needed from now on
    assert silences(ended, NOW + timedelta(minutes=800)) == [(19, NOW + timedelta(minutes=250))]
    assert silences(at(0), NOW + timedelta(days=9)) == [] == silences([], NOW)


# which version held at a time -----------------------------------------------------------------------------------------

T0, HOUR = 1_750_000_000_000, 3_600_000
LATE = (0, 3, 1, 4)  # hours: the clock behind v2 is two hours late
BEGAN = datetime.fromtimestamp(T0 / 1000, UTC)


def table(path: Path, hours: tuple[float, ...], *, reported: tuple[float, ...] | None = None) -> builders.HandLog:
    """One commit for each file time; `reported`: what the writers' own clocks said."""
    log = builders.HandLog(path)
    for version, (hour, clock) in enumerate(zip(hours, reported or hours, strict=True)):
        first = [builders.protocol(), builders.metadata()] if version == 0 else []
        log.commit(*first, builders.commit_info(timestamp=T0 + int(clock * HOUR)))
        stamp(path, version, T0 + int(hour * HOUR))
    return log


def stamp(path: Path, version: int, millis: int) -> None:
    os.utime(path / "_delta_log" / f"{version:020d}.json", ns=(millis * 10**6, millis * 10**6))


def at(lake: Lake, path: Path, hour: float) -> int | None:
    return lake.version_at(lake.find(path.name), BEGAN + timedelta(hours=hour))


def test_a_writer_s_clock_is_reported_and_no_more(root, lake):
    table(root / "t", (0, 1, 2), reported=(500, -500, 0))
    assert [at(lake, root / "t", hour) for hour in (0.5, 1.5, 9)] == [0, 1, 2]
    commits = lake.history(lake.find("t"))
    assert [commit.committed_at for commit in commits] == [BEGAN + timedelta(hours=h) for h in (2, 1, 0)]
    assert [commit.reported_at for commit in commits] == [BEGAN + timedelta(hours=h) for h in (0, -500, 500)]


@pytest.mark.parametrize("seed", range(20))
def test_every_way_to_a_commit_gives_the_same_time(root, open_lake, seed):
    random = Random(seed)
    hours = tuple(random.choice((version, random.randint(0, 60))) for version in range(60))
    table(root / "t", hours)
    right: list[datetime] = []
    for hour in hours:
        own = BEGAN + timedelta(hours=hour)
        right.append(max(own, right[-1] + timedelta(milliseconds=1)) if right else own)
    lake, ref = open_lake(), open_lake().find("t")
    low = random.randint(0, 59)
    page = lake.history(ref, starting_version=low, ending_version=min(59, low + 5))
    assert [commit.committed_at for commit in page] == right[low : low + 6][::-1]
    assert [commit.committed_at for commit in lake.history(ref)] == right[::-1]
    assert [total.committed_at for total in lake.timeline(ref).totals] == right
    assert [arrival.committed_at for arrival in lake.arrivals(ref, 0, 59, feed=False)] == right
    assert lake.snapshot(ref, low).committed_at == right[low]
    for moment in [*right, *(time - timedelta(milliseconds=1) for time in right)]:
        held = [version for version, time in enumerate(right) if time <= moment]
        assert lake.version_at(ref, moment) == (held[-1] if held else None)


def test_in_commit_timestamps_count_from_the_version_that_enabled_them(root, lake):
    log = table(root / "t", (0, 3, 1))  # v2's file is of 1 h: it counts as 3 h and 1 ms
    on = {"delta.enableInCommitTimestamps": "true", "delta.inCommitTimestampEnablementVersion": "3"}
    on["delta.inCommitTimestampEnablementTimestamp"] = str(T0 + 5 * HOUR)
    for version, hour, more in ((3, 5, [builders.metadata(configuration=on)]), (4, 6, []), (5, 7, [])):
        log.commit(builders.commit_info(timestamp=T0 + 90 * HOUR, inCommitTimestamp=T0 + hour * HOUR), *more)
        stamp(root / "t", version, T0)  # copied since: the files say nothing
    asked = (-1, 0, 2.9, 3, 3.1, 4.9, 5, 5.5, 6, 6.9, 7, 99)
    assert [at(lake, root / "t", hour) for hour in asked] == [None, 0, 0, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert [c.committed_at.hour - BEGAN.hour for c in lake.history(lake.find("t"), limit=3) if c.committed_at] == [
        7,
        6,
        5,
    ]


def test_a_time_before_the_first_commit_is_refused_with_what_there_is(root, lake):
    table(root / "t", LATE)
    with pytest.raises(VersionNotFoundError, match="its log begins with v0 of 2025-06-15 15:06:40"):
        resolve_version(lake, lake.find("t"), "2025-06-15T15:00Z", Clock())


def test_who_asks_for_a_time_gets_the_same_version_everywhere(home, weir):
    """The clock behind v2 is late; times are also taken as people say them."""
    now = datetime.now(UTC)
    hours = [(now - timedelta(hours=back) - BEGAN) / timedelta(hours=1) for back in (50, 23, 30, 1)]
    table(home / "lake" / "t", tuple(hours))
    when = (now - timedelta(hours=24)).isoformat()
    local = f"{(now - timedelta(hours=2)).astimezone():%H:%M}"  # of this process
    for text, version in ((when, 0), ("24 h ago", 0), ("2 days ago", 0), ("30 min ago", 3), (local, 2)):
        assert weir("table", "t", "--version", text, "--json").document["version"] == version, text
        assert weir("versions", "t", "--at", text, "--json").document["at"]["version"] == version, text
        assert weir("diff", "t", "--from", text, "--to", "latest", "--json").document["from_version"] == version, text
    for text in (when, "24 h ago"):
        assert [each["version"] for each in weir("history", "t", "--since", text, "--json").document] == [3, 2, 1]
        assert [each["version"] for each in weir("history", "t", "--until", text, "--json").document] == [0]
    refused = weir("table", "t", "--version", "tomorrow")
    assert refused.code == 2 and "not a version: 'tomorrow'" in refused.err and "`Monday 09:00`" in refused.err
    assert weir("table", "t", "--version", "3 days ago").code == 3
