"""A table as a stream declares it (schema, comments, properties, owners), and its creation.

Rule: a table that exists is never altered. Delta itself refuses rows that do not fit it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from backend.settings import Settings


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    comment: str = ""
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A Delta table at `location`, or below `$WEIR_HOME/lake`. `properties`: `delta.*`, and owners as `catalog.*`."""

    name: str
    layer: str
    comment: str
    columns: tuple[Column, ...]
    properties: Mapping[str, str] = field(default_factory=dict)
    partitioned_by: tuple[str, ...] = ()
    location: str | None = None

    def uri(self, settings: Settings) -> str:
        return self.location or str(settings.home / "lake" / self.layer / self.name)

    @property
    def column_names(self) -> list[str]:
        return [column.name for column in self.columns]


def create_table(spark: SparkSession, table: TableSpec, uri: str) -> None:
    """Create the table unless it exists."""
    builder = DeltaTable.createIfNotExists(spark).location(uri).comment(table.comment)
    for column in table.columns:
        builder = builder.addColumn(column.name, column.type, nullable=column.nullable, comment=column.comment or None)
    for key, value in table.properties.items():
        builder = builder.property(key, value)
    if table.partitioned_by:
        builder = builder.partitionedBy(*table.partitioned_by)
    builder.execute()
