"""Findings about one table, drawn from its card, snapshot, log and history.

Rule: pure; "small" is `backend.lake.files.file_sizes`' definition and no second one. The number of small files alone is
never urgent, only what readers would save by merging. Opening a file counts as reading 4 MiB, as Spark plans it
(`spark.sql.files.openCostInBytes`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from backend.format import bytes_text, count_text, things
from backend.health.model import HealthEvidence, MaintenanceRun, Offender, Severity, SmallFileRule, TrendPoint
from backend.lake.files.file_sizes import LARGE, FileDistribution, PartitionFiles, TargetSize
from backend.lake.model import Commit, TableCard, Timeline, UnreadableTable, VersionTotals
from backend.settings import HealthSettings

OPEN_COST_BYTES = 4 * 2**20
MANY_SPARED = 500  # files; a scan on sixteen cores opens so many from an object store in about two seconds
READ_GAIN = 0.2  # of what reading the whole table costs
MOSTLY_SMALL = 0.5  # of the files; below, they are not worth a remark
TREND_POINTS = 500  # a figure shows no more
TOP = 5
_NOT_WRITES = ("OPTIMIZE", "VACUUM", "RESTORE", "REORG", "CLONE")
URGENCY = (
    f"It is urgent where merging spares {MANY_SPARED} files or more and {READ_GAIN:.0%} of a full read, "
    "counting each opened file as 4 MB, as Spark does; else a remark. So are as many partitions that hold less than "
    "one file should: merging does not help them."
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
    """ "1,204 of 1,310"; "Fine (12)" where those 12 are not worth a remark."""
    if not gain.small_files_matter:
        return f"Fine ({count_text(gain.small_files)})" if gain.small_files else "Fine"
    return f"{count_text(gain.small_files)} of {count_text(gain.num_files)}"


def fine_text(gain: MergeGain) -> str:
    return f"Fine: {things(gain.num_files, 'file')}, {bytes_text(gain.size_bytes)}"


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
        f"{bytes_text(target.bytes)} (from {target.source}). Merging is advised from {settings.min_files} files on "
        "that can be merged: two and more of a partition."
    )
    return SmallFileRule(target.bytes, target.source, settings.small_file_ratio, limit, settings.min_files, text)


def trend(timeline: Timeline, *, points: int = TREND_POINTS) -> tuple[TrendPoint, ...]:
    """File counts over versions, oldest first; thinned evenly to `points`, the last one always kept."""
    totals = timeline.totals
    if len(totals) > points:
        step = len(totals) / points
        totals = tuple(totals[int((i + 1) * step) - 1] for i in range(points))
    return tuple(
        TrendPoint(t.version, t.committed_at, t.operation, t.num_files, t.small_files, t.size_bytes) for t in totals
    )


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
    commits: Iterable[Commit],
    timeline: Timeline,
    *,
    small_limit_bytes: int,
    stream_names: Mapping[str, str] | None = None,
) -> tuple[Offender, ...]:
    """The streams, and for commits of no stream the engines, that wrote most small files.

    `stream_names` gives names to query ids: Spark's own streaming commits carry no other.
    """
    sizes = {totals.version: totals for totals in timeline.totals}
    tallies: dict[tuple[str, str], _Tally] = {}
    for commit in commits:
        written = _written(commit, sizes)
        if written is not None:
            tally = tallies.setdefault(_writer(commit, stream_names or {}), _Tally())
            tally.add(written, small_limit_bytes, commit.committed_at)
    offenders = [
        Offender(kind, name, t.small_files, t.files, t.bytes, t.commits, t.span_s)
        for (kind, name), t in tallies.items()
    ]
    worst = sorted((o for o in offenders if o.small_files), key=lambda o: (-o.small_files, o.name))
    return tuple(worst[:TOP])


@dataclass(slots=True)
class _Tally:
    small_files: int = 0
    files: int = 0
    bytes: int = 0
    commits: int = 0
    times: list[datetime] = field(default_factory=list)

    @property
    def span_s(self) -> float | None:
        return (max(self.times) - min(self.times)).total_seconds() if len(self.times) == self.commits else None

    def add(self, written: tuple[int, int], limit: int, at: datetime | None) -> None:
        files, size_bytes = written
        self.commits += 1
        self.times += [at] if at else []
        self.files += files
        self.bytes += size_bytes
        self.small_files += files if size_bytes / files < limit else 0


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
