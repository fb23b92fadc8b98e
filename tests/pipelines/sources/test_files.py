"""Files as a source: what JSON text holds, every format, columns that come later, what does not fit, and S3."""

import gzip
import io
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from backend.lake.lake import Lake
from backend.lake.storage.storage import declared_folder
from backend.settings import load_settings
from backend.stream_model.backlog import Backlog
from backend.streams.backlog import BacklogReader
from backend.streams.faults import FILE_UNREADABLE, recognise
from backend.streams.preflight_sources import unreadable
from pipelines import files
from pipelines.sources.records import FITS, TEXT, WHOLE, columns_of, documents, judged, reason
from pipelines.spark.tables import Analysis
from pipelines.specs.tables import parse_schema
from tests.worlds.cases import few, soak
from tests.worlds.lake.object_store import client, list_keys, make_bucket, server_url, storage_options
from tests.worlds.processes import kill_hard
from tests.worlds.spark import declared
from tests.worlds.spark.declared import pipeline_of, registry_of
from tests.worlds.spark.host_process import FAST, World, now
from tests.worlds.spark.lakes import DemoLake

pytestmark = pytest.mark.spark

STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}

# of each type: values that are of it, as text of the column; and JSON that is none of it
OF_TYPE: dict[str, tuple[dict[str, str], Sequence[str]]] = {
    "TINYINT": ({"127": "127", "-128": "-128"}, ("128", "200", "255", "-129", "1.0", '"1"', "true")),
    "SMALLINT": ({"-32768": "-32768"}, ("32768", '""')),
    "INT": ({"1": "1"}, ("2147483648", "1.5", "[]")),
    "BIGINT": ({"9223372036854775807": "9223372036854775807"}, ("9223372036854775808", "1e3")),
    "FLOAT": ({"1.5": "1.5", "1": "1.0"}, ("1e39", "-1e300", '"1.5"', '"Infinity"')),
    "DOUBLE": ({"1e308": "1.0E308"}, ("1e309", "-1e400", '"x"')),
    "DECIMAL(7,2)": ({"1.50": "1.50", '"12.5"': "12.50"}, ("123456", "1e400", '"x"')),
    "BOOLEAN": ({"true": "true"}, ('"true"', "1")),
    "DATE": ({'"2026-01-31"': "2026-01-31"}, ('"2026-02-30"', '"tomorrow"', "20000", '"20000"')),
    "TIMESTAMP": (
        {'"2026-01-01T00:00:00Z"': "2026-01-01 00:00:00", "1700000000": "2023-11-14 22:13:20"},
        ('"2026-02-30T00:00:00Z"', '"soon"', "1700000000000", "-1700000000000", "true"),
    ),
    "TIMESTAMP_NTZ": ({'"2026-01-01T00:00:00"': "2026-01-01 00:00:00"}, ('"2026-01-01T00:00:00Z"', "1700000000")),
    "BINARY": ({'"aGk="': "hi"}, ('"%%%"', "5")),
    "STRUCT<b: TINYINT, c: DOUBLE>": ({'{"b": 1}': "{1, null}"}, ('{"b": 200}', '{"c": 1e400}', "7", "[]", '""')),
    "ARRAY<INT>": ({"[1, null]": "[1, null]"}, ('[1, "x"]', "{}", "1")),
    "ARRAY<STRUCT<x: ARRAY<FLOAT>>>": ({'[{"x": [1]}, null]': "[{[1.0]}, null]"}, ('[{"x": [1, 1e300]}]',)),
    "MAP<STRING, TINYINT>": ({'{"x": 1}': "{x -> 1}"}, ('{"x": 300}', '{"x": "y"}', "[1]")),
}


COLUMNS = {kind: f"a{number}" for number, kind in enumerate(OF_TYPE)}
SCHEMA = ", ".join(f"{name} {kind}" for kind, name in COLUMNS.items())


