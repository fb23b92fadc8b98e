"""The history of a table: its figures over versions, commits as rows, one commit in full, and how far a filter looked.

Rule: pure; what a commit does not say is left out and never shown as 0. A figure has at most `MAX_POINTS` points and
says when it left some out; an unknown figure is a gap.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from app.ui.view.commits import changes_text, stream_text
from app.ui.view.figures import (
    MOST_VALUES,
    SHARE_AXIS,
    count_axis,
    glyphs,
    over_versions_figure,
    step_line,
    thinned,
    thinned_sentence,
    time_range,
    version_axis,
    wall_clock,
)
from app.ui.view.theme import FIGURES_KEPT, Mode, operation_style, state_style
from backend.format import (
    UNKNOWN,
    bytes_exact,
    bytes_text,
    count_exact,
    count_text,
    duration_text,
    percent,
    signed,
    things,
    utc_text,
)
from backend.lake.history.history import HistoryFilter, LookBack
from backend.lake.history.timeline import Jump
from backend.lake.model import Commit, OperationMetrics, Timeline, VersionTotals
from backend.lake.table.metadata_diff import TableChange

# commits ---------------------------------------------------------------------------------------------------------

COMMIT_COLUMNS = (
    "Version", "When", "Committed at", "Operation", "Who", "Job", "Rows", "Files", "Bytes", "Changed", "Note", "Engine",
)  # fmt: skip
# What rearranges or tidies and leaves the rows as they were.
_MAINTENANCE = ("OPTIMIZE", "VACUUM", "REORG", "CHECKPOINT", "FSCK", "COMPUTE ", "LOG COMPACT", "CLEANUP")


def commits_frame(
    commits: Sequence[Commit],
    now: datetime,
    streams: Mapping[str, str],
    changes: Mapping[int, Sequence[TableChange]],
) -> pd.DataFrame:
    """One row a commit, in the order given; what the commit does not say is left out, never 0. `streams`: the stream of
    each query id; `changes`: what each version changed of the table."""
    rows = [
        {
            "Version": commit.version,
            "When": (now - commit.committed_at).total_seconds() if commit.committed_at else None,
            "Operation": f"{operation_style(commit.operation).glyph} {commit.operation or 'not named'}",
            "Rows": rows_text(commit.metrics),
            "Files": files_text(commit.metrics),
            "Bytes": bytes_plus_minus(commit.metrics),
            "Changed": changes_text(changes.get(commit.version, ())),
            "Who": stream_text(commit, streams) or commit.user or UNKNOWN,
            "Job": commit.job or "",
            "Engine": commit.engine or UNKNOWN,
            "Note": commit.problem or commit.user_metadata or "",
            "Committed at": utc_text(commit.committed_at),
        }
        for commit in commits
    ]
    frame = pd.DataFrame(rows, columns=list(COMMIT_COLUMNS))
    silent = [name for name in ("Changed", "Who", "Job", "Note") if frame[name].isin(["", UNKNOWN]).all()]
    return frame.drop(columns=silent)


def is_maintenance(operation: str | None) -> bool:
    """Whether an operation keeps the table in shape and changes none of its rows."""
    return (operation or "").upper().startswith(_MAINTENANCE)


def rows_text(metrics: OperationMetrics) -> str:
    """ "+120 ~4 −3": rows inserted, updated, deleted; "–" when the commit says none of them."""
    parts = (("+", metrics.rows_inserted), ("~", metrics.rows_updated), ("−", metrics.rows_deleted))
    counted = [(sign, count) for sign, count in parts if count is not None]
    some = [f"{sign}{count_text(count)}" for sign, count in counted if count]
    return " ".join(some) or ("±0" if counted else UNKNOWN)


def files_text(metrics: OperationMetrics) -> str:
    """ "+3 −12"; of a VACUUM what it deletes from storage, which no version loses."""
    if metrics.files_to_delete is not None:
        return f"was to delete {count_text(metrics.files_to_delete)}"
    if metrics.files_vacuumed is not None:
        return f"{count_text(metrics.files_vacuumed)} vacuumed"
    return plus_minus(metrics.files_added, metrics.files_removed)


def plus_minus(added: int | None, removed: int | None) -> str:
    """ "+3 −12", "±0", or "–" when neither is known."""
    if added is None and removed is None:
        return UNKNOWN
    some = [f"{sign}{count_text(count)}" for sign, count in (("+", added), ("−", removed)) if count]
    return " ".join(some) or "±0"


def bytes_plus_minus(metrics: OperationMetrics) -> str:
    """ "+38.2 MB −12 kB", or "–" when neither is known."""
    if metrics.bytes_to_delete is not None:
        return f"was to delete {bytes_text(metrics.bytes_to_delete)}"
    if metrics.files_vacuumed is not None:
        return UNKNOWN
    if metrics.bytes_added is None and metrics.bytes_removed is None:
        return UNKNOWN
    pairs = (("+", metrics.bytes_added), ("−", metrics.bytes_removed))
    return " ".join(f"{sign}{bytes_text(size)}" for sign, size in pairs if size) or "±0"


def history_sentence(commits: Sequence[Commit], total: int | None = None) -> str:
    """What the listed commits come to: "100 of 501 commits over 2 h: 96 STREAMING UPDATE, 4 OPTIMIZE"."""
    counts = Counter(commit.operation or "not named" for commit in commits)
    moments = [commit.committed_at for commit in commits if commit.committed_at]
    span_s = (max(moments) - min(moments)).total_seconds() if moments else 0.0
    span = f" over {duration_text(span_s)}" if span_s else ""
    shown = counts.most_common(4)
    rest = counts.total() - sum(count for _, count in shown)
    parts = [f"{count_text(count)} {name}" for name, count in shown]
    kinds = ", ".join(parts + ([things(rest, "other")] if rest else []))
    part = f"{count_text(len(commits))} of " if total is not None and total > len(commits) else ""
    number = total if part else len(commits)
    feed = sum(commit.metrics.change_bytes or 0 for commit in commits)
    weighs = f"; they wrote {bytes_text(feed)} of change feed" if feed else ""
    return f"{part}{things(number, 'commit')}{span}: {kinds}{weighs}" if commits else "No commit is left in the log"


# one commit ------------------------------------------------------------------------------------------------------


def commit_facts(commit: Commit) -> dict[str, str]:
    """What one commit says of itself, for a two-column list; what it does not say is left out."""
    origin = commit.origin
    facts: dict[str, str | None] = {
        "Committed": utc_text(commit.committed_at) if commit.committed_at else None,
        "User": commit.user,
        "Engine": commit.engine,
        "Job": commit.job,
        "Stream": origin.stream if origin else None,
        "Query id": origin.query_id if origin else None,
        "Run id": origin.run_id if origin else None,
        "Batch": str(origin.batch_id) if origin and origin.batch_id is not None else None,
        "Read version": str(commit.read_version) if commit.read_version is not None else None,
        "Isolation": commit.isolation_level,
        "Blind append": None if commit.is_blind_append is None else ("yes" if commit.is_blind_append else "no"),
        "User metadata": commit.user_metadata,
        "Problem": commit.problem,
    }
    return {key: value for key, value in facts.items() if value}


def metrics_facts(metrics: OperationMetrics) -> dict[str, str]:
    """The normalised metrics that are known, exact."""
    counts = {
        "Rows inserted": metrics.rows_inserted,
        "Rows updated": metrics.rows_updated,
        "Rows deleted": metrics.rows_deleted,
        "Rows copied": metrics.rows_copied,
        "Rows read from the source": metrics.rows_source,
        "Files added": metrics.files_added,
        "Files removed": metrics.files_removed,
        "Files that it was to delete": metrics.files_to_delete,
        "Files deleted from storage": metrics.files_vacuumed,
        "Files of the change feed": metrics.change_files,
    }
    facts = {key: count_exact(value) for key, value in counts.items() if value is not None}
    sizes = {
        "Bytes added": metrics.bytes_added,
        "Bytes removed": metrics.bytes_removed,
        "Bytes that it was to delete": metrics.bytes_to_delete,
        "Bytes of the change feed": metrics.change_bytes,
    }
    facts |= {key: bytes_exact(value) for key, value in sizes.items() if value is not None}
    return facts | ({"Took": duration_text(metrics.duration_ms / 1000)} if metrics.duration_ms is not None else {})


def key_values_frame(values: Mapping[str, Any], key: str = "Name", value: str = "Value") -> pd.DataFrame:
    """A mapping as a two-column frame of text; nested values as JSON."""
    rows = [(name, item if isinstance(item, str) else json.dumps(item, default=str)) for name, item in values.items()]
    return pd.DataFrame(rows, columns=[key, value])


# filters: how far was looked is always said ---------------------------------------------------------------------------


LOOK = 2_000  # commits at a time


def options(counts: Mapping[str, int], chosen: Sequence[str]) -> list[str]:
    """What can be chosen: what occurs, most frequent first, and what is chosen though it does not occur."""
    return [*counts, *(name for name in chosen if name not in counts)]


def option_text(name: str, counts: Mapping[str, int]) -> str:
    """ "WRITE · 1,204"."""
    return f"{name} · {count_text(counts.get(name, 0))}"


def looked_sentence(num_found: int, look: LookBack, total: int, chosen: HistoryFilter) -> str:
    """ "37 commits fit. The newest 2,000 of 10,000 were looked at"."""
    fits = "commits fit" if num_found != 1 else "commit fits"
    head = f"{count_text(num_found)} {fits}." if not chosen.is_empty else ""
    if look.is_whole:
        tail = f"Every commit {'of that time' if chosen.since or chosen.until else 'in the log'} was looked at."
    else:
        newest = "newest of that time" if chosen.until else "newest"
        tail = f"The {newest} {count_text(len(look.looked_at))} of {count_text(total)} were looked at."
    return f"{head} {tail}".strip()


# the figure over versions: a step line with the operations along the bottom -------------------------------------------


VERSION_TICKS = 6


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of `VersionTotals` that can be drawn over versions."""

    field: str
    title: str
    axis: str

    @property
    def is_bytes(self) -> bool:
        return self.field == "size_bytes"

    @property
    def is_share(self) -> bool:
        return self.field == "small_share"

    def text(self, value: float | None) -> str:
        return percent(value) if self.is_share else (bytes_text if self.is_bytes else count_text)(value)

    def exact(self, value: float | None) -> str:
        if value is None or self.is_share:
            return percent(value)
        return (bytes_exact if self.is_bytes else count_exact)(int(value))


