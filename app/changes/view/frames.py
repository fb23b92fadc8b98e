"""The difference of two versions in frames, key figures and one chart.

Rule: pure; net (state to state) and gross (commit by commit) are named each time and never added to one another.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

import pandas as pd
import plotly.graph_objects as go

from app.changes.text import changed_share, rewrites
from app.changes.view.rows import cell_text
from app.ui.view.commits import writer_text
from app.ui.view.frames import ages
from app.ui.view.theme import Mode, categories, operation_text, template_name
from app.ui.view.words import KeyFigure
from backend.changes.cache import LogPart
from backend.changes.model import CommitChanges, DiffMethod, VersionDiff
from backend.format import bytes_text, count_text, cut, percent, signed, signed_bytes, things, utc_text
from backend.lake.history.history import predicate_text
from backend.lake.table.metadata_diff import PropertyChange, SchemaDiff

MAX_BARS = 200
MOST_TICKS = 25
GROSS_COLUMNS = ("Inserted", "Updated", "Deleted")
GREEN, VERMILLION, BLUE = 2, 4, 0  # places in the palette


def net_figures(diff: VersionDiff, *, is_pending: bool = False) -> list[KeyFigure]:
    """Net rows and files, as key figures; `is_pending`: rows are not compared yet."""
    files, pending = diff.log.files, "Rows are not compared yet." if is_pending else ""
    no_key = "Without a key an update cannot be told from a delete and an insert."
    updated = "Rows that both states have, with other values" if diff.changes.net.updated is not None else no_key
    share = changed_share(diff)
    return [
        KeyFigure(
            "Inserted (net)", _moved(diff.changes.net.inserted, 1), pending or "Rows that only the second state has"
        ),
        KeyFigure("Updated (net)", count_text(diff.changes.net.updated), pending or updated),
        KeyFigure(
            "Deleted (net)", _moved(diff.changes.net.deleted, -1), pending or "Rows that only the first state has"
        ),
        KeyFigure(
            "Rows changed",
            percent(share),
            pending or ("Of all rows of either state" if share is not None else "Not known without all counts"),
        ),
        KeyFigure(
            "Files",
            f"+{count_text(files.added)} −{count_text(files.removed)}",
            "Data files that only one of the states has",
            note=signed_bytes(files.bytes_added - files.bytes_removed),
        ),
    ]


def build_commit_frame(
    commits: Sequence[CommitChanges], *, now: datetime, streams: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """The commits in between, newest first, with what each did to rows (gross) and files.

    `streams` names the stream of a query id.
    """
    listed = sorted(commits, key=lambda each: each.commit.version, reverse=True)
    return pd.DataFrame(
        {
            "Version": [each.commit.version for each in listed],
            "When": ages([each.commit.committed_at for each in listed], now),
            "Operation": [operation_text(each.commit.operation) for each in listed],
            "By": [cut(writer_text(each.commit, streams or {})) for each in listed],
            "Condition": [cut(predicate_text(each.commit)) or "–" for each in listed],
            "Inserted": pd.array([each.inserted for each in listed], dtype="Int64"),
            "Updated": pd.array([each.updated for each in listed], dtype="Int64"),
            "Deleted": pd.array([each.deleted for each in listed], dtype="Int64"),
            "Files added": pd.array([each.commit.metrics.files_added for each in listed], dtype="Int64"),
            "Files removed": pd.array([each.commit.metrics.files_removed for each in listed], dtype="Int64"),
            "At": [utc_text(each.commit.committed_at) for each in listed],
        }
    )


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
    busiest = max(groups, key=lambda group: sum(_rows(each) for each in group))
    title = f"Rows changed per commit (gross): most in {_group_text(busiest)}"
    figure.update_layout(
        template=template_name(mode), title={"text": title}, barmode="relative", height=280, bargap=0.2
    )
    figure.update_yaxes(title="rows (deleted below zero)")
    step = -(-len(groups) // MOST_TICKS)
    shown = [group[0].commit.version for group in groups[::step]]
    return figure.update_xaxes(title="version", tickvals=shown, ticktext=[f"v{version}" for version in shown])


def build_schema_frame(schema: SchemaDiff) -> pd.DataFrame:
    """Columns that differ, one line each."""
    rows = [
        *(("column added", each.path, "–", each.kind) for each in schema.added),
        *(("column dropped", each.path, each.kind, "–") for each in schema.dropped),
        *(("column renamed", after, before, after) for before, after in schema.renamed),
        *((f"{each.what} changed", each.path, each.before or "–", each.after or "–") for each in schema.changed),
    ]
    if schema.partitioning:
        before, after = (", ".join(columns) or "none" for columns in schema.partitioning)
        rows.append(("partitioning changed", "–", before, after))
    return pd.DataFrame(rows, columns=["What", "Column", "Before", "After"])


def build_property_frame(properties: Sequence[PropertyChange]) -> pd.DataFrame:
    """Properties, protocol and features that differ; "–" is not set."""
    rows = [(each.key, each.before or "–", each.after or "–") for each in properties]
    return pd.DataFrame(rows, columns=["Property", "Before", "After"])


def build_cell_frame(diff: VersionDiff) -> pd.DataFrame:
    """One row a column that updates touch, most updates first, with the commonest changes."""
    shared: dict[str, list[str]] = {}
    for each in diff.changes.common:
        text = f"{cut(cell_text(each.before))} → {cut(cell_text(each.after))} ({count_text(each.updates)})"
        shared.setdefault(each.column, []).append(text)
    cells = sorted(diff.changes.changed_cells.items(), key=lambda item: -item[1])
    updated = diff.changes.net.updated
    return pd.DataFrame(
        {
            "Column": [name for name, _ in cells],
            "Updates": [count for _, count in cells],
            "Share of updates": [percent(count / updated) if updated else "–" for _, count in cells],
            "Commonest changes": [" · ".join(shared.get(name, ["each different"])) for name, _ in cells],
        }
    )


def build_rewrite_frame(diff: VersionDiff) -> pd.DataFrame:
    """The commits that replaced files without changing a row."""
    found = rewrites(diff)
    metrics = [each.commit.metrics for each in found]
    return pd.DataFrame(
        {
            "Version": [each.commit.version for each in found],
            "Operation": [operation_text(each.commit.operation) for each in found],
            "Files removed": pd.array([each.files_removed for each in metrics], dtype="Int64"),
            "Files added": pd.array([each.files_added for each in metrics], dtype="Int64"),
            "Bytes": [signed_bytes(_less(each.bytes_added, each.bytes_removed)) for each in metrics],
        }
    )


def file_figures(part: LogPart) -> list[KeyFigure]:
    """Files, bytes and deletion vectors of one state against the other."""
    files, outline = part.outline.log.files, part.outline
    vectors = signed(files.vectors_added - files.vectors_removed)
    remarked = things(files.new_deletion_vectors, "file") + " marked anew" if files.new_deletion_vectors else ""
    rewritten = outline.log.rewritten
    return [
        KeyFigure(
            "Files added", count_text(files.added), "Only the second state has them", note=bytes_text(files.bytes_added)
        ),
        KeyFigure(
            "Files removed",
            count_text(files.removed),
            "Only the first state has them",
            note=bytes_text(files.bytes_removed),
        ),
        KeyFigure("Bytes", signed_bytes(files.bytes_added - files.bytes_removed), "Added less removed"),
        KeyFigure("Rows", signed(files.more_rows), "By statistics: those of added files less those of removed ones"),
        KeyFigure("Deletion vectors", vectors, "Files with rows marked as deleted: added less removed", note=remarked),
        KeyFigure(
            "Only rewritten (gross)",
            "–" if rewritten is None else count_text(sum(rewritten.values())),
            "Not known: commits in between are gone, or these are two tables"
            if rewritten is None
            else "Files that commits in between replaced and say that no row changed by it (dataChange is false)",
        ),
    ]


def method_choices(part: LogPart) -> tuple[DiffMethod, ...]:
    """The methods that can be named, best first."""
    return tuple(method for method in part.possible.methods if method is not DiffMethod.SAME_VERSION)


def _less(added: int | None, removed: int | None) -> int | None:
    return None if added is None or removed is None else added - removed


def _moved(count: int | None, sign: int) -> str:
    """A count of rows that came or went, with its sign; nothing moved is a plain 0."""
    return signed(sign * count) if count else count_text(count)


def _group_text(group: Sequence[CommitChanges]) -> str:
    first, last = group[0].commit, group[-1].commit
    if first.version == last.version:
        return f"v{first.version} {first.operation or ''}".strip()
    return f"v{first.version}–v{last.version}"


def _rows(each: CommitChanges) -> int:
    return (each.inserted or 0) + (each.updated or 0) + (each.deleted or 0)
