"""Rows of a table, read by deltalake: exact about deletion vectors and column mapping.

Rule: the only module that imports deltalake; rows come from one SELECT of quoted names and typed values, and from
`load_cdf`, every path is checked before, and its bare errors are mapped here.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError

from backend.errors import DataFileMissingError, LakehouseError, StorageError, TableError, UnsupportedFeatureError
from backend.errors import TableNotFoundError as NoTableError
from backend.lake.rows.filters import name_sql
from backend.lake.storage.object_store import without_credentials
from backend.lake.storage.storage import MISSING_STEP

# Spark writes timestamps as INT96, which reach further than 64 bits of nanoseconds, as what they would be read.
_INT96 = "datafusion.execution.parquet.coerce_int96"
_MICROSECONDS = {_INT96: "us", f"{_INT96}_tz": "UTC"}


def scan(
    place: str,
    uri: str,
    *,
    columns: Sequence[str] | None,
    predicate: str | None = None,
    version: int | None = None,
    options: Mapping[str, str] = {},
) -> pa.RecordBatchReader:
    """All rows that match of the table at a place, a local folder or a URI; errors speak of `uri`. Its log is read
    here, before the first batch is asked for. Read as `DeltaTable.scan` does, which has no setting for INT96."""
    names = "*" if columns is None else ", ".join(map(name_sql, columns))
    where = "" if predicate is None else f" WHERE {predicate}"
    with delta_errors(uri):
        table = DeltaTable(place, version=version, storage_options=dict(options) or None)
        query = QueryBuilder(_MICROSECONDS).register("rows", table)
        return _plain(pa.RecordBatchReader.from_stream(query.execute(f"SELECT {names} FROM rows{where}")), uri)


def deleted_positions(folder: str, uri: str) -> "dict[str, np.ndarray[Any, Any]]":
    """Positions of the rows that deletion vectors mark, by the path of their file, of the table in a local folder;
    errors speak of `uri`."""
    with delta_errors(uri):
        found = pa.table(DeltaTable(folder).deletion_vectors())
        paths = (unquote(urlsplit(url).path) for url in found["filepath"].to_pylist())
        live = (selection.values.to_numpy(zero_copy_only=False) for selection in found["selection_vector"])
        return {path: np.flatnonzero(~selection) for path, selection in zip(paths, live, strict=True)}


def scan_changes(
    folder: str, uri: str, versions: tuple[int, int], *, columns: Sequence[str] | None, options: Mapping[str, str] = {}
) -> pa.RecordBatchReader:
    """The change feed of commits (first and last) of the table in a folder, with `_change_type`, `_commit_version` and
    `_commit_timestamp`; errors speak of `uri`."""
    first, last = versions
    with delta_errors(uri):
        table = DeltaTable(folder, version=last, storage_options=dict(options) or None)
        wanted = None if columns is None else [*columns, "_change_type", "_commit_version", "_commit_timestamp"]
        reader = pa.RecordBatchReader.from_stream(
            table.load_cdf(starting_version=first, ending_version=last, columns=wanted)
        )
    return _plain(reader, uri)


@contextmanager
def delta_errors(uri: str) -> Iterator[None]:
    """Map what deltalake raises: its own errors, and the plain `Exception` of a failed read."""
    try:
        yield
    except LakehouseError:
        raise
    except TableNotFoundError as exc:
        raise NoTableError(f"{uri} is not a Delta table", hint="it may have been deleted") from exc
    except (DeltaError, OSError, ValueError, pa.ArrowException) as exc:
        raise _mapped(uri, exc) from exc
    except BaseException as exc:  # a read of a vacuumed file raises a bare Exception, a bug of the reader a panic
        if type(exc) is not Exception and type(exc).__name__ != "PanicException":
            raise
        raise _mapped(uri, exc) from exc


def _plain(reader: pa.RecordBatchReader, uri: str) -> pa.RecordBatchReader:
    """String views as strings: not everything downstream knows views."""
    schema = pa.schema([pa.field(f.name, _plain_type(f.type), f.nullable) for f in reader.schema])

    def batches() -> Iterator[pa.RecordBatch]:
        with delta_errors(uri):
            for batch in reader:
                yield batch.cast(schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _plain_type(f.type), f.nullable) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(_plain_type(kind.value_type))
    return kind


def _mapped(uri: str, exc: BaseException) -> LakehouseError:
    text = str(exc).strip()
    line = without_credentials(text or type(exc).__name__)
    lower = text.lower()
    if any(word in lower for word in ("permission", "access denied", "error sending request", "timed out", "retries")):
        return StorageError(
            f"the data of {uri} cannot be read: {line}", hint="check permissions, network and credentials"
        )
    if "not found" in lower or "no such file" in lower or "notfound" in lower:
        return DataFileMissingError(f"a data file of {uri} is gone: {line}", hint=MISSING_STEP)
    if "unsupported" in lower or "not supported" in lower or "reader feature" in lower:
        return UnsupportedFeatureError(f"the rows of {uri} cannot be read: {line}", hint="the log's numbers still hold")
    return TableError(f"the rows of {uri} cannot be read: {line}", hint="its log can still be read")
