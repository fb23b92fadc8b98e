"""One whole Weir for all browser tests: `weir up` with its own home and port, driven through Debian's Chromium.

Without a browser these tests skip and say so; with CI=true a missing browser is a failure.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, WebSocket, expect
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from backend.access import Actor
from backend.settings import load_settings
from backend.store.store import ControlStore
from backend.stream_model.stream import StreamState
from tests.worlds.lake import builders
from tests.worlds.processes import free_port, processes_of, wait_until
from tests.worlds.store.values import newest

STREAMS = (
    "bronze_events",
    "silver_events",
    "gold_events_hourly",
    "bronze_orders",
    "silver_orders",
    "gold_orders_by_status",
)
RUNNING = StreamState.RUNNING
# Streamlit's own, which no setting reaches: its navigation's list, colours of code, sparklines, labels out of use.
NOT_OURS = ("[data-testid=stSidebarNavItems]", ".token", "[data-testid=stMetricChart]", "label[disabled]")
LATE_MS = 350  # a list tells up to 300 ms after a key or a click what was chosen
PICTURES = Path(__file__).parents[2] / "test-results" / "pages"


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="session")
def browser_type_launch_args() -> dict[str, Any]:
    path = chromium()
    if path is None:
        reason = "no Chromium on this machine (Debian: apt-get install chromium)"
        if os.environ.get("CI", "").lower() in ("true", "1"):
            pytest.fail(f"{reason}, and in CI the browser tests must run", pytrace=False)
        pytest.skip(reason)
    return {"executable_path": path, "args": ["--no-sandbox", "--disable-dev-shm-usage"]}


@pytest.fixture(scope="session")
def browser_context_args() -> dict[str, Any]:
    return {"viewport": {"width": 1440, "height": 900}, "timezone_id": "Europe/Amsterdam", "locale": "en-GB"}


@dataclass(frozen=True, slots=True)
class Weir:
    """A running `weir up`: its address, its home, and the command on the same home."""

    url: str
    home: Path
    env: dict[str, str]
    process: subprocess.Popen[bytes]

    def json(self, *words: str, differs: bool = False) -> Any:
        """What `weir … --json` prints. `differs`: it ends as `weir diff` does where something differs."""
        argv = [sys.executable, "-m", "app.cli", *words, "--json"]
        run = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=60, check=False)
        assert run.returncode == (10 if differs else 0), run.stderr
        return json.loads(run.stdout)

    def streams(self) -> dict[str, dict[str, Any]]:
        return {stream["name"]: stream for stream in self.json("streams")}

    @contextmanager
    def store(self) -> Iterator[ControlStore]:
        """For what is looked at again and again: a command is a process."""
        store = ControlStore.open(load_settings(home=self.home))
        try:
            yield store
        finally:
            store.close()

    def until_flowing(self, batch: int) -> None:
        """Wait until all six run and have done this micro-batch."""
        with self.store() as store:
            wait_until(
                lambda: (
                    states(store) == dict.fromkeys(STREAMS, RUNNING)
                    and all(batches(store).get(name, -1) >= batch for name in STREAMS)
                ),
                lambda: f"six streams run with batch_id ≥ {batch}: {states(store)}, {batches(store)}",
                pause_s=0.5,
            )

    def ask_all(self, action: Literal["start", "stop"], state: StreamState) -> None:
        """Start or stop those that are not so, and wait until all six are."""
        with self.store() as store:
            for name, now in states(store).items():
                if now is not state:
                    store.request(
                        name, action, reason="for the next tests", actor=Actor("tests"), now=datetime.now(UTC)
                    )
            wanted = dict.fromkeys(STREAMS, state)
            wait_until(lambda: states(store) == wanted, f"all streams are {state}", pause_s=0.5)

    def log(self, name: str) -> str:
        return (self.home / "logs" / f"{name}.log").read_text(errors="replace")


@pytest.fixture(scope="package")
def warm(browser: Browser, browser_context_args: dict[str, Any]) -> Iterator[BrowserContext]:
    """One profile for all tests: the client's five megabytes of code are fetched and compiled once."""
    context = browser.new_context(**browser_context_args)
    yield context
    context.close()


@pytest.fixture
def page(warm: BrowserContext) -> Iterator[Page]:
    page = warm.new_page()
    yield page
    page.close()


def states(store: ControlStore) -> dict[str, StreamState]:
    return {name: seen.state for name, seen in store.observed().items()}


def batches(store: ControlStore) -> dict[str, int]:
    """The last micro-batch that each stream has done."""
    return {name: progress.batch_id for name, progress in newest(store).items()}


@pytest.fixture(scope="package")
def weir(browser_type_launch_args: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weir]:
    """The demo. A test says whether its streams are `flowing` or `resting`."""
    # Fewer files than people see: what streams do takes the processor from the browser. No act but those of a test.
    calm = {"WEIR_DEMO__LANDING_INTERVAL_S": "5", "WEIR_DEMO__POLICY": "false"}
    with demo(tmp_path_factory.mktemp("browser") / "weir", **calm) as running:
        yield running


