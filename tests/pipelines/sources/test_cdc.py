"""Debezium's envelopes and nested documents as flat rows, for each database that writes them; the rest is told.

The cases of a kind are the rows of one stream or one DataFrame, each with a column of its type.
"""

import base64
import json
from collections.abc import Callable, Collection
from datetime import date, datetime
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from backend.settings import load_settings
from pipelines import append, files, history, upsert
from pipelines.declare.cdc import children, debezium, flatten
from pipelines.jvm.failures import SpecError
from pipelines.spark.tables import Analysis
from pipelines.specs.ends import Sink
from tests.worlds.cases import soak
from tests.worlds.spark.declared import lake_of, pipeline_of, registry_of
from tests.worlds.spark.lakes import DemoLake

pytestmark = pytest.mark.spark

ORDER = "id BIGINT, status STRING"
TS = 1_700_000_000_000
BY_KEY: dict[str, Any] = {"keys": ["id"], "sequence": "position", "deleted": "op = 'd'", "except_columns": ["op"]}


def envelope(op: str, *, after: Any = None, before: Any = None, **more: Any) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "ts_ms": TS, **more}


def texts(spark: SparkSession, *events: object) -> DataFrame:
    lines = [(None if event is None else json.dumps(event),) for event in events]
    return spark.createDataFrame(lines, "value STRING")


def row(status: str) -> dict[str, Any]:
    return {"id": 7, "status": status}


def inserted(spark: SparkSession, *documents: dict[str, Any], types: dict[str, Any] | None = None) -> DataFrame:
    """Envelopes that insert these rows, with a schema beside them where `types` says what columns are."""
    events = [envelope("c", after=after, source={"lsn": place}) for place, after in enumerate(documents, 1)]
    if types is None:
        return texts(spark, *events)
    fields = [{"field": name, **about} for name, about in types.items()]
    schema = {"type": "struct", "fields": [{"field": "before", "fields": fields}, {"field": "after", "fields": fields}]}
    return texts(spark, *({"schema": schema, "payload": event} for event in events))


def refusal(rows: DataFrame) -> str:
    """What ends the stream at these rows."""
    with pytest.raises(PySparkException) as raised:
        rows.collect()
    return str(raised.value)


