"""A question in a real browser: completed, asked, cancelled, drawn, saved as a tile that moves, sent on as a file."""

import re
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from playwright.sync_api import expect

from tests.browser.conftest import HOSTILE
from tests.worlds.browser.viewer import WATCH_CHARTS, Viewer
from tests.worlds.lake import builders
from tests.worlds.processes import query_processes, wait_until

pytestmark = [pytest.mark.browser]

TEXT = 'SELECT status, sum(amount) AS total FROM "small/orders" GROUP BY status ORDER BY status'
FIGURE = ".weir-figure"
TOO_SOON_MS = 100  # nobody means by a key what has just been offered


def test_a_query_that_is_cancelled_leaves_no_process(viewer: Viewer) -> None:
    ten = "(SELECT unnest([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]) AS x)"
    page, endless = viewer.page, f"SELECT count(*) FROM {', '.join(f'{ten} t{n}' for n in range(13))}"
    viewer.open("query")
    editor = page.get_by_role("textbox", name="SQL")
    editor.fill(endless)
    editor.press("Control+Enter")
    expect(page.get_by_text(re.compile("Reading 0 files"))).to_be_visible()
    wait_until(lambda: query_processes(viewer.weir.process.pid), "the query runs")
    page.get_by_role("button", name="Cancel").click()
    wait_until(lambda: not query_processes(viewer.weir.process.pid), "the query's process is gone")
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    expect(editor).to_have_text(endless)


@pytest.mark.ci
def test_the_editor_completes_names_runs_and_keeps_what_is_typed(viewer: Viewer) -> None:
    page, editor = viewer.page, viewer.page.get_by_role("textbox", name="SQL")
    offered = page.get_by_role("option")

    def types(text: str, *, takes: str = "", key: str = "Enter") -> None:
        page.keyboard.type(text, delay=20)
        if takes:
            expect(offered.first).to_have_text(takes)
            viewer.timers_fire(TOO_SOON_MS)
            page.keyboard.press(key)
            expect(offered).to_have_count(0)

    viewer.open("query")
    editor.click()
    types("SELECT  FROM small/ord", takes="small/orders", key="Tab")
    types(" o WHERE o.amou", takes="amountdouble")
    page.keyboard.press("Control+Home")
    for _ in "SELECT ":
        page.keyboard.press("ArrowRight")
    types('"stat', takes="statusstring")
    types(", coun", takes="count")
    types("*")
    text = 'SELECT status, count(*) FROM "small/orders" o WHERE o.amount'
    expect(editor).to_have_text(text)
    page.keyboard.press("End")
    types(" > 1 GROUP BY ALL ORDER BY 1")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text(re.compile(r"^2 rows from small/orders v\d, in"))).to_be_visible()
    viewer.settle()
    types(" LIMIT 1")  # the cursor is where it was
    viewer.main.get_by_role("radio", name="Chart").click()
    viewer.settle()
    expect(editor).to_have_text(f"{text} > 1 GROUP BY ALL ORDER BY 1 LIMIT 1")
    editor.press("Control+z")
    expect(editor).to_have_text(f"{text} > 1 GROUP BY ALL ORDER BY 1")

    page.get_by_role("searchbox", name="Search tables and columns").fill("small amount")
    expect(page.locator(".weir-names")).to_have_text("small/orders amount double")
    editor.press("Control+End")
    page.locator(".weir-names").get_by_role("button", name="small/orders", exact=True).click()
    expect(editor).to_have_text(f'{text} > 1 GROUP BY ALL ORDER BY 1, "small/orders"')
    editor.press("Control+z")

    link = page.url
    viewer.go("Tables")
    viewer.go("Query")
    expect(editor).to_have_text(f"{text} > 1 GROUP BY ALL ORDER BY 1")
    editor.fill(
        "SELECT count(*) -- a comment of 'text' and 2.5\nFROM \"small/orders\" WHERE status <> '2.5' OR amount > 2.5"
    )
    editor.press("Control+Enter")
    expect(page.get_by_text(re.compile("^1 row from small/orders"))).to_be_visible()
    viewer.settle()
    page.get_by_role("button", name="Last queries").click()
    page.get_by_role("link", name=re.compile("^SELECT status")).click()
    expect(editor).to_have_text(f"{text} > 1 GROUP BY ALL ORDER BY 1")
    page.goto(link)
    expect(editor).to_have_text(f"{text} > 1 GROUP BY ALL ORDER BY 1")
    viewer.settle()
    assert viewer.barriers() == ()
    page.emulate_media(color_scheme="dark")
    expect(editor).to_have_css("color", "rgb(228, 234, 238)")
    assert [barrier for barrier in viewer.barriers() if "cm-" in barrier or "<span" in barrier] == []
    viewer.picture("query_dark")


