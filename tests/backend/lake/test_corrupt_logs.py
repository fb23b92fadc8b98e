"""Damaged logs end in a named error about that table, never in a wrong number or a traceback."""

import json
import shutil

import pytest

from backend.errors import (
    DataFileMissingError,
    DiffError,
    LakehouseError,
    TableCorruptError,
    TableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from backend.lake.files.file_sizes import histogram
from backend.lake.model import UnreadableTable
from tests.worlds.lake.builders import (
    HandLog,
    add,
    commit_info,
    first_rows,
    metadata,
    orders_table,
    partitioned_table,
    protocol,
    remove,
    schema_json,
    write,
)
from tests.worlds.streams.replay import read_log

BAD_COMMITS = {
    "empty": b"",
    "blank": b"\n \n",
    "garbage": b"\x00\x01\x02garbage",
    "cut off": b'{"add":{"path":"a","size":1',
    "an array": b"[1,2]",
    "a number": b"5",
    "not utf-8": b'{"add":{"path":"\xff\xfe","size":1}}',
    "add is text": b'{"add":"a"}',
    "no path": b'{"add":{"size":1}}',
    "path is a number": b'{"add":{"path":1,"size":1}}',
    "no size": b'{"add":{"path":"a"}}',
    "size is text": b'{"add":{"path":"a","size":"big"}}',
    "size is negative": b'{"add":{"path":"a","size":-1}}',
    "size is a float": b'{"add":{"path":"a","size":1.5}}',
    "size is huge": b'{"add":{"path":"a","size":99999999999999999999}}',
    "partition values are a list": b'{"add":{"path":"a","size":1,"partitionValues":[1]}}',
    "deletion vector is text": b'{"add":{"path":"a","size":1,"deletionVector":"x"}}',
    "deletion vector without count": b'{"add":{"path":"a","size":1,"deletionVector":{"storageType":"u"}}}',
    "metaData whose schema is no text": b'{"metaData":{"id":"x","schemaString":1}}',
    "protocol is text": b'{"protocol":"x"}',
    "protocol of text": b'{"protocol":{"minReaderVersion":"1","minWriterVersion":2}}',
    "deep": b'{"a":' * 5000 + b"1" + b"}" * 5000,
}


@pytest.mark.parametrize("content", BAD_COMMITS.values(), ids=BAD_COMMITS.keys())
def test_a_bad_commit_is_named_and_versions_before_it_stay_readable(root, open_lake, content):
    log = HandLog(root / "t").start()
    log.commit(add("a"), commit_info())
    log.raw(f"{2:020d}.json", content)
    lake = open_lake()
    ref = lake.find("t")
    with pytest.raises(TableCorruptError) as caught:
        lake.snapshot(ref)
    assert f"{2:020d}.json" in caught.value.message
    assert caught.value.hint == "restore the file; versions before it can still be read"
    assert lake.snapshot(ref, 1).num_files == 1
    history = lake.history(ref)
    assert [c.version for c in history] == [2, 1, 0]
    assert history[0].problem
    assert history[1].problem is None
    (card,) = lake.cards()
    assert isinstance(card, UnreadableTable)


def test_of_a_bad_first_commit_nothing_before_it_is_promised(root, open_lake):
    log = HandLog(root / "t").start()
    log.commit(add("a"), commit_info())
    log.raw(f"{0:020d}.json", b"{broken")
    (card,) = open_lake().cards()
    assert isinstance(card, UnreadableTable)
    assert card.hint == "restore the file: no version can be read without it"


@pytest.mark.parametrize(
    "info",
    [
        "text",
        5,
        [],
        None,
        {},
        {"timestamp": "yesterday", "operation": 7, "operationMetrics": "x", "operationParameters": [1]},
        {"timestamp": -1, "operationMetrics": {"numOutputRows": "many", "numDeletedRows": True}},
        {"timestamp": 10**30, "userMetadata": {"a": 1}, "engineInfo": {}, "readVersion": "x", "isBlindAppend": "yes"},
        {"inCommitTimestamp": None, "operationParameters": None, "operationMetrics": None},
    ],
)
def test_one_bad_commit_info_hides_nothing_but_itself(root, open_lake, info):
    log = HandLog(root / "t").start()
    log.commit({"commitInfo": info}, add("a"), commit_info("WRITE")) if info is None else log.commit(
        {"commitInfo": info}, add("a")
    )
    log.commit(add("b"), commit_info("LAST"))
    lake = open_lake()
    ref = lake.find("t")
    assert [c.operation for c in lake.history(ref)][::2] == ["LAST", "CREATE TABLE"]
    odd = lake.history(ref)[1]
    assert (odd.metrics.files_added, odd.metrics.bytes_added) == (1, 100)
    assert odd.committed_at is not None
    assert lake.snapshot(ref).num_files == 2


@pytest.mark.parametrize("stats", ["", "garbage", "[]", '{"numRecords":"5"}', '{"numRecords":-5}', "{}", 5, {"a": 1}])
@pytest.mark.parametrize("where", ["commit", "checkpoint"])
def test_odd_statistics_make_the_row_count_unknown_not_wrong(root, open_lake, stats, where):
    if where == "checkpoint" and not isinstance(stats, str):
        pytest.skip("a checkpoint's column holds text alone")
    log = HandLog(root / "t").start()
    log.commit(add("a", stats=stats), add("b"), commit_info())
    if where == "checkpoint":
        log.checkpoint(1, [protocol(), metadata(), add("a", stats=stats), add("b")])
    lake = open_lake()
    snapshot = lake.snapshot(lake.find("t"))
    assert (snapshot.num_files, snapshot.num_rows) == (2, None)
    assert lake.timeline(lake.find("t")).totals[-1].num_rows is None


def test_a_column_called_num_records_is_not_taken_for_the_count(root, open_lake):
    stats = json.dumps({"minValues": {"numRecords": 999}, "numRecords": 7})
    log = HandLog(root / "t").start().commit(add("a", stats=stats), commit_info())
    lake = open_lake()
    assert lake.snapshot(lake.find("t")).num_rows == 7
    log.checkpoint(1, [protocol(), metadata(), add("a", stats=stats)])
    assert open_lake().snapshot(lake.find("t")).num_rows == 7


def test_a_checkpoint_with_parsed_statistics_alone_gives_the_rows(root, open_lake):
    log = HandLog(root / "t").start().commit(add("a"), commit_info())
    log.checkpoint(1, [protocol(), metadata(), add("a", rows=None, stats_parsed={"numRecords": 10})])
    lake = open_lake()
    assert lake.snapshot(lake.find("t")).num_rows == 10


def test_a_half_written_commit_is_read_again_when_it_is_whole(root, open_lake):
    log = HandLog(root / "t").start()
    whole = json.dumps(add("a")) + "\n" + json.dumps(commit_info("LATE")) + "\n"
    lake = open_lake()
    ref = lake.find("t")
    assert lake.snapshot(ref).version == 0
    log.raw(f"{1:020d}.json", whole[:30])
    with pytest.raises(TableCorruptError):
        lake.snapshot(ref)
    assert lake.history(ref)[0].problem
    log.raw(f"{1:020d}.json", whole)
    assert lake.snapshot(ref).num_files == 1
    assert (lake.history(ref)[0].operation, lake.history(ref)[0].problem) == ("LATE", None)
    assert lake.timeline(ref).totals[-1].num_files == 1


def test_a_gap_in_the_log_is_named(root, open_lake):
    log = HandLog(root / "t").start()
    for version in range(1, 5):
        log.commit(add(f"f{version}"), commit_info())
    (log.log / f"{2:020d}.json").unlink()
    lake = open_lake()
    ref = lake.find("t")
    with pytest.raises(TableCorruptError, match="commit 2 is missing"):
        lake.snapshot(ref)
    assert lake.snapshot(ref, 1).num_files == 1
    assert [c.version for c in lake.history(ref)] == [4, 3, 1, 0]


def test_a_version_cleaned_away_and_one_to_come_are_not_found(root, open_lake):
    log = HandLog(root / "t").start()
    for version in range(1, 4):
        log.commit(add(f"f{version}"), commit_info())
    log.checkpoint(2, [protocol(), metadata(), add("f1"), add("f2")])
    for version in range(2):
        (log.log / f"{version:020d}.json").unlink()
    lake = open_lake()
    ref = lake.find("t")
    for version in (0, 1, 9, -1):
        with pytest.raises(VersionNotFoundError) as caught:
            lake.snapshot(ref, version)
        assert "2–3" in caught.value.hint
    assert [t.version for t in lake.timeline(ref).totals] == [2, 3]
    assert lake.timeline(ref).truncated


def test_a_damaged_checkpoint_is_passed_over_and_said(root, open_lake):
    log = HandLog(root / "t").start().commit(add("a"), commit_info())
    log.raw(f"{1:020d}.checkpoint.parquet", b"PAR1 not parquet PAR1")
    log.commit(add("b"), commit_info())
    lake = open_lake()
    snapshot = lake.snapshot(lake.find("t"))
    assert snapshot.num_files == 2
    assert "checkpoint.parquet" in snapshot.findings[0]


def test_a_damaged_checkpoint_with_nothing_before_it_is_an_error(root, open_lake):
    log = HandLog(root / "t")
    log.raw(f"{1:020d}.checkpoint.parquet", b"PAR1 not parquet PAR1")
    log.commit(add("b"), commit_info(), version=2)
    lake = open_lake()
    with pytest.raises(TableCorruptError, match="checkpoint"):
        lake.snapshot(lake.find("t"))


def test_a_multi_part_checkpoint_with_a_part_missing_is_not_used(root, open_lake):
    log = HandLog(root / "t").start().commit(add("a"), add("b"), commit_info())
    log.checkpoint(1, [protocol(), metadata(), add("a"), add("b")], parts=2)
    next(log.log.glob("*.0000000002.0000000002.parquet")).unlink()
    lake = open_lake()
    snapshot = lake.snapshot(lake.find("t"))
    assert (snapshot.num_files, snapshot.findings) == (2, ())


def test_a_stale_or_wrong_last_checkpoint_changes_nothing(root, open_lake):
    log = HandLog(root / "t").start().commit(add("a"), commit_info())
    for hint in (b'{"version":99,"size":1}', b"garbage", b""):
        log.raw("_last_checkpoint", hint)
        lake = open_lake()
        assert lake.snapshot(lake.find("t")).num_files == 1


@pytest.mark.parametrize(
    ("checksum", "finding"),
    [
        ('{"numFiles":1,"tableSizeBytes":100}', None),
        ('{"numFiles":2,"tableSizeBytes":100}', "disagrees"),
        ('{"numFiles":1,"tableSizeBytes":7}', "disagrees"),
        ("garbage", "cannot be read"),
        ("[]", "cannot be read"),
    ],
)
def test_a_checksum_that_disagrees_is_a_finding(root, open_lake, checksum, finding):
    log = HandLog(root / "t").start().commit(add("a"), commit_info())
    log.raw(f"{1:020d}.crc", checksum)
    lake = open_lake()
    snapshot = lake.snapshot(lake.find("t"))
    assert snapshot.num_files == 1
    assert bool(snapshot.findings) == (finding is not None)
    assert finding is None or finding in snapshot.findings[0]


@pytest.mark.parametrize(("reader", "features"), [(3, ["deletionVectors", "timeTravelToMars"]), (4, []), (99, [])])
def test_a_reader_feature_that_nobody_knows_is_named(root, open_lake, reader, features):
    HandLog(root / "t").commit(protocol(reader, 7, features), metadata(), commit_info())
    lake = open_lake()
    with pytest.raises(UnsupportedFeatureError):
        lake.snapshot(lake.find("t"))
    assert len(lake.history(lake.find("t"))) == 1


def test_folders_that_are_no_tables(root, open_lake):
    (root / "empty" / "_delta_log").mkdir(parents=True)
    (root / "garbage" / "_delta_log").mkdir(parents=True)
    (root / "garbage" / "_delta_log" / "notes.txt").write_text("hello")
    (root / "plain" / "year=2026").mkdir(parents=True)
    cards = open_lake().cards()
    assert [(type(c), c.ref.name) for c in cards] == [(UnreadableTable, "empty"), (UnreadableTable, "garbage")]
    with pytest.raises(TableNotFoundError):
        open_lake().find(str(root / "plain"))
    with pytest.raises(TableNotFoundError):
        open_lake().find("plain")


def test_a_log_without_protocol_or_metadata_is_corrupt(root, open_lake):
    HandLog(root / "t").commit(add("a"), commit_info())
    lake = open_lake()
    with pytest.raises(TableCorruptError, match="protocol"):
        lake.snapshot(lake.find("t"))


def test_a_table_that_vanishes_while_it_is_looked_at(root, open_lake):
    write(root / "t", {"id": [1]})
    write(root / "stays", {"id": [1]})
    lake = open_lake()
    ref = lake.find("t")
    lake.card(ref)
    shutil.rmtree(root / "t")
    for read in (lake.latest_version, lake.card, lake.snapshot, lake.history, lake.timeline):
        with pytest.raises(TableNotFoundError):
            read(ref)
    with pytest.raises(TableNotFoundError):
        first_rows(lake, ref, limit=1)
    assert [card.ref.name for card in lake.cards()] == ["stays"]


def test_a_table_made_anew_at_the_same_place_is_another_table(root, open_lake):
    orders_table(root / "t")
    lake = open_lake()
    ref = lake.find("t")
    assert lake.card(ref).version == 3
    assert len(lake.timeline(ref).totals) == 4
    shutil.rmtree(root / "t")
    write(root / "t", {"other": ["x"] * 7})
    assert (lake.card(ref).version, lake.card(ref).num_rows) == (0, 7)
    assert [t.num_rows for t in lake.timeline(ref).totals] == [7]
    assert len(lake.history(ref)) == 1


def test_rows_of_a_vacuumed_file_name_the_loss(root, open_lake):
    path = write(root / "t", {"id": [1]})
    next(path.glob("*.parquet")).unlink()
    lake = open_lake()
    with pytest.raises(DataFileMissingError):
        first_rows(lake, lake.find("t"), limit=1)


def test_rows_of_a_damaged_file_are_a_named_error(root, open_lake):
    path = write(root / "t", {"id": [1]})
    next(path.glob("*.parquet")).write_bytes(b"nothing of parquet")
    lake = open_lake()
    with pytest.raises(LakehouseError):
        first_rows(lake, lake.find("t"), limit=1)


def test_rows_of_a_column_that_is_not_there(root, open_lake):
    write(root / "t", {"id": [1]})
    lake = open_lake()
    with pytest.raises(LakehouseError, match="nope"):
        first_rows(lake, lake.find("t"), columns=["nope"], limit=1)


def test_changes_outside_the_feed_say_from_where_it_covers(root, open_lake):
    path = write(root / "t", {"id": [1, 2]})
    from deltalake import DeltaTable

    write(path, {"id": [3]})
    DeltaTable(str(path)).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    write(path, {"id": [4]})
    lake = open_lake()
    ref = lake.find("t")
    support = lake.cdf_support(ref, 0, 3)
    assert (support.covered, support.first_covered_version) == (False, 1)
    with pytest.raises(DiffError):
        lake.changes(ref, 0, 3)
    assert lake.cdf_support(ref, 2, 3).covered
    assert lake.changes(ref, 2, 3).read_all().num_rows == 1
    assert not lake.cdf_support(ref, 3, 3).covered
    assert not lake.cdf_support(ref, 0, 9).covered


def test_changes_whose_files_were_vacuumed_name_the_loss(root, open_lake):
    path = orders_table(root / "t")
    for data in (path / "_change_data").glob("*.parquet"):
        data.unlink()
    lake = open_lake()
    with pytest.raises(DataFileMissingError):
        lake.changes(lake.find("t"), 1, 3)


def test_changes_that_deltalake_cannot_read_are_refused_with_the_reason(root, open_lake):
    for value in ("a b", "plain"):
        for number in range(2):
            rows = {"id": [number], "p": [value]}
            write(root / value, rows, partition_by=["p"], configuration={"delta.enableChangeDataFeed": "true"})
    mapped = {"delta.enableChangeDataFeed": "true", "delta.columnMapping.mode": "name"}
    HandLog(root / "mapped").commit(protocol(2, 5), metadata(configuration=mapped)).commit(add("a"), commit_info())
    lake = open_lake()
    assert lake.cdf_support(lake.find("plain"), 0, 1).covered
    assert "percent-encoded" in lake.cdf_support(lake.find("a b"), 0, 1).reason
    assert "column mapping" in lake.cdf_support(lake.find("mapped"), 0, 1).reason


def test_partitions_of_a_real_table_survive_a_bad_commit_elsewhere(root, open_lake):
    partitioned_table(root / "good")
    HandLog(root / "bad").start().raw(f"{1:020d}.json", b"")
    cards = {card.ref.name: card for card in open_lake().cards()}
    assert cards["good"].num_rows == 12
    assert isinstance(cards["bad"], UnreadableTable)


# -- shrunk from random logs -------------------------------------------------------------------------------------------


def test_a_lake_that_follows_outlives_the_checkpoint_that_it_stood_on(root, open_lake):
    """Cleanup takes the old checkpoint; no new commit tells of it."""
    log = HandLog(root / "t").start().commit(add("a"), commit_info())
    log.checkpoint(1, [protocol(), metadata(), add("a")])
    lake = open_lake()
    ref = lake.find("t")
    assert lake.snapshot(ref).num_files == 1
    log.commit(add("b"), commit_info()).checkpoint(2, [protocol(), metadata(), add("a"), add("b")])
    assert lake.snapshot(ref).num_files == 2
    for name in (f"{0:020d}.json", f"{1:020d}.json", f"{1:020d}.checkpoint.parquet"):
        (log.log / name).unlink()
    assert lake.snapshot(ref).files.num_rows == 2
    log.commit(add("c"), commit_info())
    snapshot = lake.snapshot(ref)
    assert (snapshot.files.num_rows, snapshot.num_rows, snapshot.size_bytes) == (3, 30, 300)


def test_a_version_is_read_past_a_bad_commit_whatever_was_read_before(root, open_lake):
    log = HandLog(root / "t").start().commit(add("a"), commit_info())
    log.raw(f"{2:020d}.json", b"")
    lake = open_lake()
    ref = lake.find("t")
    assert lake.snapshot(ref, 1).num_files == 1
    log.checkpoint(2, [protocol(), metadata(), add("a"), add("b")]).commit(add("c"), commit_info(), version=3)
    assert lake.snapshot(ref).num_files == 3
    assert lake.timeline(ref).totals[-1].num_files == 3


def test_a_commit_that_is_gone_where_a_checkpoint_stands_leaves_the_timeline(root, open_lake):
    log = HandLog(root / "t").start()
    for version in range(1, 4):
        log.commit(add(f"f{version}"), commit_info())
    log.checkpoint(2, [protocol(), metadata(), add("f1"), add("f2")])
    (log.log / f"{2:020d}.json").unlink()
    lake = open_lake()
    assert lake.timeline(lake.find("t")).totals[-1].num_files == 3
    assert lake.snapshot(lake.find("t"), 2).num_files == 2


def test_a_partition_that_a_file_does_not_name_is_null_everywhere(root, open_lake):
    log = HandLog(root / "t").start(columns={"id": "long", "p": "date"}, partition_by=["p"])
    log.commit(add("a", size=1, partitionValues={}), add("b", size=1, partitionValues={"p": None}), commit_info())
    log.commit(add("c", size=1, partitionValues={"p": ""}), commit_info())
    lake = open_lake(health={"min_files": 3})
    ref = lake.find("t")
    assert set(lake.snapshot(ref).files["partition"].to_pylist()) == {"p=__HIVE_DEFAULT_PARTITION__"}
    assert (lake.card(ref).small_files, lake.timeline(ref).totals[-1].small_files) == (3, 3)


@pytest.mark.parametrize("size", [2**53 - 1, 2**53, 2**53 + 1, 2**54 - 1, 2**62 - 1, 2**63 - 1])
def test_a_size_beyond_what_a_float_holds_falls_in_its_own_bucket(root, open_lake, size):
    HandLog(root / "t").start().commit(add("a", size=size), commit_info())
    lake = open_lake()
    (bucket,) = histogram(lake.snapshot(lake.find("t")).files["size_bytes"])
    assert (bucket.from_bytes <= size < bucket.to_bytes, bucket.files, bucket.bytes) == (True, 1, size)


@pytest.mark.parametrize("changed", [{"protocol": protocol(2, 5)["protocol"]}, metadata({"other": "long"})])
def test_a_checksum_of_another_protocol_or_schema_is_a_finding(root, open_lake, changed):
    log = HandLog(root / "t").start().commit(add("a"), commit_info())
    body = {
        "numFiles": 1,
        "tableSizeBytes": 100,
        "protocol": protocol()["protocol"],
        "metadata": metadata()["metaData"],
    }
    body |= {"metadata": changed["metaData"]} if "metaData" in changed else changed
    log.raw(f"{1:020d}.crc", json.dumps(body))
    lake = open_lake()
    snapshot = lake.snapshot(lake.find("t"))
    assert snapshot.findings and "disagrees" in snapshot.findings[0]
    assert (snapshot.protocol.min_reader_version, snapshot.metadata.schema_json) == (1, schema_json({"id": "long"}))


@pytest.mark.parametrize("configuration", [True, 1, 1.5, "text", [1], [["a", "b"]], {"a": {"b": 1}}, None])
def test_table_properties_of_a_wrong_type_hide_no_history(root, open_lake, configuration):
    log = HandLog(root / "t").start()
    body = metadata()["metaData"] | {"configuration": configuration}
    log.commit({"metaData": body}, add("a"), commit_info())
    lake = open_lake()
    ref = lake.find("t")
    assert [c.version for c in lake.history(ref)] == [1, 0]
    try:
        assert all(isinstance(value, str) for value in lake.snapshot(ref).metadata.configuration.values())
    except TableCorruptError as exc:
        assert f"{1:020d}.json" in exc.message


def test_versions_that_only_a_log_compaction_holds_are_read(root, open_lake):
    log = HandLog(root / "t").start()
    for version in range(1, 6):
        log.commit(add(f"f{version}"), remove(f"f{version - 1}"), commit_info())
    log.raw(
        f"{2:020d}.{4:020d}.compacted.json",
        "".join(json.dumps(a) + "\n" for a in (add("f4"), *(remove(f"f{n}") for n in (1, 2, 3)))),
    )
    for version in (2, 3, 4):
        (log.log / f"{version:020d}.json").unlink()
    states = read_log(log.log, compactions=True)
    lake = open_lake()
    ref = lake.find("t")
    assert {v for a, b in lake.versions(ref) for v in range(a, b + 1)} == set(states) == {0, 1, 4, 5}
    for version, state in states.items():
        assert set(lake.snapshot(ref, version).files["path"].to_pylist()) == {path for path, _ in state.files}
    for version in (2, 3):
        with pytest.raises((VersionNotFoundError, TableCorruptError)):
            lake.snapshot(ref, version)
    assert lake.timeline(ref).totals[-1].num_files == 1


def test_a_home_that_may_not_be_written_costs_only_the_kept_timeline(root, open_lake, tmp_path):
    log = HandLog(root / "t").start()
    for version in range(1, 60):
        log.commit(add(f"f{version}"), commit_info())
    (tmp_path / "cache").write_text("a file where the folder belongs")
    lake = open_lake()
    assert lake.timeline(lake.find("t")).totals[-1].num_files == 59
    assert open_lake().timeline(lake.find("t")).totals[-1].num_files == 59
