"""Damaged, cleaned and changing logs: a named error about that table or the right numbers, never a wrong one.

Rule: damage of one commit's content is in `tests/contracts/test_odd_tables.py`.
"""

import json
import shutil

import pytest
from deltalake import DeltaTable

from backend.errors import (
    DataFileMissingError,
    DiffError,
    LakehouseError,
    StorageError,
    TableCorruptError,
    TableNotFoundError,
    VersionNotFoundError,
)
from backend.lake.model import UnreadableTable
from tests.worlds.lake.builders import (
    CHANGE_FEED,
    HandLog,
    add,
    commit_info,
    first_rows,
    metadata,
    orders_table,
    protocol,
    remove,
    schema_json,
    write,
)
from tests.worlds.lake.logs import commit_name
from tests.worlds.lake.permissions import unreadable
from tests.worlds.streams.replay import read_log


def growing(root, versions: int) -> HandLog:
    """Each version adds a file: f1, f2 …"""
    log = HandLog(root / "t").start()
    for version in range(1, versions + 1):
        log.commit(add(f"f{version}"), commit_info())
    return log


def state(*files: str) -> list[dict]:
    return [protocol(), metadata(), *(add(file) for file in files)]


# commits --------------------------------------------------------------------------------------------------------------


def test_a_half_written_commit_is_read_again_when_it_is_whole(root, lake):
    log = HandLog(root / "t").start()
    whole = json.dumps(add("a")) + "\n" + json.dumps(commit_info("LATE")) + "\n"
    ref = lake.find("t")
    assert lake.snapshot(ref).version == 0
    log.raw(commit_name(1), whole[:30])
    with pytest.raises(TableCorruptError):
        lake.snapshot(ref)
    assert lake.history(ref)[0].problem and isinstance(lake.cards()[0], UnreadableTable)
    log.raw(commit_name(1), whole)
    assert lake.snapshot(ref).num_files == lake.card(ref).num_files == 1
    assert (lake.history(ref)[0].operation, lake.history(ref)[0].problem) == ("LATE", None)
    assert lake.timeline(ref).totals[-1].num_files == 1


def test_a_version_cleaned_away_and_one_to_come_are_not_found(root, lake):
    log = growing(root, 3).checkpoint(2, state("f1", "f2"))
    for version in range(2):
        (log.log / commit_name(version)).unlink()
    ref = lake.find("t")
    for version in (0, 1, 9, -1):
        with pytest.raises(VersionNotFoundError) as caught:
            lake.snapshot(ref, version)
        assert "2–3" in caught.value.hint
    assert [t.version for t in lake.timeline(ref).totals] == [2, 3]
    assert lake.timeline(ref).truncated


def test_an_empty_commit_in_the_middle_stops_only_the_versions_after_it(root, open_lake):
    log = growing(root, 5)
    log.raw(commit_name(3), b"")
    lake = open_lake()
    ref = lake.find("t")
    assert lake.snapshot(ref, 2).num_files == 2
    for version in (3, 4, 5):
        with pytest.raises(TableCorruptError, match=commit_name(3)):
            lake.snapshot(ref, version)
    assert [bool(c.problem) for c in lake.history(ref)] == [False, False, True, False, False, False]
    log.checkpoint(4, state("f1", "f2", "f3", "f4")).commit(add("f6"), commit_info())
    for reader in (lake, open_lake()):  # whatever was read before
        assert (reader.snapshot(ref).num_files, reader.snapshot(ref, 4).num_files) == (6, 4)
        with pytest.raises(TableCorruptError):
            reader.snapshot(ref, 3)
    assert lake.timeline(ref).totals[-1].num_files == 6