MISFIT = object()
VALUES: list[tuple[str, object, object]] = [  # a column's type, what was sent, and the value that it is
    ("INT", 3_000_000_000, MISFIT), ("INT", "x", MISFIT), ("INT", 1.5, MISFIT), ("INT", None, None),
    ("TINYINT", 200, MISFIT), ("BOOLEAN", 2, MISFIT), ("BOOLEAN", "yes", MISFIT), ("BOOLEAN", 1, True),
    ("BIGINT", "5", 5), ("FLOAT", 1e300, MISFIT), ("DOUBLE", "NaN", "nan"), ("DECIMAL(4,2)", 1234.5, MISFIT),
    ("BINARY", "?", MISFIT), ("BINARY", "3q0=", b"\xde\xad"), ("STRING", 1, "1"), ("STRING", {"a": 1}, '{"a":1}'),
    ("DATE", "12:00", MISFIT), ("DATE", 1.5, MISFIT), ("DATE", "2023-11-14", date(2023, 11, 14)),
    ("DATE", -1, date(1969, 12, 31)), ("TIMESTAMP", "12:00", MISFIT), ("TIMESTAMP", "2023", MISFIT),
    ("TIMESTAMP", "2023-11-14T22:13:20.123456Z", datetime(2023, 11, 14, 22, 13, 20, 123456)),
    ("ARRAY<INT>", [1, "x"], MISFIT), ("ARRAY<INT>", {"a": 1}, MISFIT), ("ARRAY<STRING>", ["a", None], ["a", None]),
    ("ARRAY<DATE>", [0], [date(1970, 1, 1)]), ("STRUCT<a: INT>", {"a": "x"}, MISFIT), ("STRUCT<a: INT>", 5, MISFIT),
    ("STRUCT<a: INT>", '{"a": 1}', (1,)), ("MAP<STRING, DATE>", {"a": "b"}, MISFIT),
    ("MAP<STRING, INT>", {"a": 1}, {"a": 1}),
]  # fmt: skip
COLUMNS = {kind: f"v{number}" for number, kind in enumerate(dict.fromkeys(kind for kind, _, _ in VALUES))}
FEW = ("INT", "DATE", "ARRAY<INT>", "STRUCT<a: INT>")
CHANGES = [
    json.dumps(envelope("c", after={"id": number, COLUMNS[kind]: sent}, source={"lsn": number + 1}))
    for number, (kind, sent, _) in enumerate(VALUES)
]
NO_CHANGES: list[dict[str, Any]] = [
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
BROKEN = {
    '{"id": 1, "status": "unwrapped"}': "no envelope of Debezium: it has no op",
    "{": "not JSON, or more than one value",
    '{"op": "c"} {"op": "c"}': "not JSON, or more than one value",
    '{"op": "c"}},"end":1': "not JSON, or more than one value",
    "[1]": "no envelope of Debezium: it has no op",
    '{"op": "x", "source": {"lsn": 1}}': "not known: op x",
    '{"op": "c", "after": {"id": 1}, "source": {}}': "no place in the log: {}",
    '{"op": "c", "after": null, "source": {"lsn": 1}}': "it has no row",
}


def schema_of(kinds: Collection[str]) -> str:
    return ", ".join(["id BIGINT", *(f"{COLUMNS[kind]} {kind}" for kind in kinds)])


def value_of(found: Any, kind: str) -> object:
    value = found[COLUMNS[kind]]
    return str(value) if kind == "DOUBLE" else value


def lake_of_lines(home: Path, sink: Sink, schema: str, *lines: str, **modes: Any) -> DemoLake:
    """A stream that unwraps the lines of a file."""
    (home / "in").mkdir()
    (home / "in" / "0").write_text("\n".join(lines))
    source, about = files("in", format="text"), {"name": "silver_orders", "sink": sink}
    return lake_of(home, source, lambda rows: debezium(rows, schema, **modes), **about)


@pytest.mark.parametrize("kinds", [FEW, pytest.param([*COLUMNS], marks=pytest.mark.soak)], ids=["few", "all"])
def test_what_fits_is_a_row_what_does_not_is_a_dead_letter_and_what_is_no_change_is_left_out(
    spark: SparkSession, tmp_path: Path, kinds: Collection[str]
) -> None:
    cases = {number: (kind, value) for number, (kind, _, value) in enumerate(VALUES) if kind in kinds}
    lines = [*(CHANGES[number] for number in cases), *map(json.dumps, NO_CHANGES), *BROKEN]
    lake = lake_of_lines(tmp_path, append(), schema_of(kinds), *lines)
    lake.process("silver_orders")
    rows = {found.id: found for found in lake.rows("silver/silver_orders")}
    expected = {number: value for number, (_, value) in cases.items() if value is not MISFIT}
    assert {number: value_of(found, VALUES[number][0]) for number, found in rows.items()} == expected
    reasons = {bytes(found.value).decode(): found.reason for found in lake.rows("silver/silver_orders_dead_letters")}
    misfits = {CHANGES[number]: kind for number, (kind, value) in cases.items() if value is MISFIT}
    assert reasons.keys() == misfits.keys() | BROKEN.keys()
    assert {line: reasons[line] for line in BROKEN} == BROKEN
    assert all(reasons[line].startswith(f"does not fit the schema: {COLUMNS[kind]} ") for line, kind in misfits.items())


def test_a_misfit_is_null_where_that_is_said_and_bytes_are_read_as_text(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(bytearray(line.encode()),) for line in CHANGES], "value BINARY")
    found = {change.id: change for change in debezium(rows, schema_of(COLUMNS), misfit="null").collect()}
    assert found.keys() == set(range(len(VALUES)))
    for number, (kind, _, value) in enumerate(VALUES):
        if value is not MISFIT or "<" not in kind:  # the other parts of a nested value stay
            assert value_of(found[number], kind) == (None if value is MISFIT else value), VALUES[number]


