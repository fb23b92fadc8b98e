"""What Spark's own readers read: Delta tables, tables of databases, made-up rows, and any other format by its name.

Rule: a table of the lake is named as it was declared, or by its URI. A database's table is read as it is at each batch,
or kept for as long as `refresh` says; a batch that is replayed reads it anew. Of another format Spark alone knows what
waits in it: its backlog is unknown, and pages say so.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StringType, StructType, TimestampType

from backend.format import interval_s
from backend.redaction import holds_secret, without_secrets
from backend.settings import Settings
from backend.streams.checkpoint import begun
from backend.work import elapsed
from pipelines.jvm.failures import SpecError, StreamStartError, describe
from pipelines.jvm.hadoop import spark_uri
from pipelines.specs.ends import (
    Inputs,
    Secret,
    option_texts,
    revealed,
    secret_options,
    secret_problems,
    unknown_options,
)
from pipelines.specs.tables import parse_schema

_OPTIONS = (
    *("maxFilesPerTrigger", "maxBytesPerTrigger", "skipChangeCommits", "ignoreDeletes", "ignoreChanges"),
    *("startingVersion", "startingTimestamp", "failOnDataLoss", "excludeRegex", "ignoreFileDeletion"),
    *("schemaTrackingLocation", "schemaLocation", "streamingSourceTrackingId", "allowSourceColumnDrop"),
    *("allowSourceColumnRename", "allowSourceColumnTypeChange"),
)
_OF_PRESENT = ("versionAsOf", "timestampAsOf")
_FEED = StructType().add("_change_type", StringType()).add("_commit_version", LongType())
_FEED = _FEED.add("_commit_timestamp", TimestampType())
_DRIVERS = {"postgresql": "org.postgresql.Driver"}  # Spark finds no driver among its own JARs without the name
_HINT = "look at its address and login, whether it runs, and whether its driver is there (docs/pipelines.md)"
_kept: dict[tuple[str, str], DataFrame] = {}  # rows in Spark's cache, by stream and source: those of the last start
_OWN = {"delta": "table(…)", "kafka": "kafka(…)"}  # with a backlog, a preflight and a reset
_NOT_REPLAYABLE = ("socket", "textsocketsourceprovider")  # a batch that broke off has no second reading


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
        schema = (inputs.schemas or {}).get(self.table)
        whole = self.reads is _Read.PRESENT or inputs.versions is not None
        if schema is not None and whole:
            return inputs.rows_of(schema)
        if schema is not None:
            feed = _FEED if self.reads is _Read.CHANGES else StructType()
            return inputs.stream_of(StructType([*schema, *feed]))
        uri = inputs.uri(self.table)
        if whole:
            version = (inputs.versions or {}).get(uri)
            at = {} if version is None else {"versionAsOf": str(version)}
            return inputs.session.read.format("delta").options(**at, **self.options).load(spark_uri(uri))
        changes = {"readChangeFeed": "true"} if self.reads is _Read.CHANGES else {}
        options = {**begun(self.options, inputs.starts.get(uri, {})), **inputs.limits(self)}
        return inputs.session.readStream.format("delta").options(**changes, **options).load(spark_uri(uri))


def table(name: str, **options: object) -> DeltaSource:
    """Rows appended to a Delta table: a declared one by name, any other by URI.

    Options are Delta's: `maxFilesPerTrigger`, `maxBytesPerTrigger`, `startingVersion`, `startingTimestamp`. A commit
    that takes rows away ends the stream, unless `skipChangeCommits=True` passes over it. `ignoreDeletes=True` passes
    over those alone that drop whole files; `ignoreChanges=True` reads rewritten files whole, so rows come twice.
    `.changes()` reads its change feed instead.
    """
    return DeltaSource(name, option_texts(options))


@dataclass(frozen=True, slots=True)
class JdbcSource:
    """`options` are those of Spark's reader, `user` and `password` among them."""

    url: str = field(repr=False)
    table: str
    options: Mapping[str, str | Secret] = field(default_factory=dict, repr=False)
    refresh: str | None = None
    kind = "jdbc"
    letters = ()
    tables: tuple[str, ...] = ()

    def describe(self) -> str:
        place = self.url.removeprefix("jdbc:").partition("?")[0].partition(";")[0]
        return f"{self.table} at {without_secrets(place)}"

    def prepare(self, settings: Settings) -> None: ...

    def problems(self) -> Iterator[tuple[str, str]]:
        """What cannot work, and what to do."""
        if not self.url.startswith("jdbc:"):
            yield "jdbc: names no database", 'write jdbc("jdbc:postgresql://host:5432/database", …)'
        if holds_secret(self.url):
            hint = 'write password=secret("env:NAME") or secret("file:PATH")'
            yield "jdbc: a password stands in plain text", hint
        if not self.table.strip():
            yield "jdbc: names no table", 'write "schema.table", or "(SELECT …) AS t"'
        if self.refresh is not None and interval_s(self.refresh) is None:
            yield f"jdbc: refresh={self.refresh!r} is not understood", 'write "10 minutes"'
        for name, value in self.options.items():
            yield from secret_problems("jdbc", name, value)

    def read(self, inputs: Inputs) -> DataFrame:
        driver = _DRIVERS.get(self.url.split(":")[1])
        options = {**({"driver": driver} if driver else {}), **revealed(self.options)}
        try:
            rows = inputs.session.read.format("jdbc").options(url=self.url, dbtable=self.table, **options).load()
        except (Py4JError, PySparkException) as exc:
            error_class, message = describe(exc)
            message = f"jdbc: {self.describe()} cannot be read: {message}"
            raise StreamStartError(message, error_class=error_class, hint=_HINT) from exc
        if inputs.schemas is not None:
            return inputs.rows_of(rows.schema)
        is_view = inputs.versions is not None  # computed seldom, and always from what is there
        return rows if self.refresh is None or is_view else self._keep(rows, inputs, interval_s(self.refresh) or 0.0)

    def _keep(self, rows: DataFrame, inputs: Inputs, refresh_s: float) -> DataFrame:
        """Rows kept in Spark's cache until the first batch after `refresh_s`."""
        key = inputs.stream, self.describe()
        if former := _kept.pop(key, None):
            former.unpersist()
        _kept[key] = rows.persist()
        read_at = elapsed()

        def look(_: int) -> None:
            nonlocal read_at
            if elapsed() - read_at >= refresh_s:
                rows.unpersist(blocking=True)
                rows.persist()
                read_at = elapsed()

        inputs.checks.append(look)
        return rows


