"""A change feed counted without its rows: the numbers are those of reading it, and what cannot be counted says so."""

from collections import Counter
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from backend.changes.commits import counted_by_feed
from backend.errors import DataFileMissingError, DiffError, TableCorruptError
from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.settings import load_settings
from backend.sql.session import CancelToken
from backend.work import Stopped
from tests.backend.changes.test_diff_methods import History
from tests.worlds.lake.builders import HandLog, add, commit_info, metadata, protocol, remove

FEED = {"delta.enableChangeDataFeed": "true"}
VECTOR = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40}


def lake_at(root: Path) -> Lake:
    return Lake(load_settings(home=root / "home", lake={"roots": [str(root)], "refresh_s": 0.001}))


def counted(lake: Lake, ref: TableRef, first: int, last: int) -> dict[tuple[int, str], int]:
    found = {version: lake.change_counts(ref, version) for version in range(first + 1, last + 1)}
    return {(version, kind): rows for version, counts in found.items() for kind, rows in counts.items() if rows}


@pytest.mark.parametrize("seed", [1, 3, 4])
def test_counts_are_those_of_the_feed_that_is_read(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    history = History(tmp_path, random, has_key=True)
    for _ in range(5):
        history.grow()
    table = DeltaTable(history.path)
    feed = pa.table(table.load_cdf(starting_version=1, columns=["_change_type", "_commit_version"]))
    read = Counter(zip(feed["_commit_version"].to_pylist(), feed["_change_type"].to_pylist(), strict=True))
    assert read
    lake = lake_at(tmp_path)
    (ref,) = lake.tables()
    assert counted(lake, ref, 0, table.version()) == read


@pytest.fixture
def log(tmp_path: Path) -> HandLog:
    """v0 the feed is on, v1 a file of ten rows with two of them marked as deleted."""
    log = HandLog(tmp_path / "t").commit(protocol(), metadata(configuration=FEED), commit_info())
    pq.write_table(pa.table({"id": list(range(10))}), tmp_path / "t" / "a")
    return log.commit(add("a", dv=VECTOR | {"cardinality": 2}), commit_info())


def change_file(log: HandLog, types: list[str | None]) -> dict[str, object]:
    folder = log.table / "_change_data"
    folder.mkdir()
    pq.write_table(pa.table({"id": [1] * len(types), "_change_type": pa.array(types, pa.string())}), folder / "c")
    return {"cdc": {"path": "_change_data/c", "partitionValues": {}, "size": 1, "dataChange": False}}


def test_vectors_are_counted_and_not_read_where_deltalake_misreads_them(log: HandLog) -> None:
    """A file that goes with its vector: `load_cdf` would give the two rows that the vector marks."""
    log.commit(remove("a", dv=VECTOR | {"cardinality": 2}), add("a", dv=VECTOR | {"cardinality": 5, "offset": 9}))
    log.commit(remove("a", dv=VECTOR | {"cardinality": 5, "offset": 9}), commit_info("DELETE"))
    lake = lake_at(log.table.parent)
    (ref,) = lake.tables()
    assert counted(lake, ref, 0, 3) == {(1, "insert"): 8, (2, "delete"): 3, (3, "delete"): 5}
    assert lake.cdf_support(ref, 1, 2).covered
    for first, last in ((2, 3), (0, 1)):
        support = lake.cdf_support(ref, first, last)
        assert not support.covered and f"commit {last} removes or adds whole files with deletion" in support.reason


def test_rows_that_come_back_are_not_guessed(log: HandLog) -> None:
    log.commit(remove("a", dv=VECTOR | {"cardinality": 2}), add("a"), commit_info("RESTORE"))
    lake = lake_at(log.table.parent)
    with pytest.raises(DiffError, match="commit 2 brings back rows of a"):
        lake.change_counts(lake.tables()[0], 2)


def test_one_type_a_file_is_known_from_its_statistics(log: HandLog) -> None:
    log.commit(change_file(log, ["delete"] * 3), remove("a", dv=VECTOR | {"cardinality": 2}), commit_info())
    lake = lake_at(log.table.parent)
    assert lake.change_counts(lake.tables()[0], 2) == {"delete": 3}


def test_what_is_missing_or_damaged_is_told(log: HandLog) -> None:
    log.commit(change_file(log, ["insert", None]), commit_info())
    log.commit(metadata(), commit_info())
    lake = lake_at(log.table.parent)
    (ref,) = lake.tables()
    with pytest.raises(TableCorruptError, match="rows without a change type"):
        lake.change_counts(ref, 2)
    with pytest.raises(DiffError, match="was off at version 3"):
        lake.change_counts(ref, 3)
    (log.table / "_change_data" / "c").unlink()
    with pytest.raises(DataFileMissingError, match=r"_change_data/c .* is gone"):
        lake.change_counts(ref, 2)
    token = CancelToken()
    token.stop()
    with pytest.raises(Stopped):
        counted_by_feed(lake, ref, lake.history(ref), token)
