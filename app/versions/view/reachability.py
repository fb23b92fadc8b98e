"""Which versions can be reached, as people read it: the strip over all versions, and sentences for the chosen one.

Rule: pure; a state is a word and a pattern beside its colour. At most `MAX_POINTS` pieces are drawn, and what was drawn
together says so.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

import plotly.graph_objects as go

from app.ui.view.axes import version_axis
from app.ui.view.theme import FIGURES_KEPT, MAX_POINTS, SURFACES, Mode, state_style, template_name
from app.ui.view.words import markdown_safe, sentence
from backend.format import UNKNOWN, ago, clock_text, things
from backend.lake.retention.answers import Answer, Reach, VersionAnswer
from backend.lake.retention.runs import DataFiles, LogFacts, RetentionRuns, VersionRun
from backend.lake.table.property_values import interval_text


@dataclass(frozen=True, slots=True)
class _Look:
    """How a state of the strip looks: colour by name, pattern, word."""

    colour: str
    pattern: str
    word: str


_YES, _NO, _UNKNOWN = _Look("green", "", "yes"), _Look("red", "/", "no"), _Look("gray", ".", "not known")
_OFF = _Look("gray", "/", "off")
_MIXED = _Look("orange", "x", "mixed: zoom by choosing a version")
_FILES = {
    DataFiles.EXPECTED: _Look("blue", "", "expected: no VACUUM by the settings can have deleted any"),
    DataFiles.PRESENT: _Look("green", "", "all found"),
    DataFiles.SAMPLED: _Look("green", ".", "none of a sample is missing"),
    DataFiles.AT_RISK: _Look("orange", "\\", "a VACUUM may have deleted some"),
    DataFiles.UNKNOWN: _Look("gray", ".", "not known: past the retention"),
    DataFiles.MISSING: _Look("red", "/", "at least one is gone"),
    None: _Look("gray", "/", "not known: the log cannot rebuild the version"),
}


@dataclass(frozen=True, slots=True)
class _Track:
    """One row of the strip."""

    name: str
    look: Callable[[VersionRun], _Look]


_LEGEND = ("green", "blue", "orange", "red", "gray")  # from what is fine to what is not known
_STATES = {"green": "FINE", "orange": "WARNING", "red": "CRITICAL", "blue": "NOTE", "gray": "UNKNOWN"}


def _colour(look: _Look, mode: Mode) -> str:
    return state_style(_STATES[look.colour], mode).colour


def _flag(value: bool | None) -> _Look:
    return _UNKNOWN if value is None else _YES if value else _NO


TRACKS = (
    _Track("In the log", lambda run: _flag(run.listed)),
    _Track("Can be rebuilt", lambda run: _flag(run.reconstructable)),
    _Track("Inside retention", lambda run: _flag(run.in_retention)),
    _Track("Data files", lambda run: _FILES[run.data_files]),
    _Track("Change feed", lambda run: _OFF if run.change_feed is False else _flag(run.change_feed)),
)
_PIECES = MAX_POINTS // len(TRACKS)  # a track


@dataclass(frozen=True, slots=True)
class _Piece:
    first: int
    last: int
    look: _Look


# the strip -------------------------------------------------------------------------------------------------------


def strip_finding(found: RetentionRuns) -> str:
    """The strip's title: how many versions there are and how many can be read."""
    facts = found.facts
    readable = sum(r.to_version - r.from_version + 1 for r in found.runs if r.reconstructable and r.in_retention)
    rebuilt = sum(last - first + 1 for first, last in facts.spans)
    total = things(facts.latest + 1, "version")
    if readable == facts.latest + 1:
        return f"All {total} can be read" if facts.latest else "The only version can be read"
    if facts.deleted_files.duration is None:
        return f"{rebuilt:,} of {total} can be rebuilt; which Delta lets through is not known"
    if readable == rebuilt:
        return f"{readable:,} of {total} can be read"
    return f"{readable:,} of {total} can be read with Delta 4.1 and later, {rebuilt:,} with other readers"


def strip_figure(found: RetentionRuns, *, chosen: int | None, mode: Mode = "light") -> go.Figure:
    """One bar a track over all versions; a piece's `customdata` is its first and last version.

    Built once: not to be changed.
    """
    return _strip_figure(found.runs, found.facts.latest, strip_finding(found), chosen, mode)


