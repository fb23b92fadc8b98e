"""A Spark application that knows nothing of Weir but one line. It needs pyspark, SQLAlchemy and `weir_attach` alone.

    application.py FOLDER STORE [JARS]

Streams: `files` counts nothing and copies; `table` reads a Delta table (with JARS alone); `broken` fails at a row;
one has no name. It ends when FOLDER/stop is there.
"""

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from weir_attach import attach

folder, store, *jars = sys.argv[1:]
home = Path(folder)
builder = SparkSession.builder.master("local[2]").appName("shop etl").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.shuffle.partitions", "1").config("spark.sql.warehouse.dir", str(home / "warehouse"))
if jars:
    builder = builder.config("spark.jars", jars[0])
    builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")


def begin(name, rows, target, form="parquet", trigger="1 second"):
    writer = rows.writeStream.format(form).trigger(processingTime=trigger)
    writer = writer.option("checkpointLocation", str(home / "checkpoints" / target))
    return (writer.queryName(name) if name else writer).start(str(home / "lake" / "silver" / target))


landing = spark.readStream.schema("id BIGINT, amount DOUBLE").json(str(home / "landing"))
earlier = begin("files", landing, "copied")  # runs before the line below
attach(spark, store)
attach(spark, store)  # once is enough
begin(None, spark.readStream.format("rate").load(), "unnamed")
if jars:
    source = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(str(home / "lake/bronze/orders"))
    begin("table", source.select("id", "amount"), "orders", "delta", "5 seconds")
begin("broken", landing.select(F.expr("IF(id = 13, raise_error('thirteen'), id) AS id")), "broken")
(home / "ready").touch()
while not (home / "stop").exists():
    time.sleep(0.1)
spark.stop()
(home / "done").touch()
