"""What a diff is given that is wrong, or goes wrong under it: a clear answer and a way on, nothing wrong silently."""

import csv
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from backend.changes.changed_rows import exported
from backend.changes.model import DiffMethod, NetCounts
from backend.errors import TableNotFoundError
from backend.lake.lake import Lake
from backend.sql.export import FORMATS
from backend.sql.session import CancelToken
from tests.worlds.lake import builders
from tests.worlds.lake.diff_lakes import LakeWith
from tests.worlds.lake.diffs import asked
from tests.worlds.lake.diffs import diff as compare
from tests.worlds.terminal import Weir, home, weir

__all__ = ["home", "weir"]
KEYED = asked(key=("id",))


@pytest.fixture
def prices(root: Path) -> Path:
    """v0 – v2 append 100 rows each, v3 updates some of v0's and v1's; no change feed."""
    path = root / "prices"
    for number in range(3):
        ids = list(range(number * 100, number * 100 + 100))
        builders.write(path, {"id": ids, "v": [1.0] * 100})
    DeltaTable(str(path)).update(updates={"v": "2.0"}, predicate="id < 150")
    return path


# files and tables that go --------------------------------------------------------------------------------------------


def spoiled(lake: Lake, name: str, spoil: Callable[[], object]) -> Any:
    """A lake to which something happens right after its first answer of this name."""
    waiting = [spoil]

    def answer(*args: Any, **more: Any) -> Any:
        result = getattr(lake, name)(*args, **more)
        while waiting:
            waiting.pop()()
        return result

    return LakeWith(lake, **{name: answer})


def vacuum(path: Path) -> None:
    for file in (*path.glob("*.parquet"), *path.glob("p=*/*.parquet")):
        file.unlink()


@pytest.mark.parametrize(
    "moment", ["snapshot", "file_difference", "require_files", "history", "local_files", "read_files"]
)
def test_files_that_go_while_it_runs_leave_what_the_log_tells_and_no_count(
    prices: Path, lake: Lake, moment: str
) -> None:
    if moment == "read_files":  # a table that DuckDB does not read by itself
        shutil.rmtree(prices)
        for number in range(3):
            builders.write(prices, {"id": [number] * 100, "v": [1.0] * 100, "p": [["a"]] * 100})
    found = compare(spoiled(lake, moment, lambda: vacuum(prices)), lake.find("prices"), 0, 2, **KEYED)
    assert not list(prices.glob("*.parquet")) and found.method is DiffMethod.LOG_ONLY and not found.exact
    assert (found.changes.net, found.changes.rows) == (NetCounts(None, None, None), ())
    assert any("is gone" in reason for reason in found.reasons) and found.is_changed is not False and found.hint
    assert found.log.files.added == 2


class SpoiledToken(CancelToken):
    """Something happens right before the n-th statement that reads rows."""

    def __init__(self, number: int, spoil: Callable[[], object]) -> None:
        super().__init__()
        self.left, self._spoil = number, spoil

    def reading(self, rows: int | None) -> Any:
        self.left -= 1
        if self.left == 0:
            self._spoil()
        return super().reading(rows)


def test_files_that_go_while_they_are_compared_are_read_to_their_end(prices: Path, lake: Lake) -> None:
    token = SpoiledToken(1, lambda: vacuum(prices))
    whole = compare(lake, lake.find("prices"), 0, 2, key=("id",))
    found = compare(lake, lake.find("prices"), 0, 2, key=("id",), token=token)
    assert token.left <= 0 and not list(prices.glob("*.parquet"))
    assert found.method is DiffMethod.KEY_JOIN and found.exact
    assert found.changes == whole.changes


@pytest.mark.parametrize("moment", ["snapshot", "history", "file_difference"])
def test_a_table_that_goes_while_it_runs_is_said(prices: Path, lake: Lake, moment: str) -> None:
    going = spoiled(lake, moment, lambda: shutil.rmtree(prices))
    with pytest.raises(TableNotFoundError) as refused:
        compare(going, lake.find("prices"), 0, 3, **KEYED)
    assert "deleted" in refused.value.hint


