"""`weir export`: every row of a version as a file, whole or not at all."""

import csv
import io
from pathlib import Path

import pyarrow.parquet as pq

from tests.app.cli.test_commands import Weir, home, weir
from tests.worlds.lake import builders

__all__ = ["home", "weir"]


def test_the_file_holds_the_version_the_filter_and_the_columns(home: Path, weir: Weir) -> None:
    builders.orders_table(home / "lake" / "orders")
    out = home / "some.parquet"
    asked = ("--version", "1", "--where", "amount > 15", "--columns", "order_id,amount")
    document = weir("export", "orders", *asked, "-o", str(out), "--json").document
    assert (document["version"], document["rows"], document["format"]) == (1, 4, "parquet")
    assert document["size_bytes"] == out.stat().st_size
    assert sorted(map(tuple, (row.values() for row in pq.read_table(out).to_pylist()))) == [
        (2, 20.0), (3, 30.0), (4, 40.0), (5, 50.0)
    ]  # fmt: skip


def test_the_format_can_be_named(home: Path, weir: Weir) -> None:
    builders.orders_table(home / "lake" / "orders")
    said = weir("export", "orders", "--format", "csv", "-o", str(home / "rows.txt")).out
    rows = list(csv.DictReader(io.StringIO((home / "rows.txt").read_text("utf-8-sig"))))
    assert sorted(row["order_id"] for row in rows) == ["2", "3", "4", "5"] and said.startswith("4 rows of orders v3")


def test_what_fails_leaves_no_file_and_the_old_one_whole(home: Path, weir: Weir) -> None:
    path, out = builders.orders_table(home / "lake" / "orders"), home / "out" / "rows.csv"
    out.parent.mkdir()
    out.write_text("kept")
    for file in path.glob("*.parquet"):
        file.unlink()
    failed = weir("export", "orders", "-o", str(out))
    assert failed.code == 1 and "is gone" in failed.err
    assert [file.name for file in out.parent.iterdir()] == ["rows.csv"] and out.read_text() == "kept"


def test_wrong_questions_are_answered_in_words(home: Path, weir: Weir) -> None:
    builders.orders_table(home / "lake" / "orders")
    assert "csv, parquet, arrow, json" in weir("export", "orders", "-o", str(home / "rows.xlsx")).err
    assert "'nope'" in weir("export", "orders", "--columns", "nope", "-o", str(home / "a.csv")).err
    assert weir("export", "orders", "--where", "amount >> 1", "-o", str(home / "a.csv")).code == 2
    assert "cannot be written" in weir("export", "orders", "-o", str(home / "no" / "a.csv")).err
