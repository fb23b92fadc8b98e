"""The names in `_delta_log`, understood: commits, checkpoints of every kind, checksums.

Rule: pure; the listing is the truth and hints in files are never needed. A multi-part checkpoint counts only when all
its parts are there.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from backend.errors import TableCorruptError, TableNotFoundError, VersionNotFoundError

LOG = "_delta_log"
_COMMIT = re.compile(r"^(\d{20})\.json$")
_CHECKSUM = re.compile(r"^(\d{20})\.crc$")
_CLASSIC = re.compile(r"^(\d{20})\.checkpoint\.parquet$")
_MULTI = re.compile(r"^(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet$")
_V2 = re.compile(r"^(\d{20})\.checkpoint\.[0-9a-fA-F-]{36}\.(json|parquet)$")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One complete checkpoint: its files in order, and whether it is of the V2 kind."""

    version: int
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Segment:
    """What reconstructs a version: a checkpoint (None: from the first commit) and the commits after it."""

    version: int
    checkpoint: Checkpoint | None
    commits: range


@dataclass(frozen=True, slots=True)
class LogListing:
    commits: frozenset[int]
    checkpoints: dict[int, tuple[Checkpoint, ...]] = field(default_factory=dict)
    checksums: frozenset[int] = frozenset()

    @property
    def latest(self) -> int:
        """The newest version named by the log; raises `TableNotFoundError` for an empty log."""
        if not self.commits and not self.checkpoints:
            raise TableNotFoundError("the log is empty", hint="the folder has a _delta_log without any commit")
        return max((*self.commits, *self.checkpoints))

    @property
    def newest_commits(self) -> list[int]:
        return sorted(self.commits, reverse=True)

    def segments(self, version: int) -> list[Segment]:
        """Ways to reconstruct a version, best first; raises when there is none."""
        if version > self.latest or version < 0:
            raise self._no_version(version)
        ways = []
        for base in sorted((v for v in self.checkpoints if v <= version), reverse=True):
            commits = range(base + 1, version + 1)
            if all(v in self.commits for v in commits):
                ways += [Segment(version, checkpoint, commits) for checkpoint in self.checkpoints[base]]
        if all(v in self.commits for v in range(version + 1)):
            ways.append(Segment(version, None, range(version + 1)))
        if not ways:
            raise self._no_version(version)
        return ways

    def spans(self) -> list[tuple[int, int]]:
        """Runs of versions that can be reconstructed, first and last, oldest first."""
        spans: list[tuple[int, int]] = []
        for version in sorted(self.commits | set(self.checkpoints)):
            if spans and version == spans[-1][1] + 1 and version in self.commits:
                spans[-1] = (spans[-1][0], version)
            elif version in self.checkpoints or version == 0:
                spans.append((version, version))
        return spans

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


def read_listing(names: Iterable[str]) -> LogListing:
    commits, checksums = set(), set()
    checkpoints: dict[int, list[Checkpoint]] = {}
    parts: dict[tuple[int, int], dict[int, str]] = {}
    for name in names:
        if match := _COMMIT.match(name):
            commits.add(int(match[1]))
        elif match := _CHECKSUM.match(name):
            checksums.add(int(match[1]))
        elif match := _MULTI.match(name):
            parts.setdefault((int(match[1]), int(match[3])), {})[int(match[2])] = name
        elif match := _CLASSIC.match(name) or _V2.match(name):
            checkpoints.setdefault(int(match[1]), []).append(Checkpoint(int(match[1]), (name,)))
    for (version, count), found in parts.items():
        if set(found) == set(range(1, count + 1)):
            files = tuple(found[number] for number in sorted(found))
            checkpoints.setdefault(version, []).append(Checkpoint(version, files))
    return LogListing(frozenset(commits), {v: tuple(c) for v, c in checkpoints.items()}, frozenset(checksums))