FIGURES = {
    "Rows": Figure("num_rows", "Rows", "rows"),
    "Files": Figure("num_files", "Files", "files"),
    "Size": Figure("size_bytes", "Size", "bytes"),
    "Small files": Figure("small_files", "Small files", "files"),
    "Small share": Figure("small_share", "Small files' share", "share of files"),
}


def history_finding(totals: Sequence[VersionTotals], figure: Figure) -> str:
    """The figure's title: "Rows grew from 37,000 to 38,200 over 131 versions". Where not all are known it names the
    ends of those that are."""
    values = [(item.version, value) for item in totals if (value := _value(item, figure)) is not None]
    if not values:
        return f"{figure.title}: not known, files lack statistics" if totals else f"{figure.title}: no version to show"
    (first_version, first), (last_version, last) = values[0], values[-1]
    if len(values) == 1:
        return f"{figure.title}: {figure.text(last)} at v{last_version}"
    ends = f", v{first_version} to v{last_version}" if len(values) < len(totals) else ""
    span = f"over {things(len(values), 'version')}{ends}"
    if all(value == first for _, value in values):
        return f"{figure.title} stayed at {figure.text(last)} {span}"
    if last == first:
        return f"{figure.title}: {figure.text(last)} again {span}"
    return (
        f"{figure.title} {'grew' if last > first else 'fell'} from {figure.text(first)} to {figure.text(last)} {span}"
    )


