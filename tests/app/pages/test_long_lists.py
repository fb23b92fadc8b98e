"""Long lists beyond their first page: what leads to another table, or to other rows, begins at the first page."""

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app import cache
from app.ui.view.words import PAGE_ROWS
from tests.worlds.lake import builders
from tests.worlds.lake.builders import HandLog
from tests.worlds.pages.frames import frame_with
from tests.worlds.pages.opened import again, home, open_page, press
from tests.worlds.processes import wait_until

__all__ = ["home"]


@pytest.fixture
def many(home: Path) -> Path:
    """A table of two pages of commits, and so many empty ones that the lake has two pages of tables."""
    log = HandLog(home / "lake" / "many").start()
    for _ in range(PAGE_ROWS + 4):
        log.commit(builders.commit_info())
    for number in range(PAGE_ROWS):
        HandLog(home / "lake" / f"t{number:03d}").start()
    return home


def pick(app: AppTest) -> None:
    app.selectbox(key="table_picker").select("t007")


def turn_filter_on(app: AppTest) -> None:
    app.toggle(key="filter").set_value(True)


def turn_filter_off(app: AppTest) -> None:
    app.toggle(key="filter").set_value(False)


def choose_operation(app: AppTest) -> None:
    app.multiselect(key="pick_operation").set_value(["WRITE"])


def open_first_row(app: AppTest) -> None:
    app.session_state["lake_health"] = {"selection": {"rows": [], "columns": [], "cells": [(0, "Table")]}}


def open_second_page(name: str, **link: str) -> AppTest:
    open_page(name, **link)
    wait_until(lambda: cache.lake_reading().is_complete, "the lake is not read")
    return open_page(name, page_=2, **link)


@pytest.mark.parametrize("name", ["history", "tables", "health"])
def test_another_table_is_picked(many: Path, name: str) -> None:
    app = open_second_page(name, **({"table": "many"} if name == "history" else {}))
    pick(app)
    again(app)
    assert app.title[0].value == "t007" and app.query_params == {"table": "t007"}


def test_a_table_that_a_later_page_of_the_list_led_to_shows_its_newest_commits(many: Path) -> None:
    app = open_second_page("tables")
    for name in ("table", "history"):
        app.query_params = {"table": "many"}
        app.switch_page(f"../pages/{name}.py")
        again(app)
    assert len(frame_with(app, "Version", "Operation")) == PAGE_ROWS and app.query_params == {"table": "many"}


def test_a_row_of_the_lakes_health_opens_its_table_and_the_way_back_is_the_first_page(many: Path) -> None:
    app = open_second_page("health")
    second = frame_with(app, "Judgement")["Table"][0]
    open_first_row(app)
    again(app)
    assert app.title[0].value == second and app.query_params == {"table": second}
    press(app, "whole_lake")
    assert app.query_params == {} and len(frame_with(app, "Judgement")) == PAGE_ROWS


@pytest.mark.parametrize(
    ("act", "link"),
    [(turn_filter_on, {}), (turn_filter_off, {"filter": "true"}), (choose_operation, {"filter": "true"})],
)
def test_the_filter_of_a_history_changes(many: Path, act: Callable[[AppTest], None], link: dict[str, str]) -> None:
    app = open_second_page("history", table="many", **link)
    act(app)
    again(app)
    assert len(frame_with(app, "Version", "Operation")) == PAGE_ROWS and "page" not in app.query_params
