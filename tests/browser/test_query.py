"""A question from a table to its answer in a real browser: asked, drawn, saved, and opened again by its link."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from playwright.sync_api import expect

from tests.browser.conftest import Viewer, Weir, viewer_alone
from tests.worlds.browser.server import pages_over
from tests.worlds.lake import builders
from tests.worlds.processes import wait_until

pytestmark = [pytest.mark.browser]

TEXT = 'SELECT status, sum(amount) AS total FROM "silver/orders" GROUP BY status ORDER BY status'
TOO_SOON_MS = 100  # nobody means by a key what has just been offered
HOSTILE = "we\"ird <img src=x onerror=document.title='bad'> \\ ñ'; " + "x" * 100


@pytest.fixture(scope="module")
def server(browser_type_launch_args: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weir]:
    home = tmp_path_factory.mktemp("query")
    builders.orders_table(home / "lake" / "silver" / "orders")
    builders.write(home / "lake" / "odd", {"a </script> b": [1]})
    (home / "lake" / "odd").rename(home / "lake" / HOSTILE)
    with pages_over(home) as weir:
        yield weir


viewer = viewer_alone


@pytest.mark.ci
def test_from_a_table_to_a_chart_a_file_and_a_link_that_stays(viewer: Viewer, tmp_path: Path) -> None:
    path = viewer.weir.home / "lake" / "silver" / "orders"
    page = viewer.page
    viewer.open("table", table="silver/orders", view="Data")
    viewer.main.get_by_role("link", name="Open in Query").click()
    editor = page.get_by_role("textbox", name="SQL")
    expect(editor).to_have_text(re.compile('FROM "silver/orders" VERSION AS OF 3'), timeout=60_000)
    expect(page.get_by_text(re.compile("Reads at most .* from silver/orders v3"))).to_be_visible(timeout=60_000)

    editor.fill(TEXT)
    editor.press("Control+Enter")
    expect(page.get_by_text(re.compile("2 rows from silver/orders v3, in"))).to_be_visible(timeout=60_000)
    viewer.settle()
    viewer.main.get_by_role("radio", name="Chart").click()
    expect(page.get_by_text("total by status")).to_be_visible(timeout=60_000)
    assert page.locator(".js-plotly-plot .bars .point").count() == 2
    viewer.picture("query_chart")

    viewer.main.get_by_role("button", name="Export").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("radio", name="Parquet").click()
    dialog.get_by_role("link", name="Download query.parquet").wait_for(timeout=60_000)
    expect(dialog.get_by_role("link", name="Download")).to_have_count(1, timeout=60_000)  # the other form's has gone
    with page.expect_download() as saved:
        dialog.get_by_role("link", name="Download").click()
    saved.value.save_as(tmp_path / "saved.parquet")
    totals = dict(zip(*pq.read_table(tmp_path / "saved.parquet").to_pydict().values(), strict=True))
    wanted = DeltaTable(str(path)).to_pandas().groupby("status")["amount"].sum().to_dict()
    assert totals == wanted == {"new": 120.0, "paid": 25.0}

    link = page.url
    assert parse_qs(urlparse(link).query) | {"view": []} == {"query": [TEXT], "versions": ["3"], "view": []}
    builders.write(path, {"order_id": [9], "status": ["lost"], "amount": [1.0]})
    page.goto(link)
    expect(page.get_by_text(re.compile("2 rows from silver/orders v3, in"))).to_be_visible(timeout=60_000)
    expect(page.get_by_text("total by status")).to_be_visible(timeout=60_000)
    viewer.main.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text(re.compile("3 rows from silver/orders v4, in"))).to_be_visible(timeout=60_000)


def test_a_query_that_is_cancelled_leaves_no_process(viewer: Viewer) -> None:
    ten = "(SELECT unnest([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]) AS x)"
    page, endless = viewer.page, f"SELECT count(*) FROM {', '.join(f'{ten} t{n}' for n in range(13))}"
    viewer.open("query")
    editor = page.get_by_role("textbox", name="SQL")
    editor.fill(endless)
    editor.press("Control+Enter")
    expect(page.get_by_text(re.compile("Reading 0 files"))).to_be_visible(timeout=60_000)
    wait_until(lambda: queries_of(viewer.weir), "the query runs")
    page.get_by_role("button", name="Cancel").click()
    wait_until(lambda: not queries_of(viewer.weir), "the query's process is gone")
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0, timeout=60_000)
    expect(editor).to_have_text(endless)


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
    types("SELECT  FROM silver/ord", takes="silver/orders", key="Tab")
    types(" o WHERE o.amou", takes="amountdouble")
    page.keyboard.press("Control+Home")
    for _ in "SELECT ":
        page.keyboard.press("ArrowRight")
    types('"stat', takes="statusstring")
    types(", coun", takes="count")
    types("*")
    text = 'SELECT status, count(*) FROM "silver/orders" o WHERE o.amount'
    expect(editor).to_have_text(text)
    page.keyboard.press("End")
    types(" > 1 GROUP BY ALL ORDER BY 1")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text(re.compile(r"^2 rows from silver/orders v\d, in"))).to_be_visible()
    viewer.settle()
    types(" LIMIT 1")  # the cursor is where it was
    viewer.main.get_by_role("radio", name="Chart").click()
    viewer.settle()
    expect(editor).to_have_text(f"{text} > 1 GROUP BY ALL ORDER BY 1 LIMIT 1")
    editor.press("Control+z")
    expect(editor).to_have_text(f"{text} > 1 GROUP BY ALL ORDER BY 1")

    link = page.url
    viewer.go("Tables")
    viewer.go("Query")
    expect(editor).to_have_text(f"{text} > 1 GROUP BY ALL ORDER BY 1")
    editor.fill(
        "SELECT count(*) -- a comment of 'text' and 2.5\nFROM \"silver/orders\" WHERE status <> '2.5' OR amount > 2.5"
    )
    editor.press("Control+Enter")
    expect(page.get_by_text(re.compile("^1 row from silver/orders"))).to_be_visible()
    viewer.settle()
    page.get_by_role("button", name="Earlier").click()
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


def queries_of(weir: Weir) -> list[Path]:
    """The processes of queries that the server started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == weir.process.pid and b"backend.query.worker" in (folder / "cmdline").read_bytes():
                found.append(folder)
    return found
