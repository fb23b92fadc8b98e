"""The values that describe streams: what is declared, desired, observed and measured.

Status is computed from observation, never remembered as truth: `Observed` is what a host last saw, and
`backend.streams.verdict` decides what that means now.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

MATERIALIZED_VIEW = "materialized view"
ATTACHED = "attached query"  # of another Spark application, which tells of it and runs it
RESET_ALLOWED = "pipelines.reset.allowed"  # a table's property, as declarative pipelines know it

# drain: stop once what is there now is read; drain through: and what the drained streams above it still bring
Action = Literal["start", "stop", "drain", "drain through", "restart"]


class StreamState(StrEnum):
    STOPPED = "STOPPED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    BACKOFF = "BACKOFF"
    FAILED = "FAILED"
    COMPLETED = "COMPLETED"
    UNKNOWN = "UNKNOWN"  # the host's heartbeat is stale: nobody looks

    @property
    def flows(self) -> bool:
        """Whether it runs, or is about to."""
        return self in (StreamState.RUNNING, StreamState.STARTING)

    @property
    def has_ended(self) -> bool:
        """Whether nothing runs, and nothing will before somebody asks for it."""
        return self in (StreamState.STOPPED, StreamState.FAILED, StreamState.COMPLETED)


class DesiredState(StrEnum):
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    DRAINED = "DRAINED"  # stopped, once it has read what was there when that was asked for
    DRAINED_THROUGH = "DRAINED_THROUGH"  # and what the streams that feed it, drained as well, wrote until they stopped


class InputKind(StrEnum):
    TABLE = "table"  # the rows appended to it
    CHANGE_FEED = "change feed"
    PRESENT_ROWS = "present rows"  # all of them, in every batch
    FILES = "files"
    KAFKA = "kafka"
    RATE = "rate"
    JDBC = "jdbc"  # a database's table, read whole as present rows are
    OTHER = "other"


_OUTSIDE = {"kafka": "Kafka topic", "postgresql": "PostgreSQL table", "foreach_batch": "function"}
_TABLES = (InputKind.TABLE, InputKind.CHANGE_FEED, InputKind.PRESENT_ROWS)


@dataclass(frozen=True, slots=True)
class StreamInput:
    """One source of a stream: what it is called, and the URI of its table or folder.

    `options` are those of the reader that say what is read of it; never a secret.
    """

    kind: str
    name: str
    uri: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_table(self) -> bool:
        return self.kind in _TABLES

    @property
    def is_static(self) -> bool:
        """Whether each batch reads all of it: a checkpoint does not count it."""
        return self.kind in (InputKind.PRESENT_ROWS, InputKind.JDBC)

    @property
    def has_place(self) -> bool:
        """Whether a stream stands somewhere in it: not where it is read whole in each batch, or made up."""
        return not self.is_static and self.kind != InputKind.RATE


@dataclass(frozen=True, slots=True)
class Output:
    """A table of the lake that takes a stream's rows: by path below the root, and how they get in."""

    table: str
    uri: str
    sink: str


@dataclass(frozen=True, slots=True)
class DeclaredTable:
    """What is declared of a table that a stream writes; what is empty is not said. `keys`: by which its rows are found
    again."""

    table: str
    uri: str
    comment: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    cluster_by: tuple[str, ...] = ()
    partition_cols: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamDeclaration:
    """What a host says of a stream it can run, for people and for pages. `sink_uri` is the table it writes.

    `outside`: what it writes instead, a topic or a database's table; then `sink_uri` and `sink_table` are empty.

    `source_tables` and `side_tables`: what it reads, and what it writes beside that, by path below the lake's root.
    `inputs`: each source in the order of its function, those behind views where they are read. `sink`: append,
    complete, update, upsert or history; kafka, postgresql or foreach_batch where it writes outside. `also`: further
    tables that get its rows. `tables`: what is declared of each that it writes. `code`: its function, without secrets.
    """

    name: str
    description: str
    source: str
    sink_uri: str
    sink_table: str
    source_tables: tuple[str, ...]
    layer: str | None
    trigger_interval_ms: int
    checkpoint_location: str
    expectations: tuple[str, ...] = ()
    kind: str = "streaming table"
    pipeline: str = ""
    inputs: tuple[StreamInput, ...] = ()
    side_tables: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    reset_allowed: bool = True
    sink: str = "append"
    outside: str = ""
    also: tuple[Output, ...] = ()
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    tables: tuple[DeclaredTable, ...] = ()
    code: str = ""

    @property
    def outputs(self) -> tuple[Output, ...]:
        """Every table that takes its rows, its own first; `side_tables` names others as well."""
        own = () if self.outside else (Output(self.sink_table, self.sink_uri, self.sink),)
        return (*own, *self.also)

    @property
    def writes_to(self) -> str:
        """ "silver/silver_orders", "Kafka topic orders_out at broker:9092"."""
        return f"{_OUTSIDE.get(self.sink, self.sink)} {self.outside}" if self.outside else self.sink_table

    @property
    def host_tags(self) -> frozenset[str]:
        """What a host must have to run it: the tag `host`, one or several with commas or spaces between."""
        return frozenset(self.tags.get("host", "").replace(",", " ").split())

    @property
    def is_attached(self) -> bool:
        """Whether another Spark application runs it: it can be looked at, not acted on."""
        return self.kind == ATTACHED

    @property
    def is_view(self) -> bool:
        """Whether it is recomputed whole from the present rows of its inputs."""
        return self.kind == MATERIALIZED_VIEW