@lru_cache(FIGURES_KEPT)
def history_figure(
    timeline: Timeline, figure: Figure, *, jumps: tuple[Jump, ...] = (), mode: Mode = "light", zone: str | None = None
) -> go.Figure:
    """A step line of the figure over time with operation glyphs along the bottom and versions on a second axis.

    Where a commit has no time the versions are the axis. `jumps` are marked on the line. Built once: not to be changed.
    """
    totals = [timeline.totals[index] for index in thinned([_value(item, figure) for item in timeline.totals])]
    by_time = all(item.committed_at for item in timeline.totals)

    def x_of(item: VersionTotals) -> datetime | int:
        return wall_clock(item.committed_at, zone) if by_time and item.committed_at else item.version

    chart = over_versions_figure(history_finding(timeline.totals, figure), mode=mode)
    if totals:
        xs, values = [x_of(item) for item in totals], [_value(item, figure) for item in totals]
        hovers = [_hover(item, figure) for item in totals]
        chart.add_trace(step_line(xs, values, hovers, name=figure.title, mode=mode))
        chart.add_traces(glyphs(timeline.totals, x_of, mode=mode, edge_px=1))
        marked = {jump.version: jump for jump in jumps}
        jumped = [item for item in timeline.totals if item.version in marked]
        for item in jumped:
            _mark(chart, item, marked[item.version], (x_of(item), _value(item, figure)), mode=mode)
    clock = f"Time ({zone or 'UTC'})" if by_time else "Version"
    heights = SHARE_AXIS if figure.is_share else count_axis(_value(item, figure) for item in totals)
    chart.update_layout(margin_t=72, xaxis_title_text=clock, yaxis={"title_text": figure.axis, **heights})
    if figure.is_bytes:
        chart.update_layout(yaxis={"ticksuffix": "B"})
    if totals and by_time:
        _version_axis(chart, totals, zone)
    elif totals:
        chart.update_layout(xaxis=version_axis(totals[0].version, totals[-1].version))
    return chart


