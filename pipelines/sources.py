"""Where a stream reads: landed files, a Delta table, or a table's change feed.

Rule: a source can say what it reads without reading it: in words for pages, as tables for lineage.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backend.settings import Settings
from pipelines.tables import TableSpec


class Source(Protocol):
    def describe(self) -> str: ...

    def tables(self) -> tuple[TableSpec, ...]:
        """Delta tables that it reads."""

    def prepare(self) -> None:
        """Create what must exist before the first read, except tables."""

    def read(self, spark: SparkSession, settings: Settings) -> DataFrame:
        """The unbounded input."""


@dataclass(frozen=True, slots=True)
class TextFileSource:
    """Lines of files that appear in a folder, oldest file first: `value`, `file_name`, `file_modified_at`.

    The modification time is taken for the time of landing. Spark skips names that start with `.` or `_`.
    """

    folder: str
    max_files_per_trigger: int = 1_000

    def describe(self) -> str:
        return f"files in {self.folder}"

    def tables(self) -> tuple[TableSpec, ...]:
        return ()

    def prepare(self) -> None:
        if "://" not in self.folder:
            Path(self.folder).mkdir(parents=True, exist_ok=True)

    def read(self, spark: SparkSession, settings: Settings) -> DataFrame:  # noqa: ARG002 (the Protocol's signature)
        lines = spark.readStream.format("text").option("maxFilesPerTrigger", self.max_files_per_trigger)
        return lines.load(self.folder).select(
            "value",
            F.col("_metadata.file_name").alias("file_name"),
            F.col("_metadata.file_modification_time").alias("file_modified_at"),
        )


@dataclass(frozen=True, slots=True)
class DeltaSource:
    """Rows appended to a Delta table. `options` go to Delta's streaming source."""

    table: TableSpec
    options: Mapping[str, str] = field(default_factory=dict)

    def describe(self) -> str:
        return f"table {self.table.name}"

    def tables(self) -> tuple[TableSpec, ...]:
        return (self.table,)

    def prepare(self) -> None:
        return None

    def read(self, spark: SparkSession, settings: Settings) -> DataFrame:
        return spark.readStream.format("delta").options(**self.options).load(self.table.uri(settings))


@dataclass(frozen=True, slots=True)
class ChangeFeedSource:
    """Row changes of a Delta table with `_change_type`, `_commit_version`, `_commit_timestamp`.

    A first start reads the table's present rows as inserts, and then every change.
    """

    table: TableSpec
    options: Mapping[str, str] = field(default_factory=dict)

    def describe(self) -> str:
        return f"change feed of {self.table.name}"

    def tables(self) -> tuple[TableSpec, ...]:
        return (self.table,)

    def prepare(self) -> None:
        return None

    def read(self, spark: SparkSession, settings: Settings) -> DataFrame:
        reader = spark.readStream.format("delta").option("readChangeFeed", "true").options(**self.options)
        return reader.load(self.table.uri(settings))
