"""`.crc` files: what a writer said of a whole version in one small file (PROTOCOL.md, "Version Checksum File").

Rule: a checksum that contradicts itself or lacks a required field is none. It answers first where a log is large; the
log has the last word, and a disagreement is a finding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import orjson

from backend.lake.log.actions import BadActionError, read_metadata, read_protocol
from backend.lake.model import Bucket, Metadata, Protocol

MAX_BYTES = 2**63 - 1


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
        num_files, size_bytes = _count(document["numFiles"]), _count(document["tableSizeBytes"])
        protocol = read_protocol(document["protocol"]) if document.get("protocol") else None
        metadata = read_metadata(document["metadata"]) if document.get("metadata") else None
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, BadActionError, ValueError):
        return None
    buckets = _buckets(document.get("fileSizeHistogram") or document.get("histogramOpt"))
    if buckets is not None and (sum(b.files for b in buckets), sum(b.bytes for b in buckets)) != (
        num_files,
        size_bytes,
    ):
        buckets = None
    return Checksum(num_files, size_bytes, protocol, metadata, buckets)


def _essence(metadata: Metadata) -> tuple[str, str, dict[str, str]]:
    return metadata.id, metadata.schema_json, dict(metadata.configuration)


def _buckets(histogram: Any) -> tuple[Bucket, ...] | None:
    if not isinstance(histogram, Mapping):
        return None
    edges, files, sizes = (histogram.get(name) for name in ("sortedBinBoundaries", "fileCounts", "totalBytes"))
    try:
        edges, files, sizes = [_count(x) for x in edges], [_count(x) for x in files], [_count(x) for x in sizes]  # type: ignore[union-attr]
    except (TypeError, ValueError):
        return None
    if not edges or edges[0] != 0 or not len(edges) == len(files) == len(sizes) or sorted(set(edges)) != edges:
        return None
    return _joined(edges, files, sizes)


def _joined(edges: Sequence[int], files: Sequence[int], sizes: Sequence[int]) -> tuple[Bucket, ...]:
    """Bins between powers of two put together, without empty ones at the ends."""
    cuts = [at for at, edge in enumerate(edges) if edge & (edge - 1) == 0] + [len(edges)]
    joined = []
    for first, end in pairwise(cuts):
        to_bytes = edges[end] if end < len(edges) else MAX_BYTES
        joined.append(Bucket(edges[first], to_bytes, sum(files[first:end]), sum(sizes[first:end])))
    while joined and not joined[-1].files:
        joined.pop()
    while joined and not joined[0].files:
        joined.pop(0)
    return tuple(joined)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("no count")
    return value
