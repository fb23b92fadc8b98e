"""The words of maintenance, for pages and terminal alike.

Rule: pure, and free of pandas and Plotly, which the terminal does without.
"""

from collections.abc import Mapping
from datetime import datetime

from backend.format import ago, bytes_text, duration_text, percent, things, utc_text
from backend.health.model import LogHealth, MaintenanceRun, Severity, TableHealth
from backend.lake.model import VersionTotals

GLYPHS = {Severity.CRITICAL: "✕", Severity.WARNING: "▲", Severity.NOTE: "●", Severity.FINE: "✓"}


def run_text(run: MaintenanceRun | None, now: datetime) -> str:
    """ "v131, 2 h ago" of the last OPTIMIZE or VACUUM."""
    return f"v{run.version}, {ago(run.at, now)}" if run else "not in the history"


def judgement_text(severity: Severity) -> str:
    """Glyph and word, so that the judgement is never colour alone."""
    return f"{GLYPHS[severity]} {severity.value}"


def with_names(text: str, streams: Mapping[str, str]) -> str:
    """A sentence with the names of streams instead of their query ids."""
    for query_id, name in streams.items():
        text = text.replace(query_id, name)
    return text


def log_sentence(log: LogHealth, *, now: datetime) -> str:
    """How far back the log goes, how old its checkpoint is, and what the change feed weighed when it was written."""
    commits = things(log.latest_version - log.first_version + 1, "version")
    if log.oldest_commit_at:
        age = f"{duration_text((now - log.oldest_commit_at).total_seconds())}, since {utc_text(log.oldest_commit_at)}"
        reach = f"The log holds {commits} over {age}"
    else:
        reach = f"The log holds {commits}"
    at = f", {ago(log.checkpoint_at, now)}" if log.checkpoint_at else ""
    checkpoint = f"the last checkpoint is v{log.checkpoint_version}{at}"
    if log.checkpoint_version is None:
        checkpoint = "it has no checkpoint"
    newest = things(log.feed_commits, "commit")
    feed = f" The newest {newest} wrote {bytes_text(log.feed_bytes)} of change feed; VACUUM deletes what is old of it."
    return f"{reach}; {checkpoint}.{feed if log.feed_bytes else ''}"


def trend_finding(health: TableHealth) -> str:
    """The chart's title: where files and bytes stand and where they came from."""
    if not health.trend:
        return "Files per version: the log holds no version"
    first, last = health.trend[0], health.trend[-1]
    if not last.num_files:
        return f"No files at v{last.version}"
    small = f", {percent(last.small_share)} small," if last.small_files else ""
    now_text = f"{things(last.num_files, 'file')} of {_average(last)} on average{small} at v{last.version}"
    if first is last:
        return now_text
    before = f"{things(first.num_files, 'file')} of {_average(first)}" if first.num_files else "none"
    return f"{now_text}; {before} at v{first.version}"


def _average(point: VersionTotals) -> str:
    return bytes_text(point.size_bytes / point.num_files)
