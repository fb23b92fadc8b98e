"""The harness of every bench: a task in a process of its own, its figures as lines of a table, and the command.

Rule: equal answers first; a measurement that cannot be compared ends the run with 1 and no table, one that falls short
of its target says so. Imports are done before the clock starts, pandas among them (Arrow looks for it at its first
conversion). Memory is the peak while a lap runs less what the process held before.
"""

import argparse
import importlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any

import orjson
import pyarrow as pa

LIMIT_S = 300.0
PAGE_BYTES = 4096.0  # the least a process can grow by
_MARK = b"measured:"


class BenchError(Exception):
    """A measurement that means nothing: answers differ, or a process failed."""


# one measurement ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lap:
    """One go of an operation."""

    seconds: float
    grown_bytes: int
    peak_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """What a task answered (as JSON), and its laps; of seconds and bytes the median."""

    answer: Any
    laps: tuple[Lap, ...]

    @property
    def seconds(self) -> float:
        return statistics.median(lap.seconds for lap in self.laps)

    @property
    def grown_bytes(self) -> float:
        return statistics.median(lap.grown_bytes for lap in self.laps)

    def faster(self, what: str, theirs: "Run", at_least: float | None = None) -> "Line":
        """How many times faster."""
        return against(what, duration(self.seconds), duration(theirs.seconds), theirs.seconds / self.seconds, at_least)

    def leaner(self, what: str, theirs: "Run", at_least: float | None = None) -> "Line":
        """How many times less memory."""
        ratio = theirs.grown_bytes / max(PAGE_BYTES, self.grown_bytes)
        return against(what, megabytes(self.grown_bytes), megabytes(theirs.grown_bytes), ratio, at_least, " less")


@dataclass
class Watch:
    """A task's clock: `with watch:` is one lap."""

    laps: list[Lap] = field(default_factory=list)
    _started: float = 0.0
    _held: int = 0

    def __enter__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew at what is held now
        self._held = memory("VmRSS")
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        seconds, peak = time.perf_counter() - self._started, memory("VmHWM")
        self.laps.append(Lap(seconds, max(0, peak - self._held), peak))


Task = Callable[..., Any]  # takes a Watch and keyword arguments, gives an answer that is JSON


