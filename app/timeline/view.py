"""What happened to a table and around it, drawn: a lane for each table and stream on one time axis.

Rule: pure; what would lie upon each other is one mark that counts, so a figure stays small however much happened.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from textwrap import wrap

from app.timeline.text import KINDS
from app.ui.view.figures import FigureJson, FigureLook, base_figure, moment_json
from app.ui.view.theme import SURFACES, operation_family, operation_style, state_style
from app.ui.view.words import figure_safe
from backend.format import cut, local_text, utc_text, zone_of
from backend.streams.timeline import Event, EventTimeline

LANE_PX, SLOTS = 40, 160  # height of a lane; marks of one kind side by side
_MARKS = {  # symbol, and the state whose colour it has
    "start": ("triangle-right", "RUNNING"), "stop": ("square", "STOPPED"), "act": ("pentagon", "NOTE"),
    "failure": ("cross", "FAILED"), "notice": ("hexagram", "WARNING"), "note": ("star", "NOTE"),
}  # fmt: skip


def build_timeline_figure(timeline: EventTimeline, look: FigureLook) -> FigureJson:
    """The lanes from up- to downstream."""
    begin, end = timeline.since, max([timeline.until, *(event.ended_at or event.at for event in timeline.events)])
    slot = max((end - begin) / SLOTS, timedelta(seconds=1))
    marks: dict[str, dict[object, list[Event]]] = {}
    for event in sorted(timeline.events, key=lambda event: (event.kind != "batch", KINDS.index(event.kind))):
        name = operation_family(event.operation) if event.kind == "commit" else event.kind  # the last is drawn on top
        marks.setdefault(name, {}).setdefault((event.lane, (event.at - begin) // slot), []).append(event)
    places = {lane: -place for place, lane in enumerate(timeline.lanes)}
    labels = {lane: figure_safe(cut(lane, 44)) for lane in places}
    labels[timeline.table] = f"<b>{labels[timeline.table]}</b>"
    lanes = {"tickvals": [*places.values()], "ticktext": [*labels.values()], "ticklabelposition": "inside top"}
    lanes["ticklabelshift"] = -7  # px: above what lies in the lane
    figure, height = base_figure("", "", look), LANE_PX * len(places)
    figure["data"] = [_trace(name, [*of_name.values()], places, look) for name, of_name in marks.items()]
    figure["layout"] |= {
        "height": height + 110, "margin": {"t": 8}, "barmode": "overlay", "dragmode": "select", "selectdirection": "h",
        "legend": {"x": 0, "xanchor": "left", "y": -36 / height, "yanchor": "top"},
        "xaxis": {"type": "date", "range": [moment_json(at, look.zone) for at in (begin - 2 * slot, end + 2 * slot)]},
        "yaxis": lanes | {"showgrid": True, "zeroline": False, "fixedrange": True, "range": [0.5 - len(places), 0.8]},
    }  # fmt: skip
    return figure


def _trace(name: str, marks: Sequence[Sequence[Event]], places: Mapping[str, int], look: FigureLook) -> FigureJson:
    kind, x = marks[0][0].kind, [moment_json(mark[0].at, look.zone) for mark in marks]
    hovers, y = [_hover(mark, look.zone) for mark in marks], [places[mark[0].lane] for mark in marks]
    trace = {"name": name, "y": y, "customdata": hovers, "hovertemplate": "%{customdata}<extra></extra>"}
    if kind == "batch":
        muted, ms = SURFACES[look.mode].muted, timedelta(milliseconds=1)
        lasted = [(max(event.ended_at or event.at for event in mark) - mark[0].at) // ms for mark in marks]
        marker: FigureJson = {"color": muted, "line": {"color": muted, "width": 1}}  # as wide as a line at least
        bar = {"type": "bar", "orientation": "h", "base": x, "x": lasted, "width": 0.3, "opacity": 0.5}
        return {**trace, **bar, "marker": marker}
    symbol, state = _MARKS.get(kind, ("", ""))
    colour, _, glyph = operation_style(marks[0][0].operation, look.mode)
    marker = {"symbol": symbol or glyph, "color": state_style(state, look.mode).colour if state else colour, "size": 11}
    return {**trace, "type": "scatter", "mode": "markers", "x": x, "marker": marker}


def _hover(mark: Sequence[Event], zone: str | None) -> str:
    last, more = mark[-1], f", the last of {len(mark):,} here" if len(mark) > 1 else ""
    return "<br>".join(map(figure_safe, [f"{local_text(last.at, zone)} · {last.kind}{more}", *wrap(last.what, 80)]))


def drawn_range(ends: Sequence[str], zone: str | None) -> tuple[str, str]:
    """The ends of a range that was drawn, in UTC, as they are asked for: the whole seconds around it."""
    local = (datetime.fromisoformat(each).replace(tzinfo=zone_of(zone)) for each in sorted(ends))
    begin, end = (each.astimezone(UTC) for each in local)
    return utc_text(begin), utc_text(end + timedelta(microseconds=999_999))
