"""A page of a large table as its viewer meets it: a real server, a real browser.

Rule: the clock starts at the navigation and stops when the page's figure and list are drawn; every message that the
server sends is weighed.
"""

import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, BrowserContext, Page, WebSocket, sync_playwright

from bench.measure import BenchError
from bench.tables import clone

START_LIMIT_S = 60.0
DRAWN_LIMIT_MS = 60_000
FIGURE = "[data-testid=stMain] [data-testid=stPlotlyChart] .main-svg"
LIST = "[data-testid=stMain] [data-testid=stDataFrame]"
PAGES = ("history", "files")
SMALL, LARGE = "T0", "T3"


@dataclass(frozen=True, slots=True)
class Visit:
    """Until figure and list stood there, from the navigation and from the moment the browser had loaded the
    application and opened its connection, and the largest message on the way."""

    seconds: float
    connected_seconds: float
    largest_bytes: int


@dataclass(frozen=True, slots=True)
class PageFigures:
    """Medians. `first`: a server just started; `again`: the next visit; `small`: the same page of a small table, which
    is what browser, framework and machine cost. The browser has kept the application's files from a visit before."""

    first: Visit
    again: Visit
    small: Visit


def measure(tables: Path, repeats: int) -> dict[str, PageFigures]:
    """Both pages of T3, each first visit on a server of its own."""
    with TemporaryDirectory(prefix="weir-bench-") as folder, sync_playwright() as playwright:
        lake = Path(folder) / "lake"
        for name in (SMALL, LARGE):
            clone(tables / name, lake / name)
        browser = playwright.chromium.launch(executable_path=_chromium(), args=["--no-sandbox", "--disable-gpu"])
        try:
            return {page: _figures(browser, lake, page, repeats) for page in PAGES}
        finally:
            browser.close()


def _figures(browser: Browser, lake: Path, page: str, repeats: int) -> PageFigures:
    rounds = [_round(browser, lake, page) for _ in range(repeats)]
    return PageFigures(*(_median(visits) for visits in zip(*rounds, strict=True)))


def _round(browser: Browser, lake: Path, page: str) -> tuple[Visit, Visit, Visit]:
    with _server(lake) as url, _viewer(browser) as context:
        _visit(context, f"{url}/properties?table={SMALL}", "[data-testid=stMain] h1")  # the browser now has the files
        first = _visit(context, f"{url}/{page}?table={LARGE}", FIGURE, LIST)
        again = _visit(context, f"{url}/{page}?table={LARGE}", FIGURE, LIST)
        small = _visit(context, f"{url}/{page}?table={SMALL}", FIGURE, LIST)
    return first, again, small


def _median(visits: tuple[Visit, ...]) -> Visit:
    return Visit(
        statistics.median(v.seconds for v in visits),
        statistics.median(v.connected_seconds for v in visits),
        max(v.largest_bytes for v in visits),
    )


def _visit(context: BrowserContext, url: str, *drawn: str) -> Visit:
    page, sizes, connected_at = context.new_page(), [0], list[float]()
    page.on("websocket", lambda socket: _weigh(socket, sizes))
    page.on("websocket", lambda _: connected_at.append(time.perf_counter()))
    started = time.perf_counter()
    page.goto(url, wait_until="commit")
    for selector in drawn:
        page.locator(selector).first.wait_for(state="visible", timeout=DRAWN_LIMIT_MS)
    drawn_at = time.perf_counter()
    _settle(page)
    page.close()
    return Visit(drawn_at - started, drawn_at - connected_at[0], max(sizes))


def _weigh(socket: WebSocket, sizes: list[int]) -> None:
    socket.on("framereceived", lambda payload: sizes.append(len(payload)))


def _settle(page: Page) -> None:
    """The script has ended, so that every message was seen."""
    page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for(timeout=DRAWN_LIMIT_MS)


@contextmanager
def _viewer(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    try:
        yield context
    finally:
        context.close()


@contextmanager
def _server(lake: Path) -> Iterator[str]:
    """`weir ui` on a lake, with a home of its own."""
    port = _free_port()
    with TemporaryDirectory(prefix="weir-bench-") as home:
        env = {**os.environ, "WEIR_HOME": home, "WEIR_PORT": str(port), "WEIR_LAKE__ROOTS": f'["{lake}"]'}
        argv = [sys.executable, "-m", "app.cli", "ui"]
        process = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_served(url, process)
            yield url
        finally:
            process.terminate()
            process.wait(timeout=30)


def _wait_until_served(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/_stcore/health", timeout=5).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise BenchError("the server did not answer in time")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        raise BenchError("no Chromium on this machine (Debian: apt-get install chromium)")
    return found
