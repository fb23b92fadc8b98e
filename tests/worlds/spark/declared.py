"""Streams declared in a line or two, and what a check says of them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backend.settings import load_settings
from pipelines import Pipeline
from pipelines.declare.check import find_problems
from pipelines.specs.ends import Sink, Target
from pipelines.specs.streams import Registry
from tests.worlds.spark.lakes import DemoLake, open_lake

Function = Callable[[DataFrame], DataFrame]
DOCS = Path(__file__).parents[3] / "docs" / "pipelines.md"


def same(rows: DataFrame) -> DataFrame:
    return rows


def without_rows(columns: str) -> Function:
    """A function that returns these columns, such as "id BIGINT, name STRING", whatever it reads."""
    parts = [column.split(" ") for column in columns.split(", ")]

    def function(rows: DataFrame) -> DataFrame:
        return rows.select(*(F.lit(None).cast(kind).alias(name) for name, kind in parts))

    return function


def pipeline_of(source: Any, function: Function = same, *, name: str = "bronze_orders", **about: Any) -> Pipeline:
    """A pipeline with one stream that reads this source."""
    pipeline = Pipeline("shop")
    pipeline.streaming_table(name, source=source, **about)(function)
    return pipeline


def lake_of(home: Path, source: Any, function: Function = same, **about: Any) -> DemoLake:
    """An open lake with that stream, which reads what is there and ends."""
    pipeline = pipeline_of(source, function, **{"trigger": "available now", **about})
    assert not pipeline.problems
    return open_lake(load_settings(home=home), *pipeline.streams)


def registry_of(pipeline: Pipeline) -> Registry:
    return Registry(pipeline.streams, pipeline.views, pipeline.problems, pipeline.expected)


def problems_of(pipeline: Pipeline) -> list[str]:
    return [f"{problem.name}: {problem.message}" for problem in find_problems(registry_of(pipeline))]


@dataclass
class Dying:
    """A sink at which the host dies once, before its rows are written or after; counts the writes."""

    sink: Sink
    after: bool = True
    writes: int = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.sink, name)

    def write(self, batch: DataFrame, target: Target) -> None:
        self.writes += 1
        if self.after or self.writes > 1:
            self.sink.write(batch, target)
        if self.writes == 1:
            raise RuntimeError("died between two writes")
