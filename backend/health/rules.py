"""Findings about one table, drawn from its card, snapshot, log and history; and what to do next, in plain words.

Rule: pure; "small" is `backend.lake.files.file_sizes`' definition and no second one. The number of small files alone is
never urgent, only what readers would save by merging. Opening a file counts as reading 4 MiB, as Spark plans it
(`spark.sql.files.openCostInBytes`). Nothing is recommended without the number behind it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from backend.format import ago, bytes_text, count_text, duration_text, percent, things
from backend.health.model import HealthEvidence, MaintenanceRun, Offender, Recommendation, Severity, SmallFileRule
from backend.lake.files.file_sizes import LARGE, FileDistribution, PartitionFiles, TargetSize
from backend.lake.model import Commit, TableCard, Timeline, UnreadableTable, VersionTotals
from backend.settings import HealthSettings

OPEN_COST_BYTES = 4 * 2**20
MANY_SPARED = 500  # files; a scan on sixteen cores opens so many from an object store in about two seconds
READ_GAIN = 0.2  # of what reading the whole table costs
MOSTLY_SMALL = 0.5  # of the files; below, they are not worth a remark
TREND_POINTS = 500  # a figure shows no more
TOP = 5
DELETED_ROWS = 0.05  # Delta's OPTIMIZE rewrites files above it
CHECKPOINT_LATE = 2  # times the interval
PARTITION_BYTES = 1_000_000_000
PACE_AFTER_S = 600.0  # a load of a minute says nothing of a day
PARTITION_TABLE_BYTES = 1_000_000_000_000
_NOT_WRITES = ("OPTIMIZE", "VACUUM", "RESTORE", "REORG", "CLONE")
URGENCY = (
    f"It is a warning where merging spares {MANY_SPARED} files or more and {READ_GAIN:.0%} of a full read. "
    "Each opened file counts as 4 MB, as in Spark. Below that it is a note. The same holds for partitions smaller than "
    "one file should be; merging does not help them."
).replace("%", " %")


@dataclass(frozen=True, slots=True)
class MergeGain:
    """A table as it is, and about as many files as merging would leave."""

    num_files: int
    small_files: int
    size_bytes: int
    files_after: int
    small_partitions: int = 0
    large_files: int = 0

    @property
    def spared(self) -> int:
        """Files that a reader of the whole table need no longer open."""
        return max(0, self.num_files - self.files_after)

    @property
    def small_share(self) -> float:
        return self.small_files / self.num_files if self.num_files else 0.0

    @property
    def read_share(self) -> float:
        """The share of a full read that is saved."""
        cost = self.size_bytes + self.num_files * OPEN_COST_BYTES
        return self.spared * OPEN_COST_BYTES / cost if cost else 0.0

    @property
    def merge_severity(self) -> Severity:
        """How urgent it is to merge small files."""
        if self.spared >= MANY_SPARED and self.read_share >= READ_GAIN:
            return Severity.WARNING
        return Severity.NOTE if self.spared and self.small_share >= MOSTLY_SMALL else Severity.FINE

    @property
    def layout_severity(self) -> Severity:
        """How urgent what merging does not mend is: partitions that hold too little, and files far above the target."""
        opening = self.small_partitions * OPEN_COST_BYTES
        if self.small_partitions >= MANY_SPARED and opening >= READ_GAIN * (
            self.size_bytes + self.files_after * OPEN_COST_BYTES
        ):
            return Severity.WARNING
        return Severity.NOTE if self.small_partitions or self.large_files else Severity.FINE

    @property
    def small_files_matter(self) -> bool:
        return self.merge_severity is not Severity.FINE or self.small_partitions > 0

    @property
    def severity(self) -> Severity:
        """The one judgement of a table's files, on every page and in the terminal."""
        return min(self.merge_severity, self.layout_severity, key=list(Severity).index)


def gain_text(gain: MergeGain) -> str:
    """The finding that a card alone can tell: of merging, or else of the layout."""
    if gain.merge_severity is Severity.FINE and gain.layout_severity is not Severity.FINE:
        return layout_text(gain)
    small = f"{count_text(gain.small_files)} of {things(gain.num_files, 'file')} are small"
    return f"{small}; merging would spare {count_text(gain.spared)}."