def test_a_record_that_ends_a_query_is_named_by_its_place(spark: SparkSession) -> None:
    rows = inserted(spark, {"id": 7, "v": "x"})
    topic = debezium(rows.selectExpr("value", "'orders' AS topic", "3 AS partition", "42L AS offset"), "id INT, v INT")
    assert "record 42 of partition 3 of topic orders cannot be taken: does not fit the schema: v int" in refusal(topic)
    text = spark.createDataFrame([("[1]", "a.json")], "value STRING, file_name STRING")
    assert "a record of a.json cannot be taken: no envelope" in refusal(debezium(text, ORDER))


@pytest.mark.soak
@pytest.mark.parametrize(
    ("schema", "after", "modes", "why"),
    [
        ("id BIGINT, at TIMESTAMP", {"id": 1, "at": TS}, {}, "does not fit the schema: at timestamp (say times=…?)"),
        (ORDER, {"status": "paid"}, {"misfit": "fail"}, "neither its row nor its key says whose change it is"),
    ],
    ids=["a unit that nobody declared", "misfit=fail"],
)
def test_a_stream_ends_at_what_it_cannot_take(
    spark: SparkSession, tmp_path: Path, schema: str, after: dict[str, Any], modes: dict[str, Any], why: str
) -> None:
    line = json.dumps(envelope("c", after=after, source={"lsn": 1}))
    lake = lake_of_lines(tmp_path, upsert(**BY_KEY), schema, line, **modes)
    assert f"a record of 0 cannot be taken: {why}" in lake.failure_of("silver_orders").message
    assert lake.rows("silver/silver_orders") == []


@pytest.mark.ci
@pytest.mark.parametrize("sink", [upsert, *soak((history,))])
def test_changes_at_one_place_in_the_log_come_in_the_order_of_their_file(
    spark: SparkSession, tmp_path: Path, sink: Any
) -> None:
    at = {"source": {"ts_ms": TS, "ord": 1}}
    created, *updates = {"status": "c", "amount": 1.5}, {"status": "b"}, {"amount": 2.5}, {"status": "a"}
    changes = [envelope("c", after=json.dumps({"id": 7, **created}), **at)]
    for fields in updates:
        changes.append(envelope("u", updateDescription={"updatedFields": json.dumps({"id": 7, **fields})}, **at))
    *lines, last = map(json.dumps, changes)
    schema, mongodb = f"{ORDER}, amount DOUBLE", {"flavour": "mongodb"}
    lake = lake_of_lines(tmp_path, sink(**BY_KEY), schema, *lines, last, **mongodb)
    lake.process("silver_orders")
    assert [(found.id, found.status, found.amount) for found in lake.rows("silver/silver_orders")] == [(7, "a", 2.5)]
    (apart := tmp_path / "apart").mkdir()
    lake = lake_of_lines(apart, sink(**BY_KEY), schema, *lines, **mongodb)
    (apart / "in" / "1").write_text(last)
    assert "nothing orders two changes of one key" in lake.failure_of("silver_orders").message


def test_postgresql_changes_are_ordered_by_their_log_position(spark: SparkSession) -> None:
    events = [
        envelope("r", after=row("placed"), source={"lsn": 9}),
        {"schema": {"type": "struct"}, "payload": envelope("u", after=row("paid"), source={"lsn": 10_000_000_000})},
        envelope("d", before=row("paid"), source={"lsn": 10_000_000_001}),
        None,  # the tombstone behind a deletion
    ]
    found = debezium(texts(spark, *events), ORDER).collect()
    assert [(change.op, change.id, change.status) for change in found] == [
        ("r", 7, "placed"),
        ("u", 7, "paid"),
        ("d", 7, "paid"),
    ]
    assert [change.position for change in found] == sorted(change.position for change in found)
    assert {change.changed_at.timestamp() for change in found} == {TS / 1000}


def placed(file: str, pos: int, line: int = 0, **more: Any) -> dict[str, Any]:
    return envelope("u", after=row("paid"), source={"file": file, "pos": pos, "row": line, **more})


