"""What `/healthz` and `/metrics` say: hosts, streams and tables as numbers.

Rule: computed from the store and the lake at every scrape, remembered nowhere; an unknown number is absent, not 0.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric

from app import cache, context
from backend.errors import LakehouseError
from backend.lake.model import TableCard
from backend.streams.model import StreamState, StreamStatus


def health() -> dict[str, object]:
    """The body of `/healthz`: `status` is ok, or degraded with the problems named; the server itself answers."""
    streams = cache.streams_reading()
    hosts = _alive(streams, context.now())
    lake: dict[str, object]
    try:
        reading = cache.lake_reading()
        readable = sum(isinstance(table, TableCard) for table in reading.tables)
        lake = {"status": "ok", "tables": len(reading.tables), "unreadable_tables": len(reading.tables) - readable}
    except LakehouseError as exc:
        lake = {"status": "failed", "problem": exc.message}
    store = {"status": "failed", "problem": streams.problem} if streams.problem else {"status": "ok"}
    healthy = store["status"] == lake["status"] == "ok"
    return {"status": "ok" if healthy else "degraded", "store": store, "lake": lake, "hosts_up": hosts}


def collect() -> CollectorRegistry:
    """A fresh registry with the numbers of this moment."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Now())
    return registry


class _Now:
    """A Prometheus collector that reads when it is asked."""

    def collect(self) -> Iterable[Metric]:
        now, streams = context.now(), cache.streams_reading()
        yield _gauge("weir_store_up", "1 when the control store answers.", float(streams.problem is None))
        yield _gauge("weir_hosts_up", "Stream hosts with a fresh heartbeat.", float(_alive(streams, now)))
        yield from _stream_metrics(streams.streams, now)
        yield from _lake_metrics(now)


@dataclass(frozen=True, slots=True)
class _Reading:
    """One number a stream has, None when it is unknown now."""

    name: str
    help: str

    def family(self, values: Iterable[tuple[str, float | None]]) -> Metric:
        family = GaugeMetricFamily(self.name, self.help, labels=["stream"])
        for stream, value in values:
            if value is not None:
                family.add_metric([stream], value)
        return family


_BATCH = _Reading("weir_stream_batch_id", "Last micro-batch that Spark reported.")
_RATE = _Reading("weir_stream_input_rows_per_second", "Input rate of the last batch, while the stream runs.")
_AGE = _Reading("weir_stream_progress_age_seconds", "Age of the last progress or idle event.")


def _stream_metrics(streams: Iterable[StreamStatus], now: datetime) -> Iterable[Metric]:
    found = list(streams)
    state = GaugeMetricFamily("weir_stream_state", "1 for the state a stream is in.", labels=["stream", "state"])
    for status in found:
        for name in StreamState:
            state.add_metric([status.declaration.name, name.value], float(status.state is name))
    yield state
    yield _BATCH.family((s.declaration.name, s.progress.batch_id if s.progress else None) for s in found)
    yield _RATE.family((s.declaration.name, s.input_rows_per_s) for s in found)
    yield _AGE.family((s.declaration.name, _progress_age_s(s, now)) for s in found)


def _progress_age_s(status: StreamStatus, now: datetime) -> float | None:
    moments = [status.progress.progressed_at] if status.progress else []
    if status.observed and status.observed.last_trigger_at:
        moments.append(status.observed.last_trigger_at)
    return max(0.0, (now - max(moments)).total_seconds()) if moments else None


def _lake_metrics(now: datetime) -> Iterable[Metric]:
    try:
        reading = cache.lake_reading()
    except LakehouseError:
        yield _gauge("weir_lake_up", "1 when the roots can be listed.", 0.0)
        return
    readable = sum(isinstance(table, TableCard) for table in reading.tables)
    yield _gauge("weir_lake_up", "1 when the roots can be listed.", 1.0)
    if not reading.is_complete:  # the first reading is under way: no number yet
        return
    yield _gauge("weir_lake_tables_read", "Tables read in the last listing.", float(readable))
    yield _gauge("weir_lake_tables_unreadable", "Tables that could not be read.", float(len(reading.tables) - readable))
    yield _gauge(
        "weir_lake_read_age_seconds", "Age of the last listing.", max(0.0, (now - reading.read_at).total_seconds())
    )


def _gauge(name: str, help: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help, value=value)


def _alive(streams: cache.StreamsReading, now: datetime) -> int:
    stale_after_s = context.settings().host.heartbeat_stale_s
    return sum((now - host.beat_at).total_seconds() <= stale_after_s for host in streams.hosts)
