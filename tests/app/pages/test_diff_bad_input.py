"""The Changes page with what is wrong or huge: a clear answer, a way on, and no message above 500 kB."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from streamlit.testing.v1 import AppTest

from tests.worlds.lake import builders
from tests.worlds.pages.frames import frame_with
from tests.worlds.pages.opened import home, metrics, open_page, words

__all__ = ["home"]
MOST_BYTES = 500_000


def messages(app: AppTest) -> Iterator[tuple[int, str]]:
    """Size and kind of every element that the browser gets."""
    waiting: list[Any] = [app.main, app.sidebar]
    while waiting:
        node = waiting.pop()
        waiting += getattr(node, "children", {}).values()
        proto = getattr(node, "proto", None)
        if proto is not None and hasattr(proto, "ByteSize"):
            yield proto.ByteSize(), type(node).__name__


def assert_small(app: AppTest) -> None:
    assert max(messages(app)) < (MOST_BYTES, "")


@pytest.fixture
def orders(home: Path) -> Path:
    """v0 two rows, v1 another one, v2 an update."""
    path = builders.write(home / "lake" / "orders", {"id": [1, 2], 'ö "q"': ["=1+1", "<b>x</b>"]})
    builders.write(path, {"id": [3], 'ö "q"': ["| `c`\n# d"]})
    DeltaTable(str(path)).update(updates={'"ö ""q"""': "'**b**'"}, predicate="id = 1")
    return path


@pytest.mark.parametrize(
    ("asked", "said", "way_on"),
    [
        ({"from_": "latest2"}, "Not a version: 'latest2'", "such as `-5`"),
        ({"from_": "0001-01-01T00:00+14:00"}, "Not a version", "such as `-5`"),
        ({"from_": "-99"}, "has no version -99", "versions end at 2"),
        ({"from_": "9" * 5_000}, "Not a version: '999", "such as `-5`"),
        ({"rows_where": "id > 0; DROP TABLE x"}, 'Syntax error at or near ";" (character 7)', "No SELECT, FROM or ;"),
        ({"rows_where": "id IN (SELECT 1)"}, "A subquery is not allowed here (character 7)", "Such as amount >= 0"),
        ({"rows_where": "read_text('/etc/passwd') <> ''"}, "function 'read_text' is not allowed", "Such as"),
        ({"key": "x" * 5_000}, "to use as a key", "columns: `id`"),
    ],
)
def test_what_cannot_be_compared_is_said_with_a_way_on(
    orders: Path, asked: dict[str, str], said: str, way_on: str
) -> None:
    for file in orders.glob("*.parquet"):
        file.unlink()  # nothing is read
    app = open_page("changes", table="orders", **({"from_": 0, "to": 2} | asked))
    assert said in words(app) and way_on in words(app)
    assert not app.dataframe and app.selectbox(key="pick_to").value == "2"  # and the form stays
    assert_small(app)


def test_names_and_values_that_are_markup_or_formulas_stay_texts(orders: Path) -> None:
    app = open_page("changes", table="orders", from_=0, to=2, key="id")
    assert metrics(app)["Updated (net)"] == "1" and metrics(app)["Inserted (net)"] == "+1"
    rows = frame_with(app, "Change")
    assert {'ö "q" · before', 'ö "q" · after'} <= {str(name).removesuffix(" ●") for name in rows.columns}
    assert "**b**" in rows.to_string() and "=1+1" in rows.to_string()


@pytest.mark.parametrize("view", ["Commits", "How it knows"])
def test_a_log_full_of_huge_texts_stays_a_small_page(home: Path, view: str) -> None:
    log = builders.HandLog(home / "lake" / "t").start(columns={f"c{number}": "string" for number in range(3_000)})
    columns = {f"d{number}": "string" for number in range(3_000)}
    properties = {f"p{number}": "x" * 2_000 for number in range(100)}
    log.commit(builders.commit_info(), builders.metadata(columns, configuration=properties))
    huge = {"operationParameters": {"predicate": "y" * 600_000}, "userName": "u" * 600_000}
    log.commit(builders.commit_info("X" * 600_000, **huge))
    app = open_page("changes", table="t", from_=0, to=2, view=view)
    assert "3,000 columns added, 3,000 dropped; 100 properties changed" in words(app)
    assert_small(app)


def test_rows_of_a_megabyte_stay_a_small_page(home: Path) -> None:
    path = builders.write(home / "lake" / "t", {"id": list(range(20)), "note": ["x" * 2**20] * 20})
    builders.write(path, {"id": list(range(20)), "note": ["y" * 2**20] * 20}, mode="overwrite")
    app = open_page("changes", table="t", from_=0, to=1, key="id")
    assert metrics(app)["Updated (net)"] == "20" and len(frame_with(app, "Change")) == 20
    assert_small(app)
