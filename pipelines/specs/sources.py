"""What every source can do, and what it is given to read with.

Rule: a source says what it reads without reading it: in words for pages, as names for lineage.
"""

import difflib
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from backend.settings import Settings
from backend.stream_model.overrides import limits_of
from backend.streams.reset import Starts
from pipelines.specs.secrets import Secret
from pipelines.specs.tables import within_reach

HADOOP = ("fs.", "dfs.", "hadoop.", "mapreduce.", "parquet.")  # how options begin that Hadoop's file systems take
# What becomes of a record whose values are not of their declared types: it is kept beside the table with the reason, it
# ends the stream, or it is a row with nulls.
Misfit = Literal["dead letter", "fail", "null"]
BatchCheck = Callable[[int], None]  # raises where the batch of this id must not be written


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a stream's sources read with: a session, and the declared tables and views by name.

    `schemas`: the declared tables' columns, for an analysis that reads nothing. None: the real thing.
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

    def known_schema(self, table: str) -> StructType | None:
        """In an analysis: the columns that a declared table has or will have."""
        return (self.schemas or {}).get(table)

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
