"""What Weir reads equals what deltalake reads, on tables of its making and on real ones of others."""

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Field, TableFeatures, Transaction
from deltalake.schema import PrimitiveType

from backend.lake.files.file_sizes import partition_files
from backend.lake.model import TableRef
from tests.worlds.lake.builders import (
    first_rows,
    folder_bytes,
    medallion_lake,
    write,
)

SHARED = Path(__file__).parents[4] / "shared" / "tables"


def assert_agrees(lake, ref: TableRef, *, rows: bool = True) -> None:
    latest = DeltaTable(ref.uri).version()
    assert lake.latest_version(ref) == latest
    for version in range(latest + 1):
        table, snapshot = DeltaTable(ref.uri, version=version), lake.snapshot(ref, version)
        sizes = pa.table(table.get_add_actions(flatten=True))["size_bytes"].to_pylist()
        assert sorted(snapshot.files["size_bytes"].to_pylist()) == sorted(sizes)
        assert (snapshot.num_files, snapshot.size_bytes) == (len(sizes), sum(sizes))
        if rows:
            assert snapshot.num_rows == count_rows(table)
        metadata = table.metadata()
        assert dict(snapshot.metadata.configuration) == metadata.configuration
        assert (snapshot.metadata.id, snapshot.metadata.name) == (metadata.id, metadata.name)
        assert snapshot.metadata.description == metadata.description
        assert snapshot.metadata.partition_columns == tuple(metadata.partition_columns)
        assert snapshot.protocol.min_reader_version == table.protocol().min_reader_version
    theirs, ours = DeltaTable(ref.uri).history(), lake.history(ref)
    assert [commit.version for commit in ours] == [entry["version"] for entry in theirs]
    for commit, entry in zip(ours, theirs, strict=True):
        assert commit.operation == entry.get("operation")
        reported = commit.reported_at or commit.committed_at  # deltalake goes by the writer's clock
        assert reported.timestamp() == pytest.approx(entry["timestamp"] / 1000)
        assert dict(commit.raw_metrics) == entry.get("operationMetrics", {})
        assert dict(commit.parameters) == entry.get("operationParameters", {})
    timeline = lake.timeline(ref)
    assert timeline.first_version == 0
    for totals in timeline.totals:
        snapshot = lake.snapshot(ref, totals.version)
        sizes = (snapshot.num_files, snapshot.size_bytes, snapshot.num_rows)
        assert (totals.num_files, totals.size_bytes, totals.num_rows) == sizes


def rows_of(table: DeltaTable, columns: list[str] | None = None) -> pa.Table:
    return pa.RecordBatchReader.from_stream(table.scan(columns=columns)).read_all()


def count_rows(table: DeltaTable) -> int:
    return rows_of(table, [table.schema().fields[0].name]).num_rows


def test_medallion_tables_agree_and_stay_as_they_are(root, lake):
    medallion_lake(root)
    before = folder_bytes(root)
    refs = lake.tables()
    assert [(ref.name, ref.layer) for ref in refs] == [
        ("bronze/orders_raw", "bronze"),
        ("gold/orders_by_status", "gold"),
        ("silver/orders", "silver"),
    ]
    for ref in refs:
        assert_agrees(lake, ref)
        lake.card(ref)
        first_rows(lake, ref, limit=3)
    changes = lake.changes(lake.find("orders"), 1, 3).read_all().to_pylist()
    assert sorted((c["_commit_version"], c["_change_type"], c["order_id"], c["status"]) for c in changes) == [
        (2, "update_postimage", 2, "paid"),
        (2, "update_preimage", 2, "new"),
        (3, "delete", 1, "new"),
    ]
    assert folder_bytes(root) == before


def by_merge(path: Path) -> None:
    source = pa.table({"id": [2, 9], "v": ["new", "new"]})
    merge = DeltaTable(str(path)).merge(source, "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    DeltaTable(str(path)).merge(
        source, "t.id = s.id", source_alias="s", target_alias="t"
    ).when_matched_delete().execute()


