"""Files that land on S3, with tables and checkpoints there: each row once, whatever is killed, and new columns."""

import io
import json
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backend.lake.lake import Lake
from backend.stream_model.backlog import Backlog
from backend.streams.backlog.reader import BacklogReader
from tests.worlds.lake.object_store import client, list_keys, make_bucket, server_url, storage_options
from tests.worlds.processes import kill_hard
from tests.worlds.spark.host_process import FAST, World, now

pytestmark = [pytest.mark.spark, pytest.mark.ci, pytest.mark.timeout(600)]
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