def judge(spark: SparkSession, ddl: str, texts: Sequence[str]) -> dict[str, Row]:
    """By each text: whether it is whole and fits, why not, and its columns as text."""
    schema = parse_schema(spark, ddl)
    rows = judged(spark.createDataFrame([(text,) for text in texts], f"{TEXT} STRING"), schema, STRICT)
    columns = [column.cast("string").alias(name) for column, name in zip(columns_of(schema), schema.names, strict=True)]
    return {row[TEXT]: row for row in rows.select(TEXT, WHOLE, FITS, reason(schema).alias("why"), *columns).collect()}


def test_a_value_is_of_its_type_or_a_misfit(spark: SparkSession) -> None:
    right = {(kind, value): text for kind, (values, _) in OF_TYPE.items() for value, text in values.items()}
    wrong = [(kind, value) for kind, (_, values) in OF_TYPE.items() for value in values]
    nulls = [(kind, "null") for kind in OF_TYPE]
    texts = {(kind, value): f'{{"{COLUMNS[kind]}": {value}}}' for kind, value in [*right, *wrong, *nulls]}
    found = judge(spark, SCHEMA, list(texts.values()))
    of = {case: found[text] for case, text in texts.items()}
    assert all(row[WHOLE] for row in of.values())
    assert {case: (of[case][COLUMNS[case[0]]], of[case][FITS]) for case in right} == {
        case: (text, True) for case, text in right.items()
    }
    assert [case for case in wrong if of[case][FITS]] == []
    for kind, value in wrong:
        named = f"does not fit the schema: {COLUMNS[kind]}"
        assert of[kind, value].why in (named, "does not fit the schema"), (kind, value)
        if "STRUCT" not in kind:  # whose other fields stay
            assert of[kind, value][COLUMNS[kind]] is None, (kind, value)
    assert {(of[case][COLUMNS[case[0]]], of[case][FITS]) for case in nulls} == {(None, True)}


def test_a_column_that_must_have_a_value_has_one_or_is_a_misfit(spark: SparkSession) -> None:
    found = judge(spark, "a INT NOT NULL, b INT", ['{"a": 1}', '{"b": 1}', '{"a": null}', "null"])
    assert [text for text, row in found.items() if not row[FITS]] == ['{"b": 1}', '{"a": null}']
    assert found['{"b": 1}'].why == found['{"a": null}'].why == "does not fit the schema: a"


def test_a_text_that_closes_what_it_is_wrapped_in_is_not_whole(spark: SparkSession) -> None:
    closes = [
        '{"a": 2}], "more": [{"a": 3}',
        '{"a": 2}],"end":1,"x":[',
        '{"a": 2}],"all":[{"a": 9}',
        '{"a": 2}],"end":1} {"all":[{"a": 3}',
        '{"a": 2}], "more": [{"a": NaN}',
        "null],[",
        '{"a": 2}]',
        '{"a": 2},{"a": 3}',
    ]
    found = judge(spark, "a BIGINT", [*closes, '{"a": 1, "l": [1, {"m": []}]}'])
    assert {text for text, row in found.items() if row[WHOLE]} == {'{"a": 1, "l": [1, {"m": []}]}'}
    assert {found[text].a for text in closes} == {None}


DOCUMENTS = {
    '{"a":1}{"a":2}\n {"a":3}': ['{"a":1}', '{"a":2}', '{"a":3}'],
    '{"a":"}{"}': ['{"a":"}{"}'],
    '{"a":"x\\"}{"}': ['{"a":"x\\"}{"}'],
    '{"a":"}{"}{"b":1}': ['{"a":"}{"}{"b":1}'],  # not to be told apart: whole, and so rescued
    "{'a':'}{}{'}": ["{'a':'}{}{'}"],
    '{"a":1}{"b":': ['{"a":1}', '{"b":'],
    '[{"a":1}, {"b":[1,2]}, 3, null]': ['{"a":1}', '{"b":[1,2]}', "3", "null"],
    '\n[ {"a":0.12345678901234567890} ]': ['{"a":0.1234567890123456789}'],
    '[{"a":1}][{"b":2}]': ['[{"a":1}][{"b":2}]'],
    '[{"a":1}],"x":[{"b":1}]': ['[{"a":1}],"x":[{"b":1}]'],
    '[{"a":1}': ['[{"a":1}'],
    "[]": [],
    "12": ["12"],
}


