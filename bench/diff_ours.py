"""What is measured of a diff: Weir through the calls that its pages make.

Rule: a fresh `Lake` in an empty home, opened inside the clock.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb as duckdb  # Weir imports it late; here, as the peer's, before the clock starts

from backend.changes.answer import compare_rows
from backend.changes.commits import counted_by_feed
from backend.changes.model import DiffMethod, Question
from backend.changes.prepare import prepare
from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.settings import Settings, load_settings
from backend.sql.session import CancelToken
from bench.harness import Watch, memory

Answer = dict[str, int]
PAGE_ROWS = 100


def _lake_of(uri: str) -> tuple[Settings, TableRef]:
    """An empty home, and the table in the one root."""
    home, (root, _, name) = Path(os.environ["WEIR_HOME"]), uri.rpartition("/")
    settings = load_settings(home=home, lake={"roots": [root]})
    return settings, TableRef(uri, name, settings.roots[0])


def our_diff(watch: Watch, *, uri: str, first: int, second: int) -> dict[str, Any]:
    """What the Changes page shows by key: rows, changed cells by column, the commonest changes, the first rows."""
    settings, ref = _lake_of(uri)
    question = Question(ref, first, second, row_limit=PAGE_ROWS, method=DiffMethod.KEY_JOIN)
    with watch:
        found = compare_rows(prepare(Lake(settings), question), CancelToken())
    assert found.method is DiffMethod.KEY_JOIN and found.exact and found.unchanged is not None
    net = found.changes.net
    return {
        "rows": counts(net.inserted or 0, net.updated or 0, net.deleted or 0, found.unchanged),
        "changed_cells": dict(found.changes.changed_cells),
        "common": [[each.column, each.before, each.after, each.updates] for each in found.changes.common],
        "page": [[_values(row.before), _values(row.after)] for row in found.changes.rows],
    }


def our_peak(watch: Watch, *, uri: str, first: int, second: int) -> dict[str, Any]:
    """The same, with the most memory that the whole process held."""
    found = our_diff(watch, uri=uri, first=first, second=second)
    return found | {"peak_bytes": memory("VmHWM")}


def _values(row: Mapping[str, Any] | None) -> list[Any] | None:
    return None if row is None else list(row.values())


def our_log_only(watch: Watch, *, uri: str, first: int, second: int) -> str:
    """What the log tells: the plan, metadata, commits and files."""
    settings, ref = _lake_of(uri)
    with watch:
        found = prepare(Lake(settings), Question(ref, first, second))
    return found.plan.method.value


def our_log_again(watch: Watch, *, uri: str, first: int, second: int) -> str:
    """The same, of a `Lake` that was asked before."""
    settings, ref = _lake_of(uri)
    lake = Lake(settings)
    prepare(lake, Question(ref, first, second))
    with watch:
        found = prepare(lake, Question(ref, first, second))
    return found.plan.method.value


def our_feed(watch: Watch, *, uri: str, first: int, second: int) -> Answer:
    """The change feed by type, as the page tells it of each commit."""
    settings, ref = _lake_of(uri)
    with watch:
        lake = Lake(settings)
        commits = lake.history(ref, starting_version=first + 1, ending_version=second)
        found = counted_by_feed(lake, ref, commits, CancelToken())
    assert not any(each.is_reported for each in found)
    updated = sum(each.updated or 0 for each in found)
    rows = {
        "delete": sum(each.deleted or 0 for each in found),
        "insert": sum(each.inserted or 0 for each in found),
        "update_postimage": updated,
        "update_preimage": updated,
    }
    return {kind: count for kind, count in rows.items() if count}


def counts(inserted: Any, updated: Any, deleted: Any, unchanged: Any) -> Answer:
    return {"inserted": inserted, "updated": updated, "deleted": deleted, "unchanged": unchanged}
