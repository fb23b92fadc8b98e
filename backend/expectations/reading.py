"""What judging needs of a table, read from its log: the last change of rows, and the rows that each day brought.

Rule: OPTIMIZE, VACUUM and properties are no data: the log marks what changes rows. A day counts only where the log
holds it from its first commit to its last.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import date, timedelta

from backend.errors import TableError
from backend.expectations.judge import LastData, added_rows
from backend.lake.history.arrivals import Arrival
from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.work import Stopped

FIRST_LOOK = 64  # commits
COMMITS_AT_ONCE = 1_000
MOST_COMMITS = 200_000


def last_data(lake: Lake, ref: TableRef) -> LastData:
    """The newest commit that changed rows."""
    high, step, oldest = lake.latest_version(ref), FIRST_LOOK, None
    while high >= 0:
        found = lake.arrivals(ref, max(0, high - step + 1), high, feed=False)
        for each in reversed(found):
            if each.files or each.removes_rows:
                return LastData(each.version, each.committed_at)
        if not found:
            break
        oldest = found[0].committed_at
        high, step = high - step, COMMITS_AT_ONCE
    return LastData(None, None, oldest)


def rows_by_day(
    lake: Lake, ref: TableRef, first: date, last: date, *, is_stopped: Callable[[], bool] = lambda: False
) -> dict[date, int | None]:
    """Rows that commits added on each full UTC day between `first` and `last`; None where a commit does not say.

    Days that the log does not hold as a whole are left out: the one of its oldest commit too.
    """
    rows: defaultdict[date, int | None] = defaultdict(int)
    high = newest = lake.latest_version(ref)
    oldest = last + timedelta(days=1)
    while high >= 0 and oldest >= first and newest - high < MOST_COMMITS:
        if is_stopped():
            raise Stopped
        low = max(0, high - COMMITS_AT_ONCE + 1)
        found = lake.arrivals(ref, low, high, feed=False)
        if not found:
            break
        added = _added(lake, ref, found)
        for each in found:
            if each.committed_at is None:
                raise TableError(f"v{each.version} does not say when it was committed")
            day = each.committed_at.date()
            so_far, more = rows[day], added[each.version]
            rows[day] = None if so_far is None or more is None else so_far + more
            oldest = min(oldest, day)
        high = low - 1
    whole = max(first, oldest + timedelta(days=1))
    return {day: rows[day] for day in _days(whole, last)}


def _added(lake: Lake, ref: TableRef, found: Sequence[Arrival]) -> dict[int, int | None]:
    """New rows by version: those of the files of an append, which are exact, else what the writer says."""
    added = {each.version: each.rows if each.files else 0 for each in found}
    unsure = {each.version: each for each in found if each.files and (each.removes_rows or each.rows is None)}
    if unsure:
        for commit in lake.history(ref, starting_version=min(unsure), ending_version=max(unsure)):
            if commit.version in unsure:
                added[commit.version] = added_rows(commit, removes=unsure[commit.version].removes_rows)
    return added


def _days(first: date, last: date) -> list[date]:
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]