def test_objects_in_one_text_are_told_apart_or_left_together(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(text,) for text in DOCUMENTS], "t STRING").select("t", documents(F.col("t")))
    assert {text: [part.strip() for part in parts] for text, parts in rows.collect()} == DOCUMENTS


def test_a_long_line_is_told_apart_without_a_deep_stack(spark: SparkSession) -> None:
    escapes = json.dumps('"\\' * 200_000)
    text = "".join(f'{{"id":{number},"t":{escapes}}}' for number in range(4))
    rows = spark.createDataFrame([(text,)], "t STRING").select(F.explode(documents(F.col("t"))).alias("part"))
    assert [json.loads(row.part)["id"] for row in rows.collect()] == [0, 1, 2, 3]


ORDER = "id STRING, amount DOUBLE"
GOOD = {"id": "a", "amount": 1.5}
LakeOf = Callable[..., DemoLake]


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir()
    return folder


def land(folder: Path, name: str, *records: object) -> None:
    lines = (record if isinstance(record, str) else json.dumps(record) for record in records)
    (folder / f".{name}").write_text("".join(f"{line}\n" for line in lines))
    (folder / f".{name}").rename(folder / name)


def land_parquet(folder: Path, name: str, **columns: list[Any]) -> None:
    pq.write_table(pa.table(columns), folder / f".{name}")
    (folder / f".{name}").rename(folder / name)


@pytest.fixture
def lake_of(spark: SparkSession, tmp_path: Path) -> LakeOf:
    """`lake_of(source)`: an open lake whose stream `bronze_orders` reads it."""
    return partial(declared.lake_of, tmp_path)


def rows(lake: DemoLake) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in lake.rows("bronze/bronze_orders")]


def rescued(row: dict[str, Any]) -> Any:
    return row["_rescued_data"] and json.loads(row["_rescued_data"])


def corrupt(text: str) -> dict[str, str]:
    return {"_corrupt_record": text}


PLACE = {"city": "Delft", "geo": {"lat": 52.0}}
WIDER = {**PLACE, "zip": "2611", "geo": {"lat": 52.0, "alt": [1]}}
BY_PATH = {"vip": "true", "address.zip": "2611", "address.geo.alt": "[1]"}
# A line, and the id of each row that it becomes with what no column takes.
LINES: list[tuple[object, list[tuple[str | None, Any]]]] = [
    (GOOD, [("a", None)]),
    ({**GOOD, "currency": "EUR", "tags": [1]}, [("a", {"currency": "EUR", "tags": "[1]"})]),
    ('{"id": "b", "amount": "much"}', [("b", corrupt('{"id": "b", "amount": "much"}'))]),
    ("{broken", [(None, corrupt("{broken"))]),
    ("", []),
    ({"id": "p", "address": PLACE}, [("p", None)]),
    ({"id": "q", "address": WIDER, "vip": True}, [("q", BY_PATH)]),
    ({"id": "r", "address": None}, [("r", None)]),
    # Objects one behind the other, as Kinesis Firehose writes them, are rows; what is none is rescued.
    ('{"id":"a","amount":1.5}{"id":"b","amount":2}', [("a", None), ("b", None)]),
    ('{"id":"c"} {"id":"d"', [("c", None), (None, corrupt('{"id":"d"'))]),
    ('[{"id":"e"}, {"id":"f"}]', [("e", None), ("f", None)]),
    ('{"id":"h"}], "more": [{"id":"i"}', [(None, corrupt('{"id":"h"}], "more": [{"id":"i"}'))]),
    # No JSON: which fields it has beside, nobody tells.
    ('{"id":"k","amount":NaN,"new":1}', [("k", corrupt('{"id":"k","amount":NaN,"new":1}'))]),
]  # fmt: skip


