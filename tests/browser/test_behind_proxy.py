"""People at a Weir behind nginx, as docs/operations.md sets it up: each acts under the name that the login gave."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from backend.access import Actor
from tests.browser.conftest import Viewer, Weir
from tests.worlds.browser.server import pages_over
from tests.worlds.pages.nginx import documented_settings, nginx_before
from tests.worlds.store import stream_store

pytestmark = pytest.mark.browser

NAME = "silver_orders"
HOST = "weir.localhost"  # which a browser looks up at nobody's


@pytest.fixture(scope="module")
def weir(browser_type_launch_args: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weir]:
    home, now = tmp_path_factory.mktemp("behind"), datetime.now(UTC)
    store = stream_store.open_store(home)
    stream_store.flowing(store, NAME, now)
    store.close()
    settings = documented_settings() | {"WEIR_UI__ALLOWED_HOSTS": json.dumps([HOST])}
    with pages_over(home, **settings) as running, nginx_before(running.url, home) as url:
        yield replace(running, url=f"https://{HOST}:{url.rpartition(':')[2]}")


def stop(viewer: Viewer, reason: str) -> None:
    viewer.open("stream", stream=NAME)
    viewer.main.get_by_role("button", name="Stop", exact=True).click()
    dialog = viewer.page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill(reason)
    dialog.get_by_role("button", name="Stop", exact=True).click()
    expect(dialog).to_have_count(0)


def test_each_person_acts_under_their_own_name_whatever_their_browser_claims(
    browser: Browser, browser_context_args: dict[str, Any], weir: Weir
) -> None:
    claims = {"X-Auth-Request-Email": "root@example.com", "X-Forwarded-User": "root"}
    people = {"ann@example.com": "first", "ben@example.com": "second"}
    for person, reason in people.items():
        context = browser.new_context(**browser_context_args, ignore_https_errors=True, extra_http_headers=claims)
        context.add_cookies([{"name": "login", "value": person, "url": weir.url}])
        page = context.new_page()
        stop(Viewer(page, weir), reason)
        if person.startswith("ann"):
            with weir.store() as store:
                stream_store.flowing(store, NAME, datetime.now(UTC))
                store.request(NAME, "start", reason="again", actor=Actor("tests"), now=datetime.now(UTC))
        context.close()
    with weir.store() as store:
        acts = {entry.reason: entry for entry in store.audit_entries() if entry.action == "stop"}
    assert {reason: entry.actor for reason, entry in acts.items()} == {why: who for who, why in people.items()}