def by_z_order_and_vacuum(path: Path) -> None:
    DeltaTable(str(path)).optimize.z_order(["id"])
    DeltaTable(str(path)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def by_restore(path: Path) -> None:
    DeltaTable(str(path)).delete("id = 1")
    DeltaTable(str(path)).restore(0)


def by_alters(path: Path) -> None:
    alter = DeltaTable(str(path)).alter
    alter.add_constraint({"positive": "id > 0"})
    alter.set_table_properties({"delta.logRetentionDuration": "interval 3 days"})
    alter.add_columns([Field("more", PrimitiveType("double"), nullable=True)])
    alter.set_table_name("orders")
    alter.set_table_description("of the day")


def by_features(path: Path) -> None:
    wanted = [TableFeatures.AppendOnly, TableFeatures.DeletionVectors, TableFeatures.TimestampWithoutTimezone]
    DeltaTable(str(path)).alter.add_feature(wanted, allow_protocol_versions_increase=True)
    write(path, {"id": [7], "v": ["z"]})


def by_another_schema(path: Path) -> None:
    write(path, {"id": [7], "w": [1.5]}, schema_mode="merge")
    write(path, {"k": ["a", "b"]}, mode="overwrite", schema_mode="overwrite")


def by_replaced_part(path: Path) -> None:
    write(path, {"id": [1], "v": ["again"]}, mode="overwrite", predicate="id = 1")


def by_transaction(path: Path) -> None:
    stamp = CommitProperties(custom_metadata={"job": "nightly"}, app_transactions=[Transaction("loader", 4)])
    write(path, {"id": [8], "v": ["t"]}, commit_properties=stamp)


def by_compacted_log(path: Path) -> None:
    for number in range(5, 8):
        write(path, {"id": [number], "v": ["l"]})
    DeltaTable(str(path)).delete("id = 6")
    DeltaTable(str(path)).compact_logs(1, 3)
    assert list(path.glob("_delta_log/*.compacted.json"))


def by_v2_checkpoint(path: Path) -> None:
    DeltaTable(str(path)).alter.add_feature(TableFeatures.V2Checkpoint, allow_protocol_versions_increase=True)
    DeltaTable(str(path)).alter.set_table_properties({"delta.checkpointPolicy": "v2"})
    DeltaTable(str(path)).create_checkpoint()
    write(path, {"id": [8], "v": ["t"]})


def by_lost_files(path: Path) -> None:
    next(path.glob("*.parquet")).unlink()
    DeltaTable(str(path)).repair()


LOSE_FILES = [by_z_order_and_vacuum, by_lost_files]  # rows of old versions cannot be counted once their files are gone
CHANGES = [by_merge, by_restore, by_alters, by_features, by_another_schema, by_replaced_part, by_transaction]
CHANGES += [by_compacted_log, by_v2_checkpoint, *LOSE_FILES]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__.removeprefix("by_"))
def test_tables_changed_by_each_feature_of_deltalake_agree(root, lake, change):
    write(root / "t", {"id": [1, 2], "v": ["a", "b"]})
    write(root / "t", {"id": [3], "v": ["c"]})
    change(root / "t")
    ref = lake.find("t")
    assert_agrees(lake, ref, rows=change not in LOSE_FILES)
    snapshot = lake.snapshot(ref)
    assert snapshot.num_rows == count_rows(DeltaTable(ref.uri))
    if change is by_transaction:
        assert snapshot.transactions == {"loader": DeltaTable(ref.uri).transaction_version("loader")} == {"loader": 4}


def test_partitions_of_every_type_agree_with_a_recount(root, lake):
    moments = [datetime(2026, 1, 1, 10, 0, 0, 123456), datetime(1900, 1, 1), None]
    columns = {
        "id": [1, 2, 3],
        "b": [True, False, None],
        "i": pa.array([1, -2, None], pa.int32()),
        "f": pa.array([1.5, float("inf"), None], pa.float32()),
        "m": pa.array([Decimal("1.250"), Decimal("700.000"), None], pa.decimal128(20, 3)),
        "d": pa.array([date(2026, 1, 1), date(1969, 12, 31), None]),
        "t": pa.array(moments, pa.timestamp("us", "UTC")),
        "s": ["a b/c=d%", "", None],
    }
    keys = list(columns)[1:]
    write(root / "t", columns, partition_by=keys)
    ref = lake.find("t")
    assert_agrees(lake, ref)
    sizes = pa.table(DeltaTable(ref.uri).get_add_actions())["size_bytes"].to_pylist()
    parts = {part.partition: part for part in partition_files(lake.snapshot(ref), 1)}
    assert sorted((part.num_files, part.size_bytes, part.num_rows) for part in parts.values()) == sorted(
        (1, size, 1) for size in sizes
    )
    assert len(parts) == 3 and "/".join(f"{key}=__HIVE_DEFAULT_PARTITION__" for key in keys) in parts


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared tables are not beside the repository")
def test_real_tables_of_others_agree_and_stay_as_they_are(open_lake):
    before = folder_bytes(SHARED)
    lake = open_lake(SHARED)
    assert {ref.name for ref in lake.tables()} == {"covid_nyt", "cdf_table"}
    for ref in lake.tables():
        assert_agrees(lake, ref)
        first_rows(lake, ref, limit=10)
    assert lake.card(lake.find("covid_nyt")).num_rows == 1_111_930
    feed = lake.find("cdf_table")
    assert lake.cdf_support(feed, 0, 3).covered
    assert lake.changes(feed, 0, 3).read_all().num_rows == 13
    assert folder_bytes(SHARED) == before