def test_json_keeps_what_no_column_takes_and_all_that_follows_an_object(lake_of: LakeOf, landing: Path) -> None:
    land(landing, "1.json", *(line for line, _ in LINES))
    schema = f"{ORDER}, address STRUCT<city: STRING, geo: STRUCT<lat: DOUBLE>>"
    lake = lake_of(files(str(landing), format="json", schema=schema))
    lake.process("bronze_orders")
    found = rows(lake)
    assert [(row["id"], rescued(row)) for row in found] == [row for _, expected in LINES for row in expected]
    assert {row["amount"] for row in found if row["id"] == "a"} == {1.5}
    assert [row["address"] for row in found if row["id"] in ("p", "q", "r")] == [PLACE, PLACE, None]
    size = (landing / "1.json").stat().st_size
    assert {(row["file_name"], row["file_size_bytes"]) for row in found} == {("1.json", size)}


@pytest.mark.ci
def test_a_document_of_many_lines_and_other_options_of_json(lake_of: LakeOf, landing: Path) -> None:
    records = [{"id": "a", "at": "31/12/2025 23:59"}, {"id": "ä", "at": "soon", "new": [1]}]
    (landing / "1.json").write_bytes(json.dumps(records, indent=2, ensure_ascii=False).encode("latin-1"))
    (landing / "2.json").write_text('{\n"id": "c"\n}\n{\n"id": "d"}')
    options = {"multiLine": True, "encoding": "ISO-8859-1", "timestampFormat": "dd/MM/yyyy HH:mm"}
    lake = lake_of(files(str(landing), format="json", schema="id STRING, at TIMESTAMP", **options))
    lake.process("bronze_orders")
    found = {row["id"]: row for row in rows(lake)}
    assert found.keys() == {"a", "ä", "c", "d"}
    assert str(found["a"]["at"]) == "2025-12-31 23:59:00"
    assert rescued(found["ä"]).keys() == {"_corrupt_record"}


@pytest.mark.parametrize("format", few(1, ["json", "csv"]))
def test_what_does_not_fit_is_a_dead_letter_or_ends_the_stream_where_that_is_said(
    lake_of: LakeOf, landing: Path, format: Any
) -> None:
    lines = {"csv": ["id,amount", "a,1", "b,much"], "json": [GOOD, {"id": "b", "amount": "much"}]}
    land(landing, f"1.{format}", *lines[format])
    failed = lake_of(files(str(landing), format=format, schema=ORDER, misfit="fail"))
    message = failed.failure_of("bronze_orders").message
    assert f"a record of 1.{format} cannot be parsed: does not fit the " in message and "much" in message
    assert rows(failed) == []
    lake = lake_of(files(str(landing), format=format, schema=ORDER, misfit="dead letter"))
    lake.process("bronze_orders")
    assert [row["id"] for row in rows(lake)] == ["a"]
    (letter,) = lake.rows("bronze/bronze_orders_dead_letters")
    assert b"much" in bytes(letter.value) and "amount" in letter.reason and letter.file_name == f"1.{format}"


@pytest.mark.ci
def test_files_of_every_age_and_name_are_read(lake_of: LakeOf, tmp_path: Path) -> None:
    """Copies keep their time, and clocks go wrong: years before and after the newest that was read."""
    folder = tmp_path / "land [1] it"
    folder.mkdir()
    ages = {"now.json": 0, "a [2] b.json": -30, "c%20d+e.json": 40 * 365, "f.json": -56 * 365}
    lake = lake_of(files(str(folder), format="json", schema="id STRING"))
    for name, days in ages.items():
        land(folder, name, {"id": name})
        at = time.time() + days * 86_400
        os.utime(folder / name, (at, at))
        lake.process("bronze_orders")
    together = ["plain.json", "report[1].json", "q{x}.json", "r*.json", "s?.json", "t u.json"]
    for name in together:
        land(folder, name, {"id": name})
    lake.process("bronze_orders")
    assert sorted((row["id"], row["file_name"]) for row in rows(lake)) == sorted(
        (name, name) for name in [*ages, *together]
    )


