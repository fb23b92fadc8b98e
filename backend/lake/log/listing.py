"""The names in `_delta_log`, understood (commits, checkpoints of every kind, log compactions, checksums), and looked at
again at the price of one look.

Rule: the listing is the truth and hints in files are never needed: `_last_checkpoint` only says from where to list
first. A multi-part checkpoint counts only when all its parts are there; a log compaction is used only where a commit
that it covers is gone or cannot be read. Later looks begin at the newest commit; a local folder is probed for the next
one. Older names are listed when they are asked for. When the newest commit is not the one that was seen, the table was
made anew (`generation` grows).
"""

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime

import orjson

from backend.errors import ObjectMissingError, TableCorruptError, TableNotFoundError, VersionNotFoundError
from backend.lake.storage.folder import Entry, Folder, is_remote

LOG = "_delta_log"
STAGED = f"{LOG}/_staged_commits"
_DIGITS, _COMMIT_END = 20, ".json"
_COMMIT_CHARS = _DIGITS + len(_COMMIT_END)
_STAGED = re.compile(r"(\d{20})\.[0-9a-fA-F-]{36}\.json")
_CHECKSUM = re.compile(r"^(\d{20})\.crc$")
_CLASSIC = re.compile(r"^(\d{20})\.checkpoint\.parquet$")
_MULTI = re.compile(r"^(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet$")
_V2 = re.compile(r"^(\d{20})\.checkpoint\.[0-9a-fA-F-]{36}\.(json|parquet)$")
_COMPACTION = re.compile(r"^(\d{20})\.(\d{20})\.compacted\.json$")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One complete checkpoint: its files in order."""

    version: int
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """What moves a state from `first - 1` to `last`: one commit, or a log compaction of several."""

    first: int
    last: int

    @property
    def is_commit(self) -> bool:
        return self.first == self.last

    @property
    def name(self) -> str:
        return commit_name(self.last) if self.is_commit else f"{self.first:020d}.{self.last:020d}.compacted.json"


@dataclass(frozen=True, slots=True)
class Segment:
    """What reconstructs a version: a checkpoint (None: from the first commit) and the steps after it."""

    version: int
    checkpoint: Checkpoint | None
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class LogListing:
    """What the log's folder holds. Below `complete_from` nothing was looked for."""

    commits: frozenset[int]
    checkpoints: dict[int, tuple[Checkpoint, ...]] = field(default_factory=dict)
    checksums: frozenset[int] = frozenset()
    compactions: frozenset[tuple[int, int]] = frozenset()
    complete_from: int = 0

    @property
    def latest(self) -> int:
        """The newest version named by the log; raises `TableNotFoundError` for an empty log."""
        if not self.commits and not self.checkpoints:
            raise TableNotFoundError("the log is empty", hint="the folder has a _delta_log without any commit")
        return max(max(self.commits, default=-1), max(self.checkpoints, default=-1))

    def merged(self, newer: "LogListing") -> "LogListing":
        """With what a later look from the newest version on found."""
        return LogListing(
            self.commits | newer.commits,
            {**self.checkpoints, **newer.checkpoints},
            self.checksums | newer.checksums,
            self.compactions | newer.compactions,
            self.complete_from,
        )

    def segments(self, version: int) -> list[Segment]:
        """Ways to reconstruct a version, best first; raises when there is none."""
        is_named = 0 <= version <= self.latest
        ways = list(dict.fromkeys([*self._ways(version), *self._short_ways(version)])) if is_named else []
        if not ways:
            raise self._no_version(version)
        return ways

    def is_reachable(self, version: int) -> bool:
        return any(True for _ in self._ways(version))

    def spans(self) -> list[tuple[int, int]]:
        """Runs of versions that can be reconstructed, first and last, oldest first."""
        ends: dict[int, list[int]] = {}
        for first, last in self.compactions:
            if last <= self.latest:  # no commit says that a version beyond was made
                ends.setdefault(last, []).append(first)
        reached: set[int] = {-1}
        for version in sorted({*self.commits, *self.checkpoints, *ends}):
            by_commit = version in self.commits and version - 1 in reached
            by_compaction = any(first - 1 in reached for first in ends.get(version, ()))
            if by_commit or by_compaction or version in self.checkpoints:
                reached.add(version)
        return list(runs_of(sorted(reached - {-1})))

    def _ways(self, version: int) -> Iterator[Segment]:
        """Walks back from `version`; each checkpoint passed, and the beginning, is a way."""
        steps: list[Step] = []  # newest first
        at = version
        while at >= 0:
            for checkpoint in self.checkpoints.get(at, ()):
                yield Segment(version, checkpoint, tuple(reversed(steps)))
            if at in self.commits:
                steps.append(Step(at, at))
                at -= 1
                continue
            covering = [pair for pair in self.compactions if pair[0] <= at <= pair[1] <= version]
            if not covering:
                return
            over = Step(*min(covering))
            while steps and steps[-1].first <= over.last:
                steps.pop()
            if steps and steps[-1].first != over.last + 1:
                return
            steps.append(over)
            at = over.first - 1
        yield Segment(version, None, tuple(reversed(steps)))

    def _short_ways(self, version: int) -> Iterator[Segment]:
        """With a log compaction wherever one ends: they lead past a commit that is damaged."""
        steps: list[Step] = []
        at = version
        while at >= 0:
            for checkpoint in self.checkpoints.get(at, ()) if steps else ():
                yield Segment(version, checkpoint, tuple(reversed(steps)))
            first = min((first for first, last in self.compactions if last == at), default=None)
            if first is None and at not in self.commits:
                return
            steps.append(Step(at if first is None else first, at))
            at = steps[-1].first - 1
        yield Segment(version, None, tuple(reversed(steps)))

    def _no_version(self, version: int) -> Exception:
        spans = self.spans()
        hint = "the log can show " + ", ".join(f"{a}–{b}" if a < b else f"{a}" for a, b in spans[-3:])
        if version > self.latest or version < 0:
            return VersionNotFoundError(f"there is no version {version}; the latest is {self.latest}", hint=hint)
        if any(first > version for first, _ in spans):
            return VersionNotFoundError(f"version {version} can no longer be reconstructed from the log", hint=hint)
        missing = next(v for v in range(version, -1, -1) if v not in self.commits)
        return TableCorruptError(
            f"version {version} cannot be read: commit {missing} is missing from the log",
            hint=hint if spans else "neither a checkpoint nor the first commit is there",
        )


