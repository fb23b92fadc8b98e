"""Files as a source: every format, columns given and found, what does not fit, and what becomes of read files."""

import gzip
import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from backend.lake.storage.storage import declared_folder
from backend.settings import load_settings
from backend.stream_model.stream import StreamFailure
from backend.streams.faults import FILE_UNREADABLE, recognise
from backend.streams.preflight.reading import unreadable
from pipelines import files
from pipelines.spark.analysis import Analysis
from tests.worlds.spark import declared
from tests.worlds.spark.declared import pipeline_of, registry_of
from tests.worlds.spark.lakes import DemoLake

pytestmark = pytest.mark.spark

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


def failure_of(lake: DemoLake) -> str:
    lake.runtime.start("bronze_orders")
    ended = lake.ended("bronze_orders")
    assert ended.failure
    return ended.failure.message


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
    ("  ", []),
    ({"id": "p", "address": PLACE}, [("p", None)]),
    ({"id": "q", "address": WIDER, "vip": True}, [("q", BY_PATH)]),
    ({"id": "r", "address": None}, [("r", None)]),
    # Objects one behind the other, as Kinesis Firehose writes them, are rows; what is none is rescued.
    ('{"id":"a","amount":1.5}{"id":"b","amount":2}', [("a", None), ("b", None)]),
    ('{"id":"c"} {"id":"d"', [("c", None), (None, corrupt('{"id":"d"'))]),
    ('[{"id":"e"}, {"id":"f"}]', [("e", None), ("f", None)]),
    ('{"id":"g"} tail', [(None, corrupt('{"id":"g"} tail'))]),
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


@pytest.mark.parametrize("format", ["json", pytest.param("csv", marks=pytest.mark.ci)])
def test_what_does_not_fit_is_a_dead_letter_or_ends_the_stream_where_that_is_said(
    lake_of: LakeOf, landing: Path, format: Any
) -> None:
    lines = {"csv": ["id,amount", "a,1", "b,much"], "json": [GOOD, {"id": "b", "amount": "much"}]}
    land(landing, f"1.{format}", *lines[format])
    failed = lake_of(files(str(landing), format=format, schema=ORDER, misfit="fail"))
    message = failure_of(failed)
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
    assert {row["id"]: row["file_name"] for row in rows(lake)} == {name: name for name in ages}


@pytest.mark.ci
def test_a_file_that_was_cut_off_is_named_and_a_whole_one_in_its_place_goes_on(lake_of: LakeOf, landing: Path) -> None:
    whole = gzip.compress("".join(json.dumps({**GOOD, "amount": number}) + "\n" for number in range(3_000)).encode())
    (landing / "1 [a].json.gz").write_bytes(whole[: len(whole) // 2])
    lake = lake_of(files(str(landing), format="json", schema=ORDER))
    lake.runtime.start("bronze_orders")
    failure = lake.ended("bronze_orders").failure
    assert failure and failure.error_class == "FAILED_READ_FILE.NO_HINT"
    seen = StreamFailure(*failure, 0, datetime.now(UTC))
    assert recognise(seen) == (FILE_UNREADABLE,)
    folder = declared_folder(lake.settings, str(landing))
    assert unreadable(folder, seen) == str(landing / "1 [a].json.gz")
    (landing / "1 [a].json.gz").write_bytes(whole)
    assert unreadable(folder, seen) == ""
    lake.process("bronze_orders")
    assert len(rows(lake)) == 3_000
    (landing / "2.json.gz").write_bytes(whole[: len(whole) // 2])
    assert failure_of(lake)
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

    kept.write_text(json.dumps(known))  # as it was kept while a stream had one folder
    land(landing, "3.json", {"id": "c", "currency": "USD"})
    lake.process("bronze_orders")
    assert {row["id"]: rescued(row) for row in rows(lake)}["c"] == {"currency": "USD"}


LINE = "id STRING, lines ARRAY<STRUCT<sku: STRING>>"


@pytest.mark.parametrize(
    ("format", "schema", "new_columns", "complaints"),
    [
        ("json", ORDER, "fail", ["new columns currency in files of "]),
        ("csv", ORDER, "fail", ["Header length: 3, schema size: 2", "1.csv"]),
        ("parquet", LINE, "rescue", ["new fields lines.price in files of "]),
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
    failure = failure_of(lake)
    assert all(complaint in failure for complaint in complaints)
    assert rows(lake) == []


@pytest.mark.ci
def test_a_parquet_file_with_a_new_column_ends_the_stream_before_anything_is_written(
    lake_of: LakeOf, landing: Path
) -> None:
    land_parquet(landing, "1.parquet", id=["a"], amount=[1.5])
    land_parquet(landing, "2.parquet", id=["b"], amount=[2], **{"per.unit": ["EUR"]})  # bigint differs from double
    lake = lake_of(files(str(landing), format="parquet", schema=ORDER))
    assert f"new columns per.unit in files of {landing}" in failure_of(lake)
    assert rows(lake) == []
    (landing / "2.parquet").unlink()
    land_parquet(landing, "2.parquet", ID=["b"], amount=[2.0])
    lake.process("bronze_orders")
    assert sorted((row["id"], row["amount"]) for row in rows(lake)) == [("a", 1.5), ("b", 2.0)]


@pytest.mark.ci
@pytest.mark.parametrize("schema", [ORDER, None], ids=["declared", "found"])
def test_new_columns_of_parquet_are_rescued_from_the_next_start_on(
    lake_of: LakeOf, landing: Path, schema: str | None
) -> None:
    land_parquet(landing, "1.parquet", id=["a"], amount=[1.5])
    lake = lake_of(files(str(landing), format="parquet", schema=schema, new_columns="rescue"))
    lake.process("bronze_orders")
    land_parquet(landing, "2[1].parquet", id=["b", "c"], amount=[2.0, 3.0], currency=["EUR", None], tags=[[1], None])
    assert "new columns currency, tags" in failure_of(lake)
    land_parquet(landing, "3.parquet", id=["d"], amount=[4.0], currency=["USD"])
    lake.process("bronze_orders")
    assert {row["id"]: rescued(row) for row in rows(lake)} == {
        "a": None,
        "b": {"currency": "EUR", "tags": [1]},
        "c": None,
        "d": {"currency": "USD"},
    }


@pytest.mark.ci
@pytest.mark.parametrize(("format", "schema"), [("json", None), ("json", ORDER), ("parquet", ORDER)])
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
        assert "the stream takes them in when it starts again" in failure_of(lake)
    lake.process("bronze_orders")
    assert {row["id"]: row["currency"] for row in rows(lake)} == {"a": None, "b": "EUR"}


@pytest.mark.ci
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
    assert f"new columns price in files of {landing / 'shop_web'}" in failure_of(lake)


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
        ({"format": "parquet"}, [("a", 1.5, "EUR")]),
        ({"format": "parquet", "schema": ORDER, "new_columns": "ignore"}, [("a", 1.5)]),
        ({"format": "binary"}, [("id,amount\nä,1.5\nb,much\n".encode("latin-1"),)]),
    ],
    ids=["csv", "parquet", "parquet without new columns", "binary"],
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
