"""Files as a source: every format, columns given and found, what does not fit, and what becomes of read files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from backend.settings import load_settings
from pipelines import Pipeline, files
from pipelines.declare.check import Analysis
from pipelines.declare.registry import Registry
from pipelines.sources.files import FileSource
from tests.spark.lakes import PATIENCE_S, DemoLake, open_lake

pytestmark = pytest.mark.spark

ORDER = "id STRING, amount DOUBLE"
GOOD = {"id": "a", "amount": 1.5}


def same(rows: DataFrame) -> DataFrame:
    return rows


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir()
    return folder


def land(folder: Path, name: str, *records: object) -> None:
    text = "".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in records)
    (folder / f".{name}").write_text(text)
    (folder / f".{name}").rename(folder / name)


@pytest.fixture
def lake_of(spark: SparkSession, tmp_path: Path) -> Callable[..., DemoLake]:
    """`lake_of(source)`: an open lake whose stream `bronze_orders` reads it."""

    def build(source: FileSource, **about: Any) -> DemoLake:
        shop = Pipeline("shop")
        shop.streaming_table("bronze_orders", source=source, trigger="available now", **about)(same)
        return open_lake(load_settings(home=tmp_path), *shop.streams)

    return build


def rows(lake: DemoLake) -> list[dict[str, Any]]:
    return [row.asDict() for row in lake.rows("bronze/bronze_orders")]


def test_json_keeps_what_no_column_takes(lake_of: Callable[..., DemoLake], landing: Path) -> None:
    land(
        landing, "1.json", GOOD, {**GOOD, "currency": "EUR", "tags": [1]}, {"id": "b", "amount": "much"}, "{broken", ""
    )
    lake = lake_of(files(str(landing), format="json", schema=ORDER))
    lake.process("bronze_orders")
    found = rows(lake)
    assert [(row["id"], row["amount"]) for row in found] == [("a", 1.5), ("a", 1.5), ("b", None), (None, None)]
    assert [row["_rescued_data"] and json.loads(row["_rescued_data"]) for row in found] == [
        None,
        {"currency": "EUR", "tags": "[1]"},
        {"_corrupt_record": '{"id": "b", "amount": "much"}'},
        {"_corrupt_record": "{broken"},
    ]
    assert {row["file_name"] for row in found} == {"1.json"}
    assert {row["file_size_bytes"] for row in found} == {(landing / "1.json").stat().st_size}


@pytest.mark.long
def test_columns_are_found_once_and_kept(lake_of: Callable[..., DemoLake], landing: Path) -> None:
    land(landing, "1.json", GOOD)
    lake = lake_of(files(str(landing), format="json"))
    lake.process("bronze_orders")
    land(landing, "2.json", {"id": "b", "amount": 2, "currency": "EUR"})
    lake.process("bronze_orders")
    found = sorted(rows(lake), key=lambda row: row["id"])
    assert [(row["id"], row["amount"], row["_rescued_data"]) for row in found] == [
        ("a", 1.5, None),
        ("b", 2.0, '{"currency":"EUR"}'),
    ]
    kept = json.loads((lake.settings.home / "checkpoints/bronze_orders.schema.json").read_text())
    assert [each["name"] for each in kept["fields"]] == ["amount", "id"]


def test_an_evolving_stream_takes_new_columns_in_when_it_starts(
    lake_of: Callable[..., DemoLake], landing: Path
) -> None:
    land(landing, "1.json", GOOD)
    lake = lake_of(files(str(landing), format="json", new_columns="evolve"), evolution="add columns")
    lake.process("bronze_orders")
    land(landing, "2.json", {"id": "b", "amount": 2, "currency": "EUR"})
    lake.process("bronze_orders")
    assert {row["id"]: row.get("currency") for row in rows(lake)} == {"a": None, "b": "EUR"}


def test_a_new_column_while_it_runs_ends_the_stream(lake_of: Callable[..., DemoLake], landing: Path) -> None:
    land(landing, "1.json", GOOD, {**GOOD, "currency": "EUR"})
    lake = lake_of(files(str(landing), format="json", schema=ORDER, new_columns="fail"))
    lake.runtime.start("bronze_orders")
    ended = lake.runtime.await_end("bronze_orders", timeout_s=PATIENCE_S)
    assert ended.failure
    assert f"new columns currency in files of {landing}" in ended.failure.message
    assert rows(lake) == []


@pytest.mark.long
def test_csv_parquet_text_and_binary(lake_of: Callable[..., DemoLake], landing: Path) -> None:
    made: dict[str, list[Any]] = {}
    for name, source in {
        "csv": files(str(landing / "csv"), format="csv", schema=ORDER),
        "parquet": files(str(landing / "parquet"), format="parquet"),
        "text": files(str(landing / "text")),
        "binary": files(str(landing / "binary"), format="binary"),
    }.items():
        (landing / name).mkdir()
        if name == "parquet":
            pq.write_table(pa.table({"id": ["a"], "amount": [1.5]}), landing / name / "1.parquet")
        else:
            land(landing / name, "1", *(["id,amount", "a,1.5", "b,much"] if name == "csv" else ["a line"]))
        lake = lake_of(source, location=str(landing.parent / f"made_{name}"))
        lake.process("bronze_orders")
        found = lake.runtime.session.read.format("delta").load(str(landing.parent / f"made_{name}"))
        made[name] = [tuple(row) for row in found.drop("file_name", "file_size_bytes", "file_modified_at").collect()]
        for each in ("checkpoints/bronze_orders", "checkpoints/bronze_orders.schema.json"):
            gone = lake.settings.home / each
            gone.rename(gone.with_name(f"{name}_{gone.name}")) if gone.exists() else None
    assert made == {
        "csv": [("a", 1.5, None), ("b", None, "b,much")],
        "parquet": [("a", 1.5)],
        "text": [("a line",)],
        "binary": [(b"a line\n",)],
    }


def test_read_files_are_moved_away(lake_of: Callable[..., DemoLake], landing: Path, tmp_path: Path) -> None:
    lake = lake_of(
        files(str(landing), format="json", schema=ORDER, done=str(tmp_path / "archive"), max_files_per_trigger=1)
    )
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
    shop = Pipeline("shop")
    shop.streaming_table("bronze_orders", source=files(str(landing), format="json"))(same)
    found = Analysis(Registry(shop.streams), spark, load_settings(home=tmp_path)).run()
    assert [(each.message, each.hint) for each in found.problems] == [
        (f"there is no file in {landing} to find columns in", "give schema=…, or land a first file")
    ]