@pytest.mark.parametrize(
    ("servers", "events"),
    [
        (
            (),
            [
                placed("binlog.000002", 900),
                placed("binlog.000002", 1_000),
                placed("binlog.000002", 1_000, 11),
                placed("binlog.000010", 4),
                placed("binlog.999999", 9_000),
                placed("binlog.1000000", 4),
            ],
        ),
        (
            [[0, 1], 2],
            [
                placed("b.000001", 9, server_id=0),
                placed("b.004711", 4, server_id=1),
                placed("b.000001", 5, server_id=2),
            ],
        ),
        (
            [["0", "3e11-fa47"], "8a94-f357"],
            [
                placed("b.000007", 1, server_id=0),
                placed("b.000009", 900, server_id=1, gtid="3e11-fa47:9"),
                placed("b.000001", 100, server_id=1, gtid="3e11-fa47:10"),  # read from a replica
                placed("b.000001", 200, server_id=2, gtid="8a94-f357:1"),
            ],
        ),
    ],
    ids=["one server", "servers", "replicas"],
)
def test_mysql_positions_sort_as_the_logs_do(spark: SparkSession, servers: Any, events: list[Any]) -> None:
    changes = debezium(texts(spark, *events), ORDER, flavour="mysql", servers=servers).collect()
    positions = [change.position for change in changes]
    assert positions == sorted(set(positions))
    assert min(positions) > "mysql-bin.999999"  # such places were written once


def test_a_server_that_nobody_declared_is_named(spark: SparkSession) -> None:
    rows = debezium(texts(spark, placed("b.000001", 4, server_id=3)), ORDER, flavour="mysql", servers=[1, 2])
    assert '"server_id":"3"' in refusal(rows)


def test_a_truncation_is_not_passed_over(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="the source truncated the table"):
        debezium(texts(spark, envelope("t", source={"lsn": 1})), ORDER).collect()
    found = debezium(texts(spark, envelope("t", source={"lsn": 12})), ORDER, truncations=True).first()
    assert (found.op, found.id, found.position) == ("t", None, f"{12:020}")


def in_bytes(number: str, scale: int) -> str:
    """As Debezium's precise mode writes a decimal: base64 of the unscaled number, big-endian, in two's complement."""
    unscaled = int(Decimal(number).scaleb(scale, Context(prec=60)))
    length = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    return base64.b64encode(unscaled.to_bytes(length, "big", signed=True)).decode()


MONEY = ["0.00", "0.12", "-5.00", "199.99", "-0.01", "1.27", "1.28", "-1.28", "-1.29", "655.36", "9" * 8 + ".99"]
LARGE = ["9" * 38, "-" + "9" * 38, "1" + "0" * 19, "-1" + "0" * 19, str(2**64), str(-(2**64)), str(2**63)]
SCALES = {"money": 2, "large": 0}
NUMBERS = [*(("money", number) for number in [*MONEY, "-99999999.99"]), *(("large", number) for number in LARGE)]


def amounts(encode: Callable[[str, int], object]) -> list[dict[str, Any]]:
    """Rows of the numbers, each in its column."""
    return [{"id": place, name: encode(number, SCALES[name])} for place, (name, number) in enumerate(NUMBERS)]


AS_TEXT, AS_BYTES = amounts(lambda number, scale: number), amounts(in_bytes)
AS_VARIABLE = amounts(lambda number, scale: {"scale": scale, "value": in_bytes(number, scale)})
KIND = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}


@pytest.mark.parametrize(
    ("documents", "types", "decimals"),
    [
        (AS_BYTES, None, "precise"),
        *soak(
            (AS_BYTES, {name: {**KIND, "parameters": {"scale": str(scale)}} for name, scale in SCALES.items()}, None),
            (AS_VARIABLE, None, None),
            (AS_TEXT, None, "string"),
            (AS_TEXT, {name: {"type": "string"} for name in SCALES}, None),
        ),
    ],
    ids=["precise", "precise by the schema", "variable", "string", "string by the schema"],
)
def test_a_decimal_is_the_number_that_the_database_holds(
    spark: SparkSession, documents: list[Any], types: dict[str, Any] | None, decimals: Any
) -> None:
    rows = inserted(spark, *documents, types=types)
    found = debezium(rows, "id BIGINT, money DECIMAL(10,2), large DECIMAL(38,0)", decimals=decimals).collect()
    assert {change.id: change.large if change.money is None else change.money for change in found} == {
        place: Decimal(number) for place, (_, number) in enumerate(NUMBERS)
    }


