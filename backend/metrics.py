"""Every metric that page and host serve: its name, kind, labels and meaning.

Rule: said here and nowhere else: both endpoints and docs/run.md take their words from this table. Names follow
the conventions of Prometheus: base units, `_total` for counters, points in time as seconds since 1970.
"""

from dataclasses import dataclass
from enum import StrEnum


class MetricKind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Described:
    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: MetricKind = MetricKind.GAUGE


_STREAM, _TABLE = ("stream",), ("table",)

# Served by the page ----------------------------------------------------------------------------------------------
STORE_UP = Described("weir_store_up", "1 when the control store answers.")
HOSTS_UP = Described("weir_hosts_up", "Stream hosts with a fresh heartbeat.")
AUDIT_HEAD = Described("weir_audit_head_info", "Number of the audit trail's newest row, with its hash.", ("hash",))
STREAMS_AGE = Described("weir_streams_read_age_seconds", "Age of what is known of streams.")
STATE = Described("weir_stream_state", "1 for the state a stream is in.", ("stream", "state"))
WANTED = Described("weir_stream_wanted", "1 for a stream that should run, 0 for one that should stop.", _STREAM)
VERDICT = Described("weir_stream_verdict", "1 for the verdict on a stream.", ("stream", "verdict"))
RECENT_FAILURES = Described(
    "weir_stream_recent_failures", "Failures within the restart window, since a person last asked for it.", _STREAM
)
BATCH = Described("weir_stream_batch_id", "Last micro-batch that Spark reported.", _STREAM)
BATCH_SECONDS = Described("weir_stream_last_batch_duration_seconds", "How long the last micro-batch took.", _STREAM)
INPUT_RATE = Described(
    "weir_stream_input_rows_per_second", "Rows read per second lately, while the stream runs.", _STREAM
)
PROCESSED_RATE = Described(
    "weir_stream_processed_rows_per_second", "Rows per second while the last batch ran, if it read any lately.", _STREAM
)
PROGRESS_AGE = Described("weir_stream_progress_age_seconds", "Age of the last progress or idle event.", _STREAM)
BACKLOG_BYTES = Described("weir_stream_backlog_bytes", "Bytes that wait in the stream's sources.", _STREAM)
BACKLOG_FILES = Described("weir_stream_backlog_files", "Files that wait in the stream's sources.", _STREAM)
BACKLOG_ROWS = Described("weir_stream_backlog_rows", "Rows or records that wait in the stream's sources.", _STREAM)
BACKLOG_VERSIONS = Described("weir_stream_backlog_versions", "Versions of source tables that wait.", _STREAM)
BACKLOG_SECONDS = Described("weir_stream_backlog_seconds", "Age of the oldest unread input, 0 when caught up.", _STREAM)
DRAIN_SECONDS = Described("weir_stream_drain_seconds", "Until nothing waits, at the pace of recent batches.", _STREAM)
DATA_LOSS = Described(
    "weir_stream_data_loss_timestamp_seconds", "First moment at which retention may delete unread input.", _STREAM
)
LOST = Described("weir_stream_backlog_lost", "Versions or records that were deleted before they were read.", _STREAM)
LATENCY = Described(
    "weir_pipeline_latency_seconds",
    "Age of the moment until which all that landed is in the layer's tables.",
    ("pipeline", "layer"),
)
LAKE_UP = Described("weir_lake_up", "1 when the roots can be listed.")
LAKE_AGE = Described("weir_lake_read_age_seconds", "Age of the last listing.")
LAKE_TABLES = Described("weir_lake_tables_read", "Tables read in the last listing.")
LAKE_UNREADABLE = Described("weir_lake_tables_unreadable", "Tables that could not be read.")
LAKE_LEFT_OUT = Described(
    "weir_lake_tables_left_out", "Tables without metrics of their own, above the limit `ui.metrics_tables`."
)
LAKE_BYTES = Described("weir_lake_size_bytes", "Bytes of all tables that were read.")
LAKE_FILES = Described("weir_lake_files", "Data files of all tables that were read.")
LAKE_SMALL_FILES = Described("weir_lake_small_files", "Small files of all tables that were read.")
TABLE_BYTES = Described("weir_table_size_bytes", "Bytes of the table's latest version.", _TABLE)
TABLE_FILES = Described("weir_table_files", "Data files of the table's latest version.", _TABLE)
TABLE_SMALL_FILES = Described("weir_table_small_files", "Those of them that are small.", _TABLE)
TABLE_ROWS = Described("weir_table_rows", "Rows of the table's latest version.", _TABLE)
TABLE_VERSION = Described("weir_table_version", "The table's latest version.", _TABLE)
TABLE_COMMIT = Described("weir_table_last_commit_timestamp_seconds", "When the table was last committed to.", _TABLE)
TABLE_UNREADABLE = Described("weir_table_unreadable", "1 for a table that could not be read.", _TABLE)
OBSERVED = Described(
    "weir_stream_observed",
    "A number that the stream's function observed in its last batch: rows.observe(observation, …).",
    ("stream", "observation", "metric"),
)
OF_PAGE = tuple(each for each in list(globals().values()) if isinstance(each, Described))

# Served by each host: what it counts itself, from its start ------------------------------------------------------
BATCH_DURATION = Described(
    "weir_stream_batch_duration_seconds", "How long micro-batches took.", _STREAM, MetricKind.HISTOGRAM
)
INPUT_ROWS = Described("weir_stream_input_rows_total", "Rows that micro-batches read.", _STREAM, MetricKind.COUNTER)
OUTPUT_ROWS = Described(
    "weir_stream_output_rows_total",
    "Rows that micro-batches wrote, where the sink says so.",
    _STREAM,
    MetricKind.COUNTER,
)
FAILED_ROWS = Described(
    "weir_stream_expectation_failed_rows_total",
    "Rows that broke an expectation.",
    ("stream", "expectation"),
    MetricKind.COUNTER,
)
TABLE_BROKEN = Described(
    "weir_table_expectation_broken",
    "1 while a table breaks an expectation, 0 while it meets it; absent while that is unknown.",
    ("table", "expectation"),
)
STARTS = Described("weir_stream_starts_total", "Starts of the stream, restarts too.", _STREAM, MetricKind.COUNTER)
FAILURES = Described("weir_stream_failures_total", "Times that the stream failed.", _STREAM, MetricKind.COUNTER)
HOST_INFO = Described("weir_host_info", "1, with what the host is.", ("host_id", "spark_version"))
HOST_ROUND = Described("weir_host_last_round_timestamp_seconds", "When the host last looked after its streams.")
HOST_STORE_UP = Described("weir_host_store_up", "1 when the control store answered the host's last round.")
HOST_QUEUE = Described("weir_host_progress_queue_length", "Progress events that wait for the control store.")
HOST_DROPPED = Described(
    "weir_host_progress_dropped_total",
    "Progress events lost because the store was away too long.",
    kind=MetricKind.COUNTER,
)

OF_HOST = tuple(each for each in list(globals().values()) if isinstance(each, Described) and each not in OF_PAGE)
