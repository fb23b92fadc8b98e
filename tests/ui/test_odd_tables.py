"""Pages on tables that others wrote: replaced in between, and with a column that nobody here can read."""

from pathlib import Path

import pyarrow as pa
import pytest

from tests import builders
from tests.lake.test_odd_columns import field, metadata, put
from tests.lake.test_replaced_table import replaced
from tests.ui.frames import frame_with
from tests.ui.opened import again, home, metrics, open_page, words

__all__ = ["home", "replaced"]


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


def test_rows_are_shown_without_a_column_that_nobody_knows(home: Path) -> None:
    log = builders.HandLog(home / "lake" / "t")
    kinds = metadata(field("odd", "calendarinterval"), field("id", "long"))
    log.commit(builders.protocol(), kinds, builders.commit_info(), put(log.table, "a", pa.table({"id": [1, 2]})))
    app = open_page("table", table="t", view="Data")
    assert list(frame_with(app, "id").columns) == ["id"]
    assert "Left out, of a type that cannot be read here: odd" in words(app)
