"""Properties: whose table, what is set, what is wrong, which features."""

from pathlib import Path

import pytest

from tests import builders
from tests.ui.frames import frame_with
from tests.ui.opened import again, home, open_page, words

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
    frames = [frame.value for frame in app.dataframe if "Property" in frame.value.columns]  # type: ignore[attr-defined]
    return {row["Property"]: row for frame in frames for row in frame.to_dict("records")}


def test_set_values_stand_beside_their_defaults(tagged: Path) -> None:
    found = rows(open_page("properties", table="tagged"))
    row = found["delta.logRetentionDuration"]
    assert (row["Value"], row["Default"], row["Set here"]) == ("interval 3 days", "interval 30 days", "● set")
    assert found["delta.checkpointInterval"]["Value"] == "10"


def test_a_misspelled_key_is_flagged_with_the_nearest_known_one(tagged: Path) -> None:
    warning = open_page("properties", table="tagged").main.warning[0].value.replace("\\", "")
    assert "delta.apendOnly" in warning and "delta.appendOnly" in warning


def test_ownership_is_a_card(tagged: Path) -> None:
    text = words(open_page("properties", table="tagged"))
    assert "Ownership" in text and "Data Platform" in text and "#data" in text


def test_a_table_of_nobody_says_how_to_name_its_owner(home: Path) -> None:
    builders.write(home / "lake" / "plain", {"id": [1]})
    assert "Set `catalog.team_name`" in words(open_page("properties", table="plain"))


def test_filters_are_in_the_url(tagged: Path) -> None:
    assert set(rows(open_page("properties", table="tagged", show="Set here", q="retention"))) == {
        "delta.logRetentionDuration"
    }
    app = open_page("properties", table="tagged", q="no such word")
    assert not rows(app) and "No property matches" in words(app)
    app.text_input(key="q").set_value("")
    assert rows(again(app))


def test_features_are_explained(home: Path) -> None:
    builders.write(home / "lake" / "fed", {"id": [1]}, configuration=builders.CHANGE_FEED)
    app = open_page("properties", table="fed")
    frame = frame_with(app, "Feature")
    assert "changeDataFeed" in frame["Feature"].tolist() and all(frame["Meaning"])
