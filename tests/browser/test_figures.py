"""Every figure of a page is the figure of the command, on the demo's lake while its streams rest.

Rule: the page is read as its viewer reads it, the command as a script does; nothing of one is used for the other.
"""

import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from backend.format import bytes_text, count_text, things
from tests.browser.conftest import Weir
from tests.worlds.pages.frames import frame_with
from tests.worlds.pages.opened import forget_caches, metrics, open_page, words

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("resting")]

ORDERS, EVENTS = "silver/silver_orders", "bronze/bronze_events"


@pytest.fixture
def home(weir: Weir, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pages of this process show the demo's lake and its store."""
    monkeypatch.setenv("WEIR_HOME", str(weir.home))
    monkeypatch.setenv("WEIR_CONFIG", os.devnull)
    forget_caches()
    yield
    forget_caches()


def overview(weir: Weir) -> None:
    shown, tables = metrics(open_page("overview")), weir.json("tables")
    assert shown["Tables"] == count_text(len(tables))
    assert shown["Rows"] == count_text(sum(table["num_rows"] for table in tables))
    assert shown["Files"] == count_text(sum(table["num_files"] for table in tables))
    assert shown["Size"] == bytes_text(sum(table["size_bytes"] for table in tables))
    streams = weir.json("streams")
    running = sum(stream["state"] == "RUNNING" for stream in streams)
    assert shown["Streams running"] == f"{running} of {len(streams)}"


def tables(weir: Weir) -> None:
    shown = frame_with(open_page("tables"), "Table", "Rows", "Files", "Size").set_index("Table")
    told = weir.json("tables")
    assert set(shown.index) == {table["name"] for table in told}
    for table in told:
        row = shown.loc[table["name"]]
        figures = table["num_rows"], table["num_files"], table["size_bytes"]
        assert (row["Rows"], row["Files"], row["Size"]) == figures, table["name"]


def table(weir: Weir) -> None:
    shown, told = metrics(open_page("table", table=ORDERS)), weir.json("table", ORDERS)
    assert shown["Rows"] == count_text(told["num_rows"])
    assert shown["Files"] == count_text(told["num_files"])
    assert shown["Size"] == bytes_text(told["size_bytes"])


def history(weir: Weir) -> None:
    shown = frame_with(open_page("history", table=ORDERS), "Version", "Operation")
    told = weir.json("history", ORDERS, "--limit", "100")
    assert list(shown["Version"]) == [commit["version"] for commit in told]
    assert [text.split(maxsplit=1)[1] for text in shown["Operation"]] == [commit["operation"] for commit in told]


def versions(weir: Weir) -> None:
    told = weir.json("versions", ORDERS)
    latest, oldest = told["latest"], told["spans"][0]["from_version"]
    assert f"v{latest} is the latest version" in words(open_page("versions", table=ORDERS))
    [run] = [run for run in told["runs"] if run["from_version"] <= oldest <= run["to_version"]]
    verdict = next(line for line in words(open_page("versions", table=ORDERS, at=oldest)).splitlines() if "**v" in line)
    assert ("can be read" in verdict) is (run["reconstructable"] and run["in_retention"])


def files(weir: Weir) -> None:
    shown, told = metrics(open_page("files", table=EVENTS)), weir.json("files", EVENTS)
    assert shown["Files"] == count_text(told["num_files"])
    assert shown["Size"] == bytes_text(told["size_bytes"])
    assert shown["Median file"] == bytes_text(told["median_bytes"])
    assert shown["Small files"] in ("Fine", f"{told['small_files']:,} of {told['num_files']:,}")
    assert shown["Target size"] == bytes_text(told["target_bytes"])


def properties(weir: Weir) -> None:
    told = weir.json("properties", ORDERS)["properties"]
    num_set = sum(each["is_set"] for each in told)
    said = words(open_page("properties", table=ORDERS))
    assert re.search(rf"\b{num_set} of {len(told)} properties set here", said), (num_set, said[:300])


def changes(weir: Weir) -> None:
    latest = weir.json("table", ORDERS)["version"]
    app, told = open_page("changes", table=ORDERS, **{"from": 1, "to": latest}), diff(weir, latest)
    shown, net = metrics(app), told["net"]
    assert shown["Inserted (net)"] == signed("+", net["inserted"])
    assert shown["Updated (net)"] == signed("", net["updated"])
    assert shown["Deleted (net)"] == signed("−", net["deleted"])


def diff(weir: Weir, latest: int) -> dict[str, Any]:
    found: dict[str, Any] = weir.json("diff", ORDERS, "--from", "1", "--to", str(latest), differs=True)
    return found


def signed(sign: str, count: int | None) -> str:
    return "–" if count is None else f"{sign if count else ''}{count_text(count)}"


def health(weir: Weir) -> None:
    shown, told = metrics(open_page("health", table=EVENTS)), weir.json("health", EVENTS)
    assert shown["Small files"] in ("Fine", f"{told['small_files']:,} of {told['num_files']:,}")
    assert shown["Average file"] == bytes_text(told["size_bytes"] / told["num_files"])
    assert shown["Since checkpoint"].split()[0] == count_text(told["log"]["commits_since_checkpoint"])


def bisect(weir: Weir) -> None:
    last = weir.json("table", ORDERS)
    condition, latest = f"count(*) < {last['num_rows']}", last["version"]
    told = weir.json("bisect", ORDERS, "--assert", condition, "--good", "0", "--bad", str(latest))
    app = open_page("bisect", table=ORDERS, condition=condition, good=0, bad=latest)
    app.button(key="find").click().run()
    assert f"v{told['first_bad_version']}" in words(app)


def streams(weir: Weir) -> None:
    shown = frame_with(open_page("streams"), "Stream", "Observed").set_index("Stream")
    told = weir.json("streams")
    assert set(shown.index) == {stream["name"] for stream in told}
    for stream in told:
        assert shown.loc[stream["name"], "Observed"].upper().endswith(stream["state"])


def stream(weir: Weir) -> None:
    app, told = open_page("stream", stream="silver_orders"), weir.json("stream", "silver_orders")
    last = told["progress"]
    rows = f"{things(last['num_input_rows'], 'row')} in batch {last['batch_id']}"
    assert rows in [metric.delta for metric in app.metric]


PAGES: tuple[Callable[[Weir], None], ...] = (
    overview, tables, table, history, versions, files, properties, changes, health, bisect, streams, stream,
)  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=[page.__name__ for page in PAGES])
def test_a_page_shows_what_the_command_prints(weir: Weir, home: None, page: Callable[[Weir], None]) -> None:
    page(weir)
