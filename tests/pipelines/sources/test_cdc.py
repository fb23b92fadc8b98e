"""Debezium's envelopes and nested documents as flat rows, for each database that writes them."""

import base64
import json
from datetime import date, datetime
from decimal import Context, Decimal
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pipelines.declare.cdc import children, debezium, flatten
from pipelines.jvm.failures import SpecError

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


def refusal(rows: DataFrame) -> str:
    """What ends the stream at these rows."""
    with pytest.raises(PySparkException) as raised:
        rows.collect()
    return str(raised.value)


def inserted(spark: SparkSession, *documents: dict[str, Any], types: dict[str, Any] | None = None) -> DataFrame:
    """Envelopes that insert these rows, with a schema beside them where `types` says what columns are."""
    events = [envelope("c", after=after, source={"lsn": place}) for place, after in enumerate(documents, 1)]
    if types is None:
        return texts(spark, *events)
    fields = [{"field": name, **about} for name, about in types.items()]
    schema = {"type": "struct", "fields": [{"field": "before", "fields": fields}, {"field": "after", "fields": fields}]}
    return texts(spark, *({"schema": schema, "payload": event} for event in events))


def in_bytes(number: str, scale: int) -> str:
    """As Debezium's precise mode writes a decimal: base64 of the unscaled number, big-endian, in two's complement."""
    unscaled = int(Decimal(number).scaleb(scale, Context(prec=60)))
    return base64.b64encode(
        unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)
    ).decode()


DECIMALS = [
    "0.00",
    "0.12",
    "-5.00",
    "199.99",
    "-0.01",
    "1.27",
    "1.28",
    "-1.28",
    "-1.29",
    "655.36",
    "99999999.99",
    "-99999999.99",
]
LARGE = ["9" * 38, "-" + "9" * 38, "1" + "0" * 19, "-1" + "0" * 19, str(2**64), str(-(2**64)), str(2**63)]


@pytest.mark.parametrize(("kind", "numbers"), [("DECIMAL(10,2)", DECIMALS), ("DECIMAL(38,0)", LARGE)])
def test_a_decimal_is_the_number_that_the_database_holds(spark: SparkSession, kind: str, numbers: list[str]) -> None:
    scale, expected = (2, 0)[kind == "DECIMAL(38,0)"], [Decimal(number) for number in numbers]
    precise = [{"id": place, "amount": in_bytes(number, scale)} for place, number in enumerate(numbers)]
    variable = [{"id": 1, "amount": {"scale": scale, "value": in_bytes(number, scale)}} for number in numbers]
    named = {
        "amount": {
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": str(scale)},
        }
    }
    as_text = [{"id": 1, "amount": number} for number in numbers]
    schema = f"id BIGINT, amount {kind}"

    def amounts(rows: DataFrame, **modes: Any) -> list[Decimal]:
        return [row.amount for row in debezium(rows, schema, **modes).orderBy("position").collect()]

    assert amounts(inserted(spark, *precise), decimals="precise") == expected
    assert amounts(inserted(spark, *precise, types=named)) == expected
    assert amounts(inserted(spark, *variable)) == expected
    assert amounts(inserted(spark, *as_text), decimals="string") == expected
    assert amounts(inserted(spark, *as_text, types={"amount": {"type": "string"}})) == expected


def test_a_text_that_may_be_two_numbers_is_neither(spark: SparkSession) -> None:
    schema = "id BIGINT, amount DECIMAL(10,2)"
    rows = inserted(spark, {"id": 1, "amount": "1234"})  # 1234, or the bytes of -2658824 hundredths
    assert "amount decimal(10,2) (say decimals=…?)" in refusal(debezium(rows, schema))
    assert debezium(rows, schema, decimals="string").first().amount == 1234
    assert debezium(rows, schema, decimals="precise").first().amount == Decimal("-26588.24")
    clear = inserted(
        spark, {"id": 1, "amount": in_bytes("199.99", 2)}, {"id": 2, "amount": "-12.50"}, {"id": 3, "amount": 7.5}
    )
    assert [row.amount for row in debezium(clear, schema).orderBy("id").collect()] == [
        Decimal("199.99"),
        Decimal("-12.50"),
        Decimal("7.5"),
    ]
    assert debezium(rows, schema, misfit="null").first().amount is None


