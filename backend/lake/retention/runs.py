"""Which versions can still be read, until when, why, and which setting would extend it.

Rule: the clock is a parameter, and only `read_facts` reads. A broken commit hides no other: it takes along its own
versions, up to the next checkpoint. A promise is what only an act against the settings can break; an estimate is said
to be one, and so is what is not known.

What Spark enforces, as Delta 4.1 and later does it:
- Time travel, RESTORE and the change feed's first version are refused when `timestamp(version) < now −
  delta.deletedFileRetentionDuration`. The property is that of the *latest* version, which itself is never refused.
- The timestamp is the in-commit one where the table has them. Else it is the modification time of the commit's file,
  not the time that the commit names.
- VACUUM, and never time itself, deletes data files.
- The log is cleaned when a checkpoint is written. Then files older than that checkpoint go, whose time is at or before
  the UTC midnight before `now − delta.logRetentionDuration`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.errors import LakehouseError, TableCorruptError
from backend.lake.history.change_feed import FEED
from backend.lake.log.actions import epoch_ms, utc_from_ms
from backend.lake.log.commit_info import IN_COMMIT_TIMES, count
from backend.lake.log.commits import CommitRecord
from backend.lake.log.listing import LogListing, runs_of
from backend.lake.log.log import TableLog
from backend.lake.model import Metadata
from backend.lake.table.properties import interval_text, is_on, parse_interval

DELETED_FILES = "delta.deletedFileRetentionDuration"
LOG_RETENTION = "delta.logRetentionDuration"
LOG_CLEANUP = "delta.enableExpiredLogCleanup"
DEFAULTS = {DELETED_FILES: "interval 1 week", LOG_RETENTION: "interval 30 days"}
_FLAGS: tuple[bool | None, ...] = (False, True, None)
_MOST_VERSIONS = 5_000_000  # a commit a second for two months; each is judged, in a few seconds
_NO_VERSION = 2**63 - 1


class DataFiles(StrEnum):
    """What is known of a version's data files. The first three come from the log, the others from looking."""

    EXPECTED = "expected"  # a VACUUM that keeps to the settings cannot have deleted any
    AT_RISK = "at_risk"  # a VACUUM that the log records may have deleted some
    UNKNOWN = "unknown"  # older than the retention; the log records no VACUUM that reached it
    PRESENT = "present"  # every file was looked for and found
    SAMPLED = "sampled"  # none of a sample is missing
    MISSING = "missing"  # at least one is gone


@dataclass(frozen=True, slots=True)
class RetentionSetting:
    """A duration in force. `duration` is None when `text` is nothing that Delta can read."""

    key: str
    text: str
    is_set: bool
    duration: timedelta | None

    @property
    def words(self) -> str:
        """ "7 days (the default)", or what is wrong with it."""
        if self.duration is None:
            return f"{self.text!r}, which Delta cannot read"
        return interval_text(self.duration) + ("" if self.is_set else " (the default)")


