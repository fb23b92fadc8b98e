"""`make bench SUITE=ui`: viewers of one live page, beside plain `streamlit run`; a month of a stream; the door.

Rule: each viewer opens the page whole and then asks for each live region as its timer says, as a browser does; the
server has a core of its own. A month of a stream is opened in a real browser.
"""

import asyncio
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Page
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.server.door import Door
from backend.settings import load_settings
from backend.store.store import ControlStore
from backend.stream_model.rollup import HOUR_S, MINUTE_S
from bench import browser
from bench.harness import Bench, BenchError, Line, Suite, duration, within
from tests.worlds.pages.serving import PAGES, served
from tests.worlds.pages.viewer import Viewer, viewers_of
from tests.worlds.processes import each_second
from tests.worlds.store import stream_store

STREAM, PAGE = "silver_orders", "stream"
VIEWERS = (1, 25, 50, 100, 200)
SECONDS, SETTLE_S = 20.0, 8.0
OPENINGS, CHECKS = 10, 5_000
LIMIT_S, MONTH_LIMIT_S, CHECK_LIMIT_S = 0.05, 0.5, 0.001
WINDOWS = {"15 min": (0, 1), "7 d": (5, 9), "30 d": (25, 35)}  # about how many days a chart spans
# Whether every chart is drawn over so many.
DRAWN = """([least, most]) => {
  const charts = [...document.querySelectorAll(".weir-figure")];
  const drawn = chart => chart.querySelector(".trace path") && chart._fullLayout.xaxis.range.map(Date.parse);
  const spans = charts.map(drawn).map(range => range ? (range[1] - range[0]) / 86_400_000 : 0);
  return spans.length > 3 && spans.every(each => least < each && each < most);
}"""
PLAIN = (sys.executable, "-m", "streamlit", "run", "app/main.py", "--server.headless=true")


@dataclass(frozen=True, slots=True)
class Crowd:
    """What viewers met while the clock ran: seconds of each refresh, and the seconds of a core that the server took."""

    refreshes_s: list[float]
    processor_s: float

    @property
    def p95_s(self) -> float:
        return statistics.quantiles(self.refreshes_s, n=20)[-1]

    @property
    def text(self) -> str:
        each_s = self.processor_s / max(1, len(self.refreshes_s))
        return f"{duration(statistics.median(self.refreshes_s))}, {duration(each_s)}"


def live(bench: Bench) -> Iterator[Line]:
    """Viewers of one stream's live page; the server has one core"""
    chosen = [number for number in VIEWERS if number <= max(1, VIEWERS[-1] * bench.scale)]
    crowds: dict[tuple[str, ...], list[Crowd]] = {PAGES: [], PLAIN: []}
    with TemporaryDirectory(prefix="weir-bench-") as home, _flowing(home):
        for command in crowds:
            for viewers in chosen:
                with _pinned(command, Path(home)) as (url, process):
                    crowds[command].append(asyncio.run(_crowd(url, process, viewers, SECONDS * bench.repeats)))
    for viewers, ours, plain in zip(chosen, crowds[PAGES], crowds[PLAIN], strict=True):
        what = f"{viewers} viewer{'s' if viewers > 1 else ''}: a refresh, 95 % under"
        ratio = f"{plain.p95_s / ours.p95_s:.1f}×"
        yield replace(within(what, ours.p95_s, LIMIT_S), theirs=duration(plain.p95_s), ratio=ratio)
        yield Line(f"{viewers}: median, and processor time a refresh", ours=ours.text, theirs=plain.text)


def months(bench: Bench) -> Iterator[Line]:
    """Charts of a stream with a batch every ten seconds for 30 days, in a browser"""
    with TemporaryDirectory(prefix="weir-bench-") as folder, browser.chromium() as chromium:
        home, now = Path(folder) / "home", datetime.now(UTC)
        store = stream_store.open_store(home)
        stream_store.beat(store, now)
        stream_store.flowing(store, STREAM, now)
        store.close()
        stream_store.long_history(home, STREAM, now, MINUTE_S, days=7)
        stream_store.long_history(home, STREAM, now, HOUR_S, days=30)
        (Path(folder) / "lake").mkdir()
        with browser.server(Path(folder) / "lake", home) as url, browser.tab_of(chromium, url) as tab:
            tab.load(f"/{PAGE}?stream={STREAM}")
            tab.page.wait_for_function(DRAWN, arg=WINDOWS["15 min"], timeout=browser.LIMIT_MS)
            for window in ("7 d", "30 d"):
                took = [_opened_s(tab.page, window) for _ in range(OPENINGS * bench.repeats)]
                line = within(f"{window}, from the click", statistics.median(took), MONTH_LIMIT_S)
                yield replace(line, ours=f"{line.ours}, at most {duration(max(took))}")


