"""Starts, watches and stops the queries of declared streams: the only place that calls `writeStream` and `.stop()`.

Rule: what happened is answered from the query itself, never from memory; every Spark error leaves here as a
`LakehouseError` that carries the error's class.
"""

from dataclasses import dataclass

from pyspark.sql.streaming.listener import StreamingQueryListener

from backend.settings import Settings
from pipelines.spec import Registry


@dataclass(frozen=True, slots=True)
class RunningQuery:
    name: str
    query_id: str
    run_id: str


@dataclass(frozen=True, slots=True)
class QueryFailure:
    """Why a query ended: the innermost error's class and its first line."""

    error_class: str
    message: str


@dataclass(frozen=True, slots=True)
class QueryState:
    """What the query is now. Not active and no failure: it ended by itself or was stopped."""

    active: bool
    query_id: str | None = None
    run_id: str | None = None
    failure: QueryFailure | None = None


class Runtime:
    def __init__(self, settings: Settings, registry: Registry) -> None: ...
    def open(self) -> None: ...
    def close(self) -> None: ...
    def add_listener(self, listener: StreamingQueryListener) -> None: ...
    def start(self, name: str) -> RunningQuery: ...
    def stop(self, name: str, *, timeout_s: float) -> None: ...
    def poll(self, name: str) -> QueryState: ...
    def cut(self, name: str) -> None: ...