def layout_text(gain: MergeGain) -> str:
    """ "1,500 partitions hold less than one file should, even merged."; without such, of the large files."""
    if gain.small_partitions:
        return f"{things(gain.small_partitions, 'partition')} hold less than one file should, even merged."
    return large_files_text(gain)


def large_files_text(gain: MergeGain) -> str:
    """ "2 files of 40 are over 5 times the target size."."""
    larger = f"{things(gain.large_files, 'file')} of {count_text(gain.num_files)}"
    return f"{larger} {'is' if gain.large_files == 1 else 'are'} over {LARGE} times the target size."


def small_files_text(gain: MergeGain) -> str:
    """ "1,204 of 1,310"; "OK (12)" where those 12 are not worth a remark."""
    if not gain.small_files_matter:
        return f"OK ({count_text(gain.small_files)})" if gain.small_files else "OK"
    return f"{count_text(gain.small_files)} of {count_text(gain.num_files)}"


def fine_text(gain: MergeGain) -> str:
    return f"{things(gain.num_files, 'file')}, {bytes_text(gain.size_bytes)}: nothing to merge"


def merge_gain(card: TableCard) -> MergeGain:
    """The gain as a card knows it."""
    after = card.num_files if card.files_after_merge is None else card.files_after_merge
    layout = card.small_partitions, card.large_files
    return MergeGain(card.num_files, card.small_files, card.size_bytes, after, *layout)


def gain_in(files: FileDistribution | HealthEvidence) -> MergeGain:
    """The gain as all files of a version tell it."""
    layout = files.small_partitions, files.large_files
    return MergeGain(files.num_files, files.small_files, files.size_bytes, files.files_after_merge, *layout)


def severity_of(table: TableCard | UnreadableTable) -> Severity:
    """How urgent a table is by what a list of tables reads of it: the same on every page."""
    return merge_gain(table).severity if isinstance(table, TableCard) else Severity.CRITICAL


def small_file_rule(target: TargetSize, settings: HealthSettings) -> SmallFileRule:
    """The rule in numbers and in one sentence."""
    limit = int(target.bytes * settings.small_file_ratio)
    text = (
        f"A file is small below {bytes_text(limit)}, {100 * settings.small_file_ratio:.0f} % of the target of "
        f"{bytes_text(target.bytes)} (from {target.source}). Merging is advised once {settings.min_files} files "
        "can be merged; a file alone in its partition cannot."
    )
    return SmallFileRule(target.bytes, target.source, settings.small_file_ratio, limit, settings.min_files, text)


def trend(timeline: Timeline, *, points: int = TREND_POINTS) -> tuple[VersionTotals, ...]:
    """File counts over versions, oldest first; thinned evenly to `points`, the last one always kept."""
    totals = timeline.totals
    step = len(totals) / points
    return totals if step <= 1 else tuple(totals[int((i + 1) * step) - 1] for i in range(points))


def last_run(commits: Iterable[Commit], operation: str) -> MaintenanceRun | None:
    """The newest commit of an operation, a VACUUM's by its end: it may not reach it. Commits come newest first."""
    for commit in commits:
        name = (commit.operation or "").upper()
        if name.startswith(operation) and name != "VACUUM START":
            return MaintenanceRun(commit.version, commit.committed_at)
    return None


def partition_offenders(partitions: Sequence[PartitionFiles]) -> tuple[Offender, ...]:
    """The partitions with most small files; nothing for a table without partitions."""
    if len(partitions) <= 1 and not any(p.partition for p in partitions):
        return ()
    worst = sorted((p for p in partitions if p.small_files), key=lambda p: (-p.small_files, p.partition))[:TOP]
    return tuple(Offender("partition", p.partition, p.small_files, p.num_files, p.size_bytes) for p in worst)


