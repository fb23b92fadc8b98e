"""What charts of live regions share, as the JSON that Plotly takes.

Rule: pure. Building Plotly's Python objects takes fifty times as long.
"""

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

import plotly.io as pio

from app.ui.view.axes import wall_clock
from app.ui.view.theme import Mode, template_name

CHART_HEIGHT = 280

FigureJson = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FigureLook:
    """How the charts of one viewer look: light or dark, and whose clock."""

    mode: Mode = "light"
    zone: str | None = None


def base_figure(title: str, unit: str, look: FigureLook) -> FigureJson:
    """A chart over time with no line yet; `unit` names the other axis."""
    layout = {
        "template": _template(look.mode),
        "title": {"text": title, "font": {"size": 14}, "y": 0.98, "yanchor": "top"},
        "height": CHART_HEIGHT,
        "margin": {"t": 36},
        "legend": {
            "x": 0,
            "xanchor": "left",
            "y": -0.16,
            "yanchor": "top",
            "traceorder": "normal",
            "font": {"size": 11},
        },
        "barmode": "stack",
        "uirevision": "keep",
        "dragmode": "zoom",
        "yaxis": {"title": {"text": unit}, "rangemode": "tozero", "fixedrange": True},
        "xaxis": {"type": "date"},
    }
    return {"data": [], "layout": layout}


@cache
def _template(mode: Mode) -> FigureJson:
    return {"layout": pio.templates[template_name(mode)].layout.to_plotly_json()}


def moment_json(moment: datetime, zone: str | None) -> str:
    """The viewer's wall clock as Plotly takes it: as a number it would be moved by the browser's zone once more."""
    return wall_clock(moment, zone).isoformat(" ", "milliseconds")
