"""What the analysis of declared functions finds, without a row read: columns, constraints, tables that do not fit."""

import shutil
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructField, StructType

from backend.settings import load_settings
from pipelines import (
    Pipeline,
    complete,
    expect,
    files,
    fresh,
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
from pipelines.spark.analysis import Analysis
from pipelines.spark.tables import SchemaMismatchError, create_table, fit_table
from pipelines.specs.tables import Evolution, TableSpec, parse_schema
from tests.worlds.lake import builders
from tests.worlds.spark.declared import pipeline_of, registry_of, same
from tests.worlds.spark.lakes import open_lake

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


def test_other_keys_on_rows_that_are_there_are_refused_until_they_are_gone(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 1, "region": "eu", "v": 1, "op": "c"}')
    source = files("in", format="json", schema="id BIGINT, region STRING, v BIGINT, op STRING")

    def declared(*keys: str) -> Pipeline:
        sink = upsert(keys=keys, sequence="v", deleted="op = 'd'", except_columns=["op"])
        about = {"name": "silver_orders", "sink": sink, "trigger": "available now"}
        return pipeline_of(source, lambda rows: rows.select("id", "region", "v", "op"), **about)

    lake = open_lake(load_settings(home=tmp_path), *declared("id").streams)
    lake.process("silver_orders")
    assert messages(analysis(declared("id"), spark, tmp_path)) == []
    found = analysis(declared("region", "id"), spark, tmp_path)
    message = "silver_orders holds rows by the keys id, and is declared with region, id"
    assert [(each.message, each.hint) for each in found.problems] == [
        (message, "keep those keys, or start over: weir reset silver_orders --level full")
    ]
    lake = open_lake(load_settings(home=tmp_path), *declared("region", "id").streams)
    with pytest.raises(SchemaMismatchError, match=message):
        lake.runtime.start("silver_orders")

    for name in ("silver_orders", "silver_orders_tombstones"):  # as a full reset does
        DeltaTable.forPath(spark, lake.uri(f"silver/{name}")).delete()
    shutil.rmtree(tmp_path / "checkpoints")
    assert messages(analysis(declared("region", "id"), spark, tmp_path)) == []
    lake.process("silver_orders")
    assert [(row.region, row.id) for row in lake.rows("silver/silver_orders")] == [("eu", 1)]
    assert messages(analysis(declared("id"), spark, tmp_path)) == [
        "silver_orders: silver_orders holds rows by the keys region, id, and is declared with id"
    ]


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


def test_names_that_weir_adds_are_refused_where_they_would_collide(
    spark: SparkSession, shop: Pipeline, tmp_path: Path
) -> None:
    bad = [expect("priced", "amount > 0", on_violation="quarantine")]
    shop.streaming_table("silver_orders", source=table("bronze_orders"), expectations=bad)(
        lambda rows: rows.selectExpr("order_id", "amount", "lsn AS batch_id")
    )
    own = files("/no/such", format="json", schema="id STRING, file_name STRING")
    shop.streaming_table("bronze_names", source=own)(same)
    assert set(messages(analysis(shop, spark, tmp_path))) == {
        "silver_orders: the function returns batch_id",
        "bronze_names: files: file_name in files of /no/such",
    }


def test_a_check_asks_for_no_secret(spark: SparkSession, tmp_path: Path) -> None:
    login = secret("env:WEIR_TEST_NOT_SET")
    source = kafka("b:9", "t", format="avro", schema="id INT", registry="http://r", registry_login=login)
    assert messages(analysis(pipeline_of(source), spark, tmp_path)) == []


def test_every_stream_that_cannot_work_is_told_and_its_readers_are_left_out(
    spark: SparkSession, shop: Pipeline, tmp_path: Path
) -> None:
    reads = table("bronze_orders")
    shop.streaming_table("silver_a", source=reads)(lambda rows: rows.select("colour"))
    shop.streaming_table("silver_b", source=reads, expectations=[expect("sane", "amont > 0")])(same)
    shop.streaming_table("silver_c", source=reads, expectations=[expect("sane", "amount >")])(same)
    shop.streaming_table("silver_d", source=reads, sink=update(keys=["nr"]))(same)
    shop.streaming_table("silver_e", source=reads, schema="order_id STRING, price DOUBLE")(same)
    shop.streaming_table("silver_f", source=reads, schema="order_id STRNG")(same)
    shop.streaming_table("gold_a", source=table("silver_a"))(same)

    found = analysis(shop, spark, tmp_path)

    complaints = dict(each.split(": ", 1) for each in messages(found))
    assert list(complaints) == ["silver_a", "silver_b", "silver_c", "silver_d", "silver_e", "silver_f"]
    assert "UNRESOLVED_COLUMN" in complaints["silver_a"]
    assert "amont" in complaints["silver_b"]
    assert "PARSE_SYNTAX_ERROR" in complaints["silver_c"]
    assert complaints["silver_d"] == "upsert: the function returns no nr"
    assert complaints["silver_e"] == "schema of silver_e has price, which the function does not return"
    assert "STRNG" in complaints["silver_f"]


def test_columns_of_a_change_feed_are_told_before_delta_refuses_them(
    spark: SparkSession, shop: Pipeline, tmp_path: Path
) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    sink, changes = upsert(keys=["order_id"], sequence="_commit_version"), table("bronze_orders").changes()
    shop.streaming_table("silver_a", source=changes, sink=sink, table_properties=feed)(
        lambda rows: rows.select("order_id", "_commit_version")
    )
    shop.streaming_table("silver_b", source=changes, sink=sink)(lambda rows: rows.select("order_id", "_commit_version"))
    renamed = upsert(keys=["order_id"], sequence="source_commit_version")
    shop.streaming_table("silver_c", source=changes, sink=renamed, table_properties=feed)(
        lambda rows: rows.selectExpr("order_id", "_commit_version AS source_commit_version")
    )
    found = analysis(shop, spark, tmp_path)
    assert messages(found) == ["silver_a: silver_a has a change feed, whose own columns are _commit_version"]
    assert "withColumnRenamed('_commit_version', 'source_commit_version')" in found.problems[0].hint
    with pytest.raises(Py4JJavaError, match="_commit_version"):
        spec = next(stream for stream in shop.streams if stream.name == "silver_a")
        create_table(spark, spec.table, parse_schema(spark, "order_id STRING, _commit_version BIGINT"), f"{tmp_path}/t")


def test_a_view_that_cannot_work_is_told_once_at_its_own_place(
    spark: SparkSession, shop: Pipeline, tmp_path: Path
) -> None:
    shop.temporary_view("paid", source=table("bronze_orders"))(lambda rows: rows.where("amont > 0"))
    shop.temporary_view("dear", source=table("paid"))(lambda rows: rows.where("amount > 5"))
    shop.streaming_table("silver_a", source=table("paid"))(same)
    shop.streaming_table("silver_b", source=table("dear"))(same)
    found = analysis(shop, spark, tmp_path)
    assert [problem.name for problem in found.problems] == ["paid"] and "amont" in found.problems[0].message
    assert "silver_a" not in found.schemas and "silver_b" not in found.schemas


def test_rows_that_do_not_fit_the_table_that_is_there_are_shown_as_a_difference(
    spark: SparkSession, shop: Pipeline, tmp_path: Path
) -> None:
    for name in ("silver_fail", "silver_grow", "silver_widen"):
        uri = str(tmp_path / "lake/silver" / name)
        shop.streaming_table(
            name, source=rate(), evolution={"fail": "fail", "grow": "add columns"}.get(name[7:], "widen types")
        )(lambda rows: rows.selectExpr("value", "CAST(value AS STRING) AS text"))
        create_table(spark, shop.streams[-1].table, parse_schema(spark, "value INT"), uri)

    assert messages(analysis(shop, spark, tmp_path)) == [
        "silver_fail: rows do not fit silver_fail: ~ value: int → bigint; + text string",
        "silver_grow: rows do not fit silver_grow: ~ value: int → bigint",
    ]


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
