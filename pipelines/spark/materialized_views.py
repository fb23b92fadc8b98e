"""A materialized view: computed whole, whenever a table that it reads has a new version.

Rule: it reads its inputs at exactly the versions that its batch names, so a batch that is replayed computes the same.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.settings import load_settings
from pipelines.sinks.commits import stamp
from pipelines.specs.ends import Inputs, Target
from pipelines.specs.streams import StreamSpec
from pipelines.specs.tables import parse_schema, quoted

Offset = Mapping[str, int]


class TableVersions(DataSource):
    """Option `uris`: a JSON list of the tables."""

    @classmethod
    def name(cls) -> str:
        return "weir_table_versions"

    def schema(self) -> str:
        return "uri STRING, version BIGINT"

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: ARG002 (PySpark calls it so)
        return _Reader(json.loads(self.options["uris"]))


class _Reader(SimpleDataSourceStreamReader):
    def __init__(self, uris: Sequence[str]) -> None:
        self._uris = uris
        self._lake: Lake | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"_uris": self._uris, "_lake": None}  # Spark pickles it, and an open reader cannot be

    def initialOffset(self) -> dict[str, int]:
        return {}

    def read(self, start: Offset) -> tuple[Iterator[tuple[str, int]], dict[str, int]]:
        self._lake = self._lake or Lake(load_settings(lake={"roots": list(self._uris)}))
        present = {uri: self._lake.latest_version(TableRef(uri, uri, uri)) for uri in self._uris}
        return iter(() if present == start else present.items()), present

    def readBetweenOffsets(self, start: Offset, end: Offset) -> Iterator[tuple[str, int]]:  # noqa: ARG002
        return iter(end.items())


def read_versions(session: SparkSession, uris: Sequence[str]) -> DataFrame:
    """`uri` and `version` of each table, in a batch whenever one of them has a new version."""
    session.dataSource.register(TableVersions)
    return session.readStream.format(TableVersions.name()).option("uris", json.dumps(list(uris))).load()


def recompute(stream: StreamSpec, target: Target, inputs: Inputs) -> Callable[[DataFrame, int], None]:
    """The whole table anew, from its inputs at the versions that the batch names."""

    def write(batch: DataFrame, batch_id: int) -> None:
        stamp(batch.sparkSession, stream.name, batch_id)
        versions = {row["uri"]: row["version"] for row in batch.collect()}
        rows = stream.rows(replace(inputs, session=batch.sparkSession, versions=versions))
        if stream.table.schema:
            rows = rows.select(*map(quoted, parse_schema(batch.sparkSession, stream.table.schema).names))
        present = batch.sparkSession.read.format("delta").load(target.uri).schema
        anew = _types(present) != _types(rows.schema)  # else comments stay
        rows.write.format("delta").mode("overwrite").option("overwriteSchema", str(anew).lower()).save(target.uri)

    return write


def _types(schema: StructType) -> list[tuple[str, str]]:
    return [(column.name, column.dataType.simpleString()) for column in schema]
