"""The charts of one stream.

Rule: pure; every chart says its finding in the title, has units on its axes and breaks its lines between two runs.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from itertools import pairwise

import plotly.graph_objects as go

from app.streams.view.batches import WORK_PHASE, Bin
from app.streams.view.stream import ms_text
from app.ui.theme import SURFACES, Mode, categories, template_name
from backend.format import count_text, duration_text, percent, rate_text, utc_text

CHART_HEIGHT = 260
FEW_BINS = 60  # up to here each one gets a dot
BLUE, ORANGE, GREEN, PURPLE, VERMILLION = range(5)  # places in the palette
PHASES = {
    "latestOffset": "find new input",
    "getBatch": "plan the read",
    "queryPlanning": "plan the query",
    "walCommit": "write the offsets",
    "addBatch": "compute and write",
    "commitOffsets": "commit",
    "commitBatch": "commit",
    "other": "everything else",
}


def build_rate_figure(bins: Sequence[Bin], *, mode: Mode = "light", zone: tzinfo = UTC) -> go.Figure:
    """Input and processing rate on one axis over time."""
    figure = _figure(_rate_title(bins), mode, "rows per second")
    for label, colour, values in (
        ("input", categories(mode)[BLUE], [item.input_rows_per_s for item in bins]),
        ("processing", categories(mode)[ORANGE], [item.processed_rows_per_s for item in bins]),
    ):
        x, y, text = _broken(bins, values, zone)
        figure.add_scatter(
            x=x,
            y=y,
            customdata=text,
            name=label,
            mode="lines+markers" if len(bins) < FEW_BINS else "lines",
            line={"color": colour, "width": 2},
            marker={"size": 4},
            connectgaps=False,
            hovertemplate="%{customdata}<br>%{y:,.1f} rows/s<extra>" + label + "</extra>",
        )
    return figure


def build_duration_figure(bins: Sequence[Bin], *, trigger_interval_ms: int, mode: Mode = "light") -> go.Figure:
    """Batch duration as stacked phases, one bar a batch (or bin), with the trigger interval as a line."""
    worked = [item for item in bins if item.phases_ms]
    figure = _figure(_duration_title(worked, trigger_interval_ms), mode, "seconds")
    names = [name for name in PHASES if any(name in item.phases_ms for item in worked)]
    names += sorted({name for item in worked for name in item.phases_ms} - set(names))
    colours = categories(mode)
    labels = [item.batches_text for item in worked]
    for index, name in enumerate(names):
        figure.add_bar(
            x=list(range(len(worked))),
            y=[item.phases_ms.get(name, 0.0) / 1_000 for item in worked],
            customdata=labels,
            name=name,
            marker={"color": colours[index % len(colours)], "line": {"width": 0}},
            hovertemplate="%{customdata}<br>%{y:.2f} s to " + PHASES.get(name, name) + "<extra>" + name + "</extra>",
        )
    if trigger_interval_ms and worked:
        figure.add_hline(
            y=trigger_interval_ms / 1_000,
            line={"dash": "dash", "width": 1.5, "color": categories(mode)[VERMILLION]},
            annotation_text=f"trigger {ms_text(trigger_interval_ms)}",
            annotation_position="top right",
            annotation_bgcolor=SURFACES[mode].background,
        )
    step = max(1, len(worked) // 8)
    ticks = list(range(0, len(worked), step))
    figure.update_xaxes(title="batch", tickvals=ticks, ticktext=[str(worked[at].first_batch) for at in ticks])
    return figure.update_layout(
        barmode="stack", height=300, bargap=0.1, margin={"t": 40}, legend={"y": -0.3, "yanchor": "top"}
    )


def build_rows_figure(bins: Sequence[Bin], *, mode: Mode = "light", zone: tzinfo = UTC) -> go.Figure:
    """Rows read, written and dropped as too late, over time."""
    read = sum(item.input_rows for item in bins)
    title = f"Rows per batch: {count_text(read)} read in this window" if bins else "Rows per batch"
    figure = _figure(title, mode, "rows")
    series = (
        ("read", categories(mode)[BLUE], [item.input_rows for item in bins]),
        ("written", categories(mode)[GREEN], [item.output_rows for item in bins]),
        ("dropped as too late", categories(mode)[VERMILLION], [item.dropped_rows for item in bins]),
    )
    for label, colour, values in series:
        if all(value is None for value in values):
            continue
        x, y, text = _broken(bins, values, zone)
        figure.add_scatter(
            x=x,
            y=y,
            customdata=text,
            name=label,
            mode="lines+markers" if len(bins) < FEW_BINS else "lines",
            line={"color": colour, "width": 2},
            marker={"size": 4},
            hovertemplate="%{customdata}<br>%{y:,} rows<extra>" + label + "</extra>",
        )
    return figure


def build_state_figure(bins: Sequence[Bin], *, mode: Mode = "light", zone: tzinfo = UTC) -> go.Figure | None:
    """Rows in the state store over time; None for a stream without state."""
    known = [item for item in bins if item.state_rows is not None]
    if not known:
        return None
    figure = _figure(f"State: {count_text(known[-1].state_rows)} rows kept", mode, "rows in state")
    x, y, text = _broken(known, [item.state_rows for item in known], zone)
    figure.add_scatter(
        x=x,
        y=y,
        customdata=text,
        name="state rows",
        line={"color": categories(mode)[PURPLE], "width": 2},
        hovertemplate="%{customdata}<br>%{y:,} rows<extra></extra>",
    )
    return figure.update_layout(showlegend=False)


def build_watermark_figure(bins: Sequence[Bin], *, mode: Mode = "light", zone: tzinfo = UTC) -> go.Figure | None:
    """How far the watermark is behind the clock; None for a stream without one."""
    known = [item for item in bins if item.watermark_delay_s is not None]
    if not known:
        return None
    title = f"Watermark: {duration_text(known[-1].watermark_delay_s)} behind the clock"
    figure = _figure(title, mode, "minutes behind")
    x, y, text = _broken(known, [(item.watermark_delay_s or 0.0) / 60 for item in known], zone)
    figure.add_scatter(
        x=x,
        y=y,
        customdata=text,
        name="watermark",
        line={"color": categories(mode)[GREEN], "width": 2},
        hovertemplate="%{customdata}<br>%{y:,.1f} min behind<extra></extra>",
    )
    return figure.update_layout(showlegend=False)


def _figure(title: str, mode: Mode, unit: str) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        template=template_name(mode),
        title={"text": title, "font": {"size": 14}, "x": 0, "xanchor": "left", "y": 0.98, "yanchor": "top"},
        height=CHART_HEIGHT,
        margin={"l": 8, "r": 8, "t": 56, "b": 8},
        legend={"x": 0, "xanchor": "left", "font": {"size": 11}},
        uirevision="keep",
        hovermode="closest",
    )
    figure.update_yaxes(title=unit, rangemode="tozero", automargin=True)
    figure.update_xaxes(automargin=True)
    return figure


def _broken(
    bins: Sequence[Bin], values: Sequence[float | int | None], zone: tzinfo
) -> tuple[list[datetime], list[float | int | None], list[str]]:
    """Times, values and hover texts with a gap wherever a new run begins."""
    if not bins:
        return [], [], []
    x: list[datetime] = [bins[0].at.astimezone(zone)]
    y: list[float | int | None] = [values[0]]
    text = [_hover(bins[0])]
    for (before, item), value in zip(pairwise(bins), values[1:], strict=True):
        if item.run_id != before.run_id:
            x.append(item.at.astimezone(zone))
            y.append(None)
            text.append("")
        x.append(item.at.astimezone(zone))
        y.append(value)
        text.append(_hover(item))
    return x, y, text


def _hover(item: Bin) -> str:
    return f"{item.batches_text} · {utc_text(item.at)}"


def _rate_title(bins: Sequence[Bin]) -> str:
    known = [item.input_rows_per_s for item in bins if item.input_rows_per_s is not None]
    if not known:
        return "Input and processing rate"
    return f"Rate: {rate_text(sum(known) / len(known))} come in on average"


def _duration_title(worked: Sequence[Bin], trigger_interval_ms: int) -> str:
    durations = [sum(item.phases_ms.values()) for item in worked]
    if not any(durations):
        return "Batch duration by phase"
    mean_ms = sum(durations) / len(durations)
    work_ms = sum(item.phases_ms.get(WORK_PHASE, 0.0) for item in worked) / len(worked)
    over = sum(1 for duration in durations if trigger_interval_ms and duration > trigger_interval_ms)
    told = f"{over} of {len(worked)} over the trigger" if over else f"{percent(work_ms / mean_ms)} of it addBatch"
    return f"Batch: {ms_text(mean_ms)} on average, {told}"