@lru_cache(FIGURES_KEPT)
def _strip_figure(runs: tuple[VersionRun, ...], latest: int, title: str, chosen: int | None, mode: Mode) -> go.Figure:
    chart = go.Figure()
    for track in reversed(TRACKS):
        pieces = track_pieces(runs, track)
        chart.add_trace(_bar(track.name, pieces, mode))
    if chosen is not None:
        line = {"color": SURFACES[mode].text, "width": 2}
        chart.add_shape(type="line", x0=chosen, x1=chosen, y0=0, y1=1, yref="paper", line=line)
        edge = "right" if chosen > latest / 2 else "left"
        chart.add_annotation(x=chosen, y=1, yref="paper", text=f"v{chosen}", showarrow=False, yanchor="bottom",
                             xanchor=edge)  # fmt: skip
    chart.update_layout(
        template=template_name(mode), height=270, barmode="overlay", bargap=0.35, showlegend=False, margin_t=64,
        title_text=title,
        xaxis={**version_axis(0, latest), "showgrid": False},
        yaxis={"showgrid": False, "ticklabelstandoff": 8},
    )  # fmt: skip
    return chart


def track_pieces(runs: Sequence[VersionRun], track: _Track) -> list[_Piece]:
    """The runs of one track, neighbours that look the same joined, binned where there are too many."""
    pieces: list[_Piece] = []
    for run in runs:
        look = track.look(run)
        if pieces and pieces[-1].look == look:
            pieces[-1] = _Piece(pieces[-1].first, run.to_version, look)
        else:
            pieces.append(_Piece(run.from_version, run.to_version, look))
    return pieces if len(pieces) <= _PIECES else _binned(pieces)