def test_versions_that_only_a_log_compaction_holds_are_read(root, lake):
    log = HandLog(root / "t").start()
    for version in range(1, 6):
        log.commit(add(f"f{version}"), remove(f"f{version - 1}"), commit_info())
    actions = (add("f4"), *(remove(f"f{n}") for n in (1, 2, 3)))
    log.raw(f"{2:020d}.{4:020d}.compacted.json", "".join(json.dumps(action) + "\n" for action in actions))
    for version in (2, 3, 4):
        (log.log / commit_name(version)).unlink()
    states = read_log(log.log, compactions=True)
    ref = lake.find("t")
    assert {v for a, b in lake.versions(ref) for v in range(a, b + 1)} == set(states) == {0, 1, 4, 5}
    for version, state in states.items():
        assert set(lake.snapshot(ref, version).files["path"].to_pylist()) == {path for path, _ in state.files}
    for version in (2, 3):
        with pytest.raises((VersionNotFoundError, TableCorruptError)):
            lake.snapshot(ref, version)
    assert lake.timeline(ref).totals[-1].num_files == 1


def test_a_column_called_num_records_is_not_taken_for_the_count(root, open_lake):
    stats = json.dumps({"minValues": {"numRecords": 999}, "numRecords": 7})
    log = HandLog(root / "t").start().commit(add("a", stats=stats), commit_info())
    assert open_lake().snapshot(open_lake().find("t")).num_rows == 7
    log.checkpoint(1, [protocol(), metadata(), add("a", stats=stats)])
    assert open_lake().snapshot(open_lake().find("t")).num_rows == 7


def test_a_partition_that_a_file_does_not_name_is_null_everywhere(root, open_lake):
    log = HandLog(root / "t").start(columns={"id": "long", "p": "date"}, partition_by=["p"])
    log.commit(add("a", size=1, partitionValues={}), add("b", size=1, partitionValues={"p": None}), commit_info())
    log.commit(add("c", size=1, partitionValues={"p": ""}), commit_info())
    lake = open_lake(health={"min_files": 3})
    ref = lake.find("t")
    assert set(lake.snapshot(ref).files["partition"].to_pylist()) == {"p=__HIVE_DEFAULT_PARTITION__"}
    assert (lake.card(ref).small_files, lake.timeline(ref).totals[-1].small_files) == (3, 3)


# checkpoints and checksums --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["classic", "multi", "sidecar", "parquet", "json"])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99, None])
def test_a_cut_checkpoint_is_passed_over_or_named(root, lake, kind, share):
    """Of None the file is gone."""
    for name in ("whole", "alone"):
        log = HandLog(root / name).start().commit(add("a"), add("b"), commit_info())
        if kind in ("classic", "multi"):
            log.checkpoint(1, state("a", "b"), parts=2 if kind == "multi" else 1)
        else:
            log.v2_checkpoint(1, state("a", "b"), top="json" if kind == "json" else "parquet")
        folder = log.log / "_sidecars" if kind == "sidecar" else log.log
        victim = sorted(folder.glob("*.parquet" if kind == "sidecar" else "*.checkpoint.*"))[-1]
        content = victim.read_bytes()
        victim.unlink()
        if share is not None:
            victim.write_bytes(content[: int(len(content) * share)])
        log.commit(add("c"), commit_info())
        if name == "alone":
            (log.log / commit_name(0)).unlink()
    snapshot = lake.snapshot(lake.find("whole"))
    assert (snapshot.num_files, snapshot.num_rows) == (3, 30)
    assert snapshot.findings or (share is None and kind != "sidecar"), "that it was passed over must be said"
    with pytest.raises(LakehouseError) as caught:
        assert lake.snapshot(lake.find("alone")).num_files is None
    assert caught.value.hint and (kind != "sidecar" or share is not None or "_sidecars" in caught.value.message)
    assert [c.version for c in lake.history(lake.find("alone"))] == [2, 1]


@pytest.mark.parametrize("stats", ["", "garbage", "[]", '{"numRecords":"5"}', '{"numRecords":-5}', "{}"])
def test_odd_statistics_of_a_checkpoint_make_the_row_count_unknown_not_wrong(root, lake, stats):
    log = HandLog(root / "t").start().commit(add("a", stats=stats), add("b"), commit_info())
    log.checkpoint(1, [protocol(), metadata(), add("a", stats=stats), add("b")])
    snapshot = lake.snapshot(lake.find("t"))
    assert (snapshot.num_files, snapshot.num_rows) == (2, None)
    assert lake.timeline(lake.find("t")).totals[-1].num_rows is None


