"""Two browsers, two roles, one lake: every page as each sees it, as pictures; an admin through a viewer's eyes."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from app import navigation
from tests.worlds.browser.viewer import Viewer
from tests.worlds.browser.weir import Weir, pages_over
from tests.worlds.lake import builders
from tests.worlds.store import stream_store

pytestmark = [pytest.mark.browser, pytest.mark.ci]

GRANTS = [
    {"role": "admin", "group": "owners"},
    {"role": "admin", "user": "root@example.com"},
    {"role": "maintainer", "user": "ann@example.com", "on": ["silver/*", "stream:silver_*"]},
]
TABLE, STREAM = "silver/orders", "silver_orders"
ACTS = re.compile("^(Stop|Reset|Pin|Restore|Optimize|Vacuum|Copy|Drop|Edit|Restart|Requeue).*…")


@pytest.fixture(scope="module")
def weir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weir]:
    home = tmp_path_factory.mktemp("roles")
    builders.medallion_lake(home / "lake")
    store, now = stream_store.open_store(home), datetime.now(UTC)
    stream_store.flowing(store, STREAM, now)
    stream_store.beat(store, now)
    store.close()
    settings = {
        "WEIR_UI__TRUSTED_PROXIES": '["127.0.0.1"]',
        "WEIR_UI__USER_HEADER": "X-User",
        "WEIR_AUTH__GRANTS": json.dumps(GRANTS),
        "WEIR_HOST__HEARTBEAT_STALE_S": "6000",
    }
    with pages_over(home, **settings) as running:
        yield running


def seen_by(name: str, weir: Weir, browser: Browser, args: dict[str, Any]) -> Viewer:
    context = browser.new_context(**args, extra_http_headers={"X-User": name})
    return Viewer(context.new_page(), weir)


def test_what_two_roles_see_of_every_page(weir: Weir, browser: Browser, browser_context_args: dict[str, Any]) -> None:
    viewer, maintainer = (
        seen_by(name, weir, browser, browser_context_args) for name in ("cy@example.com", "ann@example.com")
    )
    acts = 0
    for page in navigation.titles():
        for who, role in ((viewer, "viewer"), (maintainer, "maintainer")):
            who.open("" if page == "overview" else page, table=TABLE, stream=STREAM, at=1)
            who.picture(f"roles_{page}_{role}")
        for button in viewer.main.get_by_role("button", name=ACTS).all():
            expect(button).to_be_disabled()
            acts += 1
        assert not viewer.complaints and not maintainer.complaints, page
    assert acts > 6
    viewer.open("stream", stream=STREAM)
    viewer.main.get_by_role("button", name="Reset…").locator("..").hover()
    why = "maintainers of silver_orders may: group owners, user root@example.com, user ann@example.com"
    expect(viewer.page.get_by_role("tooltip")).to_have_text(why)
    maintainer.open("stream", stream=STREAM)
    expect(maintainer.main.get_by_role("button", name="Reset…")).to_be_enabled()
    viewer.open("access")
    viewer.shuts_nobody_out()


def test_an_admin_looks_through_a_viewer_s_eyes_and_back(
    weir: Weir, browser: Browser, browser_context_args: dict[str, Any]
) -> None:
    root = seen_by("root@example.com", weir, browser, browser_context_args)
    root.open("access")
    dialog = root.dialog("Look as…")
    dialog.get_by_label("Their name").fill("cy@example.com")
    dialog.get_by_label("Reason").fill("cy asks what is wrong")
    dialog.get_by_role("button", name="Look", exact=True).click()
    root.sees("You look as cy@example.com: reading only.")
    root.shuts_nobody_out()
    root.go("Stream")
    root.sees("You look as cy@example.com: reading only.")
    root.picture("roles_look_as")
    expect(root.main.get_by_role("button", name="Reset…")).to_be_disabled()
    root.click("button", "Back to yourself")
    expect(root.page.get_by_text("You look as")).to_have_count(0)
    expect(root.main.get_by_role("button", name="Reset…")).to_be_enabled()
