"""A Delta table, its change feed, or its present rows as a source.

Rule: a table is named as it was declared, or by its URI.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StringType, StructType, TimestampType

from backend.settings import Settings
from backend.streams.reset import begun
from pipelines.jvm.hadoop import spark_uri
from pipelines.specs.ends import Inputs, option_texts, unknown_options

_OPTIONS = (
    *("maxFilesPerTrigger", "maxBytesPerTrigger", "skipChangeCommits", "ignoreDeletes", "ignoreChanges"),
    *("startingVersion", "startingTimestamp", "failOnDataLoss", "excludeRegex", "ignoreFileDeletion"),
    *("schemaTrackingLocation", "schemaLocation", "streamingSourceTrackingId", "allowSourceColumnDrop"),
    *("allowSourceColumnRename", "allowSourceColumnTypeChange"),
)
_OF_PRESENT = ("versionAsOf", "timestampAsOf")


class _Read(StrEnum):
    APPENDED = "table"
    CHANGES = "change feed"
    PRESENT = "present rows"


@dataclass(frozen=True, slots=True)
class DeltaSource:
    """Rows appended to a table, or its changes, or (static) all of its present rows in every batch.

    `options` go to Delta's reader.
    """

    table: str
    options: Mapping[str, str] = field(default_factory=dict)
    reads: _Read = _Read.APPENDED
    letters = ()

    def changes(self, **options: object) -> "DeltaSource":
        """Row changes with `_change_type`, `_commit_version`, `_commit_timestamp`.

        A first start reads the present rows as inserts, and then every change.
        """
        return replace(self, reads=_Read.CHANGES, options={**self.options, **option_texts(options)})

    def static(self) -> "DeltaSource":
        """All rows as they are at each batch, for joins."""
        return replace(self, reads=_Read.PRESENT)

    @property
    def kind(self) -> str:
        return self.reads.value

    @property
    def tables(self) -> tuple[str, ...]:
        return (self.table,)

    def describe(self) -> str:
        return self.table if self.reads is _Read.APPENDED else f"{self.reads} of {self.table}"

    def problems(self) -> Iterator[tuple[str, str]]:
        """What cannot work, and what to do."""
        known = _OF_PRESENT if self.reads is _Read.PRESENT else _OPTIONS
        yield from unknown_options("table", self.options, known)
        if {"startingVersion", "startingTimestamp"} <= self.options.keys():
            yield "table: startingVersion and startingTimestamp exclude each other", "leave one out"

    def prepare(self, settings: Settings) -> None: ...

    def read(self, inputs: Inputs) -> DataFrame:
        if self.table in inputs.views:
            return inputs.views[self.table](inputs)
        schema = inputs.known_schema(self.table)
        whole = self.reads is _Read.PRESENT or inputs.versions is not None
        if schema is not None:
            return inputs.rows_of(schema) if whole else inputs.stream_of(self._columns(schema))
        uri = inputs.uri(self.table)
        if whole:
            return self._present(inputs, uri)
        feed = {"readChangeFeed": "true"} if self.reads is _Read.CHANGES else {}
        options = {**begun(self.options, inputs.starts.get(uri, {})), **inputs.limits(self)}
        return inputs.session.readStream.format("delta").options(**feed, **options).load(spark_uri(uri))

    def _present(self, inputs: Inputs, uri: str) -> DataFrame:
        version = (inputs.versions or {}).get(uri)
        at = {} if version is None else {"versionAsOf": str(version)}
        return inputs.session.read.format("delta").options(**at, **self.options).load(spark_uri(uri))

    def _columns(self, table: StructType) -> StructType:
        if self.reads is not _Read.CHANGES:
            return table
        feed = StructType(list(table.fields)).add("_change_type", StringType())
        return feed.add("_commit_version", LongType()).add("_commit_timestamp", TimestampType())


def table(name: str, **options: object) -> DeltaSource:
    """Rows appended to a Delta table: a declared one by name, any other by URI.

    Options are Delta's: `maxFilesPerTrigger`, `maxBytesPerTrigger`, `startingVersion`, `startingTimestamp`. A commit
    that takes rows away ends the stream, unless `skipChangeCommits=True` passes over it. `ignoreDeletes=True` passes
    over those alone that drop whole files; `ignoreChanges=True` reads rewritten files whole, so rows come twice.
    `.changes()` reads its change feed instead.
    """
    return DeltaSource(name, option_texts(options))
