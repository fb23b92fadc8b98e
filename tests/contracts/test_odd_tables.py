"""Pages on tables that others wrote: replaced in between, and with a column that nobody here can read."""

from pathlib import Path

import pyarrow as pa
import pytest

from tests.backend.lake.test_odd_columns import field, metadata, put
from tests.backend.search.test_replaced_table import nightly, replaced
from tests.worlds.lake import builders
from tests.worlds.pages.frames import frame_with
from tests.worlds.pages.opened import again, home, metrics, open_page, press, words

__all__ = ["home", "nightly", "replaced"]


@pytest.mark.usefixtures("replaced")
def test_the_switch_compares_a_replaced_table_as_two() -> None:
    app = open_page("changes", table="dim", from_=0, to=1)
    assert "--across-replace" in words(app)
    app.multiselect(key="key").set_value(["id"])
    app.toggle(key="across_replace").set_value(True)
    again(app)
    shown = metrics(app)
    assert (shown["Inserted (net)"], shown["Updated (net)"], shown["Deleted (net)"]) == ("+1", "1", "0")
    assert "compared as two tables" in words(app).lower()
    linked = open_page("changes", table="dim", from_=0, to=1, across_replace="true")
    assert "compared as two tables" in words(linked).lower()


@pytest.mark.usefixtures("nightly")
def test_the_first_bad_version_of_a_table_that_was_replaced_since() -> None:
    app = press(open_page("bisect", table="nightly", condition="v >= 0", good=0, bad=2), "find")
    assert "is the first version that breaks" in words(app)
    links = {link.label: link.proto.query_string for link in app.main.page_link}
    for label in ("What v2 changed", "What going back to v1 changes"):
        assert "across_replace=true" in links[label]


@pytest.mark.usefixtures("nightly")
def test_numbers_of_a_replaced_table_say_whose_they_are() -> None:
    app = open_page("versions", table="nightly", number="SQL aggregate", sql="sum(v)")
    press(app, "compute")
    for _ in range(2):  # with the work done, the values that were kept
        assert "made anew 3 times, last by v3" in words(app)
        assert list(frame_with(app, "Value")["Value"]) == ["17", "13", "15", "10"]
        again(app)


def test_rows_are_shown_without_a_column_that_nobody_knows(home: Path) -> None:
    log = builders.HandLog(home / "lake" / "t")
    kinds = metadata(field("odd", "calendarinterval"), field("id", "long"))
    log.commit(builders.protocol(), kinds, builders.commit_info(), put(log.table, "a", pa.table({"id": [1, 2]})))
    app = open_page("table", table="t", view="Data")
    assert list(frame_with(app, "id").columns) == ["id"]
    assert "Left out, of a type that cannot be read here: odd" in words(app)
