"""A bad batch from the notice on the overview to the rewind that takes it out, by page alone, before a real host.

That mended code then makes the tables as if it had never come, `tests/pipelines/jobs/test_reset.py` shows.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from backend.access import Actor
from backend.stream_model.stream import StreamState
from tests.worlds.browser.viewer import Viewer
from tests.worlds.browser.weir import pages_over
from tests.worlds.processes import wait_until
from tests.worlds.spark.host_process import FAST, World, now

pytestmark = [pytest.mark.browser, pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]

SALE = ("id", "country", "amount")
STREAMS = ("bronze_sales", "silver_sales", "gold_sales")
SILVER = "silver/silver_sales"
MODULE = """
from pyspark.sql import functions as F

from pipelines import Pipeline, complete, files, table

shop = Pipeline("shop")


SALE = "id BIGINT, country STRING, amount STRING"
FEED = {{"delta.enableChangeDataFeed": "true"}}


@shop.streaming_table("bronze_sales", source=files("{landing}", format="json", schema=SALE, max_files_per_trigger=1))
def bronze_sales(rows):
    return rows


@shop.streaming_table("silver_sales", source=table("bronze_sales", maxFilesPerTrigger=1), table_properties=FEED)
def silver_sales(rows):
    return rows.withColumn("amount", F.col("amount").cast("double"))


@shop.streaming_table("gold_sales", source=table("silver_sales").changes(), sink=complete())
def gold_sales(changes):
    sign = F.when(F.col("_change_type") == "delete", -1).otherwise(1)
    return changes.groupBy("country").agg(F.sum(sign).alias("sales"), F.sum(sign * F.col("amount")).alias("amount"))
"""


def sale(number: int) -> dict[str, Any]:
    return {"id": number, "country": ("ES", "NL")[number % 2], "amount": 20.0 + number}


GOOD = [[sale(n), sale(n + 1)] for n in range(0, 12, 2)]
IN_CENTS = [sale(n) | {"amount": 100 * (20.0 + n)} for n in range(12, 15)]
DAYS = [*GOOD, IN_CENTS, [sale(n) for n in range(15, 18)]]


@pytest.fixture
def shop(browser_type_launch_args: object, tmp_path: Path) -> Iterator[World]:
    (tmp_path / "landing").mkdir()
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "shop.py").write_text(MODULE.format(landing=tmp_path / "landing"))
    env = {**FAST, "PYTHONPATH": str(tmp_path / "modules"), "WEIR_HOST__PIPELINES": '["shop"]'}
    with closing(World(tmp_path, env, STREAMS)) as opened:
        yield opened


def rows(world: World, name: str, *columns: str) -> list[dict[str, Any]]:
    """In their order by text; of all columns, or of some."""
    there = (world.home / "lake" / name / "_delta_log" / f"{0:020}.json").exists()
    found = world.rows(name) if there else None
    return [] if found is None else sorted(found.select(columns or found.column_names).to_pylist(), key=str)


def land(world: World) -> None:
    """A file a day, each a batch of its own, whose rows have all come to gold."""
    for day, sold in enumerate(DAYS):
        draft = world.home / "landing" / f".{day}.json"
        draft.write_text("".join(f"{json.dumps(each)}\n" for each in sold))
        os.utime(draft, (day, day))
        draft.rename(world.home / "landing" / f"{day}.json")
    count = sum(map(len, DAYS))
    world.until(lambda: sum(row["sales"] for row in rows(world, "gold/gold_sales")) == count, f"{count} sales in gold")


def test_a_bad_batch_is_noticed_found_and_rewound(page: Page, shop: World) -> None:
    shop.host()
    land(shop)
    with pages_over(shop.home, **shop.env) as weir:
        viewer = Viewer(page, weir)
        viewer.open()
        viewer.sees(re.compile(r"highest amount 31 → 3,400 at v\d+, .* by stream silver_sales"))
        viewer.picture("overview-notice")
        for link in ("Open table", "First bad version"):  # four interactions to *Rewind…*
            viewer.click("link", re.compile(link))
        viewer.click("button", "Find first bad version")
        dialog = viewer.dialog("Rewind…")
        expect(dialog.get_by_text("silver_sales is running: stop it first")).to_be_visible()
        viewer.picture("rewind-refused")
        page.keyboard.press("Escape")

        for name in STREAMS:
            shop.store.request(name, "stop", reason="an incident", actor=Actor("ana"), now=now())
        shop.until_state(StreamState.STOPPED)
        viewer.page.reload()
        viewer.settle()
        viewer.dialog("Rewind…")
        expect(dialog.get_by_text("silver_sales goes back to the end of batch")).to_be_visible()
        expect(dialog.get_by_text("read, with the code as it is then (6 rows")).to_be_visible()
        viewer.picture("rewind")
        viewer.send("cents as euros", dialog.locator(".st-key-table_act_send button"), confirmed=SILVER)
        wait_until(lambda: [job["state"] for job in weir.json("jobs")] == ["DONE"], "it is rewound", pause_s=0.5)
        assert rows(shop, SILVER, *SALE) == sorted((sold for day in GOOD for sold in day), key=str)
        viewer.open("acts")
        viewer.click_row("Acts on tables", 0)
        viewer.sees(re.compile("Silver/silver_sales is what it was: proven", re.IGNORECASE))
        viewer.picture("rewind-done")
        assert viewer.complaints == []
