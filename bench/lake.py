"""`make bench SUITE=lake`: the log reader and the pages on it, measured against `deltalake` on tables made here."""

import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from backend.lake.lake import Lake
from backend.lake.log.log import POLL_S
from backend.settings import load_settings
from bench import browser
from bench import lake_tasks as tasks
from bench.harness import Bench, BenchError, Line, Run, Suite, Task, against, counted, duration, require_equal, within
from tests.worlds.lake.large_logs import clone, make_tables, next_commits, shapes
from tests.worlds.lake.object_store import Proxy, make_bucket, proxy, storage_options

REFRESHES, SAMPLED = 5, 20
SMALL = "T0"  # the same page of it is what browser, framework and machine cost
BUCKET, DELAY_S, VIEWERS = "bench", 0.03, 20
PAGES = {
    "History of T3": ("history", "T3"),
    "Files of T3": ("files", "T3"),
    "Files of T3 with `.crc`": ("files", "T3-crc"),
}
OTHER = {"history": "files", "files": "history"}
DRAWN = {"history": (browser.FIGURE, browser.LIST), "files": (browser.FIGURE,)}


def history(bench: Bench) -> Iterator[Line]:
    """The newest hundred commits."""
    for name, at_least in (("T1", 10), ("T2", 10), ("T3", 1_000)):
        uri = str(bench.tables / name)
        pair = (tasks.our_history, tasks.their_history)
        ours, theirs = bench.alike(f"history of {name}", *pair, uri=uri, limit=100)
        warm = bench.go(tasks.our_warm_history, uri=uri, limit=100)()
        require_equal(warm.answer, theirs.answer, f"history of {name}")
        yield ours.faster(f"history(100) of {name}", theirs, at_least)
        yield ours.leaner("the same, memory", theirs)
        yield warm.faster("the same, asked again of a warm `Lake`", theirs)


def files(bench: Bench) -> Iterator[Line]:
    """Size histogram and totals per partition of T3."""
    uri = str(bench.tables / "T3")
    plain, theirs, summed, histogram = bench.runs(
        bench.go(tasks.our_distribution, uri=uri),
        bench.go(tasks.their_distribution, uri=uri),
        bench.go(tasks.our_distribution, uri=f"{uri}-crc"),
        bench.go(tasks.our_checksum_histogram, uri=f"{uri}-crc"),
    )
    require_equal(plain.answer, theirs.answer, "distribution of T3")
    require_equal(summed.answer, theirs.answer, "distribution of T3 with .crc")
    known = {name: theirs.answer[name] for name in ("files", "buckets")}
    require_equal(histogram.answer, known, "histogram of T3's .crc")
    yield plain.faster("size histogram and totals per day of T3", theirs, 20)
    yield plain.leaner("the same, memory", theirs, 10)
    yield summed.faster("the same with `.crc`", theirs, 20)
    yield summed.leaner("the same with `.crc`, memory", theirs, 10)
    yield histogram.faster("the histogram alone with `.crc`", theirs, 1_000)


def refresh(bench: Bench) -> Iterator[Line]:
    """One new commit, seen by a `Lake` that lives on: latest version, totals, history(20)."""
    small, large = (_refreshed(bench, name, tasks.our_refresh) for name in ("T1", "T3"))
    theirs = _refreshed(bench, "T3", tasks.their_refresh)
    require_equal(large.answer, theirs.answer, "T3 after new commits")
    ratio = large.seconds / small.seconds
    shown = f"{duration(large.seconds)} / {duration(small.seconds)}"
    yield Line("refresh after one commit, T3 / T1", "≤ 1.5", shown, "", f"{ratio:.1f}×", ratio <= 1.5)
    yield large.faster("refresh of T3 against `update_incremental`", theirs, 100)
    first = duration(large.laps[0].seconds), duration(theirs.laps[0].seconds)
    yield Line("the first of these refreshes", ours=first[0], theirs=first[1])


def _refreshed(bench: Bench, name: str, task: Task) -> Run:
    commits = next_commits(shapes(bench.scale)[name], REFRESHES)
    with TemporaryDirectory(prefix="weir-bench-", dir=bench.tables) as folder:
        return bench.go(task, uri=str(clone(bench.tables / name, Path(folder) / name)), commits=commits)()


