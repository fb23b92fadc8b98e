"""Commits read and kept: parsed once, forgotten oldest first when their files grow too many.

Rule: a version never changes, so what was read of it is kept; one that could not be read is tried again, it may have
been half written.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import datetime

from backend.errors import ObjectMissingError, StorageError, VersionNotFoundError
from backend.lake.log.commit_info import committed_at, read_commit
from backend.lake.log.commits import CommitRecord, CommitSlice, commit_name, parse_commits, parse_record
from backend.lake.log.listing import LOG, Step
from backend.lake.model import Commit
from backend.lake.storage.storage import Folder

READ_AT_ONCE = 512
MOST_ACTIONS = 400_000
MOST_COMMITS = 20_000


class CommitCache:
    """Not thread-safe by itself: `TableLog` holds its lock around each call."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._slices: OrderedDict[Step, CommitSlice] = OrderedDict()
        self._actions = 0
        self._records: OrderedDict[int, CommitRecord] = OrderedDict()
        self._history: OrderedDict[int, Commit] = OrderedDict()

    def read(self, steps: Iterable[Step]) -> list[CommitSlice]:
        """Commits and log compactions in the order asked for; raises `VersionNotFoundError` when one is gone."""
        wanted = list(steps)
        found: dict[Step, CommitSlice] = {}
        for start in range(0, len(wanted), READ_AT_ONCE):
            part = wanted[start : start + READ_AT_ONCE]
            missing = [step for step in part if step not in self._slices or self._slices[step].record.problem]
            found |= {step: self._slices[step] for step in part if step in self._slices}
            if missing:
                found |= self._load(missing)
        return [found[step] for step in wanted]

    def records(self, versions: Iterable[int]) -> list[CommitRecord]:
        """What commits say beside their files, in the order asked for; raises as `read` does."""
        wanted = list(versions)
        known = {v: self._slices[step].record for v in wanted if (step := Step(v, v)) in self._slices}
        known |= {v: self._records[v] for v in wanted if v in self._records and v not in known}
        missing = [v for v in wanted if v not in known or known[v].problem]
        for version, _, content in self._contents([Step(v, v) for v in missing]):
            known[version] = self._records[version] = parse_record(version, content)
        while len(self._records) > MOST_COMMITS:
            self._records.popitem(last=False)
        return [known[v] for v in wanted]

    def commits(self, versions: Iterable[int]) -> list[Commit]:
        """Commits for people, in the order asked for; raises as `read` does."""
        wanted = list(versions)
        missing = [v for v in wanted if v not in self._history or self._history[v].problem]
        for record in self.records(missing):
            modified_at = None if committed_at(record.commit_info) else self.modified_at(record.version)
            self._history[record.version] = read_commit(record, modified_at)
        found = [self._history[v] for v in wanted]
        while len(self._history) > MOST_COMMITS:
            self._history.popitem(last=False)
        return found

    def modified_at(self, version: int) -> datetime | None:
        """The commit file's own time: all there is where a writer left none."""
        entry = self._folder.stat(f"{LOG}/{commit_name(version)}")
        return entry.modified_at if entry else None

    def _load(self, steps: Sequence[Step]) -> dict[Step, CommitSlice]:
        loaded = dict(zip(steps, parse_commits(self._contents(steps)), strict=True))
        for step, commit in loaded.items():
            earlier = self._slices.pop(step, None)
            self._actions += commit.length - (earlier.length if earlier else 0)
            self._slices[step] = commit
        while self._actions > MOST_ACTIONS and len(self._slices) > len(loaded):
            self._actions -= self._slices.popitem(last=False)[1].length
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