def test_a_table_made_anew_between_its_two_readings_is_refused_with_both_ids(prices: Path, lake: Lake) -> None:
    def anew() -> None:
        shutil.rmtree(prices)
        for number in range(4):
            builders.write(prices, {"id": [number], "v": [9.0]})

    before = lake.snapshot(lake.find("prices"), 0).metadata.id
    found = compare(spoiled(lake, "snapshot", anew), lake.find("prices"), 0, 3, **KEYED)
    after = lake.snapshot(lake.find("prices"), 3).metadata.id
    assert found.method is DiffMethod.LOG_ONLY and before != after
    assert before in found.reasons[0] and after in found.reasons[0] and "same side" in found.hint


WRITER = """
import sys
from pathlib import Path
from deltalake import DeltaTable
from tests.worlds.lake import builders
path = Path(sys.argv[1])
for number in range(8):
    builders.write(path, {"id": [1000 + number], "v": [1.0]})
    if number % 3 == 2:
        DeltaTable(str(path)).optimize.compact()
        DeltaTable(str(path)).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
"""


@pytest.mark.ci
def test_while_another_process_writes_compacts_and_vacuums_an_answer_is_true_or_none(prices: Path, lake: Lake) -> None:
    ref, answers, done = lake.find("prices"), [], False
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(prices)])
    while not done:
        done = writer.poll() is not None  # one more after it ended
        last = lake.latest_version(ref)
        answers += [(last, compare(lake, ref, 1, 3, **KEYED)), (last, compare(lake, ref, last, last - 1, **KEYED))]
    assert writer.returncode == 0
    for last, found in answers:
        net = found.changes.net
        if not found.is_available:
            assert any("gone" in reason for reason in found.reasons)
        elif found.question.from_version == 1:
            assert net == NetCounts(100, 150, 0)
        elif last > 3:
            assert net.updated == 0 and (net.inserted, net.deleted) in ((0, 0), (0, 1), (100, 0), (150, 0)), last
        else:
            assert found.method is DiffMethod.SAME_VERSION or net.updated is not None
    assert answers[-2][1].method is DiffMethod.LOG_ONLY  # v1's files were vacuumed at last


# a log that lies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("claims", [(1, 1), (5_000, 7), (0, 0)])
def test_wrong_row_counts_in_the_log_change_no_count_and_make_none_up(
    root: Path, lake: Lake, claims: tuple[int, int]
) -> None:
    log = builders.HandLog(root / "t").start(columns={"id": "long", "v": "long"})

    def added(name: str, rows: Sequence[tuple[int, int]], claim: int) -> dict[str, Any]:
        file = root / "t" / name
        pq.write_table(pa.table({"id": [row[0] for row in rows], "v": [row[1] for row in rows]}), file)
        return builders.add(name, size=file.stat().st_size, rows=claim)

    log.commit(builders.commit_info(), added("a", [(1, 1), (2, 2), (3, 3)], claims[0]))
    log.commit(builders.commit_info(), builders.remove("a"), added("b", [(1, 9), (3, 3), (4, 4), (5, 5)], claims[1]))
    found = compare(lake, lake.find("t"), 1, 2, **KEYED)
    assert found.changes.net == NetCounts(2, 1, 1)
    assert not found.changes.agree_with(found.num_rows) and found.unchanged is None
    assert any("row counts" in reason for reason in found.reasons)
    rows = compare(lake, lake.find("t"), 1, 2)
    assert (rows.changes.net.inserted, rows.changes.net.deleted, rows.unchanged) == (3, 2, None)


# what is asked for ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--key", "--columns"])
def test_a_column_that_is_not_there_among_thousands_is_named_and_the_hint_stays_short(
    root: Path, weir: Weir, option: str
) -> None:
    names = {f"a column with a name of some length, number {number}": "long" for number in range(3_000)}
    builders.HandLog(root / "wide").start(columns=names).commit(builders.commit_info())
    answer = weir("diff", "wide", "--from", "0", "--to", "1", option, "gone")
    assert (answer.code, answer.out) == (3, "") and "no column" in answer.err and "gone" in answer.err
    assert "hint: columns: " in answer.err and len(answer.err) < 5_000


