"""What a data file says of itself: the footer of one parquet file that the log of a version names.

Rule: only a file of the version asked for is opened, where its path was found to stay inside the roots; a torn or
foreign file is a `TableError` that names it, never an Arrow error.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backend.errors import DataFileMissingError, TableCorruptError, TableError
from backend.lake.model import Snapshot
from backend.lake.storage.storage import Storage, TableFiles
from backend.lake.table.misreadings import misspelled
from backend.lake.table.schema import physical_names

MOST_GROUPS = 500
MOST_COLUMNS = 1_000
MOST_TEXT = 60


@dataclass(frozen=True, slots=True)
class RowGroup:
    number: int
    num_rows: int
    compressed_bytes: int
    uncompressed_bytes: int


@dataclass(frozen=True, slots=True)
class ColumnSize:
    """A leaf column over the row groups read. `path` uses the table's names where mapping allows; `null_count`,
    `minimum` and `maximum` are None where the footer does not say."""

    path: str
    type: str
    encodings: tuple[str, ...]
    compression: str
    compressed_bytes: int
    uncompressed_bytes: int
    null_count: int | None
    minimum: str | None
    maximum: str | None


@dataclass(frozen=True, slots=True)
class LoggedFile:
    """What the log says of the file; `stats` as they are written."""

    size_bytes: int
    num_records: int | None
    deleted_rows: int
    stats: str | None


@dataclass(frozen=True, slots=True)
class FileFooter:
    """`groups` and `columns` speak of the first `MOST_GROUPS` row groups and `MOST_COLUMNS` leaf columns of
    `num_groups` and `num_columns`."""

    path: str
    logged: LoggedFile
    num_rows: int
    num_groups: int
    num_columns: int
    created_by: str
    format_version: str
    groups: tuple[RowGroup, ...]
    columns: tuple[ColumnSize, ...]

    @property
    def compressed_bytes(self) -> int:
        return sum(column.compressed_bytes for column in self.columns)


def read_footer(storage: Storage, snapshot: Snapshot, path: str) -> FileFooter:
    """Row groups, encodings and column sizes of a file of the version; raises `DataFileMissingError`,
    `PathRefusedError`, `TableCorruptError` or a `StorageError`."""
    rows = pc.indices_nonzero(pc.equal(snapshot.columns(["path"])["path"], path)).to_pylist()
    if not rows:
        raise DataFileMissingError(
            f"version {snapshot.version} of {snapshot.ref.name} holds no file {path}",
            hint="it may belong to another version: files come and go with commits",
        )
    (row,) = snapshot.rows_at(rows[:1], [field.name for field in fields(LoggedFile)]).to_pylist()
    table = snapshot.ref.uri
    with TableFiles(storage, table).open(path) as file, parquet_errors(path, table):
        misreading = misspelled(file, snapshot.metadata)
        parquet = misreading.file if misreading else pq.ParquetFile(file)
        renamed = dict(zip(parquet.schema_arrow.names, misreading.schema.names, strict=True)) if misreading else {}
        return _footer(path, LoggedFile(**row), parquet.metadata, snapshot, renamed)


@contextmanager
def parquet_errors(path: str, table: str) -> Iterator[None]:
    """Map what pyarrow raises for a file that is no whole parquet file."""
    try:
        yield
    except TableError:
        raise
    except (pa.ArrowException, OSError, ValueError) as exc:
        line = (str(exc).strip().splitlines() or [type(exc).__name__])[0][:300]
        raise TableCorruptError(
            f"{path} of {table} is no whole parquet file: {line}", hint="it was cut or damaged"
        ) from exc


def _footer(path: str, logged: LoggedFile, meta: Any, snapshot: Snapshot, renamed: Mapping[str, str]) -> FileFooter:
    groups = []
    for number, group in enumerate(map(meta.row_group, range(min(meta.num_row_groups, MOST_GROUPS)))):
        compressed = sum(group.column(n).total_compressed_size for n in range(group.num_columns))
        groups.append(RowGroup(number, group.num_rows, compressed, group.total_byte_size))
    names = {physical: name for name, physical in physical_names(snapshot.metadata).items()}
    names |= {own: names.get(physical, physical) for own, physical in renamed.items()}
    return FileFooter(
        path=path,
        logged=logged,
        num_rows=meta.num_rows,
        num_groups=meta.num_row_groups,
        num_columns=meta.num_columns,
        created_by=meta.created_by or "",
        format_version=str(meta.format_version),
        groups=tuple(groups),
        columns=tuple(_column(meta, number, names) for number in range(min(meta.num_columns, MOST_COLUMNS))),
    )


def _column(meta: Any, number: int, names: Mapping[str, str]) -> ColumnSize:
    chunks = [meta.row_group(group).column(number) for group in range(min(meta.num_row_groups, MOST_GROUPS))]
    leaf = meta.schema.column(number)
    head, dot, rest = leaf.path.partition(".")
    bounds = [chunk.statistics for chunk in chunks]
    has_bounds = bool(bounds) and all(bound is not None for bound in bounds)
    counted = has_bounds and all(bound.has_null_count for bound in bounds)
    lowest, highest = _range(bounds) if has_bounds else (None, None)
    logical = str(leaf.logical_type)
    return ColumnSize(
        path=f"{names.get(head, head)}{dot}{rest}",
        type=leaf.physical_type if logical == "None" else f"{leaf.physical_type} ({logical})",
        encodings=tuple(dict.fromkeys(name for chunk in chunks for name in chunk.encodings)),
        compression=", ".join(dict.fromkeys(chunk.compression for chunk in chunks)),
        compressed_bytes=sum(chunk.total_compressed_size for chunk in chunks),
        uncompressed_bytes=sum(chunk.total_uncompressed_size for chunk in chunks),
        null_count=sum(bound.null_count for bound in bounds) if counted else None,
        minimum=lowest,
        maximum=highest,
    )


def _range(bounds: list[Any]) -> tuple[str | None, str | None]:
    """The lowest and highest value of a column, as text; None where a row group does not say."""
    with suppress(pa.ArrowException, ValueError, OverflowError, TypeError):
        if all(bound.has_min_max for bound in bounds):
            return _shown(min(bound.min for bound in bounds)), _shown(max(bound.max for bound in bounds))
    return None, None


def _shown(value: Any) -> str:
    text = value.hex(" ") if isinstance(value, bytes) else str(value)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…"
