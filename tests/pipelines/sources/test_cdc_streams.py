"""Streams that unwrap a database's changes: what is no change is a dead letter beside the table, and a check tells what
cannot work.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import pipelines
from backend.settings import load_settings
from pipelines import debezium, files, flatten, upsert
from pipelines.declare.pipeline import calls
from pipelines.spark.analysis import Analysis
from tests.worlds.spark.declared import pipeline_of, registry_of, same
from tests.worlds.spark.lakes import open_lake

pytestmark = pytest.mark.spark

BY_KEY: dict[str, Any] = {"keys": ["id"], "sequence": "position", "deleted": "op = 'd'", "except_columns": ["op"]}


def change(row: Any, lsn: int) -> str:
    return json.dumps({"op": "c", "after": row, "source": {"lsn": lsn}, "ts_ms": 1})


def unwrapped(rows: DataFrame, **more: Any) -> DataFrame:
    return debezium(rows, "id BIGINT, amount INT", **more)


LINES = [
    change({"id": 1, "amount": 5}, 1),
    change({"id": 2, "amount": "many"}, 2),
    '{"ts_ms": 1}',
    "{",
    change({"amount": 7}, 3),
    '{"id": 4, "amount": 9}',
]


def test_what_is_no_change_is_a_dead_letter(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0").write_text("\n".join(LINES))
    about: dict[str, Any] = {"name": "silver_orders", "trigger": "available now", "sink": upsert(**BY_KEY)}
    pipeline = pipeline_of(files("in", format="text"), lambda rows: flatten(unwrapped(rows)), **about)
    lake = open_lake(load_settings(home=tmp_path), *pipeline.streams)
    lake.process("silver_orders")
    assert [(row.id, row.amount) for row in lake.rows("silver/silver_orders")] == [(1, 5)]
    reasons = {bytes(row.value).decode(): row.reason for row in lake.rows("silver/silver_orders_dead_letters")}
    assert reasons == {
        LINES[1]: "does not fit the schema: amount int",
        LINES[3]: "not JSON, or more than one value",
        LINES[4]: "neither its row nor its key says whose change it is",
        LINES[5]: "no envelope of Debezium: it has no op",
    }


def test_a_stream_ends_at_what_does_not_fit_where_that_is_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0").write_text(LINES[0])
    about: dict[str, Any] = {"name": "silver_orders", "trigger": "available now", "sink": upsert(**BY_KEY)}
    pipeline = pipeline_of(files("in", format="text"), lambda rows: unwrapped(rows, misfit="fail"), **about)
    lake = open_lake(load_settings(home=tmp_path), *pipeline.streams)
    lake.process("silver_orders")
    (tmp_path / "in" / "1").write_text(LINES[4])
    lake.runtime.start("silver_orders")
    failure = lake.ended("silver_orders").failure
    assert failure is not None
    assert "a record of 1 cannot be taken: neither its row nor its key says whose change it is" in failure.message
    assert [(row.id, row.amount) for row in lake.rows("silver/silver_orders")] == [(1, 5)]


def test_a_unit_that_nobody_declared_ends_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0").write_text(change({"id": 1, "at": 1_700_000_000_123}, 1))
    about: dict[str, Any] = {"name": "silver_orders", "trigger": "available now", "sink": upsert(**BY_KEY)}
    source = files("in", format="text")
    pipeline = pipeline_of(source, lambda rows: debezium(rows, "id BIGINT, at TIMESTAMP"), **about)
    lake = open_lake(load_settings(home=tmp_path), *pipeline.streams)
    lake.runtime.start("silver_orders")
    failure = lake.ended("silver_orders").failure
    assert failure is not None
    assert "a record of 0 cannot be taken: does not fit the schema: at timestamp (say times=…?)" in failure.message


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda rows: debezium(rows, "id BIGINT, position INT"), "the row has position, which debezium adds"),
        (lambda rows: unwrapped(rows).select("id", "op", "position"), "the function leaves out _weir_change"),
        (lambda rows: unwrapped(rows), ""),
    ],
)
def test_a_check_tells_what_cannot_work(spark: SparkSession, tmp_path: Path, function: Any, problem: str) -> None:
    pipeline = pipeline_of(files("in", format="text"), function, name="silver_orders", sink=upsert(**BY_KEY))
    analysis = Analysis(registry_of(pipeline), spark, load_settings(home=tmp_path)).run()
    messages = {each.message for each in analysis.problems}
    assert all(problem in message for message in messages) and bool(messages) == bool(problem)


def through_module(rows: DataFrame) -> DataFrame:
    return pipelines.debezium(rows, "id BIGINT")


def test_a_function_that_unwraps_is_known_by_what_it_calls() -> None:
    inner = lambda rows: unwrapped(rows)  # noqa: E731
    within = lambda rows: [inner(each) for each in rows]  # noqa: E731
    run: dict[str, Any] = {"debezium": debezium}
    exec("def from_text(rows): return debezium(rows, 'id BIGINT')", run)
    assert run["from_text"].__module__ is None and calls(run["from_text"], debezium)
    assert all(
        calls(each, debezium) for each in (unwrapped, through_module, inner, within, partial(unwrapped, keep=()))
    )
    assert not any(calls(each, debezium) for each in (flatten, change, partial(flatten, separator="."), same))