def test_a_checkpoint_with_parsed_statistics_alone_gives_the_rows(root, open_lake):
    log = HandLog(root / "t").start().commit(add("a"), commit_info())
    log.checkpoint(1, [protocol(), metadata(), add("a", rows=None, stats_parsed={"numRecords": 10})])
    assert open_lake().snapshot(open_lake().find("t")).num_rows == 10


WHOLE = {"numFiles": 1, "tableSizeBytes": 100, **protocol()}
WHOLE["metadata"] = metadata()["metaData"]


@pytest.mark.parametrize(
    ("checksum", "finding"),
    [
        (json.dumps(WHOLE), None),
        (json.dumps(WHOLE | {"numFiles": 2}), "disagrees"),
        (json.dumps(WHOLE | {"tableSizeBytes": 7}), "disagrees"),
        (json.dumps(WHOLE | protocol(2, 5)), "disagrees"),
        (json.dumps(WHOLE | {"metadata": metadata({"other": "long"})["metaData"]}), "disagrees"),
        ("garbage", "cannot be read"),
        ("[]", "cannot be read"),
    ],
)
def test_a_checksum_that_disagrees_is_a_finding_and_changes_nothing(root, open_lake, checksum, finding):
    HandLog(root / "t").start().commit(add("a"), commit_info()).raw(f"{1:020d}.crc", checksum)
    snapshot = open_lake().snapshot(open_lake().find("t"))
    assert snapshot.num_files == 1 and bool(snapshot.findings) == (finding is not None)
    assert finding is None or finding in snapshot.findings[0]
    assert (snapshot.protocol.min_reader_version, snapshot.metadata.schema_json) == (1, schema_json({"id": "long"}))


def test_a_lake_that_follows_outlives_the_checkpoint_that_it_stood_on(root, lake):
    """Cleanup takes the old checkpoint; no new commit tells of it."""
    log = HandLog(root / "t").start().commit(add("a"), commit_info()).checkpoint(1, state("a"))
    ref = lake.find("t")
    assert lake.snapshot(ref).num_files == 1
    log.commit(add("b"), commit_info()).checkpoint(2, state("a", "b"))
    assert lake.snapshot(ref).num_files == 2
    for name in (commit_name(0), commit_name(1), f"{1:020d}.checkpoint.parquet"):
        (log.log / name).unlink()
    assert lake.snapshot(ref).files.num_rows == 2
    log.commit(add("c"), commit_info())
    snapshot = lake.snapshot(ref)
    assert (snapshot.files.num_rows, snapshot.num_rows, snapshot.size_bytes) == (3, 30, 300)


def test_a_commit_that_is_gone_where_a_checkpoint_stands_leaves_the_timeline(root, lake):
    log = growing(root, 3).checkpoint(2, state("f1", "f2"))
    (log.log / commit_name(2)).unlink()
    assert lake.timeline(lake.find("t")).totals[-1].num_files == 3
    assert lake.snapshot(lake.find("t"), 2).num_files == 2


def test_a_home_that_may_not_be_written_costs_only_the_kept_timeline(root, open_lake, tmp_path):
    growing(root, 59)
    (tmp_path / "cache").write_text("a file where the folder belongs")
    for lake in (open_lake(), open_lake()):
        assert lake.timeline(lake.find("t")).totals[-1].num_files == 59


# tables that go, and what may not be read -----------------------------------------------------------------------------


def test_a_table_that_vanishes_while_it_is_looked_at(root, lake):
    for name in ("t", "goes", "stays"):
        write(root / name, {"id": [1]})
    refs = lake.tables()
    ref = lake.find("t")
    lake.card(ref)
    shutil.rmtree(root / "t")
    shutil.rmtree(root / "goes" / "_delta_log")
    for read in (lake.latest_version, lake.card, lake.snapshot, lake.history, lake.timeline):
        with pytest.raises(TableNotFoundError):
            read(ref)
    with pytest.raises(TableNotFoundError):
        first_rows(lake, ref, limit=1)
    cards = {card.ref.name: isinstance(card, UnreadableTable) for card in lake.read_cards(refs)}
    assert cards == {"t": True, "goes": True, "stays": False}
    assert [card.ref.name for card in lake.cards()] == ["stays"]


