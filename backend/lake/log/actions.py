"""One line of a log read as an action, and a version's `.crc` file: the shapes of PROTOCOL.md, checked.

Rule: a commit is unreadable where a file's path, size or deletion vector is not what the protocol says: a wrong number
is worse than none. Whatever else is odd (statistics, commitInfo) hides only itself. A checksum that contradicts itself
or lacks a required field is none; it answers first, the log has the last word, and a disagreement is a finding.
"""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

import orjson

from backend.lake.model import Bucket, Metadata, Protocol
from backend.lake.table.schema import encode_partition

MAX_INT64 = 2**63 - 1
MAX_EXACT = 2**53
NUM_RECORDS = re.compile(r'^\s*\{\s*"numRecords"\s*:\s*(\d{1,18})\s*[,}]')


class FileAction(IntEnum):
    REMOVE = 0
    ADD = 1
    CDC = 2


NO_COLUMNS = '{"type":"struct","fields":[]}'


class BadActionError(ValueError):
    """An action that the protocol does not allow; the log reader adds file and line."""


def file_size(kind: FileAction, action: Any) -> int | None:
    """The size that a file action names, None where a remove or a change file names none; raises `BadActionError` for
    an action that the protocol does not allow."""
    if not isinstance(action, dict):
        raise BadActionError(f"{kind.name.lower()} is not an object")
    path = action.get("path")
    if not isinstance(path, str) or not path:
        raise BadActionError(f"{kind.name.lower()} without a path")
    if (vector := action.get("deletionVector")) is not None:
        deletion_vector(vector)
    if (values := action.get("partitionValues")) and not isinstance(values, dict):
        raise BadActionError("partitionValues is not an object")
    size = action.get("size")
    if type(size) is int and 0 <= size <= MAX_INT64:
        return size
    if type(size) is float and size.is_integer() and 0 <= size <= MAX_EXACT:  # JSON knows one kind of number
        return int(size)
    if kind is FileAction.ADD:
        raise BadActionError(f"add without a size: {path!r}")
    return None


def file_action(version: int, kind: FileAction, action: Any) -> tuple[Any, ...]:
    """A row of `file_set.ACTIONS`; raises `BadActionError`."""
    size = file_size(kind, action)
    raw: str = action["path"]
    path = unquote(raw) if "%" in raw else raw
    dv_id, dv_path, deleted_rows = deletion_vector(action.get("deletionVector"))
    stats, stats_text = action.get("stats"), None
    if kind is FileAction.ADD and isinstance(stats, str | Mapping):
        stats_text = stats if isinstance(stats, str) else orjson.dumps(stats).decode()
    num_records = None if stats is None else stats_rows(stats)
    if num_records is not None and num_records < deleted_rows:
        num_records = None  # the statistics contradict the deletion vector
    return (
        version,
        int(kind),
        action.get("dataChange") is not False,
        raw != path,
        path if dv_id is None else f"{path}\x00{dv_id}",
        path,
        size,
        num_records,
        deleted_rows,
        epoch_ms(action.get("modificationTime", action.get("deletionTimestamp"))),
        encoded_partition(action),
        dv_id,
        dv_path,
        stats_text,
        row_id if _is_count(row_id := action.get("baseRowId")) else None,
    )


def deletion_vector(value: Any) -> tuple[str | None, str | None, int]:
    """Unique id, its path (or the folder before a relative one), how many rows it marks (PROTOCOL.md, "Deletion
    Vectors")."""
    if value is None:
        return None, None, 0
    try:
        kind, text, marked = value["storageType"], value["pathOrInlineDv"], value["cardinality"]
        offset = value.get("offset")
    except (KeyError, TypeError, AttributeError) as exc:
        raise BadActionError("a deletion vector without storageType, pathOrInlineDv or cardinality") from exc
    if not _is_count(marked) or not isinstance(text, str) or kind not in ("u", "i", "p"):
        raise BadActionError("a deletion vector with wrong types")
    unique = f"{kind}{text}" if offset is None else f"{kind}{text}@{offset}"
    folder = text[:-UUID_CHARS] if kind == "u" else ""
    return unique, unquote(text) if kind == "p" else folder or None, marked


