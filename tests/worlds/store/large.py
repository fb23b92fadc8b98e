"""A lake of thousands of tables and a control store with as many streams, for lists, commands, pages and watches.

Rule: made through the store's own API and written as logs alone. A stand-in for the hosts goes on as they do:
heartbeats, batches, backlogs.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from backend.settings import Settings
from backend.store.batches import CHUNK
from backend.store.store import ControlStore
from backend.stream_model.backlog import Backlog, Lag, SourceBacklog
from backend.stream_model.progress import parse_progress
from backend.stream_model.stream import (
    DesiredState,
    HostHeartbeat,
    InputKind,
    Progress,
    StreamDeclaration,
    StreamFailure,
    StreamInput,
    StreamState,
)
from backend.streams.status import RECENT
from tests.worlds.lake.builders import HandLog, add, commit_info, metadata, protocol
from tests.worlds.processes import each_second
from tests.worlds.store.stream_store import HOST, observe
from tests.worlds.streams.checkpoints import delta_offset, write_checkpoint

TABLES, STREAMS = 10_000, 1_000
VERSIONS, FILES = 3, 5
BATCHES = 20  # of each stream, one in `TRIGGER_S`
TRIGGER_S = 10
LAYERS = ("bronze", "silver", "gold")
COLUMNS = {"order_id": "long", "customer_id": "string", "amount": "double", "status": "string", "at": "timestamp"}
STATS = '{"numRecords":100,"minValues":{"order_id":1},"maxValues":{"order_id":9},"nullCount":{"order_id":0}}'
STARTED_MS = 1_767_225_600_000
TABLE_ID = "0d6b5d2e-large"


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
        first = write_log(draft / table_name(0), table_id=TABLE_ID, versions=VERSIONS - 1, files=FILES)
        for number in range(1, tables):
            shutil.copytree(first, draft / table_name(number), copy_function=os.link)
        draft.rename(lake)
    return lake


def write_log(table: Path, *, table_id: str, versions: int, files: int) -> Path:
    """A table's log: its start, and versions of so many files."""
    log = HandLog(table)
    log.commit(commit_info(timestamp=STARTED_MS), protocol(), metadata(COLUMNS, table_id=table_id))
    for version in range(1, versions + 1):
        added = (add(f"{version}-{number}.parquet", size=50_000, stats=STATS) for number in range(files))
        log.commit(commit_info(timestamp=STARTED_MS + 60_000 * version), *added)
    return table


# the store -------------------------------------------------------------------------------------------------------


def make_streams(settings: Settings, lake: Path, *, streams: int, now: datetime) -> ControlStore:
    """A store with so many streams and their checkpoints: most run, some are stopped or have failed, one in three is
    behind by a version."""
    store = ControlStore.open(settings)
    declared = [declaration(number, lake, settings.home) for number in range(streams)]
    store.declare(declared, now=now)
    batches: list[Progress] = []
    for number, stream in enumerate(declared):
        last = {id_: [delta_offset(TABLE_ID, _read_to(number))] for id_ in (BATCHES - 2, BATCHES - 1)}
        write_checkpoint(Path(stream.checkpoint_location), last)
        state, failure = StreamState.RUNNING, None
        if number % 33 == 1:
            state = StreamState.STOPPED
        elif number % 50 == 2:
            state = StreamState.FAILED
            failure = StreamFailure("DELTA_FILE_NOT_FOUND", "part-00001.parquet is gone", 19, now)
        wanted = DesiredState.STOPPED if state is StreamState.STOPPED else DesiredState.RUNNING
        store.ensure_all_desired([stream.name], wanted, now=now)
        observe(store, stream.name, state, now, failure=failure)
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


def batch(number: int, lake: Path, id_: int, now: datetime) -> Progress:
    """As Spark reports it."""
    at = now - timedelta(seconds=TRIGGER_S * (BATCHES - id_))
    name, stands = stream_name(number), json.loads(delta_offset(TABLE_ID, _read_to(number)))
    rows, took_ms = 100 + (number * 7 + id_ * 13) % 50, 900 + number % 200
    source = {
        "description": f"DeltaSource[file:{lake / read_by(number)}]",
        "startOffset": stands,
        "endOffset": stands,
        "latestOffset": None,
        "numInputRows": rows,
    }
    durations = {"addBatch": took_ms - 300, "commitOffsets": 40, "getBatch": 10, "latestOffset": 50}
    event = {
        "id": f"query-{name}",
        "runId": f"{name}-run-2",
        "name": name,
        "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "batchId": id_,
        "batchDuration": took_ms,
        "numInputRows": rows,
        "inputRowsPerSecond": rows / TRIGGER_S,
        "processedRowsPerSecond": rows / (took_ms / 1_000),
        "durationMs": durations | {"queryPlanning": 60, "triggerExecution": took_ms, "walCommit": 40},
        "stateOperators": [],
        "sources": [source],
        "sink": {"description": "ForeachBatchSink", "numOutputRows": rows},
        "observedMetrics": {"expectations": {"order_id IS NOT NULL_passed": rows, "order_id IS NOT NULL_failed": 0}},
    }
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
    _write(store, lake, streams, BATCHES, range(streams))

    def second(number: int) -> None:
        _write(store, lake, streams, BATCHES + number, range((BATCHES + number) % TRIGGER_S, streams, TRIGGER_S))

    with each_second(second):
        yield


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
