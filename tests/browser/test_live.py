"""Live pages in place: charts keep node and zoom through every refresh, the graph changes and leads to its streams."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Page, expect

from backend.store.store import ControlStore
from backend.stream_model.stream import StreamInput, StreamState
from tests.worlds.browser.viewer import WATCH_CHARTS
from tests.worlds.browser.weir import pages_over
from tests.worlds.lake import builders
from tests.worlds.store import stream_store

pytestmark = [pytest.mark.browser, pytest.mark.ci]

REFRESHES, LOOKS = 4, 40  # at least
ODD = "topic <img src=x onerror=\"document.title='broken in'\"> & co"
CHARTS = """() => [...document.querySelectorAll(".weir-figure")].map((chart) => ({
  mark: chart.marked, role: chart.getAttribute("role"), alt: chart.getAttribute("aria-label"),
  points: chart.data[0].y.filter((value) => value !== null).length,
  range: chart.layout.xaxis.range, title: chart.layout.title.text,
}))"""
# Twenty times a second: is the picture that was there first still there, with all its nodes?
WATCH_GRAPH = """() => {
  const picture = document.querySelector(".weir-graph svg");
  const nodes = picture.querySelectorAll(".node").length;
  window.watched = { looks: 0, blank: 0 };
  setInterval(() => {
    window.watched.looks += 1;
    window.watched.blank += !picture.isConnected || picture.querySelectorAll(".node").length !== nodes
      || picture.getBoundingClientRect().height < 60;
  }, 50);
}"""


@dataclass(frozen=True, slots=True)
class Served:
    """Pages without streams behind them: the test writes their progress."""

    url: str
    store: ControlStore
    lake: Path

    def batch(self, name: str, number: int) -> None:
        self.store.add_progress([stream_store.batch(name, number, datetime.now(UTC), run_id=f"{name}-run-2")])


@pytest.fixture(scope="module")
def served(browser_type_launch_args: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two streams of the graph, and one for each test of charts."""
    home, now = tmp_path_factory.mktemp("live"), datetime.now(UTC) - timedelta(seconds=5)
    store = stream_store.open_store(home)
    stream_store.beat(store, now)
    for name in ("bronze_events", "silver_events", "watched", "pointed_at"):
        stream_store.flowing(store, name, now)
    declared = store.declarations()
    bronze = replace(declared["bronze_events"], inputs=(StreamInput("kafka", ODD),))
    silver = replace(declared["silver_events"], source_tables=("bronze/bronze_events",))
    store.declare([bronze, silver], now=now)
    with pages_over(home, WEIR_HOST__HEARTBEAT_STALE_S="6000", WEIR_UI__LIVE_INTERVAL_S="0.4") as weir:
        yield Served(weir.url, store, home / "lake")
    store.close()


def test_the_graph_changes_in_place_and_leads_to_streams(page: Page, served: Served) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{served.url}/pipeline")
    graph = page.locator(".weir-graph")
    # Nobody writes batches here, so on a slow machine it may be stalled by now.
    bronze = graph.get_by_role("link", name=re.compile("^bronze_events, streaming table, (running|stalled)"))
    expect(bronze).to_be_visible()
    expect(graph.locator(".node")).to_have_count(5)
    expect(graph.locator(".node text").filter(has_text="& co")).to_have_count(1)
    expect(graph.locator("img")).to_have_count(0)
    expect(graph.locator(".edge text")).to_have_text([re.compile("rows/min")] * 2)
    page.evaluate(WATCH_GRAPH)

    stream_store.observe(served.store, "bronze_events", StreamState.FAILED, datetime.now(UTC))

    failed = graph.get_by_role("link", name="bronze_events, streaming table, failed")
    expect(failed.locator("text").nth(2)).to_have_text("✕ Failed")
    expect(graph.locator(".edge text").first).to_have_text("0 rows/min")
    page.wait_for_function("() => window.watched.looks > 40")
    assert page.evaluate("window.watched.blank") == 0

    failed.click()
    expect(page).to_have_url(re.compile(r"/stream\?stream=bronze_events"))
    expect(page.get_by_role("heading", name="bronze_events")).to_be_visible()
    page.go_back()
    silver = graph.get_by_role("link", name=re.compile("^silver_events"))
    expect(silver).to_be_visible()
    silver.focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/stream\?stream=silver_events"))
    assert errors == [] and page.title() != "broken in"


