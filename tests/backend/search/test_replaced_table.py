"""CREATE OR REPLACE at every run: its two sides are compared as two tables where a person asks for that."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from app.ui.view.figures import notes
from app.versions import view
from backend.lake.lake import Lake
from backend.search.search import BisectRequest, Bisects
from backend.settings import load_settings
from backend.sql.numbers import ValueSource, aggregates
from tests.worlds.terminal import Weir, home, weir

__all__ = ["home", "weir"]


@pytest.fixture
def replaced(home: Path) -> Path:
    """v0 has ids 0 … 4, v1 another table's 0 … 5, of which 3 has another value. v2 is on v1's side."""
    path = home / "lake" / "dim"
    write_deltalake(path, pa.table({"id": range(5), "v": [n * 10 for n in range(5)]}))
    replace_with(path, pa.table({"id": range(6), "v": [n * 10 + (n == 3) for n in range(6)]}), version=1)
    write_deltalake(path, pa.table({"id": [9], "v": [9]}), mode="append")
    return path


def replace_with(path: Path, rows: pa.Table, *, version: int) -> None:
    """A commit as CREATE OR REPLACE TABLE AS SELECT makes it."""
    write_deltalake(path, rows, mode="overwrite")
    commit = path / "_delta_log" / f"{version:020d}.json"
    first = (path / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    metadata = next(json.loads(line) for line in first if '"metaData"' in line)
    metadata["metaData"]["id"] = f"00000000-1111-2222-3333-{version:012}"
    commit.write_text(commit.read_text().rstrip("\n") + "\n" + json.dumps(metadata) + "\n")


@pytest.fixture
def nightly(home: Path) -> Path:
    """v0 … v3, each another table; a negative value came with v2."""
    path = home / "lake" / "nightly"
    write_deltalake(path, pa.table({"id": range(5), "v": range(5)}))
    for version in (1, 2, 3):
        rows = pa.table({"id": range(5), "v": [-1 if version > 1 and n == 4 else n + version for n in range(5)]})
        replace_with(path, rows, version=version)
    return path


@pytest.mark.parametrize(
    ("versions", "net", "more"),
    [
        (("0", "1"), (1, 1, 0), ("--key", "id")),
        (("1", "0"), (0, 1, 1), ("--key", "id")),
        (("0", "latest"), (2, 1, 0), ("--key", "id", "--method", "key_join")),
    ],
)
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


# numbers over versions, and the first bad one ------------------------------------------------------------------------


def test_the_first_bad_version_names_a_comparison_that_works(nightly: Path, weir: Weir) -> None:
    found = weir("bisect", "nightly", "--assert", "v >= 0", "--json").document
    assert found["first_bad_version"] == 2
    assert (found["changed"]["net"]["inserted"], found["changed"]["net"]["deleted"]) == (5, 5)
    assert any("as those of two tables" in note for note in found["notes"])
    assert any("its id is" in note and f"{3:012} at v3" in note for note in found["notes"])
    command = found["diff"]["command"]
    assert command == "weir diff nightly --from 1 --to 2 --across-replace"
    assert weir(*command.split()[1:], "--key", "id", "--json").document["net"]["updated"] == 5


def test_a_search_before_the_last_replacement_is_found_again(nightly: Path, home: Path) -> None:
    lake = Lake(load_settings(home=home, lake={"roots": [str(home / "lake")]}))
    ref, bisects, request = lake.find("nightly"), Bisects(), BisectRequest("v >= 0", 0, 2)
    *_, last = bisects.over(lake, ref, request)
    assert last.result is not None and bisects.known(lake, ref, request) is last.result


def test_numbers_of_the_tables_before_are_kept_as_theirs(nightly: Path, home: Path) -> None:
    lake = Lake(load_settings(home=home, lake={"roots": [str(home / "lake")]}))
    ref, numbers = lake.find("nightly"), aggregates()
    *_, last = numbers.over(lake, ref, "sum(v)", range(4))
    assert [each.value for each in last.values] == [10, 15, 13, 17]
    known = numbers.known(lake.snapshot(ref), "sum(v)", range(4))
    assert [each.value for each in known] == [10, 15, 13, 17] and len({each.table_id for each in known}) == 4
    points = view.value_points(known, ())
    assert "re-created 3 times, last by v3: older values belong to another table" in notes(points, 4, 4)
    replace_with(nightly, pa.table({"id": [0], "v": [8]}), version=4)
    assert not numbers.known(lake.snapshot(ref), "sum(v)", range(5))  # nobody asked since
    *_, last = numbers.over(lake, ref, "sum(v)", range(5))
    assert [each.source is ValueSource.KEPT for each in last.values] == [True] * 4 + [False]
