"""A probe of a condition on rows opens only files that nobody judged, and gives what a naive recount gives."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from backend.lake.lake import Lake
from backend.lake.model import Snapshot, TableRef
from backend.search.condition import Judge, VersionVerdict
from backend.search.search import Bisection, BisectRequest, bisect
from backend.settings import load_settings
from backend.sql.numbers import VersionValue, aggregates
from tests.worlds.cases import few
from tests.worlds.lake import builders, vectors
from tests.worlds.lake.diff_lakes import LakeWith
from tests.worlds.lake.histories import History
from tests.worlds.lake.object_store import make_bucket, server_url, storage_options

Rows = list[dict[str, Any]]


class CountingLake(LakeWith):
    """A lake that tells which files were opened, and how often a version was read as a whole."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake)
        self.opened: list[tuple[str, str | None]] = []
        self.scans = 0

    def read_files(self, snapshot: Snapshot, files: pa.Table | None = None, **more: Any) -> pa.RecordBatchReader:
        self.opened += [(file["path"], file["dv_id"]) for file in files.to_pylist()] if files is not None else []
        self.scans += files is None
        return self._lake.read_files(snapshot, files, **more)

    def keys(self, ref: TableRef, version: int) -> set[tuple[str, str | None]]:
        files = self._lake.snapshot(ref, version).columns(["path", "dv_id"]).to_pylist()
        return {(file["path"], file["dv_id"]) for file in files}


def judged(judge: Judge, lake: Any, version: int, text: str = "amount >= 0") -> VersionValue[VersionVerdict]:
    *_, last = judge.verdicts.over(lake, lake.find("t"), text, [version])
    value: VersionValue[VersionVerdict] = last.values[0]
    return value


# every version against a recount --------------------------------------------------------------------------------------


def states(root: Path, seed: int) -> list[Rows]:
    """What every version of a random table holds, as deltalake reads it."""
    history = History(root, Random(seed), has_key=True)
    for _ in range(12):
        history.grow()
    versions = range(DeltaTable(history.path).version() + 1)
    scans = (DeltaTable(history.path, version=version).scan() for version in versions)
    return [pa.table(scan.read_all()).to_pylist() for scan in scans]


CONDITIONS: dict[str, Callable[[dict[str, Any]], bool | None]] = {
    "v <> 'a'": lambda row: row["v"] != "a",
    "x0 <> 1": lambda row: None if row["x0"] is None else row["x0"] != 1,
    "v <> 'a' OR day = 'mon'": lambda row: row["v"] != "a" or (None if row["day"] is None else row["day"] == "mon"),
}


def recounted(rows: Rows, holds: Callable[[dict[str, Any]], bool | None]) -> VersionVerdict:
    answers = [holds(row) for row in rows]
    return VersionVerdict(False not in answers, None, answers.count(False), answers.count(None), len(answers))


@pytest.mark.parametrize("seed", few(1, range(4)))
def test_every_version_of_a_random_history_is_judged_as_a_recount_judges_it(root: Path, lake: Lake, seed: int) -> None:
    held = states(root, seed)
    counting, judge = CountingLake(lake), Judge()
    ref = counting.find("t")
    schemas = [counting.snapshot(ref, version).metadata.schema_json for version in range(len(held))]
    for text, holds in CONDITIONS.items():
        versions = [version for version, schema in enumerate(schemas) if "x0" not in text or '"x0"' in schema]
        Random(seed).shuffle(versions)
        counting.opened.clear()
        for version in versions:
            seen = len(counting.opened)
            number = judged(judge, counting, version, text)
            assert number.value == recounted(held[version], holds), (text, version)
            new = counting.opened[seen:]
            assert set(new) <= counting.keys(ref, version) and len(set(new)) == len(new) == number.files_read
        tables = [json.loads(schemas[version])["fields"] for version in versions]
        shapes = {str([column for column in columns if column["name"] in text]) for columns in tables}
        most = max(Counter(counting.opened).values(), default=0)
        assert most <= len(shapes) and counting.scans == 0, ("once for each shape of the columns", text, shapes)
    counting.opened.clear()
    for version, rows in enumerate(held):  # an aggregate reads the version as a whole
        found = sum(row["v"] == "a" for row in rows)
        verdict = judged(judge, counting, version, "count(*) FILTER (WHERE v = 'a') = 0").value
        assert verdict is not None and (verdict.holds, verdict.aggregates[0][1]) == (not found, found), version


