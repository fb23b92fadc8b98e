"""The difference of two versions in frames, one chart, and the words beside them.

Rule: pure; net (state to state) and gross (commit by commit) are named each time and never added to one another.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

import pandas as pd
import plotly.graph_objects as go

from app.changes.view.rows import cell_text
from app.changes.view.sentence import METHOD_WORDS, changed_share, rewrites
from app.ui.view.conditions import predicate_text
from app.ui.view.frames import ages
from app.ui.view.theme import Mode, categories, operation_text, template_name
from app.ui.view.words import KeyFigure
from app.ui.view.writers import writer_text
from backend.changes.cache import LogPart
from backend.changes.model import CommitChanges, DiffMethod, RowChange, VersionDiff
from backend.changes.plan import METHOD_NAMES
from backend.format import bytes_text, count_text, cut, percent, signed, signed_bytes, things, utc_text
from backend.lake.table.metadata_diff import PropertyChange, SchemaDiff

MAX_BARS = 200
MOST_TICKS = 25
GROSS_COLUMNS = ("Inserted", "Updated", "Deleted")
GREEN, VERMILLION, BLUE = 2, 4, 0  # places in the palette


def net_figures(diff: VersionDiff, *, is_pending: bool = False) -> list[KeyFigure]:
    """Net rows and files, as key figures; `is_pending`: rows are not compared yet."""
    files, pending = diff.files, "Rows are not compared yet." if is_pending else ""
    no_key = "Without a key an update cannot be told from a delete and an insert."
    updated = "Rows that both states have, with other values" if diff.net.updated is not None else no_key
    share, net = changed_share(diff), "net" if diff.partial is None else "net so far"
    return [
        KeyFigure(f"Inserted ({net})", _moved(diff.net.inserted, 1), pending or "Rows that only the second state has"),
        KeyFigure(f"Updated ({net})", count_text(diff.net.updated), pending or updated),
        KeyFigure(f"Deleted ({net})", _moved(diff.net.deleted, -1), pending or "Rows that only the first state has"),
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


def file_stem(diff: VersionDiff) -> str:
    """The name of a file that is downloaded, without its suffix."""
    return f"{diff.ref.name.replace('/', '_')}_v{diff.from_version}_v{diff.to_version}"


def rows_known_text(diff: VersionDiff) -> str:
    """ "1,526 changed rows"."""
    return things(diff.net.total, "changed row")


def shown_text(diff: VersionDiff, found: Sequence[RowChange]) -> str:
    """How many rows are listed of how many there are, and what the marks mean."""
    fetched = len(diff.rows)
    parts = [f"{count_text(len(found))} of {count_text(fetched)} rows listed" if len(found) < fetched else ""]
    if diff.truncated:
        whole = "; the counts above are whole" if diff.partial is None else ""
        parts.append(f"{count_text(fetched)} were fetched of {rows_known_text(diff)}{whole}")
    if any(row.changed for row in found):
        parts.append("● marks a changed cell")
    if diff.against is None and any(row.key is not None and row.set_apart is None for row in found):
        parts.append("click a row for the history of its key")
    said = " · ".join(part for part in parts if part) or f"{things(fetched, 'row')} listed"
    return said[0].upper() + said[1:]


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
        *(("column added", each.path, "–", each.type) for each in schema.added),
        *(("column dropped", each.path, each.type, "–") for each in schema.dropped),
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
    for each in diff.common:
        text = f"{cut(cell_text(each.before))} → {cut(cell_text(each.after))} ({count_text(each.updates)})"
        shared.setdefault(each.column, []).append(text)
    cells = sorted(diff.changed_cells.items(), key=lambda item: -item[1])
    updated = diff.net.updated
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
    files, outline = part.outline.files, part.outline
    vectors = signed(files.vectors_added - files.vectors_removed)
    remarked = things(files.new_deletion_vectors, "file") + " marked anew" if files.new_deletion_vectors else ""
    rewritten = outline.rewritten
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


def plan_lines(part: LogPart) -> list[str]:
    """How rows will be compared, what is read for it, and why the better ways are not possible."""
    plan = part.plan
    return [f"**{METHOD_WORDS[plan.method]}**", cost_text(part), *plan.reasons(plan.method)]


def cost_text(part: LogPart) -> str:
    """What comparing rows reads."""
    plan, commits = part.plan, len(part.outline.commits)
    if plan.method is DiffMethod.CHANGE_FEED:
        return f"to read: the change files of {things(commits, 'commit')}, their size is not known before"
    if plan.bytes_to_read is None:
        return "to read: nothing but the log"
    rows = things(plan.rows_to_read, "row") if plan.rows_to_read is not None else "rows unknown"
    return f"to read: {bytes_text(plan.bytes_to_read)} of data files, {rows}"


def start_label(part: LogPart) -> str:
    """The button that starts the comparison, with what it reads."""
    plan = part.plan
    if plan.bytes_to_read is not None:
        return f"Compare rows: read {bytes_text(plan.bytes_to_read)}"
    return f"Compare rows: read the change feed of {things(len(part.outline.commits), 'commit')}"


def offer_text(so_far: VersionDiff | None, *, was_begun: bool, is_counting: bool = False) -> str:
    """The words beside the start button: what became of an earlier comparison, or that none began.

    `is_counting`: it was ended, and its rows are still being counted.
    """
    if is_counting:
        return "Stopped: counting what was compared …"
    if so_far is not None and so_far.partial is not None:
        return f"{so_far.partial.text.capitalize()}. The numbers below are of the rows that were compared."
    return "Stopped before rows were counted." if was_begun else "Rows are not compared yet; the rest is known."


def anyway_label(part: LogPart) -> str:
    """The button that reads more than the limit."""
    return f"Compare rows all the same: read {bytes_text(part.possible.bytes_to_read)}"


def method_choices(part: LogPart) -> tuple[DiffMethod, ...]:
    """The methods that can be named, best first."""
    return tuple(method for method in part.possible.methods if method is not DiffMethod.SAME_VERSION)


def impossible_lines(part: LogPart) -> list[str]:
    """Why the other methods cannot be chosen."""
    return [f"Not by {METHOD_NAMES[method]}: {reason}" for method, reason in part.possible.against.items()]


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
