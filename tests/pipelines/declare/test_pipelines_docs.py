"""docs/pipelines.md and its neighbours: every block is declared and planned as printed, every command understood."""

import re
import shlex
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from app.cli import main
from backend.settings import load_settings
from pipelines import Pipeline, rate
from pipelines.declare.check import find_problems
from pipelines.spark.tables import Analysis
from tests.worlds.processes import free_port
from tests.worlds.spark.declared import DOCS, registry_of, without_rows

TEXT = DOCS.read_text(encoding="utf-8")
BESIDE = [DOCS.with_name(name).read_text(encoding="utf-8") for name in ("expectations.md", "export.md")]
# Tables that a block reads and another one, or a reader's own, declares.
TABLES = {
    "bronze_clicks": "click_id STRING, clicked_at TIMESTAMP",
    "bronze_customers": "key BINARY, value BINARY",
    "bronze_orders": "order_id STRING, op STRING, amount DOUBLE, lsn BIGINT",
    "bronze_people": "key BINARY, value BINARY",
    "silver_customers": "id BIGINT, customer_id BIGINT, name STRING",
    "silver_orders": "order_id STRING, customer_id BIGINT, country_id BIGINT, amount DOUBLE, ordered_at TIMESTAMP",
    "silver_payments": "paid_order_id STRING, paid_at TIMESTAMP",
}


def blocks(language: str) -> list[object]:
    """Each with the heading that it stands under."""
    parts = re.split(r"^```(\w*)\n", "\n".join([TEXT, *BESIDE]), flags=re.MULTILINE)
    found, heading = [], ""
    for before, kind, block in zip(parts[::2], parts[1::2], parts[2::2], strict=False):
        heading = next(reversed(re.findall(r"^#+ (.+)$", before, re.MULTILINE)), heading)
        if kind == language:
            found.append(pytest.param(block, id=f"{heading} {len(found)}"))
    return found


@pytest.mark.spark
@pytest.mark.parametrize("block", blocks("python"))
def test_every_block_can_be_declared_and_planned(
    block: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "sesam-of-the-shop")
    port, names = free_port(), dict[str, object](shop=Pipeline("shop"))
    printed = block.replace("@db:5432", "@db").replace("//db:5432", f"//127.0.0.1:{port}")
    exec(compile(printed, str(DOCS), "exec"), names)
    shop = names["shop"]
    assert isinstance(shop, Pipeline)
    if "expectations" in names:
        shop.streaming_table("silver_judged", source=rate(), expectations=names["expectations"])(  # type: ignore[arg-type]
            lambda rows: rows.selectExpr("'a' AS order_id", "1L AS customer_id", "2.5D AS amount")
        )
    assert shop.streams or shop.expected, "it declares nothing"
    written = {table.name for stream in shop.streams for table in stream.writes}
    read = [name for stream in shop.streams for name in stream.reads] + [each.table for each in shop.expected]
    for name in dict.fromkeys([*read, *(["silver_customers"] if shop.expected else [])]):
        if name not in written and "/" not in name:
            shop.streaming_table(name, source=rate())(without_rows(TABLES[name]))
    registry = registry_of(shop)
    assert find_problems(registry) == ()
    problems = Analysis(registry, spark, load_settings(home=tmp_path)).run().problems
    outside = [f"jdbc: public.countries at postgresql://127.0.0.1:{port}/shop cannot be read"] * ("jdbc(" in block)
    assert [problem.message[: len(outside[0])] if outside else str(problem) for problem in problems] == outside


@pytest.mark.parametrize("block", blocks("sh"))
def test_every_command_is_understood(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    commands = [line[1:] for line in lines if line[:1] == ["weir"]]
    assert commands
    for command in commands:
        with pytest.raises(SystemExit) as ended:
            main([*command, "--help"])
        assert ended.value.code in (0, None), command
