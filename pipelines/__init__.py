"""Declaring streams: `from pipelines import Pipeline, expect, files, kafka, rate, table, append, complete, upsert, …`.

Rule: importing this package imports no Spark. The demo's generator lies below it and must start fast.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.declare.cdc import children, debezium, flatten
    from pipelines.declare.pipeline import Pipeline
    from pipelines.sinks.append import append, complete
    from pipelines.sinks.foreach_batch import foreach_batch
    from pipelines.sinks.history import history
    from pipelines.sinks.kafka_topic import kafka_topic
    from pipelines.sinks.postgres_table import postgres_table
    from pipelines.sinks.upsert import update, upsert
    from pipelines.sources.delta import table
    from pipelines.sources.files import files
    from pipelines.sources.jdbc import jdbc
    from pipelines.sources.kafka import kafka
    from pipelines.sources.rate import rate
    from pipelines.sources.spark import spark_source
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
    **dict.fromkeys(("append", "complete"), "pipelines.sinks.append"),
    "history": "pipelines.sinks.history",
    "into": "pipelines.specs.ends",
    **dict.fromkeys(("update", "upsert"), "pipelines.sinks.upsert"),
    "files": "pipelines.sources.files",
    "foreach_batch": "pipelines.sinks.foreach_batch",
    "jdbc": "pipelines.sources.jdbc",
    "kafka": "pipelines.sources.kafka",
    "kafka_topic": "pipelines.sinks.kafka_topic",
    "postgres_table": "pipelines.sinks.postgres_table",
    "rate": "pipelines.sources.rate",
    "secret": "pipelines.specs.ends",
    "spark_source": "pipelines.sources.spark",
    "table": "pipelines.sources.delta",
    **dict.fromkeys(("fresh", "references", "rows_per_day", "unique"), "pipelines.specs.expectations"),
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
