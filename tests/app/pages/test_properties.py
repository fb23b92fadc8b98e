"""Properties: whose table, what is set, what is wrong, which features."""

from pathlib import Path

import pytest

from tests.worlds.lake import builders
from tests.worlds.pages.frames import frame_with
from tests.worlds.pages.opened import again, home, open_page, words

__all__ = ["home"]


@pytest.fixture
def tagged(home: Path) -> Path:
    log = builders.HandLog(home / "lake" / "tagged")
    settings = {
        "delta.logRetentionDuration": "interval 3 days",
        "delta.apendOnly": "true",
        "catalog.team_name": "Data Platform",
        "catalog.engineering.comms.slack": "#data",
    }
    log.commit(builders.protocol(), builders.metadata(configuration=settings), builders.commit_info("CREATE TABLE"))
    return home


def rows(app: object) -> dict[str, dict[str, str]]:
    frames = [frame.value for frame in app.table if "Property" in frame.value.columns]  # type: ignore[attr-defined]
    plain = [frame.map(lambda text: text.replace("\\", "")) for frame in frames]
    return {row["Property"].split("**")[1]: row for frame in plain for row in frame.to_dict("records")}


def test_set_values_stand_beside_their_defaults(tagged: Path) -> None:
    found = rows(open_page("properties", table="tagged"))
    row = found["delta.logRetentionDuration"]
    assert (row["Value"], row["Default"]) == ("interval 3 days", "interval 30 days")
    assert found["delta.checkpointInterval"]["Default"] == "10"


def test_what_is_set_is_first_and_the_defaults_are_folded(tagged: Path) -> None:
    app = open_page("properties", table="tagged")
    (fold,) = [each for each in app.expander if "default" in each.label]
    assert not fold.proto.expanded and fold.label.startswith("4")  # forty and some
    first = next(frame.value for frame in app.table if "Property" in frame.value.columns)
    assert len(first) == 4 and "apendOnly" in first["Property"][0]  # what is wrong leads
    inside = [cell for frame in fold.table for cell in frame.value["Property"]]
    assert not any("logRetentionDuration" in cell for cell in inside)
    searched = open_page("properties", table="tagged", q="isolationLevel")
    (fold,) = [each for each in searched.expander if "default" in each.label]
    assert fold.proto.expanded and "No property that is set here matches" in words(searched)


def test_a_misspelled_key_is_flagged_with_the_nearest_known_one(tagged: Path) -> None:
    warning = open_page("properties", table="tagged").main.warning[0].value.replace("\\", "")
    assert "delta.apendOnly" in warning and "delta.appendOnly" in warning


def test_whose_table_it_is_stands_in_its_head_and_among_what_is_set(tagged: Path) -> None:
    app = open_page("properties", table="tagged")
    assert "Data Platform" in words(app) and any("#data" in cell for cell in cells(app))
    assert "Ownership" not in words(app)


@pytest.mark.parametrize("page", ["table", "properties"])
def test_whom_to_ask_is_a_link_and_what_is_no_address_stays_text(home: Path, page: str) -> None:
    log = builders.HandLog(home / "lake" / "owned")
    start = "catalog.engineering.comms."
    contacts = {f"{start}email": "orders@example.com", f"{start}slack": "[#orders](javascript:alert(1))"}
    log.commit(builders.protocol(), builders.metadata(configuration=contacts), builders.commit_info("CREATE TABLE"))
    app = open_page(page, table="owned")
    shown = [*(each.value for each in (*app.main.markdown, *app.main.caption)), *cells(app)]
    if page == "table":
        assert any("[orders:color[\\@]example\\.com](mailto:orders@example.com)" in text for text in shown)
    assert not any("](javascript" in text for text in shown) and any("javascript" in text for text in shown)


def cells(app: object) -> list[str]:
    return [str(cell) for frame in app.table for cell in frame.value.to_numpy().flatten()]  # type: ignore[attr-defined]


def test_filters_are_in_the_url(tagged: Path) -> None:
    found = set(rows(open_page("properties", table="tagged", q="retention")))
    assert "delta.logRetentionDuration" in found and all("Retention" in name for name in found)
    app = open_page("properties", table="tagged", q="no such word")
    assert not rows(app) and "No property matches" in words(app)
    app.text_input(key="q").set_value("")
    assert rows(again(app))


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
        ["Property", "team", "removed", "a", "–"],
        ["Protocol", "reader", "changed", "1", "3"],
        ["Protocol", "writer", "changed", "2", "7"],
        ["Feature", "deletionVectors", "added", "–", "supported"],
    ]
    assert "Rows can only be added" in frame["Meaning"][0]
    assert "v0 → v2 · 5 changes: 1 added, 1 removed, 3 changed" in words(app).replace("*", "")
    assert "1 change of columns beside" in words(app)


def test_versions_with_the_same_properties_say_so(changed: Path) -> None:
    assert "v1 → v2: properties, protocol and features are the same" in words(
        open_page("properties", table="changed", compare="1")
    ).replace("*", "")
    assert "Both are v2" in words(open_page("properties", table="changed", compare="2"))


def test_a_pinned_version_shows_its_own_properties(changed: Path) -> None:
    assert rows(open_page("properties", table="changed", version=0))["delta.appendOnly"]["Value"] == "false"
    assert rows(open_page("properties", table="changed"))["delta.appendOnly"]["Value"] == "true"


@pytest.mark.parametrize("compare", ["99", "soon"])
def test_a_version_that_is_not_there_is_an_error_and_the_rest_stays(changed: Path, compare: str) -> None:
    app = open_page("properties", table="changed", compare=compare)
    assert len(app.error) == 1 and compare in app.error[0].value
    assert "delta.appendOnly" in rows(app)
