"""History: commits, the detail of one, two to compare, filters in the URL, what commits changed, links to streams."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pandas as pd
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Block, Dataframe, Table

from app import services, viewer
from app.cli import main
from app.history import view as history_filter
from backend.store.store import ControlStore
from tests.worlds.lake import builders
from tests.worlds.pages.fixtures import Place
from tests.worlds.pages.frames import frame_with, titles
from tests.worlds.pages.opened import again, forget_caches, links, open_page, param, plain, press, words
from tests.worlds.store import stream_store


def listed(app: AppTest) -> pd.DataFrame:
    """The list of commits."""
    return frame_with(app, "Version", "Operation")


def versions(app: AppTest) -> list[int]:
    return list(listed(app)["Version"])


def walk(block: Block) -> Iterator[str]:
    """The list of commits and the facts of one, in the order of the page."""
    for child in block.children.values():
        if isinstance(child, Block):
            yield from walk(child)
        elif isinstance(child, Dataframe) and "Version" in child.value.columns:
            yield "list"
        elif isinstance(child, Table):
            yield "facts"


def test_commits_are_newest_first_with_what_they_did_and_two_lead_to_their_changes(orders: Path) -> None:
    app = open_page("history", table="silver/orders", figure="Files")
    assert "Files grew from" in titles(app) and app.segmented_control(key="figure").value == "Files"
    frame = listed(app)
    assert frame["Version"].tolist() == [3, 2, 1, 0]
    assert frame["Operation"].tolist() == ["✕ DELETE", "▲ UPDATE", "● WRITE", "● WRITE"]
    assert frame["Rows"].tolist() == ["−1", "~1", "+2", "+3"]
    assert "Tick a commit" in words(app)
    app.query_params["commit"] = ["3", "1"]
    again(app)
    assert "v1 → v3" in words(app)
    link = links(app)["Changes from v1 to v3"]
    assert "from=1" in link and "to=3" in link


def test_a_link_opens_one_commit_below_the_list_and_closing_it_clears_the_link(orders: Path) -> None:
    """A tick must not move the list: above it is one bar, which is there without a tick too."""
    app = open_page("history", table="silver/orders", commit=2)
    assert "v2 · UPDATE" in words(app) and "Tick a commit" not in words(app)
    facts = {row["Name"]: row["Value"] for frame in app.table for row in frame.value.to_dict("records")}
    assert facts["Rows updated"] == "1"
    assert "predicate" in frame_with(app, "Name")["Name"].tolist()
    kinds = list(walk(app.main))
    assert kinds[0] == "list" and "facts" in kinds
    press(app, "clear_commits")
    assert "commit" not in app.query_params and "v2 · UPDATE" not in words(app)


def test_a_commit_that_is_not_there_is_an_answer(orders: Path) -> None:
    for commit in ("99", "-1", "x", ""):
        app = open_page("history", table="silver/orders", commit=commit)
        assert versions(app) == [3, 2, 1, 0]
        assert ("not in the log" in words(app)) == (commit == "99"), commit


def test_an_unusual_jump_leads_to_its_changes_and_the_search(home: Path) -> None:
    for number in range(12):
        builders.write(home / "lake" / "jumpy", {"id": list(range(3 if number != 9 else 400))})
    app = open_page("history", table="jumpy")
    assert "v9 ● WRITE: +400 rows; a commit usually brings +3." in words(app).replace("*", "")
    changes = links(app)["Changes v8 → v9"]
    assert "from=8" in changes and "to=9" in changes and "good=8" in links(app)["First bad version"]
    assert "a commit usually brings" not in words(open_page("history", table="jumpy", figure="Files"))


def test_commits_that_a_catalog_decides_on_are_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = builders.HandLog(home / "lake" / "managed")
    log.commit(builders.protocol(3, 7, ["catalogManaged"]), builders.metadata(), builders.commit_info("CREATE TABLE"))
    (log.log / "_staged_commits").mkdir()
    for name in (f"{0:020d}.{uuid4()}", f"{1:020d}.{uuid4()}", f"{2:020d}.{uuid4()}", f"{3:020d}.tmp"):
        (log.log / "_staged_commits" / f"{name}.json").write_text("{}")
    told = "v1 to v2 are staged beyond this list"
    assert told in words(open_page("history", table="managed"))
    services.forget()
    with pytest.raises(SystemExit, match="0"):
        main(["history", "managed"])
    services.forget()
    assert told in capsys.readouterr().out


# Filters ----------------------------------------------------------------

START = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)


def commits_of_a_day(path: Path) -> Path:
    """251 commits a minute apart: WRITE by ann (5: by bob), each 20th OPTIMIZE, each 7th of a stream, one odd (245)."""
    log = builders.HandLog(path).start()
    for version in range(1, 251):
        operation = "OPTIMIZE" if version % 20 == 0 else "WRITE"
        more: dict[str, Any] = {"userName": "bob" if version == 5 else "ann", "engineInfo": "Spark/4"}
        if version % 7 == 0:
            origin = {"stream": "silver_orders", "batch_id": version, "query_id": "q", "run_id": "r"}
            more["userMetadata"] = json.dumps(origin)
        info = builders.commit_info(operation, timestamp=START + version * 60_000, **more)
        log.commit({"commitInfo": "odd"} if version == 245 else info)
    return path


@pytest.fixture
def mixed(place: Place, monkeypatch: pytest.MonkeyPatch) -> Path:
    """They are looked at 200 at a time."""
    monkeypatch.setattr(history_filter, "LOOK", 200)
    return place(commits_of_a_day, "mixed")


def mixed_page(**params: str | int) -> AppTest:
    return open_page("history", table="mixed", **params)


def test_a_filter_keeps_what_fits_and_says_how_far_it_looked(mixed: Path) -> None:
    app = mixed_page(operation="OPTIMIZE")
    assert versions(app) == list(range(240, 40, -20))
    assert "10 commits fit. The newest 200 of 251 were looked at." in words(app)
    press(app, "look_further")
    assert versions(app) == list(range(240, 0, -20))
    assert "12 commits fit. Every commit in the log was looked at." in words(app)


def test_choices_are_those_that_occur_with_counts(mixed: Path) -> None:
    app = mixed_page(filter="true")
    picks = app.multiselect(key="pick_operation")
    assert picks.options == ["WRITE · 189", "OPTIMIZE · 10", "not named · 1"]
    assert app.multiselect(key="pick_user").options == ["ann · 199", "not named · 1"]
    picks.set_value(["not named"])
    again(app)
    assert param(app, "operation") == "not named" and versions(app) == [245]


def test_groups_and_times_work_together_and_choices_are_counted_within_the_time(mixed: Path) -> None:
    app = mixed_page(written_by="silver_orders", since="2026-01-01", until="2026-01-01 01:00")
    assert versions(app) == list(range(56, 0, -7))
    assert "8 commits fit. Every commit of that time was looked at." in words(app)
    app = mixed_page(since="2026-01-01 04:00")
    assert app.multiselect(key="pick_operation").options == ["WRITE · 9", "not named · 1", "OPTIMIZE · 1"]
    assert "11 commits fit. Every commit of that time was looked at." in words(app)
    assert listed(app)["Committed at"].tolist()[-1] == "2026-01-01 04:00:00 UTC"


def test_a_clock_time_is_the_viewers(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "now", lambda: datetime(2026, 1, 1, 1, tzinfo=UTC))
    monkeypatch.setattr(viewer, "timezone", lambda: "Asia/Tokyo")
    assert versions(mixed_page(since="09:30", until="today 09:40")) == list(range(40, 29, -1))
    assert versions(mixed_page(since="15 min ago", until="9:50")) == list(range(50, 44, -1))


def test_what_nobody_did_is_an_answer_and_can_be_cleared(mixed: Path) -> None:
    app = mixed_page(user="bob", look=200)
    assert "No commit that was looked at fits" in words(app)
    assert app.multiselect(key="pick_user").value == ["bob"]
    press(app, "clear_filters")
    assert "user" not in app.query_params and len(listed(app)) == 100
    for limit, text in (("since", "yesteryear"), ("since", "200000 w"), ("until", "900000 d")):
        app = mixed_page(**{limit: text})
        assert text in plain(app.error[0].value) and "2 h ago" in app.error[0].value


def test_commits_come_in_pages_and_without_a_filter_the_newest_page_alone_is_read(mixed: Path) -> None:
    app = mixed_page()
    assert versions(app) == list(range(250, 150, -1)) and "100 of 251 commits" in words(app)
    assert "not an object" in listed(app).set_index("Version")["Note"][245]
    assert "were looked at" not in words(app)
    assert versions(mixed_page(page_=3)) == list(range(50, -1, -1))
    fit = versions(mixed_page(user="ann", page_=2))
    assert fit[0] == 149 and len(fit) == 99


def test_a_stream_that_weir_knows_is_a_link_to_its_batch(mixed: Path, store: ControlStore, now: datetime) -> None:
    app = mixed_page(commit=238)
    label = "Stream silver_orders, batch 238"
    assert "silver_orders, batch 238" in words(app) and label not in links(app), "nobody knows it"
    stream_store.declare(store, "silver_orders", now)
    forget_caches()
    link = links(mixed_page(commit=238))[label]
    assert "stream=silver_orders" in link and "batch=238" in link


def test_what_commits_changed_is_in_the_list_and_in_the_detail(home: Path) -> None:
    path = builders.write(home / "lake" / "altered", {"id": [1]})
    DeltaTable(str(path)).alter.set_table_properties({"delta.appendOnly": "false"})
    DeltaTable(str(path)).alter.add_columns([Field("discount", PrimitiveType("decimal(10,2)"))])
    DeltaTable(str(path)).alter.add_constraint({"positive": "id > 0"})
    builders.write(path, {"id": [2], "discount": [None]}, schema_mode="merge")
    app = open_page("history", table="altered", commit=2)
    changed = listed(app).set_index("Version")["Changed"]
    assert changed[0] == "created with 1 column"
    assert changed[1] == "+ delta.appendOnly = false"
    assert changed[2] == "+ column discount decimal(10,2)"
    assert changed[3].startswith("+ constraint positive = id > 0; writer 2 → 3")
    assert changed[4] == ""
    frame = frame_with(app, "What", "Before", "After")
    assert frame[["What", "Name", "Change", "Before", "After"]].values.tolist() == [
        ["Column", "discount", "added", None, "decimal(10,2)"]
    ]


def test_changes_stand_against_what_held_before_a_page(home: Path) -> None:
    log = builders.HandLog(home / "lake" / "long").start(configuration={"delta.appendOnly": "false"})
    for version in range(1, 150):
        log.commit(builders.commit_info("WRITE", timestamp=START + version))
    log.commit(builders.metadata(configuration={"delta.appendOnly": "true"}), builders.commit_info("SET TBLPROPERTIES"))
    changed = listed(open_page("history", table="long")).set_index("Version")["Changed"]
    assert changed[150] == "delta.appendOnly false → true" and set(changed.drop(150)) == {""}
