"""One visual language: Plotly templates, palette, and the colour and glyph of every operation, state and layer.

Rule: pure; a colour never speaks alone, it comes with a glyph, an icon or a word. Categories are Okabe–Ito.
"""

from functools import cache
from typing import Literal, NamedTuple

from backend.format import cut

Mode = Literal["light", "dark"]
MAX_POINTS = 2_000  # a figure above this is binned or thinned before it is drawn
FIGURES_KEPT = 64  # of each kind: building one takes longer than all else that a page does

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#000000")
_DARK_CATEGORIES = ("#56B4E9", "#E69F00", "#2FC295", "#DE9BC2", "#F0813A", "#7FC7EE", "#F0E442", "#D0D7DC")
LAYER_COLOURS = {"bronze": "#A9744F", "silver": "#7C8A97", "gold": "#C29A2B"}
LAYER_TEXT: dict[Mode, dict[str, str]] = {  # the same as words: the badges' own colours are too faint on white
    "light": {"bronze": "#8F5E3B", "silver": "#5F6C78", "gold": "#876711"},
    "dark": {"bronze": "#C08A63", "silver": "#94A2AF", "gold": "#C29A2B"},
}


class Surface(NamedTuple):
    """The neutral colours of one mode."""

    background: str
    panel: str
    text: str
    muted: str
    grid: str


SURFACES: dict[Mode, Surface] = {
    "light": Surface("#FFFFFF", "#F3F5F7", "#0F171D", "#5A6670", "#E3E8EC"),
    "dark": Surface("#12181D", "#1C242B", "#E4EAEE", "#9AA8B3", "#2B353D"),
}


class OperationStyle(NamedTuple):
    """How an operation looks everywhere: `glyph` is a character, `symbol` Plotly's marker of the same shape."""

    colour: str
    glyph: str
    symbol: str


class StateStyle(NamedTuple):
    """How a state looks everywhere: `badge` is Streamlit's colour name, `icon` a material icon, `glyph` a character."""

    colour: str
    icon: str
    badge: Literal["green", "orange", "red", "blue", "gray"]
    glyph: str


# family → (light, dark, glyph, Plotly symbol)
_OPERATION_FAMILIES = {
    "write": ("#0072B2", "#56B4E9", "●", "circle"),
    "merge": ("#9A4FB0", "#C79BD6", "◆", "diamond"),
    "update": ("#0F8B8D", "#3CC4C0", "▲", "triangle-up"),
    "delete": ("#C2410C", "#F0813A", "✕", "x"),
    "optimize": ("#00795A", "#2FC295", "■", "square"),
    "vacuum": ("#6B7680", "#9AA8B3", "▽", "triangle-down-open"),
    "restore": ("#B87400", "#E69F00", "◀", "triangle-left"),
    "schema": ("#8F7F00", "#F0E442", "★", "star"),
    "other": ("#6B7680", "#9AA8B3", "○", "circle-open"),
}

# Of a stream's state or verdict, a severity, or a job: colour, icon, and the glyph of lists
_STATES: dict[str, tuple[Literal["green", "orange", "red", "blue", "gray"], str, str]] = {
    "RUNNING": ("green", ":material/play_circle:", "▶"),
    "OK": ("green", ":material/check_circle:", "✓"),
    "DONE": ("green", ":material/task_alt:", "✓"),
    "STARTING": ("blue", ":material/hourglass_top:", "◔"),
    "QUEUED": ("blue", ":material/hourglass_empty:", "◔"),
    "IDLE": ("blue", ":material/bedtime:", "✓"),
    "CATCHING UP": ("blue", ":material/fast_forward:", "»"),
    "NOTE": ("blue", ":material/info:", "●"),
    "STOPPING": ("orange", ":material/hourglass_bottom:", "◑"),
    "DRAINING": ("orange", ":material/hourglass_bottom:", "◑"),
    "BACKOFF": ("orange", ":material/replay:", "↻"),
    "SLOW": ("orange", ":material/speed:", "▲"),
    "STALLED": ("orange", ":material/pending:", "▲"),
    "WARNING": ("orange", ":material/warning:", "▲"),
    "RESTING": ("orange", ":material/pause_circle:", "▲"),
    "FAILED": ("red", ":material/error:", "✕"),
    "CRITICAL": ("red", ":material/error:", "✕"),
    "STARVED": ("gray", ":material/link_off:", "◌"),
    "DRAINED": ("gray", ":material/hourglass_bottom:", "◑"),
    "CHAIN DRAINED": ("gray", ":material/hourglass_bottom:", "◑"),
    "CANCELLED": ("gray", ":material/cancel:", "■"),
    "STOPPED": ("gray", ":material/stop_circle:", "■"),
    "UNKNOWN": ("gray", ":material/help:", "?"),
}
# One word for one meaning: values of other sets of states, as people read them
_SAME = {
    **dict.fromkeys(("FINE", "MET"), "OK"),
    "TOO EARLY TO TELL": "UNKNOWN",
    "BROKEN": "WARNING",
    "COMPLETED": "DONE",
    "DRAINED_THROUGH": "CHAIN DRAINED",
}

