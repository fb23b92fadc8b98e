"""What `--json` prints of tables, versions and their health.

Rule: pure; keys are a contract with scripts: add, never rename.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from app.cli.output import Document, fields_of
from backend.sql.values import json_value

# Types alone: a command that prints a commit must not load what compares rows.
if TYPE_CHECKING:
    from backend.changes.model import CommitChanges, VersionDiff
    from backend.health.model import AttentionGroup, AttentionItem, TableHealth
    from backend.lake.files.file_sizes import FileDistribution
    from backend.lake.find import FoundTable
    from backend.lake.history.metadata_changes import TableChange
    from backend.lake.model import Commit, Protocol, Snapshot, TableCard, UnreadableTable
    from backend.lake.table.metadata_diff import FieldState
    from backend.lake.table.schema import Column


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
    from backend.changes.export import row_document

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


def found_table(value: FoundTable) -> Document:
    matches = value.matches()
    return {
        "name": value.table.ref.name,
        "uri": value.table.ref.uri,
        "layer": value.table.ref.layer,
        "matches": [
            {"where": match.where.name.lower(), "subject": match.subject, "text": match.text} for match in matches
        ],
    }
