"""Rows that break a quarantining expectation: beside the stream's table, with the reason, each exactly once."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StringType, StructType, TimestampType

from backend.streams.requeue.request import REASON
from pipelines.jvm.failures import SpecError
from pipelines.sinks.commits import append_rows
from pipelines.specs.expectations import BROKEN


def quarantine_schema(rows: StructType) -> StructType:
    """The row as the function returned it, the rules it breaks, the stream, the batch and when; raises `SpecError`
    where both have a column of one name."""
    if taken := [name for name in rows.names if name.lower() in REASON]:
        raise SpecError(f"the function returns {', '.join(taken)}", hint="its quarantine adds it: rename")
    kinds = (ArrayType(StringType()), StringType(), LongType(), TimestampType())
    kept = StructType(list(rows.fields))
    for name, kind in zip(REASON, kinds, strict=True):
        kept.add(name, kind)
    return kept


def append_broken(broken: DataFrame, uri: str, *, stream: str, batch_id: int) -> None:
    """Add rows that break an expectation to the quarantine, with the reason."""
    reason = (F.col(BROKEN), F.lit(stream), F.lit(batch_id).cast("bigint"), F.current_timestamp())
    append_rows(broken.withColumns(dict(zip(REASON, reason, strict=True))), uri)
