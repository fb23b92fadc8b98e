"""Versions as figures and lists: the strip over all of them, and a number over some with the commits' operations.

Rule: pure; a state is a word and a pattern beside its colour; a version without a value is a gap. At most `MAX_POINTS`
pieces are drawn, and what was drawn together says so.
"""

from collections.abc import Callable, Sequence
from datetime import date
from functools import lru_cache
from typing import Any, NamedTuple

import plotly.graph_objects as go

from app.columns import Column
from app.ui.view.figures import Point, Series, number_of, version_axis
from app.ui.view.theme import FIGURES_KEPT, MAX_POINTS, SURFACES, Mode, state_style, template_name
from app.versions.text import FILE_WORDS, NO, NOT_KNOWN, OFF, YES, feed_word, flag_word, strip_finding
from backend.lake.model import VersionTotals
from backend.lake.retention.runs import DataFiles, RetentionRuns, VersionRun
from backend.sql.numbers import VersionValue

# States from what is fine to what is not known, with how people call their colours.
_COLOURS = {"FINE": "green", "NOTE": "blue", "WARNING": "orange", "CRITICAL": "red", "UNKNOWN": "grey"}
_PATTERNS = {"": "filled", "/": "hatched", "\\": "hatched", ".": "dotted", "x": "crossed"}


class _Look(NamedTuple):
    """How a part of the strip looks, and what that means."""

    state: str
    pattern: str
    word: str


_FLAGS = {look.word: look for look in (
    _Look("FINE", "", YES), _Look("CRITICAL", "/", NO), _Look("UNKNOWN", ".", NOT_KNOWN), _Look("UNKNOWN", "/", OFF),
)}  # fmt: skip
_MIXED = _Look("WARNING", "x", "mixed: zoom by choosing a version")
_FILES = {
    DataFiles.EXPECTED: ("NOTE", ""),
    DataFiles.PRESENT: ("FINE", ""),
    DataFiles.SAMPLED: ("FINE", "."),
    DataFiles.AT_RISK: ("WARNING", "\\"),
    DataFiles.UNKNOWN: ("UNKNOWN", "."),
    DataFiles.MISSING: ("CRITICAL", "/"),
    None: ("UNKNOWN", "/"),
}
_PINNED = "Pinned"


# rows of the strip, and how a run looks in each
TRACKS: dict[str, Callable[[VersionRun], _Look]] = {
    "In the log": lambda run: _FLAGS[flag_word(run.listed)],
    "Can be rebuilt": lambda run: _FLAGS[flag_word(run.reconstructable)],
    "Inside retention": lambda run: _FLAGS[flag_word(run.in_retention)],
    "Data files": lambda run: _Look(*_FILES[run.data_files], FILE_WORDS[run.data_files]),
    "Change feed": lambda run: _FLAGS[feed_word(run)],
}
_PIECES = MAX_POINTS // len(TRACKS)  # a track


class _Piece(NamedTuple):
    first: int
    last: int
    look: _Look


# the strip -------------------------------------------------------------------------------------------------------


def strip_figure(
    retention: RetentionRuns, *, chosen: int | None, pinned: Sequence[int] = (), mode: Mode = "light"
) -> go.Figure:
    """One bar a track over all versions, one alone while all are alike, and marks of the pinned versions; a piece's
    `customdata` is its first and last version.

    Built once: not to be changed.
    """
    title = strip_finding(retention)
    return _strip_figure(retention.runs, retention.facts.latest, title, chosen, tuple(pinned), mode)


@lru_cache(FIGURES_KEPT)
def _strip_figure(
    runs: tuple[VersionRun, ...], latest: int, title: str, chosen: int | None, pinned: tuple[int, ...], mode: Mode
) -> go.Figure:
    chart = go.Figure()
    pieces = dict(reversed(track_pieces(runs).items()))
    if all(len(of_track) == 1 for of_track in pieces.values()):
        pieces = {"Can be rebuilt": pieces["Can be rebuilt"]}
    for name, of_track in pieces.items():
        chart.add_trace(_bar(name, of_track, mode))
    if pinned:
        chart.add_scatter(
            x=pinned, y=[_PINNED] * len(pinned), mode="markers", customdata=[[version, version] for version in pinned],
            marker={"symbol": "diamond", "size": 11, "color": state_style("NOTE", mode).colour},
            hovertemplate="<b>v%{x} is pinned</b><extra></extra>",
        )  # fmt: skip
    if chosen is not None:
        line = {"color": SURFACES[mode].text, "width": 2}
        chart.add_shape(type="line", x0=chosen, x1=chosen, y0=0, y1=1, yref="paper", line=line)
        edge = "right" if chosen > latest / 2 else "left"
        chart.add_annotation(x=chosen, y=1, yref="paper", text=f"v{chosen}", showarrow=False, yanchor="bottom",
                             xanchor=edge)  # fmt: skip
    chart.update_layout(
        template=template_name(mode), height=120 + 30 * (len(pieces) + bool(pinned)), barmode="overlay", bargap=0.35,
        showlegend=False, margin_t=64, title_text=title,
        xaxis={**version_axis(0, latest), "showgrid": False},
        yaxis={"showgrid": False, "ticklabelstandoff": 8},
    )  # fmt: skip
    return chart


