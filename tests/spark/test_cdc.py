"""Debezium's envelopes and nested documents as flat rows, for each database that writes them."""

import json
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pipelines.declare.cdc import children, debezium, flatten

pytestmark = pytest.mark.spark

ORDER = "id BIGINT, status STRING"
TS = 1_700_000_000_000


def envelope(op: str, *, after: Any = None, before: Any = None, **more: Any) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "ts_ms": TS, **more}


def texts(spark: SparkSession, *events: object) -> DataFrame:
    lines = [(None if each is None else json.dumps(each),) for each in events]
    return spark.createDataFrame(lines, "value STRING")


def row(status: str) -> dict[str, Any]:
    return {"id": 7, "status": status}


def test_postgresql_changes_are_ordered_by_their_log_position(spark: SparkSession) -> None:
    events = [
        envelope("r", after=row("placed"), source={"lsn": 9}),
        {"schema": {"type": "struct"}, "payload": envelope("u", after=row("paid"), source={"lsn": 10_000_000_000})},
        envelope("d", before=row("paid"), source={"lsn": 10_000_000_001}),
        None,  # the tombstone behind a deletion
    ]
    found = debezium(texts(spark, *events), ORDER).collect()
    assert [(each.op, each.id, each.status) for each in found] == [
        ("r", 7, "placed"),
        ("u", 7, "paid"),
        ("d", 7, "paid"),
    ]
    assert [each.position for each in found] == sorted(each.position for each in found)
    assert {each.changed_at.timestamp() for each in found} == {TS / 1000}


def test_mysql_changes_are_ordered_by_file_place_and_row(spark: SparkSession) -> None:
    places = [
        ("binlog.000002", 900, 0),
        ("binlog.000002", 1_000, 0),
        ("binlog.000002", 1_000, 11),
        ("binlog.000010", 4, 0),
    ]
    events = [
        envelope("u", after=row("paid"), source={"file": file, "pos": pos, "row": line}) for file, pos, line in places
    ]
    positions = [each.position for each in debezium(texts(spark, *events), ORDER, flavour="mysql").collect()]
    assert positions == sorted(positions)
    assert len(set(positions)) == len(places)


def test_mongodb_documents_are_text_and_updates_may_be_partial(spark: SparkSession) -> None:
    events = [
        envelope("c", after=json.dumps(row("placed")), source={"ts_ms": TS, "ord": 1}),
        envelope("u", updateDescription={"updatedFields": '{"status": "paid"}'}, source={"ts_ms": TS, "ord": 2}),
    ]
    found = debezium(texts(spark, *events), ORDER, flavour="mongodb").collect()
    assert [(each.op, each.id, each.status) for each in found] == [("c", 7, "placed"), ("u", None, "paid")]
    assert found[0].position < found[1].position


def test_a_truncation_is_not_passed_over(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="the source truncated the table"):
        debezium(texts(spark, envelope("t", source={"lsn": 1})), ORDER).collect()
    found = debezium(texts(spark, envelope("t", source={"lsn": 12})), ORDER, truncations=True).first()
    assert (found.op, found.id, found.position) == ("t", None, f"{12:020}")


def test_bytes_are_read_as_text(spark: SparkSession) -> None:
    raw = json.dumps(envelope("c", after=row("placed"), source={"lsn": 1})).encode()
    rows = spark.createDataFrame([(bytearray(raw),)], "value BINARY")
    assert debezium(rows, ORDER).first().status == "placed"


def test_a_document_is_flattened_and_its_arrays_are_tables_of_their_own(spark: SparkSession) -> None:
    schema = (
        "id BIGINT, address STRUCT<city: STRING, geo: STRUCT<`lat.x`: DOUBLE>>,"
        " lines ARRAY<STRUCT<sku: STRING, price: STRUCT<net: DOUBLE>>>, tags ARRAY<STRING>"
    )
    lines = [{"sku": "a", "price": {"net": 1.0}}, {"sku": "b", "price": {"net": 2.0}}]
    document = {"id": 1, "address": {"city": "Bern", "geo": {"lat.x": 4.5}}, "lines": lines, "tags": ["new"]}
    rows = spark.createDataFrame([document], schema)

    flat = flatten(rows.drop("lines", "tags"))
    assert flat.columns == ["id", "address_city", "address_geo_lat.x"]
    assert tuple(flat.first()) == (1, "Bern", 4.5)
    assert [tuple(each) for each in children(rows, "lines", keys=["id"]).collect()] == [
        (1, 0, "a", 1.0),
        (1, 1, "b", 2.0),
    ]
    assert children(rows, "lines", keys=["id"]).columns == ["id", "position_in_parent", "sku", "price_net"]
    assert [tuple(each) for each in children(rows, "tags", keys=["id"]).collect()] == [(1, 0, "new")]
