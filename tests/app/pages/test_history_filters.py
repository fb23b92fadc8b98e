"""History: filters in the URL, how far they looked, what commits changed of their table, links to streams."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType
from streamlit.testing.v1 import AppTest

from app import services, viewer
from app.history.view import filters as history_filter
from tests.worlds.lake import builders
from tests.worlds.pages.frames import frame_with
from tests.worlds.pages.opened import again, home, open_page, plain, press, words
from tests.worlds.store import stream_store

__all__ = ["home"]

START = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
MINUTE = 60_000


def stamp(stream: str, batch: int) -> str:
    return json.dumps({"stream": stream, "batch_id": batch, "query_id": "q", "run_id": "r"})


@pytest.fixture
def mixed(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """251 commits a minute apart, 200 looked at at a time: WRITE by ann (5: by bob), each 20th OPTIMIZE, each 7th of a
    stream, one odd entry (245)."""
    monkeypatch.setattr(history_filter, "LOOK", 200)
    log = builders.HandLog(home / "lake" / "mixed").start()
    for version in range(1, 251):
        operation = "OPTIMIZE" if version % 20 == 0 else "WRITE"
        more: dict[str, Any] = {"userName": "bob" if version == 5 else "ann", "engineInfo": "Spark/4"}
        if version % 7 == 0:
            more["userMetadata"] = stamp("silver_orders", version)
        info = builders.commit_info(operation, timestamp=START + version * MINUTE, **more)
        log.commit({"commitInfo": "odd"} if version == 245 else info)
    return home


def listed(app: AppTest) -> pd.DataFrame:
    return frame_with(app, "Version", "Operation")


def test_a_filter_keeps_what_fits_and_says_how_far_it_looked(mixed: Path) -> None:
    app = open_page("history", table="mixed", operation="OPTIMIZE")
    assert listed(app)["Version"].tolist() == list(range(240, 40, -20))
    assert "10 commits fit. The newest 200 of 251 were looked at." in words(app)
    press(app, "look_further")
    assert listed(app)["Version"].tolist() == list(range(240, 0, -20))
    assert "12 commits fit. Every commit in the log was looked at." in words(app)


def test_choices_are_those_that_occur_with_counts(mixed: Path) -> None:
    app = open_page("history", table="mixed", filter="true")
    picks = app.multiselect(key="pick_operation")
    assert picks.options == ["WRITE · 189", "OPTIMIZE · 10", "not named · 1"]
    assert app.multiselect(key="pick_user").options == ["ann · 199", "not named · 1"]
    picks.set_value(["not named"])
    again(app)
    assert app.query_params["operation"] in ("not named", ["not named"])
    assert listed(app)["Version"].tolist() == [245]


def test_groups_and_times_work_together(mixed: Path) -> None:
    params = {"written_by": "silver_orders", "since": "2026-01-01", "until": "2026-01-01 01:00"}
    app = open_page("history", table="mixed", **params)
    assert listed(app)["Version"].tolist() == list(range(56, 0, -7))
    assert "8 commits fit. Every commit of that time was looked at." in words(app)


def test_choices_are_counted_within_the_time_asked(mixed: Path) -> None:
    app = open_page("history", table="mixed", since="2026-01-01 04:00")
    assert app.multiselect(key="pick_operation").options == ["WRITE · 9", "not named · 1", "OPTIMIZE · 1"]
    assert "11 commits fit. Every commit of that time was looked at." in words(app)
    assert listed(app)["Committed at"].tolist()[-1] == "2026-01-01 04:00:00 UTC"


def test_a_clock_time_is_the_viewers(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "now", lambda: datetime(2026, 1, 1, 1, tzinfo=UTC))
    monkeypatch.setattr(viewer, "timezone", lambda: "Asia/Tokyo")
    app = open_page("history", table="mixed", since="09:30", until="today 09:40")
    assert listed(app)["Version"].tolist() == list(range(40, 29, -1))
    app = open_page("history", table="mixed", since="15 min ago", until="9:50")
    assert listed(app)["Version"].tolist() == list(range(50, 44, -1))


def test_what_fits_comes_in_pages(mixed: Path) -> None:
    app = open_page("history", table="mixed", user="ann", page_=2)
    assert listed(app)["Version"].tolist()[0] == 149 and len(listed(app)) == 99


def test_what_nobody_did_is_an_answer_and_can_be_cleared(mixed: Path) -> None:
    app = open_page("history", table="mixed", user="bob", look=200)
    assert "No commit that was looked at fits" in words(app)
    assert app.multiselect(key="pick_user").value == ["bob"]
    press(app, "clear_filters")
    assert "user" not in app.query_params and len(listed(app)) == 100


@pytest.mark.parametrize(("limit", "text"), [("since", "yesteryear"), ("since", "200000 w"), ("until", "900000 d")])
def test_a_time_that_is_none_is_an_error_with_a_hint(mixed: Path, limit: str, text: str) -> None:
    app = open_page("history", table="mixed", **{limit: text})
    assert text in plain(app.error[0].value) and "2 h ago" in app.error[0].value


def test_the_newest_page_alone_is_read_without_a_filter(mixed: Path) -> None:
    app = open_page("history", table="mixed")
    frame = listed(app)
    assert frame["Version"].tolist() == list(range(250, 150, -1))
    assert "not an object" in frame.set_index("Version")["Note"][245]
    assert "were looked at" not in words(app)


def test_a_stream_that_weir_knows_is_a_link_to_its_batch(mixed: Path) -> None:
    store = stream_store.open_store(mixed)
    stream_store.declare(store, "silver_orders", datetime.now(UTC))
    store.close()
    (link,) = stream_links(open_page("history", table="mixed", commit=238))
    assert plain(link.label) == "Stream silver_orders, batch 238"
    assert "stream=silver_orders" in link.proto.query_string and "batch=238" in link.proto.query_string


def test_a_stream_that_weir_does_not_know_is_no_link(mixed: Path) -> None:
    app = open_page("history", table="mixed", commit=238)
    assert "silver_orders, batch 238" in words(app) and not stream_links(app)


def stream_links(app: AppTest) -> list[Any]:
    return [link for link in app.main.page_link if link.label.startswith("Stream ")]


@pytest.fixture
def altered(home: Path) -> Path:
    """0 write, 1 properties set, 2 column added, 3 constraint added, 4 append."""
    path = builders.write(home / "lake" / "altered", {"id": [1]})
    DeltaTable(str(path)).alter.set_table_properties({"delta.appendOnly": "false"})
    DeltaTable(str(path)).alter.add_columns([Field("discount", PrimitiveType("decimal(10,2)"))])
    DeltaTable(str(path)).alter.add_constraint({"positive": "id > 0"})
    builders.write(path, {"id": [2], "discount": [None]}, schema_mode="merge")
    return path


def test_what_commits_changed_is_in_the_list(altered: Path) -> None:
    changed = listed(open_page("history", table="altered")).set_index("Version")["Changed"]
    assert changed[0] == "created with 1 column"
    assert changed[1] == "+ delta.appendOnly = false"
    assert changed[2] == "+ column discount decimal(10,2)"
    assert changed[3].startswith("+ constraint positive = id > 0; writer 2 → 3")
    assert changed[4] == ""


def test_the_detail_shows_the_changes_of_one_commit(altered: Path) -> None:
    app = open_page("history", table="altered", commit=2)
    frame = frame_with(app, "What", "Before", "After")
    assert frame[["What", "Name", "Change", "Before", "After"]].values.tolist() == [
        ["Column", "discount", "added", "–", "decimal(10,2)"]
    ]


def test_changes_stand_against_what_held_before_a_page(home: Path) -> None:
    log = builders.HandLog(home / "lake" / "long").start(configuration={"delta.appendOnly": "false"})
    for version in range(1, 150):
        log.commit(builders.commit_info("WRITE", timestamp=START + version))
    log.commit(builders.metadata(configuration={"delta.appendOnly": "true"}), builders.commit_info("SET TBLPROPERTIES"))
    changed = listed(open_page("history", table="long")).set_index("Version")["Changed"]
    assert changed[150] == "delta.appendOnly false → true" and set(changed.drop(150)) == {""}


def test_maintenance_is_dimmed_never_hidden(mixed: Path) -> None:
    dimmed = open_page("history", table="mixed")
    plain = open_page("history", table="mixed", dim="false")
    assert listed(dimmed)["Version"].tolist() == listed(plain)["Version"].tolist()
    assert [styles(app) for app in (dimmed, plain)] == [True, False]


def styles(app: AppTest) -> bool:
    frame = next(frame for frame in app.dataframe if "Operation" in frame.value.columns)
    return "italic" in frame.proto.arrow_data.styler.styles
