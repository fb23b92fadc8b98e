"""Commits that were read, in three caches: with their files, without them, and as people see them.

Rule: a version never changes, so it is parsed once. One that could not be read is tried again: it may have been half
written.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from backend.caches import Lru
from backend.errors import ObjectMissingError, StorageError, VersionNotFoundError
from backend.lake.log.commit_info import in_commit_time, read_commit
from backend.lake.log.commit_times import LOOK_BACK, in_millis, monotonic
from backend.lake.log.commits import CommitRecord, CommitSlice, commit_name, parse_commits, parse_record
from backend.lake.log.listing import LOG, Step, runs_of
from backend.lake.model import Commit
from backend.lake.storage.folder import Content, Folder
from backend.lake.storage.paths import is_remote

READ_AT_ONCE = 512  # the text of so many commits is in memory at a time
MOST_ACTIONS = 400_000  # commits differ a thousandfold in size, so files are counted instead
MOST_COMMITS = 20_000


class CommitCache:
    """Not thread-safe by itself: `TableLog` holds its lock around each call."""

    def __init__(self, folder: Folder, listed: Mapping[int, datetime]) -> None:
        self._folder = folder
        self._listed = listed  # when commit files were written, where a listing told it
        self._times: Lru[int, datetime | None] = Lru(MOST_COMMITS)
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
            missing = [step for step in batch if step not in slices or slices[step].record.fault]
            if missing:
                slices |= self._load(missing)
        return [slices[step] for step in wanted]

    def records(self, versions: Iterable[int]) -> list[CommitRecord]:
        """What commits say beside their files, in the order asked for; raises as `read` does."""
        wanted = list(versions)
        parsed = self._slices.find(Step(v, v) for v in wanted)
        cached = self._records.find(wanted) | {step.last: commit.record for step, commit in parsed.items()}
        missing = [Step(v, v) for v in wanted if v not in cached or cached[v].fault]
        for version, _, content in self._contents(missing):
            cached[version] = parse_record(version, content)
            self._records.put(version, cached[version])
        return [cached[v] for v in wanted]

    def commits(self, versions: Iterable[int]) -> list[Commit]:
        """Commits for people, in the order asked for; raises as `read` does."""
        wanted = list(versions)
        cached = self._history.find(wanted)
        missing = [v for v in wanted if v not in cached or cached[v].problem]
        records = self.records(missing)
        times = self._committed(records)
        for record in records:
            cached[record.version] = read_commit(record, times[record.version])
            self._history.put(record.version, cached[record.version])
        return [cached[v] for v in wanted]

    def committed_at(self, versions: Iterable[int]) -> dict[int, datetime | None]:
        """When versions were committed, as `commit_times` tells it; raises as `read` does."""
        wanted = list(versions)
        times = self._times.find(wanted)
        return times | self._committed(self.records(v for v in wanted if v not in times))

    def file_times(self, versions: Sequence[int]) -> dict[int, datetime]:
        """When commit files were written; on an object store as far as a listing told it."""
        if is_remote(self._folder.uri):
            return {version: in_millis(self._listed[version]) for version in versions if version in self._listed}
        entries = self._folder.stat_many([f"{LOG}/{commit_name(version)}" for version in versions])
        stamped = ((version, entry and entry.modified_at) for version, entry in zip(versions, entries, strict=True))
        return {version: in_millis(modified_at) for version, modified_at in stamped if modified_at}

    def _committed(self, records: Sequence[CommitRecord]) -> dict[int, datetime | None]:
        times = {record.version: in_commit_time(record.commit_info) for record in records}
        untimed = [record for record in records if times[record.version] is None]
        listed = self._listed  # finer on some stores than what comes with an object
        by_file = {r.version: in_millis(listed[r.version]) if r.version in listed else r.modified_at for r in untimed}
        for first, last in runs_of(sorted(by_file)):
            before = self._times.find([first - 1]) or self.file_times(range(max(0, first - LOOK_BACK), first))
            run = {version: by_file[version] for version in range(first, last + 1)}
            grown = monotonic(sorted((before | run).items()))
            times |= {version: grown[version] for version in run}
        self._times.put_all(times)
        return times

    def _load(self, steps: Sequence[Step]) -> dict[Step, CommitSlice]:
        loaded = dict(zip(steps, parse_commits(self._contents(steps)), strict=True))
        # Together: whoever rebuilds a version asks for all of them again at once, for its files.
        self._slices.put_all(loaded)
        return loaded

    def _contents(self, steps: Sequence[Step]) -> list[tuple[int, str, Content]]:
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
