"""`make bench-diff`: what changed between two versions, measured against two whole Arrow tables compared in DuckDB.

Rule: equal answers first; a measurement that cannot be compared fails, one that falls short says so.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from platform import python_version

from bench import diff_ours as ours
from bench import diff_peer as peer
from bench.diff_table import make_table
from bench.measure import BenchError, Run, fresh, repeated, require_equal
from bench.report import Line, at_most, duration, faster, leaner, megabytes, render, write

README = Path(__file__).with_name("diff.md")
PAIRS = ((0, 4), (5, 6), (6, 7), (0, 7))
GIGABYTE = 1e9


@dataclass(frozen=True, slots=True)
class Bench:
    """Where the table is, and how often each measurement is made."""

    uri: str
    repeats: int

    def runs(self, *measured: partial[Run]) -> list[Run]:
        return repeated(self.repeats, *measured)

    def task(self, which: Callable[..., object], pair: tuple[int, int], **arguments: object) -> partial[Run]:
        return partial(fresh, which, uri=self.uri, first=pair[0], second=pair[1], **arguments)


def pruned(bench: Bench) -> Iterator[Line]:
    """v0 → v4: update, delete, append, merge; most files are common."""
    found, theirs = bench.runs(bench.task(ours.our_diff, (0, 4)), bench.task(peer.their_diff, (0, 4)))
    require_equal(found.answer, theirs.answer, "v0 to v4")
    yield faster("v0 → v4 by key", found, theirs, 10)
    yield leaner("the same, memory", found, theirs, 10)
    yield at_most(
        "the same, until the summary and 100 rows are there", found.seconds, 1, (duration(found.seconds), "1 s")
    )


def scattered(bench: Bench) -> Iterator[Line]:
    """v5 → v6: 0.1 % of the rows changed, in every file."""
    peaks: list[int] = []

    def seen() -> Run:
        run = fresh(ours.our_peak, uri=bench.uri, first=5, second=6)
        peaks.append(run.answer.pop("peak_bytes"))
        return run

    found, theirs = repeated(bench.repeats, seen, bench.task(peer.their_diff, (5, 6)))
    require_equal(found.answer, theirs.answer, "v5 to v6")
    peak = max(peaks)
    yield at_most("v5 → v6 by key, the process never above", peak, GIGABYTE, (megabytes(peak), "1 GB"))
    yield leaner("the same, memory", found, theirs)
    yield faster("the same, time", found, theirs)


def feed(bench: Bench) -> Iterator[Line]:
    """v6 → v7: every row updated, with a change feed."""
    pair = (6, 7)
    found, theirs, narrow = bench.runs(
        bench.task(ours.our_feed, pair),
        bench.task(peer.their_feed, pair),
        bench.task(peer.their_feed, pair, columns=["_change_type"]),
    )
    for run in (theirs, narrow):
        require_equal(found.answer, run.answer, "the change feed of v7")
    yield faster(f"change feed by type, {sum(found.answer.values()):,} changes", found, theirs, 10)
    yield leaner("the same, memory", found, theirs)
    yield faster("the same, `load_cdf` asked for one column", found, narrow)


def log_only(bench: Bench) -> Iterator[Line]:
    """What the log alone tells, of a `Lake` just opened."""
    for pair, run in zip(PAIRS, bench.runs(*(bench.task(ours.our_log_only, pair) for pair in PAIRS)), strict=True):
        yield at_most(f"v{pair[0]} → v{pair[1]}", run.seconds, 0.1, (duration(run.seconds), "100 ms"))


SECTIONS: dict[str, Callable[[Bench], Iterator[Line]]] = {
    "log": log_only,
    "pruned": pruned,
    "scattered": scattered,
    "feed": feed,
}


def main(words: Sequence[str] | None = None) -> int:
    """Measures, prints the table; 1 when a measurement means nothing."""
    chosen = _arguments().parse_args(words)
    started = time.monotonic()
    sys.stderr.write("making the table …\n")
    bench = Bench(str(make_table(chosen.tables, chosen.scale)), chosen.repeats)
    sections = []
    try:
        for name in chosen.only or SECTIONS:
            sys.stderr.write(f"{name} …\n")
            sections.append(((SECTIONS[name].__doc__ or "").strip().rstrip("."), list(SECTIONS[name](bench))))
    except BenchError as exc:
        sys.stderr.write(f"error: {exc}\n")
        return 1
    size = "" if chosen.scale == 1 else f" A table of {chosen.scale:g} times the size that the targets are for."
    versions = f"deltalake {version('deltalake')}, DuckDB {version('duckdb')}, Python {python_version()}"
    table = render(sections, f"{versions}, median of {chosen.repeats} runs.{size}")
    sys.stdout.write(f"{table}\n")
    if chosen.write:
        write(README, table)
    sys.stderr.write(f"{time.monotonic() - started:.0f} s in all\n")
    return 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench-diff", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="size of the table, 1 is what the targets are for")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each measurement; the median counts")
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), help="some of the sections")
    parser.add_argument("--tables", type=Path, default=Path(tempfile.gettempdir()), help="folder that keeps the table")
    parser.add_argument("--write", action="store_true", help="put the table into bench/diff.md")
    return parser


if __name__ == "__main__":
    sys.exit(main())
