"""Columns that a stream reads of a folder's files, noted beside its checkpoint, and those that files have beyond them.

Rule: Spark leaves out a Parquet file's further columns without a word. So the footers of a batch's files are read
before the batch is written.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructType

from backend.errors import LakehouseError
from backend.lake.storage.paths import is_within, normal_uri
from backend.lake.storage.storage import declared_folder
from backend.streams.unread import files_of_batch, has_pattern
from pipelines.jvm.hadoop import CheckpointFiles, spark_uri
from pipelines.specs.ends import Inputs

PATTERN = re.compile(r"[*?\[\]{}\\]")


class NewColumnsError(LakehouseError):
    """Files of a batch have columns that the stream does not read."""


@dataclass(frozen=True, slots=True)
class Columns:
    """`known`: of the rows. `others`: of the files beside them, for `_rescued_data`."""

    known: StructType
    others: StructType = field(default_factory=StructType)

    @property
    def all(self) -> StructType:
        return StructType([*self.known, *self.others])


class NotedColumns:
    """`<stream>.schema.json` beside the checkpoint: the columns of each folder that the stream reads."""

    def __init__(self, inputs: Inputs, folder: str) -> None:
        self._files, self._folder = CheckpointFiles(inputs.session), folder
        self._uri = f"{inputs.settings.checkpoints_uri}/{inputs.stream}.schema.json"

    def read(self) -> Columns | None:
        """None before the first start."""
        noted = self._all()
        if noted.get("type") == "struct":  # as it was noted while a stream had one folder
            return Columns(StructType.fromJson(noted))
        mine = noted.get(self._folder)
        return Columns(*(StructType.fromJson(mine[part]) for part in ("known", "others"))) if mine else None

    def write(self, columns: Columns) -> None:
        noted = self._all()
        folders = {} if noted.get("type") == "struct" else noted
        mine = {"known": columns.known.jsonValue(), "others": columns.others.jsonValue()}
        self._files.write(self._uri, json.dumps({**folders, self._folder: mine}))

    def _all(self) -> dict[str, Any]:
        return dict(json.loads(self._files.read(self._uri))) if self._files.exists(self._uri) else {}


def new_in(columns: StructType, known: StructType) -> StructType:
    """Those of the columns that `known` lacks; Spark's names know no case."""
    names = {column.name.lower() for column in known}
    return StructType([column for column in columns if column.name.lower() not in names])


def extended(known: StructType, columns: StructType) -> StructType:
    """The known columns first, as they are, then those that are new."""
    return StructType([*known, *new_in(columns, known)])


@dataclass(frozen=True, slots=True)
class BatchFiles:
    """The Parquet files of a folder that a batch reads. `options`: of the reader."""

    inputs: Inputs
    folder: str
    options: Mapping[str, str]

    def beyond(self, columns: Columns, batch_id: int) -> StructType:
        """Columns that the files of a batch have and nobody reads; raises `NewColumnsError` where one lies within a
        column that is read."""
        new = StructType()
        for schema in self._schemas(self._paths(batch_id)):
            if within := list(_new_within(columns.all, schema)):
                raise NewColumnsError(
                    f"new fields {', '.join(within)} in files of {self.folder}: declare them, for a field within a "
                    "column can be taken in no other way"
                )
            new = extended(new, new_in(schema, columns.all))
        return new

    def _paths(self, batch_id: int) -> list[str]:
        settings, folder = self.inputs.settings, self.inputs.folder(self.folder)
        checkpoint = declared_folder(settings, f"{settings.checkpoints_uri}/{self.inputs.stream}")
        plain = normal_uri(PATTERN.split(folder)[0] if has_pattern(folder) else folder)
        below = str.startswith if has_pattern(folder) else is_within
        return [path for path in files_of_batch(checkpoint, batch_id) if below(path, plain)]

    def _schemas(self, paths: Sequence[str]) -> list[StructType]:
        """Of all files together; of as few parts as may be where a column's types differ between files."""
        if not paths:
            return []
        try:
            return [self._read(paths)]
        except Py4JJavaError:  # for differing types alone if there are several files
            if len(paths) == 1:
                raise
            half = len(paths) // 2
            return [*self._schemas(paths[:half]), *self._schemas(paths[half:])]

    def _read(self, paths: Sequence[str]) -> StructType:
        files = [PATTERN.sub(r"\\\g<0>", spark_uri(path)) for path in paths]  # Spark takes them for patterns
        session: SparkSession = self.inputs.session
        return session.read.options(**{**self.options, "mergeSchema": "true"}).parquet(*files).schema


def _new_within(known: DataType, other: DataType, name: str = "") -> Iterator[str]:
    """Fields within columns of both that `known` lacks, at any depth of structs, arrays and maps."""
    if isinstance(known, StructType) and isinstance(other, StructType):
        present = {column.name.lower(): column.dataType for column in known}
        for column in other:
            path = f"{name}.{column.name}" if name else column.name
            old = present.get(column.name.lower())
            if old is not None:
                yield from _new_within(old, column.dataType, path)
            elif name:
                yield path
    for part in ("elementType", "keyType", "valueType"):
        if hasattr(known, part) and hasattr(other, part):
            yield from _new_within(getattr(known, part), getattr(other, part), name)