MOMENT = datetime(2023, 11, 14, 22, 13, 20, 123456)
TIMES = {
    "milliseconds": 1_700_000_000_123,
    "microseconds": 1_700_000_000_123_456,
    "nanoseconds": 1_700_000_000_123_456_789,
}
NAMES = {"milliseconds": "Timestamp", "microseconds": "MicroTimestamp", "nanoseconds": "NanoTimestamp"}


@pytest.mark.parametrize("unit", TIMES)
@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ"])
def test_a_moment_has_the_unit_that_is_declared(spark: SparkSession, unit: str, kind: str) -> None:
    schema, row = f"id BIGINT, at {kind}, d DATE", {"id": 1, "at": TIMES[unit], "d": 19_675}
    expected = MOMENT.replace(microsecond=123_000) if unit == "milliseconds" else MOMENT
    types = {
        "at": {"type": "int64", "name": f"io.debezium.time.{NAMES[unit]}"},
        "d": {"type": "int32", "name": "io.debezium.time.Date"},
    }
    declared = [
        debezium(inserted(spark, row), schema, times=unit),
        debezium(inserted(spark, row), schema, times={"at": unit}),
        debezium(inserted(spark, row, types=types), schema),
    ]
    for rows in declared:
        found = rows.selectExpr("CAST(at AS STRING) AS at", "CAST(d AS STRING) AS d").first()
        assert (
            tuple(found) == (expected.isoformat(" "), "2023-11-14")
            if expected.microsecond % 1_000
            else (expected.isoformat(" ")[:-3], "2023-11-14")
        )
    assert f"at {kind.lower()} (say times=…?)" in refusal(debezium(inserted(spark, row), schema))


def test_moments_may_be_text(spark: SparkSession) -> None:
    rows = inserted(
        spark, {"id": 1, "at": "2023-11-14T22:13:20.123456Z", "d": "2023-11-14"}, {"id": 2, "at": None, "d": -1}
    )
    found = debezium(rows, "id BIGINT, at TIMESTAMP, d DATE").orderBy("id").collect()
    assert [(row.at and row.at.timestamp(), str(row.d)) for row in found] == [
        (1_700_000_000.123456, "2023-11-14"),
        (None, "1969-12-31"),
    ]


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        ("INT", 3_000_000_000), ("INT", "x"), ("INT", 1.5), ("TINYINT", 200), ("BOOLEAN", 2), ("BOOLEAN", "yes"),
        ("FLOAT", 1e300), ("DECIMAL(4,2)", 1234.5), ("BINARY", "?"), ("DATE", "12:00"), ("DATE", 1.5),
        ("TIMESTAMP", "12:00"), ("TIMESTAMP", "2023"), ("ARRAY<INT>", [1, "x"]), ("ARRAY<INT>", {"a": 1}),
        ("STRUCT<a: INT>", {"a": "x"}), ("STRUCT<a: INT>", 5), ("MAP<STRING, DATE>", {"a": "b"}),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_not_null(spark: SparkSession, kind: str, sent: object) -> None:
    rows = inserted(spark, {"id": 7, "v": sent}).selectExpr(
        "value", "'orders' AS topic", "3 AS partition", "42L AS offset"
    )
    message = refusal(debezium(rows, f"id BIGINT, v {kind}"))
    assert "record 42 of partition 3 of topic orders cannot be taken: does not fit the schema: v " in message
    kept = debezium(rows, f"id BIGINT, v {kind}", misfit="null").first()
    assert (kept.id, kept.v if kind[:6] not in ("ARRAY<", "STRUCT", "MAP<ST") else None) == (7, None)