@pytest.mark.soak
def test_sub_folders_are_partitions_or_stay_unread_whatever_names_are_beside_them(
    lake_of: LakeOf, landing: Path, tmp_path: Path
) -> None:
    lake = lake_of(files(str(landing), format="json", schema="id STRING"))
    for folder, names in ((landing / "done", "a.json"), (landing, "b.json c.json")):
        folder.mkdir(exist_ok=True)
        for name in names.split():
            land(folder, name, {"id": name})
    lake.process("bronze_orders")
    for name in ("d[1].json", "e.json"):
        land(landing, name, {"id": name})
    assert "d[1].json: beside a name with any of" in lake.failure_of("bronze_orders").message
    (landing / "done").rename(tmp_path / "done")
    lake.process("bronze_orders")
    assert sorted(row["id"] for row in rows(lake)) == ["b.json", "c.json", "d[1].json", "e.json"]
    (tmp_path / "done").rename(landing / "done")
    land(landing / "done", "f.json", {"id": "f"})
    lake.process("bronze_orders")
    assert len(rows(lake)) == 4


@pytest.mark.ci
def test_partitions_have_files_of_any_name(lake_of: LakeOf, landing: Path) -> None:
    for name in ("day=1/a.json", "day=1/b[1].json", "day=2/c{d}.json"):
        (landing / name).parent.mkdir(exist_ok=True)
        (landing / name).write_text(json.dumps({"id": name}))
    lake = lake_of(files(str(landing), format="text"))
    lake.process("bronze_orders")
    found = sorted(json.loads(row["value"])["id"] for row in rows(lake))
    assert found == ["day=1/a.json", "day=1/b[1].json", "day=2/c{d}.json"]