def writer_offenders(
    commits: Iterable[Commit], timeline: Timeline, stream_names: Mapping[str, str], *, small_limit_bytes: int
) -> tuple[Offender, ...]:
    """The streams, and for commits of no stream the engines, that wrote most small files.

    `stream_names` gives names to query ids: Spark's own streaming commits carry no other.
    """
    totals = {total.version: total for total in timeline.totals}
    by_writer: dict[tuple[str, str], list[tuple[int, int, datetime | None]]] = {}  # files, bytes, when
    for commit in commits:
        if (written := _written(commit, totals)) is not None:
            by_writer.setdefault(_writer(commit, stream_names), []).append((*written, commit.committed_at))
    offenders = []
    for (kind, name), writes in by_writer.items():
        small = sum(files for files, size_bytes, _ in writes if size_bytes / files < small_limit_bytes)
        times = [at for _, _, at in writes if at]
        span_s = (max(times) - min(times)).total_seconds() if len(times) == len(writes) else None
        files, size = sum(write[0] for write in writes), sum(write[1] for write in writes)
        offenders.append(Offender(kind, name, small, files, size, len(writes), span_s))
    return tuple(sorted((o for o in offenders if o.small_files), key=lambda o: (-o.small_files, o.name))[:TOP])


def _writer(commit: Commit, names: Mapping[str, str]) -> tuple[str, str]:
    origin = commit.origin
    if origin and (name := origin.stream or names.get(origin.query_id or "") or origin.query_id):
        return "stream", name
    return "engine", commit.engine or "an unnamed engine"


def _written(commit: Commit, totals: Mapping[int, VersionTotals]) -> tuple[int, int] | None:
    """Files and bytes that a commit wrote; where it does not say, what the table grew by if nothing was removed."""
    metrics, operation = commit.metrics, (commit.operation or "").upper()
    if not metrics.files_added or operation.startswith(_NOT_WRITES):
        return None
    if metrics.bytes_added is not None:
        return metrics.files_added, metrics.bytes_added
    now, before = totals.get(commit.version), totals.get(commit.version - 1)
    if now is None or metrics.files_removed:
        return None
    if before is None and commit.version > 0:
        return None
    return metrics.files_added, now.size_bytes - (before.size_bytes if before else 0)


# what to do next -----------------------------------------------------------------------------------------------------


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
        finding = f"{fine_text(gain_in(evidence))}." if evidence.num_files else "The table has no data files."
        return (Recommendation("table", Severity.FINE, finding, "Nothing to do."),)
    return tuple(sorted(recommendations, key=lambda item: order.index(item.severity)))


def _small_files(e: HealthEvidence) -> Iterator[Recommendation]:
    severity = gain_in(e).merge_severity
    if severity is Severity.FINE:
        return
    last = e.last_optimize
    when = f", {ago(last.at, e.now)}" if last and last.at else ""
    ran = f"the last OPTIMIZE was v{last.version}{when}" if last else "OPTIMIZE is not in the history"
    finding = (
        f"{count_text(e.small_files)} of {things(e.num_files, 'file')} are under "
        f"{bytes_text(e.rule.small_limit_bytes)}; {ran}."
    )
    step = (
        f"OPTIMIZE would leave about {things(e.files_after_merge, 'file')} of {count_text(e.num_files)}, "
        f"rewriting {bytes_text(e.small_bytes)}."
    )
    wait = " Readers lose little by them, so it can wait." if severity is Severity.NOTE else ""
    yield Recommendation("small files", severity, finding, f"{step}{wait}{_cause(e)}")


def _cause(e: HealthEvidence) -> str:
    """Who writes them and how fast, and what would stop it."""
    writers = [o for o in e.offenders if o.kind != "partition"]
    if not writers:
        return ""
    top = max(writers, key=lambda o: o.small_files)
    share = top.small_files / sum(writer.small_files for writer in writers)
    average = f", of {bytes_text(top.average_bytes)} on average" if top.average_bytes is not None else ""
    who = f"the stream {top.name}" if top.kind == "stream" else top.name
    source = f" {percent(share)} of those that the log tells of come from {who}{average}{_pace(top)}"
    longer = "a longer trigger interval" if top.kind == "stream" else "larger batches"
    return f"{source}: {longer}, delta.autoOptimize.optimizeWrite or delta.autoOptimize.autoCompact would write fewer."


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
