"""The difference of two versions in words, frames and one chart.

Rule: pure; net (state to state) and gross (commit by commit) are named each time and never added to one another.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import pandas as pd
import plotly.graph_objects as go

from app.view.format import bytes_text, count_text, duration_text, signed, signed_bytes, things, utc_text
from app.view.key_figure import KeyFigure
from app.view.streams import ages
from app.view.theme import Mode, categories, operation_style, template_name
from backend.diff.model import (
    CommitChanges,
    DiffMethod,
    FilesDiff,
    NetCounts,
    RowChange,
    VersionDiff,
)
from backend.lake.metadata_diff import PropertyChange, SchemaDiff
from backend.lake.model import Commit

MAX_BARS = 200
GREEN, VERMILLION, BLUE = 2, 4, 0  # places in the palette
METHOD_WORDS = {
    DiffMethod.CHANGE_FEED: "Change data feed: the writers recorded each changed row.",
    DiffMethod.SAME_VERSION: "Both sides are the same version: there is nothing to compare.",
    DiffMethod.KEY_JOIN: "Join by key: the rows of the files that differ, paired by their key.",
    DiffMethod.MULTISET: "Whole rows: those of the files that differ, without a key to pair them by.",
    DiffMethod.LOG_ONLY: "Log alone: rows cannot be compared here; files, commits, schema and properties can.",
}


def headline(diff: VersionDiff) -> str:
    """One sentence: "v118 → v131, 13 commits in 2 h 10 min: 1,204 rows inserted, …"."""
    if diff.method is DiffMethod.SAME_VERSION:
        return f"v{diff.from_version} and v{diff.to_version} are the same version: nothing differs."
    return f"{_range_text(diff)}: {', '.join([_rows_text(diff), *_metadata_texts(diff)])}."


def versions_text(diff: VersionDiff) -> str:
    return f"v{diff.from_version} → v{diff.to_version}"


def gross_counts(commits: Iterable[CommitChanges]) -> NetCounts:
    """What the commits did, added up; None where any commit does not say."""
    commits = list(commits)
    return NetCounts(
        _sum(each.inserted for each in commits),
        _sum(each.updated for each in commits),
        _sum(each.deleted for each in commits),
    )


def counts_text(counts: NetCounts) -> str:
    """ "1,204 inserted, 310 updated, 12 deleted"."""
    named = ((counts.inserted, "inserted"), (counts.updated, "updated"), (counts.deleted, "deleted"))
    if counts.updated is None and counts.inserted is not None:
        return f"{count_text(counts.inserted)} inserted and {count_text(counts.deleted)} deleted, updates among them"
    return ", ".join(f"{count_text(count)} {word}" for count, word in named)


def net_figures(diff: VersionDiff) -> list[KeyFigure]:
    """Net rows and files, as key figures."""
    files, unknown = diff.files, "Without a key an update cannot be told from a delete and an insert."
    size = bytes_text(files.bytes_added)
    return [
        KeyFigure("Inserted (net)", _moved(diff.net.inserted, 1), "Rows that only the second state has"),
        KeyFigure(
            "Updated (net)",
            count_text(diff.net.updated),
            "Rows that both states have, with other values" if diff.net.updated is not None else unknown,
        ),
        KeyFigure(
            "Deleted (net)",
            _moved(diff.net.deleted, -1),
            "Rows that only the first state has",
        ),
        KeyFigure("Files added", count_text(files.added), "Data files that only the second state has", note=size),
        KeyFigure(
            "Files removed",
            count_text(files.removed),
            "Data files that only the first state has",
            note=bytes_text(files.bytes_removed),
        ),
    ]


def rows_known_text(diff: VersionDiff) -> str:
    """ "1,526 changed rows"."""
    return things(diff.net.total, "changed row")


def shown_text(diff: VersionDiff, found: Sequence[RowChange]) -> str:
    """How many rows are listed of how many there are, and what the marks mean."""
    fetched = len(diff.rows)
    parts = [f"{count_text(len(found))} of {count_text(fetched)} rows listed" if len(found) < fetched else ""]
    if diff.truncated:
        parts.append(f"{count_text(fetched)} were fetched of {rows_known_text(diff)}; the counts above are whole")
    if any(row.changed for row in found):
        parts.append("● marks a changed cell")
    return " · ".join(part for part in parts if part) or f"{things(fetched, 'row')} listed"


def files_text(files: FilesDiff) -> str:
    """Files that only one of the two states has, with their sizes."""
    if not files.added and not files.removed:
        return "the same files"
    size = signed_bytes(files.bytes_added - files.bytes_removed)
    vectors = f", {things(files.new_deletion_vectors, 'new deletion vector')}" if files.new_deletion_vectors else ""
    added = f"{things(files.added, 'file')} added ({bytes_text(files.bytes_added)})"
    removed = f"{count_text(files.removed)} removed ({bytes_text(files.bytes_removed)})"
    return f"{added}, {removed}, {size}{vectors}"


def exactness_text(diff: VersionDiff) -> str:
    """How far the counts can be trusted."""
    if not diff.is_available:
        return "No counts of rows."
    if diff.exact:
        return "Exact: every changed row is counted, and updates are told from inserts and deletes."
    if diff.net.updated is None:
        return "Exact as rows that came and went; an updated row counts once as deleted and once as inserted."
    return "Not exact in every part; the reasons say where."


def key_text(diff: VersionDiff) -> str:
    if diff.key is None:
        return "No key: rows are compared as whole rows."
    return f"Rows are paired by {', '.join(diff.key.columns)} (from {diff.key.source.value})."


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
            "Operation": [operation_text(each.commit) for each in listed],
            "By": [writer_text(each.commit, streams or {}) for each in listed],
            "Inserted": pd.array([each.inserted for each in listed], dtype="Int64"),
            "Updated": pd.array([each.updated for each in listed], dtype="Int64"),
            "Deleted": pd.array([each.deleted for each in listed], dtype="Int64"),
            "Files added": pd.array([each.commit.metrics.files_added for each in listed], dtype="Int64"),
            "Files removed": pd.array([each.commit.metrics.files_removed for each in listed], dtype="Int64"),
            "At": [utc_text(each.commit.committed_at) for each in listed],
        }
    )


def operation_text(commit: Commit) -> str:
    """Glyph and name of the operation."""
    return f"{operation_style(commit.operation).glyph} {commit.operation or 'unnamed'}"


def writer_text(commit: Commit, streams: Mapping[str, str]) -> str:
    """The stream and batch that wrote it, else the user, else the engine."""
    origin = commit.origin
    if origin and (origin.stream or origin.query_id):
        query_id = origin.query_id or ""
        return f"{origin.stream or streams.get(query_id) or f'query {query_id[:8]}'}, batch {origin.batch_id}"
    return commit.user or commit.engine or "–"


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
    return figure.update_xaxes(title="version", tickformat="d", nticks=max(2, min(12, len(groups))))


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


def _moved(count: int | None, sign: int) -> str:
    """A count of rows that came or went, with its sign; nothing moved is a plain 0."""
    return signed(sign * count) if count else count_text(count)


def _range_text(diff: VersionDiff) -> str:
    commits = things(len(diff.commits), "commit")
    times = [each.commit.committed_at for each in diff.commits if each.commit.committed_at]
    span = f" in {duration_text((max(times) - min(times)).total_seconds())}" if len(times) > 1 else ""
    if diff.is_reverse:
        return f"Going back from v{diff.from_version} to v{diff.to_version} undoes {commits}{span}"
    return f"{versions_text(diff)}, {commits}{span}"


def _rows_text(diff: VersionDiff) -> str:
    if not diff.is_available:
        return f"rows cannot be compared; {files_text(diff.files)}"
    if diff.net.total == 0:
        return "no row differs"
    return f"net {counts_text(diff.net)}"


def _metadata_texts(diff: VersionDiff) -> list[str]:
    schema = len(build_schema_frame(diff.schema))
    texts = [f"{things(schema, 'schema change')}"] if schema else []
    return texts + ([f"{things(len(diff.properties), 'property', 'properties')} changed"] if diff.properties else [])


def _group_text(group: Sequence[CommitChanges]) -> str:
    first, last = group[0].commit, group[-1].commit
    if first.version == last.version:
        return f"v{first.version} {first.operation or ''}".strip()
    return f"v{first.version}–v{last.version}"


def _rows(each: CommitChanges) -> int:
    return (each.inserted or 0) + (each.updated or 0) + (each.deleted or 0)


def _sum(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)
