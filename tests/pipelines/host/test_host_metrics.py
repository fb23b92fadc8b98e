"""What a host counts and tells of its batches: as Prometheus reads it beside a recount, and as the store keeps it."""

import json
import socket
import threading
import urllib.request
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from http.client import HTTPConnection
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from backend.errors import SettingsError, StoreError
from backend.expectations.model import ExpectationKind, Finding, Judgement, State, TableExpectation
from backend.lake.lake import Lake
from backend.metrics import OF_HOST
from backend.settings import load_settings
from backend.store.store import ControlStore
from backend.stream_model.rollup import HOUR_S, MINUTE_S, merged
from backend.stream_model.stream import AuditEntry, InputKind, Progress, StreamDeclaration, StreamInput
from backend.streams.backlog import BacklogReader
from pipelines.host.metrics import MOST_CLIENTS, HostMetrics, serving
from pipelines.host.progress import ProgressListener, ProgressWriter, prune, roll_up
from tests.worlds.hosts.rounds import rounds_of
from tests.worlds.processes import wait_until
from tests.worlds.programs import promtool
from tests.worlds.store.stream_store import batch

HOSTILE = 'gold"\\ \n} 7'


class Store:
    """Keeps what it is given; refuses while `silent`; `hang` holds a write up."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.signs: dict[str, datetime] = {}
        self.silent = False
        self.refused = 0
        self.hang = threading.Event()
        self.hang.set()
        self.is_asked = threading.Event()

    def add_progress(self, items: list[Progress]) -> None:
        self.is_asked.set()
        self.hang.wait(60)
        if self.silent:
            self.refused += 1
            raise StoreError("silent")
        self.batches += [item.batch_id for item in items]

    def touch(self, name: str, *, at: datetime) -> None:
        self.signs[name] = at


def event(batch: int, *, name: str = "silver", seconds: float | None = 1.5, failed: int = 2, written: int = 90) -> str:
    found: dict[str, Any] = {
        "id": "q",
        "runId": "r",
        "name": name,
        "batchId": batch,
        "timestamp": "2026-03-01T12:00:00.000Z",
        "numInputRows": 100,
        "sources": [{"numInputRows": 100}],
        "sink": {"numOutputRows": written},
        "observedMetrics": {"expectations": {"known__passed": 100 - failed, "known__failed": failed}},
    }
    if seconds is not None:
        found |= {"batchDuration": round(seconds * 1_000), "durationMs": {"triggerExecution": round(seconds * 1_000)}}
    return json.dumps(found)


def told(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}


def value(text: str, name: str, **labels: str) -> float | None:
    return told(text).get((name, frozenset(labels.items())))


def written(metrics: HostMetrics) -> str:
    return generate_latest(metrics.registry).decode()


@pytest.fixture
def metrics() -> HostMetrics:
    return HostMetrics()


def test_batches_add_up(metrics: HostMetrics) -> None:
    writer = ProgressWriter(store := Store(), seen=metrics.batch_ended)
    writer.put("{")
    durations = [0.1, 0.4, 3.0, 700.0]
    for number, seconds in enumerate(durations):
        writer.put(event(number, seconds=seconds))
    writer.put(event(9, name=HOSTILE, written=-1))  # the sink does not say
    writer.put(event(10, seconds=None))
    writer.flush()
    assert store.batches == [0, 1, 2, 3, 9, 10], "what cannot be read takes no other along"
    text = written(metrics)

    promtool("check", "metrics", given=text)
    assert value(text, "weir_stream_input_rows_total", stream="silver") == 500
    assert value(text, "weir_stream_output_rows_total", stream="silver") == 450
    assert value(text, "weir_stream_expectation_failed_rows_total", stream="silver", expectation="known") == 10
    assert value(text, "weir_stream_batch_duration_seconds_count", stream="silver") == 4
    assert value(text, "weir_stream_batch_duration_seconds_sum", stream="silver") == pytest.approx(sum(durations))
    for limit in ("0.1", "0.5", "5.0", "600.0", "+Inf"):
        within = sum(seconds <= float(limit) for seconds in durations)
        assert value(text, "weir_stream_batch_duration_seconds_bucket", stream="silver", le=limit) == within
    assert value(text, "weir_stream_input_rows_total", stream=HOSTILE) == 100
    assert value(text, "weir_stream_output_rows_total", stream=HOSTILE) is None


def test_a_silent_store_costs_only_the_oldest_batches_and_each_counts_once(metrics: HostMetrics) -> None:
    store = Store()
    writer = ProgressWriter(store, capacity=2, seen=metrics.batch_ended)
    metrics.watch_queue(writer.waiting, lambda: writer.dropped)
    store.silent = True
    for number in range(3):
        writer.put(event(number))
        writer.flush()
    text = written(metrics)
    assert value(text, "weir_stream_input_rows_total", stream="silver") == 300
    assert value(text, "weir_host_progress_queue_length") == 2
    assert value(text, "weir_host_progress_dropped_total") == 1
    assert store.refused == 3
    store.silent = False
    writer.flush()
    assert store.batches == [1, 2]
    assert value(written(metrics), "weir_stream_input_rows_total", stream="silver") == 300
    assert value(written(metrics), "weir_host_progress_queue_length") == 0


def test_a_broken_expectation_on_a_table_is_a_gauge_and_an_unknown_one_is_absent(metrics: HostMetrics) -> None:
    expected = TableExpectation("/lake/orders", "gold_orders", ExpectationKind.UNIQUE, columns=("order_id",))
    labels = {"table": "gold_orders", "expectation": "unique(order_id)"}
    told = []
    for state in (State.UNKNOWN, State.BROKEN, State.MET, State.UNKNOWN):
        metrics.judged(Judgement(expected, Finding(state), "host-a", datetime.now(UTC)))
        told.append(value(written(metrics), "weir_table_expectation_broken", **labels))
    assert told == [None, 1, 0, None]


def test_it_is_served_until_the_end_with_the_process_and_its_jvm() -> None:
    metrics = HostMetrics(jvm_pid=lambda: 1)
    metrics.is_host("host-a", "4.2.0")
    metrics.round_ended(store_up=True)
    with serving(metrics, "127.0.0.1:0") as port:
        text = _get(f"http://127.0.0.1:{port}/metrics")
    promtool("check", "metrics", given=text)
    assert value(text, "weir_host_info", host_id="host-a", spark_version="4.2.0") == 1
    assert value(text, "weir_host_store_up") == 1
    assert (value(text, "process_resident_memory_bytes") or 0) > 1_000_000
    assert (value(text, "weir_jvm_process_cpu_seconds_total") or 0) > 0
    with pytest.raises(OSError, match="refused"):
        _get(f"http://127.0.0.1:{port}/metrics")


def test_it_is_ready_once_a_round_reached_the_store_and_while_the_last_one_did(metrics: HostMetrics) -> None:
    with serving(metrics, "127.0.0.1:0") as port:
        answers = [_status(port, "/ready")]
        for store_up in (True, False, True):
            metrics.round_ended(store_up=store_up)
            answers.append(_status(port, "/ready"))
        assert _status(port, "/metrics") == 200
    assert answers == [503, 200, 503, 200]


def _status(port: int | None, path: str) -> int:
    with closing(HTTPConnection("127.0.0.1", port or 0, timeout=60)) as client:
        client.request("GET", path)
        return client.getresponse().status


@pytest.mark.parametrize(
    ("address", "host", "status"),
    [
        ("127.0.0.1:0", "localhost:9108", 200),  # through a tunnel
        ("127.0.0.1:0", "127.0.0.1", 200),
        ("127.0.0.2:0", "127.0.0.2:9108", 200),
        ("127.0.0.2:0", "rebound.example:9108", 403),
        ("127.0.0.1:0", "rebound.example:9108", 403),
        ("127.0.0.1:0", "", 403),
        ("127.0.0.1:0", "localhost.rebound.example", 403),
        ("0.0.0.0:0", "host-a.example:9108", 200),  # whoever serves a network decides there who reaches it
    ],
)
def test_on_loopback_no_other_name_reads_it(metrics: HostMetrics, address: str, host: str, status: int) -> None:
    listens = address.rpartition(":")[0]
    with serving(metrics, address) as port, closing(HTTPConnection(listens, port or 0, timeout=60)) as client:
        client.request("GET", "/metrics", headers={"Host": host})
        answer = client.getresponse()
        assert answer.status == status
        assert (b"weir_host_store_up" in answer.read()) is (status == 200)


def test_who_says_nothing_is_left(metrics: HostMetrics) -> None:
    with serving(metrics, "127.0.0.1:0", patience_s=0.1) as port, _connected(port) as silent, _connected(port) as half:
        with suppress(ConnectionError):  # on a busy machine it was left before
            half.send(b"GET /metrics HTT")
        assert _is_left(silent) and _is_left(half)


def test_a_crowd_takes_no_more_threads_than_there_are_for_it(metrics: HostMetrics) -> None:
    with serving(metrics, "127.0.0.1:0") as port, ExitStack() as crowd:
        first, *_ = [crowd.enter_context(_connected(port)) for _ in range(MOST_CLIENTS)]
        with _connected(port) as one_more:
            assert _is_left(one_more)
        first.close()
        wait_until(lambda: _answers(port), "a scrape is answered once one of them has left")


def _connected(port: int | None) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port or 0), timeout=60)


def _is_left(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def _answers(port: int | None) -> bool:
    try:
        return "weir_host_store_up" in _get(f"http://127.0.0.1:{port}/metrics")
    except OSError:
        return False


def test_nothing_is_served_unless_an_address_is_set() -> None:
    assert load_settings().host.metrics_address == ""
    with serving(HostMetrics(), "") as port:
        assert port is None


def test_a_taken_port_is_a_warning_and_stops_nothing(metrics: HostMetrics) -> None:
    with serving(metrics, "127.0.0.1:0") as port, capture_logs() as logs:
        _goes_on(serving(HostMetrics(), f"127.0.0.1:{port}"))
        _goes_on(serving(HostMetrics(), "127.0.0.1:99999"))
        _goes_on(serving(HostMetrics(), "no-such-host.invalid:9108"))
    assert [line["event"] for line in logs] == ["metrics_not_served"] * 3
    assert "in use" in logs[0]["error"] and logs[0]["address"] == f"127.0.0.1:{port}"


def _goes_on(served: AbstractContextManager[int | None]) -> None:
    with served as port:
        assert port is None


@pytest.mark.parametrize("address", ["9108", "127.0.0.1", "127.0.0.1:", "a b:1", "::1:9108"])
def test_an_address_without_sense_is_refused(address: str) -> None:
    with pytest.raises(SettingsError, match="metrics_address"):
        load_settings(host={"metrics_address": address})


@pytest.mark.parametrize("address", ["127.0.0.1:9108", "[::1]:9108", "0.0.0.0:1", "host-a.example:65535"])
def test_an_address_with_sense_is_taken(address: str) -> None:
    assert load_settings(host={"metrics_address": address}).host.metrics_address == address


def test_names_and_kinds_are_those_of_the_docs(metrics: HostMetrics) -> None:
    metrics.watch_queue(lambda: 0, lambda: 0)
    kinds = {family.name: family.type for family in text_string_to_metric_families(written(metrics))}
    told = {each.name.removesuffix("_total"): each.kind.value for each in OF_HOST}
    assert {name: kind for name, kind in kinds.items() if name.startswith("weir_") and "_process_" not in name} == told


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


# progress -------------------------------------------------------------------------------------------------------------

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def test_events_reach_a_store_that_was_silent_in_order_and_the_stream_is_touched() -> None:
    store = Store()
    store.silent = True
    writer = ProgressWriter(store, retry_s=0.02)
    writer.start()
    for number in range(20):
        writer.put(event(number, seconds=None))
    wait_until(lambda: store.refused >= 2, "the store is tried again")
    store.silent = False
    wait_until(lambda: store.batches == list(range(20)), "the events are in the store")
    wait_until(lambda: store.signs, "the stream is touched")
    assert store.signs == {"silver": AT}
    writer.put(event(20, seconds=None))
    writer.close()
    assert store.batches[-1] == 20, "what is queued is written"


def test_a_callback_does_not_wait_for_a_hanging_store() -> None:
    store = Store()
    store.hang.clear()
    writer = ProgressWriter(store, capacity=100)
    listener = ProgressListener(writer)
    writer.start()
    listener.onQueryProgress(progress_event(event(0)))
    assert store.is_asked.wait(60)  # the writer hangs in the store now
    for number in range(1, 500):
        listener.onQueryProgress(progress_event(event(number)))
    store.hang.set()
    writer.close()
    assert store.batches[-1] == 499
    assert writer.dropped == 399


def test_no_callback_raises_whatever_spark_hands_over() -> None:
    listener = ProgressListener(ProgressWriter(Store()))
    listener.onQueryProgress(SimpleNamespace())  # type: ignore[arg-type]
    listener.onQueryStarted(SimpleNamespace(runId="r", name=None))  # type: ignore[arg-type]
    listener.onQueryIdle(SimpleNamespace(runId="r", timestamp="banana"))  # type: ignore[arg-type]
    listener.onQueryTerminated(SimpleNamespace(runId="never seen"))  # type: ignore[arg-type]


def test_idle_is_a_sign_of_life_under_the_streams_name() -> None:
    store = Store()
    writer = ProgressWriter(store)
    listener = ProgressListener(writer)
    listener.onQueryStarted(SimpleNamespace(runId="r", name="silver"))  # type: ignore[arg-type]
    listener.onQueryIdle(SimpleNamespace(runId="r", timestamp="2026-03-01T12:00:00.000Z"))  # type: ignore[arg-type]
    listener.onQueryIdle(SimpleNamespace(runId="unknown", timestamp="2026-03-01T12:00:00.000Z"))  # type: ignore[arg-type]
    writer.flush()
    assert store.signs == {"silver": AT}


def progress_event(text: str) -> SimpleNamespace:
    return SimpleNamespace(progress=SimpleNamespace(json=text))


# how long it is kept --------------------------------------------------------------------------------------------------

START = datetime(2026, 1, 1, tzinfo=UTC)
LONG_AGO = START - timedelta(days=1)
EVERY = timedelta(minutes=40)
DAYS = 60
KEPT_DAYS = {"progress_retention_days": 2, "minutes_retention_days": 7, "hours_retention_days": 30}


def retained(store: ControlStore, now: datetime, **limits: int) -> None:
    """All that came is added up, and what is old is deleted."""
    settings = load_settings(store={**KEPT_DAYS, **limits})
    backlogs = BacklogReader(settings, Lake(settings), keep_s=0)
    rounds_of(partial(roll_up, backlogs, store, lambda: now)).once()
    prune(settings.store, store, now)


def test_the_audit_trail_is_kept_as_long_as_settings_say_and_its_head_is_in_the_log(store: ControlStore) -> None:
    for days in (400, 200, 1):
        store.note(AuditEntry(START - timedelta(days=days), "ann", "pin", "t", f"{days} days"))
    head = store.audit_head()
    with capture_logs() as logs:
        retained(store, START)
    assert {"event": "audit_head", "log_level": "info", "number": 3, "hash": head.hash} in logs
    assert len(store.audit_entries()) == 3, "for ever"
    retained(store, START, audit_retention_days=300)
    assert [each.reason for each in store.audit_entries()][1:] == ["1 days", "200 days"]
    assert store.verify_audit(known=head.hash).problem == ""


@pytest.mark.parametrize("days", [-1, 0.5, 89.9, "nan"])
def test_no_setting_keeps_the_audit_trail_for_less_than_ninety_days(days: object) -> None:
    with pytest.raises(SettingsError, match="audit_retention_days"):
        load_settings(store={"audit_retention_days": days})


def test_after_sixty_days_there_is_what_settings_say_and_no_more(store: ControlStore) -> None:
    now, number = START, 0
    per_day = timedelta(days=1) // EVERY
    for _ in range(DAYS):
        store.add_progress([batch("a", number + place, now + EVERY * place, run_id="r") for place in range(per_day)])
        number, now = number + per_day, now + timedelta(days=1)
        retained(store, now)
        assert len(store.progress("a", raw=False)) <= 2 * per_day
    assert len(store.progress("a", raw=False)) == 2 * per_day
    minutes = store.rollups("a", grain_s=MINUTE_S, since=LONG_AGO)
    hours = store.rollups("a", grain_s=HOUR_S, since=LONG_AGO)
    assert (len(minutes), len(hours)) == (7 * per_day, 30 * 24)
    assert merged(hours).batches == 30 * per_day
    (run,) = store.runs("a")
    assert (run.first_batch, run.last_batch) == (30 * per_day, DAYS * per_day - 1)


def test_the_most_that_waited_is_kept_of_batches_of_the_last_hour(store: ControlStore) -> None:
    topic = StreamInput(InputKind.KAFKA, "orders", options={"subscribe": "orders"})
    store.declare([StreamDeclaration("a", "", "", "", "", (), None, 10_000, "/c/a", inputs=(topic,))], now=START)
    waited = {0: 7, 1: 900, 2: 30, 3: 0, 4: 12}  # by batch, one each half hour
    told = [
        replace(
            batch("a", number, START + number * timedelta(minutes=30), run_id="a"),
            raw_json=json.dumps({"sources": [{"endOffset": offsets(5), "latestOffset": offsets(5 + rows)}]}),
        )
        for number, rows in waited.items()
    ]
    store.add_progress(told)
    retained(store, START + timedelta(minutes=125))
    hours = store.rollups("a", grain_s=HOUR_S, since=LONG_AGO)
    assert [(each.batches, each.most_unread_rows) for each in hours] == [(2, None), (2, 0), (1, 12)]
    late = replace(told[2], batch_id=9, progressed_at=told[2].progressed_at + timedelta(minutes=20))
    store.add_progress([late])
    retained(store, START + timedelta(minutes=125))
    assert [each.most_unread_rows for each in store.rollups("a", grain_s=HOUR_S, since=LONG_AGO)] == [None, 30, 12]


def offsets(of_one: int) -> dict[str, dict[str, int]]:
    return {"orders": {"0": of_one}}