def _binned(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Neighbours put together; where they differ the piece says that it is mixed."""
    step = -(-len(pieces) // _PIECES)
    bins = []
    for start in range(0, len(pieces), step):
        group = pieces[start : start + step]
        same = all(piece.look == group[0].look for piece in group)
        bins.append(_Piece(group[0].first, group[-1].last, group[0].look if same else _MIXED))
    return bins


def is_binned(found: RetentionRuns) -> bool:
    """Whether the strip shows mixed pieces."""
    return any(piece.look is _MIXED for track in TRACKS for piece in track_pieces(found.runs, track))


def _bar(name: str, pieces: Sequence[_Piece], mode: Mode) -> go.Bar:
    return go.Bar(
        orientation="h",
        y=[name] * len(pieces),
        x=[piece.last - piece.first + 1 for piece in pieces],
        base=[piece.first - 0.5 for piece in pieces],
        marker={
            "color": [_colour(piece.look, mode) for piece in pieces],
            "pattern": {"shape": [piece.look.pattern for piece in pieces], "fgcolor": SURFACES[mode].background,
                        "size": 6, "solidity": 0.25},
            "line": {"width": 0},
        },
        customdata=[[p.first, p.last, f"v{p.first}" if p.first == p.last else f"v{p.first} – v{p.last}", p.look.word]
                    for p in pieces],
        hovertemplate=f"<b>{name}: %{{customdata[3]}}</b><br>%{{customdata[2]}}<extra></extra>",
    )  # fmt: skip


def legend_sentence(found: RetentionRuns) -> str:
    """What colours and patterns on this strip mean, in words."""
    looks = {piece.look for track in TRACKS for piece in track_pieces(found.runs, track)}
    plain = {"": "filled", "/": "hatched", "\\": "hatched", ".": "dotted", "x": "crossed"}
    colours = {"gray": "grey"}
    ordered = sorted(looks, key=lambda look: (_LEGEND.index(look.colour), look.pattern, look.word))
    words = "; ".join(f"{colours.get(k.colour, k.colour)} {plain[k.pattern]} = {k.word}" for k in ordered)
    return f"{words[:1].upper()}{words[1:]}."


# one version -----------------------------------------------------------------------------------------------------

_ICONS = {
    Reach.YES: ":material/check_circle:",
    Reach.NO: ":material/block:",
    Reach.UNKNOWN: ":material/help:",
}
_COLOURS = {Reach.YES: "green", Reach.NO: "red", Reach.UNKNOWN: "orange"}
_OTHERS = {Reach.YES: "still can read it", Reach.NO: "cannot either", Reach.UNKNOWN: "may still read it"}
_WORDS = {Reach.YES: "yes", Reach.NO: "no", Reach.UNKNOWN: "not certain"}


def verdict_text(answer: VersionAnswer, latest: int, zone: str | None, now: datetime) -> str:
    """What can be done with a version in one Markdown sentence with its icon."""
    travel, name = answer.time_travel, f"v{answer.version}"
    if travel.verdict is Reach.YES and answer.version == latest:
        text = f"**{name} is the latest version**: it can be read, and nothing refuses it."
    elif travel.verdict is Reach.YES and travel.until is not None:
        until = f"{'until' if travel.is_promise else 'at least until about'} {clock_text(travel.until, zone, now)}"
        text = f"**{name} can be read and restored** {until}, unless a VACUUM runs that keeps less."
    elif travel.verdict is Reach.UNKNOWN:
        text = f"**Whether {name} can still be read is not certain**: {markdown_safe(travel.reasons[0])}."
    elif travel.until is not None:
        others = _OTHERS[answer.elsewhere.verdict]
        since = clock_text(travel.until, zone, now)
        text = f"**Delta 4.1 and later refuse {name}** since {since}. Readers without that rule {others}."
    else:
        text = f"**{name} cannot be read**: {markdown_safe(travel.reasons[0])}."
    return f"{_ICONS[travel.verdict]} {text}"


def answers_once(answer: VersionAnswer, zone: str | None, now: datetime) -> list[tuple[str, Answer, str]]:
    """The answers with their labels and reasons; no sentence twice, the first answer that needs it has it."""
    labelled = [("Time travel", answer.time_travel), ("Restore", answer.restore)]
    if answer.time_travel == answer.restore:
        labelled = [("Time travel and restore", answer.time_travel)]
    labelled.append(("Change feed of this commit", answer.change_feed))
    labelled.append(("Readers that enforce no retention (delta-rs, Delta before 4.1)", answer.elsewhere))
    said: set[str] = set()
    found = []
    for label, part in labelled:
        lines = [*(sentence(reason) for reason in part.reasons), extension_sentence(part, zone, now)]
        fresh = [line for line in dict.fromkeys(lines) if line and line not in said]
        said.update(fresh)
        found.append((label, part, " ".join(fresh)))
    return found


def restore_command(uri: str, version: int) -> str:
    """Spark SQL that makes a version the latest again."""
    return f"RESTORE TABLE delta.`{uri.replace('`', '``')}` TO VERSION AS OF {version}"


def headline(label: str, answer: Answer, zone: str | None, now: datetime) -> str:
    """An answer as Markdown: ":green[yes]", until when."""
    return f"{_ICONS[answer.verdict]} **{label}**: :{_COLOURS[answer.verdict]}[{answer_text(answer, zone, now)}]"


def answer_text(answer: Answer, zone: str | None, now: datetime | None = None) -> str:
    """ "yes, until Tue 14:05", "no, since 3 Nov 10:30", "not certain"."""
    word = _WORDS[answer.verdict]
    if answer.until is None:
        return word
    moment = clock_text(answer.until, zone, now)
    if answer.verdict is Reach.YES:
        return f"{word}, until {moment}" if answer.is_promise else f"{word}, at least until about {moment}"
    return f"{word}, since {moment}" if answer.verdict is Reach.NO else f"{word}; at most until {moment}"


def extension_sentence(answer: Answer, zone: str | None, now: datetime) -> str:
    """Which setting would move the end; empty where none would."""
    longer = answer.extension
    if longer is None:
        return ""
    note = f"; {longer.note}" if longer.note else ""
    days = interval_text(longer.suggested)
    until = clock_text(longer.until, zone, now)
    return f"`{longer.key}` is {longer.current}; {days} would make it until {until}{note}."


def kind_sentence(answer: Answer) -> str:
    """Whether the end is a promise or an estimate."""
    if answer.until is None:
        return ""
    if answer.is_promise:
        return "This moment follows from the settings alone: it holds as long as nobody changes them."
    return "This moment is an estimate: it depends on when the next checkpoint or VACUUM runs."


def log_sentence(answer: VersionAnswer, zone: str | None, now: datetime) -> str:
    """What becomes of the log that rebuilds the version."""
    if answer.log_kept_until is None:
        return f"Log: {answer.log_words}."
    passed = answer.log_kept_until <= now
    return (
        f"Log: {'due for cleaning since' if passed else 'not cleaned before'} "
        f"{clock_text(answer.log_kept_until, zone, now)}; {answer.log_words}."
    )


def vacuum_sentence(facts: LogFacts, now: datetime) -> str:
    """The last VACUUM that the log records, and what its silence is worth."""
    done = [vacuum for vacuum in facts.vacuums if vacuum.at is not None]
    if not done:
        return "The log records no VACUUM; Spark records one only where it is told to."
    last = done[-1]
    assert last.at is not None
    deleted = things(last.deleted_files, "file") if last.deleted_files is not None else "an unknown number of files"
    reach = f", keeping {interval_text(last.retention)}" if last.retention is not None else ""
    many = f" {things(len(facts.vacuums), 'VACUUM')} in the log." if len(facts.vacuums) > 1 else ""
    return f"Last VACUUM: v{last.version}, {ago(last.at, now)}{reach}; it deleted {deleted}.{many}"


def file_words(run: VersionRun | None) -> str:
    """What the log alone says of a version's files."""
    return _FILES[run.data_files].word if run else UNKNOWN


def run_words(run: VersionRun) -> tuple[str, ...]:
    """A run in words, one a track, in the order of `TRACKS` with the files last."""
    tracks = (TRACKS[0], TRACKS[1], TRACKS[2], TRACKS[4], TRACKS[3])
    return tuple(track.look(run).word for track in tracks)
