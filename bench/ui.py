"""`make bench-ui`: viewers of one live page by Streamlit's protocol, beside plain `streamlit run`; a month of a stream.

Rule: each viewer opens the page whole and then asks for each live region as its timer says, as a browser does; the
server has a core of its own. A month of a stream is opened in a real browser.
"""

import asyncio
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Page, sync_playwright

from backend.settings import load_settings
from backend.store.store import ControlStore
from backend.stream_model.rollup import HOUR_S, MINUTE_S
from bench.measure import BenchError
from bench.page import DRAWN_LIMIT_MS, chromium, free_port, server, viewer, wait_until_served
from bench.report import Line, at_most, duration
from bench.runner import Suite, run_suite
from bench.viewer import Viewer, viewers_of
from tests.ui import stream_store

FIGURES = Path(__file__).with_name("ui.md")
STREAM, PAGE = "silver_orders", "stream"
VIEWERS = (1, 25, 50, 100, 200)
SECONDS, SETTLE_S = 20.0, 8.0
OPENINGS = 10
LIMIT_S = 0.05
MONTH_LIMIT_S = 0.5
WINDOWS = {"15 min": (0, 1), "7 d": (5, 9), "30 d": (25, 35)}  # about how many days a chart spans
# Whether every chart is drawn over so many.
DRAWN = """([least, most]) => {
  const charts = [...document.querySelectorAll(".weir-figure")];
  const drawn = chart => chart.querySelector(".trace path") && chart._fullLayout.xaxis.range.map(Date.parse);
  const spans = charts.map(drawn).map(range => range ? (range[1] - range[0]) / 86_400_000 : 0);
  return spans.length > 3 && spans.every(each => least < each && each < most);
}"""
OURS = (sys.executable, "-m", "app.cli", "ui")
PLAIN = (sys.executable, "-m", "streamlit", "run", "app/main.py", "--server.headless=true")


@dataclass(frozen=True, slots=True)
class Bench:
    viewers: tuple[int, ...]
    seconds: float
    openings: int


@dataclass(slots=True)
class Crowd:
    """What viewers met while the clock ran: seconds of each refresh, and the seconds of a core that the server took."""

    refreshes_s: list[float] = field(default_factory=list)
    processor_s: float = 0.0

    @property
    def p95_s(self) -> float:
        return statistics.quantiles(self.refreshes_s, n=20)[-1]


def one_live_page(bench: Bench) -> Iterator[Line]:
    """Viewers of one stream's live page; the server has one core"""
    found: dict[tuple[str, ...], list[Crowd]] = {OURS: [], PLAIN: []}
    with TemporaryDirectory(prefix="weir-bench-") as home, _flowing(home):
        for command in (OURS, PLAIN):
            for viewers in bench.viewers:
                with _server(command, home) as (url, process):
                    found[command].append(asyncio.run(_crowd(url, process, viewers, bench.seconds)))
    for viewers, ours, plain in zip(bench.viewers, found[OURS], found[PLAIN], strict=True):
        what = f"{viewers} viewer{'s' if viewers > 1 else ''}: a refresh, 95 % under"
        line = at_most(what, ours.p95_s, LIMIT_S, (duration(ours.p95_s), duration(LIMIT_S)))
        yield Line(
            line.what, line.target, line.ours, duration(plain.p95_s), f"{plain.p95_s / ours.p95_s:.1f}×", line.is_met
        )
        yield Line(
            f"{viewers}: median, and processor time a refresh",
            ours=_told(ours),
            theirs=_told(plain),
        )


def months(bench: Bench) -> Iterator[Line]:
    """Charts of a stream with a batch every ten seconds for 30 days, in a browser"""
    with TemporaryDirectory(prefix="weir-bench-") as folder, sync_playwright() as playwright:
        home, now = Path(folder) / "home", datetime.now(UTC)
        store = stream_store.open_store(home)
        stream_store.beat(store, now)
        stream_store.flowing(store, STREAM, now)
        store.close()
        stream_store.long_history(home, STREAM, now, MINUTE_S, days=7)
        stream_store.long_history(home, STREAM, now, HOUR_S, days=30)
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        (Path(folder) / "lake").mkdir()
        with server(Path(folder) / "lake", str(home)) as url, viewer(browser) as context:
            tab = context.new_page()
            tab.goto(f"{url}/{PAGE}?stream={STREAM}")
            tab.wait_for_function(DRAWN, arg=WINDOWS["15 min"], timeout=DRAWN_LIMIT_MS)
            for window in ("7 d", "30 d"):
                took = [_opened_s(tab, window) for _ in range(bench.openings)]
                middle_s = statistics.median(took)
                told = f"{duration(middle_s)}, at most {duration(max(took))}"
                yield at_most(f"{window}, from the click", middle_s, MONTH_LIMIT_S, (told, duration(MONTH_LIMIT_S)))
        browser.close()


def _opened_s(tab: Page, window: str) -> float:
    """Seconds from the click until every chart is drawn over it, come from the shortest."""
    for chosen in ("15 min", window):
        started = time.perf_counter()
        tab.get_by_role("radio", name=chosen, exact=True).click()
        tab.wait_for_function(DRAWN, arg=WINDOWS[chosen], timeout=DRAWN_LIMIT_MS)
    return time.perf_counter() - started


def _told(crowd: Crowd) -> str:
    each_s = crowd.processor_s / max(1, len(crowd.refreshes_s))
    return f"{duration(statistics.median(crowd.refreshes_s))}, {duration(each_s)}"


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
    store, done = ControlStore.open(load_settings(home=Path(home))), threading.Event()
    stream_store.flowing(store, STREAM, datetime.now(UTC))

    def go_on() -> None:
        number = 1_000
        while not done.wait(1.0):
            now = datetime.now(UTC)
            stream_store.beat(store, now)
            store.add_progress([stream_store.batch(STREAM, number, now, run_id=f"{STREAM}-run-2", rows=100)])
            number += 1

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        store.close()


@contextmanager
def _server(command: Sequence[str], home: str) -> Iterator[tuple[str, int]]:
    """Pinned to one core; this process has the others."""
    port = free_port()
    env = {**os.environ, "WEIR_HOME": home, "WEIR_PORT": str(port), "STREAMLIT_SERVER_PORT": str(port)}
    cores = sorted(os.sched_getaffinity(0))
    process = subprocess.Popen(
        command,
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, cores[:1]),
    )
    os.sched_setaffinity(0, cores[1:] or cores)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_served(url, process)
        yield url, process.pid
    finally:
        os.sched_setaffinity(0, cores)
        process.terminate()
        process.wait(timeout=30)


def make(_: Path, scale: float, repeats: int) -> Bench:
    viewers = tuple(number for number in VIEWERS if number <= max(1, VIEWERS[-1] * scale))
    return Bench(viewers, SECONDS * repeats, OPENINGS * repeats)


def main(words: Sequence[str] | None = None) -> int:
    """Prints the table, writes it with `--write`; returns the exit code."""
    sections = {"live": one_live_page, "months": months}
    return run_suite(Suite("bench-ui", __doc__ or "", FIGURES, make, sections, ("streamlit",), 1), words)


if __name__ == "__main__":
    sys.exit(main())
