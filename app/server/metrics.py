"""What `/healthz` and `/metrics` say: hosts, streams and tables as numbers.

Rule: a scrape waits for nothing long: it tells what pages keep, and how old that is. An unknown number is absent, not
0. What has to be counted from batch to batch is counted by hosts (`pipelines/host/metrics.py`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app import cache, services
from app.ui.lake import LakeReading, lake_totals
from backend import metrics as named
from backend.errors import LakehouseError
from backend.lake.model import TableCard, UnreadableTable
from backend.metrics import Described
from backend.stream_model.backlog import waiting
from backend.stream_model.progress import observed_metrics
from backend.stream_model.stream import StreamState
from backend.streams.verdict import StreamStatus, Verdict

SCRAPED_LAKE_S = 60.0  # a pass over a big lake is dear, and nobody looks
STALE_S = 60.0  # of streams nothing older is told as if it were now

Value = float | None


async def healthz(_: Request) -> Response:
    """200 whenever this server answers; the body says how store, lake and hosts are."""
    return JSONResponse(await run_in_threadpool(health))


async def metrics_text(_: Request) -> Response:
    """Prometheus text: hosts, streams, tables."""
    text = await run_in_threadpool(lambda: generate_latest(Scrape()))
    return Response(text, media_type=CONTENT_TYPE_LATEST)


def health() -> dict[str, object]:
    """The body of `/healthz`: `status` is ok, or degraded with the problems named; the server itself answers."""
    streams = cache.known_streams()
    lake: dict[str, object]
    try:
        reading = cache.lake_reading()
        readable = sum(isinstance(table, TableCard) for table in reading.tables)
        lake = {
            "status": "ok" if reading.is_complete else "reading",  # the figures are of the tables read so far
            "tables": reading.num_read,
            "tables_found": reading.num_found,
            "unreadable_tables": reading.num_read - readable,
        }
    except LakehouseError as exc:
        lake = {"status": "failed", "problem": exc.message}
    store = {"status": "reading" if streams is None else "ok"}
    if streams and streams.problem:
        store = {"status": "failed", "problem": streams.problem}
    healthy = "failed" not in (store["status"], lake["status"])
    hosts = cache.hosts_up(streams) if streams and not streams.problem else None
    return {"status": "ok" if healthy else "degraded", "store": store, "lake": lake, "hosts_up": hosts}


class Scrape:
    """The numbers of this moment, read when Prometheus' writer collects them."""

    def collect(self) -> Iterable[Metric]:
        now = services.now()
        yield from streams_metrics(cache.known_streams(), now)
        yield from latency_metrics(now)
        try:
            reading = cache.lake_reader().known(refresh_after_s=SCRAPED_LAKE_S)
        except LakehouseError:
            yield _family(named.LAKE_UP, [((), 0.0)])
            return
        if reading.is_listed:
            yield from lake_metrics(reading, now, most_tables=services.settings().ui.metrics_tables)


def streams_metrics(reading: cache.StreamsReading | None, now: datetime) -> Iterator[Metric]:
    if reading is None:  # the first one is under way
        return
    age_s = max(0.0, (now - reading.read_at).total_seconds())
    is_known = reading.problem is None and age_s <= STALE_S
    yield _family(named.STREAMS_AGE, [((), age_s)])
    yield _family(named.STORE_UP, [((), float(is_known))])
    if is_known:
        yield _family(named.HOSTS_UP, [((), float(cache.hosts_up(reading)))])
        yield _family(named.AUDIT_HEAD, [((reading.audit_head.hash,), float(reading.audit_head.number))])
        yield from stream_metrics(reading.streams, now)


def latency_metrics(now: datetime) -> Iterator[Metric]:
    """Of each layer of each pipeline, where it is known and not old."""
    try:
        latencies = cache.known_latencies()
    except LakehouseError:  # `weir_store_up` tells it
        return
    family = _family(
        named.LATENCY,
        (
            ((pipeline, layer.layer), layer.seconds)
            for pipeline, layer in latencies
            if (now - layer.now).total_seconds() <= STALE_S
        ),
    )
    if family.samples:
        yield family


def stream_metrics(streams: Sequence[StreamStatus], now: datetime) -> Iterator[Metric]:
    """All that is told of streams; a number that nobody knows has no sample."""
    if not streams:
        return
    yield _one_of(named.STATE, StreamState, [(stream.declaration.name, stream.state) for stream in streams])
    yield _one_of(named.VERDICT, Verdict, [(stream.declaration.name, stream.verdict) for stream in streams])
    values_of = [(stream.declaration.name, _of_stream(stream, now)) for stream in streams]
    for metric in values_of[0][1]:
        family = _family(metric, (((name,), values[metric]) for name, values in values_of))
        if family.samples:
            yield family
    if numbers := [
        ((stream.declaration.name, metric.observation, metric.name), metric.value)
        for stream in streams
        for metric in observed_metrics(stream.progress)
        if isinstance(metric.value, int | float)
    ]:
        yield _family(named.OBSERVED, numbers)


