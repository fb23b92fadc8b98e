"""`make bench-pages`: every page of a lake of 3,000 tables in a real browser, and the commands that list it.

Rule: the lake is logs alone, for no page that is measured opens a data file; a page is reached from one that shows
neither figure nor list, so that nothing old is taken for new.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import browser
from bench.harness import Bench, BenchError, Line, Suite, duration, within
from bench.tables import STARTED_MS
from bench.viewer import viewers_of
from tests.builders import HandLog, add, commit_info, metadata, protocol

TABLES, FILES, VERSIONS = 3_000, 20, 60
LONG = "silver/long"  # the table whose own pages are opened
RERUNS = 15
NOTHING = "/streams"  # without a host it shows neither figure nor list
CONTENT = (
    "[data-testid=stMain] :is([data-testid=stMetric], [data-testid=stDataFrame], [data-testid=stTable], "
    "[data-testid=stTextInput], [data-testid=stPlotlyChart] .main-svg)"
)
LAKE_PAGES = {"Overview": "/", "Tables": "/tables", "Health": "/health"}
TABLE_PAGES = {
    "Summary": "table",
    "History": "history",
    "Versions": "versions",
    "Files": "files",
    "Properties": "properties",
    "Changes": "changes",
    "First bad version": "bisect",
    "Health of a table": "health",
}
ADDRESSES = LAKE_PAGES | {title: f"/{page}?table={LONG}" for title, page in TABLE_PAGES.items()}


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
        return statistics.median([await viewer.run() for _ in range(1 + RERUNS)][1:])


# the lake --------------------------------------------------------------------------------------------------------

COLUMNS = {"order_id": "long", "customer_id": "string", "amount": "double", "status": "string", "at": "timestamp"}
STATS = '{"numRecords":100,"minValues":{"order_id":1},"maxValues":{"order_id":9},"nullCount":{"order_id":0}}'


def make_lake(folder: Path, scale: float) -> Path:
    """Small tables in three layers, and one of `VERSIONS` commits; made once for a scale."""
    lake = folder / f"weir-bench-pages-{scale:g}"
    if not (lake / LONG).exists():
        for number in range(round(TABLES * scale)):
            layer = ("bronze", "silver", "gold")[number % 3]
            _write(lake / layer / f"team{number % 20:02d}" / f"table_{number:04d}", versions=1)
        _write(lake / LONG, versions=VERSIONS)
    return lake


def _write(table: Path, *, versions: int) -> None:
    log = HandLog(table)
    log.commit(commit_info(timestamp=STARTED_MS), protocol(), metadata(COLUMNS, table_id=table.name))
    for version in range(1, versions + 1):
        files = (add(f"{version}-{number}.parquet", size=50_000, stats=STATS) for number in range(FILES))
        log.commit(commit_info(timestamp=STARTED_MS + 60_000 * version), *files)


SUITE = Suite(
    "bench-pages",
    __doc__,
    "pages.md",
    {"commands": commands, "pages": pages, "reruns": reruns},
    packages=("streamlit",),
    repeats=5,
    make=make_lake,
)
