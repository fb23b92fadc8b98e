"""Recommendations in plain words: what is the case, what to do next.

Rule: pure; a table in order says so in one sentence; nothing is recommended without the number behind it.
"""

from collections.abc import Iterator

from backend.format import ago, bytes_text, count_text, duration_text, percent, things
from backend.health.model import HealthEvidence, Offender, Recommendation, Severity
from backend.health.rules import fine_text, gain_in, large_files_text, layout_text

DELETED_ROWS = 0.05  # Delta's OPTIMIZE rewrites files above it
CHECKPOINT_LATE = 2  # times the interval
PARTITION_BYTES = 1_000_000_000
PACE_AFTER_S = 600.0  # a load of a minute says nothing of a day
PARTITION_TABLE_BYTES = 1_000_000_000_000


def recommend(evidence: HealthEvidence) -> tuple[Recommendation, ...]:
    """Most urgent first; never empty."""
    recommendations = [
        *_small_files(evidence),
        *_partitioning(evidence),
        *_large_files(evidence),
        *_deleted_rows(evidence),
        *_statistics(evidence),
        *_vacuum(evidence),
        *_log(evidence),
    ]
    order = list(Severity)
    if not any(item.severity is not Severity.FINE for item in recommendations):
        return (_fine(evidence),)
    return tuple(sorted(recommendations, key=lambda item: order.index(item.severity)))


def _small_files(e: HealthEvidence) -> Iterator[Recommendation]:
    severity = gain_in(e).merge_severity
    if severity is Severity.FINE:
        return
    finding = (
        f"{count_text(e.small_files)} of {things(e.num_files, 'file')} are under "
        f"{bytes_text(e.rule.small_limit_bytes)}; {_optimize_words(e)}."
    )
    step = (
        f"OPTIMIZE would leave about {things(e.files_after_merge, 'file')} of {count_text(e.num_files)}, "
        f"rewriting {bytes_text(e.small_bytes)}."
    )
    wait = " Readers lose little by them, so it can wait." if severity is Severity.NOTE else ""
    yield Recommendation("small files", severity, finding, f"{step}{wait}{_cause(e)}")


def _optimize_words(e: HealthEvidence) -> str:
    if e.last_optimize is None:
        return "OPTIMIZE is not in the history"
    when = f", {ago(e.last_optimize.at, e.now)}" if e.last_optimize.at else ""
    return f"the last OPTIMIZE was v{e.last_optimize.version}{when}"


def _cause(e: HealthEvidence) -> str:
    """Who writes them and how fast, and what would stop it."""
    writers = [o for o in e.offenders if o.kind != "partition"]
    if not writers:
        return ""
    top = max(writers, key=lambda o: o.small_files)
    share = top.small_files / sum(writer.small_files for writer in writers)
    average = f", of {bytes_text(top.average_bytes)} on average" if top.average_bytes is not None else ""
    source = f" {percent(share)} of those that the log tells of come from {_writer(top)}{average}{_pace(top)}"
    longer = "a longer trigger interval" if top.kind == "stream" else "larger batches"
    return f"{source}: {longer}, delta.autoOptimize.optimizeWrite or delta.autoOptimize.autoCompact would write fewer."


def _writer(top: Offender) -> str:
    return f"the stream {top.name}" if top.kind == "stream" else top.name


def _pace(top: Offender) -> str:
    """How many a commit and a day."""
    if not top.commits:
        return ""
    each = f", {top.small_files / top.commits:.3g} a commit"
    if top.interval_s is None or (top.span_s or 0) < PACE_AFTER_S:
        return each
    per_day = count_text(round(top.small_files / top.commits * 86_400 / top.interval_s))
    return f"{each} every {duration_text(top.interval_s)} ({per_day} a day at this pace)"


