"""Health of one table in words and figures, for page and terminal alike.

Rule: pure, and free of pandas and Plotly, which the terminal does without. The rule by which a file is small, and by
which that matters, stands beside every count of small files.
"""

from collections.abc import Mapping
from datetime import datetime

from app.columns import Column
from app.ui.view.words import KeyFigure
from backend.format import ago, bytes_text, duration_text, things, utc_text
from backend.health.model import HealthEvidence, LogHealth, MaintenanceRun, Offender
from backend.health.rules import URGENCY, gain_in, small_files_text


def offender_columns(streams: Mapping[str, str]) -> list[Column[Offender]]:
    """Who or where small files come from. `streams` names the stream of a query id."""
    return [
        Column("Where", lambda offender: offender.kind, key="kind"),
        Column("Name", lambda offender: streams.get(offender.name, offender.name)),
        Column("Small files", lambda offender: offender.small_files, "count", key="small_files"),
        Column("Files", lambda offender: offender.files, "count", key="files"),
        Column("Average file", lambda offender: offender.average_bytes, "bytes"),
    ]


def run_text(run: MaintenanceRun | None, now: datetime) -> str:
    """ "v131, 2 h ago" of the last OPTIMIZE or VACUUM."""
    return f"v{run.version}, {ago(run.at, now)}" if run else "not in the history"


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


def key_figures(evidence: HealthEvidence, *, now: datetime) -> list[KeyFigure]:
    """Small files, size, OPTIMIZE, VACUUM and log."""
    log = evidence.log
    checkpoint = f"checkpoint v{log.checkpoint_version}" if log.checkpoint_version is not None else "no checkpoint"
    return [
        KeyFigure(
            "Small files",
            small_files_text(gain_in(evidence)),
            f"{evidence.rule.text} {URGENCY}",
        ),
        KeyFigure(
            "Average file",
            bytes_text(evidence.size_bytes / evidence.num_files if evidence.num_files else None),
            f"{bytes_text(evidence.size_bytes)} in {things(evidence.num_files, 'file')}.",
            note=f"target {bytes_text(evidence.rule.target_bytes)}",
        ),
        _run_figure("Last OPTIMIZE", evidence.last_optimize, now),
        _run_figure("Last VACUUM", evidence.last_vacuum, now),
        KeyFigure(
            "Since checkpoint",
            things(log.commits_since_checkpoint, "commit"),
            f"Readers replay these one by one. The interval is {log.checkpoint_interval}. The log goes back to "
            f"v{log.first_version}, {ago(log.oldest_commit_at, now)}.",
            note=f"{checkpoint}, {ago(log.checkpoint_at, now)}" if log.checkpoint_at else checkpoint,
        ),
    ]


def _run_figure(label: str, run: MaintenanceRun | None, now: datetime) -> KeyFigure:
    if run is None:
        return KeyFigure(label, "–", "Not in the commits that the log still holds.", note="not in the log")
    return KeyFigure(label, ago(run.at, now), f"v{run.version}, {utc_text(run.at)}", note=f"v{run.version}")