def stats_rows(stats: Any) -> int | None:
    """`numRecords` of a file's statistics, None where they are absent or not what they should be."""
    if isinstance(stats, str):
        match = NUM_RECORDS.match(stats)
        if match is not None:
            return int(match.group(1))
        try:
            stats = orjson.loads(stats)
        except orjson.JSONDecodeError:
            return None
    rows = stats.get("numRecords") if isinstance(stats, Mapping) else None
    if isinstance(rows, float) and rows.is_integer() and 0 <= rows <= MAX_EXACT:
        return int(rows)
    return rows if _is_count(rows) else None


def read_protocol(action: Any) -> Protocol:
    try:
        reader, writer = action["minReaderVersion"], action["minWriterVersion"]
    except (KeyError, TypeError) as exc:
        raise BadActionError("protocol without its versions") from exc
    features = action.get("readerFeatures"), action.get("writerFeatures")
    if not _is_count(reader) or not _is_count(writer) or not all(isinstance(name, list | None) for name in features):
        raise BadActionError("protocol with wrong types")
    return Protocol(reader, writer, *map(_names, features))


def read_metadata(action: Any) -> Metadata:
    if not isinstance(action, Mapping):
        raise BadActionError("metaData is not an object")
    schema = action.get("schemaString")
    if schema is None:  # a pipeline's table before its first rows: Delta reads it as one without columns
        schema = NO_COLUMNS
    if not isinstance(schema, str):
        raise BadActionError("metaData whose schema is no text")
    configuration = action.get("configuration") or {}
    if not isinstance(configuration, Mapping):
        raise BadActionError("metaData whose configuration is not an object")
    created_ms = epoch_ms(action.get("createdTime"))
    return Metadata(
        id=str(action.get("id") or ""),
        schema_json=schema,
        partition_columns=_names(action.get("partitionColumns")),
        configuration={str(k): str(v) for k, v in configuration.items()},
        name=optional_text(action.get("name")),
        description=optional_text(action.get("description")),
        created_at=None if created_ms is None else utc_from_ms(created_ms),
    )


def epoch_ms(value: Any) -> int | None:
    """Milliseconds since 1970 when the value is such a number and a date can hold it."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 253_402_300_800_000:
        return None
    return value


def utc_from_ms(value: int) -> datetime:
    return datetime.fromtimestamp(value / 1000, UTC)


def in_millis(moment: datetime) -> datetime:
    """Delta compares whole milliseconds."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def optional_text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INT64


def _names(value: Any) -> tuple[str, ...]:
    return tuple(str(name) for name in value) if isinstance(value, list) else ()


def encoded_partition(action: Mapping[str, Any]) -> str:
    """Where a file lies, as `encode_partition` writes it; empty where its action does not say."""
    values = action.get("partitionValues")
    if not values:
        return ""
    try:
        return _encoded_once(tuple(values.items()))
    except TypeError:  # a value that no dictionary takes, which no writer of partitions means
        return encode_partition({name: None if value is None else str(value) for name, value in values.items()})


@lru_cache(maxsize=4096)
def _encoded_once(values: tuple[tuple[str, Any], ...]) -> str:
    """Commits name the same partitions again and again."""
    return encode_partition({name: None if value is None else str(value) for name, value in values})


# ids of deletion vectors ------------------------------------------------------------------------------------------

UUID_CHARS = 20  # a relative vector's file is named by a base85 uuid of this length, behind an optional folder
_OFFSET = re.compile(r"@(\d+)$")
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


@dataclass(frozen=True, slots=True)
class VectorId:
    """`kind` is "u" (a file of the table), "p" (a path) or "i" (`text` holds the vector itself)."""

    kind: str
    text: str
    offset: int = 0

    @property
    def file(self) -> str | None:
        """The vector's file; None where it lies in the log itself, or where the text names none."""
        if self.kind == "p":
            return self.text
        if self.kind != "u" or len(self.text) < UUID_CHARS:
            return None
        folder, name = self.text[:-UUID_CHARS], _uuid(self.text[-UUID_CHARS:])
        return None if name is None else f"{folder}{'/' if folder else ''}deletion_vector_{name}.bin"


