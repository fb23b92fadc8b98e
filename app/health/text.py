"""The words of maintenance, for pages and terminal alike.

Rule: pure, and free of pandas and Plotly, which the terminal does without.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from app.columns import Column
from app.ui.lake import Table
from app.ui.view.words import sentence
from backend.format import age_s, ago, bytes_text, duration_text, percent, things, utc_text
from backend.health.health import JudgedTable
from backend.health.model import HealthEvidence, LogHealth, MaintenanceRun, Offender, Severity, TableHealth
from backend.health.rules import URGENCY, MergeGain, gain_text, merge_gain, severity_of, small_files_text
from backend.lake.model import TableCard, UnreadableTable, VersionTotals

GLYPHS = {Severity.CRITICAL: "✕", Severity.WARNING: "▲", Severity.NOTE: "●", Severity.FINE: "✓"}


PENDING, UNKNOWN_STATE = "… being judged", "? unknown"


@dataclass(frozen=True, slots=True)
class LakeRow:
    """A table of the list: what its card tells at once, and its judgement once that has come."""

    table: Table
    judged: JudgedTable | None

    @property
    def severity(self) -> Severity | None:
        """None: not known, or not yet. What is urgent by the card alone is known at once."""
        if self.judged is not None:
            return self.judged.severity if self.judged.evidence else None
        severity = severity_of(self.table)
        return None if severity is Severity.FINE else severity

    @property
    def problem(self) -> str:
        """Why it cannot be judged; empty where it can."""
        if isinstance(self.table, UnreadableTable):
            return self.table.reason
        return self.judged.problem if self.judged else ""


def lake_columns(now: datetime) -> list[Column[LakeRow]]:
    """What its card tells of a table, and what is known once it is judged."""

    def of_gain(value: Callable[[MergeGain], object]) -> Callable[[LakeRow], object]:
        return lambda row: value(merge_gain(row.table)) if isinstance(row.table, TableCard) else None

    def of_evidence(value: Callable[[HealthEvidence], object]) -> Callable[[LakeRow], object]:
        return lambda row: value(row.judged.evidence) if row.judged and row.judged.evidence else None

    def judgement(row: LakeRow) -> str:
        return judgement_text(row.severity) if row.severity else UNKNOWN_STATE if row.problem else PENDING

    def finding(row: LakeRow) -> str | None:
        if row.problem:
            return row.problem
        if row.judged and row.judged.evidence:
            return row.judged.recommendations(now)[0].finding
        return gain_text(merge_gain(row.table)) if row.severity and isinstance(row.table, TableCard) else None

    def next_step(row: LakeRow) -> str | None:
        if isinstance(row.table, UnreadableTable) or not (row.judged and row.judged.evidence):
            return row.table.hint if isinstance(row.table, UnreadableTable) else None
        return sentence(row.judged.recommendations(now)[0].next_step.split(". ")[0])  # the table's own page has all

    def since(run: MaintenanceRun | None) -> float | None:
        return age_s(run.at, now) if run else None

    return [
        Column("Table", lambda row: row.table.ref.name),
        Column("Judgement", judgement),
        Column("Finding", finding, width=395),
        Column("Next step", next_step, width=338, on="page"),
        Column("Files", of_gain(lambda gain: gain.num_files), "count"),
        Column("Spared", of_gain(lambda gain: gain.spared), "count",
               "Files that a full read need no longer open after merging"),
        Column("Small files", of_gain(small_files_text), help=URGENCY),
        Column("Size", of_gain(lambda gain: gain.size_bytes), "bytes"),
        Column("Last OPTIMIZE", of_evidence(lambda evidence: since(evidence.last_optimize)), "ago"),
        Column("Last VACUUM", of_evidence(lambda evidence: since(evidence.last_vacuum)), "ago"),
        Column("Since checkpoint", of_evidence(lambda evidence: evidence.log.commits_since_checkpoint), "count",
               "Commits that readers replay one by one"),
        Column("Layer", lambda row: row.table.ref.layer, "layer"),
    ]  # fmt: skip


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
