"""From a known state and the commits after it to the state at a version.

Rule: protocol and metadata are those named last; files stay columns (`FileSet`) and are read when asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from backend.errors import TableCorruptError, UnsupportedFeatureError
from backend.lake.log.commits import CommitRecord
from backend.lake.log.listing import Segment
from backend.lake.model import Metadata, Protocol

if TYPE_CHECKING:
    from backend.lake.log.checkpoint import CheckpointState
    from backend.lake.log.file_set import FileSet

MAX_READER_VERSION = 3
_COLUMN = re.compile(r'"name"\s*:')
# Reader features that change how rows or checkpoints are read; deltalake is asked for these alone.
ROW_FEATURES = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "v2Checkpoint",
        "variantType",
        "variantType-preview",
        "variantShredding",
        "variantShredding-preview",
    }
)
# Under these and the ones above the log's files, sizes and row counts mean what this reader takes them to mean. Every
# file is cast to the table's types; a column of places is left out by its type.
READER_FEATURES = ROW_FEATURES | {
    "typeWidening",
    "typeWidening-preview",
    "vacuumProtocolCheck",
    "geospatial",
    "geoSpatial",
}


@dataclass(frozen=True, slots=True)
class LogState:
    """A table at one version as the log says. `read_past`: what is to be said of commits without a byte."""

    version: int
    segment: Segment  # the way that protocol and metadata were read from
    protocol: Protocol
    metadata: Metadata
    files: FileSet
    small_actions: Callable[[], tuple[Mapping[str, int], Mapping[str, str]]] = field(compare=False)
    read_past: tuple[str, ...] = ()


def named_last(
    base: CheckpointState | None, records: Iterable[CommitRecord], version: int
) -> tuple[Protocol, Metadata]:
    """Protocol and metadata after the commits; raises `TableCorruptError` when one cannot be read or none is named."""
    protocol, metadata = (base.protocol, base.metadata) if base else (None, None)
    for record in records:
        if record.problem:
            raise damaged(record.problem, is_first=protocol is None)
        protocol, metadata = record.protocol or protocol, record.metadata or metadata
    if protocol is None or metadata is None:
        raise TableCorruptError(
            f"the log up to version {version} holds no protocol or no metaData", hint="the first commit is damaged"
        )
    return protocol, metadata


def damaged(problem: str, *, is_first: bool) -> TableCorruptError:
    """`is_first`: no version before it is known."""
    rest = ": no version can be read without it" if is_first else "; versions before it can still be read"
    return TableCorruptError(problem, hint=f"restore the file{rest}")


def check_readable(protocol: Protocol) -> None:
    """Raise `UnsupportedFeatureError` when the protocol asks a reader for more than this one knows."""
    if protocol.min_reader_version > MAX_READER_VERSION:
        raise UnsupportedFeatureError(
            f"the table needs reader version {protocol.min_reader_version}; Weir knows up to {MAX_READER_VERSION}",
            hint="its history can still be read",
        )
    unknown = sorted(set(protocol.reader_features) - READER_FEATURES)
    if protocol.min_reader_version == MAX_READER_VERSION and unknown:
        raise UnsupportedFeatureError(
            f"the table needs the reader feature {', '.join(unknown)}, which Weir does not know",
            hint="its history can still be read",
        )


def check_width(metadata: Metadata, most: int) -> None:
    """Raise `UnsupportedFeatureError` for a schema of more columns than may be read: a count without parsing it."""
    if (columns := len(_COLUMN.findall(metadata.schema_json))) > most:
        raise UnsupportedFeatureError(
            f"the table has {columns:,} columns, nested ones counted; Weir reads up to {most:,}",
            hint="its history can still be read; the setting lake.max_columns allows more",
        )