def read_vector_id(dv_id: str) -> VectorId:
    kind, text = dv_id[:1], dv_id[1:]
    match = _OFFSET.search(text)
    # Base85 has @ and digits among its characters: an inline vector of whole groups of five ends without an offset.
    if match is None or (kind == "i" and len(text) % 5 == 0):
        return VectorId(kind, text)
    return VectorId(kind, text[: match.start()], int(match[1]))


def _uuid(text: str) -> uuid.UUID | None:
    """A uuid in base85 with ZeroMQ's alphabet."""
    raw = b""
    for start in range(0, UUID_CHARS, 5):
        digits = [_Z85.find(char) for char in text[start : start + 5]]
        number = 0
        for digit in digits:
            number = number * 85 + digit
        if min(digits) < 0 or number >= 1 << 32:
            return None
        raw += number.to_bytes(4, "big")
    return uuid.UUID(bytes=raw)


@dataclass(frozen=True, slots=True)
class Checksum:
    """`buckets` are the writer's own bins, half-open, joined to powers of two; None when it left no histogram."""

    num_files: int
    size_bytes: int
    protocol: Protocol | None
    metadata: Metadata | None
    buckets: tuple[Bucket, ...] | None = None

    def disagreement(self, num_files: int, size_bytes: int, protocol: Protocol, metadata: Metadata) -> str | None:
        """What differs from the log, in words; None when nothing does."""
        differences = []
        if (self.num_files, self.size_bytes) != (num_files, size_bytes):
            differences.append(
                f"it says {self.num_files} files and {self.size_bytes} bytes, "
                f"the log holds {num_files} files and {size_bytes} bytes"
            )
        if self.protocol is not None and self.protocol != protocol:
            differences.append("its protocol is another one")
        if self.metadata is not None and _essence(self.metadata) != _essence(metadata):
            differences.append("its metadata is another one")
        return "; ".join(differences) or None


def read_checksum(content: bytes) -> Checksum | None:
    """A checksum file's content understood; None when it is not what the protocol says."""
    try:
        document = orjson.loads(content)
        num_files, size_bytes = document["numFiles"], document["tableSizeBytes"]
        protocol = read_protocol(document["protocol"]) if document.get("protocol") else None
        metadata = read_metadata(document["metadata"]) if document.get("metadata") else None
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, BadActionError, ValueError):
        return None
    if not _is_count(num_files) or not _is_count(size_bytes):
        return None
    buckets = _buckets(document.get("fileSizeHistogram") or document.get("histogramOpt"), num_files, size_bytes)
    return Checksum(num_files, size_bytes, protocol, metadata, buckets)


def _essence(metadata: Metadata) -> tuple[str, str, dict[str, str]]:
    return metadata.id, metadata.schema_json, dict(metadata.configuration)


def _buckets(histogram: Any, num_files: int, size_bytes: int) -> tuple[Bucket, ...] | None:
    """The bins of a histogram joined to powers of two, without empty ones at the ends; None where it is none, or does
    not add up to these files and bytes."""
    if not isinstance(histogram, Mapping):
        return None
    lists: list[Any] = [histogram.get(name) for name in ("sortedBinBoundaries", "fileCounts", "totalBytes")]
    if not all(isinstance(numbers, list) and all(map(_is_count, numbers)) for numbers in lists):
        return None
    edges, files, sizes = lists
    if not edges or edges[0] != 0 or not len(edges) == len(files) == len(sizes) or sorted(set(edges)) != edges:
        return None
    if (sum(files), sum(sizes)) != (num_files, size_bytes):
        return None
    cuts = [at for at, edge in enumerate(edges) if edge & (edge - 1) == 0] + [len(edges)]
    joined = [
        Bucket(edges[first], [*edges, MAX_INT64][end], sum(files[first:end]), sum(sizes[first:end]))
        for first, end in pairwise(cuts)
    ]
    filled = [at for at, bucket in enumerate(joined) if bucket.files]
    return tuple(joined[filled[0] : filled[-1] + 1]) if filled else ()