_STATE_COLOURS: dict[Mode, dict[str, str]] = {
    "light": {"green": "#00795A", "orange": "#B26A00", "red": "#B3261E", "blue": "#0072B2", "gray": "#5A6670"},
    "dark": {"green": "#2FC295", "orange": "#F0A93A", "red": "#F2776E", "blue": "#56B4E9", "gray": "#9AA8B3"},
}


def categories(mode: Mode = "light") -> tuple[str, ...]:
    """The category colours in their fixed order, chosen to keep contrast on the mode's background."""
    return OKABE_ITO if mode == "light" else _DARK_CATEGORIES


def operation_family(operation: str | None) -> str:
    """The kind of operation that decides colour and glyph: write, merge, update, delete, optimize, …"""
    name = (operation or "").upper()
    starts = {
        "STREAMING UPDATE": "write",
        "MERGE": "merge",
        "UPDATE": "update",
        "DELETE": "delete",
        "TRUNCATE": "delete",
        "OPTIMIZE": "optimize",
        "VACUUM": "vacuum",
        "RESTORE": "restore",
        "WRITE": "write",
        "CREATE TABLE AS": "write",
        "CREATE OR REPLACE TABLE AS": "write",
        "REPLACE TABLE AS": "write",
    }
    schema_words = ("SET ", "UNSET ", "ADD ", "CHANGE ", "DROP ", "RENAME ", "REPLACE ", "UPGRADE", "CREATE", "CLUSTER")
    found = next((family for start, family in starts.items() if name.startswith(start)), None)
    return found or ("schema" if name.startswith(schema_words) else "other")


def operation_style(operation: str | None, mode: Mode = "light") -> OperationStyle:
    """Colour and glyph of a commit's operation."""
    light, dark, glyph, symbol = _OPERATION_FAMILIES[operation_family(operation)]
    return OperationStyle(light if mode == "light" else dark, glyph, symbol)


def operation_text(operation: str | None) -> str:
    """Glyph and name of an operation, for lists."""
    return f"{operation_style(operation).glyph} {cut(operation or 'unnamed')}"


def state_style(state: str, mode: Mode = "light") -> StateStyle:
    """Colour, icon and glyph of a stream state, verdict or severity (their values, in any case)."""
    badge, icon, glyph = _STATES.get(state_word(state).upper(), _STATES["UNKNOWN"])
    return StateStyle(_STATE_COLOURS[mode][badge], icon, badge, glyph)


def state_word(state: str) -> str:
    """A stream state, verdict or severity as people read it: "Catching up", "OK"."""
    word = _SAME.get(str(state).upper(), str(state).upper())
    return word if word == "OK" else word.capitalize()


def state_text(state: str) -> str:
    """Glyph and word, so that a state is never colour alone."""
    return f"{state_style(state).glyph} {state_word(state)}"


@cache
def template_name(mode: Mode) -> str:
    """The name of the Plotly template of a mode, which is made on the first call: a terminal has no Plotly."""
    import plotly.graph_objects as go
    import plotly.io as pio

    surface = SURFACES[mode]
    axis = {
        "gridcolor": surface.grid,
        "linecolor": surface.grid,
        "zerolinecolor": surface.grid,
        "tickfont": {"color": surface.muted, "size": 12},
        "title": {"font": {"color": surface.muted, "size": 12}, "standoff": 8},
        "automargin": True,
    }
    pio.templates[f"weir_{mode}"] = go.layout.Template(
        layout={
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "colorway": list(categories(mode)),
            "font": {"family": "Source Sans, Source Sans Pro, sans-serif", "color": surface.text, "size": 13},
            "title": {"x": 0, "xanchor": "left", "xref": "container", "font": {"size": 15, "color": surface.text}},
            "margin": {"l": 8, "r": 8, "t": 48, "b": 8},
            "xaxis": axis,
            "yaxis": axis,
            "hoverlabel": {
                "bgcolor": surface.panel,
                "bordercolor": surface.grid,
                "font": {"color": surface.text, "size": 12},
            },
            "legend": {"orientation": "h", "yanchor": "bottom", "y": 1, "x": 1, "xanchor": "right"},
            "hovermode": "closest",
            "dragmode": False,
        }
    )
    return f"weir_{mode}"
