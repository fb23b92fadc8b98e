"""The catalog: stable names, layers, finding by name or address, and nothing below a table."""

import shutil

import pytest

from backend.errors import StorageError, TableNotFoundError
from tests.worlds.lake.builders import HandLog, first_rows, medallion_lake, write


def test_names_are_paths_below_the_root_and_layers_come_from_folders(root, open_lake):
    medallion_lake(root)
    HandLog(root / "Gold" / "deep" / "er").start()
    HandLog(root / "other" / "x").start()
    found = {ref.name: ref.layer for ref in open_lake().tables()}
    assert found == {
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


def test_a_root_may_be_a_table_and_roots_may_overlap(tmp_path, open_lake):
    HandLog(tmp_path / "lake" / "t").start()
    lake = open_lake(tmp_path / "lake", tmp_path / "lake" / "t")
    assert [ref.name for ref in lake.tables()] == ["t"]
    assert [ref.name for ref in open_lake(tmp_path / "lake" / "t").tables()] == ["t"]


def test_a_table_is_found_by_name_last_part_path_and_address(root, open_lake):
    medallion_lake(root)
    lake = open_lake()
    want = lake.find("silver/orders")
    place = str(root / "silver" / "orders")
    for way in ("orders", place, place + "/", f"file://{place}", f"{root}/gold/../silver/orders"):
        assert lake.find(way) == want


def test_an_unknown_name_brings_those_like_it(root, open_lake):
    medallion_lake(root)
    with pytest.raises(TableNotFoundError) as caught:
        open_lake().find("silver/order")
    assert "silver/orders" in caught.value.hint
    assert caught.value.exit_code == 3


def test_folders_inside_a_table_are_no_tables(root, open_lake):
    HandLog(root / "t").start()
    HandLog(root / "t" / "inner").start()
    HandLog(root / ".trash" / "old").start()
    assert [ref.name for ref in open_lake().tables()] == ["t"]


def test_odd_folder_names_are_read(root, open_lake, tmp_path):
    names = ["a b", "a%20b", "ü", "a:b", "a?b#c", "[x]", "a+b", "'q'", "-dash"]
    made = write(tmp_path / "made", {"id": [1]})
    for name in names:
        shutil.copytree(made, root / name)
    lake = open_lake()
    assert [ref.name for ref in lake.tables()] == sorted(names)
    for card in lake.cards():
        assert card.num_rows == 1
        assert first_rows(lake, card.ref, limit=5).rows.num_rows == 1


def test_a_new_table_is_found_at_once_and_a_missing_root_is_an_empty_lake(root, open_lake):
    lake = open_lake()
    assert lake.tables() == []
    write(root / "late", {"id": [1]})
    assert lake.find("late").name == "late"
    shutil.rmtree(root)
    assert open_lake().tables() == []


def test_a_root_that_is_a_file_is_an_empty_lake(tmp_path, open_lake):
    file = tmp_path / "file"
    file.write_text("no folder")
    assert open_lake(file).tables() == []


def test_a_root_of_an_unknown_kind_is_said(open_lake):
    with pytest.raises(StorageError, match="ftp"):
        open_lake("ftp://host/folder").tables()
