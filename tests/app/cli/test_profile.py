"""`weir profile`: one document, the same in words, against another version."""

from pathlib import Path

from tests.app.cli.test_commands import Weir, home, weir
from tests.worlds.lake import builders

__all__ = ["home", "weir"]


def test_the_document_holds_what_the_rows_say(home: Path, weir: Weir) -> None:
    builders.orders_table(home / "lake" / "orders")
    document = weir("profile", "orders", "--against", "0", "--json").document
    assert (document["version"], document["rows"], document["source"]) == (3, 4, "rows")
    status = next(column for column in document["columns"] if column["column"] == "status")
    assert status["top"] == [{"value": "new", "rows": 3}, {"value": "paid", "rows": 1}]
    assert (status["nulls"], status["lowest"], status["highest"]) == (0, "new", "paid")
    amount = next(column for column in document["columns"] if column["column"] == "amount")
    assert sum(each["rows"] for each in amount["bins"]) == 4
    assert document["against"]["version"] == 0 and "highest 30 → 50" in document["differences"]["amount"]


def test_people_get_the_same_in_words(home: Path, weir: Weir) -> None:
    builders.orders_table(home / "lake" / "orders")
    out = weir("profile", "orders", "--against", "0").out
    assert "counted over 4 rows" in out and "new 75 %, paid 25 %" in out and "highest 30 → 50" in out


def test_statistics_alone_open_no_data_file(home: Path, weir: Weir) -> None:
    path = builders.orders_table(home / "lake" / "orders")
    for file in path.glob("*.parquet"):
        file.unlink()
    document = weir("profile", "orders", "--version", "1", "--statistics", "--json").document
    assert document["source"] == "statistics" and [column["nulls"] for column in document["columns"]] == [0, 0, 0]
    failed = weir("profile", "orders")
    assert failed.code == 1 and "could not be read" in failed.err