@dataclass(frozen=True, slots=True)
class VacuumRun:
    """A VACUUM that the log records. It deleted files that were removed more than `retention` before `at`."""

    version: int
    at: datetime | None
    retention: timedelta | None
    deleted_files: int | None


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What the log says, whatever the time is. Runs are (first, last), both ends included, oldest first.

    `times` are the timestamps that Delta compares; `feed` are runs with whether the change feed was in force.
    """

    latest: int
    listed: tuple[tuple[int, int], ...]
    spans: tuple[tuple[int, int], ...]
    checkpoints: tuple[int, ...]
    times: Mapping[int, datetime]
    feed: tuple[tuple[int, int, bool], ...]
    deleted_files: RetentionSetting
    log_retention: RetentionSetting
    cleanup: bool
    vacuums: tuple[VacuumRun, ...] = ()
    in_commit_timestamps: bool = False
    problems: tuple[str, ...] = ()

    def is_listed(self, version: int) -> bool:
        return _covers(self.listed, version)

    def is_reconstructable(self, version: int) -> bool:
        return _covers(self.spans, version)

    def has_feed(self, version: int) -> bool | None:
        return next((on for first, last, on in self.feed if first <= version <= last), None)


@dataclass(frozen=True, slots=True)
class VersionRun:
    """Neighbouring versions of which the same is known. None: not known."""

    from_version: int
    to_version: int
    listed: bool
    reconstructable: bool
    in_retention: bool | None
    change_feed: bool | None
    data_files: DataFiles | None  # None: the version cannot be reconstructed, so its files are not known


@dataclass(frozen=True, slots=True)
class RetentionRuns:
    """Every version from 0 to the latest, in runs, at one moment."""

    facts: LogFacts
    now: datetime
    runs: tuple[VersionRun, ...]

    def run_of(self, version: int) -> VersionRun | None:
        return next((run for run in self.runs if run.from_version <= version <= run.to_version), None)


@dataclass(frozen=True, slots=True)
class FilesSeen:
    """What looking for a version's files found: `missing` of `checked` of `total` files are gone."""

    version: int
    total: int
    checked: int
    missing: int
    examples: tuple[str, ...] = ()

    @property
    def state(self) -> DataFiles:
        if self.missing:
            return DataFiles.MISSING
        return DataFiles.PRESENT if self.checked >= self.total else DataFiles.SAMPLED


# all versions ----------------------------------------------------------------------------------------------------


def retention_of(configuration: Mapping[str, str], key: str) -> RetentionSetting:
    """A retention property as a table's configuration has it; its text is empty where nothing limits it."""
    text, default = configuration.get(key), DEFAULTS.get(key, "")
    return RetentionSetting(key, text or default, text is not None, parse_interval(text or default))


def judge(facts: LogFacts, now: datetime, missing: Sequence[tuple[int, int]] | None = None) -> RetentionRuns:
    """What is known of every version at a moment, in runs. `missing`, once every file of every version was looked for:
    the runs of versions where at least one is gone."""
    starts = [first for first, _ in (*facts.listed, *facts.spans)]
    first = min(starts, default=facts.latest)
    if facts.latest - first >= _MOST_VERSIONS or facts.latest >= _NO_VERSION:
        raise TableCorruptError(
            f"the log holds versions {first} to {facts.latest}: too many to judge, or too high to be one",
            hint="a Delta writer counts by one from 0; `weir history` lists the commits that are there",
        )
    versions = np.arange(first, facts.latest + 1, dtype=np.int64)
    listed = _inside(facts.listed, versions)
    spanned = _inside(facts.spans, versions)
    retained = _in_retention(facts, versions, now)
    feed = np.full(len(versions), 2, np.int8)
    for start, end, on in facts.feed:
        feed[(versions >= start) & (versions <= end)] = int(on)
    if missing is None:
        files = _files(facts, versions, retained)
    else:
        present, lost = map(list(DataFiles).index, (DataFiles.PRESENT, DataFiles.MISSING))
        files = np.where(_inside(missing, versions) == 1, lost, present).astype(np.int8)
    codes = np.stack([listed, spanned, retained, feed, np.where(spanned == 1, files, -1)])
    gone = () if first == 0 else (VersionRun(0, first - 1, False, False, None, None, None),)
    return RetentionRuns(facts, now, (*gone, *_runs(codes, first)))