def _mark(
    chart: go.Figure, item: VersionTotals, jump: Jump, at: tuple[datetime | int, float | None], *, mode: Mode
) -> None:
    """A ring around the version, with its change."""
    colour = state_style("WARNING", mode).colour
    chart.add_trace(
        go.Scatter(
            x=[at[0]],
            y=[at[1]],
            mode="markers",
            marker={"symbol": "circle-open", "size": 15, "color": colour, "line": {"width": 2.5}},
            showlegend=False,
            customdata=[[item.version]],
            hovertemplate=f"<b>v{item.version}</b> · {jump_text(jump)}<extra></extra>",
        )
    )
    chart.add_annotation(
        x=at[0], y=at[1], text=f"v{item.version}: {signed(jump.change)}", showarrow=False, xanchor="right",
        yanchor="bottom", xshift=-10, font={"color": colour},
    )  # fmt: skip


def jump_text(jump: Jump) -> str:
    """ "+5,000 rows; a commit usually brings +10"."""
    return f"{signed(jump.change)} rows; a commit usually brings {signed(jump.usual)}"


def _value(totals: VersionTotals, figure: Figure) -> float | None:
    value: float | None = getattr(totals, figure.field)
    return value


def _hover(item: VersionTotals, figure: Figure) -> list[object]:
    exact = figure.exact(_value(item, figure))
    return [item.version, item.operation or "not named", exact, utc_text(item.committed_at)]


def _version_axis(chart: go.Figure, totals: Sequence[VersionTotals], zone: str | None) -> None:
    """A few versions above the figure, over the time axis."""
    ticks = _version_ticks(totals, zone)
    ends = time_range([wall_clock(item.committed_at, zone) for item in totals if item.committed_at])
    # An axis is drawn only where something lies on it: a line without a value.
    chart.add_trace(
        go.Scatter(x=[x for x, _ in ticks], y=[None] * len(ticks), xaxis="x2", showlegend=False, hoverinfo="skip")
    )
    chart.update_layout(
        xaxis_range=ends,
        xaxis2={
            "overlaying": "x",
            "side": "top",
            "matches": "x",
            "anchor": "y",
            "showgrid": False,
            "tickvals": [x for x, _ in ticks],
            "ticktext": [label for _, label in ticks],
        },
    )


def _version_ticks(totals: Sequence[VersionTotals], zone: str | None) -> list[tuple[datetime, str]]:
    """A few versions, spread over time so that their labels do not overlap."""
    moments = [(item.committed_at, item.version) for item in totals if item.committed_at]
    start, end = moments[0][0], moments[-1][0]
    gap_s = (end - start).total_seconds() / VERSION_TICKS
    chosen = [moments[-1]]
    for moment, version in reversed(moments[:-1]):
        if (chosen[-1][0] - moment).total_seconds() >= gap_s and gap_s:
            chosen.append((moment, version))
    return [(wall_clock(moment, zone), f"v{version}") for moment, version in reversed(chosen)]


def drawn_sentence(timeline: Timeline) -> str:
    """What the figure could not show: the log's beginning, or versions left out for space."""
    notes = []
    if timeline.first_version > 0:
        notes.append(f"The log begins at v{timeline.first_version}; older versions were cleaned up.")
    elif timeline.truncated and timeline.totals:
        notes.append(f"Shown from v{timeline.totals[0].version} on.")
    if len(timeline.totals) > MOST_VALUES:
        notes.append(thinned_sentence(things(len(timeline.totals), "version")))
    return " ".join(notes)