def door(bench: Bench) -> Iterator[Line]:
    """A browser's request behind a trusted proxy, at the door"""
    ui = {"allowed_hosts": ["weir.example.com"], "trusted_proxies": ["10.0.0.0/8"], "user_header": "X-User"}
    asked = {"host": "weir.example.com", "origin": "https://weir.example.com", "x-user": "ann", "user-agent": "x" * 120}
    forwarded = {"x-forwarded-for": "198.51.100.7", "x-forwarded-proto": "https", "cookie": "y" * 1_000}
    headers = [(name.encode(), value.encode()) for name, value in {**asked, **forwarded}.items()]
    scope = {"type": "http", "method": "POST", "scheme": "http", "path": "/", "client": ("10.1.2.3", 4711)}

    async def application(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["status"] != 200:
            raise BenchError("the door refused what it should let in")

    async def checks_s(door: ASGIApp) -> Iterator[float]:
        times = [time.perf_counter()]
        for _ in range(CHECKS * bench.repeats):
            await door({**scope, "headers": headers}, receive, send)
            times.append(time.perf_counter())
        return (after - before for before, after in pairwise(times))

    took = list(asyncio.run(checks_s(Door(application, load_settings(ui=ui)))))
    line = within("a check, 99 % under", statistics.quantiles(took, n=100)[-1], CHECK_LIMIT_S)
    yield replace(line, ours=f"{line.ours}, median {statistics.median(took) * 1e6:.0f} µs")


def _opened_s(page: Page, window: str) -> float:
    """Seconds from the click until every chart is drawn over it, come from the shortest."""
    for chosen in ("15 min", window):
        started = time.perf_counter()
        page.get_by_role("radio", name=chosen, exact=True).click()
        page.wait_for_function(DRAWN, arg=WINDOWS[chosen], timeout=browser.LIMIT_MS)
    return time.perf_counter() - started


async def _crowd(url: str, process: int, viewers: int, seconds: float) -> Crowd:
    async with viewers_of(url, viewers, page=PAGE, query=f"stream={STREAM}") as crowd:
        for viewer in crowd:
            await viewer.run()
        told = list[tuple[float, float]]()
        began = time.perf_counter() + SETTLE_S
        watch = asyncio.create_task(_processor_s(process, began, seconds))
        await asyncio.gather(*(_refresh_until(began + seconds, viewer, told) for viewer in crowd))
        return Crowd([took for asked, took in told if asked >= began], await watch)


async def _refresh_until(deadline: float, viewer: Viewer, told: list[tuple[float, float]]) -> None:
    """Asks for each live region in its own pace; `told` gets when each was asked for, and how long it took."""
    if not viewer.regions:
        raise BenchError("the page has no live region")
    now = time.perf_counter()
    due = {region: now + random.uniform(0, pause_s) for region, pause_s in viewer.regions.items()}
    while (asked := min(due.values())) < deadline:
        region = min(due, key=lambda each: due[each])
        await asyncio.sleep(max(0.0, asked - time.perf_counter()))
        asked = time.perf_counter()
        told.append((asked, await viewer.run(region)))
        due[region] = max(time.perf_counter(), asked + viewer.regions[region])


async def _processor_s(process: int, began: float, seconds: float) -> float:
    await asyncio.sleep(began - time.perf_counter())
    before = _ticks(process)
    await asyncio.sleep(seconds)
    return (_ticks(process) - before) / os.sysconf("SC_CLK_TCK")


def _ticks(process: int) -> int:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@contextmanager
def _flowing(home: str) -> Iterator[None]:
    """A stream whose host lives and tells of a batch each second, so that no refresh finds what the last one found."""
    store = ControlStore.open(load_settings(home=Path(home)))
    stream_store.flowing(store, STREAM, datetime.now(UTC))

    def go_on(second: int) -> None:
        now = datetime.now(UTC)
        stream_store.beat(store, now)
        store.add_progress([stream_store.batch(STREAM, 1_000 + second, now, run_id=f"{STREAM}-run-2")])

    with closing(store), each_second(go_on):
        yield


@contextmanager
def _pinned(command: Sequence[str], home: Path) -> Iterator[tuple[str, int]]:
    """A server on one core, its address and process; this process has the others."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:1])  # what is started now inherits it
    try:
        with served(home, command) as running:
            os.sched_setaffinity(0, cores[1:] or cores)
            yield running.url, running.process.pid
    finally:
        os.sched_setaffinity(0, cores)


SUITE = Suite((live, months, door), packages=("streamlit",), repeats=1)
