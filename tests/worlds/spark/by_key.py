"""A table of a sink that applies changes by key, and what it holds after some batches."""

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame

from pipelines.sinks.commits import stamp
from pipelines.spark.tables import create_table
from pipelines.specs.sinks import CHANGE, Sink, Target
from pipelines.specs.tables import TableSpec


def written(
    sink: Sink, folder: Path, empty: DataFrame, *batches: DataFrame, partition_cols: Sequence[str] = ()
) -> DataFrame:
    """The sink's table, made in this folder for the columns of `empty`, once it took these batches in turn."""
    spark, rows = empty.sparkSession, empty.drop(CHANGE).schema
    table = TableSpec("silver_orders", "silver", partition_cols=tuple(partition_cols))
    tables = (table, *sink.beside(table))
    target = Target("silver_orders", table, {each.name: str(folder / each.name) for each in tables})
    create_table(spark, table, sink.table_schema(rows), target.uri)
    for each in tables[1:]:
        create_table(spark, each, sink.beside_schema(rows), target.uris[each.name])
    try:
        for number, batch in enumerate(batches):
            stamp(spark, "silver_orders", number)
            sink.write(batch, target)
    finally:  # the session is shared
        for key in ("write.txnAppId", "write.txnVersion", "commitInfo.userMetadata"):
            spark.conf.unset(f"spark.databricks.delta.{key}")
    return spark.read.format("delta").load(target.uri)
