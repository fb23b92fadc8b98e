"""A table's summary: facts in words and figures.

Rule: pure; what the log does not say is not made up.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from app.ui.view.commits import stream_text
from app.ui.view.words import KeyFigure
from backend.format import (
    ago,
    ago_text,
    bytes_exact,
    bytes_text,
    count_exact,
    count_text,
    duration_text,
    signed,
    signed_bytes,
    things,
)
from backend.health.rules import MergeGain, small_files_text
from backend.lake.history.timeline import Rhythm
from backend.lake.model import Commit, Snapshot, TableRef, Timeline, VersionTotals
from backend.lake.table.properties import is_on
from backend.lake.table.schema import constraints
from backend.streams.graph import Lineage, build_graph, lineage
from backend.streams.verdict import StreamStatus

# facts -----------------------------------------------------------------------------------------------------------


def key_figures(snapshot: Snapshot, gain: MergeGain) -> list[KeyFigure]:
    """Rows, files, size and small files."""
    files = snapshot.num_files
    rows_help = "Not known: at least one file has no statistics, and Weir does not count rows by reading them all."
    if snapshot.num_rows is not None:
        rows = f"{count_exact(snapshot.num_rows)} rows"
        rows_help = f"{rows}, by the statistics of every file less rows deleted by deletion vectors."
    return [
        KeyFigure("Rows", count_text(snapshot.num_rows), rows_help),
        KeyFigure("Files", count_text(files), f"{count_exact(files)} files"),
        KeyFigure("Size", bytes_text(snapshot.size_bytes), bytes_exact(snapshot.size_bytes)),
        KeyFigure("Small files", small_files_text(gain), "Fine: merging would gain readers little."),
    ]


def _a_day_before(totals: Sequence[VersionTotals], now: datetime) -> VersionTotals | None:
    limit = now - timedelta(days=1)
    older = [item for item in totals if item.committed_at and item.committed_at <= limit]
    return older[-1] if older else None


def rhythm_sentence(rhythm: Rhythm | None) -> str:
    """ "A commit every 12 s, the last 4 s ago."; empty without a rhythm."""
    if rhythm is None:
        return ""
    text = f"A commit every {duration_text(rhythm.gap_s)}, the last {ago_text(rhythm.since_s)}"
    return f"{text}: that is later than usual." if rhythm.is_late else f"{text}."


def writers_sentence(commits: Sequence[Commit], streams: Mapping[str, str]) -> str:
    """Who wrote the last commits: streams by name (`streams`: those of known query ids), else the engine and user."""
    if not commits:
        return "No commit in the log says who writes this table."
    counts = Counter(_writer(commit, streams) for commit in commits)
    parts = [f"{name} ({count_text(count)})" if len(counts) > 1 else name for name, count in counts.most_common(3)]
    rest = len(counts) - 3
    if rest > 0:
        parts.append(f"{things(rest, 'other')}")
    many = f"Last {things(len(commits), 'commit')}" if len(commits) > 1 else "Its only commit is"
    return f"{many} by {', '.join(parts)}."


def _writer(commit: Commit, streams: Mapping[str, str]) -> str:
    if stream := stream_text(commit, streams, with_batch=False):
        return f"stream {stream}"
    named = " by ".join(part for part in (commit.engine, commit.user) if part)
    return named or "an unnamed writer"


def lineage_of(ref: TableRef, streams: Sequence[StreamStatus], now: datetime) -> Lineage:
    """Which declared streams write and read the table."""
    return lineage(build_graph(streams, {}, now=now), {ref.name, ref.uri, ref.name.rpartition("/")[2]})


def growth_sentence(timeline: Timeline, now: datetime) -> str:
    """What the last 24 h brought, or all that is known of a younger table; empty where nothing can be compared."""
    if len(timeline.totals) < 2:
        return ""
    last, before = timeline.totals[-1], _a_day_before(timeline.totals, now)
    since = "In 24 h"
    if before is None:
        before = timeline.totals[0]
        at = f", {ago(before.committed_at, now)}" if before.committed_at else ""
        since = f"Since v{before.version}{at}"
    rows = None if last.num_rows is None or before.num_rows is None else last.num_rows - before.num_rows
    if not rows and last.size_bytes == before.size_bytes:
        return f"{since}: no growth."
    parts = [] if rows is None else [f"{signed(rows)} {'row' if abs(rows) == 1 else 'rows'}"]
    parts.append(signed_bytes(last.size_bytes - before.size_bytes))
    return f"{since}: {', '.join(parts)}."


def traits(snapshot: Snapshot) -> list[str]:
    """The properties that whoever reads or writes the table has to know, in a few words each."""
    metadata = snapshot.metadata
    names = [f"partitioned by {', '.join(metadata.partition_columns)}"] * bool(metadata.partition_columns)
    names += ["clustered"] * ("delta.clustering" in snapshot.domains)
    names += [words for key, words in _SWITCHES.items() if is_on(metadata.configuration, key)]
    names += [
        words.format(value.removeprefix("interval "))
        for key, words in _VALUES.items()
        if (value := metadata.configuration.get(key))
    ]
    checks = len(constraints(metadata))
    return names + [things(checks, "check constraint")] * bool(checks)


_SWITCHES = {
    "delta.enableChangeDataFeed": "change feed",
    "delta.enableDeletionVectors": "deletion vectors",
    "delta.appendOnly": "append only",
    "delta.enableRowTracking": "row tracking",
    "delta.enableTypeWidening": "type widening",
    "delta.enableInCommitTimestamps": "in-commit timestamps",
}
_VALUES = {
    "delta.columnMapping.mode": "column mapping: {}",
    "delta.deletedFileRetentionDuration": "removed files kept: {}",
    "delta.logRetentionDuration": "log kept: {}",
    "delta.targetFileSize": "target file size: {}",
}


def facts(snapshot: Snapshot) -> dict[str, str]:
    """What the log says of the table itself, for a two-column list."""
    metadata, protocol = snapshot.metadata, snapshot.protocol
    features = ", ".join(protocol.features) or "none"
    rows = {
        "Partitioned by": ", ".join(metadata.partition_columns) or "not partitioned",
        "Protocol": f"reader {protocol.min_reader_version}, writer {protocol.min_writer_version}",
        "Table features": features,
        "Table id": metadata.id,
        "Rows known from": "statistics of every file"
        if snapshot.num_rows is not None
        else "not known: files lack statistics",
    }
    return {key: value for key, value in rows.items() if value}
