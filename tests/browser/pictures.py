"""`make pictures`: the pictures of the tour and the README, taken from the demo while it runs.

Rule: nothing is staged. The demo starts empty, the bad batch comes when it comes, and people's own clicks lead to it.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from deltalake import DeltaTable
from playwright.sync_api import sync_playwright

from tests.worlds.browser.viewer import Viewer
from tests.worlds.browser.weir import Weir, chromium, demo
from tests.worlds.processes import wait_until

FOLDER = Path(__file__).parents[2] / "docs" / "images"
TABLE = "silver/silver_orders"
HIGHEST = 500  # no order of the shop costs more
QUERY = """
SELECT country, o.amount / was.amount AS times
FROM (SELECT country, avg(amount) AS amount FROM silver_orders GROUP BY country) o
JOIN (
  SELECT country, avg(amount) AS amount FROM silver_orders TIMESTAMP AS OF '9 min ago' GROUP BY country
) was USING (country)
ORDER BY times DESC"""
PATIENCE_S = 1_200


def main() -> int:
    """Takes them all; about a quarter of an hour."""
    with TemporaryDirectory() as folder, demo(Path(folder) / "weir") as weir, _viewer(weir) as viewer:
        wait_until(lambda: _is_hit(weir), "a bad batch of amounts is in silver", limit_s=PATIENCE_S, pause_s=5)
        viewer.open("stream", stream="silver_orders")
        _take(viewer, "stream")
        viewer.open("history", table=TABLE)
        _take(viewer, "history")
        _first_bad_version(viewer)
        _take(viewer, "first-bad-version")
        viewer.main.get_by_role("link", name=re.compile(r"^What v\d+ changed$")).click()
        viewer.settle()
        viewer.sees(re.compile(r"v\d+ → v\d+"))
        _take(viewer, "changes")
        viewer.open("files", table="bronze/bronze_events")
        _take(viewer, "files")
        viewer.open("query", query=quote(QUERY.strip()), view="Chart", chart="Bar")
        viewer.main.get_by_role("button", name=re.compile("^Run.*Enter")).click()
        viewer.sees("times by country")
        _take(viewer, "query")
        viewer.open("dashboard")
        viewer.sees(re.compile(r"^gold_orders_by_status v\d+, "))
        _take(viewer, "dashboard")
        viewer.open()  # last: a finding stands there after a minute
        _take(viewer, "overview")
    return 0


@contextmanager
def _viewer(weir: Weir) -> Iterator[Viewer]:
    path = chromium()
    if path is None:
        raise SystemExit("error: no Chromium on this machine\nhint: Debian has it as `chromium`")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        size = {"width": 1440, "height": 900}
        yield Viewer(browser.new_page(viewport=size, locale="en-GB", timezone_id="Europe/Amsterdam"), weir)
        browser.close()


def _is_hit(weir: Weir) -> bool:
    amounts = DeltaTable(str(weir.home / "lake" / TABLE)).scan(columns=["amount"]).read_all()["amount"]
    return any(amount is not None and amount > HIGHEST for amount in amounts.to_pylist())


def _first_bad_version(viewer: Viewer) -> None:
    viewer.open("bisect", table=TABLE)
    viewer.main.get_by_role("textbox", name="A good version satisfies").fill(f"amount <= {HIGHEST}")
    viewer.page.keyboard.press("Enter")
    viewer.settle()
    viewer.main.get_by_role("button", name="Find first bad version").click()
    viewer.settle()
    viewer.sees(re.compile(r"v\d+\b.*MERGE|MERGE.*v\d+\b"), limit_s=60)


def _take(viewer: Viewer, name: str) -> None:
    viewer.page.mouse.move(1_439, 899)  # away from a button, which would explain itself
    viewer.timers_fire(1_500)  # charts draw themselves
    viewer.page.screenshot(path=FOLDER / f"{name}.png")


if __name__ == "__main__":
    sys.exit(main())
