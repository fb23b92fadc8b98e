"""A stream that has nothing to read because another one does not write: the cause is told, not its victims.

Rule: pure; a cause is the first stream upstream that is stopped or has failed, however many idle ones lie between.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from backend.format import span_text
from backend.stream_model.stream import StreamState
from backend.streams.verdict import StreamStatus, Verdict

_NOT_RUNNING = (StreamState.STOPPED, StreamState.FAILED, StreamState.BACKOFF)


def with_causes(statuses: Sequence[StreamStatus], *, now: datetime) -> list[StreamStatus]:
    """The same streams; an idle one below a stopped stream says which one starves it."""
    writers = {table: status for status in statuses for table in _writes(status)}
    found = []
    for status in statuses:
        cause = _cause(status, writers, frozenset()) if status.verdict is Verdict.IDLE else None
        if cause is None:
            found.append(status)
        else:
            because = f"{status.declaration.name} is starved: {_why_stopped(cause, now)}"
            found.append(replace(status, because=because, starved_by=cause.declaration.name))
    return found


def _cause(status: StreamStatus, writers: Mapping[str, StreamStatus], seen: frozenset[str]) -> StreamStatus | None:
    for table in status.declaration.source_tables:
        writer = writers.get(table)
        if writer is None or writer.declaration.name in seen or writer is status:
            continue
        if writer.state in _NOT_RUNNING:
            return writer
        further = _cause(writer, writers, seen | {status.declaration.name})
        if further is not None and writer.verdict is Verdict.IDLE:
            return further
    return None


def _writes(status: StreamStatus) -> tuple[str, ...]:
    return (status.declaration.sink_table, *status.declaration.side_tables)


def _why_stopped(cause: StreamStatus, now: datetime) -> str:
    """ "bronze_events was stopped by root 2 min ago"."""
    name, observed, wanted = cause.declaration.name, cause.observed, cause.desired
    if cause.state is not StreamState.STOPPED:
        failure = observed.last_failure if observed else None
        when = f" {span_text((now - failure.failed_at).total_seconds())} ago: {failure.error_class}" if failure else ""
        return f"{name} failed{when}"
    if wanted is not None and wanted.wants_stop:
        return f"{name} was stopped by {wanted.actor} {span_text((now - wanted.requested_at).total_seconds())} ago"
    return f"{name} is stopped"
