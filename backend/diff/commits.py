"""What each commit between two versions did to rows, by the change feed or as its writer reports it.

Rule: a count that neither gives is None; which of the two it is, is said.
"""

from collections.abc import Iterable

from backend.diff.feed import Gross
from backend.diff.feed_summary import CountingLake
from backend.diff.model import CommitChanges
from backend.duckdb_session import CancelToken
from backend.errors import LakehouseError
from backend.lake.model import Commit, TableRef


def commit_changes(commits: Iterable[Commit], gross: Gross | None) -> tuple[CommitChanges, ...]:
    """In the order given; `gross` counts what the feed holds, None where it was not read."""
    return tuple(_counted(commit, gross) if gross else _reported(commit) for commit in commits)


def counted_by_feed(
    lake: CountingLake, ref: TableRef, commits: Iterable[Commit], token: CancelToken
) -> tuple[CommitChanges, ...]:
    """By the change feed's counts where a commit has them, though the feed's rows may be beyond reach; else as
    reported."""
    found = []
    for commit in commits:
        token.check()
        try:
            counts = lake.change_counts(ref, commit.version)
        except LakehouseError:
            found.append(_reported(commit))
            continue
        gross = Gross({(commit.version, kind): rows for kind, rows in counts.items()})
        found.append(_counted(commit, gross))
    return tuple(found)


def why_incomplete(commits: Iterable[Commit], gross: Gross) -> str | None:
    """What shows that a change feed leaves rows out; None when nothing does. The UPDATE of deltalake (1.6.6, tried)
    does not record a row whose new values another row had before."""
    for version in sorted(commit.version for commit in commits):
        before, after = (gross.of(version, kind) for kind in ("update_preimage", "update_postimage"))
        if before != after:
            where = f"the feed of v{version} is not complete"
            return f"{where}: rows before updates {before:,}, after them {after:,}"
    return None


def _counted(commit: Commit, gross: Gross) -> CommitChanges:
    if why_incomplete([commit], gross):
        return _reported(commit)
    inserted, updated, deleted = (gross.of(commit.version, k) for k in ("insert", "update_postimage", "delete"))
    return CommitChanges(commit, inserted, updated, deleted)


def _reported(commit: Commit) -> CommitChanges:
    found = commit.metrics
    counts = [found.rows_inserted, found.rows_updated, found.rows_deleted]
    only = _only_count(commit)
    if only is not None and counts[only] is not None:  # what such an operation cannot do, its writers leave out
        counts = [0 if count is None else count for count in counts]
    inserted, updated, deleted = counts
    return CommitChanges(commit, inserted, updated, deleted, is_reported=True)


def _only_count(commit: Commit) -> int | None:
    """Which of inserted, updated, deleted is all that the operation can do to rows; None where it may do more."""
    name = (commit.operation or "").upper()
    mode = str(commit.parameters.get("mode") or commit.parameters.get("outputMode") or "").lower()
    if name in ("WRITE", "STREAMING UPDATE"):
        return 0 if mode == "append" else None
    return {"UPDATE": 1, "DELETE": 2}.get(name)
