"""What health says of one table and of the whole: findings with their rule, and the next step in plain words.

Rule: every judgement carries the rule it was made by; unknown is None and never counted as fine.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from backend.lake.model import TableRef, VersionTotals


class Severity(StrEnum):
    """How urgent, most urgent first."""

    CRITICAL = "critical"
    WARNING = "warning"
    NOTE = "note"
    FINE = "fine"


@dataclass(frozen=True, slots=True)
class SmallFileRule:
    """Which files count as small. `text` is the rule in one sentence."""

    target_bytes: int
    target_source: str
    ratio: float
    small_limit_bytes: int
    min_files: int
    text: str


@dataclass(frozen=True, slots=True)
class Offender:
    """Who or where small files come from. `kind` is "partition", "stream" or "engine".

    For a partition: its live small files. For a stream or engine: small files written by the commits looked at, how
    many commits that were, and over how many seconds; None where their times are not known.
    """

    kind: str
    name: str
    small_files: int
    files: int
    bytes: int
    commits: int = 0
    span_s: float | None = None

    @property
    def average_bytes(self) -> int | None:
        return self.bytes // self.files if self.files else None

    @property
    def interval_s(self) -> float | None:
        """Between two of its commits, on average."""
        return self.span_s / (self.commits - 1) if self.span_s and self.commits > 1 else None


@dataclass(frozen=True, slots=True)
class MaintenanceRun:
    """The last commit of one maintenance operation."""

    version: int
    at: datetime | None


@dataclass(frozen=True, slots=True)
class LogHealth:
    """How long the log is and how old its last checkpoint. None: there is none, or it cannot be told.

    `feed_bytes`: of the change feed, as the newest `feed_commits` wrote it; VACUUM may have deleted some since.
    """

    first_version: int
    latest_version: int
    oldest_commit_at: datetime | None
    checkpoint_version: int | None
    checkpoint_at: datetime | None
    checkpoint_interval: int
    feed_bytes: int = 0
    feed_commits: int = 0

    @property
    def commits_since_checkpoint(self) -> int:
        start = self.first_version - 1 if self.checkpoint_version is None else self.checkpoint_version
        return self.latest_version - start


@dataclass(frozen=True, slots=True)
class Recommendation:
    """One thing to do (or to leave alone): what is the case, and the next step. Both are whole sentences."""

    subject: str
    severity: Severity
    finding: str
    next_step: str


@dataclass(frozen=True, slots=True)
class HealthEvidence:
    """What recommendations are drawn from."""

    now: datetime
    num_files: int
    size_bytes: int
    small_files: int
    small_bytes: int
    files_after_merge: int
    rule: SmallFileRule
    partition_columns: tuple[str, ...]
    num_partitions: int
    deleted_rows: int
    physical_rows: int | None
    files_without_stats: int
    offenders: tuple[Offender, ...]
    last_optimize: MaintenanceRun | None
    last_vacuum: MaintenanceRun | None
    files_removed: int  # by the commits looked at, so that VACUUM could free them
    oldest_removal_at: datetime | None
    retention_s: float
    log: LogHealth
    small_partitions: int = 0
    large_files: int = 0

    @property
    def small_share(self) -> float | None:
        return self.small_files / self.num_files if self.num_files else None


@dataclass(frozen=True, slots=True)
class TableHealth:
    """The health of one table at its latest version."""

    ref: TableRef
    version: int
    evidence: HealthEvidence
    trend: tuple[VersionTotals, ...]
    trend_truncated: bool
    recommendations: tuple[Recommendation, ...]

    @property
    def severity(self) -> Severity:
        """The most urgent of the recommendations."""
        order = list(Severity)
        return min((item.severity for item in self.recommendations), key=order.index, default=Severity.FINE)


class Cause(StrEnum):
    """Why something needs attention: what stops work first, then what is wrong with data, then what is late. Its value
    is a contract with scripts."""

    FAILED_STREAM = "failed_stream"
    NO_HOST = "no_host"
    UNREADABLE = "unreadable"
    EXPIRING_STREAM = "expiring_stream"  # retention deletes, or has deleted, what it has not read
    UNUSUAL_COMMIT = "unusual_commit"  # of a table: unlike those before it
    BROKEN_EXPECTATION = "broken_expectation"  # of a table, as a host judged it
    FAILING_WEBHOOK = "failing_webhook"  # nobody is told of all this
    FAILING_STREAM = "failing_stream"
    SLOW_STREAM = "slow_stream"
    UNWATCHED_STREAM = "unwatched_stream"
    SILENT_TABLE = "silent_table"  # no fresh commit although a stream should write it
    RESTING_POLICY = "resting_policy"  # the host acts on the table no more by itself: it failed too often
    SMALL_FILES = "small_files"
    LAYOUT = "table_layout"  # partitions that hold too little, files far above the target: merging does not help
    QUIET_TABLE = "quiet_table"  # no fresh commit, and nobody says that there should be one
    UNKNOWN_EXPECTATION = "unknown_expectation"  # it cannot be judged, or nobody does any more
    STOPPED_STREAM = "stopped_stream"

    @property
    def kind(self) -> str:
        """ "stream", "table", "host" or "webhook": what its subjects are."""
        word = self.value.rpartition("_")[2]
        return word if word in ("stream", "host", "webhook") else "table"


@dataclass(frozen=True, slots=True)
class AttentionItem:
    """One thing that needs attention: what, since when, and the next step.

    `detail` is what several of one cause may share (a missing reader feature); `spared` the files that merging spares;
    `rows` those that an unusual commit hurt, `origin` where that began: "silver/orders v31".
    """

    severity: Severity
    cause: Cause
    subject: str
    what: str
    next_step: str
    since: datetime | None = None
    detail: str = ""
    spared: int = 0
    rows: int | None = None
    origin: str = ""

    @property
    def kind(self) -> str:
        return self.cause.kind


@dataclass(frozen=True, slots=True)
class AttentionGroup:
    """What is of one cause and equally urgent, as one line of "needs attention": all of it, or of unusual commits one
    with those that carried it on."""

    severity: Severity
    cause: Cause
    items: tuple[AttentionItem, ...]
    what: str
    next_step: str

    @property
    def subjects(self) -> tuple[str, ...]:
        return tuple(item.subject for item in self.items)

    @property
    def only(self) -> AttentionItem | None:
        """The item of a group of one, or the origin of all the others."""
        first = self.items[0]
        is_origin = first.origin and {item.origin for item in self.items} == {first.origin}
        return first if len(self.items) == 1 or is_origin else None
