"""`make bench-lake`: the log reader and the pages on it, measured against `deltalake` on tables made here.

Rule: equal answers first; a measurement that cannot be compared fails, one that falls short says so.
"""

import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench import ours, peer
from bench.measure import Run, Task, fresh, repeated, require_equal
from bench.report import Line, at_most, duration, faster, leaner, times
from bench.runner import Suite, run_suite
from bench.tables import Shape, clone, make_tables, next_commits, shapes

README = Path(__file__).with_name("README.md")
REFRESHES = 5
SAMPLED = 20


@dataclass(frozen=True, slots=True)
class Bench:
    """Where the tables are, how large, and how often each measurement is made."""

    tables: Path
    scale: float
    repeats: int

    def uri(self, name: str) -> str:
        return str(self.tables / name)

    def shape(self, name: str) -> Shape:
        return shapes(self.scale)[name]


def history(bench: Bench) -> Iterator[Line]:
    """The newest hundred commits."""
    for name, at_least in (("T1", 10), ("T2", 10), ("T3", 1_000)):
        uri = bench.uri(name)
        tasks = (ours.history, peer.history)
        found, theirs = repeated(bench.repeats, *(partial(fresh, task, uri=uri, limit=100) for task in tasks))
        warm = fresh(ours.warm_history, uri=uri, limit=100)
        for run in (theirs, warm):
            require_equal(found.answer, run.answer, f"history of {name}")
        yield faster(f"history(100) of {name}", found, theirs, at_least)
        yield leaner("the same, memory", found, theirs)
        yield faster("the same, asked again of a warm `Lake`", warm, theirs)


def distribution(bench: Bench) -> Iterator[Line]:
    """Size histogram and totals per partition of T3."""
    uri = bench.uri("T3")
    plain, theirs, summed, histogram = repeated(
        bench.repeats,
        partial(fresh, ours.distribution, uri=uri),
        partial(fresh, peer.distribution, uri=uri),
        partial(fresh, ours.distribution, uri=f"{uri}-crc"),
        partial(fresh, ours.checksum_histogram, uri=f"{uri}-crc"),
    )
    require_equal(plain.answer, theirs.answer, "distribution of T3")
    require_equal(summed.answer, theirs.answer, "distribution of T3 with .crc")
    known = {name: theirs.answer[name] for name in ("files", "buckets")}
    require_equal(histogram.answer, known, "histogram of T3's .crc")
    yield faster("size histogram and totals per day of T3", plain, theirs, 20)
    yield leaner("the same, memory", plain, theirs, 10)
    yield faster("the same with `.crc`", summed, theirs, 20)
    yield leaner("the same with `.crc`, memory", summed, theirs, 10)
    yield faster("the histogram alone with `.crc`", histogram, theirs, 1_000)


def refresh(bench: Bench) -> Iterator[Line]:
    """One new commit, seen by a `Lake` that lives on: latest version, totals, history(20)."""
    small, large = _refreshed(bench, "T1", ours.refresh), _refreshed(bench, "T3", ours.refresh)
    theirs = _refreshed(bench, "T3", peer.refresh)
    require_equal(large.answer, theirs.answer, "T3 after new commits")
    ratio = large.seconds / small.seconds
    shown = f"{duration(large.seconds)} / {duration(small.seconds)}"
    yield Line("refresh after one commit, T3 / T1", "≤ 1.5", shown, "", times(ratio), ratio <= 1.5)
    yield faster("refresh of T3 against `update_incremental`", large, theirs, 100)
    first = duration(large.laps[0].seconds), duration(theirs.laps[0].seconds)
    yield Line("the first of these refreshes", ours=first[0], theirs=first[1])


def _refreshed(bench: Bench, name: str, task: Task) -> Run:
    commits = next_commits(bench.shape(name), REFRESHES)
    with tempfile.TemporaryDirectory(prefix="weir-bench-", dir=bench.tables) as folder:
        return fresh(task, uri=str(clone(bench.tables / name, Path(folder) / name)), commits=commits)


