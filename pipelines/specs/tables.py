"""A Delta table as a stream declares it, how names and types of its columns are written, and where and why a
declaration cannot work.

Rule: `evolution` says how far a table that exists may be altered: nothing of it ever goes.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from backend.maintenance.places import why_out_of_reach
from backend.settings import Settings
from backend.stream_model.stream import DeclaredTable
from pipelines.jvm.failures import SpecError, describe
from pipelines.jvm.hadoop import spark_uri


class Evolution(StrEnum):
    FAIL = "fail"  # refuse rows that do not fit, and show the difference
    ADD = "add columns"
    WIDEN = "widen types"  # and add columns


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is declared, for a person to open."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


NOWHERE = Place("", 0)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a declaration cannot work, where it stands, and what to do."""

    declared_at: Place
    name: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.declared_at}: {self.name}: {self.message}" + (f" ({self.hint})" if self.hint else "")


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A Delta table at `location`, or below `lake.tables_uri`.

    `schema` is DDL text, with comments if wanted; None: what the function returns. `properties`: `delta.*`, and
    owners as `catalog.*`. `keys`: by which its stream finds rows again, noted in the table.
    """

    name: str
    layer: str
    comment: str = ""
    schema: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    partition_cols: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    evolution: Evolution = Evolution.FAIL
    location: str | None = None
    keys: tuple[str, ...] = ()

    def uri(self, settings: Settings) -> str:
        return self.location or f"{settings.tables_uri}/{self.layer}/{self.name}"

    def spark_uri(self, settings: Settings) -> str:
        """The same place as Spark is given it; raises `SpecError`."""
        return spark_uri(within_reach(settings, self.uri(settings)))

    def declared(self, settings: Settings) -> DeclaredTable:
        about = dict(self.properties), self.cluster_by, self.partition_cols, self.keys
        return DeclaredTable(self.path, self.uri(settings), self.comment, *about)

    @property
    def owners(self) -> dict[str, str]:
        """The properties that say whose it is, for tables beside it."""
        return {key: value for key, value in self.properties.items() if key.startswith("catalog.")}

    @property
    def path(self) -> str:
        """What pages call it: below the lake's root."""
        return f"{self.layer}/{self.name}"


def within_reach(settings: Settings, uri: str) -> str:
    """The same address; raises `SpecError` where Spark has no file system for it."""
    reason, hint = why_out_of_reach(settings, uri)
    if reason:
        raise SpecError(f"{uri}: {reason}", hint=hint)
    return uri


def quoted(name: str) -> str:
    """A column's name as Spark's SQL and `F.col` read it, dots and all."""
    return "`" + name.replace("`", "``") + "`"


def path_of(names: Sequence[str]) -> str:
    """The path of a field within columns, as SQL reads it."""
    return ".".join(map(quoted, names))


def parse_schema(session: SparkSession, ddl: str) -> StructType:
    """DDL text as columns, with their comments; raises `SpecError`."""
    try:
        parsed = session.sparkContext._jvm.org.apache.spark.sql.types.StructType.fromDDL(ddl)  # type: ignore[union-attr]
    except Py4JError as exc:
        raise SpecError(
            f"schema is not understood: {describe(exc)[1]}", hint="write DDL: id BIGINT, name STRING"
        ) from exc
    return StructType.fromJson(json.loads(parsed.json()))