def track_pieces(runs: Sequence[VersionRun]) -> dict[str, list[_Piece]]:
    """The runs by track, neighbours that look the same joined. Where there are too many, neighbours are put together,
    and where those differ the piece says that it is mixed."""
    tracks: dict[str, list[_Piece]] = {}
    for name, look_of in TRACKS.items():
        pieces = tracks[name] = list[_Piece]()
        for run in runs:
            look = look_of(run)
            if pieces and pieces[-1].look == look:
                pieces[-1] = _Piece(pieces[-1].first, run.to_version, look)
            else:
                pieces.append(_Piece(run.from_version, run.to_version, look))
        step = -(-len(pieces) // _PIECES)
        if step > 1:
            groups = [pieces[start : start + step] for start in range(0, len(pieces), step)]
            tracks[name] = [
                _Piece(group[0].first, group[-1].last, group[0].look if len({p.look for p in group}) == 1 else _MIXED)
                for group in groups
            ]
    return tracks


def _bar(name: str, pieces: Sequence[_Piece], mode: Mode) -> go.Bar:
    return go.Bar(
        orientation="h",
        y=[name] * len(pieces),
        x=[piece.last - piece.first + 1 for piece in pieces],
        base=[piece.first - 0.5 for piece in pieces],
        marker={
            "color": [state_style(piece.look.state, mode).colour for piece in pieces],
            "pattern": {"shape": [piece.look.pattern for piece in pieces], "fgcolor": SURFACES[mode].background,
                        "size": 6, "solidity": 0.25},
            "line": {"width": 0},
        },
        customdata=[[p.first, p.last, f"v{p.first}" if p.first == p.last else f"v{p.first} – v{p.last}", p.look.word]
                    for p in pieces],
        hovertemplate=f"<b>{name}: %{{customdata[3]}}</b><br>%{{customdata[2]}}<extra></extra>",
    )  # fmt: skip


def legend_sentence(retention: RetentionRuns) -> str:
    """What colours and patterns on this strip mean, in words."""
    looks = {piece.look for pieces in track_pieces(retention.runs).values() for piece in pieces}
    ordered = sorted(looks, key=lambda look: ([*_COLOURS].index(look.state), look.pattern, look.word))
    words = "; ".join(f"{_COLOURS[look.state]} {_PATTERNS[look.pattern]} = {look.word}" for look in ordered)
    return f"{words[:1].upper()}{words[1:]}."


# a number over versions ----------------------------------------------------------------------------------------------


def value_points(values: Sequence[VersionValue[Any]], totals: Sequence[VersionTotals]) -> tuple[Point, ...]:
    """Computed values with the times and operations of their commits."""
    commits = {t.version: t for t in totals}
    points = []
    for number in values:
        commit = commits.get(number.version)
        at, operation = (commit.committed_at, commit.operation) if commit else (None, None)
        points.append(Point(number.version, at, operation, number.value, number.problem, number.table_id))
    return tuple(points)


def can_be_drawn(points: Sequence[Point]) -> bool:
    """Whether every known value is a number or a moment."""
    known = [point.value for point in points if point.value is not None]
    if not known:
        return False
    moments = [isinstance(value, date) for value in known]
    return all(moments) or (not any(moments) and all(number_of(value) is not None for value in known))


def value_columns(series: Series) -> list[Column[Point]]:
    """A version's value with every digit."""

    def value(point: Point) -> str | None:
        return None if point.value is None else series.exact(point.value)

    return [
        Column("Version", lambda point: point.version, "version"),
        Column("Value", value, "figure"),
        Column("Why not", lambda point: point.problem, width="large"),
        Column("Committed at", lambda point: point.at, "moment"),
        Column("Operation", lambda point: point.operation),
    ]
