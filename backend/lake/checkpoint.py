"""Checkpoints (classic, multi-part, V2 with sidecars) read into the table's state at their version.

Rule: only the columns that are needed are read, as Arrow arrays; whatever is wrong inside is `TableCorruptError` with
the file's name. Sidecars must lie in the table's own `_delta_log/_sidecars` (PROTOCOL.md, "Sidecar Files").
"""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backend.errors import LakehouseError, TableCorruptError
from backend.lake.actions import (
    FILES,
    NUM_RECORDS,
    UUID_CHARS,
    ActionColumns,
    BadActionError,
    Kind,
    epoch_ms,
    read_metadata,
    read_protocol,
    stats_rows,
)
from backend.lake.commits import parse_commit
from backend.lake.listing import LOG, Checkpoint
from backend.lake.model import Metadata, Protocol
from backend.lake.partitions import encode_partitions, physical_names
from backend.lake.paths import refused, resolve_log_path
from backend.lake.storage import Folder

SIDECARS = f"{LOG}/_sidecars"
_ADD_LEAVES = ("path", "partitionValues", "size", "modificationTime", "stats", "deletionVector")
_COLUMNS = [f"add.{leaf}" for leaf in _ADD_LEAVES] + ["add.stats_parsed.numRecords", "protocol", "metaData", "sidecar"]


@dataclass(frozen=True, slots=True)
class LogState:
    """A table at one version as the log says: `files` has the columns of `actions.FILES`."""

    version: int
    protocol: Protocol
    metadata: Metadata
    files: pa.Table
    findings: tuple[str, ...] = ()


def load_checkpoint(folder: Folder, checkpoint: Checkpoint) -> LogState:
    """The state at a checkpoint's version; raises `TableCorruptError`, `PathRefusedError` or `StorageError`."""
    found = _Found()
    for name in checkpoint.files:
        path = f"{LOG}/{name}"
        if name.endswith(".json"):
            _read_json(folder, path, checkpoint.version, found)
        else:
            _read_parquet(folder, path, found)
    for sidecar in found.sidecars:
        _read_parquet(folder, _sidecar_place(folder.uri, sidecar), found)
    name = f"{LOG}/{checkpoint.files[0]}"
    if found.protocol is None or found.metadata is None:
        raise TableCorruptError(f"checkpoint {name} holds no protocol or no metaData", hint=_hint())
    physical = physical_names(found.metadata)
    names = [physical.get(column, column) for column in found.metadata.partition_columns]
    tables = [_decoded(table, names, name) for table in found.adds] + found.files
    files = pa.concat_tables(tables) if tables else FILES.empty_table()
    return LogState(checkpoint.version, found.protocol, found.metadata, files)


class _Found:
    """What the files of one checkpoint held, gathered."""

    def __init__(self) -> None:
        self.protocol: Protocol | None = None
        self.metadata: Metadata | None = None
        self.sidecars: list[str] = []
        self.adds: list[pa.Table] = []
        self.files: list[pa.Table] = []


def _read_json(folder: Folder, path: str, version: int, found: _Found) -> None:
    columns = ActionColumns()
    record = parse_commit(version, folder.read(path), columns, path)
    if record.problem:
        raise TableCorruptError(record.problem, hint=_hint())
    found.protocol = record.protocol or found.protocol
    found.metadata = record.metadata or found.metadata
    found.sidecars += record.sidecars
    actions = columns.table()
    found.files.append(actions.filter(pc.equal(actions["kind"], int(Kind.ADD))).select(FILES.names))


def _read_parquet(folder: Folder, path: str, found: _Found) -> None:
    try:
        with folder.open(path) as source:
            table = pq.ParquetFile(source).read(columns=_COLUMNS)
        if "add" in table.column_names:
            found.adds.append(_adds(table))
        for column, action in _single(table, "protocol"), _single(table, "metaData"):
            if column == "protocol":
                found.protocol = read_protocol(action)
            elif column == "metaData":
                found.metadata = read_metadata(_with_maps(action))
        if "sidecar" in table.column_names:
            paths = pc.struct_field(table["sidecar"], "path")
            found.sidecars += [str(value) for value in paths.drop_null().to_pylist()]
    except LakehouseError:
        raise
    except (pa.ArrowException, BadActionError, KeyError, ValueError, OSError) as exc:
        raise TableCorruptError(f"checkpoint file {path} cannot be read: {_line(exc)}", hint=_hint()) from exc


def _adds(table: pa.Table) -> pa.Table:
    column = table["add"].combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    column = column.filter(pc.is_valid(pc.struct_field(column, "path")))
    names = [f.name for f in column.type]
    return pa.table({name: pc.struct_field(column, name) for name in names})


def _decoded(adds: pa.Table, partition_columns: list[str], name: str) -> pa.Table:
    try:
        return _to_files(adds.combine_chunks(), partition_columns)
    except (pa.ArrowException, KeyError, ValueError) as exc:
        raise TableCorruptError(f"checkpoint {name} holds files it should not: {_line(exc)}", hint=_hint()) from exc


