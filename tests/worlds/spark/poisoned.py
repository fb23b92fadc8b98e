"""Four streams, declared as a user would: two of the demo, at a quicker pace, and two that cannot work.

One of those fails on its rows, the other before it starts.
"""

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backend.settings import Settings
from pipelines import Pipeline, table
from pipelines.demo.streams import events

SOUND = ("bronze_events", "silver_events")

poisoned = Pipeline("poisoned")


@poisoned.streaming_table("poisoned_rows", source=table("bronze_events"), trigger="2 seconds", schema="raw STRING")
def poisoned_rows(rows: DataFrame) -> DataFrame:
    """Cannot work."""
    return rows.select(F.raise_error(F.lit("this row is poison")).cast("string").alias("raw"))


@poisoned.streaming_table("poisoned_start", source=table("bronze_events"), trigger="2 seconds", schema="raw STRING")
def poisoned_start(rows: DataFrame) -> DataFrame:
    """Cannot work."""
    raise ValueError("no such colour")


def pipelines(settings: Settings) -> list[Pipeline]:
    sound = [replace(each, trigger_interval_s=2.0) for each in events.streams if each.name in SOUND]
    return [Pipeline("sound", sound), poisoned]
