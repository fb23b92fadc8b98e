"""What a foreign page can do to a Weir on this machine, in a real browser: nothing, and our own pages go on."""

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Viewer, Weir
from tests.worlds.browser.server import pages_over
from tests.worlds.lake import builders
from tests.worlds.processes import wait_until

pytestmark = pytest.mark.browser

TRIES = """async (weir) => {
  const outcome = {}
  const loads = (kind, address) => new Promise((done) => {
    const element = document.createElement(kind)
    element.onload = () => done("loaded")
    element.onerror = () => done("refused")
    element.src = weir + address
    document.body.append(element)
  })
  const socket = (address) => new Promise((done) => {
    const opened = new WebSocket(address.replace("http", "ws") + "/_stcore/stream", ["streamlit"])
    opened.onopen = () => done("opened")
    opened.onerror = () => done("refused")
  })
  const status = (options, address = "/healthz") =>
    fetch(weir + address, options).then((answer) => answer.status || answer.type, () => "refused")
  outcome.image = await loads("img", "/favicon.png")
  outcome.script = await loads("script", "/static/js/none.js")
  outcome.websocket = await socket(weir)
  outcome.read = await status({})
  outcome.readWithCookies = await status({credentials: "include"})
  outcome.post = await status({method: "POST"})
  outcome.forged = await status({headers: {"X-Forwarded-Host": new URL(weir).host, "X-User": "root"}})
  outcome.figures = await status({}, "/metrics")
  outcome.upload = await status({method: "PUT"}, "/_stcore/upload_file/a/b")
  return outcome
}"""


class _Portal(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>Portal</title><p>Not Weir</p>")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def portal() -> Iterator[int]:
    """The port where pages that are not Weir's are served."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Portal)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def weir(
    browser_type_launch_args: dict[str, Any], tmp_path_factory: pytest.TempPathFactory, portal: int
) -> Iterator[Weir]:
    """One that `localhost`'s portal may show in a frame; that of `127.0.0.1` may not."""
    home = tmp_path_factory.mktemp("door")
    builders.orders_table(home / "lake" / "orders")
    with pages_over(home, WEIR_UI__FRAME_ANCESTORS=f'["http://localhost:{portal}"]') as running:
        yield running


def test_a_foreign_page_reaches_nothing(page: Page, weir: Weir, portal: int) -> None:
    page.goto(f"http://127.0.0.1:{portal}/")
    assert set(page.evaluate(TRIES, weir.url).values()) == {"refused"}


def test_a_name_that_points_at_this_machine_reaches_nothing(page: Page, weir: Weir) -> None:
    rebound = weir.url.replace("127.0.0.1", "rebound.localhost")  # browsers look such names up at nobody's
    page.goto(rebound)
    expect(page.locator("body")).to_have_text(re.compile("^Refused: Weir is not known as 'rebound.localhost:"))
    outcome = page.evaluate(TRIES, rebound)
    assert set(outcome.values()) == {"refused", 403}
    assert {outcome[name] for name in ("read", "post", "forged", "figures", "upload")} == {403}


def test_a_foreign_page_cannot_post_a_form(page: Page, weir: Weir, portal: int) -> None:
    page.goto(f"http://127.0.0.1:{portal}/")
    form = f"form = document.createElement('form'); form.method = 'post'; form.action = '{weir.url}/healthz'"
    page.evaluate(f"() => {{ const {form}; document.body.append(form); form.submit() }}")
    expect(page.locator("body")).to_have_text(re.compile("^Refused: it comes from a page of 'http://127.0.0.1:"))


def _framed(page: Page, portal: str, weir: Weir) -> None:
    page.goto(f"http://{portal}/")
    page.evaluate("address => { document.body.innerHTML = `<iframe src=${address} width=900 height=600>` }", weir.url)


def test_a_foreign_page_cannot_show_it_in_a_frame(page: Page, weir: Weir, portal: int) -> None:
    console: list[str] = []
    page.on("console", lambda message: console.append(message.text))
    _framed(page, f"127.0.0.1:{portal}", weir)
    wait_until(lambda: page.evaluate("0") == 0 and any("frame-ancestors" in text for text in console), "it is refused")
    assert page.frames[1].url.startswith("chrome-error:")


def test_a_page_that_is_named_can_and_it_works_there(page: Page, weir: Weir, portal: int) -> None:
    _framed(page, f"localhost:{portal}", weir)
    expect(page.frame_locator("iframe").get_by_role("heading", name="Overview")).to_be_visible(timeout=60_000)


def test_our_own_pages_go_on_without_a_word_in_the_console(page: Page, weir: Weir) -> None:
    viewer = Viewer(page, weir)
    viewer.open()
    viewer.heading("Overview")
    viewer.open("table", table="orders")
    viewer.choose("Data")
    expect(viewer.rows("Rows of").first).to_be_attached()
    for name in ("files", "changes", "pipeline"):  # a figure of plotly's, a link that downloads, WebAssembly
        viewer.open(name, table="orders")
    assert viewer.complaints == []