@pytest.mark.ci
def test_a_file_that_was_cut_off_is_named_and_a_whole_one_in_its_place_goes_on(lake_of: LakeOf, landing: Path) -> None:
    whole = gzip.compress("".join(json.dumps({**GOOD, "amount": number}) + "\n" for number in range(3_000)).encode())
    (landing / "1 [a].json.gz").write_bytes(whole[: len(whole) // 2])
    lake = lake_of(files(str(landing), format="json", schema=ORDER))
    failure = lake.failure_of("bronze_orders")
    assert failure.error_class == "FAILED_READ_FILE.NO_HINT"
    assert recognise(failure) == (FILE_UNREADABLE,)
    folder = declared_folder(lake.settings, str(landing))
    assert unreadable(folder, failure) == str(landing / "1 [a].json.gz")
    (landing / "1 [a].json.gz").write_bytes(whole)
    assert unreadable(folder, failure) == ""
    lake.process("bronze_orders")
    assert len(rows(lake)) == 3_000
    (landing / "2.json.gz").write_bytes(whole[: len(whole) // 2])
    lake.failure_of("bronze_orders")
    (landing / "2.json.gz").rename(landing.parent / "2.json.gz")
    lake.process("bronze_orders")
    assert len(rows(lake)) == 3_000, "its batch goes on without it"


@pytest.mark.ci
def test_columns_are_found_once_and_kept(lake_of: LakeOf, landing: Path) -> None:
    land(landing, "1.json", GOOD)
    lake = lake_of(files(str(landing), format="json"))
    lake.process("bronze_orders")
    land(landing, "2.json", {"id": "b", "amount": 2, "currency": "EUR"})
    lake.process("bronze_orders")
    found = sorted((row["id"], row["amount"], rescued(row)) for row in rows(lake))
    assert found == [("a", 1.5, None), ("b", 2.0, {"currency": "EUR"})]
    kept = lake.settings.home / "checkpoints/bronze_orders.schema.json"
    known = json.loads(kept.read_text())[str(landing)]["known"]
    assert [field["name"] for field in known["fields"]] == ["amount", "id"]


LINE = "id STRING, lines ARRAY<STRUCT<sku: STRING>>"


@pytest.mark.parametrize(
    ("format", "schema", "new_columns", "complaints"),
    [
        ("json", ORDER, "fail", ["new columns currency in files of "]),
        *soak(
            ("csv", ORDER, "fail", ["Header length: 3, schema size: 2", "1.csv"]),
            ("parquet", LINE, "rescue", ["new fields lines.price in files of "]),
        ),
    ],
)
def test_a_new_column_ends_the_stream_also_one_that_reads_few_columns(
    lake_of: LakeOf, landing: Path, format: Any, schema: str, new_columns: Any, complaints: list[str]
) -> None:
    if format == "parquet":
        land_parquet(landing, "1.parquet", id=["a"], lines=[[{"sku": "x", "price": 1}]])
    else:
        lines = {"json": [GOOD, {**GOOD, "currency": "EUR"}], "csv": ["id,amount,currency", "a,1.5,EUR"]}
        land(landing, f"1.{format}", *lines[format])
    source = files(str(landing), format=format, schema=schema, new_columns=new_columns)
    lake = lake_of(source, lambda records: records.select("id"))
    failure = lake.failure_of("bronze_orders").message
    assert all(complaint in failure for complaint in complaints)
    assert rows(lake) == []


@pytest.mark.ci
@pytest.mark.parametrize("schema", few(1, [ORDER, None]), ids=["declared", "found"])
def test_new_columns_of_parquet_are_rescued_from_the_next_start_on(
    lake_of: LakeOf, landing: Path, schema: str | None
) -> None:
    land_parquet(landing, "1.parquet", id=["a"], amount=[1.5])
    lake = lake_of(files(str(landing), format="parquet", schema=schema, new_columns="rescue"))
    lake.process("bronze_orders")
    land_parquet(landing, "2[1].parquet", id=["b", "c"], amount=[2.0, 3.0], currency=["EUR", None], tags=[[1], None])
    assert "new columns currency, tags" in lake.failure_of("bronze_orders").message
    land_parquet(landing, "3.parquet", ID=["d"], amount=[4.0], currency=["USD"])
    lake.process("bronze_orders")
    assert {row["id"]: rescued(row) for row in rows(lake)} == {
        "a": None,
        "b": {"currency": "EUR", "tags": [1]},
        "c": None,
        "d": {"currency": "USD"},
    }


@pytest.mark.ci
@pytest.mark.parametrize(("format", "schema"), [("json", None), *soak(("json", ORDER), ("parquet", ORDER))])
def test_an_evolving_stream_takes_new_columns_in_when_it_starts_again(
    lake_of: LakeOf, landing: Path, format: Any, schema: str | None
) -> None:
    def land_one(number: int, **record: object) -> None:
        if format == "json":
            land(landing, f"{number}.json", record)
        else:
            land_parquet(landing, f"{number}.parquet", **{name: [value] for name, value in record.items()})

    land_one(1, id="a", amount=1.5)
    source = files(str(landing), format=format, schema=schema, new_columns="evolve")
    lake = lake_of(source, evolution="add columns")
    lake.process("bronze_orders")
    land_one(2, id="b", amount=2.0, currency="EUR")
    if format == "parquet":
        assert "the stream takes them in when it starts again" in lake.failure_of("bronze_orders").message
    lake.process("bronze_orders")
    assert {row["id"]: row["currency"] for row in rows(lake)} == {"a": None, "b": "EUR"}


@pytest.mark.soak
def test_each_folder_of_a_stream_keeps_its_own_columns(lake_of: LakeOf, landing: Path) -> None:
    for name, column in (("shop", "price"), ("shop_web", "clicks")):
        (landing / name).mkdir()
        land_parquet(landing / name, "1.parquet", id=[name], **{column: [1]})

    def both(shop: DataFrame, web: DataFrame) -> DataFrame:
        return shop.select("id", "price").unionByName(web.select("id", "clicks"), allowMissingColumns=True)

    lake = lake_of([files(str(landing / name), format="parquet") for name in ("shop", "shop_web")], both)
    lake.process("bronze_orders")
    land_parquet(landing / "shop_web", "2.parquet", id=["shop_web"], clicks=[2])
    lake.process("bronze_orders")
    assert sorted((row["id"], row["price"], row["clicks"]) for row in rows(lake)) == [
        ("shop", 1, None),
        ("shop_web", None, 1),
        ("shop_web", None, 2),
    ]
    land_parquet(landing / "shop_web", "3.parquet", id=["shop_web"], clicks=[3], price=[3])
    assert f"new columns price in files of {landing / 'shop_web'}" in lake.failure_of("bronze_orders").message


def test_text_is_read_past_what_a_killed_host_had_begun_to_write(lake_of: LakeOf, landing: Path) -> None:
    land(landing, "1.txt", "a line")
    lake = lake_of(files(str(landing)))
    checkpoint = lake.settings.home / "checkpoints/bronze_orders"
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True)
        for name in (".0.0d5cae18.tmp", "..0.0d5cae18.tmp.crc"):
            (checkpoint / folder / name).write_text("v1\n")
    lake.process("bronze_orders")
    assert [row["value"] for row in rows(lake)] == ["a line"]


@pytest.mark.ci
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"format": "csv", "schema": ORDER, "encoding": "ISO-8859-1"}, [("ä", 1.5, None), ("b", None, "b,much")]),
        ({"format": "binary"}, [("id,amount\nä,1.5\nb,much\n".encode("latin-1"),)]),
        *soak(
            ({"format": "parquet"}, [("a", 1.5, "EUR")]),
            ({"format": "parquet", "schema": ORDER, "new_columns": "ignore"}, [("a", 1.5)]),
        ),
    ],
    ids=["csv", "binary", "parquet", "parquet without new columns"],
)
def test_other_formats(lake_of: LakeOf, landing: Path, options: dict[str, Any], expected: list[Any]) -> None:
    if options["format"] == "parquet":
        land_parquet(landing, "1.parquet", id=["a"], amount=[1.5], currency=["EUR"])
    else:
        (landing / "1").write_bytes("id,amount\nä,1.5\nb,much\n".encode("latin-1"))
    lake = lake_of(files(str(landing), **options))
    lake.process("bronze_orders")
    beside = ("file_name", "file_size_bytes", "file_modified_at")
    assert [tuple(value for name, value in row.items() if name not in beside) for row in rows(lake)] == expected