def test_the_health_of_a_table_follows_its_commits(page: Page, served: Served) -> None:
    builders.write(served.lake / "clicks", {"id": [1]})
    page.goto(f"{served.url}/health?table=clicks")
    titles, small = page.locator(".st-key-trend .gtitle"), page.locator(".st-key-health_figures").get_by_text("OK (")
    expect(titles.filter(has_text="Files: 1 at v0")).to_be_visible()
    expect(small).to_have_text("OK (1)")
    builders.write(served.lake / "clicks", {"id": [2]})
    expect(titles.filter(has_text="Files grew from 1 to 2 over 2 versions")).to_be_visible()
    expect(small).to_have_text("OK (2)")


def test_a_table_page_follows_its_commits_and_its_lists_move_when_asked(page: Page, served: Served) -> None:
    builders.write(served.lake / "views", {"id": [1]})
    page.goto(f"{served.url}/history?table=views")
    newest, figures = page.locator(".st-key-newest_version"), page.locator(".st-key-summary_figures")
    listed = page.locator(".st-key-commit_list")
    expect(newest).to_contain_text("v0 · ")
    expect(listed).to_contain_text("1 commit: 1 WRITE")
    canvas = listed.locator("[data-testid=data-grid-canvas]")
    page.wait_for_timeout(2_000)  # until the page stands still
    canvas.focus()
    page.keyboard.press("ArrowDown")
    builders.write(served.lake / "views", {"id": [2]})
    expect(newest).to_contain_text("v1 is there: show")
    assert page.evaluate("!!document.activeElement.closest('.st-key-commit_list')"), "the list keeps the keyboard"
    expect(listed).to_contain_text("1 commit: 1 WRITE")
    newest.get_by_role("button", name="v1 is there: show").click()
    expect(listed).to_contain_text("2 commits")
    expect(newest.get_by_role("button", name="is there: show")).to_have_count(0)
    page.get_by_role("link", name="Summary").last.click()
    expect(figures).to_contain_text("Rows 2")
    builders.write(served.lake / "views", {"id": [3]})
    expect(figures).to_contain_text("Rows 3")


def charts(page: Page) -> list[dict[str, Any]]:
    return page.evaluate(CHARTS)


