"""A user's module, named in settings and nowhere else: checked, run by a real host, asked by the command line."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from backend.stream_model.stream import StreamState
from tests.worlds.lake import builders
from tests.worlds.processes import wait_until
from tests.worlds.spark.declared import DOCS
from tests.worlds.spark.host_process import FAST, World

pytestmark = [pytest.mark.spark, pytest.mark.ci, pytest.mark.timeout(900)]

STREAMS = ("bronze_orders", "silver_orders", "gold_orders")


def shop_of_the_docs(folder: Path) -> str:
    """The module that docs/pipelines.md prints first, reading this folder."""
    text = DOCS.read_text().split("```python\n", 1)[1].split("```", 1)[0]
    assert "/data/orders" in text
    return text.replace("/data/orders", str(folder))


def change(order_id: str, op: str, amount: float | None, lsn: int) -> str:
    return json.dumps({"order_id": order_id, "op": op, "amount": amount, "lsn": lsn})


def land(world: World, name: str, *lines: str) -> None:
    half = world.home / "landing" / f".{name}"
    half.write_text("".join(f"{line}\n" for line in lines))
    half.rename(half.with_name(name))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    home = tmp_path_factory.mktemp("shop")
    (home / "landing").mkdir()
    (home / "modules").mkdir()
    theirs = builders.write(home / "lake" / "crm" / "customers", {"id": [1, 2, 2]})
    expected = (
        "from pipelines import fresh, unique\n"
        'shop.expect_table("silver_orders", unique("order_id"), fresh("1 hour"))\n'
        f'shop.expect_table("{theirs}", unique("id"))\n'
    )
    (home / "modules/shop.py").write_text(shop_of_the_docs(home / "landing") + expected)
    # A view's first look at its inputs starts a Python worker, which Spark gives up after 10 s.
    env = {
        **FAST,
        "WEIR_HOST__MAX_RESTARTS": "20",
        "WEIR_HOST__FRESHNESS_INTERVAL_S": "1",
        "WEIR_HOST__EXPECTATIONS_INTERVAL_S": "1",
        "PYTHONPATH": str(home / "modules"),
        "WEIR_HOST__PIPELINES": '["shop"]',
    }
    with closing(World(home, env, STREAMS)) as opened:
        yield opened


def weir(world: World, *arguments: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, **world.env, "WEIR_HOME": str(world.home)}
    command = [sys.executable, "-m", "app.cli", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)


def rows(world: World, table: str) -> list[dict[str, Any]]:
    return world.rows(table).to_pylist() if (world.home / "lake" / table / "_delta_log").exists() else []


def commits(world: World, table: str) -> int:
    return len(list((world.home / "lake" / table / "_delta_log").glob("*.json")))


def test_the_check_names_file_and_line_of_all_that_is_wrong(world: World) -> None:
    sound = weir(world, "pipelines", "check", "--json")
    assert (sound.returncode, json.loads(sound.stdout)) == (0, {"ok": True, "problems": []})
    text = (world.home / "modules/shop.py").read_text()
    wrong = text.replace('trigger="5 seconds"', 'trigger="soon"').replace('table("bronze_orders")', 'table("bronze")')
    (world.home / "modules/wrong.py").write_text(wrong)
    answer = weir(world, "pipelines", "check", "wrong", "--json")
    problems, lines = json.loads(answer.stdout)["problems"], wrong.splitlines()
    assert answer.returncode == 2
    assert [problem["name"] for problem in problems] == ["bronze_orders", "silver_orders", "silver_orders"]
    for problem in problems:
        assert problem["file"].endswith("wrong.py")
        assert lines[problem["line"] - 1].startswith("@shop.streaming_table")
    assert weir(world, "pipelines", "check", "no_such_module").returncode == 2


def test_it_runs_by_settings_alone_and_is_asked_by_the_command_line(world: World) -> None:
    land(world, "1.json", change("a", "c", 5, 1), change("b", "c", 7, 2), change("c", "c", -1, 3))
    world.host()
    world.until_state(StreamState.RUNNING)
    wait_until(lambda: rows(world, "gold/gold_orders") == [{"sum(amount)": 12.0, "count(1)": 2}], "gold")
    assert [(row["order_id"], row["amount"]) for row in rows(world, "silver/silver_orders_quarantine")] == [("c", -1.0)]
    assert {row["file_name"] for row in rows(world, "bronze/bronze_orders")} == {"1.json"}

    before = commits(world, "gold/gold_orders")
    land(world, "2.json", change("a", "u", 6, 4), change("b", "d", None, 5), change("a", "c", 1, 0))
    wait_until(lambda: rows(world, "gold/gold_orders") == [{"sum(amount)": 6.0, "count(1)": 1}], "gold")
    moved = commits(world, "silver/silver_orders")
    assert commits(world, "gold/gold_orders") - before <= moved, "computed when silver has moved on, and not before"
    the_graph_says_what_feeds_what(world)
    the_host_judges_tables_that_it_writes_and_those_of_others(world)


def the_graph_says_what_feeds_what(world: World) -> None:
    graph = json.loads(weir(world, "pipelines", "graph", "--json").stdout)
    nodes = {node["name"]: (node["kind"], node["layer"], node["state"]) for node in graph["nodes"]}
    landing = f"files in {world.home / 'landing'}"
    assert nodes == {
        landing: ("files", None, None),
        "bronze_orders": ("streaming table", "bronze", "RUNNING"),
        "silver_orders": ("streaming table", "silver", "RUNNING"),
        "gold_orders": ("materialized view", "gold", "RUNNING"),
        "silver_orders_tombstones": ("table", "silver", None),
        "silver_orders_quarantine": ("table", "silver", None),
    }
    rates = {(edge["source"], edge["target"]): edge["rows_per_min"] for edge in graph["edges"]}
    silver = {
        ("silver_orders", name) for name in ("gold_orders", "silver_orders_tombstones", "silver_orders_quarantine")
    }
    assert rates.keys() == {(landing, "bronze_orders"), ("bronze_orders", "silver_orders")} | silver
    assert rates[(landing, "bronze_orders")] > 0


def the_host_judges_tables_that_it_writes_and_those_of_others(world: World) -> None:
    def verdicts() -> dict[tuple[str, str], tuple[str, int | None]]:
        answer = json.loads(weir(world, "expectations", "--json").stdout)
        assert not any(row["is_stale"] for row in answer)
        return {(row["table"], row["expectation"]): (row["state"], row["broken_keys"]) for row in answer}

    expected = {
        ("silver/silver_orders", "unique(order_id)"): ("met", 0),
        ("silver/silver_orders", "fresh"): ("met", None),
        ("crm/customers", "unique(id)"): ("broken", 1),
    }
    wait_until(lambda: verdicts() == expected, lambda: str(verdicts()))
    broken = weir(world, "expectations", "crm/customers")
    assert broken.returncode == 1 and "1 key is repeated, in 2 rows: 2" in broken.stdout
