"""From a known state and the commits after it to the state at a version.

Rule: pure and vectorised: the last action on a file's key `(path, deletion vector)` decides; no object per file.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backend.errors import TableCorruptError, UnsupportedFeatureError
from backend.lake.actions import FILES, Kind
from backend.lake.checkpoint import LogState
from backend.lake.commits import CommitSlice
from backend.lake.model import FILES_SCHEMA, Protocol, Snapshot, TableRef
from backend.lake.partitions import show_partitions
from backend.lake.paths import SUSPICIOUS, resolve_log_path

MAX_READER_VERSION = 3
# Reader features under which the log's files, sizes and row counts mean what this reader takes them to mean.
READER_FEATURES = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",
        "variantType-preview",
        "variantShredding",
        "variantShredding-preview",
        "geospatial",
        "geoSpatial",
    }
)


def replay(base: LogState | None, commits: Sequence[CommitSlice]) -> LogState:
    """The state after the commits; raises `TableCorruptError` when one cannot be read or there is no metadata."""
    protocol, metadata = (base.protocol, base.metadata) if base else (None, None)
    version = base.version if base else -1
    for commit in commits:
        record = commit.record
        if record.problem:
            raise TableCorruptError(record.problem, hint="restore the file; versions before it can still be read")
        protocol, metadata, version = record.protocol or protocol, record.metadata or metadata, record.version
    if protocol is None or metadata is None:
        raise TableCorruptError(
            f"the log up to version {version} holds no protocol or no metaData", hint="the first commit is damaged"
        )
    files = base.files if base else FILES.empty_table()
    actions = [commit.actions for commit in commits if commit.length]
    if actions:
        files = live_files(files, pa.concat_tables(actions))
    return LogState(version, protocol, metadata, files, base.findings if base else ())


def live_files(base: pa.Table, actions: pa.Table) -> pa.Table:
    """Files live after the actions: those of `base` that no action names, and the last adds."""
    actions = actions.filter(pc.not_equal(actions["kind"], int(Kind.CDC)))
    if not actions.num_rows:
        return base
    codes = actions["key"].combine_chunks().dictionary_encode()
    if isinstance(codes, pa.ChunkedArray):
        codes = codes.combine_chunks()
    last = np.zeros(len(codes.dictionary), np.int64)
    last[codes.indices.to_numpy()] = np.arange(actions.num_rows)
    decided = actions.take(pa.array(np.sort(last)))
    added = decided.filter(pc.equal(decided["kind"], int(Kind.ADD))).select(FILES.names).cast(FILES)
    kept = base.filter(pc.invert(pc.is_in(base["key"], value_set=codes.dictionary))) if base.num_rows else base
    return pa.concat_tables([kept, added]).combine_chunks()


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


def check_paths(paths: pa.ChunkedArray | pa.Array, table: str, allowed: Sequence[str]) -> None:
    """Raise `PathRefusedError` when a log's path leaves the table and every allowed root."""
    odd = paths.filter(pc.fill_null(pc.match_substring_regex(paths, SUSPICIOUS), False))
    for path in odd.unique().to_pylist():
        resolve_log_path(path, table, allowed)


def snapshot_of(ref: TableRef, state: LogState, committed_at: object, findings: tuple[str, ...]) -> Snapshot:
    """The public value: files in the order of their paths, partitions as people read them."""
    files = state.files.sort_by([("path", "ascending")])
    partition = show_partitions(files["encoded_partition"], state.metadata)
    table = files.append_column("partition", partition).select(FILES_SCHEMA.names).cast(FILES_SCHEMA)
    return Snapshot(
        ref=ref,
        version=state.version,
        committed_at=committed_at,  # type: ignore[arg-type]
        protocol=state.protocol,
        metadata=state.metadata,
        files=table,
        stats=files["stats"],
        findings=(*state.findings, *findings),
    )
