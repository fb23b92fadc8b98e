"""Declaring streams: `from pipelines import Pipeline, expect, files, kafka, rate, table, append, complete, upsert, …`.

Rule: importing this package imports no Spark. The demo's generator lies below it and must start fast.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.declare.cdc import children, debezium, flatten
    from pipelines.declare.pipeline import Pipeline
    from pipelines.sinks.by_key import history, update, upsert
    from pipelines.sinks.commits import append, complete, foreach_batch
    from pipelines.sinks.kafka_topic import kafka_topic
    from pipelines.sinks.postgres_table import postgres_table
    from pipelines.sources.files import files
    from pipelines.sources.kafka import kafka
    from pipelines.sources.spark import jdbc, rate, spark_source, table
    from pipelines.specs.ends import into, secret
    from pipelines.specs.expectations import expect, fresh, references, rows_per_day, unique

__all__ = [
    "Pipeline",
    "append",
    "children",
    "complete",
    "debezium",
    "expect",
    "files",
    "flatten",
    "foreach_batch",
    "fresh",
    "history",
    "into",
    "jdbc",
    "kafka",
    "kafka_topic",
    "postgres_table",
    "rate",
    "references",
    "rows_per_day",
    "secret",
    "spark_source",
    "table",
    "unique",
    "update",
    "upsert",
]

_MODULES = {
    "pipelines.declare.cdc": ("children", "debezium", "flatten"),
    "pipelines.declare.pipeline": ("Pipeline",),
    "pipelines.sinks.by_key": ("history", "update", "upsert"),
    "pipelines.sinks.commits": ("append", "complete", "foreach_batch"),
    "pipelines.sinks.kafka_topic": ("kafka_topic",),
    "pipelines.sinks.postgres_table": ("postgres_table",),
    "pipelines.sources.files": ("files",),
    "pipelines.sources.kafka": ("kafka",),
    "pipelines.sources.spark": ("jdbc", "rate", "spark_source", "table"),
    "pipelines.specs.ends": ("into", "secret"),
    "pipelines.specs.expectations": ("expect", "fresh", "references", "rows_per_day", "unique"),
}


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
