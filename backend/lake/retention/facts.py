"""What a log says of the retention of its versions: commits, their times, settings, change feed, VACUUMs.

Rule: a broken commit hides no other. It takes along its own versions, up to the next checkpoint.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from backend.errors import LakehouseError
from backend.lake.history.change_feed import FEED
from backend.lake.log.actions import epoch_ms, utc_from_ms
from backend.lake.log.commit_times import IN_COMMIT_TIMES
from backend.lake.log.commits import CommitRecord
from backend.lake.log.listing import LogListing, runs_of
from backend.lake.log.log import TableLog
from backend.lake.model import Metadata
from backend.lake.retention.runs import (
    DELETED_FILES,
    LOG_CLEANUP,
    LOG_RETENTION,
    LogFacts,
    VacuumRun,
    retention_of,
)
from backend.lake.table.property_values import is_on

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
        self._note_feed(version, None if self.configuration is None else is_on(self.configuration, FEED))
        info = record.commit_info
        if not isinstance(info, Mapping):
            return
        if self.configuration is not None and is_on(self.configuration, IN_COMMIT_TIMES):
            millis = epoch_ms(info.get("inCommitTimestamp"))
            if millis is not None:
                self.times[version] = utc_from_ms(millis)
        self._note_vacuum(version, info)

    def _note_feed(self, version: int, on: bool | None) -> None:
        if self.feed and self.feed[-1][1] == version - 1 and self.feed[-1][2] == on:
            self.feed[-1] = (self.feed[-1][0], version, on)
        else:
            self.feed.append((version, version, on))

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
                deleted_files=_count(metrics.get("numDeletedFiles")),
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
    count = _count(value)
    try:
        return None if count is None else timedelta(milliseconds=count)
    except OverflowError:
        return None


def _count(value: Any) -> int | None:
    text = str(value)
    return int(text) if isinstance(value, int | str) and text.isascii() and text.isdigit() and len(text) < 19 else None