@pytest.mark.ci
def test_read_files_are_moved_away(lake_of: LakeOf, landing: Path, tmp_path: Path) -> None:
    about = {"done": str(tmp_path / "archive"), "max_files_per_trigger": 1}
    lake = lake_of(files(str(landing), format="json", schema=ORDER, **about))
    for number in range(3):
        land(landing, f"{number}.json", {"id": str(number), "amount": 1})
    lake.process("bronze_orders")
    land(landing, "3.json", {"id": "3", "amount": 1})
    lake.process("bronze_orders")
    archived = [path.name for path in (tmp_path / "archive").rglob("*.json")]
    assert {row["id"] for row in rows(lake)} == {"0", "1", "2", "3"}
    assert len(archived) >= 2
    assert not {path.name for path in landing.glob("*.json")} & set(archived)


def test_without_a_file_and_columns_the_check_says_what_to_do(
    spark: SparkSession, tmp_path: Path, landing: Path
) -> None:
    registry = registry_of(pipeline_of(files(str(landing), format="json")))
    problems = Analysis(registry, spark, load_settings(home=tmp_path)).run().problems
    assert [(problem.message, problem.hint) for problem in problems] == [
        (f"there is no file in {landing} to find columns in", "give schema=…, or land a first file")
    ]


BUCKET = "landed"
MODULE = """
from pipelines import Pipeline, files

shop = Pipeline("shop")
orders = files("s3://landed/orders", format="json", schema="id BIGINT, amount DOUBLE", done="s3://landed/done")
prices = files("s3://landed/prices", format="parquet", new_columns="evolve")


@shop.streaming_table("bronze_orders", source=orders, trigger="1 second")
def bronze_orders(records):
    return records


@shop.streaming_table("bronze_prices", source=prices, trigger="1 second", evolution="add columns")
def bronze_prices(records):
    return records
"""
STREAMS = ("bronze_orders", "bronze_prices")


