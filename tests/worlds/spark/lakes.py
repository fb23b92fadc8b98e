"""A demo lake for Spark tests: files landed by the real generator, streams run until all of it is processed.

Rule: what a test expects comes from the ledger or from bronze, computed without Spark.
"""

import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from backend.settings import Settings, load_settings
from backend.stream_model.stream import StreamFailure, StreamState
from backend.streams.reconcile import Live
from pipelines.declare.pipeline import load_registry
from pipelines.demo.generator import generate
from pipelines.spark.runtime import NO_OVERRIDES, Runtime
from pipelines.specs.streams import Registry, StreamSpec, ViewSpec
from tests.worlds.processes import wait_until
from tests.worlds.streams.demo_ledger import Ledger

_HEARING: list["Heard"] = []  # the listener of the lake that was opened last


class Heard(StreamingQueryListener):
    """Every progress as Spark's JSON says it, and which runs are over."""

    def __init__(self) -> None:
        self.progress: list[dict[str, Any]] = []
        self.ended: set[str] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None: ...
    def onQueryIdle(self, event: QueryIdleEvent) -> None: ...

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self.progress.append(json.loads(event.progress.json))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self.ended.add(str(event.runId))


@dataclass
class DemoLake:
    settings: Settings
    runtime: Runtime
    heard: Heard = field(default_factory=Heard)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.settings.home)

    def land(self, files: int) -> None:
        generate(self.settings, files=files, stop=threading.Event())

    def process(self, *names: str, overrides: Mapping[str, str] = NO_OVERRIDES) -> list[int]:
        """Run each stream until it has read all there is; the rows of each batch that read some, as Spark told them.

        A failure fails the test.
        """
        before = len(self.heard.progress)
        for name in names:
            run = self.runtime.start(name, overrides)
            assert (failure := self.ended(name).failure) is None, failure
            # the listener's bus is behind the query
            wait_until(lambda run=run: run.run_id in self.heard.ended, f"the listener heard all of {name}")
        return [each["numInputRows"] for each in self.heard.progress[before:] if each["numInputRows"]]

    def ended(self, name: str) -> Live:
        """What the stream's query is once it has ended."""
        wait_until(lambda: self.runtime.poll(name).state is not StreamState.RUNNING, f"{name} ended")
        return self.runtime.poll(name)

    def failure_of(self, name: str) -> StreamFailure:
        """Runs the stream until it fails."""
        self.runtime.start(name)
        failure = self.ended(name).failure
        assert failure is not None, f"{name} has not failed"
        return failure

    def rows(self, table: str) -> list[Row]:
        return self.runtime.session.read.format("delta").load(self.uri(table)).collect()

    def uri(self, table: str) -> str:
        return str(self.settings.home / "lake" / table)

    def versions(self, table: str) -> int:
        return len(list(Path(self.uri(table), "_delta_log").glob("*.json")))

    def history(self, table: str) -> list[dict[str, Any]]:
        """commitInfo of each commit, oldest first."""
        logs = sorted(Path(self.uri(table), "_delta_log").glob("*.json"))
        actions = (json.loads(line) for log in logs for line in log.read_text().splitlines())
        return [action["commitInfo"] for action in actions if "commitInfo" in action]

    def forget_last_batch(self, stream: str) -> int:
        """Make the checkpoint look as if the host had died before it noted the last batch with rows as done; its id."""
        last = max(p["batchId"] for p in self.heard.progress if p["name"] == stream and p["numInputRows"])
        checkpoint = self.settings.home / "checkpoints" / stream
        for kind, first in (("offsets", last + 1), ("commits", last)):
            for path in (checkpoint / kind).glob("[0-9]*"):
                if int(path.name) >= first:
                    path.unlink()
                    (checkpoint / kind / f".{path.name}.crc").unlink(missing_ok=True)
        return last


def demo_lake(home: Path, *, kafka: str = "") -> DemoLake:
    """An open demo lake whose streams end when they have read everything, from files or from a broker's topics."""
    rates = {"landing_interval_s": 0.01, "events_per_s": 30_000, "orders_per_s": 10_000}
    settings = load_settings(home=home, demo={**rates, "kafka": kafka})
    declared = load_registry(settings)
    specs = [declared.get(name) for name in declared.names()]
    return open_lake(settings, *(replace(spec, trigger_interval_s=None) for spec in specs))


def open_lake(settings: Settings, *specs: StreamSpec, views: Iterable[ViewSpec] = ()) -> DemoLake:
    """A lake with these streams; the session is the one of the whole test run."""
    for earlier in _HEARING:  # each of them would be told every event of the session
        SparkSession.active().streams.removeListener(earlier)
    _HEARING.clear()
    lake = DemoLake(settings, Runtime(settings, Registry(specs, views)))
    lake.runtime.open()
    lake.runtime.add_listener(lake.heard)
    _HEARING.append(lake.heard)
    return lake
