"""Four streams, declared as a user would: two of the demo, at a quicker pace, and two that cannot work.

One of those fails on its rows, the other before it starts.
"""

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backend.settings import Settings
from pipelines.demo.streams import declare
from pipelines.demo.tables import BRONZE_EVENTS
from pipelines.sinks import AppendSink
from pipelines.sources import DeltaSource
from pipelines.spec import Registry, StreamSpec
from pipelines.tables import Column, TableSpec

SOUND = ("bronze_events", "silver_events")


def register(registry: Registry, settings: Settings) -> None:
    demo = Registry()
    declare(demo, settings)
    for sound in SOUND:
        registry.add(replace(demo.get(sound), trigger_interval_s=2.0))
    for name, transform in (("poisoned_rows", _bad_rows), ("poisoned_start", _bad_start)):
        registry.add(StreamSpec(name, "Cannot work", DeltaSource(BRONZE_EVENTS), transform, _sink(name), 2.0))


def _bad_rows(events: DataFrame) -> DataFrame:
    return events.select(F.raise_error(F.lit("this row is poison")).cast("string").alias("raw"))


def _bad_start(events: DataFrame) -> DataFrame:
    raise ValueError("no such colour")


def _sink(name: str) -> AppendSink:
    return AppendSink(TableSpec(name, "silver", "", (Column("raw", "STRING"),)))
