"""A table's summary: facts in words and figures with their trend.

Rule: pure; what the log does not say is not made up.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.ui.format import count_text, percent, things
from backend.lake.model import Commit, Snapshot, Timeline, VersionTotals

SPARK_POINTS = 60


# facts -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Trend:
    """One figure over the last versions, and its change against 24 h before (None: nothing to compare with)."""

    points: tuple[int, ...]
    change: int | None


def trend(timeline: Timeline, figure: str, now: datetime) -> Trend:
    """`figure` is a field of `VersionTotals`: num_rows, num_files, size_bytes or small_files."""
    known = [(totals, getattr(totals, figure)) for totals in timeline.totals if getattr(totals, figure) is not None]
    step = max(1, -(-len(known) // SPARK_POINTS))
    points = tuple(value for _, value in reversed(known[::-1][::step]))
    before = _a_day_before([totals for totals, _ in known], now)
    change = known[-1][1] - getattr(before, figure) if before and known else None
    return Trend(points, change)


def _a_day_before(totals: Sequence[VersionTotals], now: datetime) -> VersionTotals | None:
    limit = now - timedelta(days=1)
    older = [item for item in totals if item.committed_at and item.committed_at <= limit]
    return older[-1] if older else None


def writers_sentence(commits: Sequence[Commit]) -> str:
    """Who wrote the last commits: streams by name, else the engine and user."""
    if not commits:
        return "No commit in the log says who writes this table."
    counts = Counter(_writer(commit) for commit in commits)
    parts = [f"{name} ({count_text(count)})" if len(counts) > 1 else name for name, count in counts.most_common(3)]
    rest = len(counts) - 3
    if rest > 0:
        parts.append(f"{things(rest, 'other')}")
    many = f"Last {things(len(commits), 'commit')}" if len(commits) > 1 else "Its only commit is"
    return f"{many} by {', '.join(parts)}."


def _writer(commit: Commit) -> str:
    if commit.origin and commit.origin.stream:
        return f"stream {commit.origin.stream}"
    if commit.origin and commit.origin.query_id:
        return f"stream query {commit.origin.query_id[:8]}"
    named = " by ".join(part for part in (commit.engine, commit.user) if part)
    return named or "an unnamed writer"


def facts(snapshot: Snapshot) -> dict[str, str]:
    """What the log says of the table itself, for a two-column list."""
    metadata, protocol = snapshot.metadata, snapshot.protocol
    features = ", ".join(protocol.features) or "none"
    rows = {
        "Description": metadata.description or "",
        "Partitioned by": ", ".join(metadata.partition_columns) or "not partitioned",
        "Protocol": f"reader {protocol.min_reader_version}, writer {protocol.min_writer_version}",
        "Table features": features,
        "Table id": metadata.id,
        "Rows known from": "statistics of every file"
        if snapshot.num_rows is not None
        else "not known: files lack statistics",
    }
    return {key: value for key, value in rows.items() if value}


def small_share_text(small_files: int, num_files: int) -> str:
    """The share of small files, with "no files" instead of a division by nothing."""
    return percent(small_files / num_files) if num_files else "no files"
