"""Opens pages of the real app in Streamlit's own test runner."""

import json
import os
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import streamlit as st
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest

from app import services
from app.cli import main

MAIN = Path(__file__).resolve().parents[3] / "app" / "main.py"
TIMEOUT_S = 120

# A server looks for installed components once. The test runner does for each page: two thirds of a page's time.
manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)


def forget_caches() -> None:
    """Services and readings of one test must not serve the next."""
    services.forget()
    st.cache_resource.clear()
    st.cache_data.clear()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty WEIR_HOME for one test, and no settings but those set here."""
    monkeypatch.setenv("WEIR_HOME", str(tmp_path))
    monkeypatch.setenv("WEIR_CONFIG", os.devnull)
    (tmp_path / "lake").mkdir()
    forget_caches()
    yield tmp_path
    forget_caches()


def printed_json(capsys: pytest.CaptureFixture[str], *command: str) -> Any:
    """What `weir COMMAND --json` prints, asked in this process."""
    services.forget()
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main([*command, "--json"])
    services.forget()
    return json.loads(capsys.readouterr().out)


def open_page(page: str, **params: str | int) -> AppTest:
    """A page as a link with these query parameters opens it; fails when the script raised."""
    app = AppTest.from_file(str(MAIN), default_timeout=TIMEOUT_S)
    app.switch_page(f"../pages/{page}.py")
    for key, value in params.items():
        app.query_params[key.rstrip("_")] = str(value)
    return again(app)


def again(app: AppTest) -> AppTest:
    """The next run; fails when the script raised."""
    app.run()
    assert not app.exception, [each.value for each in app.exception]
    return app


def press(app: AppTest, key: str) -> AppTest:
    """The run after a click on a button; where there is none, what the page says instead."""
    assert key in keys(app.button), words(app)
    app.button(key=key).click()
    return again(app)


def tick(app: AppTest, key: str, *rows: int) -> AppTest:
    """The run after these rows of a list were ticked."""
    app.session_state[key] = {"selection": {"rows": list(rows), "columns": [], "cells": []}}
    return again(app)


def click(app: AppTest, key: str, row: int, column: str) -> AppTest:
    """The run after a click on a cell of a list."""
    app.session_state[key] = {"selection": {"rows": [], "columns": [], "cells": [(row, column)]}}
    return again(app)


def param(app: AppTest, key: str) -> str:
    """A query parameter of the page, empty where the URL has none."""
    value = app.query_params.get(key, "")
    return value[0] if isinstance(value, list) else value


def linked_params(link: str) -> dict[str, str]:
    """The query parameters of a link, by name."""
    return {key: values[0] for key, values in parse_qs(link).items()}


def keys(elements: Iterable[object]) -> set[str]:
    """The keys of widgets, such as `app.button`."""
    return {str(getattr(element, "key", "")) for element in elements}


def send(app: AppTest, kind: str, reason: str, *, typed: str = "") -> AppTest:
    """Fills the dialog of an act and sends it."""
    app.text_area(key=f"{kind}_reason").set_value(reason)
    if typed:
        app.text_input(key=f"{kind}_name").set_value(typed)
    return press(app, f"{kind}_send")


def words(app: AppTest) -> str:
    """Everything a person reads on the page outside tables, without Markdown's escapes."""
    kinds = ("title", "header", "subheader", "markdown", "caption", "info", "warning", "error", "code")
    texts = [each.value for kind in (*kinds, "toast") for each in app.get(kind)]
    return plain("\n".join(texts))


def plain(markdown: str) -> str:
    """Markdown as a person reads it, as far as its escapes go."""
    return re.sub(r":color\[\\?(.)\]", r"\1", markdown).replace("\\", "")


def links(app: AppTest) -> dict[str, str]:
    """The links on the page by their label, each with its query string."""
    return {plain(link.label): link.proto.query_string for link in app.main.page_link}


def metrics(app: AppTest) -> dict[str, str]:
    """Key figures by their label, those of cards and those in a line."""
    lines = (plain(each.value) for each in app.markdown if each.value.startswith("Rows **"))
    in_line = (part for line in lines for part in re.findall(r"([A-Z][a-z ]+) \*\*(.+?)\*\*", line))
    return {**{metric.label: metric.value for metric in app.metric}, **dict(in_line)}
