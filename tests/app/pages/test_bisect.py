"""First bad version: nothing runs before the click, the answer and its links, the permalink, cancel and errors."""

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from deltalake import DeltaTable
from streamlit.testing.v1 import AppTest

from app import services
from app.search.page import bisects
from backend.lake.lake import Lake
from backend.search import search
from backend.search.notice import Measure, Notice
from backend.search.search import BisectProgress
from tests.worlds.lake import builders
from tests.worlds.lake.planted import METADATA, plant
from tests.worlds.pages.fixtures import Place
from tests.worlds.pages.frames import frame_with
from tests.worlds.pages.opened import again, forget_caches, linked_params, links, open_page, param, press, words
from tests.worlds.store import stream_store


@pytest.fixture
def orders(place: Place) -> Path:
    """v0 – v3 good, v4 compacts, v5 brings a bad row, v6 – v7 append good ones."""
    return place(builders.broken_orders, "orders")


@pytest.fixture
def scans(home: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The versions of this test's tables whose rows were read, not to judge commits."""
    monkeypatch.setenv("WEIR_LAKE__JUDGED_ROWS", "0")
    read: list[int] = []
    read_files = Lake.read_files

    def watched(self: Lake, snapshot: Any, *args: Any, **more: Any) -> Any:
        read.extend([snapshot.version] if str(home) in snapshot.ref.uri else [])
        return read_files(self, snapshot, *args, **more)

    monkeypatch.setattr(Lake, "read_files", watched)
    return read


def bisect(**link: str) -> AppTest:
    return open_page("bisect", **{"table": "orders", "condition": "amount >= 0"} | link)


def find(app: AppTest) -> AppTest:
    return press(app, "find")


def rows_link(app: AppTest, version: int) -> str:
    """Where "What v5 changed" leads."""
    (link,) = [link for link in app.get("page_link") if link.proto.label == f"What v{version} changed"]
    return str(link.proto.query_string)


def test_nothing_runs_before_the_click(orders: Path, scans: list[int]) -> None:
    app = bisect()
    assert not scans and "Nothing was read yet" in words(app)
    find(app)
    assert scans and "v5 (WRITE" in words(app) and "is the first version that breaks `amount >= 0`" in words(app)
    assert "v4 is the last good version: 0 of 4 rows violate it" in words(app)
    assert "v5 is the first bad version: 1 of 6 rows violates it, 1 gives null and passes" in words(app)
    probes = frame_with(app, "Outcome", "It gave")
    assert dict(zip(probes["Version"], probes["Outcome"], strict=True))[5] == "✕ bad"
    read = dict(zip(probes["Version"], probes["Read"], strict=True))
    assert read[0].startswith("1 of 1 file, 1 row, ") and read[5] == "nothing: 2 files judged before"
    assert frame_with(app, "amount")["amount"].tolist() == ["-4.0"]
    assert rows_link(app, 5) == "table=orders&from=4&to=5&view=Rows&rows_where=NOT+%28amount+%3E%3D+0%29"
    leads = {link.proto.label: link.proto.query_string for link in app.get("page_link")}
    assert "version=4" in leads["Table at v4"] and "at=4" in leads["Can v4 be restored?"]


def test_a_filter_of_data_leads_here_with_its_rows_as_what_must_not_be_there(orders: Path) -> None:
    bad = "amount < 0 OR amount IS NULL"
    leads_to = links(open_page("table", table="orders", view="Data", where=bad))["First bad version"]
    given = linked_params(leads_to)
    assert given == {"table": "orders", "condition": f"NOT ({bad})", "bad": "7"}
    app = find(open_page("bisect", **given))
    first = next(v for v in range(8) if (DeltaTable(orders, v).to_pyarrow_table()["amount"].to_pandas().lt(0)).any())
    assert f"v{first}" in words(app) and first == 5
    long = f"amount IN ({', '.join(f'{number}.25' for number in range(400))}) OR amount > 0 -- many"
    leads_to = links(open_page("table", table="orders", view="Data", where=long))["First bad version"]
    given = linked_params(leads_to)
    whole = f"NOT ({long.removesuffix(' -- many')})"
    assert open_page("bisect", **given).text_input(key="condition").value == whole and len(whole) > 3_000
    nothing = links(open_page("table", table="orders", view="Data", where="amount < -1e9"))
    everything = links(open_page("table", table="orders"))
    assert nothing["First bad version"] == everything["First bad version"] == "table=orders"  # that of every table


def test_rows_that_break_an_aggregate_are_listed_or_it_is_said_that_none_does(orders: Path) -> None:
    app = find(bisect(condition="min(amount) >= 0"))
    assert frame_with(app, "amount")["amount"].tolist() == ["-4.0"]
    assert "the version as a whole has to satisfy it: every row has to satisfy `amount >= 0`; null" in words(app)
    assert rows_link(app, 5).endswith("&rows_where=NOT+%28amount+%3E%3D+0%29")
    app = find(bisect(condition="min(amount) + 0 >= 0"))
    assert "the version as a whole has to satisfy it, no row by itself; null" in words(app)
    assert "rows_where" not in rows_link(app, 5)


def test_the_link_names_the_versions_and_opens_the_same_result_without_reading(orders: Path, scans: list[int]) -> None:
    app = find(bisect())
    assert (param(app, "good"), param(app, "bad")) == ("0", "7")
    builders.write(orders, {"id": [99], "amount": [-9.0]})
    read = len(scans)
    link = {key: param(app, key) for key in ("table", "condition", "good", "bad")}
    other = open_page("bisect", **link)
    assert "v5 (WRITE" in words(other) and len(scans) == read
    bisects.clear()
    forgotten = again(open_page("bisect", **link))  # by a server that was started again
    assert "Nothing was read yet" in words(forgotten) and len(scans) == read, "a link alone runs nothing"
    assert "v5 (WRITE" in words(find(forgotten)) and len(scans) > read


def test_that_of_a_finding_runs_at_once(orders: Path, home: Path) -> None:
    now = datetime.now(UTC)
    lowest = Notice(str(orders), "orders", 5, Measure.LOWEST, "amount", "1", "-4", "amount >= 0", "WRITE", now)
    with closing(stream_store.open_store(home)) as store:
        store.noticed.keep([lowest], now=now)
    assert "v5 (WRITE" in words(bisect(good="4"))
    assert "Nothing was read yet" in words(bisect(good="4", condition="amount >= -1")), "another one does not"


def test_a_finding_is_a_card_that_starts_the_search_and_opens_its_repair_filled_in(orders: Path, home: Path) -> None:
    now, by = datetime.now(UTC), "WRITE by loader"
    lowest = Notice(
        str(orders), "orders", 5, Measure.LOWEST, "amount", "1", "-4", "amount >= 0", by, now,
        job="job late visits", rows=1, where="amount < 0", repair="amount = -amount, note = coalesce(note, 'x, y')",
    )  # fmt: skip
    copied = Notice(str(orders), "orders", 6, Measure.COPIED, "", "0", "1", "", by, now, rows=1)
    writer = Notice(str(orders), "orders", 7, Measure.WRITER, "", "loader", "ana", "", by, now)
    assert "No open finding in this table" in words(bisect(condition=""))
    with closing(stream_store.open_store(home)) as store:
        store.noticed.keep([lowest, copied, writer], now=now)
    forget_caches()
    app = bisect(condition="")
    assert "1 row: lowest amount 1 → -4 where amount < 0 at v5, WRITE by loader · job late visits." in words(app)
    assert sum("Find its first bad version" in button.label for button in app.button) == 1, "those with a condition"
    repairs = [button.label for button in app.button if str(button.key).startswith("repair_")]
    assert sorted(repairs) == ["Repair these rows…", "Take back what v6 did…"], "of a copy nobody says which rows"
    press(app, next(str(button.key) for button in app.button if "Repair these" in button.label))
    given = app.text_input(key="act_where").value, app.text_input(key="act_of_commit").value
    assert given == ("amount < 0", "5")
    assert app.text_area(key="act_values").value == "amount = -amount\nnote = coalesce(note, 'x, y')"
    app.text_area(key="act_values").set_value("amount = -amount")
    again(app)
    assert "Rows of v5 that get another amount: 1." in words(app)
    assert "0 of 1 rows that satisfy the condition" in words(app), "none of them is innocent"
    app.text_input(key="table_act_file_reason").set_value("a bad load")
    again(app)
    assert "weir host" in words(app) and [each.proto.label for each in app.get("download_button")][-1:] == [
        "Save to a file…"
    ]

    app = press(bisect(condition=""), next(str(b.key) for b in bisect(condition="").button if "Find its" in b.label))
    assert param(app, "good") == "4" and "v5 (WRITE" in words(app)
    assert "Bad now **1 of 8 rows**" in words(app) and "Last good **v4**" in words(app)
    assert "v4 0 → v5 1 → " in words(app)
    assert links(app)["Findings of the table"] == "table=orders"


def test_a_changed_form_runs_nothing(orders: Path, scans: list[int]) -> None:
    app = find(bisect())
    read = len(scans)
    app.text_input(key="condition").set_value("amount >= -3")
    again(app)
    assert len(scans) == read and "breaks `amount >= 0`" in words(app)  # Enter or the button asks, nothing else
    app.selectbox(key="pick_good").set_value("2")
    again(app)
    assert param(app, "good") == "2" and len(scans) == read and "Nothing was read yet" in words(app)
    app.text_input(key="condition").set_value("amount >= -3")
    find(app)
    assert "breaks `amount >= -3`" in words(app)


def test_a_range_is_told_with_its_commits(home: Path) -> None:
    path = home / "lake" / "orders"
    for number in range(5):
        builders.write(path, {"id": [number], "amount": [1.0 if number < 2 else -1.0]}, mode="overwrite")
    files = DeltaTable(str(path), version=2).file_uris()
    Path(files[0]).unlink()
    app = find(bisect())
    assert "is one of 2 commits: v2, v3" in words(app) and "v2 could not be judged" in words(app)
    assert "Commits that may be the first bad one" in words(app)


def test_what_cannot_be_searched_says_why(orders: Path) -> None:
    app = bisect(condition="")
    assert "Write what a good version satisfies" in words(app)
    assert "Write what a good version satisfies" in words(find(app))  # nothing is asked
    for condition, text in (
        ("amuont >= 0", "There is no column 'amuont' (character 1)"),
        ("amount > (SELECT 1)", "A subquery is not allowed here (character 10)"),
        ("amount > 'x'::DOUBLE", "TRY_CAST"),
        ("amount >= -100", "v7, the bad end, satisfies the condition: 0 of 8 rows violate it"),
    ):
        app = find(bisect(condition=condition))
        assert text in words(app), condition
    assert "Nothing is broken" in "".join(info.value for info in app.info) and not app.error, "good news"
    assert text not in words(again(app))  # it was asked once
    for good, text in (("99", "has no version 99"), ("latest2", "Not a version: 'latest2'")):
        assert text in words(bisect(condition="id > 5", good=good))


def test_cancel_stops_the_search(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def slow(*args: Any, **kwargs: Any) -> Any:
        from app.ui import work as versions_work

        versions_work.cancel()
        seen.append(True)
        yield BisectProgress((), "judging v0", 0)

    monkeypatch.setattr(search, "bisect", slow)
    stopped = again(find(bisect()))
    assert len(seen) == 1 and "Nothing was read yet" in words(stopped)


def test_a_condition_is_suggested_that_a_click_fills_in_and_finds_the_commit(home: Path) -> None:
    payments = plant(home / "lake" / "payments", versions=7, bad_version=4)  # a MERGE that multiplies some amounts

    def amounts(version: int) -> pd.Series:
        paid: pd.Series = DeltaTable(services.lake().find("payments").uri, version=version).to_pandas()["amount"]
        return paid

    app = open_page("bisect", table="payments")
    assert "What jumped between v0 and v6" in words(app)
    assert "Compared: 7 of 7 versions, v0 → v6, by the log's statistics of" in words(app)
    held = frame_with(app, "Column", "Lowest").set_index("Column")
    assert held.loc["amount", "Highest"].endswith(f"→ {amounts(6).max():,.2f}".rstrip("0").rstrip("."))
    middle = " → ".join(f"{amounts(version).median():,.2f}".rstrip("0").rstrip(".") for version in (0, 6))
    assert held.loc["amount", "Median"] == middle

    press(app, "suggestion_0")
    condition = app.text_input(key="condition").value
    assert condition.startswith("amount <= ") and "Nothing was read yet" in words(app)
    find(app)

    text = words(app)
    broken = int((amounts(4) > float(condition.removeprefix("amount <= "))).sum())
    assert f"v4 (MERGE by {METADATA['userName']}" in text
    assert f"{payments.changed} rows (0 inserted, {payments.changed} updated, 0 deleted); {broken} rows of v4" in text
    assert f"All {payments.changed} updates multiplied `amount` by 100" in text
    assert "It undoes 3 commits" in text and "It undoes v5 WRITE (300 rows)" in text
    assert f"It undoes v4 MERGE t.payment_id = s.payment_id by {METADATA['userName']}" in text
    later, good = payments.later, payments.changed - broken
    assert f"{later} rows go (0 bad, {later} good), 0 come back, {payments.changed} rows get older values" in text
    assert f"older values ({broken} bad, {good} good); bad is what breaks `{condition}`" in text
    facts = app.table[0].value.set_index("Name")["Value"].str.replace("\\", "")
    assert (facts["User"], facts["Job"]) == (METADATA["userName"], METADATA["job"])
