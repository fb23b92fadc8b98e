"""The catalog: stable names, layers, finding a table by name, address or content; cards, also between processes."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from app import services
from app.cli import health
from backend.errors import StorageError, TableNotFoundError
from backend.lake.cards import LEAST, MOST_FILES
from backend.lake.find import FoundTable, LakeFinder, Where
from backend.lake.lake import Lake
from backend.lake.log import commits
from backend.lake.log.commits import parse_commits
from backend.lake.model import CardColumn, TableCard, TableRef, UnreadableTable
from backend.lake.storage.folder import Content
from backend.settings import load_settings
from tests.worlds.lake.builders import HandLog, add, commit_info, medallion_lake, metadata, protocol, write
from tests.worlds.store import large


def test_names_are_paths_below_the_root_and_layers_come_from_folders(root, open_lake):
    medallion_lake(root)
    HandLog(root / "Gold" / "deep" / "er").start()
    HandLog(root / "other" / "x").start()
    layers = {ref.name: ref.layer for ref in open_lake().tables()}
    assert layers == {
        "bronze/orders_raw": "bronze",
        "silver/orders": "silver",
        "gold/orders_by_status": "gold",
        "Gold/deep/er": "gold",
        "other/x": None,
    }


def test_same_names_under_two_roots_stay_apart(tmp_path, open_lake):
    for name in ("a", "b"):
        HandLog(tmp_path / name / "silver" / "t").start()
    HandLog(tmp_path / "b" / "silver" / "alone").start()
    lake = open_lake(tmp_path / "a", tmp_path / "b")
    names = [ref.name for ref in lake.tables()]
    assert names == [f"{tmp_path}/a/silver/t", f"{tmp_path}/b/silver/t", "silver/alone"]
    assert all(lake.find(ref.name) == ref for ref in lake.tables())
    with pytest.raises(TableNotFoundError, match="several"):
        lake.find("t")


@pytest.mark.parametrize(
    ("roots", "names"),
    [
        (["lake", "lake"], ["silver/t"]),
        (["lake", "lake/silver"], ["silver/t"]),
        (["lake/silver", "lake"], ["t"]),
        (["lake", "lake/silver/t"], ["silver/t"]),
        (["lake/silver/t"], ["t"]),
        (["lake", "nowhere"], ["silver/t"]),
        (["file"], []),
        (["nowhere"], []),
    ],
)
def test_each_table_is_listed_once_below_its_first_root(tmp_path, open_lake, roots, names):
    """A root may be a table or missing or a file, and roots may overlap."""
    HandLog(tmp_path / "lake" / "silver" / "t").start()
    (tmp_path / "file").write_text("no folder")
    assert [card.ref.name for card in open_lake(*(tmp_path / root for root in roots)).cards()] == names


def test_a_table_is_found_by_name_last_part_path_and_address(root, lake):
    medallion_lake(root)
    want = lake.find("silver/orders")
    place = str(root / "silver" / "orders")
    for way in ("orders", place, place + "/", f"file://{place}", f"{root}/gold/../silver/orders"):
        assert lake.find(way) == want


def test_folders_inside_a_table_are_no_tables(root, open_lake):
    HandLog(root / "t").start()
    HandLog(root / "t" / "inner").start()
    HandLog(root / ".trash" / "old").start()
    (root / "plain" / "year=2026").mkdir(parents=True)
    assert [ref.name for ref in open_lake().tables()] == ["t"]
    for way in ("plain", str(root / "plain")):
        with pytest.raises(TableNotFoundError):
            open_lake().find(way)


def test_a_new_table_is_found_at_once(root, lake):
    assert lake.tables() == []
    write(root / "late", {"id": [1]})
    assert lake.find("late").name == "late"


def test_a_root_of_an_unknown_kind_is_said(open_lake):
    with pytest.raises(StorageError, match="ftp"):
        open_lake("ftp://host/folder").tables()


# the search over the lake ---------------------------------------------------------------------------------------------


def card(name: str, *columns: tuple[str, str | None], **more: object) -> TableCard:
    ref = TableRef(f"/lake/{name}", name, "/lake", name.partition("/")[0])
    made = tuple(CardColumn(path, "bigint", comment) for path, comment in columns)
    return TableCard(ref, 1, 1, 1, 1, 0, None, None, columns=made, **more)  # type: ignore[arg-type]


LAKE = [
    card("silver/customers", ("id", "the customer_id of the shop"), ("Name", None)),
    card("silver/orders", ("order_id", None), ("customer_id", None), ("address.street", None)),
    card("gold/sales", ("customer_id_hash", None), description="Sales per Customer and day"),
    card("bronze/raw", ("payload", None), owner="Growth", properties={"catalog.team_name": "Growth", "source": "CRM"}),
    UnreadableTable(TableRef("/lake/odd", "odd", "/lake"), "needs reader feature catalogOwned", ""),
]


def find(words: str) -> list[FoundTable]:
    return LakeFinder().find(LAKE, words)


def names(words: str) -> list[str]:
    return [found.table.ref.name for found in find(words)]


def test_which_tables_hold_a_column():
    assert names("customer_id") == ["silver/orders", "gold/sales", "silver/customers"]  # whole, part, only a comment
    (match,) = find("customer_id")[0].matches()
    assert (match.where, match.subject, match.text) == (Where.COLUMN, "customer_id", "bigint")
    (comment,) = find("customer_id")[2].matches()
    assert (comment.where, comment.subject) == (Where.COMMENT, "id")


def test_owner_property_description_and_problem_are_looked_through_and_types_are_not():
    assert [(f.table.ref.name, f.matches()[0].where) for f in find("growth")] == [("bronze/raw", Where.OWNER)]
    assert len(find("growth")[0].matches()) == 1, "the property that names the owner is no second match"
    assert [(m.where, m.subject, m.text) for m in find("crm")[0].matches()] == [(Where.PROPERTY, "source", "CRM")]
    assert find("per day")[0].matches()[0].where is Where.DESCRIPTION
    assert [(f.table.ref.name, f.matches()[0].where) for f in find("catalogowned")] == [("odd", Where.PROBLEM)]
    assert names("bigint") == []


def test_a_finder_notices_a_card_that_changed_and_a_table_that_went():
    finder = LakeFinder()
    assert len(finder.find(LAKE, "customer_id")) == 3
    changed = [card("silver/orders", ("buyer", None)), *LAKE[2:]]
    assert [found.table.ref.name for found in finder.find(changed, "customer_id")] == ["gold/sales"]


# what a list of tables reads ------------------------------------------------------------------------------------------

AT = datetime(2026, 1, 1, tzinfo=UTC)
MANY = 300  # more than the logs that a lake keeps open
COMMITS = [f"{version:020d}.json" for version in range(large.VERSIONS)]


@contextmanager
def log_reads() -> Iterator[Counter[str]]:
    """Meanwhile: how often each file name was opened, and folders were listed ("listdir")."""
    counting = [Counter[str]()]

    def hook(event: str, args: tuple[object, ...]) -> None:
        for counter in counting:
            if event == "open" and isinstance(args[0], str):
                counter[args[0]] += 1
            elif event == "os.listdir" and isinstance(args[0], int):  # imports list folders too, by name
                counter["listdir"] += 1

    sys.addaudithook(hook)  # nobody can take a hook away
    yield counting[0]
    counting.clear()


@pytest.fixture
def many_tables(tmp_path, monkeypatch):
    made = large.make_lake(tmp_path, MANY)
    monkeypatch.setenv("WEIR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WEIR_LAKE__ROOTS", f'["{made}"]')
    services.forget()
    yield
    services.forget()


@pytest.mark.usefixtures("many_tables")
@pytest.mark.parametrize("reading", [lambda: services.lake().cards(), lambda: health.health()])
def test_cards_and_the_health_of_all_tables_read_each_log_once(capsys, reading):
    with log_reads() as reads:
        answer = reading()
    assert [reads[name] for name in (*COMMITS, "listdir")] == [MANY] * (large.VERSIONS + 1)
    names = capsys.readouterr().out if answer is None else [card.ref.name for card in answer]
    assert all(large.table_name(number) in names for number in range(MANY))


def test_what_is_read_at_one_moment_knows_of_no_later_commit(root, lake):
    log = HandLog(root / "t").start().commit(commit_info(), add("a", size=1))
    (ref,) = lake.tables()
    with lake.at_one_moment(ref):
        log.commit(commit_info(), add("b", size=1))
        log.checkpoint(1, [])
        assert (lake.latest_version(ref), lake.snapshot(ref).num_files, lake.last_checkpoint(ref)) == (1, 1, None)
    assert (lake.latest_version(ref), lake.snapshot(ref).num_files, lake.last_checkpoint(ref)) == (2, 2, 1)


def test_commits_of_many_files_are_several_blocks_and_the_same_files(tmp_path, monkeypatch):
    log = HandLog(tmp_path / "t").start()
    for version in range(6):
        log.commit(commit_info(), add(f"a{version}", size=version), add(f"b{version}", size=10))
    contents = [(v, "", Content((log.log / f"{v:020d}.json").read_bytes(), AT)) for v in range(7)]
    whole = parse_commits(contents)
    monkeypatch.setattr(commits, "BLOCK_ROWS", 3)
    pieces = parse_commits(contents)
    assert [each.actions.to_pylist() for each in pieces] == [each.actions.to_pylist() for each in whole]
    assert [each.block.num_rows for each in pieces] == [4, 4, 4, 4, 4, 4, 4] and whole[0].block.num_rows == 12


# cards between processes ----------------------------------------------------------------------------------------------

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


def test_the_next_process_reads_no_unchanged_table_and_shows_the_same(home):
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
def test_a_changed_table_is_read_anew_and_no_other(home, change):
    listed(home)
    change(home)
    tables, read = listed(home)
    assert read == ["silver/t03"]
    card = tables["silver/t03"]
    assert isinstance(card, TableCard) and card.size_bytes == 12
    assert listed(home)[1] == []


def test_a_deleted_table_is_gone_and_a_new_one_is_there(home):
    listed(home)
    shutil.rmtree(home / "lake" / "silver" / "t03")
    HandLog(home / "lake" / "silver" / "new").start()
    tables, read = listed(home)
    assert "silver/t03" not in tables and read == ["silver/new"]
    assert b"t03" not in kept_file(home).read_bytes()


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: content.replace(b'"size_bytes":7', b'"size_bytes":8'),
        lambda content: b"00000002\n[]",
        lambda content: b"",
        lambda content: b"\xff\n\xff",
    ],
    ids=["torn", "another number", "another shape", "empty", "no text"],
)
def test_a_damaged_file_is_ignored_and_written_anew(home, damage):
    first, _ = listed(home)
    kept_file(home).write_bytes(damage(kept_file(home).read_bytes()))
    again, read = listed(home)
    assert again == first and len(read) == TABLES
    assert listed(home)[1] == []


def test_a_folder_that_cannot_be_written_costs_time_alone(home):
    (home / "cache").write_text("no folder")
    assert len(listed(home)[1]) == len(listed(home)[1]) == TABLES


def test_other_settings_have_cards_of_their_own_and_old_files_go(home):
    listed(home)
    assert len(listed(home, health={"min_files": 1})[1]) == TABLES
    for number in range(2, MOST_FILES + 4):
        listed(home, health={"min_files": number})
    assert len(list((home / "cache" / "cards").iterdir())) == MOST_FILES


def test_a_reason_of_the_log_is_kept_and_one_that_may_pass_is_looked_at_again(home):
    HandLog(home / "lake" / "ahead").commit(protocol(3, 7, ["fancyFeature"]), metadata(), commit_info())
    HandLog(home / "lake" / "torn").raw("00000000000000000000.json", "{")
    first, _ = listed(home)
    assert isinstance(first["ahead"], UnreadableTable) and isinstance(first["torn"], UnreadableTable)
    again, read = listed(home)
    assert again == first and read == []
    kept = [card for card in orjson.loads(kept_file(home).read_bytes().partition(b"\n")[2]) if "unreadable" in card]
    lasting = {card["unreadable"]["ref"]["name"]: card["is_lasting"] for card in kept}
    assert lasting == {"ahead": True, "torn": False}
    HandLog(home / "lake" / "ahead", next_version=1).commit(protocol(1, 2))
    assert isinstance(listed(home)[0]["ahead"], TableCard)


def test_a_small_lake_leaves_nothing_on_the_disk(tmp_path):
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


def test_two_processes_at_once_leave_a_whole_file(home):
    argv = [sys.executable, "-c", ROUNDS, str(home)]
    both = [subprocess.Popen(argv, stderr=subprocess.PIPE) for _ in range(2)]
    for process in both:
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err.decode()
    assert listed(home)[1] == []