def test_deleted_rows_and_columns_widened_or_made_anew_are_judged_as_they_are(root: Path, lake: Lake) -> None:
    """v1 a file of three rows, v2 one of them deleted, v3 `amount` widened and a file more, v4 `amount` made anew and a
    file more, v5 the first file as it was and no other. Of a column made anew older files hold nothing."""
    path, features = root / "t", ("columnMapping", "deletionVectors", "typeWidening")

    def named(stored: str, kind: str, number: int) -> dict[str, Any]:
        return builders.mapped_metadata({"id": ("c-id", "long", 1), "amount": (stored, kind, number)})

    def file(name: str, stored: str, amounts: pa.Array, **more: Any) -> dict[str, Any]:
        pq.write_table(pa.table({"c-id": range(len(amounts)), stored: amounts}), path / name)
        return builders.add(name, size=(path / name).stat().st_size, rows=len(amounts), **more)

    log, written = builders.HandLog(path), builders.commit_info()
    log.commit(builders.protocol(3, 7, features), named("c-2", "integer", 2), written)
    small = pa.array([1, -3, 5], pa.int32())
    log.commit(file("a", "c-2", small), written)
    vector = vectors.write_vector(path, [1])
    log.commit(builders.remove("a"), file("a", "c-2", small, dv=vector), written)
    log.commit(named("c-2", "long", 2), file("b", "c-2", pa.array([2**40, -1])), written)
    log.commit(named("c-9", "long", 3), file("c", "c-9", pa.array([-7, None], pa.int64())), written)
    gone = (builders.remove("a", dv=vector), builders.remove("b"), builders.remove("c"))
    log.commit(*gone, file("a", "c-2", small), written)
    judge, expected = Judge(), {1: (1, 0, 3), 2: (0, 0, 2), 3: (1, 0, 4), 4: (1, 5, 6), 5: (0, 3, 3)}
    for version in (3, 1, 5, 2, 4):
        violations, nulls, rows = expected[version]
        wanted = VersionVerdict(not violations, None, violations, nulls, rows)
        assert judged(judge, lake, version).value == wanted, version
    *_, last = aggregates().over(lake, lake.find("t"), "sum(amount)", range(6))
    assert [number.value for number in last.values] == [None, 3, 6, 2**40 + 5, -7, None]


# a search ------------------------------------------------------------------------------------------------------------


def found_by(lake: Any, ref: TableRef, text: str = "amount >= 0", *, judge: Judge | None = None) -> Bisection:
    *_, last = bisect(lake, ref, BisectRequest(text), judge=judge)
    assert last.result is not None
    return last.result


def test_a_file_that_was_judged_may_go(root: Path, lake: Lake) -> None:
    path = root / "t"
    for number in range(9):
        rows = pa.table({"id": [number], "amount": [1.0 if number < 5 else -1.0]})
        write_deltalake(str(path), rows, mode="overwrite")
    lake, judge = CountingLake(lake), Judge()
    ref = lake.find("t")
    for version in (3, 4, 5):
        judged(judge, lake, version)
    whole = shutil.copytree(path, root.parent / "whole")
    DeltaTable(str(path)).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    for version in (0, 8):  # the ends were kept, the middle was vacuumed
        (name,) = DeltaTable(str(whole), version=version).file_uris()
        shutil.copy(whole / Path(name).name, path / Path(name).name)
    found = found_by(lake, ref, judge=judge)
    assert (found.culprit, found.last, found.is_monotonic) == (5, 4, True)
    again = found_by(lake, ref)  # nobody judged them before they went
    assert (again.last, again.first_seen, again.candidates, again.culprit) == (0, 8, tuple(range(1, 9)), None)


def test_a_condition_of_no_truth_is_refused_on_a_table_without_rows(root: Path, lake: Lake) -> None:
    builders.HandLog(root / "t").start(columns={"id": "long", "amount": "double"})
    assert "gives DOUBLE" in str(judged(Judge(), lake, 0, "amount").problem)
    assert judged(Judge(), lake, 0, "amount > 0").value == VersionVerdict(True, None, 0, 0, 0)


def test_a_column_called_as_the_number_of_a_file(root: Path, lake: Lake) -> None:
    builders.write(root / "t", {"file": [1, 2], "file_": [3, 4], "total": [5, -6], "rows": [0, 0]})
    builders.write(root / "t", {"file": [1], "file_": [-3], "total": [5], "rows": [0]})
    number = judged(Judge(), lake, 1, "total > 0 AND file > 0 AND file_ > 0")
    assert number.value == VersionVerdict(False, None, 2, 0, 3)


# an object store ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """`t`: v0 – v7 append a file each, v5 brings the bad row; v8 rewrites what v5 brought, v9 appends."""
    options, place = storage_options(server_url()), "s3://bisect/root"
    make_bucket("bisect")
    for number in range(8):
        rows = pa.table({"id": [number], "amount": [-4.0 if number == 5 else 1.0]})
        write_deltalake(f"{place}/t", rows, mode="append", storage_options=options)
    table = DeltaTable(f"{place}/t", storage_options=options)
    table.update(updates={"amount": "-9.0"}, predicate="id = 5")
    write_deltalake(f"{place}/t", rows, mode="append", storage_options=options)
    settings = {"roots": [place], "storage_options": {place: options}, "refresh_s": 0.001}
    return Lake(load_settings(home=tmp_path_factory.mktemp("home"), lake=settings))


@pytest.mark.ci
@pytest.mark.parametrize("most", few(1, [64, 0]))
def test_on_an_object_store_few_files_are_fetched_else_each_version_is_scanned(remote: Lake, most: int) -> None:
    lake = CountingLake(remote)
    ref, judge = lake.find("t"), Judge(most_fetched=most)
    found = found_by(lake, ref, judge=judge)
    assert (found.culprit, found.last) == (5, 4) and found.examples.rows[0]["amount"] < 0
    for version in (9, 8, 7, 4, 0):
        bad = int(version >= 5)
        verdict = judged(judge, lake, version).value
        assert verdict == VersionVerdict(not bad, None, bad, 0, version + 1 - (version >= 8))
    if most:
        assert lake.scans == 0 and len(lake.opened) == len(set(lake.opened)) + 1  # an example
    else:
        assert lake.scans > len(found.probes) and not lake.opened
