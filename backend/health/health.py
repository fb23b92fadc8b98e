"""The health of one table: the one door for the Health page and `weir health`.

Rule: gathers through the lake, judges through `rules`, advises through `recommend`; the clock is a parameter.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from backend.health.model import HealthEvidence, LogHealth, Offender, SmallFileRule, TableHealth
from backend.health.recommend import recommend
from backend.health.rules import last_run, partition_offenders, small_file_rule, trend, writer_offenders
from backend.lake.files.file_sizes import FileDistribution, TargetSize, distribute
from backend.lake.model import Commit, CommitReader, Snapshot, TableRef, Timeline
from backend.settings import HealthSettings

HISTORY = 1_000  # commits looked through for maintenance and for who writes small files
_WEEK_S = 7 * 86_400.0
_UNITS_S = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}


class HealthLake(CommitReader, Protocol):
    """The part of `backend.lake.lake.Lake` that health needs."""

    def snapshot(self, ref: TableRef, version: int | None = None) -> Snapshot: ...

    def timeline(self, ref: TableRef) -> Timeline: ...

    def target_bytes(self, snapshot: Snapshot) -> TargetSize: ...

    def last_checkpoint(self, ref: TableRef) -> int | None: ...

    def versions(self, ref: TableRef) -> list[tuple[int, int]]: ...


@dataclass(frozen=True, slots=True)
class _Reading:
    """What was read of a table and first drawn from it."""

    snapshot: Snapshot
    commits: Sequence[Commit]
    files: FileDistribution
    rule: SmallFileRule
    log: LogHealth

    def offenders(self, timeline: Timeline, stream_names: Mapping[str, str] | None) -> tuple[Offender, ...]:
        limit = self.rule.small_limit_bytes
        writers = writer_offenders(self.commits, timeline, small_limit_bytes=limit, stream_names=stream_names)
        return (*writers, *partition_offenders(self.files.partitions))


def table_health(
    lake: HealthLake,
    ref: TableRef,
    *,
    now: datetime,
    settings: HealthSettings,
    stream_names: Mapping[str, str] | None = None,
) -> TableHealth:
    """What should be maintained, why, and what it would gain; raises what reading the table raises.

    `stream_names` (query id → stream) lets streams be named whose commits carry only their query id.
    """
    read, timeline = _read(lake, ref, settings), lake.timeline(ref)
    evidence = _evidence(read, now, read.offenders(timeline, stream_names))
    return TableHealth(
        ref=ref,
        version=read.snapshot.version,
        evidence=evidence,
        trend=trend(timeline),
        trend_truncated=timeline.truncated,
        recommendations=recommend(evidence),
    )


def table_evidence(lake: HealthLake, ref: TableRef, *, now: datetime, settings: HealthSettings) -> HealthEvidence:
    """What a list of tables judges by: neither totals of past versions nor who wrote the small files, which take most
    of the time. Raises what reading the table raises."""
    return _evidence(_read(lake, ref, settings), now, ())


def _read(lake: HealthLake, ref: TableRef, settings: HealthSettings) -> _Reading:
    snapshot = lake.snapshot(ref)
    target = lake.target_bytes(snapshot)
    commits = lake.history(ref, limit=HISTORY, ending_version=snapshot.version)
    return _Reading(
        snapshot,
        commits,
        distribute(snapshot, target, ratio=settings.small_file_ratio, min_files=settings.min_files, with_rows=False),
        small_file_rule(target, settings),
        _log_state(lake, snapshot, commits),
    )


def _evidence(read: _Reading, now: datetime, offenders: tuple[Offender, ...]) -> HealthEvidence:
    snapshot, files = read.snapshot, read.files
    rows, unknown = snapshot.file_set.total("num_records")
    last_vacuum = last_run(read.commits, "VACUUM")
    since = last_vacuum.version if last_vacuum else -1
    removed = [commit for commit in read.commits if commit.version > since and commit.metrics.files_removed]
    return HealthEvidence(
        now=now,
        num_files=snapshot.num_files,
        size_bytes=snapshot.size_bytes,
        small_files=files.small_files,
        small_bytes=sum(part.small_bytes for part in files.partitions if part.small_files > 1),
        files_after_merge=files.files_after_merge,
        small_partitions=files.small_partitions,
        large_files=files.large_files,
        rule=read.rule,
        partition_columns=snapshot.metadata.partition_columns,
        num_partitions=len(files.partitions),
        deleted_rows=snapshot.deleted_rows,
        physical_rows=rows if unknown < snapshot.num_files else None,
        files_without_stats=unknown,
        offenders=offenders,
        last_optimize=last_run(read.commits, "OPTIMIZE"),
        last_vacuum=last_vacuum,
        files_removed=sum(commit.metrics.files_removed or 0 for commit in removed),
        oldest_removal_at=min((c.committed_at for c in removed if c.committed_at), default=None),
        retention_s=_retention_s(snapshot),
        log=read.log,
    )


def _log_state(lake: HealthLake, snapshot: Snapshot, commits: Sequence[Commit]) -> LogHealth:
    ref, times = snapshot.ref, {commit.version: commit.committed_at for commit in commits}
    first, checkpoint = lake.versions(ref)[-1][0], lake.last_checkpoint(ref)
    for version in (first, checkpoint):
        if version is None or version in times:
            continue
        old = lake.history(ref, starting_version=version, ending_version=version)
        times |= {commit.version: commit.committed_at for commit in old}
    interval = snapshot.metadata.configuration.get("delta.checkpointInterval", "")
    return LogHealth(
        first_version=first,
        latest_version=snapshot.version,
        oldest_commit_at=times.get(first),
        checkpoint_version=checkpoint,
        checkpoint_at=times.get(checkpoint) if checkpoint is not None else None,
        checkpoint_interval=int(interval) if interval.isdecimal() and int(interval) > 0 else 10,
        feed_bytes=sum(commit.metrics.change_bytes or 0 for commit in commits),
        feed_commits=len(commits),
    )


def _retention_s(snapshot: Snapshot) -> float:
    """`delta.deletedFileRetentionDuration` in seconds: "interval 1 week" unless set to something readable."""
    text = snapshot.metadata.configuration.get("delta.deletedFileRetentionDuration", "")
    match = re.fullmatch(r"(?:interval\s+)?(\d+)\s+([a-z]+?)s?", text.strip().lower())
    if not match or match[2] not in _UNITS_S:
        return _WEEK_S
    return float(int(match[1]) * _UNITS_S[match[2]])
