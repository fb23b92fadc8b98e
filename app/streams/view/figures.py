"""The charts of one stream, as the JSON that Plotly takes: building its Python objects takes fifty times as long.

Rule: pure; every chart says its finding in the title and has units on its axes. All share the time axis, and a line
breaks where nothing ran: between two runs and in a pause. Small to send: a live page gets them at each batch.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from itertools import pairwise
from statistics import median

from app.ui.view.figures import HOVER_MOMENT, FigureJson, FigureLook, base_figure, moment_json
from app.ui.view.theme import SURFACES, Mode, categories
from backend.format import count_text, duration_text, ms_text, rate_text, span_text, things, zone_of
from backend.stream_model.backlog import Lag
from backend.stream_model.progress import WORK_PHASE
from backend.stream_model.rollup import ChartPoint, Points

FEW_POINTS = 60  # up to here the dots are large
MOST_OUTAGES = 50  # that are shaded, the newest
BLUE, ORANGE, GREEN, PURPLE, VERMILLION = range(5)  # places in the palette
# What Spark's phases are for, and a colour for each; the trigger's line has the text's.
WORK = {
    "find new input": (ORANGE, ("latestOffset", "getOffset", "setOffsetRange", "getEndOffset")),
    "plan": (BLUE, ("getBatch", "queryPlanning")),
    "compute and write": (GREEN, (WORK_PHASE,)),
    "commit": (PURPLE, ("walCommit", "commitOffsets", "commitBatch")),
}
REST = "everything else"

Outages = Sequence[tuple[datetime, datetime]]
Marks = Sequence[tuple[datetime, str]]
Values = Sequence[float | None]
Series = Mapping[str, tuple[int, Values]]  # by name: a place in the palette, and a value for each bin


def build_rate_figure(points: Points, look: FigureLook) -> FigureJson:
    """Input and processing rate of batches on one axis over time; the title says the rows of the window by its time."""
    rate = points.rows_per_s
    figure = base_figure(
        f"Rate: {rate_text(rate)} over this window" if rate is not None else "Input and processing rate",
        "rows per second",
        look,
    )
    series: Series = {
        "input": (BLUE, [point.batches.input_rows_per_s.mean for point in points.bins]),
        "processing": (ORANGE, [point.batches.processed_rows_per_s.mean for point in points.bins]),
    }
    return _add_lines(figure, points, series, look, unit="rows/s")


def build_backlog_figure(lags: Sequence[Lag], look: FigureLook) -> FigureJson | None:
    """What waited after each batch, in rows where they are counted, else by the age of the oldest; None without any."""
    if not lags:
        return None
    last, rows = lags[-1], list[float | None](lag.rows for lag in lags)
    counted = all(count is not None for count in rows)
    minutes: Values = [None if lag.behind_s is None else lag.behind_s / 60 for lag in lags]
    unit, values = ("rows", rows) if counted else ("minutes", minutes)
    waits = f"{things(last.rows or 0, 'row')} unread" if counted else f"{span_text(last.behind_s or 0)} behind"
    title = f"Backlog: {waits}" if last.rows or last.behind_s else "Backlog: caught up"
    figure = base_figure(title, f"{unit} unread", look)
    line = {
        "type": "scatter",
        "x": [moment_json(lag.at, look.zone) for lag in lags],
        "y": [None if value is None else round(value, 3) for value in values],
        "name": "unread",
        "mode": "lines+markers",
        "line": {"color": categories(look.mode)[VERMILLION], "width": 2},
        "marker": {"size": 5 if len(lags) < FEW_POINTS else 3},
        "customdata": [f", the oldest {duration_text(lag.behind_s)} old" if lag.behind_s else "" for lag in lags],
        "hovertemplate": f"%{{y:,.4~g}} {unit} unread%{{customdata}}<extra></extra>",
    }
    figure["data"].append(line)
    figure["layout"]["showlegend"] = False
    return figure


def build_waited_figure(points: Points, look: FigureLook) -> FigureJson | None:
    """The most that waited after a batch of each point, in rows where they are counted, else by the age of the oldest;
    None where nobody knows."""
    rows: Values = [point.batches.most_unread_rows for point in points.bins]
    minutes: Values = [None if point.batches.behind_s is None else point.batches.behind_s / 60 for point in points.bins]
    if not points.knows_backlog:
        return None
    unread = [count for count in rows if count is not None]
    late = [minute for minute in minutes if minute is not None]
    counted = len(unread) >= len(late)
    unit, values, most = ("rows", rows, max(unread, default=0)) if counted else ("minutes", minutes, max(late))
    waits = f"at most {count_text(most)} rows waited" if counted else f"at most {duration_text(60 * most)} behind"
    title = f"Backlog: {waits}" if most else "Backlog: caught up after each batch"
    figure = base_figure(title, f"{unit} unread", look)
    series: Series = {"at most": (VERMILLION, values)}
    return _add_lines(figure, points, series, look, unit=f"{unit} unread", statistic="the most after each")


def build_duration_figure(points: Points, look: FigureLook) -> FigureJson:
    """Batch duration as stacked phases, with the trigger interval as a line."""
    figure = base_figure(_duration_title(points), "seconds", look)
    x, batches = [moment_json(point.at, look.zone) for point in points.bins], _batches(points)
    longest = [[*named, ms_text(point.batches.longest_ms)] for point, named in zip(points.bins, batches, strict=True)]
    longest_batch = ", longest batch %{customdata[3]}" if points.width_s else ""
    figure["data"] = [
        {
            "type": "bar",
            "x": x,
            "y": [round(value, 3) for value in seconds],
            "width": 0.85 * _distance_ms(points.bins),
            "customdata": longest if points.width_s else batches,
            "name": name,
            "marker": {"color": colour, "line": {"width": 0}},
            "hovertemplate": _hover(points, f"%{{y:.2f}} s to {name}{longest_batch}", is_first=not number),
        }
        for number, (name, colour, seconds) in enumerate(_work(points.bins, look.mode))
    ]
    if points.trigger_interval_ms and points.bins:
        figure["layout"] |= _line_at(points.trigger_interval_ms, look)
    return figure


def build_rows_figure(points: Points, look: FigureLook) -> FigureJson:
    """Rows that a batch read, wrote and dropped as too late, over time."""
    read = points.total.input_rows if points.total else None
    title = f"Rows: {count_text(points.mean_rows)} a batch, {count_text(read)} read in all"
    figure = base_figure(title if points.batches else "Rows per batch", "rows", look)
    series: Series = {
        "read": (BLUE, [point.batches.mean_rows for point in points.bins]),
        "written": (GREEN, [point.batches.output_rows.mean for point in points.bins]),
        "dropped as too late": (VERMILLION, [point.batches.dropped_rows.mean for point in points.bins]),
    }
    return _add_lines(figure, points, series, look, unit="rows")


def build_watermark_figure(points: Points, look: FigureLook) -> FigureJson | None:
    """How far the watermark is behind the clock; None for a stream without one."""
    delays = [point.batches.watermark_delay_s for point in points.bins]
    known = [delay_s for delay_s in delays if delay_s is not None]
    if not known:
        return None
    title = f"Watermark: {duration_text(known[-1])} behind the clock at its last batch"
    figure = base_figure(title, "minutes behind", look)
    minutes = [None if delay_s is None else delay_s / 60 for delay_s in delays]
    return _add_lines(figure, points, {"watermark": (GREEN, minutes)}, look, unit="min behind", statistic="the last")


def build_state_figure(points: Points, look: FigureLook) -> FigureJson | None:
    """Rows in the state store over time; None for a stream without state."""
    counts: Values = [point.batches.state_rows for point in points.bins]
    known = [count for count in counts if count is not None]
    if not known:
        return None
    figure = base_figure(f"State: {count_text(known[-1])} rows kept", "rows in state", look)
    return _add_lines(figure, points, {"state": (PURPLE, counts)}, look, unit="rows", statistic="the last")


def on_one_axis(figure: FigureJson, points: Points, outages: Outages, marks: Marks, look: FigureLook) -> FigureJson:
    """The figure over the whole window that ends now, as all beside it; shaded where the stream did not run, and with
    acts and failures marked along the bottom."""
    if points.since is None or points.until is None:
        return figure
    layout = figure["layout"]
    if shown := [
        (moment_json(at, look.zone), escape(text)) for at, text in marks if points.since <= at <= points.until
    ]:
        line = {
            "type": "scatter",
            "x": [moment for moment, _ in shown],
            "y": [0] * len(shown),
            "customdata": [text for _, text in shown],
            "name": "acts and failures",
            "mode": "markers",
            "marker": {"symbol": "triangle-up", "size": 10, "color": SURFACES[look.mode].text},
            "cliponaxis": False,
            "showlegend": False,
            "hovertemplate": f"%{{x|{HOVER_MOMENT}}}<br>%{{customdata}}<extra></extra>",
        }
        figure["data"].append(line)
    # Not `range`: Plotly takes another one for the program's word, and the viewer's zoom would go at each refresh.
    since, until = moment_json(points.since, look.zone), moment_json(points.until, look.zone)
    layout["xaxis"] |= {"autorangeoptions": {"include": [since, until], "clipmin": since, "clipmax": until}}
    layout["xaxis"]["nticks"] = 5  # else of few bars each gets a tick of its own, however many are between
    crosshair = {"showspikes": True, "spikemode": "across", "spikesnap": "cursor", "spikethickness": 1}
    layout["xaxis"] |= {**crosshair, "spikedash": "solid", "spikecolor": SURFACES[look.mode].muted}
    layout["xaxis"]["hoverformat"] = f"{HOVER_MOMENT} {points.until.astimezone(zone_of(look.zone)).tzname()}"
    layout |= {"hovermode": "x unified", "spikedistance": -1}
    across = {"type": "rect", "layer": "below", "xref": "x", "yref": "paper", "y0": 0, "y1": 1, "line": {"width": 0}}
    shade = {"fillcolor": categories(look.mode)[VERMILLION], "opacity": 0.12}
    spans = [(moment_json(began, look.zone), moment_json(ended, look.zone)) for began, ended in outages[-MOST_OUTAGES:]]
    layout["shapes"] = [*layout.get("shapes", ()), *({**across, **shade, "x0": x0, "x1": x1} for x0, x1 in spans)]
    return figure


def _line_at(trigger_interval_ms: int, look: FigureLook) -> FigureJson:
    """The trigger interval as a dashed line with its name."""
    across = {"xref": "x domain", "yref": "y"}
    seconds, surface = trigger_interval_ms / 1_000, SURFACES[look.mode]
    line = {"dash": "dash", "width": 1.5, "color": surface.text}
    shape = {"type": "line", "layer": "below", **across, "x0": 0, "x1": 1, "y0": seconds, "y1": seconds, "line": line}
    anchor = {"x": 1, "xanchor": "right", "y": seconds, "yanchor": "bottom", "showarrow": False}
    name = {"text": f"trigger {ms_text(trigger_interval_ms)}", "bgcolor": surface.background, **across, **anchor}
    return {"shapes": [shape], "annotations": [name]}


def _add_lines(
    figure: FigureJson, points: Points, series: Series, look: FigureLook, *, unit: str, statistic: str = "mean"
) -> FigureJson:
    """One line for each of the series, whose values stand in the order of the bins; none for what nobody knows."""
    drawn = {name: line for name, line in series.items() if any(value is not None for value in line[1])}
    for name, (colour, values) in drawn.items():
        x, y, batches = _broken(points, values, look.zone)
        line = {
            "type": "scatter",
            "x": x,
            "y": y,
            "customdata": batches,
            "name": name,
            "mode": "lines+markers",
            "line": {"color": categories(look.mode)[colour], "width": 2},
            "marker": {"size": 5 if len(points.bins) < FEW_POINTS else 3},
            "connectgaps": False,
            "hovertemplate": _hover(points, f"{name} %{{y:,.4~g}} {unit}", statistic, is_first=not figure["data"]),
        }
        figure["data"].append(line)
    figure["layout"]["showlegend"] = len(drawn) > 1
    return figure


def _broken(points: Points, values: Values, zone: str | None) -> tuple[list[str], list[float | None], list[list[int]]]:
    """Times, values and batches, with an empty point wherever the line must not go on."""
    x: list[str] = []
    y: list[float | None] = []
    batches: list[list[int]] = []
    for point, value, named in zip(points.bins, values, _batches(points), strict=True):
        if x and not point.goes_on:
            x, y, batches = [*x, x[-1]], [*y, None], [*batches, named]
        x.append(moment_json(point.at, zone))
        y.append(None if value is None else round(value, 3))
        batches.append(named)
    return x, y, batches


def _batches(points: Points) -> list[list[int]]:
    """What the hover names: a batch, or the first, the last and how many."""
    if points.width_s is None:
        return [[point.batches.first_batch] for point in points.bins]
    return [[point.batches.first_batch, point.batches.last_batch, point.batches.batches] for point in points.bins]


def _hover(points: Points, value: str, statistic: str = "mean", *, is_first: bool) -> str:
    """One line of what the crosshair tells, the first with the batch; the moment stands above them."""
    if not is_first:
        return f"{value}<extra></extra>"
    if points.width_s is None:
        return f"batch %{{customdata[0]}}<br>{value}<extra></extra>"
    return f"{statistic} of %{{customdata[2]}} batches, %{{customdata[0]}}–%{{customdata[1]}}<br>{value}<extra></extra>"


def _work(bins: Sequence[ChartPoint], mode: Mode) -> Iterable[tuple[str, str, list[float]]]:
    """Name, colour and seconds of each kind of work that took any time."""
    named = {phase for _, phases in WORK.values() for phase in phases}
    others = tuple({phase for point in bins for phase in point.batches.phases_ms} - named)
    kinds = {name: (categories(mode)[place], phases) for name, (place, phases) in WORK.items()}
    for name, (colour, phases) in {**kinds, REST: (SURFACES[mode].muted, others)}.items():
        seconds = [sum(point.batches.mean_phases_ms.get(phase, 0.0) for phase in phases) / 1_000 for point in bins]
        if any(seconds):
            yield name, colour, seconds


def _distance_ms(bins: Sequence[ChartPoint]) -> float:
    """How far apart two points usually are."""
    apart = [(after.at - before.at).total_seconds() for before, after in pairwise(bins) if after.goes_on]
    return 1_000 * median(apart) if apart else 10_000.0


def _duration_title(points: Points) -> str:
    """How many took longer than the trigger is known of batches alone; of sums the longest."""
    if points.total is None or points.mean_ms is None:
        return "Batch duration by phase"
    more = ""
    if points.over_trigger is None:
        more = f", up to {ms_text(points.total.longest_ms)}"
    elif points.trigger_interval_ms:
        over = count_text(points.over_trigger) if points.over_trigger else "none"
        more = f", {over} of {count_text(points.batches)} over the trigger"
    return f"Batch: {ms_text(points.mean_ms)} on average{more}"
