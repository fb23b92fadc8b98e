"""The values that describe a Delta table: immutable, typed, in the protocol's own words.

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md. Sizes are bytes, times are aware UTC datetimes,
an unknown number is None and never 0.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, TypeAlias

# Late, where they are used: a command that prints commits needs no arrays, and they take 0.2 s to load.
if typing.TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

FileNumbers: TypeAlias = "npt.NDArray[np.int64]"  # positions of files in the order of a snapshot's columns


@dataclass(frozen=True, slots=True)
class TableRef:
    """Where a table is. `name` is unique in the catalog: its path below the root, the root in front on a clash."""

    uri: str
    name: str
    root: str
    layer: str | None = None


@dataclass(frozen=True, slots=True)
class Pin:
    """A version that `actor` keeps readable: no VACUUM of Weir takes a file of it, `until` then if there is an end.
    `uri`: the table's; `name`: means this version wherever one is asked."""

    uri: str
    version: int
    actor: str
    reason: str
    pinned_at: datetime
    name: str | None = None
    until: datetime | None = None

    def holds(self, now: datetime) -> bool:
        return self.until is None or now < self.until


@dataclass(frozen=True, slots=True)
class Protocol:
    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(sorted({*self.reader_features, *self.writer_features}))


@dataclass(frozen=True, slots=True)
class Metadata:
    """`schema_json` is Spark's StructType JSON as the log holds it; `configuration` are the table properties."""

    id: str
    schema_json: str
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    description: str | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class OperationMetrics:
    """What a commit did, in one vocabulary for every writer. None: the commit does not say.

    `files_vacuumed`: what a VACUUM deleted from storage, which no version loses; `*_to_delete`: what it began to.
    `rows_source`: rows that a MERGE read from its source. `change_*`: files of the change feed, beside those of data.
    """

    rows_inserted: int | None = None
    rows_updated: int | None = None
    rows_deleted: int | None = None
    rows_copied: int | None = None
    files_added: int | None = None
    files_removed: int | None = None
    bytes_added: int | None = None
    bytes_removed: int | None = None
    files_vacuumed: int | None = None
    files_to_delete: int | None = None
    bytes_to_delete: int | None = None
    rows_source: int | None = None
    duration_ms: int | None = None
    change_files: int | None = None
    change_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class StreamOrigin:
    """Which stream wrote a commit: Spark's queryId/epochId, or Weir's stamp in userMetadata."""

    stream: str | None
    query_id: str | None
    run_id: str | None
    batch_id: int | None


# Operations that rewrite files, or none, and leave every row as it was.
_SAME_ROWS = (
    "OPTIMIZE",
    "VACUUM",
    "REORG",
    "CHECKPOINT",
    "COMPUTE ",
    "LOG COMPACT",
    "CLEANUP",
    "ROW TRACKING BACKFILL",
)


@dataclass(frozen=True, slots=True)
class Commit:
    """One version of the log. `parameters` and `raw_metrics` are what the writer left; `metrics` is normalised.

    `metadata` and `protocol` are those that this commit set, None where it left them as they were. `committed_at` is
    Delta's time of it, `reported_at` what the writer's clock said. `partitions`: as of `CommitRecord`.
    """

    version: int
    committed_at: datetime | None
    operation: str | None
    parameters: Mapping[str, Any]
    metrics: OperationMetrics
    raw_metrics: Mapping[str, Any]
    user: str | None
    engine: str | None
    user_metadata: str | None
    origin: StreamOrigin | None = None
    isolation_level: str | None = None
    read_version: int | None = None
    is_blind_append: bool | None = None
    problem: str | None = None
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    job: str | None = None  # as a platform that schedules jobs names it
    reported_at: datetime | None = None
    partitions: tuple[str, ...] = ()
    user_id: str | None = None
    cluster_id: str | None = None

    @property
    def may_change_rows(self) -> bool:
        """What is not known, or cannot be read, may."""
        if self.problem:
            return True
        if (self.operation or "").upper().startswith(_SAME_ROWS):
            return False
        return (self.metrics.files_added, self.metrics.files_removed) != (0, 0)


@dataclass(frozen=True, slots=True)
class VersionTotals:
    """The table's totals after one version. `num_rows` is None where a file has no statistics (rows unknown)."""

    version: int
    committed_at: datetime | None
    operation: str | None
    num_files: int
    size_bytes: int
    num_rows: int | None
    small_files: int

    @property
    def small_share(self) -> float | None:
        return self.small_files / self.num_files if self.num_files else None


@dataclass(frozen=True, slots=True)
class Timeline:
    """Totals per version, oldest first. `first_version` is the oldest the log can still reconstruct."""

    totals: tuple[VersionTotals, ...]
    first_version: int
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Hidden:
    """What whoever looks may not see of a table: all values, or those of columns that files call `physical`."""

    table: str
    is_all: bool
    who: str
    physical: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()

    def touches(self, *texts: str) -> bool:
        """Whether words about the table may tell a hidden value."""
        return self.is_all or any(name.lower() in text.lower() for name in self.names for text in texts)


