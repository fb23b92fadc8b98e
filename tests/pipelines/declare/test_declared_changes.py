"""A declaration that changed reaches a table that is there, as far as it may; Spark's defaults reach new ones."""

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from backend.lake.files.clustering import declared_clustering
from backend.lake.lake import Lake
from backend.lake.model import Snapshot
from pipelines import expect, table, upsert
from tests.worlds.lake import builders
from tests.worlds.spark.declared import lake_of
from tests.worlds.spark.lakes import DemoLake

pytestmark = pytest.mark.spark

FEED = "delta.enableChangeDataFeed"
DEFAULT = "spark.databricks.delta.properties.defaults"


def declared(home: Path, **about: object) -> DemoLake:
    """The same stream, declared anew."""
    return lake_of(home, table(str(home / "theirs/orders")), name="silver_orders", **about)


def present(lake: DemoLake, name: str = "silver/silver_orders") -> Snapshot:
    reader = Lake(lake.settings)
    return reader.snapshot(reader.find(lake.uri(name)))


def test_what_adds_is_set_at_the_next_start_and_the_rest_waits_for_a_word(spark: SparkSession, tmp_path: Path) -> None:
    orders = builders.write(tmp_path / "theirs/orders", {"id": [1], "day": ["a"]})
    declared(tmp_path, comment="Orders").process("silver_orders")
    comment = "It's \\ the \"shop's\"\nnew words; ü"
    said = {"delta.logRetentionDuration": "interval 60 days", "delta.deletedFileRetentionDuration": "interval 1 hour"}
    about = {"comment": comment, "owner": "sales", "table_properties": {**said, FEED: "true"}, "cluster_by": ["day"]}
    changed = declared(tmp_path, **about)
    changed.process("silver_orders")
    seen = present(changed)
    assert seen.metadata.description == comment
    assert seen.metadata.configuration == {
        "catalog.team_name": "sales",
        "delta.logRetentionDuration": "interval 60 days",
    }
    assert declared_clustering(seen) == ()
    operations = [each["operation"] for each in changed.history("silver/silver_orders")]
    assert operations.count("SET TBLPROPERTIES") == 1
    assert DeltaTable(changed.uri("silver/silver_orders")).metadata().description == comment

    word = {"table_changes": f"{FEED}, cluster_by"}
    changed.process("silver_orders", overrides=word)
    builders.write(orders, {"id": [2], "day": ["b"]})
    changed.process("silver_orders", overrides=word)
    seen = present(changed)
    assert seen.metadata.configuration[FEED] == "true"
    assert "delta.deletedFileRetentionDuration" not in seen.metadata.configuration, "nobody gave a word for this one"
    assert declared_clustering(seen) == ("day",)
    operations = [each["operation"] for each in changed.history("silver/silver_orders")]
    assert (operations.count("SET TBLPROPERTIES"), operations.count("CLUSTER BY")) == (2, 1)
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", seen.version)
    assert [row["id"] for row in feed.load(changed.uri("silver/silver_orders")).collect()] == [2]

    again = declared(tmp_path, **{**about, "cluster_by": ["id", "day"]})
    again.process("silver_orders")
    assert declared_clustering(present(again)) == ("id", "day"), "the table knows clustering: it can be taken back"


@pytest.mark.ci
def test_tables_beside_a_streams_own_are_looked_at_as_well(spark: SparkSession, tmp_path: Path) -> None:
    builders.write(tmp_path / "theirs/orders", {"id": [1, -2], "lsn": [1, 2]})
    sink = upsert(keys=["id"], sequence="lsn", deleted="false")
    rules = [expect("positive", "id > 0", on_violation="quarantine")]
    declared(tmp_path, sink=sink, expectations=rules).process("silver_orders")
    owned = declared(tmp_path, sink=sink, expectations=rules, owner="sales")
    owned.process("silver_orders")
    for name in ("silver_orders", "silver_orders_tombstones", "silver_orders_quarantine"):
        assert present(owned, f"silver/{name}").metadata.configuration["catalog.team_name"] == "sales", name
    before = owned.versions("silver/silver_orders_quarantine")
    owned.process("silver_orders")
    assert owned.versions("silver/silver_orders_quarantine") == before, "nothing differs any more"


@pytest.mark.ci
def test_sparks_defaults_of_a_stream_reach_the_tables_that_it_makes(spark: SparkSession, tmp_path: Path) -> None:
    builders.write(tmp_path / "theirs/orders", {"id": [1, -2]})
    rules = [expect("positive", "id > 0", on_violation="quarantine")]
    conf = {f"{DEFAULT}.enableChangeDataFeed": "true", f"{DEFAULT}.logRetentionDuration": "interval 60 days"}
    lake = declared(tmp_path, expectations=rules, spark_conf=conf)
    lake.process("silver_orders")
    for name in ("silver_orders", "silver_orders_quarantine"):
        configuration = present(lake, f"silver/{name}").metadata.configuration
        assert configuration == {FEED: "true", "delta.logRetentionDuration": "interval 60 days"}, name
    plain = lake_of(tmp_path, table(str(tmp_path / "theirs/orders")), name="silver_plain")
    plain.process("silver_plain")
    assert present(plain, "silver/silver_plain").metadata.configuration == {}
