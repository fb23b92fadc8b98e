"""The host's rounds: one tick after another until it is told to stop."""

import threading
from datetime import datetime

import structlog

from backend.errors import StoreError
from pipelines.host.metrics import HostMetrics
from pipelines.host.stream_host import StreamHost
from pipelines.jvm.failures import SparkLostError

TROUBLE_LIMIT = 10  # after so many unexplained failures in a row the process is started anew

log = structlog.get_logger()


class Loop:
    """Ticks until asked to stop. Waits for a silent store; a dead JVM ends the process."""

    def __init__(
        self, host: StreamHost, stop: threading.Event, *, interval_s: float, metrics: HostMetrics | None = None
    ) -> None:
        self._host, self._stop, self._interval_s = host, stop, interval_s
        self._metrics = metrics or HostMetrics()
        self._silent_since: datetime | None = None
        self._trouble = 0

    def run(self) -> int:
        """Returns the exit code: 0 when asked to stop, 1 when the process must be started anew."""
        while not self._stop.is_set():
            try:
                self._host.tick()
                self._well()
            except StoreError as exc:
                self._store_silent(exc)
            except SparkLostError as exc:
                log.error("spark_lost", error=exc.message, hint=exc.hint)
                return 1
            except Exception:
                self._trouble += 1
                log.exception("reconcile_failed", in_a_row=self._trouble)
                if self._trouble >= TROUBLE_LIMIT:
                    return 1
            self._stop.wait(self._interval_s)
        return 0

    def _well(self) -> None:
        self._trouble = 0
        self._metrics.round_ended(store_up=True)
        if self._silent_since is not None:
            silent_s = (self._host.clock() - self._silent_since).total_seconds()
            log.info("store_back", silent_s=round(silent_s, 1))
            self._silent_since = None

    def _store_silent(self, exc: StoreError) -> None:
        self._metrics.round_ended(store_up=False)
        if self._silent_since is None:
            self._silent_since = self._host.clock()
            log.error("store_silent", error=exc.message, effect="streams run on while their leases last")
