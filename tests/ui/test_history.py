"""History: commits, the detail of one, two to compare, and the figure over versions."""

from pathlib import Path

import pytest

from tests import builders
from tests.ui.frames import titles
from tests.ui.opened import again, home, open_page, words

__all__ = ["home"]


@pytest.fixture
def orders(home: Path) -> Path:
    return builders.orders_table(home / "lake" / "silver" / "orders")


def commits(app: object) -> list[int]:
    frame = next(frame.value for frame in app.dataframe if "Version" in frame.value.columns)  # type: ignore[attr-defined]
    return list(frame["Version"])


def test_commits_are_newest_first_with_what_they_did(orders: Path) -> None:
    app = open_page("history", table="silver/orders")
    frame = next(frame.value for frame in app.dataframe if "Version" in frame.value.columns)
    assert frame["Version"].tolist() == [3, 2, 1, 0]
    assert frame["Operation"].tolist() == ["✕ DELETE", "▲ UPDATE", "● WRITE", "● WRITE"]
    assert frame["Rows"].tolist() == ["−1", "~1", "+2", "+3"]


def test_a_link_opens_one_commit(orders: Path) -> None:
    app = open_page("history", table="silver/orders", commit=2)
    assert "v2 · UPDATE" in words(app)
    facts = {row["Name"]: row["Value"] for frame in app.table for row in frame.value.to_dict("records")}
    assert facts["Rows updated"] == "1"
    parameters = next(frame.value for frame in app.dataframe if "Name" in frame.value.columns)
    assert "predicate" in parameters["Name"].tolist()


def test_closing_the_detail_clears_the_link(orders: Path) -> None:
    app = open_page("history", table="silver/orders", commit=2)
    app.button(key="clear_commits").click()
    again(app)
    assert "commit" not in app.query_params and "v2 · UPDATE" not in words(app)


def test_two_commits_lead_to_their_changes(orders: Path) -> None:
    app = open_page("history", table="silver/orders")
    app.query_params["commit"] = ["3", "1"]
    again(app)
    assert "v1 → v3" in words(app)
    link = next(link for link in app.main.page_link if link.label.startswith("Changes from"))
    assert link.label == "Changes from v1 to v3"
    assert "from=1" in link.proto.query_string and "to=3" in link.proto.query_string


@pytest.mark.parametrize("commit", ["99", "-1", "x", ""])
def test_a_commit_that_is_not_there_is_an_answer(orders: Path, commit: str) -> None:
    app = open_page("history", table="silver/orders", commit=commit)
    assert commits(app) == [3, 2, 1, 0]
    assert ("not in the log" in words(app)) == (commit == "99")


def test_long_histories_come_in_pages(home: Path) -> None:
    log = builders.HandLog(home / "lake" / "many").start()
    for number in range(104):
        log.commit(builders.commit_info(), builders.add(f"{number}.parquet"))
    app = open_page("history", table="many")
    assert commits(app)[0] == 104 and len(commits(app)) == 100
    assert "100 commits" in words(app)
    assert commits(open_page("history", table="many", page_=2)) == [4, 3, 2, 1, 0]


def test_the_figure_is_chosen_in_the_link(orders: Path) -> None:
    app = open_page("history", table="silver/orders", figure="Files")
    assert "Files grew by" in titles(app)
    assert app.segmented_control(key="figure").value == "Files"
