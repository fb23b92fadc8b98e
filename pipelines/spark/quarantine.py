"""Rows that break a quarantining expectation: beside the stream's table, with the reason, each exactly once."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StringType, StructType, TimestampType

from pipelines.declare.expectations import BROKEN
from pipelines.sinks.base import append_rows


def quarantine_schema(rows: StructType) -> StructType:
    """The row as the function returned it, the rules it breaks, the stream, the batch and when."""
    kept = StructType(list(rows.fields))
    kept.add("broken_expectations", ArrayType(StringType())).add("stream", StringType())
    return kept.add("batch_id", LongType()).add("quarantined_at", TimestampType())


def append_broken(broken: DataFrame, uri: str, *, stream: str, batch_id: int) -> None:
    """Add rows that break an expectation to the quarantine, with the reason."""
    reason = {
        "broken_expectations": F.col(BROKEN),
        "stream": F.lit(stream),
        "batch_id": F.lit(batch_id).cast("bigint"),
        "quarantined_at": F.current_timestamp(),
    }
    append_rows(broken.withColumns(reason), uri)
