"""Cards between processes: what one read the next one believes, as long as the table is the same, and no longer."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from backend.lake.cards import LEAST, MOST_FILES
from backend.lake.lake import Lake
from backend.lake.model import TableCard, TableRef, UnreadableTable
from backend.settings import load_settings
from tests.worlds.lake.builders import HandLog, add, commit_info, metadata, protocol

TABLES = LEAST + 5
TAGS = {"catalog.team_name": "Growth", "note": "ünïcode ✓"}


class Counting(Lake):
    """A lake as a new process opens it, and which tables it had to read."""

    def __init__(self, home: Path, **sections: object) -> None:
        super().__init__(load_settings(home=home, lake={"roots": [str(home / "lake")], "refresh_s": 0.001}, **sections))
        self.read: list[str] = []

    def _make_card(self, ref: TableRef) -> TableCard:
        self.read.append(ref.name)
        return super()._make_card(ref)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for number in range(TABLES):
        log = HandLog(tmp_path / "lake" / "silver" / f"t{number:02d}")
        log.start(configuration=TAGS, columns={"id": "long", "customer_id": "string"}).commit(add("a", size=7))
    return tmp_path


def listed(home: Path, **sections: object) -> tuple[dict[str, TableCard | UnreadableTable], list[str]]:
    """Every table as a new process finds it, and those that it had to read."""
    lake = Counting(home, **sections)
    return {table.ref.name: table for table in lake.cards()}, lake.read


def kept_file(home: Path) -> Path:
    (file,) = (home / "cache" / "cards").iterdir()
    return file


def test_the_next_process_reads_no_unchanged_table_and_shows_the_same(home: Path) -> None:
    first, read = listed(home)
    assert len(read) == TABLES
    again, read = listed(home)
    assert (again, read) == (first, [])
    card = again["silver/t00"]
    assert isinstance(card, TableCard) and card.owner == "Growth" and card.properties["note"] == "ünïcode ✓"
    assert [column[:2] for column in card.columns] == [("id", "bigint"), ("customer_id", "string")]


def new_commit(home: Path) -> None:
    HandLog(home / "lake" / "silver" / "t03", next_version=2).commit(add("b", size=5))


def made_anew(home: Path) -> None:
    place = home / "lake" / "silver" / "t03"
    shutil.rmtree(place)
    HandLog(place).start(table_id="another", configuration=TAGS).commit(add("a", size=12))


def another_in_its_place(home: Path) -> None:
    """The same versions with the same times, moved there: only the files are others."""
    place, aside = home / "lake" / "silver" / "t03", home / "aside"
    HandLog(aside).start(table_id="another").commit(add("a", size=12))
    for file in (aside / "_delta_log").iterdir():
        os.utime(file, ns=((place / "_delta_log" / file.name).stat().st_mtime_ns,) * 2)
    shutil.rmtree(place)
    aside.rename(place)


def a_gap_before_the_newest(home: Path) -> None:
    """Version 2 is gone again and a checkpoint leads to 3: a look at the next name alone would see nothing."""
    log = HandLog(home / "lake" / "silver" / "t03", next_version=2)
    actions = [protocol(), metadata(configuration=TAGS), add("a", size=12)]
    log.checkpoint(3, actions)
    log.commit(commit_info(), version=3)


@pytest.mark.parametrize("change", [new_commit, made_anew, another_in_its_place, a_gap_before_the_newest])
def test_a_changed_table_is_read_anew_and_no_other(home: Path, change: Callable[[Path], None]) -> None:
    listed(home)
    change(home)
    tables, read = listed(home)
    assert read == ["silver/t03"]
    card = tables["silver/t03"]
    assert isinstance(card, TableCard) and card.size_bytes == 12
    assert listed(home)[1] == []


def test_a_deleted_table_is_gone_and_a_new_one_is_there(home: Path) -> None:
    listed(home)
    shutil.rmtree(home / "lake" / "silver" / "t03")
    HandLog(home / "lake" / "silver" / "new").start()
    tables, read = listed(home)
    assert "silver/t03" not in tables and read == ["silver/new"]
    assert b"t03" not in kept_file(home).read_bytes()


def torn(content: bytes) -> bytes:
    return content[: len(content) // 2]


def with_another_number(content: bytes) -> bytes:
    return content.replace(b'"size_bytes":7', b'"size_bytes":8')


def of_another_shape(content: bytes) -> bytes:
    return b"00000002\n[]" if content else b""


@pytest.mark.parametrize(
    "damage", [torn, with_another_number, of_another_shape, lambda _: b"", lambda _: b"\xff\n\xff"]
)
def test_a_damaged_file_is_ignored_and_written_anew(home: Path, damage: Callable[[bytes], bytes]) -> None:
    first, _ = listed(home)
    kept_file(home).write_bytes(damage(kept_file(home).read_bytes()))
    again, read = listed(home)
    assert again == first and len(read) == TABLES
    assert listed(home)[1] == []


def test_a_folder_that_cannot_be_written_costs_time_alone(home: Path) -> None:
    (home / "cache").write_text("no folder")
    assert len(listed(home)[1]) == len(listed(home)[1]) == TABLES


def test_other_settings_have_cards_of_their_own_and_old_files_go(home: Path) -> None:
    listed(home)
    assert len(listed(home, health={"min_files": 1})[1]) == TABLES
    for number in range(2, MOST_FILES + 4):
        listed(home, health={"min_files": number})
    assert len(list((home / "cache" / "cards").iterdir())) == MOST_FILES


def test_a_reason_of_the_log_is_kept_and_one_that_may_pass_is_looked_at_again(home: Path) -> None:
    HandLog(home / "lake" / "ahead").commit(protocol(3, 7, ["fancyFeature"]), metadata(), commit_info())
    HandLog(home / "lake" / "torn").raw("00000000000000000000.json", "{")
    first, _ = listed(home)
    assert isinstance(first["ahead"], UnreadableTable) and isinstance(first["torn"], UnreadableTable)
    again, read = listed(home)
    assert again == first and read == []
    file = kept_file(home)
    _, _, body = file.read_bytes().partition(b"\n")
    documents = orjson.loads(body)
    assert {d["unreadable"]["ref"]["name"]: d["is_lasting"] for d in documents if "unreadable" in d} == {
        "ahead": True,
        "torn": False,
    }
    HandLog(home / "lake" / "ahead", next_version=1).commit(protocol(1, 2))
    assert isinstance(listed(home)[0]["ahead"], TableCard)


def test_a_small_lake_leaves_nothing_on_the_disk(tmp_path: Path) -> None:
    HandLog(tmp_path / "lake" / "t").start()
    listed(tmp_path)
    assert not (tmp_path / "cache").exists()


ROUNDS = """
import sys
from backend.spared import spare
spare("pandas")
from backend.lake.lake import Lake
from backend.settings import load_settings
for _ in range(20):
    lake = Lake(load_settings(home=sys.argv[1], lake={"roots": [sys.argv[1] + "/lake"]}))
    assert {card.size_bytes for card in lake.cards()} == {7}
"""


def test_two_processes_at_once_leave_a_whole_file(home: Path) -> None:
    argv = [sys.executable, "-c", ROUNDS, str(home)]
    both = [subprocess.Popen(argv, stderr=subprocess.PIPE) for _ in range(2)]
    for process in both:
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err.decode()
    assert listed(home)[1] == []
