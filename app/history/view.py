"""The history of a table: commits as rows, one commit in full, and how far a filter looked.

Rule: pure; what a commit does not say is left out and never shown as 0.
"""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from app.columns import Column, Columns
from app.ui.view.figures import Point, notes
from backend.format import (
    bytes_exact,
    bytes_text,
    count_exact,
    count_text,
    duration_text,
    things,
    utc_text,
)
from backend.lake.history.history import HistoryFilter, LookBack
from backend.lake.model import Commit, OperationMetrics, Timeline

# commits ---------------------------------------------------------------------------------------------------------

# What rearranges or tidies and leaves the rows as they were.
_MAINTENANCE = ("OPTIMIZE", "VACUUM", "REORG", "CHECKPOINT", "FSCK", "COMPUTE ", "LOG COMPACT", "CLEANUP")


def is_maintenance(operation: str | None) -> bool:
    """Whether an operation keeps the table in shape and changes none of its rows."""
    return (operation or "").upper().startswith(_MAINTENANCE)


def history_sentence(commits: Sequence[Commit], total: int | None = None) -> str:
    """What the listed commits come to: "100 of 501 commits over 2 h: 96 STREAMING UPDATE, 4 OPTIMIZE"."""
    counts = Counter(commit.operation or "not named" for commit in commits)
    moments = [commit.committed_at for commit in commits if commit.committed_at]
    span_s = (max(moments) - min(moments)).total_seconds() if moments else 0.0
    span = f" over {duration_text(span_s)}" if span_s else ""
    shown = counts.most_common(4)
    rest = counts.total() - sum(count for _, count in shown)
    parts = [f"{count_text(count)} {name}" for name, count in shown]
    kinds = ", ".join(parts + ([things(rest, "other")] if rest else []))
    part = f"{count_text(len(commits))} of " if total is not None and total > len(commits) else ""
    number = total if part else len(commits)
    feed = sum(commit.metrics.change_bytes or 0 for commit in commits)
    weighs = f"; they wrote {bytes_text(feed)} of change feed" if feed else ""
    return f"{part}{things(number, 'commit')}{span}: {kinds}{weighs}" if commits else "No commit is left in the log"


# one commit ------------------------------------------------------------------------------------------------------


def commit_facts(commit: Commit) -> dict[str, str]:
    """What one commit says of itself, for a two-column list; what it does not say is left out."""
    origin = commit.origin
    facts: dict[str, str | None] = {
        "Committed": utc_text(commit.committed_at) if commit.committed_at else None,
        "User": commit.user,
        "Engine": commit.engine,
        "Job": commit.job,
        "Stream": origin.stream if origin else None,
        "Query id": origin.query_id if origin else None,
        "Run id": origin.run_id if origin else None,
        "Batch": str(origin.batch_id) if origin and origin.batch_id is not None else None,
        "Read version": str(commit.read_version) if commit.read_version is not None else None,
        "Isolation": commit.isolation_level,
        "Blind append": None if commit.is_blind_append is None else ("yes" if commit.is_blind_append else "no"),
        "User metadata": commit.user_metadata,
        "Problem": commit.problem,
    }
    return {key: value for key, value in facts.items() if value}


def metrics_facts(metrics: OperationMetrics) -> dict[str, str]:
    """The normalised metrics that are known, exact."""
    counts = {
        "Rows inserted": metrics.rows_inserted,
        "Rows updated": metrics.rows_updated,
        "Rows deleted": metrics.rows_deleted,
        "Rows copied": metrics.rows_copied,
        "Rows read from the source": metrics.rows_source,
        "Files added": metrics.files_added,
        "Files removed": metrics.files_removed,
        "Files to delete": metrics.files_to_delete,
        "Files deleted from storage": metrics.files_vacuumed,
        "Files of the change feed": metrics.change_files,
    }
    facts = {key: count_exact(value) for key, value in counts.items() if value is not None}
    sizes = {
        "Bytes added": metrics.bytes_added,
        "Bytes removed": metrics.bytes_removed,
        "Bytes to delete": metrics.bytes_to_delete,
        "Bytes of the change feed": metrics.change_bytes,
    }
    facts |= {key: bytes_exact(value) for key, value in sizes.items() if value is not None}
    return facts | ({"Took": duration_text(metrics.duration_ms / 1000)} if metrics.duration_ms is not None else {})


NAME_AND_VALUE: Columns[tuple[str, Any]] = (  # nested values as JSON
    Column("Name", lambda item: item[0]),
    Column("Value", lambda item: item[1] if isinstance(item[1], str) else json.dumps(item[1], default=str)),
)


# filters: how far was looked is always said ---------------------------------------------------------------------------


LOOK = 2_000  # commits at a time


def looked_sentence(num_found: int, look: LookBack, total: int, chosen: HistoryFilter) -> str:
    """ "37 commits fit. The newest 2,000 of 10,000 were looked at"."""
    fits = "commits fit" if num_found != 1 else "commit fits"
    head = f"{count_text(num_found)} {fits}." if not chosen.is_empty else ""
    if look.is_whole:
        tail = f"Every commit {'of that time' if chosen.since or chosen.until else 'in the log'} was looked at."
    else:
        newest = "newest of that time" if chosen.until else "newest"
        tail = f"The {newest} {count_text(len(look.looked_at))} of {count_text(total)} were looked at."
    return f"{head} {tail}".strip()


# the figure over versions ---------------------------------------------------------------------------------------------


def drawn_sentence(timeline: Timeline, points: Sequence[Point]) -> str:
    """What the figure could not show: the log's beginning, versions left out for space, or without a value."""
    begin = ""
    if timeline.first_version > 0:
        begin = f"The log begins at v{timeline.first_version}; older versions were cleaned up. "
    elif timeline.truncated and timeline.totals:
        begin = f"Shown from v{timeline.totals[0].version} on. "
    return (begin + notes(points, len(points), len(points))).strip()
