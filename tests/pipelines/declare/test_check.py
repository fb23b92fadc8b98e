"""What the analysis of declared functions finds without a row read, and what a changed declaration does to a table."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructField, StructType

from backend.lake.files.clustering import declared_clustering
from backend.lake.lake import Lake
from backend.lake.model import Snapshot
from backend.settings import load_settings
from pipelines import (
    Pipeline,
    append,
    complete,
    expect,
    files,
    fresh,
    into,
    kafka,
    rate,
    references,
    secret,
    table,
    unique,
    update,
    upsert,
)
from pipelines.declare.check import columns_problems
from pipelines.spark.tables import Analysis, SchemaMismatchError, create_table, fit_table
from pipelines.specs.tables import Evolution, TableSpec, parse_schema
from tests.worlds.lake import builders
from tests.worlds.spark.declared import lake_of, pipeline_of, registry_of
from tests.worlds.spark.lakes import DemoLake

pytestmark = pytest.mark.spark

ORDER = "order_id STRING, op STRING, amount DOUBLE, lsn BIGINT"


@pytest.fixture
def shop() -> Pipeline:
    """Bronze orders of files in a folder that is not there."""
    return pipeline_of(files("/no/such/folder", format="json", schema=ORDER))


def analysis(pipeline: Pipeline, spark: SparkSession, home: Path) -> Analysis:
    return Analysis(registry_of(pipeline), spark, load_settings(home=home)).run()


def messages(found: Analysis) -> list[str]:
    return [f"{problem.name}: {problem.message}" for problem in found.problems]


@pytest.mark.soak
def test_other_keys_on_rows_that_are_there_are_refused_until_they_are_gone(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 1, "region": "eu", "v": 1, "op": "c"}')
    source = files("in", format="json", schema="id BIGINT, region STRING, v BIGINT, op STRING")

    def by(*keys: str) -> dict[str, Any]:
        sink = upsert(keys=keys, sequence="v", deleted="op = 'd'", except_columns=["op"])
        return {"function": lambda rows: rows.select("id", "region", "v", "op"), "name": "silver_orders", "sink": sink}

    def problems(*keys: str) -> list[tuple[str, str]]:
        found = analysis(pipeline_of(source, **by(*keys)), spark, tmp_path).problems
        return [(problem.message, problem.hint) for problem in found]

    lake_of(tmp_path, source, **by("id")).process("silver_orders")
    assert problems("id") == []
    message = "silver_orders is keyed by id, but declared with region, id"
    hint = "keep those keys, or start over: weir reset silver_orders --level full"
    assert problems("region", "id") == [(message, hint)]
    lake = lake_of(tmp_path, source, **by("region", "id"))
    with pytest.raises(SchemaMismatchError, match=message):
        lake.runtime.start("silver_orders")

    for name in ("silver_orders", "silver_orders_tombstones"):  # as a full reset does
        DeltaTable.forPath(spark, lake.uri(f"silver/{name}")).delete()
    shutil.rmtree(tmp_path / "checkpoints")
    assert problems("region", "id") == []
    lake.process("silver_orders")
    assert [(row.region, row.id) for row in lake.rows("silver/silver_orders")] == [("eu", 1)]
    ((message, _),) = problems("id")
    assert message == "silver_orders is keyed by region, id, but declared with id"


def test_columns_of_every_table_are_known_and_nothing_is_made(
    spark: SparkSession, shop: Pipeline, tmp_path: Path
) -> None:
    deletes = upsert(keys=["order_id"], sequence="lsn", deleted="op = 'd'", except_columns=["op"])
    rules = [expect("priced", "amount > 0", on_violation="quarantine")]
    shop.streaming_table("silver_orders", source=table("bronze_orders"), sink=deletes, expectations=rules)(
        lambda rows: rows.select("order_id", "op", "amount", "lsn")
    )
    shop.temporary_view("paid", source=table("silver_orders"))(lambda rows: rows.where("amount > 5"))
    shop.materialized_view("gold_orders")(lambda paid: paid.groupBy().count())
    shop.streaming_table("gold_feed", source=table("silver_orders").changes(), sink=complete())(
        lambda changes: changes.groupBy("_change_type", "_commit_version").count()
    )

    found = analysis(shop, spark, tmp_path)

    assert messages(found) == []
    columns = {name: ",".join(schema.names) for name, schema in found.schemas.items()}
    assert columns == {
        "bronze_orders": "order_id,op,amount,lsn,_rescued_data,file_name,file_size_bytes,file_modified_at",
        "silver_orders": "order_id,amount,lsn",
        "silver_orders_tombstones": "order_id,lsn",
        "silver_orders_quarantine": "order_id,op,amount,lsn,broken_expectations,stream,batch_id,quarantined_at",
        "gold_orders": "count",
        "gold_feed": "_change_type,_commit_version,count",
    }
    assert list(tmp_path.iterdir()) == []


@pytest.mark.ci
def test_a_check_asks_for_no_secret(spark: SparkSession, tmp_path: Path) -> None:
    login = secret("env:WEIR_TEST_NOT_SET")
    source = kafka("b:9", "t", format="avro", schema="id INT", registry="http://r", registry_login=login)
    assert messages(analysis(pipeline_of(source), spark, tmp_path)) == []


def test_every_stream_that_cannot_work_is_told_at_its_own_place_and_its_readers_are_left_out(
    spark: SparkSession, shop: Pipeline, tmp_path: Path
) -> None:
    reads, changes = table("bronze_orders"), table("bronze_orders").changes()
    bad = [expect("priced", "amount > 0", on_violation="quarantine")]
    feed = {"delta.enableChangeDataFeed": "true"}
    by_version = upsert(keys=["order_id"], sequence="_commit_version")
    renamed = upsert(keys=["order_id"], sequence="source_commit_version")

    def declare(name: str, columns: str = "*", source: Any = reads, **about: Any) -> None:
        shop.streaming_table(name, source=source, **about)(lambda rows: rows.selectExpr(*columns.split(", ")))

    declare("silver_column", "colour")
    declare("gold_of_it", source=table("silver_column"))
    declare("silver_rule", expectations=[expect("sane", "amont > 0")])
    declare("silver_syntax", expectations=[expect("sane", "amount >")])
    declare("silver_key", sink=update(keys=["nr"]))
    declare("silver_plain", sink=update(keys=["order_id"]))
    declare("silver_unknown", table_properties={"delta.apendOnly": "true"})
    declare("silver_tag", table_properties={"detla.appendOnly": "true"})
    declare("silver_month", table_properties={"delta.logRetentionDuration": "interval 1 month"})
    declare("silver_feature", table_properties={"delta.feature.banana": "supported"})
    declare("silver_bool", table_properties={"delta.appendOnly": True})
    declare("silver_fine", table_properties={"delta.appendonly": "true", "team": "me"})
    declare("silver_foreign", table_properties={"delta.targetFileSize": "1mb"})
    declare("bronze_azure", source=files("abfss://in@me/orders", format="json", schema="id STRING"))
    declare("gold_google", location="gs://shop/orders")
    declare("silver_schema", schema="order_id STRING, price DOUBLE")
    declare("silver_type", schema="order_id STRNG")
    declare("silver_added", "order_id, amount, lsn AS batch_id", expectations=bad)
    declare("bronze_added", source=files("/no/such", format="json", schema="id STRING, file_name STRING"))
    declare("silver_feed", "order_id, _commit_version", changes, sink=by_version, table_properties=feed)
    declare("silver_no_feed", "order_id, _commit_version", changes, sink=by_version)
    aside = "order_id, _commit_version AS source_commit_version"
    declare("silver_aside", aside, changes, sink=renamed, table_properties=feed)
    declare("silver_where", also=[into("silver_odd", append(), where="nothing > 1")])
    declare("silver_also", also=[into("silver_keyed", upsert(keys=["key"], sequence="lsn"))])
    shop.temporary_view("paid", source=reads)(lambda rows: rows.where("amont > 0"))
    shop.temporary_view("dear", source=table("paid"))(lambda rows: rows.where("amount > 5"))
    declare("silver_paid", source=table("paid"))
    declare("silver_dear", source=table("dear"))
    for evolution in ("fail", "add columns", "widen types"):
        name = f"silver_{evolution.replace(' ', '_')}"
        declare(name, "value, CAST(value AS STRING) AS text", rate(), evolution=evolution)
        uri = str(tmp_path / "lake/silver" / name)
        create_table(spark, shop.streams[-1].table, parse_schema(spark, "value INT"), uri)

    found = analysis(shop, spark, tmp_path)
    complaints = {
        "silver_column": "UNRESOLVED_COLUMN",
        "silver_rule": "amont",
        "silver_syntax": "PARSE_SYNTAX_ERROR",
        "silver_key": "upsert: the function returns no nr",
        "silver_plain": "update: its rows are no aggregate, so a key may come twice",
        "silver_unknown": "delta.apendOnly is no property of Delta",
        "silver_tag": "detla.appendOnly is no property of Delta",
        "silver_month": "Months and years are not accepted",
        "silver_feature": "banana",
        "silver_foreign": "delta.targetFileSize",
        "silver_bool": "the property delta.appendOnly is no text",
        "bronze_azure": "Spark has no file system for abfss://",
        "gold_google": "Spark has no file system for gs://",
        "silver_schema": "schema of silver_schema has price, which the function does not return",
        "silver_type": "STRNG",
        "silver_added": "the function returns batch_id",
        "bronze_added": "files: file_name in files of /no/such",
        "silver_feed": "silver_feed has a change feed, whose own columns are _commit_version",
        "silver_where": "nothing",
        "silver_also": "the function returns no key",
        "paid": "amont",
        "silver_fail": "rows do not fit silver_fail: ~ value: int → bigint; + text string",
        "silver_add_columns": "rows do not fit silver_add_columns: ~ value: int → bigint",
    }
    problems = {problem.name: problem for problem in found.problems}
    assert len(found.problems) == len(problems)
    assert problems.keys() == complaints.keys()
    assert [name for name, complaint in complaints.items() if complaint not in problems[name].message] == []
    assert "withColumnRenamed('_commit_version', 'source_commit_version')" in problems["silver_feed"].hint
    assert {"silver_no_feed", "silver_aside", "silver_widen_types"} <= found.schemas.keys()
    assert not {"gold_of_it", "silver_paid", "silver_dear"} & found.schemas.keys()
    with pytest.raises(Py4JJavaError, match="_commit_version"):  # as Delta itself would refuse it
        spec = next(stream for stream in shop.streams if stream.name == "silver_feed")
        create_table(spark, spec.table, parse_schema(spark, "order_id STRING, _commit_version BIGINT"), f"{tmp_path}/t")


def test_names_within_a_type_are_names_and_never_sql(spark: SparkSession, tmp_path: Path) -> None:
    uri, properties = str(tmp_path / "grown"), {"delta.columnMapping.mode": "name"}
    grown = TableSpec("grown", "silver", properties=properties, evolution=Evolution.ADD)
    create_table(spark, grown, parse_schema(spark, "id INT"), uri)
    names = ("a b", "x: int>, evil int) --", "tick`s", "a.b", "COMMENT 'c'")
    nested = StructType([StructField(name, IntegerType()) for name in names])
    kinds = {"all; DROP": nested, "many`": ArrayType(nested), "by": MapType(StringType(), nested)}
    rows = StructType([StructField("id", IntegerType()), *(StructField(name, kind) for name, kind in kinds.items())])
    fit_table(spark, grown, rows, uri)
    assert spark.read.format("delta").load(uri).schema == rows


def test_columns_of_expectations_are_looked_for_in_declared_tables_and_in_those_of_others(
    spark: SparkSession, shop: Pipeline, tmp_path: Path
) -> None:
    theirs = str(builders.write(tmp_path / "lake" / "customers", {"id": [1], "Name": ["a"]}))
    shop.expect_table("bronze_orders", unique("ORDER_ID"), unique("order_id", "nr"))
    shop.expect_table(theirs, fresh("1 day"), unique("name"), references("order", "bronze_orders.orderid"))
    shop.expect_table(str(tmp_path / "lake" / "none"), fresh("1 day"))
    schemas = analysis(shop, spark, tmp_path).schemas
    found = columns_problems(registry_of(shop), schemas, load_settings(home=tmp_path))
    assert [f"{problem.name}: {problem.message}" for problem in found] == [
        "bronze_orders: bronze_orders has no column nr",
        f"{theirs}: {theirs} has no column order",
        f"{theirs}: bronze_orders has no column orderid",
        f"{tmp_path}/lake/none: {tmp_path}/lake/none is not a Delta table",
    ]


FEED = "delta.enableChangeDataFeed"
DEFAULT = "spark.databricks.delta.properties.defaults"


def declared(home: Path, **about: object) -> DemoLake:
    """The same stream, declared anew."""
    return lake_of(home, table(str(home / "theirs/orders")), name="silver_orders", **about)


def present(lake: DemoLake, name: str = "silver/silver_orders") -> Snapshot:
    reader = Lake(lake.settings)
    return reader.snapshot(reader.find(lake.uri(name)))


@pytest.mark.ci
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


@pytest.mark.soak
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


@pytest.mark.soak
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
