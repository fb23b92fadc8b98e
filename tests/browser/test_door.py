"""What a foreign page can do to a Weir on this machine, and a person behind the documented nginx; our pages go on."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from backend.access import Actor
from tests.worlds.browser.viewer import Viewer
from tests.worlds.browser.weir import Weir, pages_over
from tests.worlds.pages.nginx import documented_settings, nginx_before
from tests.worlds.processes import wait_until
from tests.worlds.store import stream_store

pytestmark = [pytest.mark.browser]

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


def test_a_foreign_page_reaches_nothing(page: Page, recorded: Weir, portal: int) -> None:
    page.goto(f"http://127.0.0.1:{portal}/")
    assert set(page.evaluate(TRIES, recorded.url).values()) == {"refused"}
    form = f"form = document.createElement('form'); form.method = 'post'; form.action = '{recorded.url}/healthz'"
    page.evaluate(f"() => {{ const {form}; document.body.append(form); form.submit() }}")
    expect(page.locator("body")).to_have_text(re.compile("^Refused: no request writes here"))


def test_a_name_that_points_at_this_machine_reaches_nothing(page: Page, recorded: Weir) -> None:
    rebound = recorded.url.replace("127.0.0.1", "rebound.localhost")  # browsers look such names up at nobody's
    page.goto(rebound)
    expect(page.locator("body")).to_have_text(re.compile("^Refused: Weir is not known as 'rebound.localhost:"))
    outcome = page.evaluate(TRIES, rebound)
    assert set(outcome.values()) == {"refused", 403}
    assert {outcome[name] for name in ("read", "post", "forged", "figures", "upload")} == {403}


def _framed(page: Page, portal: str, recorded: Weir) -> None:
    page.goto(f"http://{portal}/")
    page.evaluate(
        "address => { document.body.innerHTML = `<iframe src=${address} width=900 height=600>` }", recorded.url
    )


def test_a_foreign_page_cannot_show_it_in_a_frame(page: Page, recorded: Weir, portal: int) -> None:
    console: list[str] = []
    page.on("console", lambda message: console.append(message.text))
    _framed(page, f"127.0.0.1:{portal}", recorded)
    wait_until(lambda: page.evaluate("0") == 0 and any("frame-ancestors" in text for text in console), "it is refused")
    assert page.frames[1].url.startswith("chrome-error:")


@pytest.mark.ci
def test_a_page_that_is_named_can_and_it_works_there(page: Page, recorded: Weir, portal: int) -> None:
    _framed(page, f"localhost:{portal}", recorded)
    expect(page.frame_locator("iframe").get_by_role("heading", name="Overview")).to_be_visible()


NAME = "silver_orders"
HOST = "weir.localhost"  # which a browser looks up at nobody's


@pytest.mark.soak
def test_each_person_behind_nginx_acts_under_their_own_name_whatever_their_browser_claims(
    browser: Browser, browser_context_args: dict[str, Any], tmp_path: Path
) -> None:
    store, now = stream_store.open_store(tmp_path), datetime.now(UTC)
    stream_store.flowing(store, NAME, now)
    claims = {"X-Auth-Request-Email": "root@example.com", "X-Forwarded-User": "root"}
    settings = documented_settings() | {"WEIR_UI__ALLOWED_HOSTS": json.dumps([HOST])}
    with pages_over(tmp_path, **settings) as running, nginx_before(running.url, tmp_path) as url:
        weir = replace(running, url=f"https://{HOST}:{url.rpartition(':')[2]}")
        context = browser.new_context(**browser_context_args, ignore_https_errors=True, extra_http_headers=claims)
        for person in ("ann@example.com", "ben@example.com"):  # one after the other in one browser, with its cache
            context.add_cookies([{"name": "login", "value": person, "url": weir.url}])
            viewer = Viewer(context.new_page(), weir)
            viewer.open("stream", stream=NAME)
            viewer.ask("Stop", f"asked by {person}")
            viewer.page.close()
            store.request(NAME, "start", reason="again", actor=Actor("tests"), now=datetime.now(UTC))
        context.close()
    stops = {entry.reason: entry.actor for entry in store.audit_entries() if entry.action == "stop"}
    store.close()
    assert stops == {f"asked by {person}": person for person in ("ann@example.com", "ben@example.com")}
