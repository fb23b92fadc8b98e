"""The command of a bench: makes what is measured, runs its sections, prints their lines as one table.

Rule: a measurement that cannot be compared ends it with 1 and no table.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Generic, TypeVar

from bench.measure import BenchError
from bench.report import Line, render, write

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Suite(Generic[Made]):
    """What one command measures. `make` makes the tables in a folder, at a scale, for so many runs of each measurement;
    a section's docstring is its title; `figures` keeps the table; `packages` are told with their versions."""

    name: str
    about: str
    figures: Path
    make: Callable[[Path, float, int], Made]
    sections: Mapping[str, Callable[[Made], Iterator[Line]]]
    packages: Sequence[str]
    repeats: int


def run_suite(suite: Suite[Made], words: Sequence[str] | None) -> int:
    """Measures, prints the table; 1 when a measurement means nothing."""
    chosen = _arguments(suite).parse_args(words)
    try:
        with _timed("all"):
            made = suite.make(chosen.tables, chosen.scale, chosen.repeats)
            sections = [_measured(suite, name, made) for name in chosen.only or suite.sections]
    except BenchError as exc:
        sys.stderr.write(f"error: {exc}\n")
        return 1
    table = render(sections, _how(suite, chosen.repeats, chosen.scale))
    sys.stdout.write(f"{table}\n")
    if chosen.write:
        write(suite.figures, table)
    return 0


def _measured(suite: Suite[Made], name: str, made: Made) -> tuple[str, list[Line]]:
    section = suite.sections[name]
    with _timed(name):
        return (section.__doc__ or "").strip().rstrip("."), list(section(made))


def _how(suite: Suite[Made], repeats: int, scale: float) -> str:
    size = "" if scale == 1 else f" Tables of {scale:g} times the size that the targets are for."
    packages = [("DuckDB" if name == "duckdb" else name, version(name)) for name in suite.packages]
    told = ", ".join(f"{name} {number}" for name, number in (*packages, ("Python", python_version())))
    return f"{told}, median of {repeats} runs.{size}"


def _arguments(suite: Suite[Made]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"make {suite.name}", description=suite.about)
    parser.add_argument("--scale", type=float, default=1.0, help="size of the tables, 1 is what the targets are for")
    parser.add_argument(
        "--repeats", type=int, default=suite.repeats, help="runs of each measurement; the median counts"
    )
    parser.add_argument("--only", nargs="+", choices=list(suite.sections), help="some of the sections")
    parser.add_argument("--tables", type=Path, default=Path(tempfile.gettempdir()), help="folder that keeps the tables")
    parser.add_argument("--write", action="store_true", help=f"put the table into bench/{suite.figures.name}")
    return parser


@contextmanager
def _timed(name: str) -> Iterator[None]:
    sys.stderr.write(f"{name} …\n")
    started = time.monotonic()
    yield
    sys.stderr.write(f"{name}: {time.monotonic() - started:.0f} s\n")