def timeline(bench: Bench) -> Iterator[Line]:
    """Totals of every version of T2 against opening versions one by one."""
    count, uri = bench.shape("T2").commits, bench.uri("T2")
    stride = count // SAMPLED
    chosen = [stride * n + 37 * n % stride for n in range(SAMPLED)]
    theirs = fresh(peer.versions, uri=uri, chosen=chosen)
    (whole,) = repeated(max(1, bench.repeats // 2), partial(fresh, ours.timeline, uri=uri, chosen=chosen))
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as home:
        fresh(ours.timeline, uri=uri, chosen=chosen, home=home)
        (kept,) = repeated(bench.repeats, partial(fresh, ours.timeline, uri=uri, chosen=chosen, home=home))
    for run in (whole, kept):
        require_equal(run.answer, theirs.answer, "timeline of T2")
    each = statistics.mean(lap.seconds for lap in theirs.laps)
    one_by_one = f"{duration(each * count)} ({count:,} × {duration(each)}, from {SAMPLED})"
    for what, run, at_least in (
        (f"timeline of all {count:,} versions of T2", whole, 500),
        ("the same after a restart", kept, None),
    ):
        ratio = each * count / run.seconds
        target, is_met = (f"≥ {at_least}× faster", ratio >= at_least) if at_least else ("", None)
        yield Line(what, target, duration(run.seconds), one_by_one, times(ratio), is_met)


def object_store(bench: Bench) -> Iterator[Line]:
    """T1 on an S3 server that waits 30 ms before each answer."""
    from bench import object_store as store

    found = store.measure(bench.tables / "T1", (bench.repeats + 1) // 2)
    yield at_most("history(100) of T1, requests", found.requests, 102, (str(found.requests), "102"))
    yield Line(
        f"a look of {store.VIEWERS} viewers with nothing new, requests",
        "1",
        str(found.idle_requests),
        is_met=found.idle_requests == 1,
    )
    yield Line("requests of `deltalake` for history(100)", theirs=str(found.their_requests))
    yield faster("history(100) of T1, time", found.ours, found.theirs)


def page(bench: Bench) -> Iterator[Line]:
    """History and Files of T3 in a browser."""
    from bench import page as pages

    chosen = {
        "History of T3": ("history", "T3"),
        "Files of T3": ("files", "T3"),
        "Files of T3 with `.crc`": ("files", "T3-crc"),
    }
    measured = pages.measure(bench.tables, list(chosen.values()), max(1, bench.repeats // 2))
    for title, found in zip(chosen, measured, strict=True):
        for how, visit, small in (
            ("opened on a server just started", found.opened, found.small_opened),
            ("loaded by its address", found.loaded, found.small_loaded),
        ):
            line = at_most(f"{title}, {how}", visit.seconds, 1.0, (duration(visit.seconds), "1 s"))
            yield replace(line, theirs=f"{duration(small.seconds)} for a table of 300 files")
        largest = max(found.opened.largest_bytes, found.loaded.largest_bytes)
        yield at_most(f"{title}, largest message", largest, 500_000, (f"{largest / 1000:,.0f} kB", "500 kB"))


SECTIONS: dict[str, Callable[[Bench], Iterator[Line]]] = {
    "history": history,
    "files": distribution,
    "refresh": refresh,
    "timeline": timeline,
    "store": object_store,
    "page": page,
}


def main(words: Sequence[str] | None = None) -> int:
    """Measures, prints the table; 1 when a measurement means nothing."""
    return run_suite(Suite("bench-lake", __doc__, README, _bench, SECTIONS, ("deltalake",), 5), words)


def _bench(folder: Path, scale: float, repeats: int) -> Bench:
    return Bench(make_tables(folder, scale), scale, repeats)


if __name__ == "__main__":
    sys.exit(main())