def commit_name(version: int) -> str:
    return f"{version:020d}.json"


def version_of(name: str) -> int | None:
    """The version of a commit file, None for every other; without a regular expression, for a log has thousands."""
    is_commit = len(name) == _COMMIT_CHARS and name.endswith(_COMMIT_END) and name[:_DIGITS].isdecimal()
    return int(name[:_DIGITS]) if is_commit else None


def staged_version_of(name: str) -> int | None:
    """The version of a commit that a catalog may make valid (`VERSION.UUID.json` in `_staged_commits`), else None."""
    match = _STAGED.fullmatch(name)
    return int(match[1]) if match else None


def runs_of(versions: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Sorted versions as runs, first and last."""
    runs: list[tuple[int, int]] = []
    for version in versions:
        if runs and version == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], version)
        else:
            runs.append((version, version))
    return tuple(runs)


def read_listing(names: Iterable[str], complete_from: int = 0) -> LogListing:
    commits, checksums, compactions = set(), set(), set()
    checkpoints: dict[int, tuple[Checkpoint, ...]] = {}
    parts: dict[tuple[int, int], dict[int, str]] = {}
    for name in names:
        if (version := version_of(name)) is not None:
            commits.add(version)
        elif match := _CHECKSUM.match(name):
            checksums.add(int(match[1]))
        elif match := _MULTI.match(name):
            parts.setdefault((int(match[1]), int(match[3])), {})[int(match[2])] = name
        elif match := _CLASSIC.match(name) or _V2.match(name):
            version = int(match[1])
            checkpoints[version] = (*checkpoints.get(version, ()), Checkpoint(version, (name,)))
        elif (match := _COMPACTION.match(name)) and int(match[1]) < int(match[2]):
            compactions.add((int(match[1]), int(match[2])))
    for (version, count), found in parts.items():
        if len(found) == count and min(found) == 1 and max(found) == count:
            files = tuple(found[number] for number in sorted(found))
            checkpoints[version] = (*checkpoints.get(version, ()), Checkpoint(version, files))
    return LogListing(frozenset(commits), checkpoints, frozenset(checksums), frozenset(compactions), complete_from)


RELIST_AFTER = 20  # commits found by probing; then the folder is listed again, for its newer checkpoints
_LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"


class LogNames:
    """Not thread-safe by itself: `TableLog` holds its lock around each call."""

    def __init__(self, folder: Folder, *, poll_s: float) -> None:
        self._folder = folder
        self._is_remote = is_remote(folder.uri)
        self._poll_s = poll_s if self._is_remote else 0.0
        self.times: dict[int, datetime] = {}  # when commits were written, where a listing told it
        self.generation = -1
        self.held = 0  # how many want to see no news now
        self._polled_at = 0.0
        self._forget()

    def head(self) -> LogListing:
        """The newest versions now: at least what reconstructs the latest. Raises `TableNotFoundError` when there is no
        log (any more)."""
        if self._listing is None:
            self._list_head()
        elif self.held or time.monotonic() - self._polled_at < self._poll_s:
            return self._listing
        else:
            self._poll(self._listing)
        self._polled_at = time.monotonic()  # of a look alone: else somebody who asks often would never see news
        assert self._listing is not None
        return self._listing

    def whole(self) -> LogListing:
        """Every version that the log still names."""
        head = self.head()
        return self.relist() if head.complete_from or self._probed else head

    def for_version(self, version: int) -> LogListing:
        """A listing that reconstructs `version` if any can."""
        head = self.head()
        return head if version <= head.latest and head.is_reachable(version) else self.whole()

    def _forget(self) -> None:
        self.generation += 1
        self._listing: LogListing | None = None
        self.times.clear()
        self._tag: str | None = None
        self._probed = 0
        self._polled_at = 0.0

    def _list_head(self) -> None:
        hinted = self._hint()
        if hinted:
            entries = self._folder.list_after(LOG, f"{hinted:020d}", digits_only=True)
            listing = read_listing((entry.name for entry in entries), complete_from=hinted)
            if listing.commits | listing.checkpoints.keys() and listing.is_reachable(listing.latest):
                self._take(listing, entries)
                return
        self.relist()

    def relist(self) -> LogListing:
        """Look at all names again: something that was listed is gone."""
        entries = self._folder.list_after(LOG, "", digits_only=True)
        listing = read_listing(entry.name for entry in entries)
        if not listing.commits and not listing.checkpoints:
            self._forget()
            what = "its log is empty" if self._folder.list(LOG) else "there is no _delta_log"
            uri = self._folder.uri
            raise TableNotFoundError(f"{uri} is not a Delta table: {what}", hint="it may have been deleted")
        if self._listing is not None and self._tag is not None and self._tag_of(self._listing, entries) != self._tag:
            self._forget()
        self._take(listing, entries)
        return listing

    def _take(self, listing: LogListing, entries: list[Entry]) -> None:
        self._listing, self._probed = listing, 0
        self._tag = self._tag_of(listing, entries)
        for entry in entries:
            if entry.modified_at is not None and (version := version_of(entry.name)) is not None:
                self.times[version] = entry.modified_at

    def _poll(self, listing: LogListing) -> None:
        if self._is_remote:
            self._poll_store(listing)
            return
        newest, following = self._folder.stat_many(
            [f"{LOG}/{_newest_name(listing)}", f"{LOG}/{commit_name(listing.latest + 1)}"]
        )
        if newest is None or newest.tag != self._tag:
            self._forget()
            self._list_head()
        elif following is not None:
            self._probe(listing, following)

    def _poll_store(self, listing: LogListing) -> None:
        entries = self._folder.list_after(LOG, f"{listing.latest:020d}", digits_only=True)
        if self._tag_of(listing, entries) != self._tag:
            self._forget()
            self._list_head()
        elif len(entries) > 1:
            self._take(listing.merged(read_listing(entry.name for entry in entries)), entries)

    def _probe(self, listing: LogListing, following: Entry) -> None:
        version, entry = listing.latest + 1, following
        while (after := self._folder.stat(f"{LOG}/{commit_name(version + 1)}")) is not None:
            version, entry = version + 1, after
        self._probed += version - listing.latest
        if self._probed > RELIST_AFTER:
            self.relist()
        else:
            self._listing = replace(listing, commits=listing.commits.union(range(listing.latest + 1, version + 1)))
            self._tag = entry.tag

    def _tag_of(self, listing: LogListing, entries: list[Entry]) -> str | None:
        """What tells the newest file of the log from another one of the same name."""
        name = _newest_name(listing)
        entry = next((entry for entry in entries if entry.name == name), None)
        if not self._is_remote:  # a local listing holds names alone
            entry = self._folder.stat(f"{LOG}/{name}")
        return entry.tag if entry else None

    def _hint(self) -> int | None:
        try:
            hint = orjson.loads(self._folder.read(_LAST_CHECKPOINT))
        except (ObjectMissingError, orjson.JSONDecodeError):
            return None
        version = hint.get("version") if isinstance(hint, dict) else None
        return version if isinstance(version, int) and version > 0 else None


def _newest_name(listing: LogListing) -> str:
    """The newest file of the log: the latest commit, or a checkpoint of it where that is gone."""
    if listing.latest in listing.commits:
        return commit_name(listing.latest)
    return listing.checkpoints[listing.latest][0].files[0]
