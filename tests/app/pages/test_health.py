"""The Health page: the whole lake as a list, one table in depth."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.worlds.lake import builders
from tests.worlds.pages.opened import again, forget_caches, home, metrics, open_page, press, words

__all__ = ["home"]


@pytest.fixture
def lake(home: Path) -> Path:
    """bronze/clicks with 2 × 17 small files; the small tables of the medallion beside it."""
    root = builders.medallion_lake(home / "lake")
    builders.partitioned_table(root / "bronze" / "clicks", days=2, files_per_day=17)
    return root


def test_the_whole_lake_is_listed_most_urgent_first(lake: Path) -> None:
    app = open_page("health")

    listed = app.dataframe[0].value.set_index("Table")
    assert listed.index[0] == "bronze/clicks"
    assert listed.loc["bronze/clicks", "Judgement"] == "● note"
    assert listed.loc["bronze/clicks", "Small files"] == "34 of 34"
    assert listed.loc["silver/orders", "Judgement"] == "✓ fine"
    assert "merging would spare 32 of" in words(app)


def test_a_row_opens_its_table(lake: Path) -> None:
    app = open_page("health")

    app.session_state["lake_health"] = {"selection": {"rows": [0], "columns": [], "cells": []}}
    again(app)

    assert app.title[0].value == "clicks"
    press(app, "whole_lake")
    assert app.title[0].value == "Health of the lake"


def test_a_click_opens_the_table_that_was_under_the_mouse_though_another_came_on_top(lake: Path) -> None:
    app = open_page("health")
    assert app.dataframe[0].value["Table"].iloc[0] == "bronze/clicks"

    builders.partitioned_table(lake / "bronze" / "busier", days=3, files_per_day=17)
    forget_caches()
    app.session_state["lake_health"] = {"selection": {"rows": [0], "columns": [], "cells": []}}
    again(app)

    assert app.title[0].value == "clicks"
    press(app, "whole_lake")
    assert app.dataframe[0].value["Table"].iloc[0] == "bronze/busier"


def test_one_table_shows_counts_rule_offenders_and_what_to_do(lake: Path) -> None:
    app = open_page("health", table="bronze/clicks")

    shown, text = metrics(app), words(app)
    assert shown["Small files"] == "34 of 34"
    assert shown["Last OPTIMIZE"] == "–"
    assert "OPTIMIZE would leave about 2 files of 34" in text
    assert "A file is small below" in text
    offenders = app.dataframe[0].value
    assert set(offenders["Where"]) == {"engine", "partition"}
    assert sum(offenders[offenders["Where"] == "partition"]["Small files"]) == 34


def test_after_optimize_the_page_says_when(lake: Path) -> None:
    DeltaTable(str(lake / "bronze" / "clicks")).optimize.compact()

    app = open_page("health", table="bronze/clicks")

    assert metrics(app)["Small files"] == "Fine"
    assert metrics(app)["Last OPTIMIZE"].endswith("ago") or metrics(app)["Last OPTIMIZE"] == "just now"


def test_an_unreadable_table_hides_no_other(lake: Path) -> None:
    (lake / "gold" / "orders_by_status" / "_delta_log" / "00000000000000000000.json").write_text("{broken")

    app = open_page("health")

    listed = app.dataframe[0].value.set_index("Table")
    assert listed.index[0] == "gold/orders_by_status", "the most urgent of all"
    assert listed.loc["gold/orders_by_status", "Judgement"] == "✕ critical"
    assert listed.loc["gold/orders_by_status", "Next step"].startswith("restore the file")
    assert listed.loc["silver/orders", "Judgement"] == "✓ fine"
    assert "1 cannot be read" in words(app)


def test_a_vanished_table_is_said(lake: Path) -> None:
    assert "bronze/gone" in words(open_page("health", table="bronze/gone"))


def test_an_empty_lake_teaches(home: Path) -> None:
    assert "No Delta tables here yet" in words(open_page("health"))
