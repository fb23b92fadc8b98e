"""History: commits, the detail of one, two to compare, and the figure over versions."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from streamlit.testing.v1.element_tree import Block, Dataframe, Table

from app import services
from app.cli import main
from tests.worlds.lake import builders
from tests.worlds.pages.frames import titles
from tests.worlds.pages.opened import again, home, open_page, press, words

__all__ = ["home"]


@pytest.fixture
def orders(home: Path) -> Path:
    return builders.orders_table(home / "lake" / "silver" / "orders")


def commits(app: object) -> list[int]:
    frame = next(frame.value for frame in app.dataframe if "Version" in frame.value.columns)  # type: ignore[attr-defined]
    return list(frame["Version"])


def walk(block: Block) -> Iterator[str]:
    """The list of commits and the facts of one, in the order of the page."""
    for child in block.children.values():
        if isinstance(child, Block):
            yield from walk(child)
        elif isinstance(child, Dataframe) and "Version" in child.value.columns:
            yield "list"
        elif isinstance(child, Table):
            yield "facts"


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


def test_the_detail_stands_below_the_list(orders: Path) -> None:
    """A tick must not move the list: above it is one bar, which is there without a tick too."""
    plain, ticked = open_page("history", table="silver/orders"), open_page("history", table="silver/orders", commit=2)
    assert "Tick a commit" in words(plain) and "Tick a commit" not in words(ticked)
    kinds = [kind for kind in walk(ticked.main) if kind in ("list", "facts")]
    assert kinds[0] == "list" and "facts" in kinds


def test_an_unusual_jump_leads_to_its_changes_and_the_search(home: Path) -> None:
    for number in range(12):
        builders.write(home / "lake" / "jumpy", {"id": list(range(3 if number != 9 else 400))})
    app = open_page("history", table="jumpy")
    assert "v9 ● WRITE: +400 rows; a commit usually brings +3." in words(app).replace("*", "")
    links = {link.label: link.proto.query_string for link in app.main.page_link}
    assert "from=8" in links["Changes v8 → v9"] and "to=9" in links["Changes v8 → v9"]
    assert "good=8" in links["First bad version"]
    assert "a commit usually brings" not in words(open_page("history", table="jumpy", figure="Files"))


def test_closing_the_detail_clears_the_link(orders: Path) -> None:
    app = open_page("history", table="silver/orders", commit=2)
    press(app, "clear_commits")
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
    assert "100 of 105 commits" in words(app)
    assert commits(open_page("history", table="many", page_=2)) == [4, 3, 2, 1, 0]


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


def test_the_figure_is_chosen_in_the_link(orders: Path) -> None:
    app = open_page("history", table="silver/orders", figure="Files")
    assert "Files grew from" in titles(app)
    assert app.segmented_control(key="figure").value == "Files"
