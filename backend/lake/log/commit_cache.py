"""Commits that were read, in three caches: with their files, without them, and as people see them.

Rule: a version never changes, so it is parsed once. One that could not be read is tried again: it may have been half
written.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from backend.errors import ObjectMissingError, StorageError, VersionNotFoundError
from backend.lake.log.commit_info import committed_at, read_commit
from backend.lake.log.commits import CommitRecord, CommitSlice, commit_name, parse_commits, parse_record
from backend.lake.log.listing import LOG, Step
from backend.lake.model import Commit
from backend.lake.storage.folder import Folder
from backend.lru import Lru

READ_AT_ONCE = 512  # the text of so many commits is in memory at a time
MOST_ACTIONS = 400_000  # commits differ a thousandfold in size, so files are counted instead
MOST_COMMITS = 20_000


class CommitCache:
    """Not thread-safe by itself: `TableLog` holds its lock around each call."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._slices: Lru[Step, CommitSlice] = Lru(MOST_ACTIONS, lambda commit: commit.length)
        self._records: Lru[int, CommitRecord] = Lru(MOST_COMMITS)
        self._history: Lru[int, Commit] = Lru(MOST_COMMITS)

    def read(self, steps: Iterable[Step]) -> list[CommitSlice]:
        """Commits and log compactions in the order asked for; raises `VersionNotFoundError` when one is gone."""
        wanted = list(steps)
        slices: dict[Step, CommitSlice] = {}
        for start in range(0, len(wanted), READ_AT_ONCE):
            batch = wanted[start : start + READ_AT_ONCE]
            slices |= self._slices.find(batch)
            missing = [step for step in batch if step not in slices or slices[step].record.problem]
            if missing:
                slices |= self._load(missing)
        return [slices[step] for step in wanted]

    def records(self, versions: Iterable[int]) -> list[CommitRecord]:
        """What commits say beside their files, in the order asked for; raises as `read` does."""
        wanted = list(versions)
        parsed = self._slices.find(Step(v, v) for v in wanted)
        cached = self._records.find(wanted) | {step.last: commit.record for step, commit in parsed.items()}
        missing = [Step(v, v) for v in wanted if v not in cached or cached[v].problem]
        for version, _, content in self._contents(missing):
            cached[version] = parse_record(version, content)
            self._records.put(version, cached[version])
        return [cached[v] for v in wanted]

    def commits(self, versions: Iterable[int]) -> list[Commit]:
        """Commits for people, in the order asked for; raises as `read` does."""
        wanted = list(versions)
        cached = self._history.find(wanted)
        missing = [v for v in wanted if v not in cached or cached[v].problem]
        for record in self.records(missing):
            modified_at = None if committed_at(record.commit_info) else self.modified_at(record.version)
            cached[record.version] = read_commit(record, modified_at)
            self._history.put(record.version, cached[record.version])
        return [cached[v] for v in wanted]

    def modified_at(self, version: int) -> datetime | None:
        """The commit file's own time: all there is where a writer left none."""
        entry = self._folder.stat(f"{LOG}/{commit_name(version)}")
        return entry.modified_at if entry else None

    def _load(self, steps: Sequence[Step]) -> dict[Step, CommitSlice]:
        loaded = dict(zip(steps, parse_commits(self._contents(steps)), strict=True))
        # Together: whoever rebuilds a version asks for all of them again at once, for its files.
        self._slices.put_all(loaded)
        return loaded

    def _contents(self, steps: Sequence[Step]) -> list[tuple[int, str, bytes]]:
        """Of each step's file: the version that it leads to, its name, what it holds."""
        contents = self._folder.read_many([f"{LOG}/{step.name}" for step in steps]) if steps else []
        pairs = []
        for step, content in zip(steps, contents, strict=True):
            if isinstance(content, ObjectMissingError):
                raise VersionNotFoundError(
                    f"commit {step.last} of {self._folder.uri} is gone", hint="it was cleaned while it was read"
                ) from content
            if isinstance(content, StorageError):
                raise content
            pairs.append((step.last, step.name, content))
        return pairs
