"""Names, messages, tags, users and errors of others in a real browser: no link, no picture, no icon, no formula, no
colour of theirs, on any page. What they wrote is shown as they wrote it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page

from backend.stream_model.stream import StreamFailure, StreamState
from tests.worlds.browser.viewer import Viewer
from tests.worlds.browser.weir import Weir, pages_over
from tests.worlds.cases import soak
from tests.worlds.lake import builders
from tests.worlds.store import stream_store

pytestmark = [pytest.mark.browser, pytest.mark.ci]

# Each is a link, a picture, an icon, an emoji, a formula, a colour or HTML to some reader of text.
NAME = (
    "www.evil.example you@evil.example :smile: :streamlit: :red[r] $x^2$ ![i](http:evil.example) "
    "<a href='http:evil.example'>h"
)
TEXT = (
    "https://you.trusted@evil.example/a http://evil.example www.evil.example you@evil.example :smile: :streamlit: "
    ":material/rocket: :red[r] :red-background[r] $x^2$ $$x^2$$ ![i](http://evil.example/i.png) "
    "[a](https://evil.example) <https://evil.example> <b>x</b> <img src=http://evil.example/j.png> "
    "<a href='http://evil.example/h'>h</a> <a href=\"http://evil.example/h\">h</a> "
    "&lt; [^1] `code` # - 1. | a | b | __x__ ~~x~~"
)
OWNER = "owner@good.example"  # the one address that is a link
COLUMNS = (":smile:", "www.evil.example", "you@evil.example", ":material/rocket:", "![i](http://evil.example/i.png)")
PAGES: list[tuple[str, dict[str, Any]]] = [
    *((page, {}) for page in ("overview", "tables", "streams", "pipeline")),
    *(("table", {"table": NAME, "view": view}) for view in ("Schema", "Data")),
    ("history", {"table": NAME, "commit": 1}),
    ("files", {"table": NAME, "view": "By partition"}),
    ("health", {"table": NAME}),
    ("bisect", {"table": NAME, "condition": TEXT}),
    ("changes", {"table": "rows", "from": 0, "to": 1}),
    ("stream", {"stream": NAME}),
]
OTHER_VIEWS: list[tuple[str, dict[str, Any]]] = [
    *((page, {}) for page in ("health", "history")),
    *((page, {"table": NAME}) for page in ("properties", "versions")),
    ("stream", {"stream": NAME, "view": "Operation log"}),
    ("table", {"table": "broken"}),
    ("tables", {"q": TEXT}),
    *(("table", {"table": NAME, "view": view}) for view in ("Profile", "Details")),
    ("table", {"table": NAME, "view": "Data", "where": TEXT}),
    ("table", {"table": f"no {NAME}"}),
    ("history", {"table": NAME, "figure": "Files"}),
    *(("files", {"table": NAME, "view": view}) for view in ("Largest", "Clustering")),
    ("properties", {"table": NAME, "compare": 0}),
    ("changes", {"table": NAME, "from": 0, "to": 1}),
    ("changes", {"table": NAME, "from": 0, "to": 1, "view": "Commits"}),
    ("changes", {"table": NAME, "from": TEXT}),
    ("bisect", {"table": NAME}),
    *(("table", {"table": "rows", "view": view}) for view in ("Schema", "Data", "Profile")),
    *((page, {"table": "rows"}) for page in ("versions", "bisect")),
    ("stream", {"stream": f"no {NAME}"}),
]
# What of theirs has become more than text, wherever it lies in the page (shadow roots as well).
FOREIGN = """() => {
  const found = [];
  const look = (root) => {
    for (const node of root.querySelectorAll("*")) {
      const link = node.getAttribute("href") ?? node.getAttribute("xlink:href") ?? node.getAttribute("src") ?? "";
      const is_own = !link || (URL.canParse(link, location) && new URL(link, location).origin === location.origin);
      if (/^(a|img|image|iframe|video|audio|source|use)$/i.test(node.tagName) && !is_own && !/^(data|blob):/.test(link)
          && link !== "mailto:owner@good.example")
        found.push(node.outerHTML.slice(0, 200));
      if (node.matches("[aria-label='rocket icon'], [alt='Streamlit logo'], .katex, sup a") ||
          (node.matches(".stMarkdownColoredText, .stMarkdownColoredBackground") && node.textContent === "r"))
        found.push(node.outerHTML.slice(0, 200));
      if (node.shadowRoot) look(node.shadowRoot);
    }
    const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) if (texts.currentNode.data.includes("😄")) found.push(texts.currentNode.data.slice(0, 80));
  };
  look(document);
  return found;
}"""


def hostile_lake(home: Path) -> None:
    tags = {
        "catalog.team_name": TEXT,
        "catalog.table.classification": TEXT,
        "catalog.engineering.comms.slack": "https://you.trusted@evil.example/a",
        "catalog.engineering.comms.email": OWNER,
        "catalog.odd": TEXT,
        f"catalog.{TEXT}": "1",
        "delta.constraints.odd": TEXT,
        "delta.checkpointInterval": TEXT,
    }
    columns = {"id": "long", NAME: "string", "day": "string"}
    log = builders.HandLog(home / "lake" / NAME).start(columns=columns, configuration=tags, partition_by=["day"])
    start = builders.metadata(columns, configuration=tags | {"k": TEXT}, partition_by=["day"])
    start["metaData"]["description"] = TEXT
    files = [
        builders.add(f"{number}.parquet", rows=3, size=10**number, partitionValues={"day": f"{TEXT}{number}"})
        for number in range(3)
    ]
    info = builders.commit_info(
        TEXT,
        userName=TEXT,
        userId=TEXT,
        engineInfo=TEXT,
        userMetadata=TEXT,
        operationParameters={TEXT: TEXT, "predicate": TEXT},
        operationMetrics={TEXT: TEXT},
        notebook={"notebookId": TEXT},
    )
    log.commit(start, info, *files)
    for number in (1, 2):
        builders.write(home / "lake" / "rows", {name: [f"{TEXT} {number}"] for name in COLUMNS[:4]}, mode="append")
    broken = builders.HandLog(home / "lake" / "broken")
    broken.commit(builders.protocol(3, 7, [TEXT]), builders.metadata())


def hostile_store(home: Path) -> None:
    now, store = datetime.now(UTC), stream_store.open_store(home)
    stream_store.beat(store, now)
    stream_store.declare(store, NAME, now, expectations=(TEXT,))
    stream_store.flowing(store, f"below {NAME}", now, source_tables=(f"silver/{NAME}",))
    declared = store.declarations()[NAME]
    about = replace(declared, pipeline=TEXT, description=TEXT, source=TEXT, tags={TEXT: TEXT}, spark_conf={TEXT: TEXT})
    store.declare([about], now=now)
    stream_store.observe(store, NAME, StreamState.FAILED, now, failure=StreamFailure(TEXT, TEXT, 1, now))
    store.close()


@pytest.fixture(scope="module")
def server(browser_type_launch_args: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weir]:
    home = tmp_path_factory.mktemp("evil")
    hostile_lake(home)
    hostile_store(home)
    with pages_over(home) as weir:
        yield weir


@pytest.mark.parametrize("pages", [PAGES, *soak((OTHER_VIEWS,))], ids=["pages", "other views"])
def test_nothing_that_others_wrote_is_more_than_text(
    page: Page, server: Weir, pages: list[tuple[str, dict[str, Any]]]
) -> None:
    viewer = Viewer(page, server)
    foreign_requests: list[str] = []
    page.on("request", lambda sent: foreign_requests.append(sent.url) if "evil.example/" in sent.url else None)
    found: dict[str, list[str]] = {}
    names = 0
    for name, params in pages:
        viewer.open(name, **{key: quote(str(value), safe="") for key, value in params.items()})
        if foreign := page.evaluate(FOREIGN):
            found[f"{name} {json.dumps(params)[:160]}"] = foreign
        names += NAME in page.locator("body").inner_text()
    assert found == {}
    viewer.open("table", table=quote(NAME, safe=""))
    assert page.locator(f"a[href='mailto:{OWNER}']").all_inner_texts() == [OWNER]
    assert foreign_requests == [url for url in foreign_requests if url.startswith(server.url)]
    assert names > len(pages) // 2, "the name is shown as it was written"
