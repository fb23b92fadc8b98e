"""Profile: at once from the log, exact after a click, beside another version."""

from pathlib import Path

import pyarrow as pa
import pytest

from tests.worlds.lake import builders
from tests.worlds.pages.frames import frame_with
from tests.worlds.pages.opened import home, open_page, press, words

__all__ = ["home"]

VIEW = {"table": "people", "view": "Profile"}


@pytest.fixture
def people(home: Path) -> Path:
    """0: a mail for each of 200; 1: 100 more without one."""
    path = home / "lake" / "people"
    ids = list(range(200))
    builders.write(path, {"id": ids, "email": [f"{n}@x" for n in ids], "land": ["nl" if n % 4 else "de" for n in ids]})
    more = pa.table({"id": list(range(200, 300)), "email": pa.nulls(100, pa.string()), "land": ["nl"] * 100})
    return builders.write(path, more)


def test_the_log_is_there_at_once_and_the_cost_of_more_is_said(people: Path) -> None:
    app = open_page(**{"page": "table", **VIEW})
    frame = frame_with(app, "Null share")
    assert frame["Null share"].tolist() == [0, pytest.approx(1 / 3), 0] and frame["Highest"].tolist()[0] == "299"
    assert "from the log's statistics alone" in words(app) and "in 2 data files" in words(app)
    assert "Distinct" not in frame.columns


def test_rows_are_read_after_a_click_and_kept(people: Path) -> None:
    app = open_page(**{"page": "table", **VIEW})
    press(app, "read_profile")
    frame = frame_with(app, "Distinct")
    assert "counted over 300 rows" in words(app) and frame["Null share"].tolist()[1] == pytest.approx(1 / 3)
    assert frame["Commonest"].tolist()[2] == "nl 83 %, de 17 %"
    assert not [button for button in app.button if button.key == "read_profile"]
    assert "counted over 300 rows" in words(open_page(**{"page": "table", **VIEW}))


def test_two_versions_are_compared_from_the_log_and_from_the_rows(people: Path) -> None:
    app = open_page(**{"page": "table", **VIEW, "compare": "0"})
    frame = frame_with(app, "Against")
    assert frame["Column"].tolist() == ["id", "email", "land"] and "2 columns differ from v0." in words(app)
    assert frame["Against"].tolist() == ["highest 199 → 299", "null share 0 % → 33 %", ""]
    press(app, "read_profile")
    assert "null share 0 % → 33 %" in frame_with(app, "Against")["Against"][1]
    assert "counted over 300 rows" in words(app)


def test_a_comparison_keeps_the_reading_and_offers_the_other_version(people: Path) -> None:
    press(open_page(**{"page": "table", **VIEW}), "read_profile")
    app = open_page(**{"page": "table", **VIEW, "compare": "0"})
    frame = frame_with(app, "Distinct").set_index("Column")
    assert "counted over 300 rows" in words(app) and frame.loc["land", "Commonest"] == "nl 83 %, de 17 %"
    assert frame.loc["email", "Against"] == "null share 0 % → 33 %"
    press(app, "read_profile")
    assert not [button for button in app.button if button.key == "read_profile"]


def test_a_version_that_is_not_there_is_an_answer(people: Path) -> None:
    app = open_page(**{"page": "table", **VIEW, "compare": "99"})
    assert len(app.error) == 1 and "99" in app.error[0].value


def test_rows_whose_files_are_gone_are_an_answer(people: Path) -> None:
    for file in people.glob("*.parquet"):
        file.unlink()
    app = open_page(**{"page": "table", **VIEW})
    press(app, "read_profile")
    assert len(app.error) == 1 and "could not be read" in app.error[0].value
