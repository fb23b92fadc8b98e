"""What every sink can do, and the destinations that a stream writes to."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, runtime_checkable

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from pipelines.specs.tables import TableSpec

OutputMode = Literal["append", "update", "complete"]
# A column beside a change's own: `record` (where it came from, in words), `unchanged` (paths of what it leaves alone),
# `is_partial` (whether it names what it sets, so that a null is meant), `content` (a hash of its row; null of a
# snapshot's), and of a stream that reads files alone `place` (where in which file; null behind a shuffle). No sink
# writes it.
CHANGE = "_weir_change"


@dataclass(frozen=True, slots=True)
class Target:
    """The stream that a sink writes for, its table, where that and the tables beside it lie, and the batch at hand.

    `query_id` is the checkpoint's: after a reset there is a new one, and batches count from 0 again.
    """

    stream: str
    table: TableSpec
    uris: Mapping[str, str]
    query_id: str = ""
    batch_id: int = -1

    @property
    def uri(self) -> str:
        return self.uris[self.table.name]


class Sink(Protocol):
    @property
    def kind(self) -> str:
        """What it does, in a word: append, complete, update, upsert, history."""

    @property
    def output_mode(self) -> OutputMode: ...

    @property
    def is_native(self) -> bool:
        """Whether Delta's own streaming sink does it, in this output mode."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns by which it finds a row again; none where it only adds rows."""

    def beside(self, table: TableSpec) -> tuple[TableSpec, ...]:
        """Tables that it writes beside the stream's own."""

    def table_schema(self, rows: StructType) -> StructType:
        """The columns of the stream's table, for rows of this schema; raises `SpecError` where it cannot work."""

    def beside_schema(self, rows: StructType) -> StructType:
        """The columns of the tables beside it."""

    def write(self, batch: DataFrame, target: Target) -> None:
        """Write one micro-batch. The commit is stamped: a replayed batch changes nothing."""


@dataclass(frozen=True, slots=True)
class Destination:
    """One table that a stream's rows go to; `where`: a SQL condition on rows, all of them if empty."""

    table: TableSpec
    sink: Sink
    where: str = ""

    @property
    def writes(self) -> tuple[TableSpec, ...]:
        """Its tables, its own first."""
        table = replace(self.table, keys=self.sink.keys)
        return (table, *self.sink.beside(table))


@runtime_checkable
class ExportSink(Protocol):
    """Writes outside the lake, in foreachBatch: its stream has no table of its own."""

    @property
    def kind(self) -> str:
        """Where it writes, in a word: kafka, postgresql."""

    @property
    def output_mode(self) -> OutputMode: ...

    @property
    def is_native(self) -> bool: ...

    @property
    def outside(self) -> str:
        """What it writes, by name and place; shows no secret."""

    def problems(self) -> Iterable[tuple[str, str]]:
        """What cannot work as it is declared, and what to do."""

    def judge(self, rows: DataFrame) -> None:
        """Raises `SpecError` or Spark's error where rows of these columns cannot be written; asks nobody outside."""

    def prepare(self, rows: DataFrame) -> None:
        """Looks before the first batch whether it can write such rows there; raises `DeliveryError`."""

    def write(self, batch: DataFrame, target: Target) -> None:
        """Write one micro-batch, so that a replayed one can be recognised."""


@dataclass(frozen=True, slots=True)
class Into:
    """A further destination as it was declared; `about`: of its table."""

    name: str
    sink: Sink | ExportSink
    where: str = ""
    about: Mapping[str, object] = field(default_factory=dict)


def into(name: str, sink: Sink, *, where: str = "", **about_table: object) -> Into:
    """A further table for the rows of a stream, in `also=[…]`: those that meet the SQL condition `where`.

    About the table as for the stream's own: `layer`, `comment`, `table_properties`, `owner`, `partition_cols`, ….
    """
    return Into(name, sink, where, about_table)
