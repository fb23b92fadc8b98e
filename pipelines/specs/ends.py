"""Sources and sinks: what each can do and is given, the destinations of a stream, and secrets among their options.

Rule: an end says what it reads or writes without doing so: in words for pages, as names for lineage. A declaration
names where a secret lies, and only `reveal` and `revealed` give its value, to what is handed to a client alone.
"""

import difflib
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from backend.errors import SettingsError
from backend.redaction import holds_secret, is_secret, remember
from backend.settings import Settings
from backend.stream_model.overrides import limits_of
from backend.streams.checkpoint import Starts
from pipelines.specs.tables import TableSpec, within_reach


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """`place` is `env:NAME` or `file:PATH`. `within`: text around the value, which stands for `{}` there."""

    place: str
    within: str = "{}"

    def __repr__(self) -> str:
        return f"secret({self.place!r})" if self.has_place else "secret(…)"

    @property
    def has_place(self) -> bool:
        return self.place.startswith(("env:", "file:"))

    def reveal(self) -> str:
        """The value; raises `SettingsError` where it is not there."""
        kind, _, name = self.place.partition(":")
        value = os.environ.get(name) if kind == "env" else None
        if kind == "file":
            with suppress(OSError):
                value = Path(name).read_text(encoding="utf-8").rstrip("\r\n")
        if not value:
            where = {"env": f"set {name} where the host starts", "file": f"write it into {name}"}
            place = self.place if self.has_place else "a place that is not named"
            raise SettingsError(
                f"there is no secret at {place}", hint=where.get(kind, "name it as env:NAME or file:PATH")
            )
        remember([value])
        if '"{}"' in self.within:
            value = value.replace("\\", "\\\\").replace('"', '\\"')
        return self.within.replace("{}", value)


def revealed(options: Mapping[str, str | Secret]) -> dict[str, str]:
    """Options with the values of their secrets: for a client alone."""
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in options.items()}


def secret(place: str, *, within: str = "{}") -> Secret:
    r"""A value from the environment (`env:NAME`) or from a file (`file:/run/secrets/name`), never shown.

    `within` is text around it: `'… required username="weir" password="{}";'`. Between quotes, quotes are escaped.
    """
    return Secret(place, within)


def secret_problems(sink_or_source: str, name: str, value: str | Secret) -> Iterator[tuple[str, str]]:
    """A secret in plain text, or without a place."""
    if isinstance(value, Secret):
        if not value.has_place:
            yield f"{sink_or_source}: the secret of {name} has no place", "name it as env:NAME or file:PATH"
    elif holds_secret(value) or (is_secret(name) and not name.endswith("jaas.config")):
        hint = 'write secret("env:NAME") or secret("file:PATH")'
        yield f"{sink_or_source}: {name} holds a secret in plain text", hint


HADOOP = ("fs.", "dfs.", "hadoop.", "mapreduce.", "parquet.")  # how options begin that Hadoop's file systems take
# What becomes of a record whose values are not of their declared types: it is kept beside the table with the reason, it
# ends the stream, or it is a row with nulls.
Misfit = Literal["dead letter", "fail", "null"]
BatchCheck = Callable[[int], None]  # raises where the batch of this id must not be written


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a stream's sources read with: a session, and the declared tables and views by name.

    `schemas`: columns that declared tables have or will have, for an analysis that reads nothing. None: the real thing.
    `starts`: where a reset lets sources begin, by URI or description.
    `overrides`: what a person set in place of declared settings, limits of a batch among it.
    `checks`: what sources look at before a batch is written, by its id; they add to it as they are read.
    `versions`: tables are read whole, at these versions by URI or at their latest. None: as streams.
    """

    session: SparkSession
    settings: Settings
    stream: str
    uris: Mapping[str, str]
    views: Mapping[str, Callable[["Inputs"], DataFrame]] = field(default_factory=dict)
    schemas: Mapping[str, StructType] | None = None
    versions: Mapping[str, int] | None = None
    starts: Starts = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)
    checks: list[BatchCheck] = field(default_factory=list)

    def uri(self, table: str) -> str:
        """Where a table lies: a declared one by name, any other by its URI or path. Raises `SpecError`, as `folder`."""
        return within_reach(self.settings, self.uris.get(table, table))

    def limits(self, source: "StreamSource") -> dict[str, str]:
        """Options that say how much a batch reads of the source, where a person set them."""
        return limits_of(source.kind, self.overrides)

    def stream_of(self, schema: StructType) -> DataFrame:
        """A stream with these columns that never has a row, for an analysis."""
        return self.session.readStream.schema(schema).format("parquet").load(_empty_folder())

    def rows_of(self, schema: StructType) -> DataFrame:
        """No rows of these columns, for an analysis."""
        return self.session.createDataFrame([], schema)

    def folder(self, folder: str) -> str:
        """Where a folder of files lies: below `$WEIR_HOME` if relative. In an analysis it need not be there."""
        if "://" in folder:
            return within_reach(self.settings, folder)
        path = self.settings.home / folder
        if self.schemas is not None and not path.exists():
            return _empty_folder()
        return str(path)


class StreamSource(Protocol):
    @property
    def kind(self) -> str:
        """What it is, in a word: files, kafka, table, change feed, rate."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Delta tables and views that it reads, by name or URI."""

    @property
    def letters(self) -> tuple[str, ...]:
        """Columns of its dead letters, as DDL; none where every record is a row."""

    def describe(self) -> str:
        """What it reads, in words; shows no secret."""

    def prepare(self, settings: Settings) -> None:
        """Create what must exist before the first read, except tables."""

    def read(self, inputs: Inputs) -> DataFrame: ...


def option_texts(options: Mapping[str, object]) -> dict[str, str]:
    """Options as Spark takes them: True is `true`."""
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in options.items()}


def secret_options(options: Mapping[str, object]) -> dict[str, str | Secret]:
    """The same, where secrets may be among them: those stay hidden."""
    return {**option_texts(options), **{key: value for key, value in options.items() if isinstance(value, Secret)}}


def unknown_options(
    source: str, names: Iterable[str], known: Collection[str], passed_on: tuple[str, ...] = HADOOP
) -> Iterator[tuple[str, str]]:
    """Options that no reader takes, and what to write: Spark passes over them without a word. Those that begin with
    `passed_on` are of another system."""
    for name in names:
        if name not in known and not name.startswith(passed_on):
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"use {', '.join(known)}"
            yield f"{source}: option {name} is not known", hint


_empty: list["tempfile.TemporaryDirectory[str]"] = []


def _empty_folder() -> str:
    """A folder of this process alone: who else could write there would choose what is planned with."""
    if not _empty or not Path(_empty[-1].name).is_dir():  # a long run's may be swept away
        _empty.append(tempfile.TemporaryDirectory(prefix="weir-no-rows-"))
    return _empty[-1].name


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
