"""`make bench SUITE=pages`: every page of a lake of 3,000 tables in a real browser, and the commands that list it.

Then those that grow with tables, streams and files, where there are many. Rule: the lake is logs alone, for no page
that is measured opens a data file; a page is reached from one that shows neither figure nor list, so that nothing old
is taken for new.
"""

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from backend.lake.lake import Lake
from backend.settings import load_settings
from bench import browser
from bench.harness import Bench, BenchError, Line, Suite, Watch, at_most, duration, megabytes, within
from tests.worlds.lake.large_logs import made, make_tables, opened
from tests.worlds.pages.viewer import viewers_of
from tests.worlds.store import large

TABLES, FILES, VERSIONS = 3_000, 20, 60
LONG = "silver/long"  # the table whose own pages are opened
RERUNS = 15
LIVE_S = 2.0  # between refreshes, as a browser asks for them
NOTHING = "/streams"  # without a host it shows neither figure nor list
CONTENT = (
    "[data-testid=stMain] :is([data-testid=stMetric], [data-testid=stDataFrame], [data-testid=stTable], "
    "[data-testid=stTextInput], [data-testid=stPlotlyChart] .main-svg)"
)
TABLE_PAGES = {
    "Summary": "table",
    "History": "history",
    "Timeline": "timeline",
    "Versions": "versions",
    "Files": "files",
    "Properties": "properties",
    "Changes": "changes",
    "First bad version": "bisect",
    "Health of a table": "health",
}
ADDRESSES = {"Overview": "/", "Tables": "/tables", "Health": "/health"} | {
    title: f"/{page}?table={LONG}" for title, page in TABLE_PAGES.items()
}


def _command_s(bench: Bench, home: str, *words: str) -> float:
    """Seconds of one process of `weir`."""
    env = {**os.environ, "WEIR_HOME": home, "WEIR_LAKE__ROOTS": f'["{bench.tables}"]'}
    started = time.perf_counter()
    run = subprocess.run([sys.executable, "-m", "app.cli", *words], env=env, capture_output=True, check=False)
    if run.returncode:
        raise BenchError(f"weir {' '.join(words)} failed: {run.stderr.decode()[-500:]}")
    return time.perf_counter() - started


def commands(bench: Bench) -> Iterator[Line]:
    """Commands over the whole lake."""
    with TemporaryDirectory(prefix="weir-bench-") as home:
        yield Line("`weir tables`, the first time", ours=duration(_command_s(bench, home, "tables")))
        for words in (["tables"], ["tables", "--json"], ["find", "customer_id", "--json"]):
            took_s = statistics.median(_command_s(bench, home, *words) for _ in range(bench.repeats))
            yield within(f"`weir {' '.join(words)}`, nothing changed since", took_s, 1.5)
        starts_s = [_start_s(bench, Path(home)) for _ in range(bench.repeats)]
        yield within("`weir ui`, until it answers", statistics.median(starts_s), 5)


def _start_s(bench: Bench, home: Path) -> float:
    started = time.perf_counter()
    with browser.server(bench.tables, home):
        return time.perf_counter() - started


def pages(bench: Bench) -> Iterator[Line]:
    """Pages, warm."""
    with TemporaryDirectory(prefix="weir-bench-") as home, browser.chromium() as chromium:
        _command_s(bench, home, "tables")
        with browser.server(bench.tables, Path(home)) as url, browser.tab_of(chromium, url) as tab:
            tab.load("/tables")
            tab.page.locator(CONTENT).first.wait_for(timeout=browser.LIMIT_MS)
            for title, address in ADDRESSES.items():
                visits = [_visit(tab, address) for _ in range(1 + bench.repeats)][1:]
                visit = browser.median(visits)
                yield within(f"{title}, heading", visit.heading_s, 0.6)
                yield within(f"{title}, first content", visit.content_s, 1.0)
                yield browser.weighed(title, visit.largest_bytes, 100_000)


def _visit(tab: browser.Tab, address: str) -> browser.Visit:
    tab.go(NOTHING)
    tab.page.locator(browser.HEADING, has_text="Streams").wait_for(timeout=browser.LIMIT_MS)
    tab.page.locator(CONTENT).first.wait_for(state="detached", timeout=browser.LIMIT_MS)
    tab.until_idle()
    return tab.visit(address, "^(?!Streams)", [CONTENT])


def reruns(bench: Bench) -> Iterator[Line]:
    """Reruns of an open page, warm."""
    with TemporaryDirectory(prefix="weir-bench-") as home:
        _command_s(bench, home, "tables")
        with browser.server(bench.tables, Path(home)) as url:
            took_s = {title: asyncio.run(_rerun_s(url, address)) for title, address in ADDRESSES.items()}
    slowest = max(took_s, key=lambda title: took_s[title])
    yield within("a rerun, the median page", statistics.median(took_s.values()), 0.03)
    yield Line(f"a rerun of {slowest}, the slowest", ours=duration(took_s[slowest]))


