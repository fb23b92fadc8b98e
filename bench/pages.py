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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
from playwright.sync_api import Page, sync_playwright

from bench.columns import METADATA, PROTOCOL
from bench.measure import BenchError
from bench.page import DRAWN_LIMIT_MS, HEADING, IDLE, chromium, server, viewer
from bench.report import Line, at_most, duration
from bench.runner import Suite, run_suite
from bench.viewer import viewers_of

FIGURES = Path(__file__).with_name("pages.md")
TABLES, FILES, VERSIONS = 3_000, 20, 60
LONG = "silver/long"  # the table whose own pages are opened
RERUNS = 15
STARTED_MS = 1_767_225_600_000
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


@dataclass(frozen=True, slots=True)
class Bench:
    lake: Path
    repeats: int

    def command(self, home: str, *words: str) -> float:
        """Seconds of one process."""
        env = {**os.environ, "WEIR_HOME": home, "WEIR_LAKE__ROOTS": f'["{self.lake}"]'}
        started = time.perf_counter()
        run = subprocess.run([sys.executable, "-m", "app.cli", *words], env=env, capture_output=True, check=False)
        if run.returncode:
            raise BenchError(f"weir {' '.join(words)} failed: {run.stderr.decode()[-500:]}")
        return time.perf_counter() - started


def commands(bench: Bench) -> Iterator[Line]:
    """Commands over the whole lake."""
    with TemporaryDirectory(prefix="weir-bench-") as home:
        yield Line("`weir tables`, the first time", ours=duration(bench.command(home, "tables")))
        for words in (["tables"], ["tables", "--json"], ["find", "customer_id", "--json"]):
            found = statistics.median(bench.command(home, *words) for _ in range(bench.repeats))
            yield at_most(f"`weir {' '.join(words)}`, nothing changed since", found, 1.5, (duration(found), "1.5 s"))


@dataclass(frozen=True, slots=True)
class Visit:
    heading_s: float
    content_s: float
    largest_bytes: int


def addresses() -> dict[str, str]:
    """Every page that shows tables, by title."""
    return LAKE_PAGES | {title: f"/{page}?table={LONG}" for title, page in TABLE_PAGES.items()}


def pages(bench: Bench) -> Iterator[Line]:
    """Pages, warm."""
    with TemporaryDirectory(prefix="weir-bench-") as home, sync_playwright() as playwright:
        bench.command(home, "tables")
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        with server(bench.lake, home) as url, viewer(browser) as context:
            tab = context.new_page()
            sizes: list[int] = []
            tab.on("websocket", lambda socket: socket.on("framereceived", lambda data: sizes.append(len(data))))
            tab.goto(f"{url}/tables")
            tab.locator(CONTENT).first.wait_for(timeout=DRAWN_LIMIT_MS)
            for title, address in addresses().items():
                visits = [_visit(tab, address, sizes) for _ in range(1 + bench.repeats)][1:]
                yield from _lines(title, visits)
        browser.close()


async def _rerun_s(url: str, address: str) -> float:
    """What a viewer of an open page waits for a rerun of it; the median."""
    page, _, query = address.strip("/").partition("?")
    async with viewers_of(url, 1, page=page, query=query) as (viewer,):
        return statistics.median([await viewer.run() for _ in range(1 + RERUNS)][1:])


def reruns(bench: Bench) -> Iterator[Line]:
    """Reruns of an open page, warm."""
    with TemporaryDirectory(prefix="weir-bench-") as home:
        bench.command(home, "tables")
        with server(bench.lake, home) as url:
            found = {title: asyncio.run(_rerun_s(url, address)) for title, address in addresses().items()}
    middle, (slowest, most) = statistics.median(found.values()), max(found.items(), key=lambda each: each[1])
    yield at_most("a rerun, the median page", middle, 0.03, (duration(middle), "30 ms"))
    yield Line(f"a rerun of {slowest}, the slowest", ours=duration(most))


def _visit(tab: Page, address: str, sizes: list[int]) -> Visit:
    _go(tab, NOTHING)
    tab.locator(HEADING, has_text="Streams").wait_for(timeout=DRAWN_LIMIT_MS)
    tab.locator(CONTENT).first.wait_for(state="detached", timeout=DRAWN_LIMIT_MS)
    tab.locator(IDLE).wait_for(timeout=DRAWN_LIMIT_MS)
    sizes.clear()
    started = time.perf_counter()
    _go(tab, address)
    tab.locator(HEADING).filter(has_not_text="Streams").wait_for(timeout=DRAWN_LIMIT_MS)
    heading_s = time.perf_counter() - started
    tab.locator(CONTENT).first.wait_for(state="visible", timeout=DRAWN_LIMIT_MS)
    content_s = time.perf_counter() - started
    tab.locator(IDLE).wait_for(timeout=DRAWN_LIMIT_MS)
    return Visit(heading_s, content_s, max(sizes, default=0))


def _go(tab: Page, address: str) -> None:
    """To a page from within the application, as its links and the browser's arrows do."""
    tab.evaluate("to => { history.pushState({}, '', to); dispatchEvent(new PopStateEvent('popstate')) }", address)


def _lines(title: str, visits: Sequence[Visit]) -> Iterator[Line]:
    heading_s, content_s = (statistics.median(getattr(v, name) for v in visits) for name in ("heading_s", "content_s"))
    largest = max(visit.largest_bytes for visit in visits)
    yield at_most(f"{title}, heading", heading_s, 0.6, (duration(heading_s), "600 ms"))
    yield at_most(f"{title}, first content", content_s, 1.0, (duration(content_s), "1 s"))
    yield at_most(f"{title}, largest message", largest, 100_000, (f"{largest / 1000:,.0f} kB", "100 kB"))


# the lake --------------------------------------------------------------------------------------------------------


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
    log = table / "_delta_log"
    log.mkdir(parents=True)
    columns = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in _COLUMNS.items()]
    metadata = METADATA | {
        "id": table.name,
        "schemaString": orjson.dumps({"type": "struct", "fields": columns}).decode(),
        "partitionColumns": [],
    }
    _commit(log, 0, [{"protocol": PROTOCOL}, {"metaData": metadata}])
    for version in range(1, versions + 1):
        names = (f"{version}-{number}.parquet" for number in range(FILES))
        _commit(log, version, [{"add": _ADD | {"path": name}} for name in names])


def _commit(log: Path, version: int, actions: Sequence[object]) -> None:
    at = STARTED_MS + 60_000 * version
    info = {"commitInfo": {"timestamp": at, "operation": "WRITE", "engineInfo": "bench", "operationParameters": {}}}
    lines = (orjson.dumps(action) + b"\n" for action in (info, *actions))
    (log / f"{version:020d}.json").write_bytes(b"".join(lines))


_COLUMNS = {"order_id": "long", "customer_id": "string", "amount": "double", "status": "string", "at": "timestamp"}
_ADD = {
    "partitionValues": {},
    "size": 50_000,
    "modificationTime": STARTED_MS,
    "dataChange": True,
    "stats": '{"numRecords":100,"minValues":{"order_id":1},"maxValues":{"order_id":9},"nullCount":{"order_id":0}}',
}


def main(words: Sequence[str] | None = None) -> int:
    """Measures, prints the table; 1 when a measurement means nothing."""
    sections = {"commands": commands, "pages": pages, "reruns": reruns}
    make = lambda folder, scale, repeats: Bench(make_lake(folder, scale), repeats)  # noqa: E731
    return run_suite(Suite("bench-pages", __doc__ or "", FIGURES, make, sections, ("streamlit",), 5), words)


if __name__ == "__main__":
    sys.exit(main())
