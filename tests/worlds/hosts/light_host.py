"""A real stream host whose queries are those of `engine.py` instead of Spark's.

`python -m tests.worlds.hosts.light_host FOLDER SKEW_S`: its machine's clock is wrong by so many seconds.
"""

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from backend.errors import LakehouseError
from backend.settings import load_settings
from backend.store.leases import StoreClock
from backend.store.store import ControlStore
from backend.stream_model.stream import StreamDeclaration, StreamFailure, StreamState
from backend.streams.reconcile import Live
from pipelines.host.stream_host import Loop, StreamHost, declare, new_heartbeat
from pipelines.jvm.failures import SparkLostError, StreamStartError
from pipelines.spark.runtime import NOT_RENEWED
from pipelines.stop_signals import stop_signals
from tests.worlds.hosts.engine import STREAMS


def skew_clock(by: timedelta) -> None:
    """Every `datetime.now` of Weir's modules in this process."""
    real = datetime

    class AnyDatetime(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, real)

    class Skewed(real, metaclass=AnyDatetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return real.now(tz) + by

    for name, module in list(sys.modules.items()):
        if name.startswith(("backend.", "pipelines.")) and getattr(module, "datetime", None) is real:
            module.datetime = Skewed  # type: ignore[attr-defined]


class Runner:
    """Asks the engine, as `Runtime` asks the JVM."""

    host: StreamHost

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.worlds.hosts.engine", sys.argv[1], str(os.getpid())]
        self._engine = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._lock = threading.Lock()

    def start(self, name: str, overrides: Mapping[str, str]) -> None:
        held = self.host._ownership.held.get(name)
        if held is None:
            raise StreamStartError("its lease is lost", error_class="LEASE")
        self._ask("start", name, run=uuid.uuid4().hex, token=held.token)

    def stop(self, name: str, *, timeout_s: float) -> None:
        self._ask("end", name)

    def cut(self, name: str) -> None:
        self._ask("end", name)

    def hold(self, name: str, until: float) -> None:
        self._ask("hold", name, until=until)

    def poll(self, name: str) -> Live:
        told = self._ask("poll", name)
        ids = f"query-{name}", told["run"]
        if told["tripped"]:
            return Live(StreamState.FAILED, *ids, StreamFailure(*NOT_RENEWED, None, datetime.now(UTC)))
        return Live(StreamState.RUNNING if told["active"] else StreamState.COMPLETED, *ids)

    def _ask(self, what: str, name: str, **more: object) -> dict[str, Any]:
        with self._lock:
            try:
                self._engine.stdin.write(json.dumps({"do": what, "name": name, **more}) + "\n")
                self._engine.stdin.flush()
                told = self._engine.stdout.readline()
            except OSError as exc:
                raise SparkLostError("the engine is gone") from exc
        if not told:
            raise SparkLostError("the engine is gone")
        return json.loads(told)


def declared(name: str) -> StreamDeclaration:
    tags = {"host": "gpu"} if name.startswith("gpu") else {}
    return StreamDeclaration(name, "", "x", f"/l/{name}", name, (), None, 1_000, f"/c/{name}", tags=tags)


def end_with(parent: int) -> None:
    """A test that was killed leaves no host behind."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def main() -> int:
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    skew_clock(timedelta(seconds=float(sys.argv[2])))
    settings, stop = load_settings(), stop_signals()
    store = ControlStore.open(settings)
    clock = StoreClock(store.now)
    clock.look()
    declarations = tuple(map(declared, STREAMS))
    declare(store, declarations, clock())
    runner = Runner()
    runner.host = StreamHost(settings, store, runner, declarations, new_heartbeat(clock(), settings.host.tags), clock)
    code = Loop(runner.host, stop, interval_s=settings.host.reconcile_interval_s).run()
    if code == 0:
        runner.host.shut_down(settings.host.stop_timeout_s)
    return code


if __name__ == "__main__":
    try:
        code = main()
    except LakehouseError as exc:  # the store is away: the next one tries
        print(exc.message)  # noqa: T201
        code = 1
    sys.stdout.flush()
    os._exit(code)
