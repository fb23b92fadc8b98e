"""`make bench SUITE=diff`: what changed between two versions, measured against two whole tables compared in DuckDB."""

from collections.abc import Iterator
from functools import partial

from bench import diff_tasks as tasks
from bench.diff_table import make_table
from bench.harness import Bench, Line, Suite, at_most, megabytes, require_equal, within
from tests.worlds.lake.large_logs import make_tables

PAIRS = ((0, 4), (5, 6), (6, 7), (0, 7))
GIGABYTE = 1e9


def log(bench: Bench) -> Iterator[Line]:
    """What the log alone tells, of a `Lake` just opened."""
    uri = str(bench.tables)
    goes = [bench.go(tasks.our_log_only, uri=uri, first=first, second=second) for first, second in PAIRS]
    for (first, second), run in zip(PAIRS, bench.runs(*goes), strict=True):
        yield within(f"v{first} → v{second}", run.seconds, 0.1)


def million(bench: Bench) -> Iterator[Line]:
    """The same of a table of a million files, 50 commits of 600 files: cold, and asked again of the same `Lake`."""
    tables = make_tables(bench.folder, bench.scale, ("T3",))
    for name, words in (("T3-crc", "the writer leaves checksums"), ("T3", "no checksums")):
        pair = (tasks.our_log_only, tasks.our_log_again)
        cold, warm = bench.alike(words, *pair, uri=str(tables / name), first=10_050, second=10_100)
        yield within(words, cold.seconds, 0.1)
        yield within(f"{words}, asked again", warm.seconds, 0.1)


def pruned(bench: Bench) -> Iterator[Line]:
    """v0 → v4: update, delete, append, merge; most files are common."""
    versions = {"uri": str(bench.tables), "first": 0, "second": 4}
    pair = (tasks.our_diff, tasks.their_diff, tasks.their_counts)
    ours, theirs, narrow = bench.runs(*(bench.go(task, **versions) for task in pair))
    require_equal(ours.answer, theirs.answer, "v0 to v4")
    require_equal(ours.answer["rows"], narrow.answer, "the rows of v0 to v4")
    yield ours.faster("v0 → v4 by key", theirs, 10)
    yield ours.leaner("the same, memory", theirs, 10)
    yield ours.faster("the same, the peer only counts rows", narrow)
    yield within("the same, until the summary and 100 rows are there", ours.seconds, 1)


def scattered(bench: Bench) -> Iterator[Line]:
    """v5 → v6: 0.1 % of the rows changed, in every file."""
    pair = (tasks.our_diff, tasks.their_diff)
    ours, theirs = bench.alike("v5 to v6", *pair, uri=str(bench.tables), first=5, second=6)
    peak = max(lap.peak_bytes for lap in ours.laps)
    yield at_most("v5 → v6 by key, the process never above", peak, GIGABYTE, (megabytes(peak), "1 GB"))
    yield ours.leaner("the same, memory", theirs)
    yield ours.faster("the same, time", theirs)


def feed(bench: Bench) -> Iterator[Line]:
    """v6 → v7: every row updated, with a change feed."""
    versions = {"uri": str(bench.tables), "first": 6, "second": 7}
    theirs_of = bench.go(tasks.their_feed, **versions)
    narrow_of = partial(theirs_of, columns=["_change_type"])
    ours, theirs, narrow = bench.runs(bench.go(tasks.our_feed, **versions), theirs_of, narrow_of)
    for run in (theirs, narrow):
        require_equal(ours.answer, run.answer, "the change feed of v7")
    yield ours.faster(f"change feed by type, {sum(ours.answer.values()):,} changes", theirs, 10)
    yield ours.leaner("the same, memory", theirs)
    yield ours.faster("the same, `load_cdf` asked for one column", narrow)


SUITE = Suite((log, million, pruned, scattered, feed), packages=("deltalake", "duckdb"), repeats=3, make=make_table)
