"""Health of the lake and of one table: figures, the trend over versions, offenders.

Rule: pure; the rule by which a file is small stands beside every count of small files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.ui.frames import ages
from app.ui.theme import Mode, categories, operation_family, operation_style, template_name
from app.ui.words import KeyFigure
from backend.format import ago, bytes_text, count_text, duration_text, percent, things, utc_text
from backend.health.model import MaintenanceRun, Offender, Severity, TableHealth, TrendPoint

BLUE, ORANGE = 0, 1  # places in the palette
MOST_MARKS = 100
GLYPHS = {Severity.CRITICAL: "✕", Severity.WARNING: "▲", Severity.NOTE: "●", Severity.FINE: "✓"}


@dataclass(frozen=True, slots=True)
class UnjudgedTable:
    """A table whose health could not be told, with the reason for its row."""

    name: str
    reason: str


def lake_sentence(healths: Sequence[TableHealth], unjudged: Sequence[UnjudgedTable]) -> str:
    """ "5 tables: 2 need maintenance, 3 in order · 1,204 small files of 1,310"."""
    needy = sum(health.severity in (Severity.CRITICAL, Severity.WARNING) for health in healths)
    noted = sum(health.severity is Severity.NOTE for health in healths)
    counted = (
        (needy, "needs maintenance" if needy == 1 else "need maintenance"),
        (noted, "with a note"),
        (len(healths) - needy - noted, "in order"),
        (len(unjudged), "could not be read"),
    )
    parts = [f"{count} {words}" for count, words in counted if count]
    files, small = sum(health.num_files for health in healths), sum(health.small_files for health in healths)
    total = things(len(healths) + len(unjudged), "table")
    return f"{total}: {', '.join(parts)} · {count_text(small)} small files of {count_text(files)}"


def by_urgency(healths: Sequence[TableHealth]) -> list[TableHealth]:
    """Most urgent first, then most small files."""
    order = list(Severity)
    return sorted(healths, key=lambda h: (order.index(h.severity), -h.small_files, h.ref.name))


def build_lake_frame(
    healths: Sequence[TableHealth], unjudged: Sequence[UnjudgedTable], *, now: datetime
) -> pd.DataFrame:
    """One row a table in the order given, then those that could not be judged."""
    gone: list[None] = [None] * len(unjudged)
    return pd.DataFrame(
        {
            "Table": [*(h.ref.name for h in healths), *(u.name for u in unjudged)],
            "Judgement": [*(judgement_text(h.severity) for h in healths), *("? unknown" for _ in unjudged)],
            "Small share": pd.array([*(h.small_share for h in healths), *gone], dtype="Float64"),
            "Small files": pd.array([*(h.small_files for h in healths), *gone], dtype="Int64"),
            "Files": pd.array([*(h.num_files for h in healths), *gone], dtype="Int64"),
            "Finding": [*(h.recommendations[0].finding for h in healths), *(u.reason for u in unjudged)],
            "Next step": [*(h.recommendations[0].next_step for h in healths), *gone],
            "Last OPTIMIZE": ages([*(_at(h.last_optimize) for h in healths), *gone], now),
            "Last VACUUM": ages([*(_at(h.last_vacuum) for h in healths), *gone], now),
            "Since checkpoint": pd.array([*(h.log.commits_since_checkpoint for h in healths), *gone], dtype="Int64"),
            "Size": pd.array([*(h.size_bytes for h in healths), *gone], dtype="Int64"),
            "Layer": [*(h.ref.layer for h in healths), *gone],
        }
    )


def judgement_text(severity: Severity) -> str:
    """Glyph and word, so that the judgement is never colour alone."""
    return f"{GLYPHS[severity]} {severity.value}"


def with_names(text: str, streams: Mapping[str, str]) -> str:
    """A sentence with the names of streams instead of their query ids."""
    for query_id, name in streams.items():
        text = text.replace(query_id, name)
    return text


def key_figures(health: TableHealth, *, now: datetime) -> list[KeyFigure]:
    """Small files, size, OPTIMIZE, VACUUM and log."""
    log = health.log
    checkpoint = f"checkpoint v{log.checkpoint_version}" if log.checkpoint_version is not None else "no checkpoint"
    return [
        KeyFigure(
            "Small files",
            count_text(health.small_files),
            health.rule.text,
            note=f"{percent(health.small_share)} of {things(health.num_files, 'file')}",
        ),
        KeyFigure(
            "Average file",
            bytes_text(health.size_bytes / health.num_files if health.num_files else None),
            f"{bytes_text(health.size_bytes)} in {things(health.num_files, 'file')}.",
            note=f"target {bytes_text(health.rule.target_bytes)}",
        ),
        _run_figure("Last OPTIMIZE", health.last_optimize, now),
        _run_figure("Last VACUUM", health.last_vacuum, now),
        KeyFigure(
            "Since checkpoint",
            things(log.commits_since_checkpoint, "commit"),
            f"Readers replay these one by one. The interval is {log.checkpoint_interval}. The log goes back to "
            f"v{log.first_version}, {ago(log.oldest_commit_at, now)}.",
            note=f"{checkpoint}, {ago(log.checkpoint_at, now)}" if log.checkpoint_at else checkpoint,
        ),
    ]


def log_sentence(health: TableHealth, *, now: datetime) -> str:
    """How far back the log goes and how old its checkpoint is."""
    log = health.log
    commits = things(log.latest_version - log.first_version + 1, "version")
    if log.oldest_commit_at:
        age = f"{duration_text((now - log.oldest_commit_at).total_seconds())}, since {utc_text(log.oldest_commit_at)}"
        reach = f"The log holds {commits} over {age}"
    else:
        reach = f"The log holds {commits}"
    if log.checkpoint_version is None:
        return f"{reach}; it has no checkpoint."
    at = f", {ago(log.checkpoint_at, now)}" if log.checkpoint_at else ""
    return f"{reach}; the last checkpoint is v{log.checkpoint_version}{at}."


def build_trend_figure(health: TableHealth, *, mode: Mode = "light") -> go.Figure:
    """All and small files per version above, the share of small ones below, OPTIMIZE marked in both."""
    points, colours = health.trend, categories(mode)
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.62, 0.38], vertical_spacing=0.08)
    versions = [point.version for point in points]
    series = (
        ("all files", colours[BLUE], [point.num_files for point in points], None),
        ("small files", colours[ORANGE], [point.small_files for point in points], "tozeroy"),
    )
    hovers = [_hover(point) for point in points]
    for name, colour, values, fill in series:
        figure.add_scatter(
            x=versions,
            y=values,
            name=name,
            customdata=hovers,
            line={"color": colour, "width": 2, "shape": "hv"},
            fill=fill,
            mode="lines",
            hovertemplate="%{customdata}<br>%{y:,}<extra>" + name + "</extra>",
            row=1,
            col=1,
        )
    figure.add_scatter(
        x=versions,
        y=[point.small_share for point in points],
        name="share",
        customdata=hovers,
        line={"color": colours[ORANGE], "width": 2, "shape": "hv"},
        mode="lines",
        showlegend=False,
        hovertemplate="%{customdata}<br>%{y:.1%} small<extra></extra>",
        row=2,
        col=1,
    )
    _mark_optimize(figure, points, mode)
    figure.update_layout(template=template_name(mode), height=380, title={"text": trend_finding(health)})
    figure.update_yaxes(title="files", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title="small", tickformat=".0%", range=[0, 1.05], row=2, col=1)
    ticks = {"nticks": max(2, min(10, len(points)))}
    return figure.update_xaxes(title="version", tickformat="d", row=2, col=1, **ticks)


def trend_finding(health: TableHealth) -> str:
    """The chart's title: where the share of small files stands and where it came from."""
    known = [point for point in health.trend if point.small_share is not None]
    if not known:
        return "Small files per version: the table has had no files"
    first, last = known[0], known[-1]
    now_text = f"Small files: {percent(last.small_share)} of {things(last.num_files, 'file')} at v{last.version}"
    return now_text if first is last else f"{now_text}, {percent(first.small_share)} at v{first.version}"


