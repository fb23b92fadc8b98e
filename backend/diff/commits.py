"""What each commit between two versions did to rows, by the change feed or as its writer reports it.

Rule: a count that neither gives is None; which of the two it is, is said.
"""

from collections.abc import Iterable

from backend.diff.engine import Watch
from backend.diff.feed import Gross
from backend.diff.feed_summary import CountingLake
from backend.diff.model import CommitChanges
from backend.errors import LakehouseError
from backend.lake.model import Commit, TableRef


def commit_changes(commits: Iterable[Commit], gross: Gross | None) -> tuple[CommitChanges, ...]:
    """In the order given; `gross` counts what the feed holds, None where it was not read."""
    return tuple(_counted(commit, gross) if gross else _reported(commit) for commit in commits)


def counted_by_feed(
    lake: CountingLake, ref: TableRef, commits: Iterable[Commit], watch: Watch
) -> tuple[CommitChanges, ...]:
    """By the change feed's counts where a commit has them, though the feed's rows may be beyond reach; else as
    reported."""
    found = []
    for commit in commits:
        watch.check()
        try:
            counts = lake.change_counts(ref, commit.version)
        except LakehouseError:
            found.append(_reported(commit))
            continue
        inserted, updated, deleted = (counts.get(kind, 0) for kind in ("insert", "update_postimage", "delete"))
        found.append(CommitChanges(commit, inserted, updated, deleted))
    return tuple(found)


def _counted(commit: Commit, gross: Gross) -> CommitChanges:
    inserted, updated, deleted = (gross.of(commit.version, k) for k in ("insert", "update_postimage", "delete"))
    return CommitChanges(commit, inserted, updated, deleted)


def _reported(commit: Commit) -> CommitChanges:
    found = commit.metrics
    return CommitChanges(commit, found.rows_inserted, found.rows_updated, found.rows_deleted, is_reported=True)