@pytest.mark.soak
def test_a_text_that_may_be_two_numbers_is_neither(spark: SparkSession) -> None:
    schema = "id BIGINT, amount DECIMAL(10,2)"
    rows = inserted(spark, {"id": 1, "amount": "1234"})  # 1234, or the bytes of -2658824 hundredths
    assert "amount decimal(10,2) (say decimals=…?)" in refusal(debezium(rows, schema))
    assert debezium(rows, schema, decimals="string").first().amount == 1234
    assert debezium(rows, schema, decimals="precise").first().amount == Decimal("-26588.24")
    sent = {in_bytes("199.99", 2): Decimal("199.99"), "-12.50": Decimal("-12.50"), 7.5: Decimal("7.5")}
    clear = inserted(spark, *({"id": place, "amount": amount} for place, amount in enumerate(sent)))
    assert [change.amount for change in debezium(clear, schema).orderBy("id").collect()] == list(sent.values())


UNITS = {"milliseconds": ("Timestamp", 3), "microseconds": ("MicroTimestamp", 6), "nanoseconds": ("NanoTimestamp", 9)}


def test_a_moment_has_the_unit_that_is_declared(spark: SparkSession) -> None:
    columns = {f"{unit}{suffix}": unit for unit in UNITS for suffix in ("", "_ntz")}
    schema = ", ".join(
        ["id BIGINT", "day DATE", *(f"{name} TIMESTAMP{name[len(columns[name]) :]}" for name in columns)]
    )
    sent = {name: int("1700000000123456789"[: 10 + UNITS[unit][1]]) for name, unit in columns.items()}
    types = {name: {"type": "int64", "name": f"io.debezium.time.{UNITS[unit][0]}"} for name, unit in columns.items()}
    types["day"] = {"type": "int32", "name": "io.debezium.time.Date"}
    undeclared = inserted(spark, {"id": 1, "day": 19_675, **sent})
    typed = inserted(spark, {"id": 1, "day": 19_675, **sent}, types=types)
    for rows in (debezium(undeclared, schema, times=columns), debezium(typed, schema)):
        found = rows.selectExpr("CAST(day AS STRING)", *(f"CAST({name} AS STRING)" for name in columns)).first()
        milliseconds, others = "2023-11-14 22:13:20.123", "2023-11-14 22:13:20.123456"
        assert tuple(found) == ("2023-11-14", *[milliseconds] * 2, *[others] * 4)
    say = "microseconds timestamp (say times=…?), microseconds_ntz timestamp_ntz (say times=…?)"
    assert say in refusal(debezium(undeclared, schema))


def test_mongodb_documents_are_text_and_updates_may_be_partial(spark: SparkSession) -> None:
    events = [
        envelope("c", after=json.dumps(row("placed")), source={"ts_ms": TS, "ord": 1}),
        envelope("u", updateDescription={"updatedFields": '{"status": "paid"}'}, source={"ts_ms": TS, "ord": 2}),
    ]
    found = debezium(texts(spark, *events), ORDER, flavour="mongodb").collect()
    assert [(change.op, change.id, change.status) for change in found] == [("c", 7, "placed"), ("u", None, "paid")]
    assert found[0].position < found[1].position


ITEM = "`_id` STRING, qty BIGINT, price DECIMAL(10,2), at TIMESTAMP, raw BINARY, place STRUCT<zip: INT, since: DATE>"


@pytest.mark.soak
def test_mongodb_extended_json_is_values(spark: SparkSession) -> None:
    document = {
        "_id": {"$oid": "65a1"},
        "qty": {"$numberLong": "5"},
        "price": {"$numberDecimal": "1.50"},
        "at": {"$date": 1_700_000_000_123},
        "raw": {"$binary": {"base64": "3q0=", "subType": "00"}},
        "place": {"zip": {"$numberInt": "3000"}, "since": {"$date": "2023-11-14T00:00:00Z"}},
    }
    other = {"at": {"$date": {"$numberLong": "1700000000123"}}, "raw": {"$binary": "3q0=", "$type": "00"}}

    def sent(*documents: dict[str, Any]) -> DataFrame:
        source = {"ts_ms": TS, "ord": 1}
        events = texts(spark, *(envelope("c", after=json.dumps(each), source=source) for each in documents))
        return debezium(events, ITEM, flavour="mongodb")

    for change in sent(document, {**document, **other}).collect():
        assert (change["_id"], change.qty, change.price) == ("65a1", 5, Decimal("1.50"))
        assert (change.at.timestamp(), bytes(change.raw)) == (1_700_000_000.123, b"\xde\xad")
        assert tuple(change.place) == (3000, date(2023, 11, 14))
    assert "does not fit the schema: qty bigint" in refusal(sent({**document, "qty": {"$numberLong": "x"}}))