def _to_files(adds: pa.Table, partition_columns: list[str]) -> pa.Table:
    count = adds.num_rows
    paths = _unquoted(_one(adds["path"].cast(pa.string())))
    sizes = _one(adds["size"]).cast(pa.int64())
    if sizes.null_count or (count and pc.min(sizes).as_py() < 0):
        raise ValueError("a file without a size")
    dv_id, dv_path, deleted = _deletion_vectors(adds, count)
    marked = pc.binary_join_element_wise(paths, dv_id, "\x00")
    columns = {
        "key": pc.if_else(pc.is_valid(dv_id), marked, paths),
        "path": paths,
        "size_bytes": sizes,
        "num_records": _num_records(adds, count),
        "deleted_rows": deleted,
        "modified_at": _times(adds, count),
        "encoded_partition": _partitions(adds, partition_columns, count),
        "dv_id": dv_id,
        "dv_path": dv_path,
        "stats": _one(adds["stats"].cast(pa.string()))
        if "stats" in adds.column_names
        else pa.nulls(count, pa.string()),
    }
    return pa.table(columns).cast(FILES)


def _unquoted(paths: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring(paths, "%")).as_py():
        return paths
    return pa.array([None if path is None else unquote(path) for path in paths.to_pylist()], pa.string())


def _num_records(adds: pa.Table, count: int) -> pa.Array:
    """`numRecords` from the JSON text, else from the parsed struct; None where neither says."""
    rows = pa.nulls(count, pa.int64())
    if "stats" in adds.column_names:
        texts = _one(adds["stats"].cast(pa.string()))
        found = pc.extract_regex(texts, NUM_RECORDS.pattern.replace("(", "(?P<n>", 1))
        rows = pc.struct_field(found, "n").cast(pa.int64())
        odd = pc.and_(pc.is_null(rows), pc.is_valid(texts))
        if pc.any(odd).as_py():
            slow = [stats_rows(text) if o else None for text, o in zip(texts.to_pylist(), odd.to_pylist(), strict=True)]
            rows = pc.coalesce(rows, pa.array(slow, pa.int64()))
    if "stats_parsed" in adds.column_names:
        rows = pc.coalesce(rows, pc.struct_field(_one(adds["stats_parsed"]), "numRecords").cast(pa.int64()))
    return rows


def _deletion_vectors(adds: pa.Table, count: int) -> tuple[pa.Array, pa.Array, pa.Array]:
    none = pa.nulls(count, pa.string())
    if "deletionVector" not in adds.column_names:
        return none, none, pa.array([0] * count, pa.int64())
    vectors = _one(adds["deletionVector"])
    kind = pc.struct_field(vectors, "storageType").cast(pa.string())
    text = pc.struct_field(vectors, "pathOrInlineDv").cast(pa.string())
    offset = pc.struct_field(vectors, "offset").cast(pa.string())
    plain = pc.binary_join_element_wise(kind, text, "")
    unique = pc.coalesce(pc.binary_join_element_wise(plain, offset, "@"), plain)
    marked = pc.struct_field(vectors, "cardinality").cast(pa.int64())
    if pc.any(pc.and_(pc.is_valid(unique), pc.is_null(marked))).as_py():
        raise ValueError("a deletion vector without its cardinality")
    folder = pc.utf8_slice_codeunits(text, 0, -UUID_CHARS)
    path = pc.if_else(pc.equal(kind, "p"), _unquoted(text), pc.if_else(pc.equal(kind, "u"), folder, None))
    return unique, pc.if_else(pc.equal(path, ""), None, path), pc.fill_null(marked, 0)


def _partitions(adds: pa.Table, names: list[str], count: int) -> pa.Array:
    if not names:
        return pa.array([""] * count, pa.string())
    return encode_partitions(_one(adds["partitionValues"]), names)


def _times(adds: pa.Table, count: int) -> pa.Array:
    if "modificationTime" not in adds.column_names:
        return pa.nulls(count, pa.timestamp("ms", tz="UTC"))
    millis = _one(adds["modificationTime"]).cast(pa.int64())
    sane = pc.and_(pc.greater_equal(millis, 0), pc.less(millis, 253_402_300_800_000))
    return pc.if_else(sane, millis, pa.scalar(None, pa.int64())).cast(pa.timestamp("ms", tz="UTC"))


def _one(column: pa.ChunkedArray) -> pa.Array:
    chunks = column.chunks
    if len(chunks) == 1:
        return chunks[0]
    return pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


def _single(table: pa.Table, column: str) -> tuple[str, dict[str, object] | None]:
    if column not in table.column_names:
        return "", None
    found = table[column].drop_null()
    return (column, found[0].as_py()) if len(found) else ("", None)


def _with_maps(action: dict[str, object] | None) -> dict[str, object]:
    action = dict(action or {})
    pairs = action.get("configuration")
    created = action.get("createdTime")
    action["configuration"] = dict(pairs) if isinstance(pairs, Sequence) else pairs
    action["createdTime"] = epoch_ms(created)
    return action


def _sidecar_place(table: str, path: str) -> str:
    """A sidecar's path relative to the table; raises `PathRefusedError` when it is not in `_sidecars`."""
    decoded = unquote(path)
    place = resolve_log_path(decoded, f"{table}/{SIDECARS}", ())
    if not place.startswith(f"{table}/{SIDECARS}/"):
        raise refused(path, table)
    return place.removeprefix(f"{table}/")


def _line(exc: Exception) -> str:
    return (str(exc).strip().splitlines() or [type(exc).__name__])[0][:200]


def _hint() -> str:
    return "restore the file, or rebuild the checkpoint with the engine that writes the table"
