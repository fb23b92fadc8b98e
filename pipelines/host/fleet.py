"""The queries of one host, started and stopped in threads, so that a slow one never delays the others.

Rule: one operation at a time for each stream. What a query does is asked of the runner, never remembered.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import structlog

from backend.errors import LakehouseError
from backend.stream_model.stream import StreamFailure
from backend.streams.reconcile import Live, Phase
from pipelines.jvm.failures import SparkLostError
from pipelines.spark.runtime import QueryState, RunningQuery

STARTERS = 4
STOPPERS = 16  # they mostly wait for a micro-batch to end

log = structlog.get_logger()


class QueryRunner(Protocol):
    """What the host needs of `pipelines.spark.runtime.Runtime`."""

    def start(self, name: str, overrides: Mapping[str, str]) -> RunningQuery: ...
    def stop(self, name: str, *, timeout_s: float) -> None: ...
    def poll(self, name: str) -> QueryState: ...
    def cut(self, name: str) -> None: ...
    def hold(self, name: str, until: float) -> None: ...


@dataclass(frozen=True, slots=True)
class _Operation:
    phase: Phase
    done: Future[Any]  # nobody looks at its result


def utc_now() -> datetime:
    return datetime.now(UTC)


class Fleet:
    """Used by one thread, the host's loop."""

    def __init__(self, runner: QueryRunner, *, stop_timeout_s: float, clock: Callable[[], datetime] = utc_now) -> None:
        self._runner, self._stop_timeout_s, self._clock = runner, stop_timeout_s, clock
        self._starters = ThreadPoolExecutor(STARTERS, "start")
        self._stoppers = ThreadPoolExecutor(STOPPERS, "stop")
        self._operations: dict[str, _Operation] = {}
        self._started: set[str] = set()
        self._failures: dict[str, StreamFailure] = {}

    def live(self, names: Iterable[str]) -> dict[str, Live]:
        """What each stream is doing now, without those of which nobody can say; raises `SparkLostError` when nothing
        answers any more."""
        live = dict[str, Live]()
        for name in names:
            try:
                live[name] = self._live(name)
            except SparkLostError:
                raise
            except LakehouseError as exc:  # nothing is done about this one, and the others are looked after
                log.warning("stream_not_seen", stream=name, error=exc.message)
        return live

    def start(self, name: str, overrides: Mapping[str, str]) -> None:
        self._operations[name] = _Operation(Phase.STARTING, self._starters.submit(self._runner.start, name, overrides))

    def stop(self, name: str, *, timeout_s: float | None = None) -> None:
        """Stops after the running micro-batch, or at the limit. A start that is under way is awaited first."""
        self._end(name, self._stop_timeout_s if timeout_s is None else timeout_s)

    def cut(self, name: str) -> None:
        """Stops at once, or right after a start that is under way."""
        self._end(name, None)

    def hold(self, name: str, until: float) -> None:
        """The stream may run until then, by `elapsed`; what runs is cut at that moment, whatever this process does."""
        self._runner.hold(name, until)

    def forget(self, name: str) -> None:
        self._started.discard(name)
        self._failures.pop(name, None)

    def occupied(self) -> set[str]:
        """The streams that have a query or an operation here."""
        for name in tuple(self._operations):
            self._settle(name)
        return self._started | set(self._operations)

    def _end(self, name: str, timeout_s: float | None) -> None:
        before = self._operations.get(name)
        if before is not None and before.phase is Phase.STOPPING:
            return
        self._failures.pop(name, None)
        done = self._stoppers.submit(self._halt, name, before.done if before else None, timeout_s)
        self._operations[name] = _Operation(Phase.STOPPING, done)

    def _live(self, name: str) -> Live:
        self._settle(name)
        operation = self._operations.get(name)
        if operation is not None:
            return Live(operation.phase)
        if name in self._failures:
            return Live(Phase.FAILED, failure=self._failures[name])
        if name not in self._started:
            return Live(Phase.ABSENT)
        return self._of(self._runner.poll(name))

    def _of(self, state: QueryState) -> Live:
        if state.active:
            return Live(Phase.ACTIVE, state.query_id, state.run_id)
        if state.failure is None:
            return Live(Phase.ENDED, state.query_id, state.run_id)
        error_class, message = state.failure
        failure = StreamFailure(error_class, message, state.batch_id, self._clock())
        return Live(Phase.FAILED, state.query_id, state.run_id, failure)

    def _settle(self, name: str) -> None:
        """Takes note of an operation that is done."""
        operation = self._operations.get(name)
        if operation is None or not operation.done.done():
            return
        del self._operations[name]
        problem = operation.done.exception()
        if isinstance(problem, SparkLostError):
            raise problem
        if operation.phase is Phase.STARTING:
            self._settle_start(name, problem)
        elif problem is None:
            self._started.discard(name)
        else:
            log.warning("stream_stop_failed", stream=name, error=str(problem))
            self.cut(name)  # until that succeeds: its batch may still write, though Spark calls the query ended

    def _settle_start(self, name: str, problem: BaseException | None) -> None:
        if problem is None:
            self._started.add(name)
            return
        message = problem.message if isinstance(problem, LakehouseError) else str(problem)
        error_class = getattr(problem, "error_class", None) or type(problem).__name__
        self._failures[name] = StreamFailure(str(error_class), message, None, self._clock())

    def _halt(self, name: str, starting: "Future[Any] | None", timeout_s: float | None) -> None:
        if starting is not None:
            wait([starting])
        if timeout_s is None:
            self._runner.cut(name)
        else:
            self._runner.stop(name, timeout_s=timeout_s)