def test_a_table_made_anew_at_the_same_place_is_another_table(root, lake):
    orders_table(root / "t")
    ref = lake.find("t")
    assert lake.card(ref).version == 3 and lake.cards()[0] is lake.cards()[0]
    assert len(lake.timeline(ref).totals) == 4
    shutil.rmtree(root / "t")
    write(root / "t", {"other": ["x"] * 7})
    assert (lake.card(ref).version, lake.card(ref).num_rows, lake.cards()[0].num_rows) == (0, 7, 7)
    assert [t.num_rows for t in lake.timeline(ref).totals] == [7]
    assert len(lake.history(ref)) == 1


@pytest.mark.parametrize("name", ["_delta_log", f"_delta_log/{commit_name(1)}", f"_delta_log/{1:020d}.crc"])
def test_what_may_not_be_read_is_named_and_hides_no_other_table(root, open_lake, name):
    for table in ("locked", "open"):
        log = HandLog(root / table).start().commit(add("a"), commit_info())
        log.raw(f"{1:020d}.crc", json.dumps(WHOLE))
    with unreadable(root / "locked" / name):
        lake = open_lake()
        cards = {card.ref.name: card for card in lake.cards()}
        assert cards["open"].num_files == 1
        if name.endswith(".crc"):
            assert lake.snapshot(cards["locked"].ref).num_rows == 10
        else:
            assert isinstance(cards["locked"], UnreadableTable)
            assert "permission" in cards["locked"].reason
            with pytest.raises(StorageError):
                lake.snapshot(cards["locked"].ref)


def test_a_root_that_may_not_be_listed_is_named(root, open_lake):
    write(root / "t", {"id": [1]})
    with unreadable(root), pytest.raises(StorageError, match="permission") as caught:
        open_lake().tables()
    assert caught.value.hint


# the change feed ------------------------------------------------------------------------------------------------------


def test_changes_outside_the_feed_say_from_where_it_covers(root, lake):
    path = write(root / "t", {"id": [1, 2]})
    write(path, {"id": [3]})
    DeltaTable(str(path)).alter.set_table_properties(CHANGE_FEED)
    write(path, {"id": [4]})
    ref = lake.find("t")
    support = lake.cdf_support(ref, 0, 3)
    assert (support.covered, support.first_covered_version) == (False, 1)
    with pytest.raises(DiffError):
        lake.changes(ref, 0, 3)
    assert lake.cdf_support(ref, 2, 3).covered
    assert lake.changes(ref, 2, 3).read_all().num_rows == 1
    assert not lake.cdf_support(ref, 3, 3).covered
    assert not lake.cdf_support(ref, 0, 9).covered


def test_changes_whose_files_were_vacuumed_name_the_loss(root, lake):
    path = orders_table(root / "t")
    for data in (path / "_change_data").glob("*.parquet"):
        data.unlink()
    with pytest.raises(DataFileMissingError):
        lake.changes(lake.find("t"), 1, 3)


def test_changes_that_deltalake_cannot_read_are_refused_with_the_reason(root, lake):
    for value in ("a b", "plain"):
        for number in range(2):
            write(root / value, {"id": [number], "p": [value]}, partition_by=["p"], configuration=CHANGE_FEED)
    mapped = CHANGE_FEED | {"delta.columnMapping.mode": "name"}
    HandLog(root / "mapped").commit(protocol(2, 5), metadata(configuration=mapped)).commit(add("a"), commit_info())
    assert lake.cdf_support(lake.find("plain"), 0, 1).covered
    assert "percent-encoded" in lake.cdf_support(lake.find("a b"), 0, 1).reason
    assert "column mapping" in lake.cdf_support(lake.find("mapped"), 0, 1).reason
