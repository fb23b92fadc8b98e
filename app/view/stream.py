"""One stream as key figures, charts and lists.

Rule: pure; every chart says its finding in the title, has units on its axes and breaks its lines between two runs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from itertools import pairwise

import pandas as pd
import plotly.graph_objects as go

from app.view.batches import WORK_PHASE, Bin, ExpectationTotal, Run, sum_known
from app.view.format import ago, bytes_text, count_text, duration_text, percent, rate_text, utc_text
from app.view.streams import last_batch_at
from app.view.theme import Mode, categories, template_name
from backend.streams.model import Progress, StreamStatus

CHART_HEIGHT = 260
TREND_BINS = 30
BLUE, ORANGE, GREEN, PURPLE, VERMILLION = range(5)  # places in the palette
PHASE_WORDS = {
    "latestOffset": "find new input (latestOffset)",
    "getBatch": "plan the read (getBatch)",
    "queryPlanning": "plan the query (queryPlanning)",
    "walCommit": "write offsets (walCommit)",
    "addBatch": "compute and write (addBatch)",
    "commitOffsets": "commit (commitOffsets)",
    "commitBatch": "commit (commitBatch)",
    "other": "other",
}


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """A figure with its meaning: `note` stands under it, `help` says what it is or why it is missing."""

    label: str
    value: str
    help: str
    note: str = ""
    trend: tuple[float, ...] | None = None


def key_figures(status: StreamStatus, bins: Sequence[Bin], *, now: datetime) -> list[KeyFigure]:
    """Input, processing, batch duration, rows and last batch: the five that say whether a stream flows."""
    last, ended_at = status.progress, last_batch_at(status)
    missing = " No batch has been reported yet." if last is None else ""
    return [
        KeyFigure(
            "Input",
            rate_text(last.input_rows_per_s if last else None),
            f"Rows per second that arrived, as the last progress says.{missing}",
            trend=_trend(item.input_rows_per_s for item in bins),
        ),
        KeyFigure(
            "Processing",
            rate_text(last.processed_rows_per_s if last else None),
            f"Rows per second while a batch runs. Lower than input is no back pressure by itself.{missing}",
            trend=_trend(item.processed_rows_per_s for item in bins),
        ),
        KeyFigure(
            "Batch duration",
            _ms_text(last.batch_duration_ms if last else None),
            f"How long the last batch took.{missing}",
            note=f"trigger {_ms_text(status.declaration.trigger_interval_ms)}",
            trend=_trend(item.batch_duration_ms for item in bins),
        ),
        KeyFigure(
            "Rows in batch",
            count_text(last.num_input_rows if last else None),
            f"Rows that the last batch read.{missing}",
            note=f"batch {last.batch_id}" if last else "",
            trend=_trend(float(item.input_rows) for item in bins),
        ),
        KeyFigure(
            "Last batch",
            ago(ended_at, now),
            f"When the last batch ended.{missing}",
            note=utc_text(ended_at) if ended_at else "",
        ),
    ]


def state_figures(status: StreamStatus, bins: Sequence[Bin], totals: Sequence[ExpectationTotal]) -> list[KeyFigure]:
    """Watermark, state, rows too late and rows against expectations: what a stateful stream is asked about."""
    last = status.progress
    watermark = last.watermark if last else None
    dropped = sum_known(item.dropped_rows for item in bins)
    failed = sum_known(total.failed for total in totals)
    checked = sum_known((failed, sum_known(total.passed for total in totals)))
    return [
        KeyFigure(
            "Watermark",
            duration_text((last.progressed_at - watermark).total_seconds()) if last and watermark else "–",
            "How far the watermark is behind the clock. “–”: the stream declares none, or has seen no row yet.",
            note=f"at {utc_text(watermark)}" if watermark else "",
        ),
        KeyFigure(
            "State",
            f"{count_text(last.state_rows)} rows" if last and last.state_rows is not None else "–",
            "Rows kept in the state store. “–”: the stream keeps no state.",
            note=f"{bytes_text(last.state_bytes)} in memory" if last and last.state_bytes is not None else "",
        ),
        KeyFigure(
            "Dropped as too late",
            count_text(dropped),
            "Rows older than the watermark, in the window shown. “–”: the stream has no watermark.",
            note="rows in this window" if dropped is not None else "",
        ),
        KeyFigure(
            "Against expectations",
            count_text(failed),
            "Rows that broke an expectation, in the window shown. “–”: none is declared or counted.",
            note=f"{percent(failed / checked)} of checks" if failed is not None and checked else "",
        ),
    ]


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
            mode="lines+markers" if len(bins) < 60 else "lines",
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
    names = [name for name in PHASE_WORDS if any(name in item.phases_ms for item in worked)]
    names += sorted({name for item in worked for name in item.phases_ms} - set(names))
    colours = categories(mode)
    labels = [item.batches_text for item in worked]
    for index, name in enumerate(names):
        figure.add_bar(
            x=list(range(len(worked))),
            y=[item.phases_ms.get(name, 0.0) / 1_000 for item in worked],
            customdata=labels,
            name=PHASE_WORDS.get(name, name),
            marker={"color": colours[index % len(colours)], "line": {"width": 0}},
            hovertemplate="%{customdata}<br>%{y:.2f} s<extra>" + PHASE_WORDS.get(name, name) + "</extra>",
        )
    if trigger_interval_ms and worked:
        figure.add_hline(
            y=trigger_interval_ms / 1_000,
            line={"dash": "dash", "width": 1.5, "color": categories(mode)[VERMILLION]},
            annotation_text=f"trigger {_ms_text(trigger_interval_ms)}",
            annotation_position="top left",
        )
    step = max(1, len(worked) // 8)
    ticks = list(range(0, len(worked), step))
    figure.update_xaxes(title="batch", tickvals=ticks, ticktext=[str(worked[at].first_batch) for at in ticks])
    return figure.update_layout(barmode="stack", bargap=0.1)


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
            mode="lines",
            line={"color": colour, "width": 2, "shape": "hv"},
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


def build_run_frame(runs: Sequence[Run], *, now: datetime) -> pd.DataFrame:
    """The runs, newest first."""
    return pd.DataFrame(
        {
            "Started": [ago(run.first_at, now) for run in runs],
            "Lasted": [duration_text((run.last_at - run.first_at).total_seconds()) for run in runs],
            "Batches": [f"{run.first_batch}–{run.last_batch}" for run in runs],
            "Rows read": [run.input_rows for run in runs],
            "Run id": [run.run_id for run in runs],
            "Query id": [run.query_id for run in runs],
            "First progress (UTC)": [utc_text(run.first_at) for run in runs],
        }
    )


def build_expectation_frame(totals: Sequence[ExpectationTotal], *, now: datetime) -> pd.DataFrame:
    """Passed and failed rows per expectation in the window."""
    return pd.DataFrame(
        {
            "Expectation": [total.name for total in totals],
            "Passed": pd.array([total.passed for total in totals], dtype="Int64"),
            "Failed": pd.array([total.failed for total in totals], dtype="Int64"),
            "Failed share": [percent(total.failed_share) for total in totals],
            "Last failed": [ago(total.last_failed_at, now) for total in totals],
        }
    )


def build_failure_frame(status: StreamStatus, *, now: datetime) -> pd.DataFrame:
    """The failures that count towards giving up, newest first."""
    failures = tuple(reversed(status.observed.failures)) if status.observed else ()
    return pd.DataFrame(
        {
            "When": [ago(failure.failed_at, now) for failure in failures],
            "Class": [failure.error_class for failure in failures],
            "Message": [failure.message for failure in failures],
            "Batch": pd.array([failure.batch_id for failure in failures], dtype="Int64"),
            "At (UTC)": [utc_text(failure.failed_at) for failure in failures],
        }
    )


def window_sentence(events: Sequence[Progress], bins: Sequence[Bin], *, window_s: float) -> str:
    """What the charts cover, and that events were binned where they were."""
    if not events:
        return f"No progress in the last {duration_text(window_s)}."
    binned = f", drawn as {len(bins)} bins" if len(bins) < len(events) else ""
    return f"{count_text(len(events))} progress events from the last {duration_text(window_s)}{binned}."


def _figure(title: str, mode: Mode, unit: str) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        template=template_name(mode),
        title={"text": title, "font": {"size": 14}, "x": 0, "xanchor": "left", "y": 0.98, "yanchor": "top"},
        height=CHART_HEIGHT,
        margin={"l": 8, "r": 8, "t": 56, "b": 8},
        legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "font": {"size": 11}},
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
    if not worked:
        return "Batch duration by phase"
    durations = [sum(item.phases_ms.values()) for item in worked]
    mean_ms = sum(durations) / len(durations)
    work_ms = sum(item.phases_ms.get(WORK_PHASE, 0.0) for item in worked) / len(worked)
    share = percent(work_ms / mean_ms) if mean_ms else "–"
    over = sum(1 for duration in durations if trigger_interval_ms and duration > trigger_interval_ms)
    late = f", {over} of {len(worked)} over the trigger" if over else ""
    return f"Batch duration: {_ms_text(mean_ms)} on average, {share} of it compute and write{late}"


def _ms_text(ms: float | None) -> str:
    """Milliseconds as "420 ms", "2.35 s" or "1 min 5 s"."""
    if ms is None:
        return "–"
    if ms < 1_000:
        return f"{ms:.0f} ms"
    return f"{ms / 1_000:.3g} s" if ms < 60_000 else duration_text(ms / 1_000)


def _trend(values: Iterable[float | None]) -> tuple[float, ...] | None:
    known = [value for value in values if value is not None][-TREND_BINS:]
    return tuple(known) if len(known) > 1 else None
