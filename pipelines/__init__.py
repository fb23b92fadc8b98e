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
    "Pipeline": "pipelines.declare.pipeline",
    **dict.fromkeys(("children", "debezium", "flatten"), "pipelines.declare.cdc"),
    "expect": "pipelines.specs.expectations",
    **dict.fromkeys(("append", "complete"), "pipelines.sinks.commits"),
    "history": "pipelines.sinks.by_key",
    "into": "pipelines.specs.ends",
    **dict.fromkeys(("update", "upsert"), "pipelines.sinks.by_key"),
    "files": "pipelines.sources.files",
    "foreach_batch": "pipelines.sinks.commits",
    "jdbc": "pipelines.sources.spark",
    "kafka": "pipelines.sources.kafka",
    "kafka_topic": "pipelines.sinks.kafka_topic",
    "postgres_table": "pipelines.sinks.postgres_table",
    "rate": "pipelines.sources.spark",
    "secret": "pipelines.specs.ends",
    "spark_source": "pipelines.sources.spark",
    "table": "pipelines.sources.spark",
    **dict.fromkeys(("fresh", "references", "rows_per_day", "unique"), "pipelines.specs.expectations"),
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
