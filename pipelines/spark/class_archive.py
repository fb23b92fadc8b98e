"""`python -m pipelines.spark.class_archive`: Spark's classes, read and verified once, kept for every JVM that starts.

Why: a host spends a third of its start's processor time on them. Rule: a JVM of another version, or with another class
path, leaves the file aside by itself; without one everything works, later.
Source: "Application Class-Data Sharing" of Java 13 and newer.
"""

import sys
import tempfile
from pathlib import Path

from backend.errors import LakehouseError
from backend.settings import load_settings
from pipelines.spark.session import CLASS_ARCHIVE, JAVA_OPTIONS, open_session

EXIT_TIMEOUT_S = 120


def write_archive() -> None:
    """Has a session do what streams do, and keeps what it loaded.

    Raises `JavaError`, `JarError` or `SparkStartError`.
    """
    CLASS_ARCHIVE.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix=".classes-", dir=CLASS_ARCHIVE.parent) as folder:
        made, lake = Path(folder, CLASS_ARCHIVE.name), Path(folder, "lake")
        option = {JAVA_OPTIONS: f'"-XX:ArchiveClassesAtExit={made}"'}
        spark = open_session(load_settings(home=Path(folder), spark={"conf": option}))
        spark.range(9).selectExpr("id", "id % 3 AS part").write.format("delta").save(f"{lake}/source")
        changes = spark.readStream.format("delta").load(f"{lake}/source").groupBy("part").count()
        query = changes.writeStream.format("delta").outputMode("complete").option("checkpointLocation", f"{lake}/state")
        query.trigger(availableNow=True).start(f"{lake}/counts").awaitTermination()
        merge = f"MERGE INTO delta.`{lake}/source` t USING (SELECT 1L AS id, 5L AS part) s ON t.id = s.id"
        spark.sql(f"{merge} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")
        jvm = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
        spark.stop()
        jvm.stdin.close()
        jvm.wait(EXIT_TIMEOUT_S)
        if made.exists():  # some JVMs keep none
            made.replace(CLASS_ARCHIVE)


if __name__ == "__main__":
    try:
        write_archive()
    except LakehouseError as exc:
        sys.stderr.write(f"error: {exc.message}\nhint: {exc.hint}\n")
        sys.exit(exc.exit_code)
