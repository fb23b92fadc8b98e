"""A real stream host and the demo's generator as processes on a WEIR_HOME of their own; how every run of the demo ends.

Rule: every process that is started is ended, with its JVM; what a test knows, it knows from the store, the log and
the lake, as any other program would.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from deltalake import DeltaTable

from backend.jobs.model import Job
from backend.lake.storage.storage import Storage
from backend.settings import Settings, load_settings
from backend.store.store import ControlStore
from backend.stream_model.stream import Observed, StreamState
from tests.worlds.processes import PATIENCE_S, wait_until
from tests.worlds.store.values import newest
from tests.worlds.streams.demo_ledger import Ledger

DEMO = (
    "bronze_events",
    "silver_events",
    "gold_events_hourly",
    "bronze_orders",
    "silver_orders",
    "gold_orders_by_status",
)
FAST = {
    "WEIR_DEMO__PACE": "4",
    "WEIR_HOST__LEASE_TTL_S": "6",
    "WEIR_HOST__HEARTBEAT_STALE_S": "5",
    "WEIR_HOST__BACKOFF_INITIAL_S": "0.5",
    "WEIR_HOST__MAX_RESTARTS": "2",
    "WEIR_SPARK__CONF": json.dumps({"spark.sql.streaming.noDataProgressEventInterval": "2s"}),
}


@dataclass
class World:
    """One WEIR_HOME with its processes. `env` is what every process gets; `streams` are those that are waited for."""

    home: Path
    env: Mapping[str, str]
    streams: tuple[str, ...] = DEMO
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.home / "out").mkdir(parents=True, exist_ok=True)
        with patch.dict(os.environ, self.env):
            self.settings: Settings = load_settings(home=self.home)
        self.store = ControlStore.open(self.settings)

    def spawn(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        out = (self.home / "out" / f"{module}-{len(self.processes)}.log").open("ab")
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env={**os.environ, **self.env, "WEIR_HOME": str(self.home)},
            stdout=out,
            stderr=out,
            start_new_session=True,
            cwd=Path(__file__).parents[3],
        )
        out.close()
        self.processes.append(process)
        return process

    def host(self) -> subprocess.Popen[bytes]:
        return self.spawn("pipelines.host")

    def close(self) -> None:
        """Ends every process group that was started here."""
        for process in self.processes:
            kill_group(process)
        self.store.close()

    # what is there -----------------------------------------------------------------------------------------------

    def observed(self) -> dict[str, Observed]:
        return self.store.observed()

    def states(self, *names: str) -> dict[str, str]:
        seen = self.observed()
        return {name: seen[name].state.value if name in seen else "none" for name in names or self.streams}

    def runs(self, *names: str) -> dict[str, str | None]:
        seen = self.observed()
        return {name: seen[name].run_id for name in names}

    def job_now(self, job: Job) -> Job:
        return self.store.jobs.get(job.job_id) or job

    def batches(self) -> dict[str, int]:
        return {name: progress.batch_id for name, progress in newest(self.store).items()}

    def log(self) -> list[dict[str, Any]]:
        text = (self.home / "logs" / "host.log").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def rows(self, table: str) -> pa.Table:
        """A table's rows, read without Spark; `table` is layer/name."""
        uri = f"{self.settings.tables_uri}/{table}"
        options = Storage(self.settings).options(uri)
        return pa.table(DeltaTable(uri, storage_options=options).scan().read_all())

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.home)

    # what is waited for ------------------------------------------------------------------------------------------

    def until(self, condition: Callable[[], bool], what: str, *, limit_s: float = PATIENCE_S) -> float:
        """Waits until the condition holds; the seconds it took."""
        return wait_until(condition, lambda: f"{what}\n{self.describe()}", limit_s=limit_s, pause_s=0.1)

    def until_state(self, state: StreamState, *names: str) -> None:
        wanted = dict.fromkeys(names or self.streams, state.value)
        self.until(lambda: self.states(*wanted) == wanted, f"{', '.join(wanted)} {state}")

    def until_batch(self, number: int, *names: str) -> None:
        """Until each of the streams has done that batch."""
        wanted = names or self.streams
        self.until(lambda: all(self.batches().get(each, -1) >= number for each in wanted), f"{wanted}: batch {number}")

    def until_moved(self, by: int, *names: str) -> None:
        """Until each of the streams has done so many batches more."""
        before = self.batches()
        wanted = {name: before.get(name, -1) + by for name in names or self.streams}
        self.until(
            lambda: all(self.batches().get(name, -1) >= batch for name, batch in wanted.items()), f"batches {wanted}"
        )

    def until_drained(self, since: datetime) -> None:
        """Until every stream has looked, and found nothing, after the last batch of all of them."""
        self.until(lambda: self._drained(since), "streams drained")

    def _drained(self, since: datetime) -> bool:
        seen = self.observed()
        latest = newest(self.store)  # read second: a batch is in the store before its end is noted as a sign
        quiet_since = max([since, *(latest[name].ended_at for name in self.streams)]) + timedelta(milliseconds=1)
        signs = [seen[name].last_trigger_at for name in self.streams]
        return all(sign is not None and sign > quiet_since for sign in signs)

    def describe(self) -> str:
        """What a failed wait should say."""
        failures = {name: seen.failures for name, seen in self.observed().items() if seen.failures}
        outs = [
            f"{path.name}: …{path.read_text(errors='replace')[-600:]}" for path in sorted((self.home / "out").iterdir())
        ]
        return f"{self.states()}\nbatches {self.batches()}\nfailures {failures}\n" + "\n".join(outs)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait(60)


def group_is_empty(process: subprocess.Popen[bytes]) -> bool:
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return True
    return False


def now() -> datetime:
    return datetime.now(UTC)


def drain(world: World) -> None:
    """`world.processes[0]` is the generator."""
    world.until_state(StreamState.RUNNING)
    generator = world.processes[0]
    generator.terminate()
    generator.wait(20)
    world.until_drained(now() + timedelta(seconds=1))


def check_events(world: World) -> None:
    ids = world.rows("silver/silver_events")["event_id"].to_pylist()
    assert len(ids) == len(set(ids)), "an event is in silver twice"
    found, expected = set(ids), world.ledger.expected_silver_event_ids()
    assert not expected - found, f"{len(expected - found)} of {len(expected)} events are missing"
    assert not found - expected, f"{len(found - expected)} events too many"
    assert ids, "an empty table proves nothing"


def check_lake(world: World) -> None:
    """Every silver and gold table of the demo against the ledger."""
    check_events(world)
    ledger = world.ledger
    hourly = {
        (row["window_start"], row["event_type"]): (row["event_count"], row["amount_sum"], row["amount_avg"])
        for row in world.rows("gold/gold_events_hourly").to_pylist()
    }
    expected = ledger.expected_gold()
    assert hourly == {key: (gold.event_count, gold.amount_sum, gold.amount_avg) for key, gold in expected.items()}

    orders = {
        row["order_id"]: (row["customer_id"], row["country"], row["status"], row["amount"], row["lsn"])
        for row in world.rows("silver/silver_orders").to_pylist()
    }
    assert orders == {
        key: (order.customer_id, order.country, order.status, order.amount, order.lsn)
        for key, order in ledger.expected_orders().items()
    }

    by_status = {
        row["status"]: (row["orders"], row["total_amount"])
        for row in world.rows("gold/gold_orders_by_status").to_pylist()
    }
    wanted = {status: (of.orders, of.total_amount) for status, of in ledger.expected_orders_by_status().items()}
    assert {status: found for status, found in by_status.items() if found[0]} == wanted
    assert orders, "an empty lake proves nothing"
