"""Tables with each feature of Delta, written by Spark itself.

Rule: a recipe is a list of steps on one new table: SQL with `{t}` for the table, or a callable of session and folder.
Values that a step makes up are fixed, so that a run can be repeated.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

Step = str | Callable[[SparkSession, Path], object]

# Of the whole session: tables of tests hold a few rows.
FEWER_TASKS = {
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "2",  # so that tables have several files
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",  # VACUUM and RESTORE start 10,000 tasks else
}

_PARTITION_COLUMNS = (
    "b BOOLEAN, y TINYINT, s SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, m DECIMAL(20, 3), dt DATE, ts TIMESTAMP, "
    "tz TIMESTAMP_NTZ, bin BINARY, x STRING"
)
_PARTITION_VALUES = (
    "true, 1Y, 2S, 3, 4L, 1.5f, 2.25d, 12345678901234567.125, DATE'2026-02-28', TIMESTAMP'2026-02-28 10:11:12.123456', "
    "TIMESTAMP_NTZ'2026-02-28 10:11:12.5', X'41FF', 'a b'",
    ", ".join(["NULL"] * 13),
    "false, -1Y, -2S, -3, -4L, float('Infinity'), double('NaN'), -0.001, DATE'1969-12-31', "
    "TIMESTAMP'1969-12-31 23:59:59', TIMESTAMP_NTZ'1900-01-01 00:00:00', X'42', 'n'",
)
_PARTITION_TEXTS = (
    "('ü =/%#?:&'), ('a\\'b\"c'), ('x%20y'), (''), (NULL), ('__HIVE_DEFAULT_PARTITION__ '), ('{{}}[]~'), ('日本')"
)


def _stream(spark: SparkSession, folder: Path) -> None:
    """Two batches of one stream into the table: commits with queryId and epochId."""
    source = folder.with_name(folder.name + "_source")
    spark.range(0, 20, 1, 2).write.format("delta").save(str(source))
    query = (
        spark.readStream.format("delta")
        .option("maxFilesPerTrigger", "1")
        .load(str(source))
        .writeStream.format("delta")
        .option("checkpointLocation", str(folder.with_name(folder.name + "_checkpoint")))
        .trigger(availableNow=True)
        .start(str(folder))
    )
    query.awaitTermination()


def _replace(spark: SparkSession, folder: Path) -> None:
    """Another schema, other partition columns and properties under the same address."""
    rows = spark.sql("SELECT 'x' AS name, 1 AS q UNION ALL SELECT 'y', 2")
    writer = rows.writeTo(f"delta.`{folder}`").using("delta").tableProperty("kept", "no")
    writer.partitionedBy(F.col("q")).replace()


def _overwrite_schema(spark: SparkSession, folder: Path) -> None:
    rows = spark.sql("SELECT 'z' AS name, 3 AS q, true AS more")
    writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    writer.option("userMetadata", "overwritten by hand").save(str(folder))


def _source_and_clone(spark: SparkSession, folder: Path) -> None:
    source = folder.with_name(folder.name + "_source")
    spark.range(0, 20, 1, 2).write.format("delta").save(str(source))
    spark.sql(f"CREATE TABLE delta.`{folder}` SHALLOW CLONE delta.`{source}`")


def _parquet_and_convert(spark: SparkSession, folder: Path) -> None:
    spark.sql("SELECT id, concat('p/', id % 3) AS p FROM range(9)").write.partitionBy("p").parquet(str(folder))
    spark.sql(f"CONVERT TO DELTA parquet.`{folder}` PARTITIONED BY (p STRING)")


def _compact_log(spark: SparkSession, folder: Path) -> None:
    """A log compaction file of versions 1 to 3, by Delta Kernel: Spark reads them and writes none."""
    kernel = spark._jvm.io.delta.kernel
    paths = [kernel.internal.fs.Path(f"file:{folder}{end}") for end in ("", "/_delta_log")]
    engine = kernel.defaults.engine.DefaultEngine.create(spark._jsc.hadoopConfiguration())
    kernel.internal.compaction.LogCompactionWriter(*paths, 1, 3, 0).writeLogCompactionFile(engine)
    assert list(folder.glob("_delta_log/*.compacted.json"))


def _lose_checksum(_: SparkSession, folder: Path) -> None:
    for path in folder.glob("_delta_log/*.crc"):
        path.unlink()


def _age_log(_: SparkSession, folder: Path) -> None:
    """Let the first two commits look days old, so that the next checkpoint cleans them away."""
    for days, version in ((5, 0), (4, 1)):
        then = time.time() - days * 86_400
        os.utime(folder / "_delta_log" / f"{version:020d}.json", (then, then))


def _log_was_cleaned(_: SparkSession, folder: Path) -> None:
    assert [path.stem for path in sorted(folder.glob("_delta_log/*.json"))][:1] == [f"{2:020d}"]


def _conf(**settings: str) -> Step:
    """Set Spark settings, `__` for a dot, for the steps after this one."""

    def step(spark: SparkSession, _: Path) -> None:
        for key, value in settings.items():
            spark.conf.set(key.replace("__", "."), value)

    return step


RECIPES: dict[str, Sequence[Step]] = {
    "plain": (
        "CREATE TABLE {t} (id BIGINT, name STRING) USING delta COMMENT 'Orders' "
        "TBLPROPERTIES ('catalog.team_name' = 'ops', 'odd key' = 'a=\"b\"')",
        "INSERT INTO {t} SELECT id, concat('n', id) FROM range(0, 50, 1, 3)",
        "MERGE INTO {t} USING (SELECT 7L AS id, 'm' AS name UNION ALL SELECT 99L, 'm') s ON {t}.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    ),
    "empty": ("CREATE TABLE {t} (id BIGINT) USING delta",),
    "partition_values": (
        f"CREATE TABLE {{t}} (id BIGINT, {_PARTITION_COLUMNS}) USING delta "
        "PARTITIONED BY (b, y, s, i, l, f, d, m, dt, ts, tz, bin, x)",
        "INSERT INTO {t} VALUES " + ", ".join(f"({n}, {row})" for n, row in enumerate(_PARTITION_VALUES)),
        f"INSERT INTO {{t}} (id, i, x) SELECT id, 7, x FROM range(0, 2, 1, 1), (VALUES {_PARTITION_TEXTS}) AS v(x)",
        "DELETE FROM {t} WHERE x = 'x%20y'",
    ),
    "deletion_vectors_and_change_feed": (
        "CREATE TABLE {t} (id BIGINT, v STRING) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', "
        "'delta.enableChangeDataFeed' = 'true', 'delta.checkpointInterval' = '3')",
        "INSERT INTO {t} SELECT id, 'a' FROM range(0, 100, 1, 2)",
        "DELETE FROM {t} WHERE id % 10 = 0",
        "UPDATE {t} SET v = 'b' WHERE id = 4",
        "DELETE FROM {t} WHERE id % 10 = 1 AND id < 50",
    ),
    "mapped_by_name": (
        "CREATE TABLE {t} (id BIGINT, `the day` DATE, old STRING, gone INT) USING delta PARTITIONED BY (`the day`) "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "INSERT INTO {t} VALUES (1, DATE'2026-01-01', 'a', 1), (2, DATE'2026-01-02', 'b', 2), (3, NULL, 'c', 3)",
        "ALTER TABLE {t} RENAME COLUMN old TO new",
        "ALTER TABLE {t} RENAME COLUMN `the day` TO `day/of`",
        "ALTER TABLE {t} DROP COLUMN gone",
        "INSERT INTO {t} VALUES (4, DATE'2026-01-02', 'd')",
    ),
    "mapped_by_id": (
        "CREATE TABLE {t} (id BIGINT, p STRING, s STRUCT<a: INT, b: STRING>) USING delta PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'id')",
        "INSERT INTO {t} VALUES (1, 'x', struct(1, 'a')), (2, 'y', struct(2, 'b'))",
        "ALTER TABLE {t} RENAME COLUMN id TO key",
        "ALTER TABLE {t} DROP COLUMN s",
        "INSERT INTO {t} VALUES (3, 'x')",
    ),
    "widened_and_mapped_later": (
        "CREATE TABLE {t} (id INT, p SMALLINT) USING delta PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
        "INSERT INTO {t} VALUES (1, 1)",
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "ALTER TABLE {t} CHANGE COLUMN id TYPE BIGINT",
        "ALTER TABLE {t} CHANGE COLUMN p TYPE INT",
        "ALTER TABLE {t} RENAME COLUMN p TO part",
        "INSERT INTO {t} VALUES (5000000000, 100000)",
    ),
    "v2_checkpoint": (
        _conf(spark__databricks__delta__checkpointV2__topLevelFileFormat="parquet"),
        "CREATE TABLE {t} (id BIGINT, p STRING) USING delta PARTITIONED BY (p) TBLPROPERTIES "
        "('delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '3', 'delta.enableDeletionVectors' = 'true')",
        "INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (3, 'a/b'), (4, NULL)",
        "INSERT INTO {t} SELECT id, 'a' FROM range(10, 40, 1, 2)",
        "DELETE FROM {t} WHERE id = 12",
        "INSERT INTO {t} VALUES (50, 'z')",
        _lose_checksum,
    ),
    "v2_checkpoint_json": (
        _conf(spark__databricks__delta__checkpointV2__topLevelFileFormat="json"),
        "CREATE TABLE {t} (id BIGINT) USING delta TBLPROPERTIES "
        "('delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2')",
        "INSERT INTO {t} SELECT id FROM range(0, 40, 1, 4)",
        "INSERT INTO {t} VALUES (100)",
        _lose_checksum,
    ),
    "multi_part_checkpoint_and_cleaned": (
        _conf(spark__databricks__delta__checkpoint__partSize="2"),
        "CREATE TABLE {t} (id BIGINT, p INT) USING delta PARTITIONED BY (p) TBLPROPERTIES "
        "('delta.checkpointInterval' = '2', 'delta.logRetentionDuration' = 'interval 1 day', "
        "'delta.deletedFileRetentionDuration' = 'interval 1 day')",
        "INSERT INTO {t} SELECT id, id % 5 FROM range(0, 40, 1, 1)",
        "INSERT INTO {t} VALUES (100, 3)",
        "INSERT INTO {t} VALUES (101, NULL)",
        _lose_checksum,
        _age_log,
        "INSERT INTO {t} VALUES (102, 1)",
        _log_was_cleaned,
    ),
    "compacted_log": (
        "CREATE TABLE {t} (id BIGINT) USING delta",
        "INSERT INTO {t} SELECT id FROM range(0, 4, 1, 2)",
        "INSERT INTO {t} VALUES (50)",
        "DELETE FROM {t} WHERE id = 50",
        _compact_log,
        "INSERT INTO {t} VALUES (51)",
        _lose_checksum,
    ),
    "clustered_and_tracked": (
        "CREATE TABLE {t} (id BIGINT, name STRING) USING delta CLUSTER BY (id) "
        "TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
        "INSERT INTO {t} SELECT id, 'n' FROM range(0, 60, 1, 3)",
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
        "ALTER TABLE {t} CLUSTER BY (name)",
        "INSERT INTO {t} VALUES (1000, 'm')",
    ),
    "column_rules_and_types": (
        "CREATE TABLE {t} (id BIGINT NOT NULL, v STRING DEFAULT 'none', g INT GENERATED ALWAYS AS "
        "(CAST(id AS INT) % 2), n BIGINT GENERATED BY DEFAULT AS IDENTITY, j VARIANT, at TIMESTAMP_NTZ) USING delta "
        "PARTITIONED BY (g) TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')",
        "ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id > 0)",
        "INSERT INTO {t} (id) VALUES (1), (2)",
        "INSERT INTO {t} (id, v, j, at) SELECT 3, 'x', parse_json('[1, 2]'), TIMESTAMP_NTZ'2026-01-01 10:00:00.123456'",
    ),
    "streamed_and_maintained": (
        _conf(spark__databricks__delta__retentionDurationCheck__enabled="false"),
        _stream,
        "INSERT INTO {t} VALUES (21)",
        "RESTORE TABLE {t} TO VERSION AS OF 1",
        "OPTIMIZE {t}",
        "VACUUM {t} RETAIN 0 HOURS",
    ),
    "replaced": (
        "CREATE TABLE {t} (id BIGINT, p STRING) USING delta PARTITIONED BY (p) TBLPROPERTIES ('kept' = 'yes')",
        "INSERT INTO {t} VALUES (1, 'a')",
        _replace,
        _overwrite_schema,
    ),
    "cloned": (_source_and_clone, "INSERT INTO {t} VALUES (77)"),
    "converted": (_parquet_and_convert,),
}


def make_table(spark: SparkSession, folder: Path, recipe: Sequence[Step]) -> None:
    """Run a recipe in a session of its own: settings of one table do not reach another."""
    session = spark.newSession()
    for step in recipe:
        if isinstance(step, str):
            session.sql(step.format(t=f"delta.`{folder}`"))
        else:
            step(session, folder)