class Files(typing.Protocol):
    """The live files of a version by column: `file_set.FileSet`."""

    @property
    def num_files(self) -> int: ...
    def column(self, name: str) -> pa.Array: ...
    def total(self, name: str) -> tuple[int, int]: ...
    def table(self, names: Sequence[str]) -> pa.Table: ...
    def take(self, numbers: FileNumbers, names: Sequence[str]) -> pa.Table: ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A table at one version. Its files are read column by column when a figure needs them. `hidden`: the values that
    whoever it was read for may not see."""

    ref: TableRef
    version: int
    committed_at: datetime | None
    protocol: Protocol
    metadata: Metadata
    file_set: Files
    small_actions: Callable[[], tuple[Mapping[str, int], Mapping[str, str]]] = lambda: ({}, {})
    check: Callable[[], tuple[str, ...]] = tuple
    hidden: Hidden | None = None

    @property
    def findings(self) -> tuple[str, ...]:
        """What was odd about the log that this was read from, and where a checksum disagrees with it."""
        return self.check()

    @property
    def files(self) -> pa.Table:
        """Every column of `files_schema`, one row a file: seconds at a million files."""
        return self.columns(files_schema().names)

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Some columns of `files_schema`, one row a file, always in the same order: far cheaper than `files`.

        There are two more: `stats` (JSON text) and `base_row_id` (of row tracking), null where a file has none.
        """
        return self.file_set.table(names)

    def partitions(self) -> pa.Array:
        """The partition of each file, in the order of `columns`; dictionary-encoded where that is at hand."""
        return self.file_set.column("partition")

    def rows_at(self, numbers: Sequence[int] | FileNumbers, names: Sequence[str] | None = None) -> pa.Table:
        """Some columns (as of `columns`; None: those of `files_schema`) of these files, in that order."""
        import numpy as np

        return self.file_set.take(np.asarray(numbers, np.int64), names or files_schema().names)

    @property
    def num_files(self) -> int:
        return self.file_set.num_files

    @property
    def size_bytes(self) -> int:
        return self.file_set.total("size_bytes")[0]

    @property
    def num_rows(self) -> int | None:
        """Live rows: statistics' rows less deletion-vector rows; None when any file has no row count."""
        rows, unknown = self.file_set.total("num_records")
        return None if unknown else rows - self.deleted_rows

    @property
    def deleted_rows(self) -> int:
        """Rows marked by deletion vectors."""
        return self.file_set.total("deleted_rows")[0]

    @property
    def num_deletion_vectors(self) -> int:
        ids = self.file_set.column("dv_id")
        return len(ids) - int(ids.null_count)

    @property
    def transactions(self) -> Mapping[str, int]:
        """The newest version that each application wrote (`txn` actions)."""
        return self.small_actions()[0]

    @property
    def domains(self) -> Mapping[str, str]:
        """Configuration per metadata domain, e.g. `delta.clustering` (JSON text)."""
        return self.small_actions()[1]


class FileReader(typing.Protocol):
    """The part of `backend.lake.lake.Lake` that reads the rows of files (columns `FILE_COLUMNS`; None for all)."""

    def read_files(
        self,
        snapshot: Snapshot,
        files: pa.Table | None = None,
        *,
        columns: Sequence[str] | None = None,
        as_of: Snapshot | None = None,
        numbered: str | None = None,
    ) -> pa.RecordBatchReader: ...


class VersionReader(FileReader, typing.Protocol):
    """The part of `backend.lake.lake.Lake` that reads the versions of a table."""

    def latest_version(self, ref: TableRef) -> int: ...
    def named_versions(self, ref: TableRef) -> Mapping[str, int]: ...
    def version_at(self, ref: TableRef, when: datetime) -> int | None: ...
    def versions(self, ref: TableRef) -> list[tuple[int, int]]: ...
    def snapshot(self, ref: TableRef, version: int | None = None) -> Snapshot: ...
    def history(
        self,
        ref: TableRef,
        *,
        limit: int | None = None,
        starting_version: int | None = None,
        ending_version: int | None = None,
    ) -> list[Commit]: ...


@cache
def files_schema() -> pa.Schema:
    """What is told of a version's files, one row a file."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("path", pa.string(), nullable=False),  # as in the log, percent-decoded
            pa.field("size_bytes", pa.int64(), nullable=False),
            pa.field("num_records", pa.int64()),  # physical rows in the file, from statistics
            pa.field("deleted_rows", pa.int64(), nullable=False),  # rows marked by the deletion vector
            pa.field("modified_at", pa.timestamp("ms", tz="UTC")),
            pa.field("partition", pa.string(), nullable=False),  # "day=2026-01-01/country=NL", "" when unpartitioned
            pa.field("dv_id", pa.string()),  # unique id of the deletion vector; a file is (path, dv_id)
        ]
    )


FILE_COLUMNS = ("path", "size_bytes", "partition", "dv_id", "deleted_rows")  # what reading a file's rows needs


@dataclass(frozen=True, slots=True)
class Bucket:
    """Files with `from_bytes <= size < to_bytes`."""

    from_bytes: int
    to_bytes: int
    files: int
    bytes: int


class CardColumn(typing.NamedTuple):
    """A column as a search knows it. A tuple: a lake has a hundred thousand of them."""

    path: str
    type: str
    comment: str | None


@dataclass(frozen=True, slots=True)
class TableCard:
    """What a list shows of a table, and what a search finds it by.

    `files_after_merge`: about as many files as OPTIMIZE would leave. `small_partitions`: those that hold less than
    one file should; `large_files`: those far above the target.
    """

    ref: TableRef
    version: int
    num_files: int
    size_bytes: int
    num_rows: int | None
    small_files: int
    last_commit_at: datetime | None
    last_operation: str | None
    owner: str | None = None
    classification: str | None = None
    files_after_merge: int | None = None
    small_partitions: int = 0
    large_files: int = 0
    description: str | None = None
    columns: tuple[CardColumn, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UnreadableTable:
    """A table that could not be read, with the reason for its row in the list and what its log still tells."""

    ref: TableRef
    reason: str
    hint: str
    version: int | None = None
    last_commit_at: datetime | None = None
    last_operation: str | None = None