def fresh(
    task: Task, *, home: str | None = None, folder: Path | None = None, limit_s: float = LIMIT_S, **arguments: Any
) -> Run:
    """Run a task once in a new interpreter; raises `BenchError` when it fails. Its WEIR_HOME is empty, in `folder`,
    unless one is given."""
    asked = orjson.dumps({"module": task.__module__, "name": task.__name__, "arguments": arguments})
    argv = [sys.executable, "-m", "bench.harness"]
    with tempfile.TemporaryDirectory(prefix="weir-bench-", dir=folder) as own:
        place = home or own
        env = {"PATH": "/usr/bin:/bin", "WEIR_HOME": place, "PYTHONPATH": str(Path(__file__).parents[1]), "HOME": place}
        try:
            ended = subprocess.run(argv, input=asked, capture_output=True, env=env, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired as exc:
            raise BenchError(f"{task.__name__} took more than {limit_s:g} s") from exc
    _, mark, answered = ended.stdout.rpartition(_MARK)
    if ended.returncode or not mark:
        raise BenchError(f"{task.__name__} failed: {ended.stderr.decode(errors='replace')[-2_000:]}")
    document = orjson.loads(answered)
    return Run(document["answer"], tuple(Lap(*lap) for lap in document["laps"]))


def _run_asked() -> None:
    """The other side of `fresh`."""
    asked = orjson.loads(sys.stdin.buffer.read())
    task = getattr(importlib.import_module(asked["module"]), asked["name"])
    pa.array([""])
    watch = Watch()
    answer = task(watch, **asked["arguments"])
    document = {"answer": answer, "laps": [astuple(lap) for lap in watch.laps]}
    sys.stdout.buffer.write(b"\n" + _MARK + orjson.dumps(document))


def require_equal(ours: Any, theirs: Any, what: str) -> None:
    """A comparison of things that differ is none: raises `BenchError` with the first difference."""
    if ours == theirs:
        return
    pairs: list[tuple[Any, Any, Any]] = []
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        pairs = [(key, ours[key], theirs[key]) for key in ours]
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = list(zip(range(len(ours)), ours, theirs, strict=True))
    for key, mine, other in pairs:
        require_equal(mine, other, f"{what}, {key}")
    raise BenchError(f"the answers differ ({what}): {str(ours)[:200]} is not {str(theirs)[:200]}")


def memory(name: str) -> int:
    """Bytes, by a name of /proc/self/status."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status[name].split()[0]) * 1024


# a line of the table -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """One figure. `is_met` None: there is no target, the line is context."""

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


def against(
    what: str, ours: str, theirs: str, ratio: float, at_least: float | None = None, word: str = " faster"
) -> Line:
    """Beside the peer, with how many times better Weir is; near 1 that is told to a hundredth."""
    shown = times(ratio) if at_least is None or at_least >= 1 else f"{ratio:.2f}×"
    if at_least is None:
        return Line(what, "", ours, theirs, shown)
    return Line(what, f"≥ {at_least:,g}×{word}", ours, theirs, shown, ratio >= at_least)


def at_most(what: str, figure: float, limit: float, shown: tuple[str, str]) -> Line:
    """A figure against a limit; `shown`: both as text."""
    return Line(what, f"≤ {shown[1]}", shown[0], is_met=figure <= limit)


def counted(what: str, figure: int, limit: int) -> Line:
    return at_most(what, figure, limit, (str(figure), str(limit)))


def within(what: str, seconds: float, limit_s: float) -> Line:
    limit = f"{limit_s:g} s" if limit_s >= 1 else f"{limit_s * 1000:g} ms"
    return at_most(what, seconds, limit_s, (duration(seconds), limit))


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


# the command -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bench:
    """`tables`: what the suite made in `folder`, at a scale. So often is each measurement made."""

    folder: Path
    tables: Path
    scale: float
    repeats: int
    limit_s: float = LIMIT_S

    def go(self, task: Task, **arguments: Any) -> Callable[..., Run]:
        """A task and its arguments, to be run in a process and a home of its own."""
        return partial(fresh, task, folder=self.folder, limit_s=self.limit_s, **arguments)

    @property
    def halved(self) -> "Bench":
        """For what takes long: half as often."""
        return replace(self, repeats=(self.repeats + 1) // 2)

    def runs(self, *goes: Callable[[], Run]) -> list[Run]:
        """Each so often, turn by turn so that a busy moment meets them all; answers must not change."""
        runs: list[list[Run]] = [[] for _ in goes]
        for _ in range(self.repeats):
            for go, own in zip(goes, runs, strict=True):
                own.append(go())
                require_equal(own[0].answer, own[-1].answer, "two runs of one task")
        return [Run(own[0].answer, tuple(lap for run in own for lap in run.laps)) for own in runs]

    def alike(self, what: str, *tasks: Task, **arguments: Any) -> list[Run]:
        """Tasks with the same arguments, which must give the same answer."""
        runs = self.runs(*(self.go(task, **arguments) for task in tasks))
        for run in runs[1:]:
            require_equal(runs[0].answer, run.answer, what)
        return runs

    def paced(self, what: str, rows: int, ours: Task, theirs: Task, at_least: float, **arguments: Any) -> Line:
        """Rows a second against the peer's."""
        runs = self.alike(what, ours, theirs, **arguments)
        mine, others = (f"{rows / run.seconds:,.0f} rows/s" for run in runs)
        return against(what, mine, others, runs[1].seconds / runs[0].seconds, at_least, "")


Section = Callable[[Bench], Iterator[Line]]  # its name is the word for `--only`, its docstring its title


@dataclass(frozen=True, slots=True)
class Suite:
    """What one command measures: sections of one module. `make` makes its tables in a folder, at a scale; `packages`
    are told with their versions; a task may take so long."""

    sections: tuple[Section, ...]
    packages: Sequence[str]
    repeats: int
    make: Callable[[Path, float], Path] = lambda folder, _scale: folder
    limit_s: float = LIMIT_S

    @property
    def figures(self) -> str:
        """The file of bench/ that keeps the table."""
        name = self.sections[0].__module__.rpartition(".")[2]
        return "README.md" if name == "lake" else f"{name}.md"


def run_suite(suite: Suite, words: Sequence[str] | None = None) -> int:
    """Measures, prints the table, keeps it with `--write`; 1 when a measurement means nothing."""
    sections = {section.__name__: section for section in suite.sections}
    about = sys.modules[suite.sections[0].__module__].__doc__
    parser = argparse.ArgumentParser(prog="python -m bench SUITE", description=about)
    parser.add_argument("--scale", type=float, default=1.0, help="size of the tables, 1 is what the targets are for")
    parser.add_argument("--repeats", type=int, default=suite.repeats, help="runs of each; the median counts")
    parser.add_argument("--only", nargs="+", choices=list(sections), help="some of the sections")
    parser.add_argument("--tables", type=Path, default=Path(tempfile.gettempdir()), help="folder that keeps the tables")
    parser.add_argument("--write", action="store_true", help=f"put the table into bench/{suite.figures}")
    chosen = parser.parse_args(words)
    try:
        with _timed("all"):
            tables = suite.make(chosen.tables, chosen.scale)
            bench = Bench(chosen.tables, tables, chosen.scale, chosen.repeats, suite.limit_s)
            lines = [_measured(sections[name], bench) for name in chosen.only or sections]
    except BenchError as exc:
        sys.stderr.write(f"error: {exc}\n")
        return 1
    table = render(lines, _how(suite, chosen.repeats, chosen.scale))
    sys.stdout.write(f"{table}\n")
    if chosen.write:
        write(Path(__file__).with_name(suite.figures), table)
    return 0


def _measured(section: Section, bench: Bench) -> tuple[str, list[Line]]:
    with _timed(section.__name__):
        return (section.__doc__ or "").strip().rstrip("."), list(section(bench))


@contextmanager
def _timed(name: str) -> Iterator[None]:
    sys.stderr.write(f"{name} …\n")
    started = time.monotonic()
    yield
    sys.stderr.write(f"{name}: {time.monotonic() - started:.0f} s\n")


# the report --------------------------------------------------------------------------------------------------------

BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
HEADER = "| measured | must reach | Weir | peer | ratio | |\n|---|---|---|---|---|---|"


def render(sections: Sequence[tuple[str, Sequence[Line]]], how: str) -> str:
    """All lines as one Markdown table, with how it was measured and what the machine is."""
    rows = [HEADER]
    for title, lines in sections:
        rows += [f"| **{title}** | | | | | |", *(line.markdown for line in lines)]
    size_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    machine = (
        f"{os.cpu_count()} cores, {size_bytes / 1e9:.0f} GB of memory; load average of the last 15 minutes "
        f"{os.getloadavg()[2]:.1f}, the measurement itself included."
    )
    return f"{how} {machine}\n\n" + "\n".join(rows) + "\n"


def _how(suite: Suite, repeats: int, scale: float) -> str:
    size = "" if scale == 1 else f" Tables of {scale:g} times the size that the targets are for."
    packages = [("DuckDB" if name == "duckdb" else name, version(name)) for name in suite.packages]
    versions = ", ".join(f"{name} {number}" for name, number in (*packages, ("Python", python_version())))
    return f"{versions}, median of {repeats} runs.{size}"


def write(path: Path, table: str) -> None:
    """Put the table between the marks of a Markdown file."""
    before, begin, rest = path.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path.name} lacks {BEGIN} … {END}")
    path.write_text(f"{before}{BEGIN}\n{table}{END}{after}")


if __name__ == "__main__":
    _run_asked()
