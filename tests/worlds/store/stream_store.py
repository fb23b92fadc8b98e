"""A real SQLite control store filled with streams in the states that pages must answer for."""

import json
import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import sqlalchemy as sa

from backend.store.batches import rollup_row
from backend.store.engine import Database
from backend.store.leases import stream_resource
from backend.store.schema import progress_rollup
from backend.store.store import ControlStore
from backend.stream_model.rollup import Rollup, rollup_of
from backend.stream_model.stream import (
    DesiredState,
    ExpectationCount,
    HostHeartbeat,
    Observed,
    Progress,
    StreamDeclaration,
    StreamFailure,
    StreamState,
)
from tests.worlds.store.values import leased

HOST = "host-a"
TRIGGER_MS = 5_000
Names = tuple[str, ...]


@cache
def _empty_store() -> bytes:
    """Every table and no row: made once, since to make it takes longer than most tests."""
    with tempfile.TemporaryDirectory(prefix="weir-store-") as folder:
        ControlStore(f"sqlite:///{folder}/weir.db").close()
        return (Path(folder) / "weir.db").read_bytes()


def copy_of_empty_store(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_bytes(_empty_store())


def open_store(home: Path) -> ControlStore:
    """The store that pages with this WEIR_HOME open."""
    path = home / "store" / "weir.db"
    copy_of_empty_store(path)
    return ControlStore(f"sqlite:///{path}")


def beat(store: ControlStore, at: datetime) -> None:
    store.beat(HostHeartbeat(HOST, "machine", 4711, at - timedelta(hours=3), at, "4.2.0", None))


def declare(
    store: ControlStore, name: str, now: datetime, *, expectations: Names = (), source_tables: Names = ()
) -> None:
    layer = name.split("_")[0]
    declaration = StreamDeclaration(
        name=name,
        description=f"Fills {name} for the tests",
        source="files in landing/events",
        sink_uri=f"/lake/{layer}/{name}",
        sink_table=f"{layer}/{name}",
        source_tables=source_tables,
        layer=layer,
        trigger_interval_ms=TRIGGER_MS,
        checkpoint_location=f"/checkpoints/{name}",
        expectations=expectations,
        side_tables=(f"{layer}/{name}_quarantine",) if expectations else (),
    )
    store.declare([declaration], now=now)
    store.ensure_all_desired([name], DesiredState.RUNNING, now=now)


def observe(
    store: ControlStore, name: str, state: StreamState, now: datetime, *, failure: StreamFailure | None = None
) -> None:
    """What the host saw, written under a lease as the host does."""
    lease = leased(store, stream_resource(name), HOST, ttl_s=3600)
    observed = Observed(
        name=name,
        state=state,
        host_id=HOST,
        generation=1,
        observed_at=now,
        query_id=f"query-{name}",
        run_id=f"{name}-run-2",
        started_at=now - timedelta(hours=1),
        failures=(failure,) if failure else (),
        last_trigger_at=now,
    )
    store.observe(observed, token=lease.token)


def batch(name: str, number: int, at: datetime, *, run_id: str, rows: int = 100) -> Progress:
    """One micro-batch with every field that Spark may report."""
    add_ms, offset_ms = 900 + 40 * (number % 7), 120
    durations = {
        "latestOffset": offset_ms,
        "queryPlanning": 60,
        "walCommit": 80,
        "addBatch": add_ms,
        "commitOffsets": 70,
        "triggerExecution": add_ms + 400,
    }
    return Progress(
        stream=name,
        query_id=f"query-{name}",
        run_id=run_id,
        batch_id=number,
        progressed_at=at,
        num_input_rows=rows,
        input_rows_per_s=rows / 5,
        processed_rows_per_s=rows / ((add_ms + 400) / 1000),
        batch_duration_ms=add_ms + 400,
        durations_ms=durations,
        watermark=at - timedelta(minutes=10),
        state_rows=5_000 + 13 * number,
        state_bytes=1_200_000 + 900 * number,
        rows_dropped_by_watermark=number % 3,
        output_rows=rows - 3,
        expectations=(
            ExpectationCount("event_type_not_null", rows - 2, 2),
            ExpectationCount("amount_positive", rows, 0),
        ),
        raw_json=json.dumps({"name": name, "batchId": number, "numInputRows": rows}, indent=2),
    )


def batches(name: str, now: datetime, *, count: int = 36) -> list[Progress]:
    """`count` batches, one a trigger, the last one just now; the run changes after the first third."""
    return [
        batch(
            name,
            number,
            now - timedelta(milliseconds=TRIGGER_MS * (count - number)),
            run_id=f"{name}-run-{1 if number < count // 3 else 2}",
            rows=100 + 7 * (number % 5),
        )
        for number in range(count)
    ]


def flowing(
    store: ControlStore, name: str, now: datetime, *, expectations: Names = (), source_tables: Names = ()
) -> None:
    """A stream that runs and keeps up."""
    declare(store, name, now, expectations=expectations, source_tables=source_tables)
    observe(store, name, StreamState.RUNNING, now)
    store.add_progress(batches(name, now))


def idle(store: ControlStore, name: str, now: datetime) -> None:
    """A flowing stream has nothing to read any more."""
    store.touch(name, at=now + timedelta(seconds=30))


def failed(store: ControlStore, name: str, now: datetime) -> None:
    """A stream that its host has given up on."""
    declare(store, name, now)
    store.add_progress(batches(name, now - timedelta(minutes=2), count=20))
    message = "division by zero in the transform of row 17"
    failure = StreamFailure("ZeroDivisionError", message, 20, now - timedelta(minutes=1))
    observe(store, name, StreamState.FAILED, now, failure=failure)


def long_history(home: Path, name: str, now: datetime, grain_s: int, *, days: int, pause: range = range(0)) -> None:
    """Sums per minute or hour as a host leaves them of `days` with a batch every ten seconds; `pause`: hours ago
    without any."""
    database = Database(f"sqlite:///{home / 'store' / 'weir.db'}")
    last, of = int(now.timestamp()) // grain_s * grain_s, rollup_of(_of_one_bin(name, now, grain_s))
    begins = [datetime.fromtimestamp(at, UTC) for at in range(last - days * 86_400, last, grain_s)]
    kept = [at for at in begins if (now - at) // timedelta(hours=1) not in pause]
    with database.writing() as connection:
        connection.execute(sa.insert(progress_rollup), [_row(name, grain_s, at, of) for at in kept])
    database.dispose()


def _of_one_bin(name: str, now: datetime, grain_s: int) -> list[Progress]:
    return [batch(name, number, now, run_id=f"{name}-run-2") for number in range(grain_s // 10)]


def _row(name: str, grain_s: int, at: datetime, of: Rollup) -> dict[str, object]:
    last_at, rise = at + timedelta(seconds=grain_s - 10), at.hour + at.weekday()
    moved = replace(
        of,
        first_at=at,
        last_at=last_at,
        ended_at=at + timedelta(seconds=grain_s - 8),
        watermark=last_at - timedelta(minutes=5 + rise),
        state_rows=5_000 + 90 * rise,
        input_rows=of.input_rows * (10 + rise) // 10,
        input_rows_per_s=replace(of.input_rows_per_s, total=of.input_rows_per_s.total * (10 + rise) / 10),
        longest_ms=9_000 if at.minute == rise else of.longest_ms,
    )
    return rollup_row(moved) | {"stream": name, "grain_s": grain_s, "at": at}