def timeline(bench: Bench) -> Iterator[Line]:
    """Totals of every version of T2 against opening versions one by one."""
    count, uri = shapes(bench.scale)["T2"].commits, str(bench.tables / "T2")
    stride = count // SAMPLED
    chosen = [stride * n + 37 * n % stride for n in range(SAMPLED)]
    theirs = bench.go(tasks.their_versions, uri=uri, chosen=chosen)()
    ours = bench.go(tasks.our_timeline, uri=uri, chosen=chosen)
    (whole,) = bench.halved.runs(ours)
    with TemporaryDirectory(prefix="weir-bench-") as home:
        ours(home=home)
        (kept,) = bench.runs(partial(ours, home=home))
    for run in (whole, kept):
        require_equal(run.answer, theirs.answer, "timeline of T2")
    each = statistics.mean(lap.seconds for lap in theirs.laps)
    one_by_one = f"{duration(each * count)} ({count:,} × {duration(each)}, from {SAMPLED})"
    whole_ratio, kept_ratio = (each * count / run.seconds for run in (whole, kept))
    what = f"timeline of all {count:,} versions of T2"
    yield against(what, duration(whole.seconds), one_by_one, whole_ratio, 500)
    yield against("the same after a restart", duration(kept.seconds), one_by_one, kept_ratio)


def store(bench: Bench) -> Iterator[Line]:
    """T1 on an S3 server that waits 30 ms before each answer."""
    log = bench.tables / "T1" / "_delta_log"
    make_bucket(BUCKET, {f"t/_delta_log/{file.name}": file.read_bytes() for file in sorted(log.iterdir())})
    with proxy() as server:
        server.delay_s = DELAY_S
        counts: dict[Task, int] = {tasks.our_history: 0, tasks.their_history: 0}

        def looked(task: Task) -> Run:
            server.forget()
            options = storage_options(server.url)
            run = bench.go(task, uri=f"s3://{BUCKET}/t", limit=100, options=options)()
            counts[task] = max(counts[task], server.count())
            return run

        ours, theirs = bench.halved.runs(*(partial(looked, task) for task in counts))
        require_equal(ours.answer, theirs.answer, "history from the object store")
        idle = _idle_requests(server)
    requests, their_requests = counts.values()
    yield counted("history(100) of T1, requests", requests, 102)
    yield Line(f"a look of {VIEWERS} viewers with nothing new, requests", "1", str(idle), is_met=idle == 1)
    yield Line("requests of `deltalake` for history(100)", theirs=str(their_requests))
    yield ours.faster("history(100) of T1, time", theirs)


def _idle_requests(server: Proxy) -> int:
    """Requests that all viewers together cost who look at a table at the same time, with nothing new."""
    root = f"s3://{BUCKET}"
    with TemporaryDirectory(prefix="weir-bench-") as home:
        options = {root: storage_options(server.url)}
        lake = Lake(load_settings(home=Path(home), lake={"roots": [root], "storage_options": options}))
        ref = lake.find(f"{root}/t")
        latest = lake.latest_version(ref)
        server.forget()
        time.sleep(POLL_S + 0.1)  # as long as a look is taken for fresh
        if {lake.latest_version(ref) for _ in range(VIEWERS)} != {latest}:
            raise BenchError("a table that nobody writes to changed")
        return int(server.count())


def page(bench: Bench) -> Iterator[Line]:
    """History and Files of T3 in a browser."""
    with TemporaryDirectory(prefix="weir-bench-", dir=bench.folder) as folder, browser.chromium() as chromium:
        lake = Path(folder) / "lake"
        for name in (SMALL, "T3", "T3-crc"):
            clone(bench.tables / name, lake / name)
        for title, (name, table) in PAGES.items():
            rounds = [_visits(chromium, lake, name, table) for _ in range(bench.halved.repeats)]
            opened, loaded, small_opened, small_loaded = map(browser.median, zip(*rounds, strict=True))
            for how, visit, small in (
                ("opened on a server just started", opened, small_opened),
                ("loaded by its address", loaded, small_loaded),
            ):
                line = within(f"{title}, {how}", visit.content_s, 1.0)
                yield replace(line, theirs=f"{duration(small.content_s)} for a table of 300 files")
            yield browser.weighed(title, max(opened.largest_bytes, loaded.largest_bytes), 500_000)


def _visits(chromium: browser.Browser, lake: Path, name: str, table: str) -> tuple[browser.Visit, ...]:
    """A page from another page of the application, on a server just started; by its address, with the whole
    application; and both of a small table."""
    with browser.server(lake) as url, browser.tab_of(chromium, url) as tab:

        def visit(page: str, table: str, *, by_address: bool) -> browser.Visit:
            address = f"/{page}?table={table}"
            return tab.visit(address, f"^{table}$", DRAWN[page], by_address=by_address)

        visit(OTHER[name], SMALL, by_address=True)  # the browser now has the application's files
        measured = [visit(name, table, by_address=False), visit(name, table, by_address=True)]
        visit(OTHER[name], SMALL, by_address=True)
        return (*measured, visit(name, SMALL, by_address=False), visit(name, SMALL, by_address=True))


SUITE = Suite((history, files, refresh, timeline, store, page), packages=("deltalake",), repeats=5, make=make_tables)
