"""Whether row tracking can tell which rows of two versions are one and the same.

Rule: pure, from the log alone. A row's id is written beside it once it was moved (in a hidden column), and before that
follows from its file: the file's base row id and the row's place in it (PROTOCOL.md, "Row Tracking").
"""

from backend.diff.states import Sides
from backend.lake.model import Snapshot

ENABLED = "delta.enableRowTracking"
ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
ROW_ID = "_row_id"  # the ids as a column of the rows compared


def why_no_row_ids(sides: Sides) -> str | None:
    """Why rows cannot be paired by their ids; None where they can."""
    if not sides.is_one_table:
        return "two tables number their rows apart"
    off = [f"v{each.version}" for each in _by_age(sides) if not _is_tracked(each)]
    if off:
        return f"row tracking is off at {' and '.join(off)}"
    if len({each.metadata.configuration.get(ID_COLUMN) for each in (sides.first, sides.second)}) > 1:
        return "row tracking was set up anew in between: rows got other ids"
    if ROW_ID in sides.columns:
        return f"the table has a column {ROW_ID} of its own"
    return None


def why_no_changes(sides: Sides) -> str | None:
    """Why Spark's CHANGES clause cannot answer; None where it can."""
    if (reason := why_no_row_ids(sides)) is not None:
        return reason
    return None if sides.schema.is_empty else "the schema changed in between"


def _is_tracked(snapshot: Snapshot) -> bool:
    return snapshot.metadata.configuration.get(ENABLED, "").lower() == "true"


def _by_age(sides: Sides) -> list[Snapshot]:
    return sorted((sides.first, sides.second), key=lambda each: each.version)