ODD = {"id": "=1", 'ö "q"': "@x", "a.b": "+1+1", "group": "-1", "=cmd|'/C calc'!A0": "\t=1", "<b>": 'line\nbreak,"q"'}


@pytest.fixture
def odd(root: Path) -> Path:
    """v0 one row; v1 an update of it, and one more: names and values that are not plain, nested and binary ones."""

    def rows(bump: int, *keys: str) -> pa.Table:
        count = len(keys)
        texts = {name: [text] * count for name, text in ODD.items()} | {"id": list(keys)}
        nested = {
            "s": [{"a": bump, "bytes": b"\xff"}] * count,
            "pairs": pa.array([[("k", bump)]] * count, pa.map_(pa.string(), pa.int64())),
            "raw": pa.array([b"\x00\xff" + bytes([bump])] * count, pa.binary()),
            "list": [[1.5, None]] * count,
        }
        return pa.table(texts | nested)

    path = root / "odd"
    write_deltalake(str(path), rows(0, "=1"))
    write_deltalake(str(path), rows(1, "=1", "=2"), mode="overwrite")
    return path


def test_odd_names_and_values_are_compared_and_leave_whole_and_safe(odd: Path, lake: Lake) -> None:
    found = compare(lake, lake.find("odd"), 0, 1, **KEYED)
    assert found.changes.net == NetCounts(1, 1, 0)
    (update,) = [row for row in found.changes.rows if row.before and row.after]
    assert set(update.changed) == {"s", "pairs", "raw"}
    lines = csv.reader(io.StringIO(exported(found, FORMATS["csv"]).decode("utf-8-sig"), newline=""))
    cells = [cell for line in lines for cell in line]
    assert len(cells) == 3 * (4 + 2 * len(found.changes.columns))
    assert not [cell for cell in cells if cell.lstrip("\t\r ")[:1] in tuple("=+@") or cell[:1] in tuple("\t\r")]
    assert "'@x" in cells and any("line\nbreak" in cell for cell in cells)
    document = json.loads(exported(found, FORMATS["json"]))
    assert {row["change"] for row in document} == {"update", "insert"}
    assert document[0]["after"]['ö "q"'] == "@x" and document[0]["after"]["=cmd|'/C calc'!A0"] == "\t=1"
    table = pq.read_table(io.BytesIO(exported(found, FORMATS["parquet"])))
    assert table.num_rows == 2 and any("raw" in name for name in table.column_names)


@pytest.mark.parametrize("key", ['ö "q"', "a.b", "group", "=cmd|'/C calc'!A0", "s", "raw", "pairs"])
def test_any_column_can_be_the_key_and_one_that_is_not_unique_is_said(odd: Path, lake: Lake, key: str) -> None:
    found = compare(lake, lake.find("odd"), 0, 1, key=(key,))
    net = found.changes.net
    assert found.method is DiffMethod.KEY_JOIN and found.key is not None and found.key.columns == (key,)
    assert net.inserted is not None and net.deleted is not None
    assert net.inserted - net.deleted == 1 and not found.exact
    assert found.changes.apart.rows and any("share their key" in reason for reason in found.reasons)


def test_a_row_of_a_megabyte_is_a_line_on_a_terminal_and_whole_in_json(root: Path, weir: Weir) -> None:
    path = builders.write(root / "big", {"id": [1], "note": ["x" * 2**20]})
    builders.write(path, {"id": [1], "note": ["y" * 2**20]}, mode="overwrite")
    shown = weir("diff", "big", "--from", "0", "--to", "1", "--key", "id")
    assert shown.code == 10 and len(shown.out) < 5_000 and "…" in shown.out
    (row,) = weir("diff", "big", "--from", "0", "--to", "1", "--key", "id", "--json").document["rows"]
    assert row["before"]["note"] == "x" * 2**20 and row["after"]["note"] == "y" * 2**20