def _inside(runs: Sequence[tuple[int, int]], versions: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
    """1 where a version lies in a run; runs do not overlap, and may reach beyond the versions."""
    steps = np.zeros(len(versions) + 1, np.int32)
    for first, last in runs:
        start, end = first - int(versions[0]), min(last - int(versions[0]) + 1, len(versions))
        if start < end:
            steps[start] += 1
            steps[end] -= 1
    return np.cumsum(steps[:-1]).astype(np.int8)


def _in_retention(facts: LogFacts, versions: npt.NDArray[np.int64], now: datetime) -> npt.NDArray[np.int8]:
    """1 where Delta ≥ 4.1 does not refuse, 0 where it does, 2 where that is not known."""
    if facts.deleted_files.duration is None:
        retained = np.full(len(versions), 2, np.int8)
    else:
        limit = _limit(now, facts.deleted_files.duration)
        times = map(facts.times.get, versions.tolist())
        retained = np.array([2 if at is None else int(at >= limit) for at in times], np.int8)
    retained[-1] = 1
    return retained


def _limit(now: datetime, duration: timedelta) -> datetime:
    try:
        return now - duration
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def _files(facts: LogFacts, versions: npt.NDArray[np.int64], retained: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Codes of `DataFiles` by what the log says alone: inside the retention, or reached by a recorded VACUUM."""
    order = list(DataFiles)
    states = np.where(retained == 1, order.index(DataFiles.EXPECTED), order.index(DataFiles.UNKNOWN)).astype(np.int8)
    own = [facts.times.get(int(v)) for v in versions]
    following = [*own[1:], None]
    for vacuum in facts.vacuums:
        reach = vacuum.retention if vacuum.retention is not None else facts.deleted_files.duration
        if vacuum.at is None or reach is None or vacuum.deleted_files == 0:
            continue
        horizon = _limit(vacuum.at, reach)
        for number, (at, after) in enumerate(zip(own, following, strict=True)):
            if at and after and at <= vacuum.at and after < horizon:
                states[number] = order.index(DataFiles.AT_RISK)
    return states


def _runs(codes: npt.NDArray[np.int8], first: int) -> list[VersionRun]:
    changed = np.flatnonzero(np.any(codes[:, 1:] != codes[:, :-1], axis=0)) + 1
    starts = [0, *changed.tolist()]
    ends = [*changed.tolist(), codes.shape[1]]
    order = list(DataFiles)
    runs = []
    for start, end in zip(starts, ends, strict=True):
        listed, spanned, retained, feed, files = (int(code) for code in codes[:, start])
        rebuilt = _FLAGS[retained] if listed or spanned else None
        state = None if files < 0 else order[files]
        runs.append(
            VersionRun(first + start, first + end - 1, bool(listed), bool(spanned), rebuilt, _FLAGS[feed], state)
        )
    return runs


def _covers(runs: tuple[tuple[int, int], ...], version: int) -> bool:
    return any(first <= version <= last for first, last in runs)


_AT_ONCE = 512


def read_facts(log: TableLog) -> LogFacts:
    """The facts of a table's log; raises `TableNotFoundError` for an empty one, `StorageError` when it does not
    answer. What cannot be known of a broken log is left out and named in `problems`."""
    listing = log.listing()
    walk = _Walk(log, listing, log.file_times(sorted(listing.commits)))
    walk.read()
    configuration = _latest_configuration(log, walk)
    return LogFacts(
        latest=listing.latest,
        listed=runs_of(sorted(listing.commits)),
        spans=_sound(listing, walk.broken),
        checkpoints=tuple(sorted(listing.checkpoints)),
        times=walk.times,
        feed=tuple((first, last, on) for first, last, on in walk.feed if on is not None),
        deleted_files=retention_of(configuration, DELETED_FILES),
        log_retention=retention_of(configuration, LOG_RETENTION),
        cleanup=configuration.get(LOG_CLEANUP, "true").strip().lower() != "false",
        vacuums=tuple(walk.vacuums),
        in_commit_timestamps=is_on(configuration, IN_COMMIT_TIMES),
        problems=tuple(walk.problems),
    )


class _Walk:
    """One pass over the commits, oldest first: what was in force at each."""

    def __init__(self, log: TableLog, listing: LogListing, times: dict[int, datetime]) -> None:
        self._log = log
        self._listing = listing
        self.times = times
        self.feed: list[tuple[int, int, bool | None]] = []
        self.vacuums: list[VacuumRun] = []
        self.broken: list[int] = []
        self.problems: list[str] = []
        self.configuration: Mapping[str, str] | None = None
        self._started: dict[str, Any] | None = None  # parameters of a VACUUM whose end has not come

    def read(self) -> None:
        before = -2
        for first, last in runs_of(sorted(self._listing.commits)):
            self.configuration = None if first else {}
            for start in range(first, last + 1, _AT_ONCE):
                for commit in self._log.commits(range(start, min(start + _AT_ONCE, last + 1))):
                    record = commit.record
                    if self.configuration is None and record.metadata is None:
                        self.configuration = self._known_at(record.version)
                    self._take(record)
            before = last
        if before < self._listing.latest:  # the newest version is a checkpoint without its commit
            self.configuration = self._known_at(self._listing.latest)

    def _known_at(self, version: int) -> Mapping[str, str] | None:
        """The properties at a version whose earlier metadata the commits do not hold: from its checkpoint."""
        if version not in self._listing.checkpoints:
            return None
        try:
            return self._log.snapshot(version).metadata.configuration
        except LakehouseError as exc:
            self.problems.append(f"version {version} cannot be read: {exc.message}")
            return None

    def _take(self, record: CommitRecord) -> None:
        version = record.version
        if record.problem:
            self.broken.append(version)
            self.problems.append(record.problem)
        if record.metadata is not None:
            self.configuration = record.metadata.configuration
        on = None if self.configuration is None else is_on(self.configuration, FEED)
        if self.feed and self.feed[-1][1:] == (version - 1, on):
            self.feed[-1] = (self.feed[-1][0], version, on)
        else:
            self.feed.append((version, version, on))
        info = record.commit_info
        if not isinstance(info, Mapping):
            return
        if self.configuration is not None and is_on(self.configuration, IN_COMMIT_TIMES):
            millis = epoch_ms(info.get("inCommitTimestamp"))
            if millis is not None:
                self.times[version] = utc_from_ms(millis)
        self._note_vacuum(version, info)

    def _note_vacuum(self, version: int, info: Mapping[str, Any]) -> None:
        operation = info.get("operation")
        parameters = _mapping(info.get("operationParameters"))
        if operation not in ("VACUUM START", "VACUUM END"):
            return
        if operation == "VACUUM END" and self._started is not None:
            self.vacuums.pop()  # its start: without an end, it deleted nobody knows how many
        metrics = _mapping(info.get("operationMetrics"))
        details = {**(self._started or {}), **parameters}
        self._started = parameters if operation == "VACUUM START" else None
        chosen = _millis(details.get("specifiedRetentionMillis"))  # 0 is a choice too
        self.vacuums.append(
            VacuumRun(
                version=version,
                at=self.times.get(version),
                retention=_millis(details.get("defaultRetentionMillis")) if chosen is None else chosen,
                deleted_files=count(metrics.get("numDeletedFiles")),
            )
        )


def _latest_configuration(log: TableLog, walk: _Walk) -> Mapping[str, str]:
    """The properties of the latest version, which Delta judges every version by."""
    if walk.configuration is not None:
        return walk.configuration
    try:
        metadata: Metadata = log.snapshot(None).metadata
    except LakehouseError as exc:
        walk.problems.append(f"the latest version cannot be read, so defaults are assumed: {exc.message}")
        return {}
    return metadata.configuration


def _sound(listing: LogListing, broken: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Spans without the versions that a broken commit takes along: its own and those up to the next checkpoint."""
    spans = listing.spans()
    checkpoints = sorted(listing.checkpoints)
    for version in broken:
        after = next((c for c in checkpoints if c >= version), None)
        left: list[tuple[int, int]] = []
        for first, last in spans:
            if not first <= version <= last:
                left.append((first, last))
                continue
            if first < version:
                left.append((first, version - 1))
            if after is not None and after <= last:
                left.append((after, last))
        spans = left
    return tuple(spans)


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _millis(value: Any) -> timedelta | None:
    millis = count(value)
    try:
        return None if millis is None else timedelta(milliseconds=millis)
    except OverflowError:
        return None
