"""A lake of 10,000 tables and a control store with 1,000 streams: what lists, commands and pages of both cost.

Rule: made through the store's own API and written as logs alone. While a page is measured a stand-in for the hosts goes
on as they do: heartbeats, batches, backlogs.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from threading import Event, Thread

from backend.settings import Settings
from backend.store.leases import stream_resource
from backend.store.store import CHUNK, ControlStore
from backend.stream_model.backlog import Backlog, Lag, SourceBacklog
from backend.stream_model.events import parse_progress
from backend.stream_model.stream import (
    DesiredState,
    HostHeartbeat,
    InputKind,
    Observed,
    Progress,
    StreamDeclaration,
    StreamFailure,
    StreamInput,
    StreamState,
)
from backend.streams.newest import RECENT
from bench.tables import STARTED_MS
from tests.worlds.lake.builders import HandLog, add, commit_info, metadata, protocol

TABLES, STREAMS = 10_000, 1_000
VERSIONS, FILES = 3, 5
BATCHES = 20  # of each stream, one in `TRIGGER_S`
TRIGGER_S = 10
TTL_S = 3_600.0
LAYERS = ("bronze", "silver", "gold")
COLUMNS = {"order_id": "long", "customer_id": "string", "amount": "double", "status": "string", "at": "timestamp"}
STATS = '{"numRecords":100,"minValues":{"order_id":1},"maxValues":{"order_id":9},"nullCount":{"order_id":0}}'
TABLE_ID = "0d6b5d2e-large"
HOST = "bench-host"


def table_name(number: int) -> str:
    return f"{LAYERS[number % 3]}/team{number // 3 % 20:02d}/table_{number:05d}"


def stream_name(number: int) -> str:
    return f"{LAYERS[number % 3]}_stream_{number:04d}"


# the lake --------------------------------------------------------------------------------------------------------


def make_lake(folder: Path, tables: int) -> Path:
    """So many tables in three layers, each of the same few commits: hard links of one log."""
    lake = folder / f"weir-bench-large-{tables}"
    if not lake.exists():
        draft = folder / f"{lake.name}.{os.getpid()}"
        first = _write_log(draft / table_name(0))
        for number in range(1, tables):
            log = draft / table_name(number) / "_delta_log"
            log.mkdir(parents=True)
            for file in first:
                (log / file.name).hardlink_to(file)
        draft.rename(lake)
    return lake


def _write_log(table: Path) -> list[Path]:
    log = HandLog(table)
    log.commit(commit_info(timestamp=STARTED_MS), protocol(), metadata(COLUMNS, table_id=TABLE_ID))
    for version in range(1, VERSIONS):
        files = (add(f"{version}-{number}.parquet", size=50_000, stats=STATS) for number in range(FILES))
        log.commit(commit_info(timestamp=STARTED_MS + 60_000 * version), *files)
    return sorted(log.log.iterdir())


# the store -------------------------------------------------------------------------------------------------------


def make_streams(settings: Settings, lake: Path, *, streams: int, now: datetime) -> ControlStore:
    """A store with so many streams and their checkpoints: most run, some are stopped or have failed, one in three is
    behind by a version."""
    store = ControlStore.open(settings)
    declared = [declaration(number, lake, settings.home) for number in range(streams)]
    store.declare(declared, now=now)
    batches: list[Progress] = []
    for number, stream in enumerate(declared):
        write_checkpoint(Path(stream.checkpoint_location), _read_to(number))
        stopped = number % 33 == 1
        store.ensure_desired(stream.name, DesiredState.STOPPED if stopped else DesiredState.RUNNING, now=now)
        lease = store.acquire(stream_resource(stream.name), HOST, ttl_s=TTL_S)
        assert lease is not None
        store.observe(observed(number, now), token=lease.token)
        batches += [batch(number, lake, id_, now) for id_ in range(BATCHES)]
    for start in range(0, len(batches), CHUNK):
        store.add_progress(batches[start : start + CHUNK])
    store.beat(heartbeat(streams, now))
    return store


def declaration(number: int, lake: Path, home: Path) -> StreamDeclaration:
    """Bronze reads a table that no stream writes; silver and gold read what the stream before them writes."""
    name, table = stream_name(number), table_name(number)
    read = read_by(number)
    return StreamDeclaration(
        name,
        f"Rows of {read}, cleaned",
        f"table {read}",
        str(lake / table),
        table,
        (read,),
        LAYERS[number % 3],
        TRIGGER_S * 1_000,
        str(home / "checkpoints" / name),
        expectations=("order_id IS NOT NULL", "amount > 0"),
        pipeline="bench",
        inputs=(StreamInput(InputKind.TABLE, read, str(lake / read)),),
        tags={"team": f"team{number // 3 % 20:02d}"},
    )


def read_by(number: int) -> str:
    return table_name(number - 1 if number % 3 else number + STREAMS + 2)


def _read_to(number: int) -> int:
    return VERSIONS - 1 if number % 3 == 0 else VERSIONS


def _offset(version: int) -> dict[str, object]:
    return {
        "sourceVersion": 1,
        "reservoirId": TABLE_ID,
        "reservoirVersion": version,
        "index": -1,
        "isStartingVersion": False,
    }


def write_checkpoint(folder: Path, version: int) -> None:
    """Two batches planned and finished; the source stands before this version."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text('{"id":"0f5b4b1e-bench"}')
    for id_ in (BATCHES - 2, BATCHES - 1):
        head = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": STARTED_MS, "conf": {}})
        (folder / "offsets" / str(id_)).write_text(f"v1\n{head}\n{json.dumps(_offset(version))}")
        (folder / "commits" / str(id_)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def observed(number: int, now: datetime) -> Observed:
    failures: tuple[StreamFailure, ...] = ()
    state = StreamState.RUNNING
    if number % 33 == 1:
        state = StreamState.STOPPED
    elif number % 50 == 2:
        state = StreamState.FAILED
        failures = (StreamFailure("DELTA_FILE_NOT_FOUND", "part-00001.parquet is gone", 19, now),)
    return Observed(
        stream_name(number),
        state,
        HOST,
        1,
        now - timedelta(minutes=5),
        query_id=f"query-{number}",
        run_id=f"run-{number}",
        started_at=now - timedelta(minutes=10),
        failures=failures,
    )


def batch(number: int, lake: Path, id_: int, now: datetime) -> Progress:
    """As Spark reports it."""
    at = now - timedelta(seconds=TRIGGER_S * (BATCHES - id_))
    read = read_by(number)
    rows, took_ms = 100 + (number * 7 + id_ * 13) % 50, 900 + number % 200
    event = {
        "id": f"query-{number}",
        "runId": f"run-{number}",
        "name": stream_name(number),
        "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "batchId": id_,
        "batchDuration": took_ms,
        "numInputRows": rows,
        "inputRowsPerSecond": rows / TRIGGER_S,
        "processedRowsPerSecond": rows / (took_ms / 1_000),
        "durationMs": {"addBatch": took_ms - 300, "commitOffsets": 40, "getBatch": 10, "latestOffset": 50,
                       "queryPlanning": 60, "triggerExecution": took_ms, "walCommit": 40},
        "stateOperators": [],
        "sources": [{
            "description": f"DeltaSource[file:{lake / read}]",
            "startOffset": _offset(_read_to(number)),
            "endOffset": _offset(_read_to(number)),
            "latestOffset": None,
            "numInputRows": rows,
        }],
        "sink": {"description": "ForeachBatchSink", "numOutputRows": rows},
        "observedMetrics": {"expectations": {"order_id IS NOT NULL_passed": rows, "order_id IS NOT NULL_failed": 0}},
    }  # fmt: skip
    return parse_progress(json.dumps(event))


def waits(number: int, now: datetime) -> Backlog:
    """As a host sees it: one in three has not read the last version yet."""
    is_behind = number % 3 == 0
    read = read_by(number)
    oldest_at = now - timedelta(seconds=TRIGGER_S) if is_behind else None
    files = FILES if is_behind else 0
    source = SourceBacklog(read, InputKind.TABLE, int(is_behind), files, 50_000 * files, 100 * files, oldest_at)
    lags = tuple(Lag(now - timedelta(seconds=TRIGGER_S * id_), 3.0, 100 * files) for id_ in reversed(range(RECENT)))
    return Backlog((source,), now, lags, has_planned=False)


@contextmanager
def hosts_at_work(store: ControlStore, lake: Path, *, streams: int) -> Iterator[None]:
    """What hosts write goes on meanwhile: each second a heartbeat, and a batch and a backlog of one stream in ten."""
    done = Event()
    _write(store, lake, streams, BATCHES, range(streams))

    def work() -> None:
        for round_ in count(BATCHES + 1):
            if done.wait(1):
                return
            _write(store, lake, streams, round_, range(round_ % TRIGGER_S, streams, TRIGGER_S))

    thread = Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _write(store: ControlStore, lake: Path, streams: int, round_: int, numbers: range) -> None:
    now = datetime.now(UTC)
    began = now - timedelta(seconds=2)
    store.beat(heartbeat(streams, now))
    batches = (batch(number, lake, BATCHES, now) for number in numbers)
    store.add_progress([replace(each, batch_id=round_, progressed_at=began) for each in batches])
    store.note_backlogs({stream_name(number): waits(number, now) for number in numbers})


def heartbeat(streams: int, now: datetime) -> HostHeartbeat:
    names = tuple(stream_name(number) for number in range(streams))
    return HostHeartbeat(HOST, "bench", 1, now - timedelta(hours=1), now, "4.2.0", None, (), names)
