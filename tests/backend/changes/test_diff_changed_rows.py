"""All changed rows on their way to a file are those that the answer holds, by every method and in every format."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from backend.changes.export import ChangedBatches, exported, file_of
from backend.changes.model import DiffMethod, Limits, VersionDiff
from backend.lake.lake import Lake
from backend.sql.export import FORMATS, Format
from backend.sql.session import CancelToken
from backend.work import Stopped
from tests.backend.changes.test_diff_methods import History
from tests.worlds.cases import few
from tests.worlds.lake.diffs import diff, prepare

OpenLake = Callable[[], Lake]
FEW = 3  # rows in an answer, so that a file must have more
FEED, KEY, ROWS = DiffMethod.CHANGE_FEED, DiffMethod.KEY_JOIN, DiffMethod.MULTISET


SMALL = Limits(batch_rows=2)


class Taken:
    """What a file of one format would hold."""

    def __init__(self, form: Format) -> None:
        self._form, self.times, self.content = form, 0, b""

    def __call__(self, changed: ChangedBatches) -> None:
        self.content = b"".join(piece for _, piece in file_of(changed, self._form))
        self.times += 1


def both(lake: Lake, pair: tuple[int, int], **options: Any) -> tuple[VersionDiff, list[Any]]:
    """An answer that holds all rows, and the rows of a file beside an answer that holds few."""
    (ref,) = lake.tables()
    whole = diff(lake, ref, *pair, row_limit=100_000, **options)
    taken = Taken(FORMATS["json"])
    few = diff(lake, ref, *pair, row_limit=FEW, take=taken, **({"limits": SMALL} | options))
    assert (few.changes.net, few.changes.apart, few.method, taken.times) == (
        whole.changes.net,
        whole.changes.apart,
        whole.method,
        1,
    )
    return whole, json.loads(taken.content)


def in_order(rows: list[Any]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


@pytest.mark.parametrize("seed", few(3, range(8)))
def test_every_method_gives_all_rows(root: Path, open_lake: OpenLake, seed: int) -> None:
    random = Random(1_000 + seed)
    history = History(root, random, has_key=seed % 3 != 0)
    for _ in range(random.randint(2, 5)):
        history.grow()
    last, lake = DeltaTable(history.path).version(), open_lake()
    (ref,) = lake.tables()
    pair = (0, last) if seed % 2 else (last, 0)
    key = ("id",) if history.has_key else None
    for method in prepare(lake, ref, *pair, key=key).plan.methods[:-1]:
        whole, rows = both(lake, pair, key=key, method=method)
        held = json.loads(exported(whole, FORMATS["json"]))
        assert in_order(rows) == in_order(held), method
        if whole.key and not whole.changes.apart.rows:
            assert rows == held, "in the order of the key"


def test_too_many_to_be_sorted_leave_as_they_come(root: Path, open_lake: OpenLake) -> None:
    write_deltalake(root / "t", pa.table({"id": range(30), "v": range(30)}))
    DeltaTable(root / "t").update(updates={"v": "v + 1"}, predicate="id < 10")
    DeltaTable(root / "t").delete("id > 24")
    whole, rows = both(open_lake(), (0, 2), key=("id",), limits=Limits(batch_rows=2, sorted_rows=9))
    held = json.loads(exported(whole, FORMATS["json"]))
    assert in_order(rows) == in_order(held) and len(rows) == 15
    assert rows[10:] == held[10:], "the few are sorted all the same"


@pytest.mark.parametrize("options", [{"tolerance": 0.2}, {"where": "v > 3"}, {"columns": ("v",)}], ids=str)
def test_what_is_left_out_of_the_answer_is_left_out_of_the_file(
    root: Path, open_lake: OpenLake, options: dict[str, Any]
) -> None:
    write_deltalake(root / "t", pa.table({"id": range(40), "v": [n / 4 for n in range(40)], "s": ["a"] * 40}))
    new = pa.table({"id": range(5, 45), "v": [n / 4 + 0.1 * (n % 3) for n in range(40)], "s": ["b"] * 40})
    write_deltalake(root / "t", new, mode="overwrite")
    whole, rows = both(open_lake(), (0, 1), key=("id",), **options)
    assert len(rows) > FEW
    assert rows == json.loads(exported(whole, FORMATS["json"]))


def test_each_format_holds_the_same_rows(root: Path, open_lake: OpenLake) -> None:
    write_deltalake(root / "t", pa.table({"id": range(20), "s": [f"=v{n}" for n in range(20)]}))
    DeltaTable(root / "t").update(updates={"s": "'x'"}, predicate="id > 4")
    lake = open_lake()
    (ref,) = lake.tables()
    taken = {name: Taken(form) for name, form in FORMATS.items()}
    for take in taken.values():
        diff(lake, ref, 0, 1, key=("id",), row_limit=FEW, take=take, limits=SMALL)
    table = pq.read_table(io.BytesIO(taken["parquet"].content))
    lines = list(csv.DictReader(io.StringIO(taken["csv"].content.decode("utf-8-sig"), newline="")))
    documents = json.loads(taken["json"].content)
    assert table["before.id"].to_pylist() == [int(line["after.id"]) for line in lines] == list(range(5, 20))
    assert table["before.s"].to_pylist() == [each["before"]["s"] for each in documents]
    assert [line["before.s"] for line in lines] == [f"'=v{n}" for n in range(5, 20)]
    assert {tuple(each["changed_columns"]) for each in documents} == {("s",)}


def test_nothing_changed_is_a_file_without_rows(root: Path, open_lake: OpenLake) -> None:
    write_deltalake(root / "t", pa.table({"id": [1]}))
    write_deltalake(root / "t", pa.table({"id": [2]}), mode="append")
    DeltaTable(root / "t").optimize.compact()
    whole, rows = both(open_lake(), (1, 2))
    assert (whole.changes.net.total, rows) == (0, [])


def test_writing_ends_when_it_is_cancelled(root: Path, open_lake: OpenLake) -> None:
    write_deltalake(root / "t", pa.table({"id": range(50)}))
    write_deltalake(root / "t", pa.table({"id": range(50)}), mode="append")
    lake, token, seen = open_lake(), CancelToken(), list[int]()
    (ref,) = lake.tables()

    def take(changed: ChangedBatches) -> None:
        for batch in changed.batches:
            seen.append(batch.num_rows)
            token.stop()

    with pytest.raises(Stopped):
        diff(lake, ref, 0, 1, take=take, limits=SMALL, token=token)
    assert seen == [2]