@pytest.fixture
def flowing(weir: Weir) -> None:
    """All six streams run."""
    weir.ask_all("start", RUNNING)


@pytest.fixture
def resting(weir: Weir) -> None:
    """All six streams have stopped, each after two micro-batches at least."""
    with weir.store() as store:
        is_at_rest = set(states(store).values()) == {StreamState.STOPPED}
    if not is_at_rest:
        weir.ask_all("start", RUNNING)
        weir.until_flowing(1)
        weir.ask_all("stop", StreamState.STOPPED)


@contextmanager
def demo(home: Path, **settings: str) -> Iterator[Weir]:
    """The demo, running, after a micro-batch of each stream. Afterwards nothing of it may be left."""
    port = free_port()
    env = {**os.environ, "WEIR_HOME": str(home), "WEIR_PORT": str(port), **settings}
    home.parent.mkdir(parents=True, exist_ok=True)
    output = home.parent / "up.txt"
    with output.open("wb") as out:
        argv = [sys.executable, "-m", "app.cli", "up"]
        process = subprocess.Popen(argv, env=env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
    weir = Weir(f"http://127.0.0.1:{port}", home, env, process)
    try:
        ready = f"ready at {weir.url}"
        wait_until(lambda: ready in output.read_text(), "the page is served", pause_s=0.5)
        weir.until_flowing(0)
        yield weir
    except AssertionError:
        sys.stderr.write(output.read_text() + "".join(weir.log(name)[-4_000:] for name in ("ui", "host", "spark")))
        raise
    finally:
        stop(weir)


def stop(weir: Weir) -> None:
    """Ctrl-C, as a person would; nothing is left."""
    weir.process.send_signal(signal.SIGINT)
    weir.process.wait(timeout=120)
    left = processes_of(weir.home)
    assert left == [], f"processes are left after Ctrl-C: {left}"


@dataclass  # without slots: Playwright keeps its handlers with the object
class Viewer:
    """A person at the browser. Everything the console complains about is kept.

    `is_awaited`: the page has asked for a run of its script that has not ended, as its websocket tells.
    """

    page: Page
    weir: Weir
    complaints: list[str] = field(default_factory=list)
    is_awaited: bool = False

    def __post_init__(self) -> None:
        self.page.on("websocket", self._follow)
        self.page.set_default_timeout(60_000)
        expect.set_options(timeout=60_000)
        self.page.on("console", lambda message: self._hear(message))
        self.page.on("pageerror", lambda error: self.complaints.append(f"page error: {error}"))

    def open(self, page: str = "", **params: object) -> None:
        """Go to a page by its URL and wait until it is drawn."""
        query = "&".join(f"{key.rstrip('_')}={value}" for key, value in params.items())
        self.page.goto(f"{self.weir.url}/{page}" + (f"?{query}" if query else ""))
        self.settle(0)

    def settle(self, late_ms: int = LATE_MS) -> None:
        """Wait until what was asked for has run and nothing is being drawn anew."""
        expect(self.main.get_by_role("heading").first).to_be_visible()
        self.timers_fire(late_ms)
        wait_until(lambda: self._has_answers(), "the script has ended")
        app = self.page.locator("[data-testid=stApp]")
        expect(app).to_have_attribute("data-test-script-state", "notRunning")
        expect(self.page.locator("[data-testid=stSkeleton]")).to_have_count(0)

    def timers_fire(self, within_ms: int) -> None:
        """Whatever the page itself set a timer for has happened: its timers fire in their order, however late."""
        self.page.evaluate("ms => new Promise(done => setTimeout(done, ms))", within_ms)

    def press(self, *keys: str) -> None:
        """Keys as fast as a person, until what they asked for is drawn."""
        for key in keys:
            self.page.keyboard.press(key, delay=30)
            self.timers_fire(60)
        self.settle()

    def sees(self, text: str | re.Pattern[str], *, limit_s: float = 60) -> None:
        """The text stands in the page's main part."""
        expect(self.main.get_by_text(text).first).to_be_visible(timeout=limit_s * 1_000)

    def heading(self, text: str | re.Pattern[str]) -> None:
        expect(self.main.get_by_role("heading", name=text).first).to_be_visible()

    def go(self, link: str) -> None:
        """Click a page in the navigation."""
        self.page.locator("[data-testid=stSidebarNav]").get_by_role("link", name=link, exact=True).click()
        self.settle()

    def list(self, name: str) -> Locator:
        """A list by (the beginning of) its description, scrolled to: it is a canvas, and drawn once it is in sight."""
        region = self.main.get_by_role("region", name=re.compile(f"^{name}")).first
        region.scroll_into_view_if_needed()
        return region.locator("[data-testid=data-grid-canvas]").first

    def rows(self, name: str) -> Locator:
        """The rows of a list, its header first, as a screen reader finds them."""
        return self.list(name).locator("[role=row]")

    def row_of(self, name: str, text: str) -> int:
        """The place of the row that holds this text, from 0."""
        row = self.rows(name).filter(has_text=text).first
        expect(row).to_be_attached()
        return int(row.get_attribute("aria-rowindex")) - 2

    def click_row(self, name: str, row: int, *, tick: bool = False, row_px: int = 35) -> None:
        """Click a row's first cell, or its tick box, by its place below the header of 35 px."""
        self.click_at(self.list(name), 16 if tick else 90, 35 + row_px * row + 17)

    def click_at(self, drawing: Locator, x: float | None = None, y: float | None = None) -> None:
        """Click a place of something drawn (its middle by default); other elements lie above it and take the click."""
        drawing.scroll_into_view_if_needed()
        box = drawing.bounding_box()
        assert box is not None
        self.page.mouse.click(
            box["x"] + (box["width"] / 2 if x is None else x), box["y"] + (box["height"] / 2 if y is None else y)
        )
        self.settle()

    def choose(self, option: str) -> None:
        """Click one of a segmented control's choices."""
        self.main.get_by_role("radio", name=option, exact=True).or_(
            self.main.get_by_role("button", name=option, exact=True)
        ).first.click()
        self.settle()

    def overflows(self) -> bool:
        """Whether the page is wider than the window."""
        return bool(self.page.evaluate("document.scrollingElement.scrollWidth > window.innerWidth + 1"))

    def barriers(self) -> tuple[str, ...]:
        """What axe finds serious or critical on the page."""
        found = Axe().run(self.page, context={"exclude": [[part] for part in NOT_OURS]}).response["violations"]
        serious = [each for each in found if each["impact"] in ("serious", "critical")]
        return tuple(f"{each['id']}: {node['html'][:200]}" for each in serious for node in each["nodes"])

    def picture(self, name: str) -> None:
        """Keep the whole page as a picture, for people to look at."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        size = self.page.viewport_size
        assert size is not None
        height = self.page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
        self.page.set_viewport_size({"width": size["width"], "height": min(max(size["height"], height), 6_000)})
        self.timers_fire(400)  # charts draw themselves anew
        self.page.screenshot(path=PICTURES / f"{name}.png")
        self.page.set_viewport_size(size)

    @property
    def main(self) -> Locator:
        return self.page.locator("[data-testid=stMain]")

    def _has_answers(self) -> bool:
        self.page.evaluate("0")  # lets what the websocket told arrive here
        return not self.is_awaited

    def _follow(self, socket: WebSocket) -> None:
        socket.on("framesent", self._sent)
        socket.on("framereceived", self._received)
        socket.on("close", lambda _: self._is_answered())

    def _sent(self, frame: str | bytes) -> None:
        if isinstance(frame, bytes) and BackMsg.FromString(frame).WhichOneof("type") == "rerun_script":
            self.is_awaited = True

    def _received(self, frame: str | bytes) -> None:
        message = ForwardMsg.FromString(frame) if isinstance(frame, bytes) else ForwardMsg()
        begins_anew = message.script_finished == ForwardMsg.FINISHED_EARLY_FOR_RERUN
        if message.WhichOneof("type") == "script_finished" and not begins_anew:
            self._is_answered()

    def _is_answered(self) -> None:
        self.is_awaited = False

    def _hear(self, message: ConsoleMessage) -> None:
        where = message.location.get("url", "")
        # Opened at /page, Streamlit's client asks /page/_stcore/… first and then the root: not an error of ours.
        looks_for_its_server = re.search(r"/\w+/_stcore/(health|host-config)$", where) and "404" in message.text
        if message.type == "error" and not looks_for_its_server:
            self.complaints.append(f"{message.text} ({where})")


@pytest.fixture(scope="module")
def server(browser_type_launch_args: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weir]:
    """The pages alone over the table of orders."""
    from tests.worlds.browser.server import pages_over  # which needs `Weir`

    home = tmp_path_factory.mktemp("orders")
    builders.orders_table(home / "lake" / "silver" / "orders")
    with pages_over(home) as weir:
        yield weir


@pytest.fixture
def viewer_alone(page: Page, server: Weir) -> Iterator[Viewer]:
    """Over the pages of `server`, in modules that say `viewer = viewer_alone`."""
    viewer = Viewer(page, server)
    yield viewer
    assert viewer.complaints == []
    assert '"page failed"' not in (server.home / "ui.txt").read_text()


@pytest.fixture
def viewer(page: Page, weir: Weir) -> Iterator[Viewer]:
    viewer = Viewer(page, weir)
    yield viewer
    assert viewer.complaints == []
    assert [line for line in weir.log("ui").splitlines() if '"page failed"' in line] == []