def _partitioning(e: HealthEvidence) -> Iterator[Recommendation]:
    average = e.size_bytes / max(e.num_partitions, 1)
    is_small = e.size_bytes < PARTITION_TABLE_BYTES and average < PARTITION_BYTES
    if not e.small_partitions and not (e.partition_columns and e.num_partitions > 1 and is_small):
        return
    small = f"{layout_text(gain_in(e))} " if e.small_partitions else ""
    yield Recommendation(
        "partitioning",
        gain_in(e).layout_severity if e.small_partitions else Severity.NOTE,
        f"{small}{count_text(e.num_partitions)} partitions by {', '.join(e.partition_columns)} hold "
        f"{bytes_text(average)} on average; under 1 TB a table is usually faster without partitions, and a partition "
        "should hold 1 GB.",
        "Leave it if queries always filter by it; otherwise write the table anew without, or with coarser partitions.",
    )


def _large_files(e: HealthEvidence) -> Iterator[Recommendation]:
    if not e.large_files:
        return
    yield Recommendation(
        "large files",
        Severity.NOTE,
        large_files_text(gain_in(e)),
        "Each change of a row rewrites such a file whole. OPTIMIZE leaves them; with ZORDER BY it writes files of "
        f"{bytes_text(e.rule.target_bytes)}.",
    )


def _deleted_rows(e: HealthEvidence) -> Iterator[Recommendation]:
    if not e.physical_rows or e.deleted_rows / e.physical_rows < DELETED_ROWS:
        return
    yield Recommendation(
        "deletion vectors",
        Severity.NOTE,
        f"{count_text(e.deleted_rows)} rows ({percent(e.deleted_rows / e.physical_rows)}) are only marked as deleted; "
        "every reader skips over them.",
        "REORG TABLE … APPLY (PURGE) rewrites those files.",
    )


def _statistics(e: HealthEvidence) -> Iterator[Recommendation]:
    if not e.files_without_stats:
        return
    yield Recommendation(
        "statistics",
        Severity.NOTE,
        f"{things(e.files_without_stats, 'file')} of {count_text(e.num_files)} carry no row count: the table's rows "
        "are unknown and readers cannot skip those files.",
        "OPTIMIZE or ANALYZE TABLE … COMPUTE DELTA STATISTICS writes them.",
    )


def _vacuum(e: HealthEvidence) -> Iterator[Recommendation]:
    """Only where files that were removed before the retention period can really be freed."""
    since = e.last_vacuum.at if e.last_vacuum else None
    oldest = e.oldest_removal_at
    if not e.files_removed or oldest is None or (e.now - oldest).total_seconds() <= e.retention_s:
        return
    if since is not None and (e.now - since).total_seconds() <= e.retention_s:
        return
    ran = f"VACUUM last ran {ago(since, e.now)}" if since else "VACUUM is not in the history"
    yield Recommendation(
        "vacuum",
        Severity.NOTE,
        f"{ran}; commits since removed {things(e.files_removed, 'file')}, the first {ago(oldest, e.now)}.",
        f"VACUUM frees what was removed more than {duration_text(e.retention_s)} ago. "
        "Versions that need those files cannot be read after it.",
    )


def _log(e: HealthEvidence) -> Iterator[Recommendation]:
    waiting, interval = e.log.commits_since_checkpoint, max(e.log.checkpoint_interval, 1)
    if waiting <= CHECKPOINT_LATE * interval:
        return
    last = f"since v{e.log.checkpoint_version}" if e.log.checkpoint_version is not None else "yet"
    yield Recommendation(
        "log",
        Severity.NOTE,
        f"No checkpoint {last}: each reader opens {things(waiting, 'commit')}; the interval is {interval:,}.",
        "Look why its writer makes none (permission, engine). Spark makes one at the interval.",
    )


def _fine(e: HealthEvidence) -> Recommendation:
    if not e.num_files:
        return Recommendation("table", Severity.FINE, "The table has no data files.", "Nothing to do.")
    return Recommendation("table", Severity.FINE, f"{fine_text(gain_in(e))}.", "Nothing to do.")
