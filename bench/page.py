"""A page of a large table as its viewer meets it: a real server, a real browser.

Rule: the clock starts at the navigation and stops when what the page is for is drawn (History: figure and list of
commits; Files: the distribution); every message that the server sends is weighed.
"""

import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from bench.measure import BenchError
from bench.tables import clone

START_LIMIT_S = 60.0
DRAWN_LIMIT_MS = 60_000
FIGURE = "[data-testid=stMain] [data-testid=stPlotlyChart] .main-svg"
LIST = "[data-testid=stMain] [data-testid=stDataFrame]"
HEADING = "[data-testid=stMain] h1"
IDLE = "[data-testid=stApp][data-test-script-state=notRunning]"
DRAWN = {"history": (FIGURE, LIST), "files": (FIGURE,)}
OTHER = {"history": "files", "files": "history"}
SMALL = "T0"


@dataclass(frozen=True, slots=True)
class Visit:
    """Until the page was drawn, and the largest message on the way and until the script's end."""

    seconds: float
    largest_bytes: int


@dataclass(frozen=True, slots=True)
class PageFigures:
    """Medians. `opened`: from another page of the application, on a server just started; `loaded`: by its address, with
    the whole application; `small_…`: the same for a small table, which is what browser, framework and machine cost."""

    opened: Visit
    loaded: Visit
    small_opened: Visit
    small_loaded: Visit


def measure(tables: Path, chosen: Sequence[tuple[str, str]], repeats: int) -> list[PageFigures]:
    """Pages of tables; each round on a server of its own."""
    with TemporaryDirectory(prefix="weir-bench-") as folder, sync_playwright() as playwright:
        lake = Path(folder) / "lake"
        for name in (SMALL, *dict.fromkeys(table for _, table in chosen)):
            clone(tables / name, lake / name)
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        try:
            return [_figures(browser, lake, *each, repeats) for each in chosen]
        finally:
            browser.close()


def _figures(browser: Browser, lake: Path, page: str, table: str, repeats: int) -> PageFigures:
    rounds = [_round(browser, lake, page, table) for _ in range(repeats)]
    return PageFigures(*(_median(visits) for visits in zip(*rounds, strict=True)))


def _round(browser: Browser, lake: Path, name: str, table: str) -> tuple[Visit, ...]:
    with server(lake) as url, viewer(browser) as context:
        tab = Tab(context.new_page(), url)
        tab.load(OTHER[name], SMALL)  # the browser now has the application's files
        opened, loaded = tab.open(name, table), tab.load(name, table)
        tab.load(OTHER[name], SMALL)
        return opened, loaded, tab.open(name, SMALL), tab.load(name, SMALL)


def _median(visits: tuple[Visit, ...]) -> Visit:
    return Visit(statistics.median(v.seconds for v in visits), max(v.largest_bytes for v in visits))


class Tab:
    """A tab of a browser, at a server."""

    def __init__(self, page: Page, url: str) -> None:
        self._page, self._url, self._sizes = page, url, [0]
        page.on("websocket", lambda socket: socket.on("framereceived", lambda data: self._sizes.append(len(data))))

    def load(self, name: str, table: str) -> Visit:
        """A page by its address."""
        address = f"{self._url}/{name}?table={table}"
        return self._visit(name, table, lambda: self._page.goto(address, wait_until="commit"))

    def open(self, name: str, table: str) -> Visit:
        """A page from within the application, as its links and the browser's arrows do."""
        script = "to => { history.pushState({}, '', to); dispatchEvent(new PopStateEvent('popstate')) }"
        return self._visit(name, table, lambda: self._page.evaluate(script, f"/{name}?table={table}"))

    def _visit(self, name: str, table: str, go: Callable[[], object]) -> Visit:
        self._sizes[:] = [0]
        started = time.perf_counter()
        go()
        self._page.locator(HEADING, has_text=re.compile(f"^{table}$")).wait_for(timeout=DRAWN_LIMIT_MS)
        for selector in DRAWN[name]:
            self._page.locator(selector).first.wait_for(state="visible", timeout=DRAWN_LIMIT_MS)
        seconds = time.perf_counter() - started
        self._page.locator(IDLE).wait_for(timeout=DRAWN_LIMIT_MS)
        return Visit(seconds, max(self._sizes))


@contextmanager
def viewer(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    try:
        yield context
    finally:
        context.close()


@contextmanager
def server(lake: Path, home: str | None = None) -> Iterator[str]:
    """`weir ui` on a lake, with a home of its own unless one is given."""
    port = free_port()
    with TemporaryDirectory(prefix="weir-bench-") as empty:
        env = {**os.environ, "WEIR_HOME": home or empty, "WEIR_PORT": str(port), "WEIR_LAKE__ROOTS": f'["{lake}"]'}
        argv = [sys.executable, "-m", "app.cli", "ui"]
        process = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until_served(url, process)
            yield url
        finally:
            process.terminate()
            process.wait(timeout=30)


def wait_until_served(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/_stcore/health", timeout=5).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise BenchError("the server did not answer in time")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        raise BenchError("no Chromium on this machine (Debian: apt-get install chromium)")
    return found
