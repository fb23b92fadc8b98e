"""The difference of two versions as frames, key figures and one chart; and changed rows, before and after side by side.

Rule: pure; net (state to state) and gross (commit by commit) are named each time and never added to one another. A
changed cell is marked by a sign as well as by colour, and only columns that changed are shown twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pyarrow as pa
from pandas.io.formats.style import Styler

from app.changes.text import changed_share
from app.columns import Column, Columns
from app.ui.view.commits import writer_text
from app.ui.view.explanation import value_text
from app.ui.view.frames import cell_text
from app.ui.view.theme import Mode, categories, operation_text, template_name
from app.ui.view.words import KeyFigure
from backend.changes.cache import LogPart
from backend.changes.model import CommitChanges, RowChange, RowKind, VersionDiff
from backend.format import (
    UNKNOWN,
    bytes_text,
    count_text,
    percent,
    signed,
    signed_bytes,
    things,
    utc_text,
)
from backend.lake.model import Commit
from backend.search.key_history import KeyStep

MOST_COLUMNS = 60  # of a table side by side; exports have them all
MOST_CELL = 500  # characters of one value
KINDS = {  # a sign with the word, and how it is coloured
    RowKind.INSERT: ("+ insert", "background-color: rgba(0, 158, 115, 0.22)"),
    RowKind.UPDATE: ("≠ update", "background-color: rgba(230, 159, 0, 0.22)"),
    RowKind.DELETE: ("− delete", "background-color: rgba(213, 94, 0, 0.22)"),
}
CHANGED_MARK = "● "
CHANGED_STYLE = "background-color: rgba(230, 159, 0, 0.28); font-weight: 600"


@dataclass(frozen=True, slots=True)
class RowTable:
    """The frame to show, and which of its cells hold a changed value, as (row number, column name). `num_left_out`: of
    columns that do not fit; `right`: those of numbers that are sent as text."""

    frame: pd.DataFrame
    changed: tuple[tuple[int, str], ...]
    num_left_out: int
    right: tuple[str, ...]


def build_row_table(diff: VersionDiff, rows: Sequence[RowChange]) -> RowTable:
    """The rows in the order given: kind, key, then changed columns as before and after, then the rest once."""
    key, schema = diff.key.columns if diff.key else (), diff.changes.arrow_schema
    changed = {name for row in rows for name in row.changed} - set(key)
    twice = [name for name in diff.changes.columns if name in changed][: MOST_COLUMNS // 2]
    once = [name for name in diff.changes.columns if name not in changed and name not in key]
    once = once[: MOST_COLUMNS - 2 * len(twice)]
    newest = [row.before if row.after is None else row.after for row in rows]
    sides = {"before": [row.before for row in rows], "after": [row.after for row in rows]}
    columns = [
        *((name, name, newest) for name in key),
        *((f"{name} · {side}", name, values) for name in twice for side, values in sides.items()),
        *((name, name, newest) for name in once),
    ]
    data: dict[str, Any] = {"Change": [KINDS[row.kind][0] for row in rows]}
    for heading, name, states in columns:
        data[heading] = _series(schema.field(name).type, [state and state.get(name) for state in states])
    if any(row.set_apart for row in rows):
        data["Set apart"] = [row.set_apart.value if row.set_apart else "" for row in rows]
    if any(row.copies > 1 for row in rows):
        data["Copies"] = [row.copies for row in rows]
    return RowTable(
        pd.DataFrame(data),
        tuple((at, f"{name} · {side}") for at, row in enumerate(rows)
              for name in row.changed if name in twice for side in sides),
        len(set(diff.changes.columns) - {*key, *twice, *once}),
        tuple(heading for heading, name, _ in columns if pa.types.is_decimal(schema.field(name).type)),
    )  # fmt: skip


def build_step_table(
    diff: VersionDiff, steps: Sequence[KeyStep], commits: Mapping[int, Commit], streams: Mapping[str, str]
) -> RowTable:
    """The steps of one key, newest first, each with its commit; then as `build_row_table`. `streams`: the names of
    query ids."""
    newest = sorted(steps, key=lambda step: -step.version)
    table = build_row_table(diff, [step.change for step in newest])
    found = [commits.get(step.version) for step in newest]
    table.frame.insert(0, "Version", [f"v{step.version}" for step in newest])
    table.frame.insert(1, "At", [utc_text(each.committed_at) if each else UNKNOWN for each in found])
    table.frame.insert(2, "Operation", [each.operation or "unnamed" if each else UNKNOWN for each in found])
    table.frame.insert(3, "By", [writer_text(each, streams) if each else UNKNOWN for each in found])
    if any(step.rows and max(step.rows) > 1 for step in steps):
        counts = [f"{step.rows[0]:,} → {step.rows[1]:,}" if step.rows else UNKNOWN for step in newest]
        table.frame.insert(4, "Rows with this key", counts)
    return table


def style(table: RowTable) -> Styler:
    """The table with its changed cells coloured and marked, for `st.dataframe`. Null is "null", not an empty text."""
    styles = dict(KINDS.values())
    styler = table.frame.style.map(lambda text: styles.get(text, ""), subset=["Change"])
    styler = styler.format(str, na_rep="null", subset=[name for name in table.frame.columns if name != "Change"])
    for name in {name for _, name in table.changed}:
        where = pd.IndexSlice[[at for at, changed in table.changed if changed == name], [name]]
        styler = styler.map(lambda _: CHANGED_STYLE, subset=where)
        if name.endswith(" · after"):
            styler = styler.format(lambda value: f"{CHANGED_MARK}{value}", na_rep=f"{CHANGED_MARK}null", subset=where)
    return styler


def _series(kind: pa.DataType, values: list[Any]) -> pd.Series:
    """So that numbers sort as numbers; nested and decimal values as text."""
    for is_kind, dtype in (
        (pa.types.is_integer, "Int64"), (pa.types.is_boolean, "boolean"), (pa.types.is_floating, "Float64"),
    ):  # fmt: skip
        if is_kind(kind):
            return pd.Series(values, dtype=dtype)
    texts = map(cell_text, values)
    return pd.Series(
        [text if text is None or len(text) <= MOST_CELL else f"{text[:MOST_CELL]}… ({len(text):,} characters)"
         for text in texts], dtype="object",
    )  # fmt: skip


# figures and frames ---------------------------------------------------------------------------------------------------


MAX_BARS = 200
MOST_TICKS = 25
GREEN, VERMILLION, BLUE = 2, 4, 0  # places in the palette


def net_figures(diff: VersionDiff, *, is_pending: bool = False) -> list[KeyFigure]:
    """Net rows and files, as key figures; `is_pending`: rows are not compared yet."""
    net, files, share = diff.changes.net, diff.log.files, changed_share(diff)
    no_key = "Without a key an update cannot be told from a delete and an insert."
    updated = no_key if net.updated is None else "Rows that both states have, with other values"
    of = "Not known without all counts" if share is None else "Of all rows of either state"
    moved = [signed(count) if count else count_text(count) for count in (net.inserted, net.deleted and -net.deleted)]
    rows = [
        ("Inserted (net)", moved[0], "Rows that only the second state has"),
        ("Updated (net)", count_text(net.updated), updated),
        ("Deleted (net)", moved[1], "Rows that only the first state has"),
        ("Rows changed", percent(share), of),
    ]
    pending = "Rows are not compared yet." if is_pending else ""
    more, size = f"+{count_text(files.added)} −{count_text(files.removed)}", files.bytes_added - files.bytes_removed
    return [
        *(KeyFigure(label, value, pending or meaning) for label, value, meaning in rows),
        KeyFigure("Files", more, "Data files that only one of the states has", note=signed_bytes(size)),
    ]


def build_commit_figure(diff: VersionDiff, *, mode: Mode = "light") -> go.Figure | None:
    """Rows changed by each commit (gross): inserts and updates upwards, deletes downwards. None without counts."""
    known = sorted((each for each in diff.commits if each.inserted is not None), key=lambda each: each.commit.version)
    if not known:
        return None
    size = -(-len(known) // MAX_BARS)
    groups = [known[start : start + size] for start in range(0, len(known), size)]
    labels = [_group_text(group) for group in groups]
    figure = go.Figure()
    colours = categories(mode)
    for name, colour, sign in (("inserted", GREEN, 1), ("updated", BLUE, 1), ("deleted", VERMILLION, -1)):
        heights = [sum(getattr(each, name) or 0 for each in group) for group in groups]
        figure.add_bar(
            x=[group[0].commit.version for group in groups],
            y=[sign * height for height in heights],
            customdata=list(zip(labels, heights, strict=True)),
            name=name,
            marker={"color": colours[colour], "line": {"width": 0}},
            hovertemplate="%{customdata[0]}<br>%{customdata[1]:,} rows " + name + "<extra></extra>",
        )
    busiest = max(groups, key=lambda g: sum((c.inserted or 0) + (c.updated or 0) + (c.deleted or 0) for c in g))
    title = f"Rows changed per commit (gross): most in {_group_text(busiest)}"
    figure.update_layout(
        template=template_name(mode), title={"text": title}, barmode="relative", height=280, bargap=0.2
    )
    figure.update_yaxes(title="rows (deleted below zero)")
    step = -(-len(groups) // MOST_TICKS)
    shown = [group[0].commit.version for group in groups[::step]]
    return figure.update_xaxes(title="version", tickvals=shown, ticktext=[f"v{version}" for version in shown])


def cell_columns(diff: VersionDiff) -> list[Column[tuple[str, int]]]:
    """Of a column that so many updates touch the commonest changes."""
    shared: dict[str, list[str]] = {}
    for each in diff.changes.common:
        text = f"{value_text(each.before)} → {value_text(each.after)} ({count_text(each.updates)})"
        shared.setdefault(each.column, []).append(text)
    updated = diff.changes.net.updated
    return [
        Column("Column", itemgetter(0)),
        Column("Updates", itemgetter(1), "count"),
        Column("Share of updates", lambda touched: touched[1] / updated if updated else None, "percent"),
        Column("Commonest changes", lambda touched: " · ".join(shared.get(touched[0], ["each different"])),
               help="That two or more updates share", width="large"),
    ]  # fmt: skip


def _bytes_text(each: CommitChanges) -> str:
    added, removed = each.commit.metrics.bytes_added, each.commit.metrics.bytes_removed
    return signed_bytes(None if added is None or removed is None else added - removed)


REWRITES: Columns[CommitChanges] = (
    Column("Version", lambda each: each.commit.version, "version"),
    Column("Operation", lambda each: operation_text(each.commit.operation)),
    Column("Files removed", lambda each: each.commit.metrics.files_removed, "count"),
    Column("Files added", lambda each: each.commit.metrics.files_added, "count"),
    Column("Bytes", _bytes_text),
)


def file_figures(part: LogPart) -> list[KeyFigure]:
    """Files, bytes and deletion vectors of one state against the other."""
    files, by_commit = part.outline.log.files, part.outline.log.rewritten
    vectors = signed(files.vectors_added - files.vectors_removed)
    marked = things(files.new_deletion_vectors, "file") + " marked anew" if files.new_deletion_vectors else ""
    rewritten = "Files that commits replaced without changing a row (dataChange is false)"
    if by_commit is None:
        rewritten = "Not known: commits in between are gone, or these are two tables"
    num_rewritten = None if by_commit is None else sum(by_commit.values())
    figures = [
        ("Files added", count_text(files.added), "Only the second state has them", bytes_text(files.bytes_added)),
        ("Files removed", count_text(files.removed), "Only the first state has them", bytes_text(files.bytes_removed)),
        ("Bytes", signed_bytes(files.bytes_added - files.bytes_removed), "Added less removed", ""),
        ("Rows", signed(files.more_rows), "By statistics: those of added files less those of removed ones", ""),
        ("Deletion vectors", vectors, "Files with rows marked as deleted: added less removed", marked),
        ("Only rewritten (gross)", count_text(num_rewritten), rewritten, ""),
    ]
    return [KeyFigure(*figure) for figure in figures]


def _group_text(group: Sequence[CommitChanges]) -> str:
    first, last = group[0].commit, group[-1].commit
    if first.version == last.version:
        return f"v{first.version} {first.operation or ''}".strip()
    return f"v{first.version}–v{last.version}"
