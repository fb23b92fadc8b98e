"""What Spark itself says of a table, in plain Python values: the other side of every comparison with our reader.

Rule: nothing here calls Weir. Files come from Delta's own list (its newest checksum's, else its replay's),
rows from a scan of the data.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class SparkFile:
    path: str
    size_bytes: int
    partition: str
    dv: Mapping[str, Any] | None
    stats: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SparkAnswers:
    """`rows` counts the data, per combination of partition values as text; `checksums` are the `.crc` files."""

    detail: Row
    history: tuple[Row, ...]
    properties: Mapping[str, str]
    files: tuple[SparkFile, ...]
    rows: tuple[int, ...]
    schema_json: str
    checksums: Mapping[int, Mapping[str, Any]]


def ask(spark: SparkSession, folder: Path) -> SparkAnswers:
    session = spark.newSession()
    # Else a count is answered from the log's statistics, which is what is to be checked.
    session.conf.set("spark.databricks.delta.optimizeMetadataQuery.enabled", "false")
    session.conf.set("spark.sql.shuffle.partitions", "1")
    table = f"delta.`{folder}`"
    detail = session.sql(f"DESCRIBE DETAIL {table}").collect()[0]
    state = spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTableWithSnapshot(
        session._jsparkSession, str(folder)
    )._2()
    schema_json = state.metadata().schemaString()
    checksums = {int(p.stem): json.loads(p.read_bytes()) for p in folder.glob("_delta_log/[0-9]*.crc")}
    adds = checksums.get(state.version(), {}).get("allFiles")
    if adds is None:
        adds = [json.loads(add) for add in DataFrame(state.allFiles().toDF(), session).toJSON().collect()]
    return SparkAnswers(
        detail=detail,
        history=tuple(session.sql(f"DESCRIBE HISTORY {table}").collect()),
        properties={row.key: row.value for row in session.sql(f"SHOW TBLPROPERTIES {table}").collect()},
        files=tuple(_files(adds, detail.partitionColumns, schema_json)),
        rows=_rows(session.read.format("delta").load(str(folder)), detail.partitionColumns),
        schema_json=schema_json,
        checksums=checksums,
    )


def _files(adds: Sequence[Mapping[str, Any]], columns: list[str], schema_json: str) -> Iterator[SparkFile]:
    physical = {
        field["name"]: field["metadata"].get("delta.columnMapping.physicalName", field["name"])
        for field in json.loads(schema_json)["fields"]
    }
    for add in adds:
        values = add.get("partitionValues", {})
        yield SparkFile(
            path=add["path"],
            size_bytes=add["size"],
            partition="/".join(f"{c}={_shown(values.get(physical[c]))}" for c in columns),
            dv=add.get("deletionVector"),
            stats=json.loads(add.get("stats") or "{}"),
        )


def _shown(value: str | None) -> str:
    return value.replace("%", "%25").replace("/", "%2F") if value else HIVE_NULL


def _rows(data: DataFrame, columns: list[str]) -> tuple[int, ...]:
    """Rows per partition, in no order; a timestamp is asked for as text, which has no zone to lose."""
    keys = [data[f"`{name}`"].cast("string") for name in columns]
    counts = Counter(str(row) for row in data.select(*keys).collect()) if keys else {"": data.count()}
    return tuple(sorted(count for count in counts.values() if count))