@dataclass(frozen=True, slots=True)
class TopicEnds:
    """What a broker held of one Kafka source when a host asked it, by topic and partition.

    `firsts` and `ends`: the first offset that is there, and the next one to be written. `starts`: where a first start
    would begin. `read`: where the stream stood before the host asked; beyond the end, the topic is another one.
    `unread`: the stream's offset then, and the time of the record there. `problem`: why nothing was told.
    """

    stream: str
    source: str
    at: datetime
    firsts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    ends: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    starts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    read: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    unread: Mapping[str, Mapping[int, tuple[int, datetime]]] = field(default_factory=dict)
    retention_ms: Mapping[str, int | None] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Desired:
    """What a person wants. `generation` grows with every request, so a restart of a RUNNING stream is seen too.

    `overrides`: settings in place of declared ones, see `backend.stream_model.overrides`.
    """

    name: str
    state: DesiredState
    generation: int
    reason: str
    actor: str
    requested_at: datetime
    overrides: Mapping[str, str] = field(default_factory=dict)

    @property
    def wants_stop(self) -> bool:
        """Whether it shall stop, or is to stay stopped."""
        return self.state is not DesiredState.RUNNING

    @property
    def drains(self) -> bool:
        """Whether it shall read on before it stops."""
        return self.state in (DesiredState.DRAINED, DesiredState.DRAINED_THROUGH)


@dataclass(frozen=True, slots=True)
class StreamFailure:
    """Why a query ended: the error's class, its first line, the batch it was in, and when."""

    error_class: str
    message: str
    batch_id: int | None
    failed_at: datetime


@dataclass(frozen=True, slots=True)
class Observed:
    """What the owning host last saw. `generation` is the desired generation that it has carried out."""

    name: str
    state: StreamState
    host_id: str
    generation: int
    observed_at: datetime
    query_id: str | None = None
    run_id: str | None = None
    started_at: datetime | None = None
    next_start_at: datetime | None = None
    failures: tuple[StreamFailure, ...] = ()  # those inside the restart window, oldest first
    last_trigger_at: datetime | None = None  # the last batch or idle event that Spark reported

    @property
    def last_failure(self) -> StreamFailure | None:
        return self.failures[-1] if self.failures else None


@dataclass(frozen=True, slots=True)
class ExpectationCount:
    """How many rows of one batch met and broke one expectation. None: Spark did not say."""

    name: str
    passed: int | None
    failed: int | None


@dataclass(frozen=True, slots=True)
class ObservedMetric:
    """A figure of the user's own: `rows.observe(observation, … .alias(name))` in a stream's function, over a batch."""

    observation: str
    name: str
    value: float | str | None


@dataclass(frozen=True, slots=True)
class Progress:
    """One StreamingQueryProgress. Rates are rows per second, durations milliseconds by Spark's phase name."""

    stream: str
    query_id: str
    run_id: str
    batch_id: int
    progressed_at: datetime
    num_input_rows: int
    input_rows_per_s: float | None
    processed_rows_per_s: float | None
    batch_duration_ms: int | None
    durations_ms: Mapping[str, int] = field(default_factory=dict)
    watermark: datetime | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    rows_dropped_by_watermark: int | None = None
    output_rows: int | None = None
    expectations: tuple[ExpectationCount, ...] = ()
    raw_json: str = ""

    @property
    def ended_at(self) -> datetime:
        """Spark's timestamp, `progressed_at`, is the trigger's start."""
        return self.progressed_at + timedelta(milliseconds=self.batch_duration_ms or 0)


@dataclass(frozen=True, slots=True)
class Run:
    """One life of a query, as far as its progress is kept."""

    run_id: str
    query_id: str
    first_at: datetime
    last_at: datetime
    first_batch: int
    last_batch: int
    input_rows: int


@dataclass(frozen=True, slots=True)
class HostHeartbeat:
    """A stream host's sign of life. `streams`: those that it can run now; none before Spark is open. `max_streams`: how
    many of them at most, None for any number. `tables_looked_at`: of `tables_found`, whose commits it judged; both 0
    where another host does that."""

    host_id: str
    hostname: str
    pid: int
    started_at: datetime
    beat_at: datetime
    spark_version: str | None = None
    spark_ui_url: str | None = None
    tags: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    max_streams: int | None = None
    tables_looked_at: int = 0
    tables_found: int = 0

    def silent_s(self, now: datetime) -> float:
        """Seconds since it was last seen."""
        return (now - self.beat_at).total_seconds()

    def is_alive(self, now: datetime, stale_s: float) -> bool:
        return self.silent_s(now) <= stale_s


@dataclass(frozen=True, slots=True)
class AttachedApp:
    """A Spark application that tells of its queries; `host` is its sign of life, by the store's clock."""

    name: str
    host: HostHeartbeat


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run one resource until `expires_at`, told by the store. `token` grows with every grant (fencing)."""

    resource: str
    owner: str
    token: int
    expires_at: datetime


QUERY = "query"  # the action of an entry that says what was read
OF_QUERIES = (QUERY, f"{QUERY} job", f"cancel {QUERY} job", f"{QUERY} done")  # the same by a stream host
OF_VIEWERS = ("login", "logout", "login refused", "rows refused")


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who asked for what, why and when; written before the act takes effect. `role` and `granted_by`: what allowed it,
    or why it is denied; empty where a host says what it made of an act. `result`: "done", "failed" or "denied". The
    versions: the table's, before and after. `subject`: of a query several, ", " between. `id`: counted from 1."""

    at: datetime
    actor: str
    action: str
    subject: str
    reason: str
    detail: str = ""
    role: str = ""
    granted_by: str = ""
    result: str = "done"
    version_before: int | None = None
    version_after: int | None = None
    id: int = 0