def build_offender_frame(offenders: Sequence[Offender], streams: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Who or where small files come from, worst first. `streams` names the stream of a query id."""
    worst = sorted(offenders, key=lambda offender: -offender.small_files)
    return pd.DataFrame(
        {
            "Where": [offender.kind for offender in worst],
            "Name": [(streams or {}).get(offender.name, offender.name) for offender in worst],
            "Small files": [offender.small_files for offender in worst],
            "Files": [offender.files for offender in worst],
            "Small share": [offender.small_files / offender.files if offender.files else None for offender in worst],
            "Average file": pd.array([offender.average_bytes for offender in worst], dtype="Int64"),
        }
    )


def _run_figure(label: str, run: MaintenanceRun | None, now: datetime) -> KeyFigure:
    if run is None:
        return KeyFigure(label, "–", "Not in the commits that the log still holds.", note="not in the log")
    return KeyFigure(label, ago(run.at, now), f"v{run.version}, {utc_text(run.at)}", note=f"v{run.version}")


def _mark_optimize(figure: go.Figure, points: Sequence[TrendPoint], mode: Mode) -> None:
    runs = [point for point in points if operation_family(point.operation) == "optimize"][-MOST_MARKS:]
    if not runs:
        return
    look = operation_style("OPTIMIZE", mode)
    figure.add_scatter(
        x=[point.version for point in runs],
        y=[point.num_files for point in runs],
        name=f"{look.glyph} OPTIMIZE",
        mode="markers",
        marker={"symbol": look.symbol, "color": look.colour, "size": 10},
        customdata=[_hover(point) for point in runs],
        hovertemplate="%{customdata}<extra>OPTIMIZE</extra>",
        row=1,
        col=1,
    )
    for point in runs:
        figure.add_vline(x=point.version, line={"color": look.colour, "width": 1, "dash": "dot"})


def _hover(point: TrendPoint) -> str:
    return f"v{point.version} {point.operation or ''} · {utc_text(point.committed_at)}"


def _at(run: MaintenanceRun | None) -> datetime | None:
    return run.at if run else None
