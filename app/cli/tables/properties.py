"""`weir properties`: how a table is configured at a version, and what differs from another.

Rule: JSON and the human form come from the same value; a comparison always reads from the older to the newer version.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app.cli.output import Document, Shapes, print_json, print_table, say
from app.cli.tables.history import COMMITS
from app.cli.tables.lake import at_version
from app.ui.view.commits import change_text, changes_sentence, meaning
from backend.lake.model import Snapshot
from backend.lake.table.metadata_diff import InForce, TableChange, compare
from backend.lake.table.properties import PropertyRow, explain_features, explain_properties, ownership


@dataclass(frozen=True, slots=True)
class Comparison:
    from_version: int
    to_version: int
    changes: Sequence[TableChange]


def properties(name: str, at: str | None, compare_with: str | None, *, as_json: bool) -> int:
    snapshot = at_version(name, at)
    comparison = None if compare_with is None else _comparison(snapshot, at_version(name, compare_with))
    if as_json:
        print_json(_document(snapshot) | ({"compare": comparison} if comparison else {}), _SHAPES)
    elif comparison:
        _print_comparison(comparison)
    else:
        _print_properties(snapshot)
    return 0


def _comparison(snapshot: Snapshot, other: Snapshot) -> Comparison:
    old, new = sorted((snapshot, other), key=lambda one: one.version)
    changes = compare(InForce(old.metadata, old.protocol), InForce(new.metadata, new.protocol))
    return Comparison(old.version, new.version, changes)


def _document(snapshot: Snapshot) -> Document:
    return {
        "version": snapshot.version,
        "properties": explain_properties(snapshot.metadata),
        "features": explain_features(snapshot.protocol),
        "protocol": snapshot.protocol,
        "ownership": ownership(snapshot.metadata),
    }


def _change(change: TableChange) -> Document:
    return COMMITS[TableChange](change) | {"meaning": meaning(change) or None}


_SHAPES: Shapes = {TableChange: _change}


def _print_comparison(value: Comparison) -> None:
    say(f"v{value.from_version} → v{value.to_version} · {changes_sentence(value.changes)}", style="bold")
    if value.changes:
        print_table(("change", "meaning"), ((change_text(change), meaning(change)) for change in value.changes))


def _print_properties(snapshot: Snapshot) -> None:
    rows, features = explain_properties(snapshot.metadata), explain_features(snapshot.protocol)
    print_table(
        ("property", "value", "default", "meaning"),
        (_row(row) for row in sorted(rows, key=lambda row: not row.is_set)),
    )
    say()
    print_table(
        ("feature", "reader", "writer", "meaning"),
        ((f.name, "yes" if f.in_reader else "", "yes" if f.in_writer else "", f.meaning) for f in features),
    )


def _row(row: PropertyRow) -> tuple[str, ...]:
    said = f"! {row.problem} {row.suggestion or ''}".strip() if row.problem else row.meaning
    return (row.key, "–" if row.value is None else row.value, "–" if row.default is None else row.default, said)
