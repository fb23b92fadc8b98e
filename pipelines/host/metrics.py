"""What a host counts from batch to batch, and where Prometheus reads it: `host.metrics_address`. Beside it, whether the
host is ready.

Rule: a counter begins at 0 with the process and only grows. A scrape asks neither Spark nor the store, and an address
that cannot be served stops no stream.
"""

import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import structlog
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    make_wsgi_app,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import ThreadingWSGIServer

from backend import metrics as named
from backend.access import is_loopback
from backend.expectations.model import Judgement, State
from backend.metrics import Described
from backend.stream_model.stream import Observed, Progress, StreamState

BUCKETS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
CLOSE_S = 2.0
PATIENCE_S = 10.0  # for what a client still has to send, or to take
MOST_CLIENTS = 16  # at once, each with a thread; Prometheus is one or two

log = structlog.get_logger()


class HostMetrics:
    """Thread-safe. `jvm_pid` is asked at each scrape for the process of the driver's JVM, None when there is none."""

    def __init__(self, *, jvm_pid: Callable[[], int | None] = lambda: None) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # else each counter has a gauge of when it was made
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        ProcessCollector(namespace="weir_jvm", pid=lambda: jvm_pid() or "none", registry=self.registry)
        self._durations = Histogram(*_made_of(named.BATCH_DURATION), buckets=BUCKETS_S, registry=self.registry)
        self._input_rows = Counter(*_made_of(named.INPUT_ROWS), registry=self.registry)
        self._output_rows = Counter(*_made_of(named.OUTPUT_ROWS), registry=self.registry)
        self._failed_rows = Counter(*_made_of(named.FAILED_ROWS), registry=self.registry)
        self._broken = Gauge(*_made_of(named.TABLE_BROKEN), registry=self.registry)
        self._starts = Counter(*_made_of(named.STARTS), registry=self.registry)
        self._failures = Counter(*_made_of(named.FAILURES), registry=self.registry)
        self._info = Gauge(*_made_of(named.HOST_INFO), registry=self.registry)
        self._round = Gauge(*_made_of(named.HOST_ROUND), registry=self.registry)
        self._store_up = Gauge(*_made_of(named.HOST_STORE_UP), registry=self.registry)
        self.is_ready = False  # Spark is up, and the last round reached the store

    def is_host(self, host_id: str, spark_version: str | None) -> None:
        self._info.labels(host_id, spark_version or "").set(1)

    def batch_ended(self, batch: Progress) -> None:
        if batch.batch_duration_ms is not None:
            self._durations.labels(batch.stream).observe(batch.batch_duration_ms / 1000)
        self._input_rows.labels(batch.stream).inc(batch.num_input_rows)
        if batch.output_rows is not None:
            self._output_rows.labels(batch.stream).inc(batch.output_rows)
        for counts in batch.expectations:
            if counts.failed is not None:
                self._failed_rows.labels(batch.stream, counts.name).inc(counts.failed)

    def observed(self, before: Observed | None, seen: Observed) -> None:
        """A host has recorded what a stream does now. With its first start a stream has all its counters, at 0."""
        if seen.state is StreamState.STARTING:
            for counter in (self._durations, self._input_rows, self._failures):
                counter.labels(seen.name)
            self._starts.labels(seen.name).inc()
        if seen.last_failure is not None and (before is None or before.last_failure != seen.last_failure):
            self._failures.labels(seen.name).inc()

    def judged(self, judgement: Judgement) -> None:
        labels = judgement.expectation.table, judgement.expectation.name
        if judgement.state is State.UNKNOWN:
            self._broken.remove(*labels)
        else:
            self._broken.labels(*labels).set(judgement.state is State.BROKEN)

    def round_ended(self, *, store_up: bool) -> None:
        self._round.set_to_current_time()
        self._store_up.set(store_up)
        self.is_ready = store_up

    def watch_queue(self, length: Callable[[], int], dropped: Callable[[], int]) -> None:
        """What waits for the store, and what was lost because too much waited."""
        self.registry.register(_Queue(length, dropped))


class _Queue:
    def __init__(self, length: Callable[[], int], dropped: Callable[[], int]) -> None:
        self._length, self._dropped = length, dropped

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily(named.HOST_QUEUE.name, named.HOST_QUEUE.help, value=self._length())
        yield CounterMetricFamily(named.HOST_DROPPED.name, named.HOST_DROPPED.help, value=self._dropped())


@contextmanager
def serving(metrics: HostMetrics, address: str, *, patience_s: float = PATIENCE_S) -> Iterator[int | None]:
    """Serves `/metrics` and `/ready` until the end, on the port that is given; None where none is set or can be had."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        server = _Server(host, int(port), patience_s) if address else None
    except (OSError, OverflowError) as exc:
        log.warning("metrics_not_served", address=address, error=str(exc), effect="streams run without /metrics")
        server = None
    if server is None:
        yield None
        return
    server.set_app(_app(metrics, only_own_names=is_loopback(host)))
    log.info("metrics_served", address=f"{host}:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(CLOSE_S)


def _app(metrics: HostMetrics, *, only_own_names: bool) -> WSGIApplication:
    """`/ready` answers 200 or 503; every other path has the metrics. `only_own_names`: a page of another name that
    somebody makes point at this machine (DNS rebinding) reads nothing."""
    prometheus: WSGIApplication = make_wsgi_app(metrics.registry)

    def answered(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        name = re.sub(r":\d+$", "", str(environ.get("HTTP_HOST", "")).lower())
        if only_own_names and not is_loopback(name.strip("[]")):
            status, text = "403 Forbidden", "Refused: on this address a host answers for localhost alone.\n"
        elif environ.get("PATH_INFO") != "/ready":
            return prometheus(environ, start_response)
        else:
            status, text = ("200 OK", "ready\n") if metrics.is_ready else ("503 Service Unavailable", "not ready\n")
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [text.encode()]

    return answered


class _Server(ThreadingWSGIServer):
    """Prometheus' own, but it bears clients that say nothing, or come in crowds: `MOST_CLIENTS` threads are theirs."""

    def __init__(self, host: str, port: int, patience_s: float) -> None:
        self._patience_s, self._free = patience_s, threading.BoundedSemaphore(MOST_CLIENTS)
        self.address_family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        super().__init__((str(address[0]), port), _Silent)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        request.settimeout(self._patience_s)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, _request: Any, client_address: Any) -> None:
        log.debug("metrics_client_left", client=str(client_address[0]), exc_info=True)


class _Silent(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing: a scrape every few seconds is no news."""


def _made_of(metric: Described) -> tuple[str, str, tuple[str, ...]]:
    return metric.name, metric.help, metric.labels
