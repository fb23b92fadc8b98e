"""Looking back through a history for commits that fit, without reading all of it.

Rule: the newest commits first, in portions; what was looked at is counted and said, what was not is never claimed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from backend.lake.log.commit_times import LOOK_BACK
from backend.lake.model import Commit, CommitReader, TableRef

PORTION = 500
NOT_NAMED = "not named"
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class HistoryFilter:
    """Which commits to keep: any of the named in each group, an empty group keeps all; times are both inclusive.

    `streams` names the stream of each query id that is known.
    """

    operations: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    engines: frozenset[str] = frozenset()
    streams: frozenset[str] = frozenset()
    since: datetime | None = None
    until: datetime | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        groups = (self.operations, self.users, self.engines, self.streams)
        return not any(groups) and self.since is None and self.until is None

    def keeps(self, commit: Commit) -> bool:
        return (
            _fits(operation_of(commit), self.operations)
            and _fits(user_of(commit), self.users)
            and _fits(engine_of(commit), self.engines)
            and _fits(stream_of(commit, self.names), self.streams)
            and self._in_time(commit.committed_at)
        )

    def _in_time(self, at: datetime | None) -> bool:
        if self.since is None and self.until is None:
            return True
        return at is not None and (self.since is None or at >= self.since) and (self.until is None or at <= self.until)


@dataclass(frozen=True, slots=True)
class LookBack:
    """The newest commits of a range, an unbroken run newest first. `is_whole`: none of the range was left out."""

    looked_at: tuple[Commit, ...]
    is_whole: bool

    def matching(self, chosen: HistoryFilter) -> list[Commit]:
        return [commit for commit in self.looked_at if chosen.keeps(commit)]


@dataclass(frozen=True, slots=True)
class Choices:
    """What occurs among commits, most frequent first."""

    operations: Mapping[str, int]
    users: Mapping[str, int]
    engines: Mapping[str, int]
    streams: Mapping[str, int]


def look_back(
    lake: CommitReader, ref: TableRef, *, newest: int, most: int, since: datetime | None, progress: Progress
) -> LookBack:
    """At most `most` commits from `newest` down, none older than `since`; `progress` hears how many after each portion.

    Raises what `Lake.history` raises.
    """
    found: list[Commit] = []
    ending = newest
    while len(found) < most:
        wanted = min(PORTION, most - len(found))
        portion = lake.history(ref, limit=wanted, ending_version=ending)
        found += portion
        progress(len(found))
        if len(portion) < wanted or portion[-1].version == 0 or _all_before(found[-LOOK_BACK:], since):
            while found and _all_before(found[-1:], since):
                found.pop()
            return LookBack(tuple(found), is_whole=True)
        ending = portion[-1].version - 1
    return LookBack(tuple(found), is_whole=not lake.history(ref, limit=1, ending_version=ending))


def choices(commits: Iterable[Commit], names: Mapping[str, str]) -> Choices:
    """What occurs among these commits, with counts."""
    commits = list(commits)
    streams = Counter(stream for commit in commits if (stream := stream_of(commit, names)) is not None)
    groups = (Counter(name(commit) for commit in commits) for name in (operation_of, user_of, engine_of))
    return Choices(*(dict(group.most_common()) for group in (*groups, streams)))


def operation_of(commit: Commit) -> str:
    return commit.operation or NOT_NAMED


def user_of(commit: Commit) -> str:
    return commit.user or NOT_NAMED


def engine_of(commit: Commit) -> str:
    return commit.engine or NOT_NAMED


def stream_of(commit: Commit, names: Mapping[str, str]) -> str | None:
    """The stream that wrote a commit: by its stamp, else by its query id, which stands for it where nobody knows it."""
    origin = commit.origin
    if origin is None:
        return None
    return (
        origin.stream or names.get(origin.query_id or "") or (f"query {origin.query_id}" if origin.query_id else None)
    )


def _fits(value: str | None, wanted: frozenset[str]) -> bool:
    return not wanted or value in wanted


def _all_before(commits: Sequence[Commit], since: datetime | None) -> bool:
    return since is not None and all(c.committed_at is not None and c.committed_at < since for c in commits)
