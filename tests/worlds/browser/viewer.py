"""A person at the browser: opens pages, clicks, types and reads, and waits for what the page has to draw."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import ConsoleMessage, Locator, Page, ViewportSize, WebSocket, expect
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from tests.worlds.browser.weir import Weir
from tests.worlds.processes import wait_until

# Streamlit's own, which no setting reaches: its navigation's list, colours of code, sparklines, labels out of use.
NOT_OURS = ("[data-testid=stSidebarNavItems]", ".token", "[data-testid=stMetricChart]", "label[disabled]")
PATIENCE_MS = 60_000
LATE_MS = 350  # a list tells up to 300 ms after a key or a click what was chosen
RESIZED_MS = 100  # lists and charts take a moment to draw themselves anew
NARROW: ViewportSize = {"width": 390, "height": 844}
PICTURES = Path(__file__).parents[3] / "test-results" / "pages"
# Marks each chart and looks at all of them twenty times a second: is anything of one not drawn?
WATCH_CHARTS = """() => {
  const charts = [...document.querySelectorAll(".weir-figure")];
  charts.forEach((chart, place) => { chart.marked = place; });
  const drawn = (chart) => chart.getBoundingClientRect().height > 200
    && chart.querySelector(".gtitle") && chart.querySelector(".trace path");
  window.watched = { looks: 0, blank: 0 };
  setInterval(() => {
    const now = [...document.querySelectorAll(".weir-figure")];
    window.watched.looks += 1;
    window.watched.blank += now.length < charts.length || !now.every(drawn);
  }, 50);
  return charts.length;
}"""


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
        self.page.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
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

    def click(self, role: Literal["button", "link"], name: str | re.Pattern[str]) -> None:
        """Click a button or a link of the page's main part; a text is its whole name."""
        self.main.get_by_role(role, name=name, exact=isinstance(name, str)).first.click()
        self.settle()

    def dialog(self, button: str) -> Locator:
        """The dialog that a button of the main part opens."""
        self.main.get_by_role("button", name=button, exact=True).click()
        return self.page.get_by_role("dialog")

    def send(self, reason: str, button: Locator, *, confirmed: str = "") -> None:
        """Give the open dialog its reason, type the name where it asks for it, and send it."""
        dialog = self.page.get_by_role("dialog")
        dialog.get_by_label("Reason").fill(reason)
        if confirmed:
            dialog.get_by_label(f"Type {confirmed} to confirm").fill(confirmed)
        button.click()
        expect(dialog).to_have_count(0)

    def ask(self, action: str, reason: str) -> None:
        """An act of one stream, from its button to the dialog's button of the same name."""
        button = self.dialog(f"{action}…").get_by_role("button", name=action, exact=True)
        self.send(reason, button)

    def observed(self, state: str) -> Locator:
        """The stream's state as its page shows it."""
        return self.page.locator(".st-key-state_row").filter(has_text=re.compile(rf"observed\s*\S*\s*{state}"))

    def overflows(self) -> bool:
        """Whether the page is wider than the window."""
        return bool(self.page.evaluate("document.scrollingElement.scrollWidth > window.innerWidth + 1"))

    def shuts_nobody_out(self) -> None:
        """The page as it stands has no barrier that axe knows and does not overflow, here and on a phone."""
        assert (self.overflows(), self.barriers()) == (False, ()), self.page.url
        size = self.page.viewport_size
        assert size is not None
        self.page.set_viewport_size(NARROW)
        self.timers_fire(RESIZED_MS)
        assert not self.overflows(), f"{self.page.url} on a phone"
        self.page.set_viewport_size(size)
        self.settle(RESIZED_MS)

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
        if message.type == "error":
            self.complaints.append(f"{message.text} ({message.location.get('url', '')})")
