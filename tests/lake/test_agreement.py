"""What Weir reads equals what deltalake reads, on tables of its making and on real ones of others."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from backend.lake.model import TableRef
from tests.builders import CHANGE_FEED, folder_bytes, medallion_lake, orders_table, partitioned_table, write

SHARED = Path(__file__).parents[3] / "shared" / "tables"


def assert_agrees(lake, ref: TableRef) -> None:
    latest = DeltaTable(ref.uri).version()
    assert lake.latest_version(ref) == latest
    for version in range(latest + 1):
        table = DeltaTable(ref.uri, version=version)
        actions = pa.table(table.get_add_actions(flatten=True)).to_pydict()
        snapshot = lake.snapshot(ref, version)
        assert snapshot.num_files == len(actions["path"])
        assert sorted(snapshot.files["size_bytes"].to_pylist()) == sorted(actions["size_bytes"])
        assert snapshot.size_bytes == sum(actions["size_bytes"])
        assert snapshot.num_rows == count_rows(table)
        assert dict(snapshot.metadata.configuration) == table.metadata().configuration
        assert snapshot.metadata.id == table.metadata().id
        assert snapshot.metadata.partition_columns == tuple(table.metadata().partition_columns)
        assert snapshot.protocol.min_reader_version == table.protocol().min_reader_version
    assert_history_agrees(lake, ref)
    assert_timeline_agrees(lake, ref)


def assert_history_agrees(lake, ref: TableRef) -> None:
    theirs = DeltaTable(ref.uri).history()
    ours = lake.history(ref)
    assert [c.version for c in ours] == [h["version"] for h in theirs]
    for commit, entry in zip(ours, theirs, strict=True):
        assert commit.operation == entry.get("operation")
        assert commit.committed_at.timestamp() == pytest.approx(entry["timestamp"] / 1000)
        assert dict(commit.raw_metrics) == entry.get("operationMetrics", {})
        assert dict(commit.parameters) == entry.get("operationParameters", {})


def assert_timeline_agrees(lake, ref: TableRef) -> None:
    timeline = lake.timeline(ref)
    assert timeline.first_version == 0
    for totals in timeline.totals:
        snapshot = lake.snapshot(ref, totals.version)
        assert (totals.num_files, totals.size_bytes, totals.num_rows) == (
            snapshot.num_files,
            snapshot.size_bytes,
            snapshot.num_rows,
        )


def by_order(rows: pa.Table) -> list[dict]:
    return sorted(rows.to_pylist(), key=lambda row: row["order_id"])


def count_rows(table: DeltaTable) -> int:
    first = table.schema().fields[0].name
    return pa.RecordBatchReader.from_stream(table.scan(columns=[first])).read_all().num_rows


def test_medallion_tables_agree(root, open_lake):
    medallion_lake(root)
    lake = open_lake()
    refs = lake.tables()
    assert [(ref.name, ref.layer) for ref in refs] == [
        ("bronze/orders_raw", "bronze"),
        ("gold/orders_by_status", "gold"),
        ("silver/orders", "silver"),
    ]
    for ref in refs:
        assert_agrees(lake, ref)


def test_partitioned_table_with_odd_values_and_checkpoint_agrees(root, open_lake):
    values = ["a b", "c/d", None, "x=y", "ü%20", ""]
    for number in range(3):
        write(root / "odd", {"id": [number] * 6, "p": values}, partition_by=["p"])
    table = DeltaTable(str(root / "odd"))
    table.create_checkpoint()
    table.delete("p = 'a b'")
    table.optimize.compact()
    lake = open_lake()
    ref = lake.find("odd")
    assert_agrees(lake, ref)
    partitions = set(lake.snapshot(ref).files["partition"].to_pylist())
    assert partitions == {"p=c%2Fd", "p=__HIVE_DEFAULT_PARTITION__", "p=x=y", "p=ü%2520"}


def test_table_read_from_a_checkpoint_alone_agrees(root, open_lake):
    path = partitioned_table(root / "t", days=4, files_per_day=3)
    DeltaTable(str(path)).create_checkpoint()
    want = DeltaTable(str(path)).version()
    for old in sorted((path / "_delta_log").glob("*.json")):
        old.unlink()
    lake = open_lake()
    snapshot = lake.snapshot(lake.find("t"))
    assert (snapshot.version, snapshot.num_files, snapshot.num_rows) == (want, 12, 24)
    assert snapshot.committed_at is None
    assert set(snapshot.files["partition"].to_pylist()) == {f"day=2026-01-0{n}" for n in range(1, 5)}


def test_rows_equal_those_of_deltalake_at_every_version(root, open_lake):
    path = orders_table(root / "orders")
    lake = open_lake()
    ref = lake.find("orders")
    for version in range(4):
        page = lake.rows(ref, version=version, limit=100)
        want = pa.RecordBatchReader.from_stream(DeltaTable(str(path), version=version).scan()).read_all()
        assert by_order(page.rows) == by_order(want)
        assert (page.truncated, page.total_rows) == (False, want.num_rows)


def test_rows_say_when_the_limit_cut(root, open_lake):
    write(root / "t", {"id": list(range(50)), "name": ["x"] * 50})
    lake = open_lake()
    page = lake.rows(lake.find("t"), columns=["id"], limit=10)
    assert page.rows.column_names == ["id"]
    assert (page.rows.num_rows, page.truncated, page.total_rows) == (10, True, 50)
    assert lake.rows(lake.find("t"), limit=50).truncated is False


def test_changes_are_those_of_the_feed(root, open_lake):
    orders_table(root / "orders")
    lake = open_lake()
    ref = lake.find("orders")
    changes = lake.changes(ref, 1, 3).read_all().to_pylist()
    found = sorted((c["_commit_version"], c["_change_type"], c["order_id"], c["status"]) for c in changes)
    assert found == [
        (2, "update_postimage", 2, "paid"),
        (2, "update_preimage", 2, "new"),
        (3, "delete", 1, "new"),
    ]


def test_compaction_changes_no_row_in_the_feed(root, open_lake):
    for number in range(3):
        write(root / "t", {"id": [number]}, configuration=CHANGE_FEED)
    DeltaTable(str(root / "t")).optimize.compact()
    lake = open_lake()
    assert lake.changes(lake.find("t"), 2, 3).read_all().num_rows == 0


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared tables are not beside the repository")
def test_real_tables_of_others_agree_and_stay_as_they_are(open_lake):
    before = folder_bytes(SHARED)
    lake = open_lake(SHARED)
    assert {ref.name for ref in lake.tables()} == {"covid_nyt", "cdf_table"}
    for ref in lake.tables():
        assert_agrees(lake, ref)
        lake.rows(ref, limit=10)
    assert lake.card(lake.find("covid_nyt")).num_rows == 1_111_930
    feed = lake.find("cdf_table")
    assert lake.cdf_support(feed, 0, 3).covered
    assert lake.changes(feed, 0, 3).read_all().num_rows == 13
    assert folder_bytes(SHARED) == before