def _of_stream(status: StreamStatus, now: datetime) -> Mapping[Described, Value]:
    progress, observed, backlog = status.progress, status.observed, status.backlog
    duration_ms = progress.batch_duration_ms if progress else None
    waits = waiting(backlog) if backlog else {}
    loss = backlog.data_loss if backlog else None
    moments = [progress.progressed_at] if progress else []
    if observed and observed.last_trigger_at:
        moments.append(observed.last_trigger_at)
    return {
        named.WANTED: float(not status.desired.wants_stop) if status.desired else None,
        named.BATCH: progress.batch_id if progress else None,
        named.BATCH_SECONDS: duration_ms / 1000 if duration_ms is not None else None,
        named.INPUT_RATE: status.input_rows_per_s,
        named.PROCESSED_RATE: status.processed_rows_per_s,
        named.PROGRESS_AGE: max(0.0, (now - max(moments)).total_seconds()) if moments else None,
        named.RECENT_FAILURES: len(observed.failures) if observed else None,
        named.BACKLOG_BYTES: waits.get("bytes"),
        named.BACKLOG_FILES: waits.get("files"),
        named.BACKLOG_ROWS: waits.get("rows"),
        named.BACKLOG_VERSIONS: waits.get("versions"),
        named.BACKLOG_SECONDS: backlog.behind_s if backlog else None,
        named.DRAIN_SECONDS: backlog.drain_s if backlog else None,
        named.DATA_LOSS: loss.at.timestamp() if loss else None,
        named.LOST: backlog.lost if backlog and (backlog.lost or not backlog.unknown) else None,
    }


# One number that every table has, each.
_COLUMNS: Mapping[Described, Callable[[TableCard], Value]] = {
    named.TABLE_BYTES: lambda card: card.size_bytes,
    named.TABLE_FILES: lambda card: card.num_files,
    named.TABLE_SMALL_FILES: lambda card: card.small_files,
    named.TABLE_ROWS: lambda card: card.num_rows,
    named.TABLE_VERSION: lambda card: card.version,
    named.TABLE_COMMIT: lambda card: card.last_commit_at.timestamp() if card.last_commit_at else None,
}


def lake_metrics(reading: LakeReading, now: datetime, *, most_tables: int) -> Iterator[Metric]:
    """Of each table, the largest first, as far as the limit goes; of the whole lake once all of it is read."""
    yield _family(named.LAKE_UP, [((), 1.0)])
    cards = [table for table in reading.tables if isinstance(table, TableCard)]
    if len(cards) > most_tables:
        cards = sorted(cards, key=lambda card: (-card.size_bytes, card.ref.name))[:most_tables]
    unreadable = [table for table in reading.tables if isinstance(table, UnreadableTable)][:most_tables]
    for metric, number_of in _COLUMNS.items():
        yield _family(metric, (((card.ref.name,), number_of(card)) for card in cards))
    yield _family(named.TABLE_UNREADABLE, (((table.ref.name,), 1.0) for table in unreadable))
    if reading.is_complete:
        totals = lake_totals(reading.tables)
        for metric, value in (
            (named.LAKE_TABLES, totals.num_tables - totals.unreadable),
            (named.LAKE_UNREADABLE, totals.unreadable),
            (named.LAKE_LEFT_OUT, totals.num_tables - len(cards) - len(unreadable)),
            (named.LAKE_BYTES, totals.size_bytes),
            (named.LAKE_FILES, totals.num_files),
            (named.LAKE_SMALL_FILES, totals.small_files),
            (named.LAKE_AGE, max(0.0, (now - reading.read_at).total_seconds())),
        ):
            yield _family(metric, [((), value)])


def _one_of(metric: Described, kinds: type[StrEnum], holding: Iterable[tuple[str, StrEnum]]) -> Metric:
    """A series for each kind, 1 for the one that holds."""
    return _family(metric, (((name, kind.value), float(now is kind)) for name, now in holding for kind in kinds))


def _family(metric: Described, values: Iterable[tuple[Sequence[str], Value]]) -> Metric:
    family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in values:
        if value is not None:
            family.add_metric(labels, value)
    return family
