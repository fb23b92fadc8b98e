"""A page as its viewer meets it: a real server, a real browser.

Rule: the clock starts at the navigation and stops when what the page is for is drawn; every message that the server
sends on the way and until the script's end is weighed.
"""

import json
import re
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, Page, sync_playwright

from bench.harness import BenchError, Line, at_most
from tests.browser.conftest import chromium as installed_chromium
from tests.worlds.pages.serving import served

__all__ = ["Browser"]

LIMIT_MS = 60_000
FIGURE = "[data-testid=stMain] [data-testid=stPlotlyChart] .main-svg"
LIST = "[data-testid=stMain] [data-testid=stDataFrame]"
HEADING = "[data-testid=stMain] h1"
IDLE = "[data-testid=stApp][data-test-script-state=notRunning]"
GO = "to => { history.pushState({}, '', to); dispatchEvent(new PopStateEvent('popstate')) }"


@dataclass(frozen=True, slots=True)
class Visit:
    """Until heading and content were drawn, and the largest message."""

    heading_s: float
    content_s: float
    largest_bytes: int


def median(visits: Sequence[Visit]) -> Visit:
    heading_s, content_s = (statistics.median(getattr(v, name) for v in visits) for name in ("heading_s", "content_s"))
    return Visit(heading_s, content_s, max(visit.largest_bytes for visit in visits))


def weighed(title: str, largest_bytes: int, limit_bytes: int) -> Line:
    shown = f"{largest_bytes / 1000:,.0f} kB", f"{limit_bytes / 1000:,.0f} kB"
    return at_most(f"{title}, largest message", largest_bytes, limit_bytes, shown)


class Tab:
    """A tab of a browser, at a server."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self._url = page, url
        self._sizes = [0]
        page.on("websocket", lambda socket: socket.on("framereceived", lambda data: self._sizes.append(len(data))))

    def load(self, address: str) -> None:
        self.page.goto(f"{self._url}{address}", wait_until="commit")

    def go(self, address: str) -> None:
        """To a page from within the application, as its links and the browser's arrows do."""
        self.page.evaluate(GO, address)

    def until_idle(self) -> None:
        self.page.locator(IDLE).wait_for(timeout=LIMIT_MS)

    def visit(self, address: str, heading: str, content: Sequence[str], *, by_address: bool = False) -> Visit:
        """A page whose heading matches, until all of its content is drawn."""
        self._sizes[:] = [0]
        started = time.perf_counter()
        (self.load if by_address else self.go)(address)
        self.page.locator(HEADING, has_text=re.compile(heading)).wait_for(timeout=LIMIT_MS)
        heading_s = time.perf_counter() - started
        for selector in content:
            self.page.locator(selector).first.wait_for(state="visible", timeout=LIMIT_MS)
        content_s = time.perf_counter() - started
        self.until_idle()
        return Visit(heading_s, content_s, max(self._sizes))


@contextmanager
def chromium() -> Iterator[Browser]:
    path = installed_chromium()
    if path is None:
        raise BenchError("no Chromium on this machine (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@contextmanager
def tab_of(browser: Browser, url: str) -> Iterator[Tab]:
    """The one tab of a viewer who was never here before."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    try:
        yield Tab(context.new_page(), url)
    finally:
        context.close()


@contextmanager
def server(lake: Path, home: Path | None = None) -> Iterator[str]:
    """`weir ui` on a lake, with a home of its own unless one is given."""
    roots = json.dumps([str(lake)])
    with TemporaryDirectory(prefix="weir-bench-") as empty, served(home or Path(empty), WEIR_LAKE__ROOTS=roots) as it:
        yield it.url
