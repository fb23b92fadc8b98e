"""What `--json` prints of each value.

Rule: pure; keys are a contract with scripts: add, never rename.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from app.cli.output import fields_of
from backend.diff.values import json_value

# Types alone: a command that prints a commit must not load what compares rows.
if TYPE_CHECKING:
    from backend.diff.model import CommitChanges, VersionDiff
    from backend.expectations.model import Judgement
    from backend.health.model import AttentionGroup, AttentionItem, TableHealth
    from backend.jobs.model import Job
    from backend.lake.files.file_sizes import FileDistribution
    from backend.lake.find import Found
    from backend.lake.history.metadata_changes import TableChange
    from backend.lake.model import Commit, Protocol, Snapshot, TableCard, UnreadableTable
    from backend.lake.table.metadata_diff import FieldState
    from backend.lake.table.schema import Column
    from backend.streams.backlog.model import Backlog, SourceBacklog
    from backend.streams.graph import Graph
    from backend.streams.latency import LayerLatency
    from backend.streams.overrides import Setting
from backend.streams.backlog.model import waiting
from backend.streams.faults import recognise
from backend.streams.model import Progress, StreamFailure, StreamStatus

Document = dict[str, Any]


def card(value: TableCard | UnreadableTable) -> Document:
    from backend.lake.model import UnreadableTable

    named = {"name": value.ref.name, "uri": value.ref.uri}
    if isinstance(value, UnreadableTable):
        return named | {
            "layer": value.ref.layer,
            "reason": value.reason,
            "hint": value.hint,
            "version": value.version,
            "last_commit_at": value.last_commit_at,
            "last_operation": value.last_operation,
        }
    return named | {
        "layer": value.ref.layer,
        "version": value.version,
        "num_rows": value.num_rows,
        "num_files": value.num_files,
        "size_bytes": value.size_bytes,
        "small_files": value.small_files,
        "files_after_merge": value.files_after_merge,
        "last_commit_at": value.last_commit_at,
        "last_operation": value.last_operation,
        "owner": value.owner,
        "classification": value.classification,
    }


def snapshot(value: Snapshot, schema: tuple[Column, ...]) -> Document:
    from backend.lake.table.schema import constraints

    return {
        "name": value.ref.name,
        "uri": value.ref.uri,
        "layer": value.ref.layer,
        "version": value.version,
        "committed_at": value.committed_at,
        "num_rows": value.num_rows,
        "num_files": value.num_files,
        "size_bytes": value.size_bytes,
        "table_id": value.metadata.id,
        "description": value.metadata.description,
        "created_at": value.metadata.created_at,
        "partition_columns": list(value.metadata.partition_columns),
        "protocol": protocol(value.protocol),
        "schema": [_schema_field(field) for field in schema],
        "constraints": [{"name": each.name, "expression": each.expression} for each in constraints(value.metadata)],
        "findings": list(value.findings),
    }


def protocol(value: Protocol) -> Document:
    return {
        "min_reader_version": value.min_reader_version,
        "min_writer_version": value.min_writer_version,
        "reader_features": list(value.reader_features),
        "writer_features": list(value.writer_features),
    }


def _schema_field(value: Column) -> Document:
    return {
        "path": value.path,
        "type": value.type,
        "nullable": value.nullable,
        "comment": value.comment,
        "is_partition": value.is_partition,
        "default": value.default,
        "generated_as": value.generated_as,
        "identity": asdict(value.identity) if value.identity else None,
        "field_id": value.field_id,
        "physical_name": value.physical_name,
        "type_changes": [asdict(change) for change in value.widened],
    }


def commit(value: Commit, changes: Sequence[TableChange] = ()) -> Document:
    found: Document = {
        "version": value.version,
        "committed_at": value.committed_at,
        "operation": value.operation,
        "user": value.user,
        "engine": value.engine,
        "parameters": value.parameters,
        "metrics": fields_of(value.metrics),
        "raw_metrics": value.raw_metrics,
        "user_metadata": value.user_metadata,
        "job": value.job,
        "read_version": value.read_version,
        "isolation_level": value.isolation_level,
        "is_blind_append": value.is_blind_append,
        "stream": None,
        "problem": value.problem,
        "changes": [table_change(change) for change in changes],
    }
    if value.origin:
        origin = value.origin
        found["stream"] = {
            "name": origin.stream,
            "query_id": origin.query_id,
            "run_id": origin.run_id,
            "batch_id": origin.batch_id,
        }
    return found


def table_change(value: TableChange) -> Document:
    """`before` null: added; `after` null: removed; kind "unknown": what held before is not in the log."""
    return {
        "kind": value.kind.value,
        "subject": value.subject,
        "trait": value.trait or None,
        "before": value.before,
        "after": value.after,
    }


def files(version: int, value: FileDistribution) -> Document:
    return {
        "version": version,
        "num_files": value.num_files,
        "size_bytes": value.size_bytes,
        "target_bytes": value.target.bytes,
        "target_source": value.target.source,
        "small_limit_bytes": value.small_limit_bytes,
        "small_files": value.small_files,
        "median_bytes": value.median_bytes,
        "histogram": [
            {"from_bytes": b.from_bytes, "to_bytes": b.to_bytes, "files": b.files, "bytes": b.bytes}
            for b in value.buckets
        ],
        "partitions": [
            {
                "partition": p.partition,
                "num_files": p.num_files,
                "size_bytes": p.size_bytes,
                "small_files": p.small_files,
                "num_rows": p.num_rows,
            }
            for p in value.partitions
        ],
    }


def diff(value: VersionDiff) -> Document:
    from backend.diff.export import row_document

    return {
        "name": value.ref.name,
        "uri": value.ref.uri,
        "from_version": value.from_version,
        "to_version": value.to_version,
        "method": value.method.value,
        "reasons": list(value.reasons),
        "hint": value.hint or None,
        "exact": value.exact,
        "partial": asdict(value.partial) if value.partial else None,
        "key": {"columns": list(value.key.columns), "source": value.key.source.value} if value.key else None,
        "first_covered_version": value.first_covered_version,
        "net": {
            "inserted": value.net.inserted,
            "updated": value.net.updated,
            "deleted": value.net.deleted,
            "unchanged": value.unchanged,
        },
        "num_rows": {"from": value.num_rows[0], "to": value.num_rows[1]},
        "against": {"name": value.against.name, "uri": value.against.uri} if value.against else None,
        "set_apart": fields_of(value.apart),
        "commits": [_commit_changes(changes) for changes in value.commits],
        "changed_cells": dict(value.changed_cells),
        "common_changes": [
            {"column": c.column, "before": json_value(c.before), "after": json_value(c.after), "updates": c.updates}
            for c in value.common
        ],
        "explanation": explanation(value),
        "rows": [row_document(row) for row in value.rows],
        "truncated": value.truncated,
        "schema": _schema_diff(value),
        "properties": [{"key": p.key, "before": p.before, "after": p.after} for p in value.properties],
        "files": fields_of(value.files)
        | {"rewritten": None if value.rewritten is None else sum(value.rewritten.values())},
    }


def explanation(value: VersionDiff) -> Document:
    """What stands out; `by` of a shift in seconds or days where `unit` says so."""
    found = value.explanation
    return {
        "done": [
            asdict(each)
            | {"effect": each.effect.value, "before": json_value(each.before), "after": json_value(each.after)}
            for each in found.done
        ],
        "common": [
            {
                "kind": each.kind.value,
                "of": each.of,
                "rows": each.rows,
                "others": each.others,
                "traits": [
                    {
                        "column": trait.column,
                        "values": None if trait.bounds else json_value(trait.values),
                        "bounds": json_value(trait.bounds),
                        "rows": trait.rows,
                        "others": trait.others,
                    }
                    for trait in each.traits
                ],
            }
            for each in found.common
        ],
        "population": asdict(found.population) if found.population else None,
    }


def _commit_changes(value: CommitChanges) -> Document:
    counts: Document = {"inserted": value.inserted, "updated": value.updated, "deleted": value.deleted}
    counts["source"] = "writer" if value.is_reported else "change_feed"
    return commit(value.commit) | {"changes": counts}


def _schema_diff(value: VersionDiff) -> Document:
    schema = value.schema
    return {
        "added": [_field(field) for field in schema.added],
        "dropped": [_field(field) for field in schema.dropped],
        "renamed": [{"before": before, "after": after} for before, after in schema.renamed],
        "changed": [{"path": c.path, "what": c.what, "before": c.before, "after": c.after} for c in schema.changed],
        "partitioning": (
            {"before": list(schema.partitioning[0]), "after": list(schema.partitioning[1])}
            if schema.partitioning
            else None
        ),
    }


def _field(value: FieldState) -> Document:
    return {"path": value.path, "type": value.type, "nullable": value.nullable, "comment": value.comment}


def health(value: TableHealth, *, whole: bool) -> Document:
    """`whole` adds the trend over versions."""
    found: Document = {
        "name": value.ref.name,
        "uri": value.ref.uri,
        "version": value.version,
        "severity": value.severity.value,
        "num_files": value.num_files,
        "size_bytes": value.size_bytes,
        "small_files": value.small_files,
        "small_share": value.small_share,
        "rule": fields_of(value.rule),
        "last_optimize": {"version": value.last_optimize.version, "at": value.last_optimize.at}
        if value.last_optimize
        else None,
        "last_vacuum": {"version": value.last_vacuum.version, "at": value.last_vacuum.at}
        if value.last_vacuum
        else None,
        "log": fields_of(value.log) | {"commits_since_checkpoint": value.log.commits_since_checkpoint},
        "offenders": [
            {"kind": o.kind, "name": o.name, "small_files": o.small_files, "files": o.files, "bytes": o.bytes}
            for o in value.offenders
        ],
        "recommendations": [
            {"subject": r.subject, "severity": r.severity.value, "finding": r.finding, "next_step": r.next_step}
            for r in value.recommendations
        ],
    }
    if whole:
        found["trend_truncated"] = value.trend_truncated
        found["trend"] = [fields_of(point) | {"small_share": point.small_share} for point in value.trend]
    return found


def attention_item(value: AttentionItem) -> Document:
    return {"kind": value.kind} | fields_of(value)


def attention_group(value: AttentionGroup) -> Document:
    return {
        "severity": value.severity.value,
        "cause": value.cause.value,
        "kind": value.cause.kind,
        "what": value.what,
        "next_step": value.next_step,
        "subjects": [item.subject for item in value.items],
    }


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


def found_table(value: Found) -> Document:
    matches = value.matches()
    return {
        "name": value.table.ref.name,
        "uri": value.table.ref.uri,
        "layer": value.table.ref.layer,
        "matches": [
            {"where": match.where.name.lower(), "subject": match.subject, "text": match.text} for match in matches
        ],
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
    from backend.streams.model import StreamState

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
