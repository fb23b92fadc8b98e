"""Names, tags, errors and parameters of others never become Markdown: no link, no picture, no bold."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from google.protobuf.message import Message
from markdown_it import MarkdownIt
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Block

from backend.store.store import ControlStore
from backend.stream_model.stream import StreamFailure, StreamState
from tests.worlds.lake import builders
from tests.worlds.pages.fixtures import Place
from tests.worlds.pages.opened import open_page, plain, press
from tests.worlds.store import stream_store

EVIL = "__x__ [Session expired](https:evil.example) www.evil.example you@evil.example :smile:"
# What Streamlit makes a link or an emoji of after its Markdown was read, without backslashes.
LATE = re.compile(r"www\.evil|you@evil|:smile:")
TABLE_PAGES = ("table", "history", "timeline", "files", "properties", "versions", "changes", "bisect", "health")
# Fields in which Streamlit reads Markdown; those of code, frames and links to pages are none.
MARKDOWN = {"body", "label", "text", "help", "title", "tooltip", "delta"}
NOT_MARKDOWN = {"code", "arrow_data_frame", "html", "iframe", "bidi_component", "plotly_chart"}


def elements(block: Block) -> Iterator[Message]:
    for child in block.children.values():
        if isinstance(child, Block):
            yield from elements(child)
        if child.proto is not None and child.type not in NOT_MARKDOWN:
            yield child.proto


def texts(message: Message) -> Iterator[str]:
    for field, value in message.ListFields():
        if field.message_type is not None and not field.is_repeated:
            yield from texts(value)
        elif field.name in MARKDOWN and isinstance(value, str):
            yield value


def texts_of(app: AppTest) -> list[str]:
    """Everything on the page that Streamlit reads as Markdown, dialogs as well."""
    return [text for element in elements(app.main.root) for text in texts(element)]


def made_of_others(app: AppTest) -> list[str]:
    """The texts on the page in which the name became Markdown."""
    found = []
    for text in texts_of(app):
        parts = [part for block in MarkdownIt().parse(text) for part in block.children or ()]
        late = LATE.search("".join(part.content for part in parts if part.type == "text"))
        if late or any("evil" in str(part.attrs) for part in parts) or "__x__" in text:
            found.append(text)
    return found


def named(app: AppTest) -> bool:
    """Whether the name is on the page at all."""
    return any(EVIL in plain(text) for text in texts_of(app))


@pytest.fixture
def evil(place: Place) -> Path:
    return place(table_of_others, f"__x__/{EVIL}")


def table_of_others(path: Path) -> Path:
    """A table whose name, folder, tags, operation and user are Markdown."""
    tags = dict.fromkeys(("catalog.team_name", "catalog.table.classification", "catalog.odd"), EVIL)
    log = builders.HandLog(path).start(configuration=tags | {f"catalog.{EVIL}": "1"})
    log.commit(builders.commit_info(EVIL, userName=EVIL), builders.add("a.parquet", rows=3))
    return path


@pytest.mark.parametrize("name", TABLE_PAGES)
def test_of_a_table(evil: Path, name: str) -> None:
    app = open_page(name, table=f"__x__/{EVIL}")
    assert named(app) and not made_of_others(app)


def test_of_a_table_that_is_gone_and_of_one_that_cannot_be_read(home: Path) -> None:
    builders.HandLog(home / "lake" / "__x__" / EVIL).commit(builders.protocol(3, 7, [EVIL]), builders.metadata())
    for table in (f"__x__/{EVIL}", EVIL):
        app = open_page("table", table=table)
        assert app.error and named(app) and not made_of_others(app)


def test_of_lists_of_tables(evil: Path) -> None:
    for name in ("overview", "tables", "health", "history"):
        assert not made_of_others(open_page(name))


@pytest.fixture
def stream(store: ControlStore, now: datetime) -> str:
    """A failed stream whose name, quarantine and error are Markdown, and one that reads what it writes."""
    stream_store.declare(store, EVIL, now, expectations=(EVIL,))
    stream_store.flowing(store, f"below {EVIL}", now, source_tables=(f"silver/{EVIL}",))
    texts = {"pipeline": EVIL, "description": EVIL, "tags": {EVIL: EVIL}, "spark_conf": {EVIL: EVIL}}
    store.declare([replace(store.declarations()[EVIL], **texts)], now=now)
    stream_store.observe(store, EVIL, StreamState.FAILED, now, failure=StreamFailure(EVIL, EVIL, 1, now))
    return EVIL


@pytest.mark.parametrize("button", [None, "one_start", "one_stop", "one_requeue", "one_reset"])
def test_of_a_stream_and_its_dialogs(stream: str, button: str | None) -> None:
    app = open_page("stream", stream=stream)
    if button:
        press(app, button)
        assert [text for text in texts_of(app) if EVIL in plain(text) and text.endswith("?")], "no dialog"
    assert named(app) and not made_of_others(app)


def test_of_a_stream_that_is_not_declared(stream: str) -> None:
    app = open_page("stream", stream=f"no {EVIL}")
    assert named(app) and not made_of_others(app)


def test_of_lists_of_streams(stream: str) -> None:
    for name in ("overview", "streams", "pipeline"):
        assert not made_of_others(open_page(name))


def test_of_a_store_that_does_not_answer(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / EVIL).write_text("")
    monkeypatch.setenv("WEIR_STORE__URL", f"sqlite:///{home}/{EVIL}/weir.db")
    for name in ("overview", "streams", "pipeline", "stream"):
        assert not made_of_others(open_page(name))