def land_orders(name: str, *ids: int, extra: str = "") -> None:
    text = "".join(json.dumps({"id": each, "amount": each / 2}) + "\n" for each in ids) + extra
    client().put_object(Bucket=BUCKET, Key=f"orders/{name}", Body=text.encode())


def land_prices(name: str, **columns: list[object]) -> None:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    client().put_object(Bucket=BUCKET, Key=f"prices/{name}", Body=file.getvalue())


@pytest.fixture
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("landed")
    (folder / "landed.py").write_text(MODULE)
    make_bucket(BUCKET)
    env = {
        **FAST,
        "PYTHONPATH": str(folder),
        "WEIR_HOST__PIPELINES": '["landed"]',
        "WEIR_LAKE__TABLES_URI": f"s3://{BUCKET}/lake",
        "WEIR_LAKE__ROOTS": json.dumps([f"s3://{BUCKET}"]),
        "WEIR_LAKE__STORAGE_OPTIONS": json.dumps({f"s3://{BUCKET}": storage_options(server_url())}),
        "WEIR_HOST__CHECKPOINTS_URI": f"s3://{BUCKET}/checkpoints",
    }
    with closing(World(folder, env, STREAMS)) as opened:
        yield opened


def ids(world: World, table: str) -> list[int]:
    there = any(key.endswith(".json") for key in list_keys(BUCKET, f"lake/bronze/{table}/_delta_log/"))
    return sorted(row["id"] for row in world.rows(f"bronze/{table}").to_pylist() if row["id"]) if there else []


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_rows_are_there_once_though_the_host_is_killed_and_files_get_new_columns(world: World) -> None:
    land_orders("1.json", 1, 2, extra="{broken\n")
    land_prices("1.parquet", id=[1, 2], price=[1.5, 2.5])
    host = world.host()
    world.until_batch(0)
    assert (ids(world, "bronze_orders"), ids(world, "bronze_prices")) == ([1, 2], [1, 2])
    (rescued,) = [
        row["_rescued_data"] for row in world.rows("bronze/bronze_orders").to_pylist() if row["_rescued_data"]
    ]
    assert json.loads(rescued) == {"_corrupt_record": "{broken"}

    kill_hard(host)
    land_orders("2.json", 3, 4)
    land_prices("2.parquet", id=[3], price=[3.5], currency=["EUR"])
    waits = waiting(world)
    assert (waits["bronze_orders"].files, waits["bronze_prices"].files) == (1, 1)
    world.host()
    world.until(lambda: ids(world, "bronze_orders") == [1, 2, 3, 4], "the orders that came while nobody was there")
    world.until(lambda: ids(world, "bronze_prices") == [1, 2, 3], "the new column was taken in")
    assert {row["id"]: row["currency"] for row in world.rows("bronze/bronze_prices").to_pylist()} == {
        1: None,
        2: None,
        3: "EUR",
    }
    world.until_batch(1)
    world.until_drained(now() + timedelta(seconds=1))
    assert all(each.is_caught_up for each in waiting(world).values())
    assert [key for key in list_keys(BUCKET, "done/") if key.endswith("1.json")]


def waiting(world: World) -> dict[str, Backlog]:
    reader = BacklogReader(world.settings, Lake(world.settings))
    told = world.store.declarations()
    return {name: reader.read(told[name], world.store.progress(name, limit=10), now=now()) for name in STREAMS}