def zoom(page: Page, *, until: float = 0.6) -> None:
    """Draw the mouse over a third of the first chart, or more."""
    box = page.locator(".weir-figure .nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * until, box["y"] + 60, steps=8)
    page.mouse.up()


def test_charts_stay_where_they_are_while_batches_arrive(page: Page, served: Served) -> None:
    name = "watched"
    page.goto(f"{served.url}/stream?stream={name}")
    page.locator(".weir-figure .trace path").nth(6).wait_for(state="attached")
    page.wait_for_function("() => document.querySelectorAll('.weir-figure .gtitle').length === 5")
    whole = charts(page)[0]["range"]
    here = datetime.now(ZoneInfo("Europe/Amsterdam")).replace(tzinfo=None)  # where the browser is
    assert abs(datetime.fromisoformat(whole[1]) - here) < timedelta(minutes=15)
    zoom(page)
    page.wait_for_function(f"() => document.querySelector('.weir-figure').layout.xaxis.range[0] !== '{whole[0]}'")
    before, watched = charts(page), page.evaluate(WATCH_CHARTS)
    assert watched == 5

    refresh = 0
    while refresh < REFRESHES or page.evaluate("window.watched.looks") <= LOOKS:
        refresh += 1
        served.batch(name, 35 + refresh)
        expected = [chart["points"] + refresh for chart in before]
        page.wait_for_function(f"() => {expected}.every((points, place) => ({CHARTS})()[place].points === points)")

    after, seen = charts(page), page.evaluate("window.watched")
    assert [chart["mark"] for chart in after] == [0, 1, 2, 3, 4]
    assert [chart["points"] for chart in after] == [chart["points"] + refresh for chart in before]
    assert seen["blank"] == 0, seen
    assert after[0]["range"] == before[0]["range"] != whole
    assert {chart["role"] for chart in after} == {"img"}
    assert after[0]["alt"] == "Input and processing rate over time"
    assert after[2]["title"] != before[2]["title"]  # it was drawn anew


# Where the crosshair of each chart stands, in seconds of its own time axis; null without one.
CROSSHAIRS = """() => [...document.querySelectorAll(".weir-figure")].map((chart) => {
  const line = chart.querySelector(".hoverlayer .spikeline"), axis = chart._fullLayout.xaxis;
  return line && axis.p2c(Number(line.getAttribute("x1")) - axis._offset) / 1000;
})"""
LABELS = """() => [...document.querySelectorAll(".weir-figure")].map(
  (chart) => [...chart.querySelectorAll(".hoverlayer .legend text")].flatMap(
    (text) => [...text.childNodes].map((part) => part.textContent)).join(" "))"""
ZOOMED = "() => [...document.querySelectorAll('.weir-figure')].map((chart) => chart.layout.xaxis.autorange === false)"
# A batch of a chart: its number, its moment in seconds of the axis, where it is drawn, and a pixel's span.
A_BATCH = """(place) => {
  const chart = document.querySelectorAll(".weir-figure")[place], axis = chart._fullLayout.xaxis, line = chart.data[0];
  const { left, top } = chart.getBoundingClientRect(), moment = axis.d2c(line.x[20]);
  const [began, ended] = axis.range.map((end) => axis.d2c(end));
  const at = [left + axis._offset + axis.c2p(moment), top + 80];
  return [line.customdata[20][0], moment / 1000, ...at, (ended - began) / axis._length / 1000];
}"""
RANGES = "() => [...document.querySelectorAll('.weir-figure')].map((chart) => String(chart.layout.xaxis.range))"


def test_charts_are_pointed_at_and_zoomed_together_and_a_refresh_keeps_it(page: Page, served: Served) -> None:
    name = "pointed_at"
    page.goto(f"{served.url}/stream?stream={name}")
    page.wait_for_function("() => document.querySelectorAll('.weir-figure .gtitle').length === 5")
    assert page.evaluate(ZOOMED) == [False] * 5

    zoom(page, until=0.99)
    page.wait_for_function(f"() => ({ZOOMED})().every((zoomed) => zoomed)")
    near = page.evaluate(RANGES)
    assert len(set(near)) == 1, near

    for place in (0, 3):  # whichever is pointed at
        page.locator(".weir-figure").nth(place).scroll_into_view_if_needed()
        batch, moment, x, y, a_pixel_s = page.evaluate(A_BATCH, place)
        page.mouse.move(x, y, steps=4)
        page.wait_for_function(
            f"([moment, near]) => ({CROSSHAIRS})().every((at) => at !== null && Math.abs(at - moment) <= near)",
            arg=[moment, 2 * a_pixel_s],
        )
        moments = page.evaluate(CROSSHAIRS)
        assert moments == pytest.approx([moment] * 5, abs=2 * a_pixel_s)
        for label in page.evaluate(LABELS):  # the same moment and the same batch in all of them
            assert re.match(rf"[\d-]+ [\d:]+ \w+ batch {batch} ", label), label

    before = charts(page)
    served.batch(name, 36)
    page.wait_for_function(
        f"() => ({CHARTS})().every((chart, place) => chart.points > {[one['points'] for one in before]}[place])"
    )
    page.wait_for_function(f"() => ({CROSSHAIRS})().every((moment) => moment !== null)")
    assert page.evaluate(RANGES) == near
    assert page.evaluate(CROSSHAIRS) == pytest.approx(moments, abs=2 * a_pixel_s)

    page.mouse.move(5, 5)
    page.wait_for_function(f"() => ({CROSSHAIRS})().every((moment) => moment === null)")
    page.locator(".weir-figure .nsewdrag").nth(3).dblclick()
    page.wait_for_function(f"() => ({ZOOMED})().every((zoomed) => !zoomed)")
