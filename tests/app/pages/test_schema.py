"""Summary, schema: tree, search, pages, statistics, constraints."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from app.summary import schema
from tests.worlds.lake import builders
from tests.worlds.pages.frames import frame_with
from tests.worlds.pages.opened import again, home, metrics, open_page, words

__all__ = ["home"]


@pytest.fixture
def people(home: Path) -> Path:
    city = pa.struct([("city", pa.string()), ("no", pa.int32())])
    rows = pa.table(
        {
            "id": pa.array([1, 2, 3]),
            "home": pa.array([{"city": "Ede", "no": 1}, {"city": None, "no": 2}, None], city),
            "long": ["a" * 40, "b", "c"],
        }
    )
    return builders.write(home / "lake" / "people", rows)


def cells(app: Any) -> dict[str, dict[str, str]]:
    frame = frame_with(app, "Nullable")
    return {row["Column"].strip(): row for row in frame.to_dict("records")}


def test_statistics_come_with_the_tree(people: Path) -> None:
    app = open_page("table", table="people")
    found = cells(app)
    assert (found["id"]["Min"], found["id"]["Max"], found["id"]["Null share"]) == ("1", "3", "0 %")
    assert (found["city"]["Min"], found["city"]["Null share"]) == ("Ede", "67 %")
    assert found["long"]["Min"].startswith("≥ aaaa") and found["long"]["Max"] == "c"
    assert found["home"]["Min"] == "" and found["city"]["Column"].startswith("\u2003")
    assert "From the statistics of 1 file" in words(app)


def test_search_and_statistics_are_in_the_link(people: Path) -> None:
    app = open_page("table", table="people", find="city", statistics="false")
    assert list(cells(app)) == ["home", "city"] and "Min" not in frame_with(app, "Nullable").columns
    assert "2 of 5 lines match" in words(app)
    app.text_input(key="find").set_value("nothing")
    assert "No column matches" in words(again(app))


def test_statistics_of_many_files_are_read_when_asked_for(people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "AUTO_FILES", 0)
    app = open_page("table", table="people")
    assert "Min" not in frame_with(app, "Nullable").columns
    app.toggle(key="statistics").set_value(True)
    assert cells(again(app))["id"]["Max"] == "3"


def test_three_thousand_columns_come_in_pages(home: Path) -> None:
    names = {f"c{number:04d}": "long" for number in range(3000)}
    builders.HandLog(home / "lake" / "wide").start(columns=names).commit(builders.add("a.parquet"))
    app = open_page("table", table="wide", schema_page=30)
    assert len(cells(app)) == 100 and list(cells(app))[-1] == "c2999"
    assert "Lines 2,901–3,000 of 3,000." in words(app)


def test_constraints_and_traits_are_said(home: Path) -> None:
    traits = {"delta.generationExpression": "id * 2", "CURRENT_DEFAULT": "1"}
    action = builders.metadata(configuration={"delta.constraints.positive": "id > 0"})
    field = {"name": "id", "type": "long", "nullable": False, "metadata": traits}
    action["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": [field]})
    builders.HandLog(home / "lake" / "t").commit(builders.protocol(), action, builders.commit_info("CREATE TABLE"))
    app = open_page("table", table="t")
    assert frame_with(app, "Constraint")["Every row satisfies"].tolist() == ["id > 0"]
    assert cells(app)["id"]["Generated as"] == "id * 2" and cells(app)["id"]["Default"] == "1"


def test_a_schema_that_cannot_be_read_is_an_error_and_the_rest_stays(home: Path) -> None:
    action = builders.metadata()
    action["metaData"]["schemaString"] = "{broken"
    builders.HandLog(home / "lake" / "t").commit(builders.protocol(), action, builders.add("a.parquet", rows=5))
    app = open_page("table", table="t")
    assert "schema cannot be read" in app.error[0].value and metrics(app)["Rows"] == "5"


def test_a_table_without_columns_says_so(home: Path) -> None:
    action = builders.metadata()
    action["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": []})
    builders.HandLog(home / "lake" / "bare").commit(builders.protocol(), action)
    assert "no columns yet" in words(open_page("table", table="bare"))
