"""`make bench-diff`: what changed between two versions, measured against two whole Arrow tables compared in DuckDB.

Rule: equal answers first; a measurement that cannot be compared fails, one that falls short says so.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench import diff_ours as ours
from bench import diff_peer as peer
from bench.diff_table import make_table
from bench.measure import Run, fresh, repeated, require_equal
from bench.report import Line, at_most, duration, faster, leaner, megabytes
from bench.runner import Suite, run_suite
from bench.tables import make_tables

README = Path(__file__).with_name("diff.md")
PAIRS = ((0, 4), (5, 6), (6, 7), (0, 7))
_LARGE = (10_050, 10_100)
GIGABYTE = 1e9


@dataclass(frozen=True, slots=True)
class Bench:
    """Where the table is, where tables of a million files are, and how often each measurement is made."""

    uri: str
    large: Path
    repeats: int

    def runs(self, *measured: partial[Run]) -> list[Run]:
        return repeated(self.repeats, *measured)

    def task(self, which: Callable[..., object], pair: tuple[int, int], **arguments: Any) -> partial[Run]:
        return partial(fresh, which, uri=self.uri, first=pair[0], second=pair[1], **arguments)


def pruned(bench: Bench) -> Iterator[Line]:
    """v0 → v4: update, delete, append, merge; most files are common."""
    pair = (0, 4)
    found, theirs, narrow = bench.runs(
        bench.task(ours.our_diff, pair),
        bench.task(peer.their_diff, pair, page=ours.PAGE_ROWS),
        bench.task(peer.their_counts, pair),
    )
    require_equal(found.answer, theirs.answer, "v0 to v4")
    require_equal(found.answer["rows"], narrow.answer, "the rows of v0 to v4")
    yield faster("v0 → v4 by key", found, theirs, 10)
    yield leaner("the same, memory", found, theirs, 10)
    yield faster("the same, the peer only counts rows", found, narrow)
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

    found, theirs = repeated(bench.repeats, seen, bench.task(peer.their_diff, (5, 6), page=ours.PAGE_ROWS))
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
        yield _in_100_ms(f"v{pair[0]} → v{pair[1]}", run)


def million(bench: Bench) -> Iterator[Line]:
    """The same of a table of a million files, 50 commits of 600 files: cold, and asked again of the same `Lake`."""
    for name, words in (("T3-crc", "the writer leaves checksums"), ("T3", "no checksums")):
        pair: dict[str, Any] = {"uri": str(bench.large / name), "first": _LARGE[0], "second": _LARGE[1]}
        cold, warm = bench.runs(partial(fresh, ours.our_log_only, **pair), partial(fresh, ours.our_log_again, **pair))
        yield _in_100_ms(words, cold)
        yield _in_100_ms(f"{words}, asked again", warm)


def _in_100_ms(what: str, run: Run) -> Line:
    return at_most(what, run.seconds, 0.1, (duration(run.seconds), "100 ms"))


SECTIONS: dict[str, Callable[[Bench], Iterator[Line]]] = {
    "log": log_only,
    "million": million,
    "pruned": pruned,
    "scattered": scattered,
    "feed": feed,
}


def main(words: Sequence[str] | None = None) -> int:
    """Measures, prints the table; 1 when a measurement means nothing."""
    return run_suite(Suite("bench-diff", __doc__, README, _bench, SECTIONS, ("deltalake", "duckdb"), 3), words)


def _bench(folder: Path, scale: float, repeats: int) -> Bench:
    return Bench(str(make_table(folder, scale)), make_tables(folder, scale, ("T3",)), repeats)


if __name__ == "__main__":
    sys.exit(main())
