"""Rows added to a table, or a table replaced by each batch's result.

Rule: Delta's own streaming sink does it; `write` is for rows that come with a quarantine.
"""

from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from pipelines.sinks.commits import append_rows
from pipelines.specs.ends import OutputMode, Target
from pipelines.specs.tables import TableSpec


@dataclass(frozen=True, slots=True)
class AppendSink:
    """`complete`: each batch replaces the whole table with the present result of the aggregate."""

    complete: bool = False
    is_native = True
    keys: ClassVar[tuple[str, ...]] = ()

    @property
    def kind(self) -> str:
        return self.output_mode

    @property
    def output_mode(self) -> OutputMode:
        return "complete" if self.complete else "append"

    def beside(self, table: TableSpec) -> tuple[TableSpec, ...]:
        return ()

    def table_schema(self, rows: StructType) -> StructType:
        return rows

    def beside_schema(self, rows: StructType) -> StructType:
        return rows

    def write(self, batch: DataFrame, target: Target) -> None:
        if self.complete:
            batch.write.format("delta").mode("overwrite").save(target.uri)
        else:
            append_rows(batch, target.uri)


def append() -> AppendSink:
    """Add each batch's rows to the table."""
    return AppendSink()


def complete() -> AppendSink:
    """Replace the whole table with the aggregate's present result, each batch."""
    return AppendSink(complete=True)
