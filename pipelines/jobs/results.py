"""What comparisons and queries share on Spark: settings for what they read, and the small table that they leave."""

from pyspark.sql import DataFrame, SparkSession

from pipelines.jvm.hadoop import spark_uri

_BYTES_A_TASK, _MOST_TASKS = 64 * 1024**2, 2_000


def tune(session: SparkSession, size_bytes: int, compiled_bytes: int) -> None:
    """Streams on a local master are tuned for a hundred rows; a job reads what it reads."""
    if size_bytes < compiled_bytes:
        return
    tasks = min(_MOST_TASKS, size_bytes // _BYTES_A_TASK)
    for key, value in {
        "spark.sql.shuffle.partitions": str(max(tasks, int(session.conf.get("spark.sql.shuffle.partitions") or 2))),
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "FALLBACK",
        "spark.sql.adaptive.enabled": "true",
    }.items():
        session.conf.set(key, value)


def write_result(session: SparkSession, rows: DataFrame, uri: str) -> None:
    """Another version of the result."""
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")  # INT96 is read as of 1677 to 2262
    writer = rows.coalesce(1).write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    # Nested fields may be called what Delta stores under another name only.
    writer.option("delta.columnMapping.mode", "name").save(spark_uri(uri))
