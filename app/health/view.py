"""Health of the lake and of one table: figures, the trend over versions, offenders.

Rule: pure; the rule by which a file is small, and by which that matters, stands beside every count of small files.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.health.text import LakeRow, trend_finding
from app.ui.lake import Table
from app.ui.view.figures import TABLE_SERIES, step_line, table_points
from app.ui.view.theme import (
    FIGURES_KEPT,
    Mode,
    categories,
    operation_family,
    operation_style,
    state_style,
    template_name,
)
from app.ui.view.words import KeyFigure, figure_safe
from backend.format import ago, bytes_text, count_text, things, utc_text
from backend.health.health import JudgedTable
from backend.health.model import HealthEvidence, MaintenanceRun, Severity, TableHealth
from backend.health.rules import URGENCY, gain_in, merge_gain, small_files_text
from backend.lake.model import TableCard, VersionTotals

BLUE, ORANGE = 0, 1  # places in the palette
MOST_MARKS = 100


def lake_rows(tables: Iterable[Table], judged: Mapping[str, JudgedTable]) -> list[LakeRow]:
    """Most urgent first, so those that cannot be read; then the most files that merging spares."""
    order = [*list(Severity)[:-1], None, Severity.FINE]

    def rank(row: LakeRow) -> tuple[bool, int, int, str]:
        spared = merge_gain(row.table).spared if isinstance(row.table, TableCard) else 0
        return not row.problem, order.index(row.severity), -spared, row.table.ref.name

    return sorted((LakeRow(table, judged.get(table.ref.uri)) for table in tables), key=rank)


def lake_sentence(rows: Sequence[LakeRow]) -> str:
    """ "5 tables: 1 cannot be read, 2 need maintenance, 2 fine · merging would spare 1,100 of 1,310 files"."""
    counts = Counter("unknown" if row.problem else row.severity for row in rows)
    needy = counts[Severity.WARNING]
    counted = (
        (counts["unknown"], "cannot be read"),
        (needy, "needs maintenance" if needy == 1 else "need maintenance"),
        (counts[Severity.NOTE], "with a note"),
        (counts[Severity.FINE], "fine"),
        (counts[None], "being judged"),
    )
    parts = [f"{count_text(count)} {words}" for count, words in counted if count]
    cards = [row.table for row in rows if isinstance(row.table, TableCard)]
    files, spared = sum(card.num_files for card in cards), sum(merge_gain(card).spared for card in cards)
    gain = f" · merging would spare {count_text(spared)} of {things(files, 'file')}" if spared else ""
    return f"{things(len(rows), 'table')}: {', '.join(parts)}{gain}"


def num_pending(rows: Iterable[LakeRow]) -> int:
    return sum(row.judged is None and not row.problem for row in rows)


def key_figures(evidence: HealthEvidence, *, now: datetime) -> list[KeyFigure]:
    """Small files, size, OPTIMIZE, VACUUM and log."""
    log = evidence.log
    checkpoint = f"checkpoint v{log.checkpoint_version}" if log.checkpoint_version is not None else "no checkpoint"
    return [
        KeyFigure(
            "Small files",
            small_files_text(gain_in(evidence)),
            f"{evidence.rule.text} {URGENCY}",
        ),
        KeyFigure(
            "Average file",
            bytes_text(evidence.size_bytes / evidence.num_files if evidence.num_files else None),
            f"{bytes_text(evidence.size_bytes)} in {things(evidence.num_files, 'file')}.",
            note=f"target {bytes_text(evidence.rule.target_bytes)}",
        ),
        _run_figure("Last OPTIMIZE", evidence.last_optimize, now),
        _run_figure("Last VACUUM", evidence.last_vacuum, now),
        KeyFigure(
            "Since checkpoint",
            things(log.commits_since_checkpoint, "commit"),
            f"Readers replay these one by one. The interval is {log.checkpoint_interval}. The log goes back to "
            f"v{log.first_version}, {ago(log.oldest_commit_at, now)}.",
            note=f"{checkpoint}, {ago(log.checkpoint_at, now)}" if log.checkpoint_at else checkpoint,
        ),
    ]


def build_trend_figure(health: TableHealth, *, mode: Mode = "light") -> go.Figure:
    """Files per version and the small ones among them, their share, and all bytes; OPTIMIZE marked in each. Built once:
    not to be changed."""
    return _trend_figure(health.trend, trend_finding(health), mode)


@lru_cache(FIGURES_KEPT)
def _trend_figure(totals: tuple[VersionTotals, ...], title: str, mode: Mode) -> go.Figure:
    figure = make_subplots(rows=3, cols=1, shared_xaxes=True, row_heights=[0.45, 0.2, 0.35], vertical_spacing=0.06)
    versions, axes = [total.version for total in totals], ("files", "small", "bytes")
    for row, field, colour in (
        (1, "num_files", categories(mode)[BLUE]),
        (1, "small_files", state_style("WARNING", mode).colour),
        (2, "small_share", state_style("WARNING", mode).colour),
        (3, "size_bytes", categories(mode)[ORANGE]),
    ):
        series, points = TABLE_SERIES[field], table_points(totals, field)
        line = step_line(versions, points, series, mode=mode)
        line.update(line_color=colour, line_dash="dot" if field == "small_files" else "solid", showlegend=row == 1)
        line.mode = "lines" if sum(point.value is not None for point in points) > 1 else "markers"
        figure.add_trace(line, row=row, col=1)
        if field != "small_files":  # it shares the axis of all files
            axis = series.y_axis([point.value for point in points])
            figure.update_yaxes(title=axes[row - 1], **axis, row=row, col=1)
    if runs := [total for total in totals if operation_family(total.operation) == "optimize"][-MOST_MARKS:]:
        look = operation_style("OPTIMIZE", mode)
        figure.add_scatter(
            x=[run.version for run in runs],
            y=[run.num_files for run in runs],
            name=f"{look.glyph} OPTIMIZE",
            mode="markers",
            marker={"symbol": look.symbol, "color": look.colour, "size": 10},
            customdata=[
                f"v{run.version} {figure_safe(run.operation or '')} · {utc_text(run.committed_at)}" for run in runs
            ],
            hovertemplate="%{customdata}<extra>OPTIMIZE</extra>",
            row=1,
            col=1,
        )
        for run in runs:
            figure.add_vline(x=run.version, line={"color": look.colour, "width": 1, "dash": "dot"})
    figure.update_layout(template=template_name(mode), height=480, title={"text": title})
    ticks = {"nticks": max(2, min(10, len(totals)))}
    return figure.update_xaxes(title="version", tickformat="d", row=3, col=1, **ticks)


def _run_figure(label: str, run: MaintenanceRun | None, now: datetime) -> KeyFigure:
    if run is None:
        return KeyFigure(label, "–", "Not in the commits that the log still holds.", note="not in the log")
    return KeyFigure(label, ago(run.at, now), f"v{run.version}, {utc_text(run.at)}", note=f"v{run.version}")
