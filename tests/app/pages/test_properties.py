"""Properties: whose table, what is set, what is wrong, which features."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from tests.worlds.lake import builders
from tests.worlds.pages.frames import frame_with
from tests.worlds.pages.opened import again, open_page, plain, words


@pytest.fixture
def tagged(home: Path) -> Path:
    settings = {
        "delta.logRetentionDuration": "interval 3 days",
        "delta.apendOnly": "true",
        "catalog.team_name": "Data Platform",
        "catalog.engineering.comms.slack": "#data",
    }
    builders.HandLog(home / "lake" / "tagged").start(configuration=settings)
    return home


def rows(app: AppTest) -> dict[str, dict[str, str]]:
    """The lines of the lists of properties, by property."""
    frames = [frame.value for frame in app.table if "Property" in frame.value.columns]
    unescaped = [frame.map(lambda text: text.replace("\\", "")) for frame in frames]
    return {row["Property"].split("**")[1]: row for frame in unescaped for row in frame.to_dict("records")}


def cells(app: AppTest) -> list[str]:
    return [str(cell) for frame in app.table for cell in frame.value.to_numpy().flatten()]


def test_what_is_set_stands_first_beside_its_default_and_what_is_wrong_leads(tagged: Path) -> None:
    app = open_page("properties", table="tagged")
    found = rows(app)
    row = found["delta.logRetentionDuration"]
    assert (row["Value"], row["Default"]) == ("interval 3 days", "interval 30 days")
    assert found["delta.checkpointInterval"]["Default"] == "10"
    (fold,) = [fold for fold in app.expander if "default" in fold.label]
    assert not fold.proto.expanded and fold.label.startswith("4")  # forty and some
    first = next(frame.value for frame in app.table if "Property" in frame.value.columns)
    assert len(first) == 4 and "apendOnly" in first["Property"][0]
    inside = [cell for frame in fold.table for cell in frame.value["Property"]]
    assert not any("logRetentionDuration" in cell for cell in inside)
    warning = plain(app.main.warning[0].value)
    assert "delta.apendOnly" in warning and "delta.appendOnly" in warning, "the nearest known one"
    assert "Data Platform" in words(app) and any("#data" in cell for cell in cells(app))
    assert "Ownership" not in words(app)


def test_filters_are_in_the_url(tagged: Path) -> None:
    found = set(rows(open_page("properties", table="tagged", q="retention")))
    assert "delta.logRetentionDuration" in found and all("Retention" in name for name in found)
    searched = open_page("properties", table="tagged", q="isolationLevel")
    (fold,) = [fold for fold in searched.expander if "default" in fold.label]
    assert fold.proto.expanded and "No property that is set here matches" in words(searched)
    app = open_page("properties", table="tagged", q="no such word")
    assert not rows(app) and "No property matches" in words(app)
    app.text_input(key="q").set_value("")
    assert rows(again(app))


@pytest.mark.parametrize("name", ["table", "properties"])
def test_whom_to_ask_is_a_link_and_what_is_no_address_stays_text(home: Path, name: str) -> None:
    start = "catalog.engineering.comms."
    contacts = {f"{start}email": "orders@example.com", f"{start}slack": "[#orders](javascript:alert(1))"}
    builders.HandLog(home / "lake" / "owned").start(configuration=contacts)
    app = open_page(name, table="owned")
    shown = [*(each.value for each in (*app.main.markdown, *app.main.caption)), *cells(app)]
    if name == "table":
        assert any("[orders:color[\\@]example\\.com](mailto:orders@example.com)" in text for text in shown)
    assert not any("](javascript" in text for text in shown) and any("javascript" in text for text in shown)


def test_features_are_explained(home: Path) -> None:
    builders.write(home / "lake" / "fed", {"id": [1]}, configuration=builders.CHANGE_FEED)
    app = open_page("properties", table="fed")
    frame = next(frame.value for frame in app.table if "Feature" in frame.value.columns)
    features = [cell.replace("\\", "") for cell in frame["Feature"]]
    assert any(cell.startswith("**changeDataFeed**") for cell in features)
    assert all(cell.count(":gray[") == 1 and not cell.endswith(":gray[]") for cell in features)


@pytest.fixture
def changed(home: Path) -> Path:
    """0 and 1 differ in two properties, the protocol and a column; 2 changes nothing."""
    log = builders.HandLog(home / "lake" / "changed")
    before = {"delta.appendOnly": "false", "team": "a"}
    log.commit(builders.protocol(), builders.metadata(configuration=before), builders.commit_info("CREATE TABLE"))
    after = builders.metadata({"id": "long", "n": "long"}, configuration={"delta.appendOnly": "true"})
    log.commit(builders.protocol(3, 7, ["deletionVectors"]), after, builders.commit_info("SET TBLPROPERTIES"))
    log.commit(builders.commit_info("WRITE"))
    return home


@pytest.mark.parametrize("params", [{"compare": "0"}, {"compare": "-2"}, {"version": "0", "compare": "latest"}])
def test_two_versions_are_compared_from_the_older_to_the_newer(changed: Path, params: dict[str, str]) -> None:
    app = open_page("properties", table="changed", **params)
    frame = frame_with(app, "Before", "After", "Meaning")
    assert frame[["What", "Name", "Change", "Before", "After"]].values.tolist() == [
        ["Property", "delta.appendOnly", "changed", "false", "true"],
        ["Property", "team", "removed", "a", None],
        ["Protocol", "reader", "changed", "1", "3"],
        ["Protocol", "writer", "changed", "2", "7"],
        ["Feature", "deletionVectors", "added", None, "supported"],
    ]
    assert "Rows can only be added" in frame["Meaning"][0]
    assert "v0 → v2 · 5 changes: 1 added, 1 removed, 3 changed" in words(app).replace("*", "")
    assert "1 change of columns beside" in words(app)


def test_a_version_has_its_own_properties_and_one_that_is_not_there_leaves_the_rest(changed: Path) -> None:
    for link, value in (({"version": 0}, "false"), ({}, "true")):
        assert rows(open_page("properties", table="changed", **link))["delta.appendOnly"]["Value"] == value
    for compare, text in (("1", "v1 → v2: properties, protocol and features are the same"), ("2", "Both are v2")):
        app = open_page("properties", table="changed", compare=compare)
        assert text in words(app).replace("*", "")
    for compare in ("99", "soon"):
        app = open_page("properties", table="changed", compare=compare)
        assert len(app.error) == 1 and compare in app.error[0].value
        assert "delta.appendOnly" in rows(app)
