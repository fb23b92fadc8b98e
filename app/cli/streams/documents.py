"""What `--json` prints of streams, pipelines, expectations and jobs.

Rule: pure; keys are a contract with scripts: add, never rename.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.cli.output import Document, fields_of
from backend.stream_model.backlog import waiting
from backend.stream_model.stream import StreamState
from backend.streams.faults import recognise

if TYPE_CHECKING:
    from backend.expectations.model import Judgement
    from backend.jobs.model import Job
    from backend.stream_model.backlog import Backlog, SourceBacklog
    from backend.stream_model.overrides import Setting
    from backend.stream_model.stream import Progress, StreamFailure
    from backend.streams.graph import Graph
    from backend.streams.latency import LayerLatency
    from backend.streams.verdict import StreamStatus


def judgement(value: Judgement, table: str | None, *, is_silent: bool) -> Document:
    """`is_stale`: the host that judged it is away. What does not belong to its kind is null."""
    expected, found = value.expectation, value.finding
    return {
        "table": table or expected.table,
        "uri": expected.uri,
        "expectation": expected.name,
        "kind": expected.kind.value,
        "pipeline": expected.pipeline,
        "state": found.state.value,
        "reason": found.reason or None,
        "broken_since": value.broken_since,
        "judged_at": value.judged_at,
        "host_id": value.host_id,
        "is_stale": is_silent,
        "version": found.version,
        "other_version": found.other_version,
        "within_s": expected.within_s or None,
        "last_data_at": found.last_data_at,
        "day": found.day or None,
        "rows": found.rows,
        "usual_rows": list(found.usual) if found.usual else None,
        "usual_of_days": found.days or None,
        "broken_keys": found.broken_keys,
        "broken_rows": found.broken_rows,
        "examples": list(found.examples),
    }


def graph(value: Graph) -> Document:
    nodes = [
        {"name": n.name, "kind": n.kind, "layer": n.layer, "state": n.state, "table": n.table} for n in value.nodes
    ]
    edges = [{"source": e.source, "target": e.target, "rows_per_min": e.rows_per_min} for e in value.edges]
    return {"nodes": nodes, "edges": edges}


def layer_latency(pipeline: str, value: LayerLatency) -> Document:
    return {
        "pipeline": pipeline,
        "layer": value.layer,
        "latency_s": value.seconds,
        "complete_until": value.complete_until,
        "slowest": value.slowest,
        "unknown": list(value.unknown),
    }


def stream(value: StreamStatus) -> Document:
    observed, progress = value.observed, value.progress
    # A stream that runs again has no error any more.
    is_troubled = observed is not None and observed.state in (StreamState.FAILED, StreamState.BACKOFF)
    failure = observed.last_failure if observed and is_troubled else None
    return {
        "name": value.declaration.name,
        "desired": value.desired.state.value if value.desired else None,
        "state": value.state.value,
        "verdict": value.verdict.value,
        "because": value.because,
        "query_id": observed.query_id if observed else None,
        "run_id": observed.run_id if observed else None,
        "batch_id": progress.batch_id if progress else None,
        "last_progress_at": progress.progressed_at if progress else None,
        "input_rows_per_s": value.input_rows_per_s,
        "processed_rows_per_s": value.processed_rows_per_s,
        "error": f"{failure.error_class}: {failure.message}" if failure else None,
        "host_id": observed.host_id if observed else None,
        "observed_at": observed.observed_at if observed else None,
        "layer": value.declaration.layer,
        "sink_table": value.declaration.sink_table or None,
        "writes_to": value.declaration.writes_to,
        "backlog": backlog(value.backlog),
        "data_loss_at": value.backlog.data_loss.at if value.backlog and value.backlog.data_loss else None,
        "starved_by": value.starved_by,
    }


def backlog(value: Backlog | None) -> Document | None:
    """None where nobody looked; a figure is None where nobody knows."""
    return None if value is None else _waiting(value) | {"drain_s": value.drain_s}


def _waiting(value: Backlog | SourceBacklog) -> Document:
    return waiting(value) | {"oldest_unread_at": value.oldest_unread_at}


def _source(value: SourceBacklog) -> Document:
    loss = value.data_loss
    return {
        "name": value.name,
        "kind": value.kind,
        "backlog": _waiting(value),
        "lost": value.lost,
        "data_loss": {"at": loss.at, "what": loss.what, "setting": loss.setting} if loss else None,
        "detail": value.detail,
        "unknown": value.unknown,
    }


def setting(value: Setting) -> Document:
    """Null: not set, so the host's or Spark's own."""
    return {
        "key": value.key,
        "declared": value.declared,
        "now": value.now,
        "after": value.after,
        "note": value.note or None,
    }


def whole_stream(value: StreamStatus) -> Document:
    declaration, desired, observed = value.declaration, value.desired, value.observed
    return stream(value) | {
        "description": declaration.description,
        "source": declaration.source,
        "source_tables": list(declaration.source_tables),
        "sink_uri": declaration.sink_uri or None,
        "trigger_interval_ms": declaration.trigger_interval_ms,
        "overrides": [{"key": each.key, "declared": each.declared, "now": each.now} for each in value.overrides],
        "checkpoint_location": declaration.checkpoint_location,
        "expectations": list(declaration.expectations),
        "kind": declaration.kind,
        "pipeline": declaration.pipeline,
        "side_tables": list(declaration.side_tables),
        "also": [{"table": each.table, "uri": each.uri, "sink": each.sink} for each in declaration.also],
        "tags": dict(declaration.tags),
        "sources": [_source(each) for each in value.backlog.sources] if value.backlog else [],
        "reset_allowed": declaration.reset_allowed,
        "request": (
            {
                "generation": desired.generation,
                "reason": desired.reason,
                "actor": desired.actor,
                "at": desired.requested_at,
            }
            if desired
            else None
        ),
        "started_at": observed.started_at if observed else None,
        "next_start_at": observed.next_start_at if observed else None,
        "failures": [_failure(failure) for failure in observed.failures] if observed else [],
        "progress": _progress(value.progress) if value.progress else None,
    }


def _failure(value: StreamFailure) -> Document:
    faults = [{"name": each.name, "cause": each.cause, "remedy": each.remedy} for each in recognise(value)]
    return fields_of(value) | {"faults": faults}


def _progress(value: Progress) -> Document:
    found = {name: held for name, held in fields_of(value).items() if name not in ("raw_json", "stream")}
    return found | {"expectations": [fields_of(each) for each in value.expectations]}


def job(value: Job) -> Document:
    """What a stream host was asked to compute, and how far it is."""
    return {
        "job_id": value.job_id,
        "kind": value.kind.value,
        "subject": value.subject,
        "state": value.state.value,
        "actor": value.actor,
        "reason": value.reason,
        "requested_at": value.requested_at,
        "started_at": value.started_at,
        "ended_at": value.ended_at,
        "host_id": value.host_id,
        "attempts": value.attempts,
        "phase": value.progress.phase or None,
        "tasks": {"done": value.progress.done, "total": value.progress.total},
        "cancel_requested": value.cancel_requested,
        "error": value.error or None,
        "hint": value.hint or None,
    }
