"""Order changes that arrive late, twice or after a deletion: the log position decides, not the arrival."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.worlds.spark.lakes import DemoLake, demo_lake

pytestmark = [pytest.mark.spark, pytest.mark.ci]

ORDERS = ("bronze_orders", "silver_orders")
STREAMS = (*ORDERS, "gold_orders_by_status")


def row(order_id: str, status: str) -> dict[str, Any]:
    return {"order_id": order_id, "customer_id": "user-1", "status": status, "amount": 10.5}


def change(op: str, order_id: str, status: str, *, lsn: int) -> dict[str, Any]:
    image = row(order_id, status)
    before, after = (image, None) if op == "d" else (None, image)
    return {"op": op, "before": before, "after": after, "ts_ms": 1_700_000_000_000 + lsn, "source": {"lsn": lsn}}


def land(lake: DemoLake, name: str, *changes: dict[str, Any]) -> None:
    text = "".join(f"{json.dumps(each)}\n" for each in changes)
    (lake.settings.home / "landing/orders" / name).write_text(text)


def orders(lake: DemoLake) -> dict[str, tuple[str, int]]:
    return {each.order_id: (each.status, each.lsn) for each in lake.rows("silver/silver_orders")}


def test_no_order_moves_backwards_and_no_deleted_one_comes_back(spark: SparkSession, tmp_path: Path) -> None:
    lake = demo_lake(tmp_path, streams=STREAMS)
    land(
        lake,
        "1.jsonl",
        change("u", "early", "paid", lsn=20),  # before its creation
        change("c", "gone", "placed", lsn=11),
        change("d", "gone", "placed", lsn=30),
        change("c", "kept", "placed", lsn=12),
    )
    lake.process(*ORDERS)
    assert orders(lake) == {"early": ("paid", 20), "kept": ("placed", 12)}
    land(
        lake,
        "2.jsonl",
        change("c", "early", "placed", lsn=10),  # overtaken: must not win
        change("u", "gone", "paid", lsn=21),  # older than its deletion
        change("c", "gone", "placed", lsn=11),  # replayed
        change("d", "never_seen", "placed", lsn=40),
        change("u", "kept", "paid", lsn=41),
        {"op": "u", "source": {"lsn": 42}},  # no row in it: counted, left out
    )
    lake.process(*ORDERS)
    assert orders(lake) == {"early": ("paid", 20), "kept": ("paid", 41)}
    land(
        lake,
        "3.jsonl",
        change("c", "never_seen", "placed", lsn=39),  # its deletion came first
        change("c", "gone", "placed", lsn=50),  # created anew, later
        change("d", "kept", "paid", lsn=51),
    )
    lake.process(*STREAMS)
    assert orders(lake) == {"early": ("paid", 20), "gone": ("placed", 50)}
    by_status = {each.status: each.orders for each in lake.rows("gold/gold_orders_by_status")}
    assert by_status == {"paid": 1, "placed": 1}
    failed = [p["observedMetrics"]["expectations"]["envelope_complete_failed"] for p in progress_of(lake)]
    assert sum(failed) == 1


def progress_of(lake: DemoLake) -> list[dict[str, Any]]:
    return [p for p in lake.heard.progress if p["name"] == "silver_orders" and p["numInputRows"]]