def jdbc(
    url: str, table: str, *, password: Secret | None = None, refresh: str | None = None, **options: object
) -> JdbcSource:
    """All rows of a database's table, for joins: `jdbc("jdbc:postgresql://db:5432/shop", "public.customers",
    user="weir", password=secret("env:SHOP"), refresh="10 minutes")`.

    `table` may be a query in brackets with a name. Each batch reads it anew; with `refresh` at most so often.
    Other options are Spark's (`partitionColumn`, `fetchsize`, `driver`, …). PostgreSQL's driver is fetched by
    `python -m pipelines.jars jdbc`; others are named by `spark.jars.packages` in `spark.conf`.
    """
    login = {"password": password} if password is not None else {}
    return JdbcSource(url, table, secret_options({**options, **login}), refresh)


@dataclass(frozen=True, slots=True)
class SparkSource:
    """`name` is what pages call it. Without `schema` the source says its columns itself."""

    format: str
    options: Mapping[str, str | Secret] = field(default_factory=dict, repr=False)
    schema: str | None = None
    name: str = ""
    kind: str = "other"
    letters = ()
    tables: tuple[str, ...] = ()

    def describe(self) -> str:
        return self.name or f"Spark's {self.format}"

    def prepare(self, settings: Settings) -> None: ...

    def problems(self) -> Iterator[tuple[str, str]]:
        """What cannot work, and what to do."""
        if not self.format.strip():
            yield "spark_source: names no format", 'write spark_source("rate", {"rowsPerSecond": 1})'
        if ours := _OWN.get(self.format.lower()):
            yield f"spark_source: {self.format} has a source of its own", f"write {ours}"
        if self.format.lower().rpartition(".")[2] in _NOT_REPLAYABLE:
            message = f"spark_source: {self.format} cannot be replayed: what a batch had read when it broke off is lost"
            yield message, "put Kafka or files between, and read those"
        for name, value in self.options.items():
            yield from secret_problems("spark_source", name, value)

    def read(self, inputs: Inputs) -> DataFrame:
        if inputs.versions is not None:
            hint = "read the source into a streaming table, and that table here"
            raise SpecError(f"a materialized view cannot read a stream of {self.describe()}", hint=hint)
        columns = parse_schema(inputs.session, self.schema) if self.schema else None
        if columns is not None and inputs.schemas is not None:  # nobody needs its secrets
            return inputs.stream_of(columns)
        reader = inputs.session.readStream.format(self.format).options(**revealed(self.options))
        return (reader.schema(columns) if columns is not None else reader).load()


def spark_source(
    format: str, options: Mapping[str, object] | None = None, *, schema: str | None = None, name: str = ""
) -> SparkSource:
    """Rows of whatever `spark.readStream.format(format)` reads, with its options; secrets as `secret("env:NAME")`.

    Exactly once if the source can be replayed from its offsets. What waits in it cannot be counted from here.
    `schema`: DDL text, for a source that asks for it. `name`: what pages call it. A connector's JARs are named by
    `spark.jars.packages` in `spark.conf`.
    """
    return SparkSource(format, secret_options(options or {}), schema, name)


def rate(rows_per_second: int = 1) -> SparkSource:
    """Made-up rows: `timestamp` and `value` (0, 1, 2, …), so many a second."""
    options = {"rowsPerSecond": str(rows_per_second)}
    return SparkSource("rate", options, name=f"{rows_per_second} rows a second", kind="rate")
