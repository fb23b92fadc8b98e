"""A table's schema as people read it: an indented tree, every column's traits, and what its statistics say.

Rule: pure; a bound that may not be a value has a sign (≥, ≤), and what is known for some files only says so.
"""

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from backend.format import count_text, cut, percent, things, value_text
from backend.lake.files.stats import ColumnTotals, StatKind
from backend.lake.table.schema import Column, Constraint, Identity, TypeChange

MOST_TYPE = 200  # characters of a type
INDENT = "\u2003"  # an em space: a list would strip plain ones
_ALWAYS = ("Column", "Type", "Nullable")
_STATISTICS = ("Min", "Max", "Null share")


def matching(columns: Sequence[Column], words: str) -> list[Column]:
    """Columns whose path, type or comment holds every word, each with those it lies in."""
    wanted = words.lower().split()
    if not wanted:
        return list(columns)
    paths = {c.path for c in columns if all(word in f"{c.path} {c.type} {c.comment or ''}".lower() for word in wanted)}
    around = {path[:place] for path in paths for place, letter in enumerate(path) if letter == "."}
    return [c for c in columns if c.path in paths or c.path in around]


def schema_sentence(columns: Sequence[Column]) -> str:
    """ "12 columns (3 not null), 4 fields inside, partitioned by day, country"."""
    top = [column for column in columns if column.depth == 0]
    required = sum(not column.nullable for column in top)
    keys = [column.path for column in top if column.is_partition]
    text = things(len(top), "column") + (f" ({count_text(required)} not null)" if required else "")
    inside = len(columns) - len(top)
    if inside:
        text += f", {things(inside, 'field')} inside"
    return f"{text}, partitioned by {', '.join(keys)}" if keys else f"{text}, not partitioned"


def shown_sentence(shown: int, start: int, matching_lines: int, total: int) -> str:
    """What part of the schema is listed, nested fields counted too; empty when it is all of it."""
    if shown == total:
        return ""
    part = f"Lines {start + 1:,}–{start + shown:,} of {count_text(matching_lines)}" if shown < matching_lines else ""
    if matching_lines == total:
        return f"{part}."
    return (
        f"{part} that match, of {count_text(total)}."
        if part
        else f"{matching_lines:,} of {count_text(total)} lines match."
    )


def schema_frame(columns: Iterable[Column], totals: Mapping[str, ColumnTotals]) -> pd.DataFrame:
    """One row a field, nested ones indented under their parent; traits that no column has are left out."""
    rows = [_row(column, totals.get(column.path)) for column in columns]
    frame = pd.DataFrame(rows, columns=list(_row(_NOBODY, None)))
    always = {*_ALWAYS, *(_STATISTICS if totals else ())}
    return frame.drop(columns=[name for name in frame.columns if name not in always and not frame[name].any()])


def constraints_frame(constraints: Iterable[Constraint]) -> pd.DataFrame:
    rows = [{"Constraint": constraint.name, "Every row satisfies": constraint.expression} for constraint in constraints]
    return pd.DataFrame(rows, columns=["Constraint", "Every row satisfies"])


def statistics_sentence(totals: Iterable[ColumnTotals]) -> str:
    """What the statistics shown are of, and what their signs mean."""
    totals = list(totals)
    if not totals:
        return "None of these columns has statistics."
    files = totals[0].files
    text = f"From the statistics of {things(files, 'file')}; no data was read."
    if any(column.lowest_sign or column.highest_sign for column in totals):
        text += (
            " ≥, ≤ and ≈ are bounds: text and times are cut, NaN is left out, rows were deleted, or files do not say."
        )
    if any(0 < _least_known(column) < files for column in totals):
        text += " Where not all files say, the true bounds may lie beyond."
    return text


def _row(column: Column, totals: ColumnTotals | None) -> dict[str, str]:
    return {
        "Column": INDENT * 2 * column.depth + column.name,
        "Type": column.kind
        if column.kind == "struct"
        else cut(column.declared_type, MOST_TYPE),  # what is inside stands below it
        "Nullable": "yes" if column.nullable else "no",
        "Partition": "partition key" if column.is_partition else "",
        **_statistics(totals),
        "Comment": column.comment or "",
        "Default": column.default or "",
        "Generated as": column.generated_as or "",
        "Identity": identity_text(column.identity),
        "Widened": "; ".join(type_change_text(change) for change in column.widened),
        "Id": "" if column.field_id is None else str(column.field_id),
        "Name in files": column.physical_name or "",
    }


def identity_text(identity: Identity | None) -> str:
    """ "from 1 by 1, last 4711"."""
    if identity is None:
        return ""
    last = "none given yet" if identity.high_water_mark is None else f"last {identity.high_water_mark}"
    given = ", values may be given" if identity.allows_explicit else ""
    return f"from {identity.start} by {identity.step}, {last}{given}"


def type_change_text(change: TypeChange) -> str:
    """ "int → bigint at v7"."""
    inside = f"{change.inside}: " if change.inside else ""
    at = "" if change.version is None else f" at v{change.version}"
    return f"{inside}{change.before} → {change.after}{at}"


def _statistics(totals: ColumnTotals | None) -> dict[str, str]:
    if totals is None:
        return dict.fromkeys((*_STATISTICS, "Known for"), "")
    loose = bool(totals.nulls) and not totals.is_tight  # deleted rows count: among those left the share may be higher
    return {
        "Min": f"{totals.lowest_sign} {value_text(totals.lowest)}".lstrip(),
        "Max": f"{totals.highest_sign} {value_text(totals.highest)}".lstrip(),
        "Null share": f"≈ {percent(totals.null_share)}" if loose else percent(totals.null_share),
        "Known for": _known_text(totals),
    }


def _known_text(totals: ColumnTotals) -> str:
    files, bounds, nulls = totals.files, totals.files_with_bounds, totals.files_with_nulls
    if totals.kind is StatKind.OTHER:
        bounds = nulls
    if bounds == nulls:
        return "" if bounds == files else f"{bounds:,} of {things(files, 'file')}"
    return f"bounds {bounds:,}, nulls {nulls:,} of {things(files, 'file')}"


def _least_known(totals: ColumnTotals) -> int:
    return totals.files_with_nulls if totals.kind is StatKind.OTHER else totals.files_with_bounds


_NOBODY = Column("", ("",), "", "", nullable=True, physical=())
