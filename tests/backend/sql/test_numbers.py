"""Numbers over versions against deltalake and a plain recount: SQL aggregates, and columns from statistics alone."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from backend.errors import QueryError
from backend.lake.lake import Lake
from backend.lake.model import Snapshot, TableRef
from backend.sql.numbers import aggregates, column_numbers
from tests.worlds.lake import builders

OpenLake = Callable[..., Lake]


def at(path: Path, version: int) -> pa.Table:
    return pa.RecordBatchReader.from_stream(DeltaTable(str(path), version=version).scan()).read_all()


@pytest.fixture
def orders(root: Path) -> Path:
    return builders.orders_table(root / "orders")


def values(progress: Iterator[object]) -> list[object]:
    *_, last = progress
    assert last.is_done  # type: ignore[attr-defined]
    return [value.value for value in last.values]  # type: ignore[attr-defined]


def test_an_aggregate_is_that_of_the_rows_at_each_version(orders: Path, open_lake: OpenLake) -> None:
    lake = open_lake()
    ref, found = lake.find("orders"), aggregates()
    rows = [at(orders, version) for version in range(4)]
    assert values(found.over(lake, ref, "sum(amount)", range(4))) == [pc.sum(r["amount"]).as_py() for r in rows]
    assert values(found.over(lake, ref, "count(*)", range(4))) == [r.num_rows for r in rows]
    paid = "count(*) FILTER (WHERE status = 'paid')"
    assert values(found.over(lake, ref, paid, range(4))) == [r["status"].to_pylist().count("paid") for r in rows]
    assert values(found.over(lake, ref, "count(DISTINCT status)", [3, 1, 1])) == [1, 2]


def test_mapped_columns_deletion_vectors_and_partitions_are_read_as_rows(root: Path, open_lake: OpenLake) -> None:
    path = builders.partitioned_table(root / "events")
    DeltaTable(str(path)).delete("id = 1")
    lake = open_lake()
    ref = lake.find("events")
    assert values(aggregates().over(lake, ref, "count(*)", [5, 6])) == [12, 11]
    assert values(aggregates().over(lake, ref, "count(DISTINCT day) || ' days'", [6])) == ["3 days"]


class CountedLake:
    """A lake that counts what is read of it; an `endless` one has no last batch."""

    def __init__(self, lake: Lake, *, endless: bool = False) -> None:
        self.lake, self.scans, self._endless = lake, 0, endless
        self.is_left = threading.Event()

    def snapshot(self, ref: TableRef, version: int | None = None) -> Snapshot:
        return self.lake.snapshot(ref, version)

    def read_files(self, snapshot: Snapshot, files: pa.Table | None = None, **more: Any) -> pa.RecordBatchReader:
        self.scans += 1
        reader = self.lake.read_files(snapshot, files, **more)
        return pa.RecordBatchReader.from_batches(reader.schema, self._batches(reader))

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            for batch in reader:
                yield batch
                while self._endless:
                    yield batch
        finally:
            self.is_left.set()


def test_a_value_is_computed_once(orders: Path, open_lake: OpenLake) -> None:
    lake, found = CountedLake(open_lake()), aggregates()
    ref = lake.lake.find("orders")
    first = values(found.over(lake, ref, "sum(amount)", range(4)))
    assert lake.scans == 4
    assert values(found.over(lake, ref, "sum(amount)", range(4))) == first and lake.scans == 4
    known = found.known(lake.lake.snapshot(ref), "sum(amount)", [1, 3, 9])
    assert [(value.version, value.value) for value in known] == [(1, first[1]), (3, first[3])]


def test_whoever_stops_asking_ends_the_work(orders: Path, open_lake: OpenLake) -> None:
    lake, found = CountedLake(open_lake(), endless=True), aggregates()
    progress = found.over(lake, lake.lake.find("orders"), "sum(amount)", range(4))
    for step in progress:
        if step.rows_read:
            break
    progress.close()  # type: ignore[attr-defined]
    assert lake.is_left.wait(120)  # nobody holds the rows any more
    assert lake.scans == 1


def test_a_version_that_cannot_be_computed_hides_no_other(orders: Path, open_lake: OpenLake) -> None:
    builders.write(orders, {"order_id": [9], "status": ["new"], "amount": [1.0], "tip": [2]}, schema_mode="merge")
    gone = DeltaTable(str(orders), version=1).file_uris()
    Path(next(iter(set(gone) - set(DeltaTable(str(orders)).file_uris())))).unlink()
    lake = open_lake()
    *_, last = aggregates().over(lake, lake.find("orders"), "sum(tip)", [3, 4])
    assert [value.value for value in last.values] == [None, 2] and "no column 'tip'" in str(last.values[0].problem)
    *_, last = aggregates().over(lake, lake.find("orders"), "sum(amount)", [1, 4])
    assert "is gone" in str(last.values[0].problem) and last.values[1].value is not None


def test_a_wrong_expression_is_said_before_anything_is_read(orders: Path, open_lake: OpenLake) -> None:
    lake = CountedLake(open_lake())
    with pytest.raises(QueryError, match="no column"):
        aggregates().over(lake, lake.lake.find("orders"), "sum(nothing)", range(4))
    assert lake.scans == 0


def test_a_columns_numbers_come_from_statistics_alone(orders: Path, open_lake: OpenLake) -> None:
    expected = [at(orders, version)["amount"].to_pylist() for version in range(4)]
    lake = open_lake()
    for file in orders.rglob("*.parquet"):
        file.unlink()
    totals = values(column_numbers().over(lake, lake.find("orders"), "amount", range(4)))
    assert [(t.lowest, t.highest, t.nulls) for t in totals] == [(min(e), max(e), 0) for e in expected]  # type: ignore[attr-defined]


def test_a_columns_name_may_begin_with_a_space(root: Path, open_lake: OpenLake) -> None:
    builders.write(root / "odd", {" amount": [3, 5]})
    lake = open_lake()
    (totals,) = values(column_numbers().over(lake, lake.find("odd"), " amount", [0]))
    assert (totals.lowest, totals.highest) == (3, 5)  # type: ignore[attr-defined]
