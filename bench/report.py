"""Figures as lines of a table, with the target each must reach.

Rule: pure. A line says plainly whether its target is met; a line without one is context.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.measure import Run

PAGE_BYTES = 4096.0  # the least a process can grow by
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
HEADER = "| measured | must reach | Weir | peer | ratio | |\n|---|---|---|---|---|---|"


@dataclass(frozen=True, slots=True)
class Line:
    """One figure. `is_met` None: there is no target."""

    what: str
    target: str = ""
    ours: str = ""
    theirs: str = ""
    ratio: str = ""
    is_met: bool | None = None

    @property
    def markdown(self) -> str:
        verdict = {True: "met", False: "**falls short**", None: ""}[self.is_met]
        return f"| {self.what} | {self.target} | {self.ours} | {self.theirs} | {self.ratio} | {verdict} |"


def faster(what: str, ours: Run, theirs: Run, at_least: float | None = None) -> Line:
    """How many times faster."""
    ratio = theirs.seconds / ours.seconds
    return _against(what, "faster", (duration(ours.seconds), duration(theirs.seconds), ratio), at_least)


def leaner(what: str, ours: Run, theirs: Run, at_least: float | None = None) -> Line:
    """How many times less memory."""
    ratio = theirs.grown_bytes / max(PAGE_BYTES, ours.grown_bytes)
    return _against(what, "less", (megabytes(ours.grown_bytes), megabytes(theirs.grown_bytes), ratio), at_least)


def _against(what: str, word: str, figures: tuple[str, str, float], at_least: float | None) -> Line:
    ours, theirs, ratio = figures
    if at_least is None:
        return Line(what, "", ours, theirs, times(ratio))
    return Line(what, f"≥ {at_least:,.0f}× {word}", ours, theirs, times(ratio), ratio >= at_least)


def at_most(what: str, figure: float, limit: float, shown: tuple[str, str]) -> Line:
    """A figure against a limit; `shown`: both as text."""
    return Line(what, f"≤ {shown[1]}", shown[0], is_met=figure <= limit)


def duration(seconds: float) -> str:
    if seconds >= 100:
        return f"{seconds:,.0f} s"
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.1f} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"


def megabytes(size_bytes: float) -> str:
    return f"{size_bytes / 1e6:,.1f} MB" if size_bytes < 1e7 else f"{size_bytes / 1e6:,.0f} MB"


def times(ratio: float) -> str:
    return f"{ratio:,.0f}×" if ratio >= 10 else f"{ratio:.1f}×"


def render(sections: Sequence[tuple[str, Sequence[Line]]], how: str) -> str:
    """All lines as one Markdown table, with how it was measured and what the machine is."""
    rows = [HEADER]
    for title, lines in sections:
        rows += [f"| **{title}** | | | | | |", *(line.markdown for line in lines)]
    return f"{how} {machine()}\n\n" + "\n".join(rows) + "\n"


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    busy = os.getloadavg()[2]
    return (
        f"{os.cpu_count()} cores, {memory:.0f} GB of memory; load average of the last 15 minutes {busy:.1f}, the "
        "measurement itself included."
    )


def write(path: Path, table: str) -> None:
    """Put the table between the marks of a Markdown file."""
    before, begin, rest = path.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path.name} lacks {BEGIN} … {END}")
    path.write_text(f"{before}{BEGIN}\n{table}{END}{after}")