@pytest.mark.parametrize(
    ("kind", "sent", "expected"),
    [
        ("BOOLEAN", 1, True), ("BIGINT", "5", 5), ("DOUBLE", "NaN", "nan"), ("BINARY", "3q0=", b"\xde\xad"),
        ("STRING", 1, "1"), ("STRING", {"a": 1}, '{"a":1}'), ("ARRAY<STRING>", ["a", None], ["a", None]),
        ("STRUCT<a: INT>", '{"a": 1}', (1,)), ("MAP<STRING, INT>", {"a": 1}, {"a": 1}), ("INT", None, None),
        ("ARRAY<DATE>", [0], [date(1970, 1, 1)]),
    ],
)  # fmt: skip
def test_what_fits_is_a_value(spark: SparkSession, kind: str, sent: object, expected: object) -> None:
    value = debezium(inserted(spark, {"id": 7, "v": sent}), f"id BIGINT, v {kind}").first().v
    assert (str(value) if expected == "nan" else value) == expected


NO_CHANGES: list[object] = [
    None,
    {"schema": None, "payload": None},
    {"ts_ms": 1},
    {"ts_ms": 1, "ts_us": 2, "ts_ns": 3},
    {"status": "BEGIN", "id": "571:53195829", "ts_ms": 1, "event_count": None, "data_collections": None},
    {"status": "END", "id": "571:53195832", "ts_ms": 1, "event_count": 2, "data_collections": []},
    {"op": "m", "ts_ms": 1, "source": {"lsn": 5}, "message": {"prefix": "p", "content": "YWJj"}},
    {
        "source": {"file": "binlog.000002", "pos": 4},
        "ts_ms": 1,
        "databaseName": "shop",
        "ddl": "CREATE TABLE t (id INT)",
    },
]


def test_records_that_are_no_changes_by_their_kind_are_left_out(spark: SparkSession) -> None:
    rows = texts(spark, *NO_CHANGES, envelope("c", after=row("placed"), source={"lsn": 9}))
    assert [(each.op, each.status) for each in debezium(rows, ORDER).collect()] == [("c", "placed")]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"id": 1, "status": "unwrapped"}', "no envelope of Debezium"),
        ("{", "not JSON"),
        ('{"op": "c"} {"op": "c"}', "not JSON, or more than one value"),
        ('{"op": "c"}},"end":1', "not JSON, or more than one value"),
        ("[1]", "no envelope"),
        ('{"op": "x", "source": {"lsn": 1}}', "not known: op x"),
        ('{"op": "c", "after": {"id": 1}, "source": {}}', "no place in the log"),
        ('{"op": "c", "after": null, "source": {"lsn": 1}}', "it has no row"),
    ],
)
def test_what_is_no_change_is_named(spark: SparkSession, text: str, why: str) -> None:
    rows = spark.createDataFrame([(text, "a.json")], "value STRING, file_name STRING")
    message = refusal(debezium(rows, ORDER))
    assert f"a record of a.json cannot be taken: {why}" in message


def test_columns_of_the_rows_own_may_have_any_name(spark: SparkSession) -> None:
    schema = "id BIGINT, Position INT, op STRING"
    rows = inserted(spark, {"id": 1, "Position": 3, "op": "sale"})
    with pytest.raises(SpecError, match="the row has Position, op") as refused:
        debezium(rows, schema)
    assert 'prefix="cdc_"' in refused.value.hint
    found = debezium(rows, schema, prefix="cdc_").first()
    assert (found.Position, found.op, found.cdc_op, found.cdc_position) == (3, "sale", "c", f"{1:020}")


ITEM = "`_id` STRING, qty BIGINT, price DECIMAL(10,2), at TIMESTAMP, raw BINARY, place STRUCT<zip: INT, since: DATE>"