async def _rerun_s(url: str, address: str) -> float:
    """What a viewer of an open page waits for a rerun of it; the median."""
    page, _, query = address.strip("/").partition("?")
    async with viewers_of(url, 1, page=page, query=query) as (viewer,):
        took_s: list[float] = [await viewer.run() for _ in range(1 + RERUNS)]
    return statistics.median(took_s[1:])


def thousands(bench: Bench) -> Iterator[Line]:
    """10,000 tables and 1,000 streams, while hosts go on writing"""
    lake = large.make_lake(bench.folder, round(large.TABLES * bench.scale))
    streams, here = round(large.STREAMS * bench.scale), replace(bench, tables=lake)
    with TemporaryDirectory(prefix="weir-bench-") as home:
        settings = load_settings(home=home, lake={"roots": [str(lake)]})
        store = large.make_streams(settings, lake, streams=streams, now=datetime.now(UTC))
        with large.hosts_at_work(store, lake, streams=streams):
            yield from _many("`weir health`, the first time", here, home, "health", 10, times=1)
            shutil.rmtree(Path(home) / "cache")
            yield from _many("`weir tables`, the first time", here, home, "tables", 8, times=1)
            yield from _many("`weir tables`, nothing changed since", here, home, "tables", 1, times=bench.repeats)
            yield from _many("`weir streams`", here, home, "streams", 1, times=bench.repeats)
            yield from _large_pages(lake, Path(home))
        store.close()


def _many(what: str, bench: Bench, home: str, word: str, limit_s: float, *, times: int) -> Iterator[Line]:
    """With the processor time, which other work on the machine changes less."""
    took = []
    for _ in range(times):
        before = os.times()
        seconds, after = _command_s(bench, home, word), os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        took.append((seconds, used))
    yield within(what, statistics.median(seconds for seconds, _ in took), limit_s)
    yield Line(f"{what}: processor time", ours=duration(statistics.median(used for _, used in took)))


def _large_pages(lake: Path, home: Path) -> Iterator[Line]:
    """Each page as the first one that a new server shows, and then its live region."""
    for title, page in {"Overview": "overview", "Streams": "streams"}.items():
        with browser.server(lake, home) as url:
            first_s, refresh_s = asyncio.run(_live_s(url, page))
        yield within(f"{title}, the first page of a server", first_s, 1.5)
        yield within(f"a refresh of {title}", refresh_s, 0.1)


async def _live_s(url: str, page: str) -> tuple[float, float]:
    """Of the page, and of a refresh of its slowest region when it is due; the median."""
    async with viewers_of(url, 1, page=page, query="") as (viewer,):
        first_s, refreshes = await viewer.run(), dict[str, list[float]]()
        for _ in range(RERUNS):
            await asyncio.sleep(LIVE_S)
            for region in viewer.regions:
                refreshes.setdefault(region, []).append(await viewer.run(region))
    return first_s, max(statistics.median(took_s) for took_s in refreshes.values())


def million(bench: Bench) -> Iterator[Line]:
    """The card of a table of a million files, read for the first time"""
    lake = make_tables(bench.folder, bench.scale, ("T3",))
    for name, writer in {"T3": "without checksums", "T3-crc": "with checksums"}.items():
        (run,) = bench.runs(bench.go(card, uri=str(lake / name)))
        yield within(f"a checkpoint and a hundred commits {writer}", run.seconds, 2)
        shown = megabytes(run.grown_bytes), "300 MB"
        yield at_most(f"its memory, {writer}", run.grown_bytes, 300e6, shown)


def card(watch: Watch, *, uri: str) -> int:
    """How many files it tells of."""
    settings, ref = opened(uri)
    with watch:
        card = Lake(settings).card(ref)
    return card.num_files


def make_lake(folder: Path, scale: float) -> Path:
    """Small tables in three layers, and one of `VERSIONS` commits."""

    def make(lake: Path) -> None:
        for number in range(round(TABLES * scale)):
            table = lake / large.LAYERS[number % 3] / f"team{number % 20:02d}" / f"table_{number:04d}"
            large.write_log(table, table_id=table.name, versions=1, files=FILES)
        large.write_log(lake / LONG, table_id="long", versions=VERSIONS, files=FILES)

    return made(folder / f"weir-bench-pages-{scale:g}", make)


SUITE = Suite((commands, pages, reruns, thousands, million), packages=("streamlit",), repeats=5, make=make_lake)
