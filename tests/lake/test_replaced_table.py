"""CREATE OR REPLACE at every run: its two sides are compared as two tables where a person asks for that."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.unit.test_cli import Weir, home, weir

__all__ = ["home", "weir"]


@pytest.fixture
def replaced(home: Path) -> Path:
    """v0 has ids 0 … 4, v1 another table's 0 … 5, of which 3 has another value. v2 is on v1's side."""
    path = home / "lake" / "dim"
    write_deltalake(path, pa.table({"id": range(5), "v": [n * 10 for n in range(5)]}))
    values = [n * 10 + (n == 3) for n in range(6)]
    write_deltalake(path, pa.table({"id": range(6), "v": values}), mode="overwrite")
    commit = path / "_delta_log" / f"{1:020d}.json"
    first = (path / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    metadata = next(json.loads(line) for line in first if '"metaData"' in line)
    metadata["metaData"]["id"] = "00000000-1111-2222-3333-444444444444"
    commit.write_text(commit.read_text().rstrip("\n") + "\n" + json.dumps(metadata) + "\n")
    write_deltalake(path, pa.table({"id": [9], "v": [9]}), mode="append")
    return path


@pytest.mark.parametrize(
    ("versions", "net"), [(("0", "1"), (1, 1, 0)), (("1", "0"), (0, 1, 1)), (("0", "latest"), (2, 1, 0))]
)
@pytest.mark.parametrize("more", [("--key", "id"), ("--key", "id", "--method", "key_join")])
@pytest.mark.usefixtures("replaced")
def test_the_two_sides_are_compared_as_two_tables(
    weir: Weir, versions: tuple[str, str], net: tuple[int, int, int], more: tuple[str, ...]
) -> None:
    asked = ("diff", "dim", "--from", versions[0], "--to", versions[1], *more)
    refused = weir(*asked)
    assert refused.code == 1 and "--across-replace" in refused.err
    found = weir(*asked, "--across-replace", "--json").document
    assert tuple(found["net"][name] for name in ("inserted", "updated", "deleted")) == net
    assert any("compared as two tables" in reason for reason in found["reasons"])
    assert "compared as two tables" in weir(*asked, "--across-replace").out


@pytest.mark.usefixtures("replaced")
def test_whole_rows_pair_nothing_and_one_side_is_one_table(weir: Weir) -> None:
    rows = weir("diff", "dim", "--from", "0", "--to", "1", "--method", "multiset", "--across-replace", "--json")
    assert (rows.document["net"]["inserted"], rows.document["net"]["deleted"]) == (2, 1)
    same = weir("diff", "dim", "--from", "1", "--to", "2", "--key", "id", "--across-replace", "--json").document
    assert same["net"]["inserted"] == 1 and not any("two tables" in reason for reason in same["reasons"])
    for method in ("change_feed", "row_id"):
        no = weir("diff", "dim", "--from", "0", "--to", "1", "--method", method, "--across-replace")
        assert no.code == 1 and "two tables" in no.err