def test_mongodb_extended_json_is_values(spark: SparkSession) -> None:
    document = {
        "_id": {"$oid": "65a1"},
        "qty": {"$numberLong": "5"},
        "price": {"$numberDecimal": "1.50"},
        "at": {"$date": 1_700_000_000_123},
        "raw": {"$binary": {"base64": "3q0=", "subType": "00"}},
        "place": {"zip": {"$numberInt": "3000"}, "since": {"$date": "2023-11-14T00:00:00Z"}},
    }
    dates = {"at": {"$date": {"$numberLong": "1700000000123"}}, "raw": {"$binary": "3q0=", "$type": "00"}}
    changes = [{**document}, {**document, **dates}]
    source = [{"ts_ms": TS, "ord": place} for place in (1, 2)]
    rows = texts(
        spark, *(envelope("c", after=json.dumps(each), source=at) for each, at in zip(changes, source, strict=True))
    )
    found = debezium(rows, ITEM, flavour="mongodb").collect()
    for each in found:
        assert (each["_id"], each.qty, each.price, bytes(each.raw)) == ("65a1", 5, Decimal("1.50"), b"\xde\xad")
        assert each.at.timestamp() == 1_700_000_000.123 and tuple(each.place) == (3000, date(2023, 11, 14))
    odd = texts(spark, envelope("c", after=json.dumps({**document, "qty": {"$numberLong": "x"}}), source=source[0]))
    assert "does not fit the schema: qty bigint" in refusal(debezium(odd, ITEM, flavour="mongodb"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"flavour": "oracle"},
        {"misfit": "drop"},
        {"decimals": "double"},
        {"times": "seconds"},
        {"times": {"at": "microseconds"}},
    ],
)
def test_words_that_are_not_known_are_refused(spark: SparkSession, wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="is not known"):
        debezium(inserted(spark, row("placed")), ORDER, **wrong)


def test_what_a_change_leaves_alone_keeps_its_place_when_it_is_flattened(spark: SparkSession) -> None:
    update = {"updatedFields": json.dumps({"id": 1, "place.city": "Wien"})}
    rows = texts(spark, envelope("u", updateDescription=update, source={"ts_ms": TS, "ord": 1}))
    schema = "id BIGINT, name STRING, place STRUCT<city: STRING, zip: STRING>, seat STRUCT<row: INT>"
    changes = debezium(rows, schema, flavour="mongodb")
    assert changes.first()["_weir_change"].unchanged == ["`name`", "`place`.`zip`", "`seat`"]
    flat = flatten(changes).first()
    assert flat["_weir_change"].unchanged == ["`name`", "`place_zip`", "`seat_row`"]
    assert (flat.id, flat.place_city, flat.place_zip) == (1, "Wien", None)


def placed(file: str, pos: int, **more: Any) -> dict[str, Any]:
    return envelope("u", after=row("paid"), source={"file": file, "pos": pos, "row": 0, **more})


@pytest.mark.parametrize(
    ("servers", "places"),
    [
        ((), [("binlog.999999", 9_000, {}), ("binlog.1000000", 4, {})]),
        (
            [[0, 1], 2],
            [("b.000001", 9, {"server_id": 0}), ("b.004711", 4, {"server_id": 1}), ("b.000001", 5, {"server_id": 2})],
        ),
        (
            [["0", "3e11-fa47"], "8a94-f357"],
            [
                ("b.000007", 1, {"server_id": 0}),
                ("b.000009", 900, {"server_id": 1, "gtid": "3e11-fa47:9"}),
                ("b.000001", 100, {"server_id": 1, "gtid": "3e11-fa47:10"}),  # read from a replica
                ("b.000001", 200, {"server_id": 2, "gtid": "8a94-f357:1"}),
            ],
        ),
    ],
)
def test_mysql_positions_sort_as_the_logs_do(spark: SparkSession, servers: Any, places: list[Any]) -> None:
    events = [placed(file, pos, **more) for file, pos, more in places]
    positions = [
        each.position for each in debezium(texts(spark, *events), ORDER, flavour="mysql", servers=servers).collect()
    ]
    assert positions == sorted(set(positions))
    assert min(positions) > "mysql-bin.999999"  # such places were written once


def test_a_server_that_nobody_declared_is_named(spark: SparkSession) -> None:
    rows = debezium(texts(spark, placed("b.000001", 4, server_id=3)), ORDER, flavour="mysql", servers=[1, 2])
    assert '"server_id":"3"' in refusal(rows)
