"""Versions: the strip, the answers for one version, files looked for on request, numbers over versions."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from streamlit.testing.v1 import AppTest

from backend.errors import StorageError
from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.lake.retention.file_check import LogSeen
from backend.settings import load_settings
from backend.store.store import ControlStore
from tests.worlds.lake import builders
from tests.worlds.pages.fixtures import Place
from tests.worlds.pages.frames import frame_with, titles
from tests.worlds.pages.opened import again, keys, links, open_page, param, press, send, words


@pytest.fixture
def orders(place: Place) -> Path:
    return place(builders.orders_table, "orders")


def plain(app: AppTest) -> str:
    return words(app).replace("*", "")


def test_a_young_table_can_be_read_at_every_version(orders: Path) -> None:
    app = open_page("versions", table="orders")
    assert "All 4 versions can be read" in titles(app) and "v3 is the latest version" in plain(app)
    assert "it is the latest version, which is never refused" in words(app).lower()
    assert "TO VERSION AS OF" not in words(app), "the latest needs no restore"
    app.segmented_control(key="view").set_value("Numbers over versions")
    assert "Rows grew from 3 to 4 over 4 versions" in titles(again(app)) and "can be read" not in titles(app)


def test_a_link_opens_one_version_with_its_end_the_setting_and_its_changes_since(orders: Path) -> None:
    app = open_page("versions", table="orders", at=1)
    text = words(app)
    assert "v1 can be read and restored until" in text.replace("*", "") and "unless a VACUUM runs" in text
    assert text.count(":green[yes, until ") == 3
    assert app.button(key="restore").label == "Restore…"
    assert "delta.deletedFileRetentionDuration is 7 days (the default)" in text.replace("`", "")
    assert "14 days would make it until" in text
    changes = links(app)["Changes from v1 to v3"]
    assert "from=1" in changes and "to=3" in changes
    captions = " ".join(caption.value.replace("\\", "") for caption in app.expander[0].caption)
    sentences = [sentence.strip() for sentence in captions.split(". ") if sentence.strip()]
    assert len(sentences) > 5 and len(set(sentences)) == len(sentences), "none stands twice"


def test_a_version_is_chosen_in_numbers_or_words_and_what_is_none_is_said(orders: Path) -> None:
    for at in ("99", "-1", "x", ""):
        assert "v3 is the latest version" in plain(open_page("versions", table="orders", at=at)), at
    app = open_page("versions", table="orders")
    for typed, version in (("-1", "2"), ("0 s ago", "3")):
        app.text_input(key="at_input").set_value(typed)
        again(app)
        assert param(app, "at") == version
    app.text_input(key="at_input").set_value("soon")
    again(app)
    assert "Not a version: 'soon'" in words(app) and param(app, "at") == "3"
    assert app.text_input(key="at_input").value == "3"


def test_files_are_looked_for_on_request(orders: Path) -> None:
    DeltaTable(str(orders)).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    app = open_page("versions", table="orders", at=1)
    assert ":orange[not certain" in words(app) and "A VACUUM with a shorter retention" in words(app)
    press(app, "look_sample")
    assert "2 files are gone, of 2" in words(app) or "1 file is gone, of 2" in words(app)
    assert ":red[no]" in words(app)
    press(app, "look_all")
    assert "at least one is gone" in titles(app) and "all found" in titles(app)


def test_a_cleaned_log_says_what_is_gone(home: Path) -> None:
    log = builders.HandLog(home / "lake" / "cleaned").start()
    for number in range(5):
        log.commit(builders.commit_info(), builders.add(f"{number}.parquet"))
    adds = [builders.add(f"{number}.parquet") for number in range(3)]
    log.checkpoint(3, [builders.protocol(), builders.metadata(), *adds])
    for version in range(3):
        (log.log / f"{version:020d}.json").unlink()
    app = open_page("versions", table="cleaned", at=1)
    assert "1 of 6 versions can be read with Delta 4.1 and later, 3 with other readers" in titles(app)
    assert "the oldest version that can be rebuilt is 3" in words(app)
    assert "look_sample" not in keys(app.button)


def test_a_table_of_one_version_and_one_with_a_gap(home: Path) -> None:
    builders.HandLog(home / "lake" / "one").start()
    assert "The only version can be read" in titles(open_page("versions", table="one"))
    assert "Rows: 0 at v0" in titles(open_page("versions", table="one", view="Numbers over versions"))
    builders.HandLog(home / "lake" / "gap").start().commit(builders.commit_info(), version=2)
    assert "cannot be read" in words(open_page("versions", table="gap"))


def test_a_broken_newest_commit_leaves_the_versions_before_it(orders: Path) -> None:
    (orders / "_delta_log" / f"{3:020d}.json").write_text('{"add": garbage')
    app = open_page("versions", table="orders")
    assert "not JSON" in app.error[0].value and not app.main.warning and "3 of 4 versions can be read" in titles(app)
    assert "v2" in plain(app)
    (link,) = app.main.page_link
    assert link.label == "Open v2" and "version=2" in link.proto.query_string


def test_a_look_that_failed_is_offered_again_and_begins_at_a_click_alone(
    orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[TableRef] = []

    def down(_: Lake, ref: TableRef) -> Iterator[LogSeen]:
        looks.append(ref)
        raise StorageError("the storage did not answer", hint="try again")

    monkeypatch.setattr(Lake, "see_log", down)
    app = open_page("versions", table="orders")
    app.button(key="look_all").click()
    assert "The storage did not answer" in words(again(app))
    assert not again(app).error and len(looks) == 1
    app.button(key="look_all").click()
    assert "The storage did not answer" in words(again(app)) and len(looks) == 2


def test_the_tables_own_numbers_and_a_column_by_statistics(orders: Path) -> None:
    for number, title in (("Files", "Files grew from 1 to"), ("Size", "Size "), ("Small files", "Small")):
        assert title in titles(open_page("versions", table="orders", number=number, over="Versions"))
    app = open_page("versions", table="orders", number="One column", column="amount", measure="Highest")
    assert "Highest amount grew from 30 to 50 over 4 versions" in titles(app)
    assert frame_with(app, "Value")["Value"].tolist() == ["50.0", "50.0", "50.0", "30.0"]


def test_an_aggregate_is_computed_after_a_click_and_kept(orders: Path) -> None:
    link = {"number": "SQL aggregate", "sql": "sum(amount)"}
    app = open_page("versions", table="orders", **link)
    assert "sum(amount)" not in titles(app)
    press(app, "compute")
    assert "sum(amount) grew from 60 to 145 over 4 versions" in titles(app)
    assert "Cancel" not in [button.label for button in app.button]
    assert frame_with(app, "Value")["Value"].tolist() == ["145.0", "155.0", "150.0", "60.0"]
    assert "sum(amount) grew from 60 to 145" in titles(open_page("versions", table="orders", **link))
    app = open_page("versions", table="orders", number="SQL aggregate", sql="max(status)", first=1, last=2)
    press(app, "compute")
    assert frame_with(app, "Value")["Value"].tolist() == ["paid", "new"], "one of text is a list"


def test_a_wrong_aggregate_shows_its_place(orders: Path) -> None:
    app = open_page("versions", table="orders", number="SQL aggregate", sql="sum(amuont)")
    press(app, "compute")
    assert "There is no column 'amuont' (character 5)" in words(app) and "Did you mean amount?" in words(app)
    assert "sum(amuont)\n    ^" in words(app)


def test_a_version_is_pinned_and_unpinned(orders: Path, store: ControlStore) -> None:
    app = open_page("versions", table="orders", at=1)
    press(app, "pin")
    assert "VACUUM by Weir is refused while it would delete a file of this version" in words(app)
    press(app, "pin_send")
    assert "A reason is needed" in words(app)
    app.text_input(key="pin_called").set_value("may")
    app.text_input(key="pin_until").set_value("2999-12-31")
    send(app, "pin", "audit of May")
    assert "v1 is pinned as may by" in words(app) and ", until 2999-12-31 23:59:59 UTC: audit of May." in words(app)
    ref = Lake(load_settings()).find("orders")
    assert [(pin.version, pin.reason, pin.name) for pin in store.pins.of_table(ref)] == [(1, "audit of May", "may")]
    picker = open_page("changes", table="orders", from_="may").selectbox(key="pick_from")
    assert picker.value == "may" and "may · v1" in picker.options

    other = open_page("versions", table="orders", at=2)
    assert other.button(key="pin").label == "Pin…" and links(other)["Show v1"] == "table=orders&at=1"
    app = open_page("versions", table="orders", at=1)
    press(app, "pin")
    send(app, "pin", "audited")
    assert "v1 is not pinned any more" in words(app) and store.pins.of_table(ref) == []
    assert [entry.action for entry in store.audit_entries(subject="orders")] == ["unpin", "pin"]