@pytest.mark.ci
def test_names_that_somebody_else_chose_are_text_and_stay_one_name(viewer: Viewer) -> None:
    page, editor = viewer.page, viewer.page.get_by_role("textbox", name="SQL")
    viewer.open("query")
    editor.click()
    page.keyboard.type("SELECT FROM onerr", delay=20)
    expect(page.get_by_role("option").first).to_have_text(HOSTILE)
    viewer.timers_fire(TOO_SOON_MS)
    page.keyboard.press("Enter")
    page.keyboard.press("Control+Home")
    page.keyboard.press("Control+ArrowRight")
    page.keyboard.type(" scri", delay=20)
    expect(page.get_by_role("option").first).to_have_text("a </script> bbigint")
    viewer.timers_fire(TOO_SOON_MS)
    page.keyboard.press("Enter")
    quoted = HOSTILE.replace('"', '""')
    expect(editor).to_have_text(f'SELECT "a </script> b" FROM "{quoted}"')
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text(re.compile("^1 row from we"))).to_be_visible()
    assert page.title() != "bad" and parse_qs(urlparse(page.url).query)["versions"] == ["0"]


@pytest.mark.ci
def test_from_a_question_to_a_tile_that_moves_and_on_to_a_file_of_its_rows(viewer: Viewer, tmp_path: Path) -> None:
    path, page = viewer.weir.home / "lake" / "onward" / "orders", viewer.page
    viewer.open("table", table="onward/orders", view="Data")
    viewer.main.get_by_role("link", name="Open in Query").click()
    editor = page.get_by_role("textbox", name="SQL")
    expect(editor).to_have_text(re.compile('FROM "onward/orders" VERSION AS OF 3'))
    viewer.sees(re.compile("Reads at most .* from onward/orders v3"))
    editor.fill(TEXT.replace("small", "onward"))
    editor.press("Control+Enter")
    expect(page.get_by_text(re.compile("2 rows from onward/orders v3, in"))).to_be_visible()
    viewer.settle()
    viewer.main.get_by_role("radio", name="Chart").click()
    expect(page.get_by_text("total by status")).to_be_visible()

    viewer.main.get_by_role("button", name="Save…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="Name").fill("Totals")
    dialog.get_by_role("textbox", name="Reason").fill("for the stand-up")
    dialog.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Totals is saved")).to_be_visible()

    viewer.go("Dashboard")
    viewer.main.get_by_role("button", name="Arrange").click()
    viewer.settle()  # a choice that is made while the dialog is drawn may be lost
    page.locator(".st-key-dashboard_added input").fill("Totals")
    page.get_by_role("option", name="Totals").click()
    expect(page).to_have_url(re.compile("tile=.*Totals"))
    viewer.open("dashboard", tile="Totals:1")  # without the demo's tiles
    tile = page.locator(".st-key-tile_0")
    expect(tile.get_by_text(re.compile("^orders v3, "))).to_be_visible()
    expect(tile.locator(f"{FIGURE} .bars .point")).to_have_count(2)
    assert parse_qs(urlparse(page.url).query) == {"tile": ["Totals:1"]}
    viewer.picture("dashboard_tile")

    assert page.evaluate(WATCH_CHARTS) == 1
    builders.write(path, {"order_id": [9], "status": ["lost"], "amount": [1.0]})
    expect(tile.get_by_text(re.compile("^orders v4, "))).to_be_visible()
    expect(tile.locator(f"{FIGURE} .bars .point")).to_have_count(3)
    page.wait_for_function("() => window.watched.looks > 40")
    assert page.evaluate("window.watched")["blank"] == 0
    assert page.evaluate(f"document.querySelector('{FIGURE}').marked") == 0, "it is another node"

    tile.get_by_role("link", name="Open in Query").click()
    viewer.main.get_by_role("button", name="Run at these versions").click()
    expect(page.get_by_text(re.compile("3 rows from onward/orders v4, in"))).to_be_visible()
    expect(page.get_by_text("total by status")).to_be_visible()
    viewer.settle()
    link = page.url
    viewer.main.get_by_role("button", name="Export").click()
    dialog.get_by_role("radio", name="Parquet").click()
    dialog.get_by_role("link", name="Download query.parquet").wait_for()
    expect(dialog.get_by_role("link", name="Download")).to_have_count(1)  # the other form's has gone
    with page.expect_download() as saved:
        dialog.get_by_role("link", name="Download").click()
    saved.value.save_as(tmp_path / "saved.parquet")
    totals = dict(zip(*pq.read_table(tmp_path / "saved.parquet").to_pydict().values(), strict=True))
    assert totals == DeltaTable(str(path), version=4).to_pandas().groupby("status")["amount"].sum().to_dict()

    builders.write(path, {"order_id": [10], "status": ["odd"], "amount": [2.0]})
    page.goto(link)
    viewer.main.get_by_role("button", name="Run at these versions").click()
    expect(page.get_by_text(re.compile("3 rows from onward/orders v4, in"))).to_be_visible()
    expect(page.get_by_text("total by status")).to_be_visible()
    viewer.main.get_by_role("button", name=re.compile("^Run.*Enter")).click()
    expect(page.get_by_text(re.compile("4 rows from onward/orders v5, in"))).to_be_visible()