@pytest.mark.ci
def test_what_a_change_leaves_alone_keeps_its_place_when_it_is_flattened(spark: SparkSession) -> None:
    update = {"updatedFields": json.dumps({"id": 1, "place.city": "Wien"})}
    rows = texts(spark, envelope("u", updateDescription=update, source={"ts_ms": TS, "ord": 1}))
    schema = "id BIGINT, name STRING, place STRUCT<city: STRING, zip: STRING>, seat STRUCT<row: INT>"
    changes = debezium(rows, schema, flavour="mongodb")
    assert changes.first()["_weir_change"].unchanged == ["`name`", "`place`.`zip`", "`seat`"]
    flat = flatten(changes).first()
    assert flat["_weir_change"].unchanged == ["`name`", "`place_zip`", "`seat_row`"]
    assert (flat.id, flat.place_city, flat.place_zip) == (1, "Wien", None)


def test_a_document_is_flattened_and_its_arrays_are_tables_of_their_own(spark: SparkSession) -> None:
    schema = (
        "id BIGINT, address STRUCT<city: STRING, geo: STRUCT<`lat.x`: DOUBLE>>,"
        " lines ARRAY<STRUCT<sku: STRING, price: STRUCT<net: DOUBLE>>>, tags ARRAY<STRING>"
    )
    lines = [{"sku": "a", "price": {"net": 1.0}}, {"sku": "b", "price": {"net": 2.0}}]
    document = {"id": 1, "address": {"city": "Bern", "geo": {"lat.x": 4.5}}, "lines": lines, "tags": ["new"]}
    rows = spark.createDataFrame([document], schema)
    flat = flatten(rows.drop("lines", "tags"))
    assert (flat.columns, tuple(flat.first())) == (["id", "address_city", "address_geo_lat.x"], (1, "Bern", 4.5))
    exploded = children(rows, "lines", keys=["id"])
    assert exploded.columns == ["id", "position_in_parent", "sku", "price_net"]
    assert [tuple(line) for line in exploded.collect()] == [(1, 0, "a", 1.0), (1, 1, "b", 2.0)]
    assert [tuple(tag) for tag in children(rows, "tags", keys=["id"]).collect()] == [(1, 0, "new")]


def test_columns_of_the_rows_own_may_have_any_name(spark: SparkSession) -> None:
    schema = "id BIGINT, Position INT, op STRING"
    rows = inserted(spark, {"id": 1, "Position": 3, "op": "sale"})
    with pytest.raises(SpecError, match="the row has Position, op") as refused:
        debezium(rows, schema)
    assert 'prefix="cdc_"' in refused.value.hint
    found = debezium(rows, schema, prefix="cdc_").first()
    assert (found.Position, found.op, found.cdc_op, found.cdc_position) == (3, "sale", "c", f"{1:020}")


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


def unwrapped(rows: DataFrame, **more: Any) -> DataFrame:
    return debezium(rows, ORDER, **more)


def test_a_check_tells_what_cannot_work(spark: SparkSession, tmp_path: Path) -> None:
    source, about = files("in", format="text"), {"sink": upsert(**BY_KEY)}
    pipeline = pipeline_of(source, unwrapped, name="silver_sound", **about)
    pipeline.streaming_table("silver_named", source=source, **about)(
        lambda rows: debezium(rows, "id BIGINT, position INT")
    )
    pipeline.streaming_table("silver_left", source=source, **about)(
        lambda rows: unwrapped(rows).select("id", "op", "position")
    )
    problems = Analysis(registry_of(pipeline), spark, load_settings(home=tmp_path)).run().problems
    messages = {problem.name: problem.message for problem in problems}
    assert messages.keys() == {"silver_named", "silver_left"}
    assert "the row has position, which debezium adds" in messages["silver_named"]
    assert "the function leaves out _weir_change" in messages["silver_left"]
