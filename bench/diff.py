"""`make bench-diff`: what changed between two versions, measured against two whole Arrow tables compared in DuckDB."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from bench import diff_ours as ours
from bench import diff_peer as peer
from bench.diff_table import make_table
from bench.harness import (
    Bench,
    Line,
    Run,
    Suite,
    at_most,
    faster,
    fresh,
    leaner,
    megabytes,
    require_equal,
    within,
)
from bench.tables import make_tables

PAIRS = ((0, 4), (5, 6), (6, 7), (0, 7))
_LARGE = (10_050, 10_100)
GIGABYTE = 1e9


def task(bench: Bench, which: Callable[..., object], pair: tuple[int, int], **arguments: Any) -> partial[Run]:
    return partial(fresh, which, uri=str(bench.tables), first=pair[0], second=pair[1], **arguments)


def pruned(bench: Bench) -> Iterator[Line]:
    """v0 → v4: update, delete, append, merge; most files are common."""
    pair = (0, 4)
    found, theirs, narrow = bench.runs(
        task(bench, ours.our_diff, pair),
        task(bench, peer.their_diff, pair, page=ours.PAGE_ROWS),
        task(bench, peer.their_counts, pair),
    )
    require_equal(found.answer, theirs.answer, "v0 to v4")
    require_equal(found.answer["rows"], narrow.answer, "the rows of v0 to v4")
    yield faster("v0 → v4 by key", found, theirs, 10)
    yield leaner("the same, memory", found, theirs, 10)
    yield faster("the same, the peer only counts rows", found, narrow)
    yield within("the same, until the summary and 100 rows are there", found.seconds, 1)


def scattered(bench: Bench) -> Iterator[Line]:
    """v5 → v6: 0.1 % of the rows changed, in every file."""
    peaks: list[int] = []

    def seen() -> Run:
        run = fresh(ours.our_peak, uri=str(bench.tables), first=5, second=6)
        peaks.append(run.answer.pop("peak_bytes"))
        return run

    found, theirs = bench.runs(seen, task(bench, peer.their_diff, (5, 6), page=ours.PAGE_ROWS))
    require_equal(found.answer, theirs.answer, "v5 to v6")
    peak = max(peaks)
    yield at_most("v5 → v6 by key, the process never above", peak, GIGABYTE, (megabytes(peak), "1 GB"))
    yield leaner("the same, memory", found, theirs)
    yield faster("the same, time", found, theirs)


def feed(bench: Bench) -> Iterator[Line]:
    """v6 → v7: every row updated, with a change feed."""
    pair = (6, 7)
    found, theirs, narrow = bench.runs(
        task(bench, ours.our_feed, pair),
        task(bench, peer.their_feed, pair),
        task(bench, peer.their_feed, pair, columns=["_change_type"]),
    )
    for run in (theirs, narrow):
        require_equal(found.answer, run.answer, "the change feed of v7")
    yield faster(f"change feed by type, {sum(found.answer.values()):,} changes", found, theirs, 10)
    yield leaner("the same, memory", found, theirs)
    yield faster("the same, `load_cdf` asked for one column", found, narrow)


def log_only(bench: Bench) -> Iterator[Line]:
    """What the log alone tells, of a `Lake` just opened."""
    for pair, run in zip(PAIRS, bench.runs(*(task(bench, ours.our_log_only, pair) for pair in PAIRS)), strict=True):
        yield within(f"v{pair[0]} → v{pair[1]}", run.seconds, 0.1)


def million(bench: Bench) -> Iterator[Line]:
    """The same of a table of a million files, 50 commits of 600 files: cold, and asked again of the same `Lake`."""
    tables = make_tables(bench.folder, bench.scale, ("T3",))
    for name, words in (("T3-crc", "the writer leaves checksums"), ("T3", "no checksums")):
        pair: dict[str, Any] = {"uri": str(tables / name), "first": _LARGE[0], "second": _LARGE[1]}
        cold, warm = bench.runs(partial(fresh, ours.our_log_only, **pair), partial(fresh, ours.our_log_again, **pair))
        yield within(words, cold.seconds, 0.1)
        yield within(f"{words}, asked again", warm.seconds, 0.1)


SUITE = Suite(
    "bench-diff",
    __doc__,
    "diff.md",
    {"log": log_only, "million": million, "pruned": pruned, "scattered": scattered, "feed": feed},
    packages=("deltalake", "duckdb"),
    repeats=3,
    make=make_table,
)
