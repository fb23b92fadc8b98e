"""What `--json` prints of tables, versions and their health.

Rule: pure; keys are a contract with scripts: add, never rename.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from app.cli.output import Document, fields_of
from app.cli.tables.history import commit_document
from backend.sql.values import json_value

# Types alone: a command that prints a commit must not load what compares rows.
if TYPE_CHECKING:
    from backend.changes.model import CommitChanges, VersionDiff
    from backend.lake.table.metadata_diff import FieldState


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
    return commit_document(value.commit) | {"changes": counts}


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
