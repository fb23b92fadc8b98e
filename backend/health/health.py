"""The health of one table: the one door for the Health page and `weir health`.

Rule: gathers through the lake, judges through `rules`, advises through `recommend`; the clock is a parameter.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import pyarrow.compute as pc

from backend.health.model import LogState, Offender, SmallFileRule, TableHealth
from backend.health.recommend import Evidence, recommend
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


@dataclass(frozen=True, slots=True)
class _Reading:
    """What was read of a table and first drawn from it."""

    snapshot: Snapshot
    timeline: Timeline
    commits: Sequence[Commit]
    files: FileDistribution
    rule: SmallFileRule
    log: LogState
    stream_names: Mapping[str, str] | None

    @property
    def offenders(self) -> tuple[Offender, ...]:
        limit = self.rule.small_limit_bytes
        writers = writer_offenders(self.commits, self.timeline, small_limit_bytes=limit, stream_names=self.stream_names)
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
    read = _read(lake, ref, settings, stream_names)
    evidence = _evidence(read, now)
    return TableHealth(
        ref=ref,
        version=read.snapshot.version,
        num_files=evidence.num_files,
        size_bytes=evidence.size_bytes,
        small_files=evidence.small_files,
        rule=read.rule,
        trend=trend(read.timeline),
        trend_truncated=read.timeline.truncated,
        offenders=tuple(evidence.offenders),
        last_optimize=evidence.last_optimize,
        last_vacuum=evidence.last_vacuum,
        log=read.log,
        recommendations=recommend(evidence),
    )


def _read(
    lake: HealthLake, ref: TableRef, settings: HealthSettings, stream_names: Mapping[str, str] | None
) -> _Reading:
    snapshot, timeline = lake.snapshot(ref), lake.timeline(ref)
    target = lake.target_bytes(snapshot)
    return _Reading(
        snapshot,
        timeline,
        lake.history(ref, limit=HISTORY, ending_version=snapshot.version),
        distribute(snapshot, target, ratio=settings.small_file_ratio, min_files=settings.min_files),
        small_file_rule(target, settings),
        _log_state(timeline, snapshot, lake.last_checkpoint(ref)),
        stream_names,
    )


def _evidence(read: _Reading, now: datetime) -> Evidence:
    snapshot, files = read.snapshot, read.files
    removed = _removed_since_vacuum(read.commits)
    return Evidence(
        now=now,
        num_files=snapshot.num_files,
        size_bytes=snapshot.size_bytes,
        small_files=files.small_files,
        files_after_optimize=_files_after_optimize(files),
        rule=read.rule,
        partition_columns=snapshot.metadata.partition_columns,
        num_partitions=len(files.partitions),
        deleted_rows=int(pc.sum(snapshot.files["deleted_rows"]).as_py() or 0),
        physical_rows=pc.sum(snapshot.files["num_records"]).as_py(),
        files_without_stats=snapshot.files["num_records"].null_count,
        offenders=read.offenders,
        last_optimize=last_run(read.commits, "OPTIMIZE"),
        last_vacuum=last_run(read.commits, "VACUUM"),
        files_removed=sum(commit.metrics.files_removed or 0 for commit in removed),
        oldest_removal_at=min((c.committed_at for c in removed if c.committed_at), default=None),
        retention_s=_retention_s(snapshot),
        log=read.log,
    )


def _files_after_optimize(files: FileDistribution) -> int:
    """About as many files as the target size needs, per partition; OPTIMIZE never makes more than there are."""
    needed = (min(p.num_files, max(1, math.ceil(p.size_bytes / files.target.bytes))) for p in files.partitions)
    return sum(needed)


def _log_state(timeline: Timeline, snapshot: Snapshot, checkpoint: int | None) -> LogState:
    times = {totals.version: totals.committed_at for totals in timeline.totals}
    interval = snapshot.metadata.configuration.get("delta.checkpointInterval", "")
    return LogState(
        first_version=timeline.first_version,
        latest_version=snapshot.version,
        oldest_commit_at=times.get(timeline.first_version),
        checkpoint_version=checkpoint,
        checkpoint_at=times.get(checkpoint) if checkpoint is not None else None,
        checkpoint_interval=int(interval) if interval.isdecimal() and int(interval) > 0 else 10,
    )


def _removed_since_vacuum(commits: Sequence[Commit]) -> list[Commit]:
    """The commits that removed files since the last VACUUM; commits come newest first."""
    found = []
    for commit in commits:
        if (commit.operation or "").upper().startswith("VACUUM"):
            break
        if commit.metrics.files_removed:
            found.append(commit)
    return found


def _retention_s(snapshot: Snapshot) -> float:
    """`delta.deletedFileRetentionDuration` in seconds: "interval 1 week" unless set to something readable."""
    text = snapshot.metadata.configuration.get("delta.deletedFileRetentionDuration", "")
    match = re.fullmatch(r"(?:interval\s+)?(\d+)\s+([a-z]+?)s?", text.strip().lower())
    if not match or match[2] not in _UNITS_S:
        return _WEEK_S
    return float(int(match[1]) * _UNITS_S[match[2]])
