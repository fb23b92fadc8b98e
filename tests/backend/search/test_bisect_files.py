"""A probe of a condition on rows opens only files that nobody judged, and gives what a naive recount gives."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from app.search.text import notes
from backend.lake.lake import Lake
from backend.lake.model import Snapshot, TableRef
from backend.search.judge import FileQuestion, Judge, JudgedFiles, can_be_fetched
from backend.search.model import Bisection, BisectRequest, ProbeOutcome, VersionVerdict
from backend.search.search import Bisects, bisect
from backend.settings import load_settings
from backend.sql.numbers import ValueSource, VersionValue, aggregates
from tests.worlds.cases import few
from tests.worlds.lake import builders, vectors
from tests.worlds.lake.object_store import make_bucket, server_url, storage_options

Rows = list[dict[str, Any]]


class CountingLake:
    """A lake that tells which files were opened, and how often a version was read as a whole."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self.opened: list[tuple[str, str | None]] = []
        self.scans = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lake, name)

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


# random histories of a table with column mapping, deletion vectors, partitions and a schema that changes -------------


@dataclass
class Data:
    """One data file: its rows by physical names, and which of them a deletion vector marks."""

    day: str
    rows: Rows
    deleted: frozenset[int] = frozenset()
    vector: dict[str, Any] | None = None

    def live(self) -> Rows:
        return [row for place, row in enumerate(self.rows) if place not in self.deleted]


@dataclass
class Writer:
    """Writes a random history, and keeps what every version holds."""

    log: builders.HandLog
    random: Random
    columns: dict[str, tuple[str, str, int]]  # name: physical name, type, id
    files: dict[str, Data] = field(default_factory=dict)
    removed: list[tuple[str, Data]] = field(default_factory=list)
    states: list[Rows] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: count(10))

    def schema(self) -> dict[str, Any]:
        said = builders.metadata({"id": "long"}, configuration={"delta.columnMapping.mode": "name"})
        fields = [
            {
                "name": name,
                "type": kind,
                "nullable": True,
                "metadata": {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical},
            }
            for name, (physical, kind, number) in self.columns.items()
        ]
        said["metaData"]["schemaString"] = builders.json.dumps({"type": "struct", "fields": fields})
        said["metaData"]["partitionColumns"] = ["day"]
        said["metaData"]["configuration"]["delta.columnMapping.maxColumnId"] = "1000"
        return said

    def write(self, day: str, rows: Rows) -> dict[str, Any]:
        name = f"{next(self.numbers)}.parquet"
        held = [(physical, kind) for column, (physical, kind, _) in self.columns.items() if column != "day"]
        types = {"integer": pa.int32(), "long": pa.int64(), "string": pa.string()}
        schema = pa.schema([(physical, types[kind]) for physical, kind in held])
        self.log.table.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), self.log.table / name)
        self.files[name] = Data(day, rows)
        return self.add(name)

    def add(self, name: str) -> dict[str, Any]:
        data, size = self.files[name], (self.log.table / name).stat().st_size
        values = {"partitionValues": {"c-day": data.day}}
        return builders.add(name, size=size, rows=len(data.rows), dv=data.vector, **values)

    def take(self, name: str) -> dict[str, Any]:
        data = self.files.pop(name)
        self.removed.append((name, data))
        return builders.remove(name, dv=data.vector)

    def new_rows(self) -> Rows:
        physical = {name: each[0] for name, each in self.columns.items()}
        made = [
            {"id": self.random.randrange(99), "amount": self.random.choice([None, -3, -1, 0, 5, 9])}
            | {"extra": self.random.choice([None, "bad", "fine"])}
            for _ in range(self.random.randrange(1, 5))
        ]
        return [{physical[name]: value for name, value in row.items() if name in physical} for row in made]

    def commit(self, *actions: dict[str, Any], operation: str = "WRITE") -> None:
        self.log.commit(builders.commit_info(operation), *actions)
        names = {name: physical for name, (physical, _, _) in self.columns.items()}
        self.states.append(
            [
                {name: row.get(physical) for name, physical in names.items()} | {"day": data.day}
                for data in self.files.values()
                for row in data.live()
            ]
        )

    # what a writer does ------------------------------------------------------------------------------------------

    def append(self) -> None:
        self.commit(self.write(self.random.choice(["d1", "d2"]), self.new_rows()))

    def delete(self) -> None:
        name = self.random.choice(sorted(self.files))
        data = self.files[name]
        rows = data.deleted | {self.random.randrange(len(data.rows))}
        kind = self.random.choice(["u", "i", "p"])
        gone = self.take(name)
        self.files[name] = Data(data.day, data.rows, rows, vectors.write_vector(self.log.table, rows, kind=kind))
        self.commit(gone, self.add(name), operation="DELETE")

    def update(self) -> None:
        name = self.random.choice(sorted(self.files))
        data, amount = self.files[name], self.columns["amount"][0]
        rows = [{**row, amount: self.random.choice([-9, 9])} for row in data.live()]
        if rows:
            self.commit(self.take(name), self.write(data.day, rows), operation="UPDATE")

    def compact(self) -> None:
        actions = []
        for day in ("d1", "d2"):
            names = sorted(name for name, data in self.files.items() if data.day == day)
            rows = [row for name in names for row in self.files[name].live()]
            actions += [self.take(name) for name in names]
            actions += [self.write(day, rows)] if rows else []
        self.commit(*actions, operation="OPTIMIZE")

    def add_column(self) -> None:
        if "extra" not in self.columns:
            number = next(self.numbers)
            self.columns["extra"] = (f"c-extra-{number}", "string", number)
            self.commit(self.schema(), operation="ADD COLUMNS")

    def widen(self) -> None:
        physical, _, number = self.columns["amount"]
        self.columns["amount"] = (physical, "long", number)
        self.commit(self.schema(), operation="CHANGE COLUMN")

    def anew(self) -> None:
        """A column dropped, and another one made of its name: what older files hold is gone."""
        number, name = next(self.numbers), self.random.choice(["amount", "extra"])
        if name in self.columns:
            kind = self.columns[name][1]
            self.columns[name] = (f"c-{name}-{number}", kind, number)
            self.commit(self.schema(), operation="REPLACE COLUMNS")

    def bring_back(self) -> None:
        for name, data in self.removed:
            if name not in self.files:
                self.files[name] = data
                return self.commit(self.add(name), operation="RESTORE")
        return None


def random_table(path: Path, seed: int, *, commits: int = 16) -> Writer:
    columns = {"id": ("c-id", "long", 1), "amount": ("c-amount", "integer", 2), "day": ("c-day", "string", 3)}
    writer = Writer(builders.HandLog(path), Random(seed), columns)
    features = ("columnMapping", "deletionVectors", "typeWidening")
    writer.log.commit(builders.protocol(3, 7, features), writer.schema(), builders.commit_info("CREATE TABLE"))
    writer.states.append([])
    writer.append()
    acts = [writer.append, writer.append, writer.append, writer.delete, writer.delete, writer.update]
    acts += [writer.compact, writer.add_column, writer.widen, writer.anew, writer.bring_back]
    while len(writer.states) < commits:
        act = writer.random.choice(acts)
        if writer.files or act == writer.append:
            act()
    return writer


def _or(first: bool | None, second: bool | None) -> bool | None:
    if first or second:
        return True
    return None if None in (first, second) else False


CONDITIONS: dict[str, Callable[[dict[str, Any]], bool | None]] = {
    "amount >= 0": lambda row: None if row["amount"] is None else row["amount"] >= 0,
    "extra <> 'bad'": lambda row: None if row["extra"] is None else row["extra"] != "bad",
    "amount >= -1 OR day <> 'd1'": lambda row: _or(
        None if row["amount"] is None else row["amount"] >= -1, row["day"] != "d1"
    ),
}


def recounted(rows: Rows, holds: Callable[[dict[str, Any]], bool | None]) -> VersionVerdict:
    said = [holds(row) for row in rows]
    return VersionVerdict(False not in said, None, said.count(False), said.count(None), len(said))


@pytest.mark.parametrize("seed", few(2, range(4)))
def test_every_version_of_a_random_history_is_judged_as_a_recount_judges_it(
    root: Path, open_lake: Callable[..., Lake], seed: int
) -> None:
    writer = random_table(root / "t", seed)
    lake = CountingLake(open_lake())
    ref, judge = lake.find("t"), Judge()
    for text, holds in CONDITIONS.items():
        versions = [v for v, rows in enumerate(writer.states) if "extra" not in text or _has_extra(lake, ref, v)]
        Random(seed).shuffle(versions)
        lake.opened.clear()
        for version in versions:
            seen = len(lake.opened)
            number = judged(judge, lake, version, text)
            assert number.value == recounted(writer.states[version], holds), (text, version)
            new = lake.opened[seen:]
            assert set(new) <= lake.keys(ref, version) and len(set(new)) == len(new) == number.files_read
        defined = [_definition(lake, ref, version, text) for version in versions]
        most = max(Counter(lake.opened).values(), default=0)
        assert most <= len(set(defined)) and lake.scans == 0  # once for each shape of the columns

    lake.opened.clear()
    for version, rows in enumerate(writer.states):  # an aggregate reads the version as a whole
        below = sum(row["amount"] is not None and row["amount"] < 0 for row in rows)
        text = "count(*) FILTER (WHERE amount < 0) = 0"
        verdict = judged(judge, lake, version, text).value
        assert verdict is not None and (verdict.holds, verdict.aggregates[0][1]) == (not below, below), version


SEARCHED: dict[str, Callable[[Rows], bool]] = {
    "amount >= 0": lambda rows: all(row["amount"] is None or row["amount"] >= 0 for row in rows),
    "amount IS NOT NULL OR id < 30": lambda rows: all(row["amount"] is not None or row["id"] < 30 for row in rows),
    "count(*) = count(DISTINCT id)": lambda rows: len({row["id"] for row in rows}) == len(rows),
    "sum(amount) <= 12": lambda rows: sum(row["amount"] or 0 for row in rows) <= 12,
    "count(*) <= 5": lambda rows: len(rows) <= 5,
}


@pytest.mark.parametrize("seed", [0, 1])
def test_a_search_of_a_random_history_against_a_look_at_every_version(
    root: Path, open_lake: Callable[..., Lake], seed: int
) -> None:
    states = random_table(root / "t", seed).states
    lake, bisects, searched = open_lake(), Bisects(), 0
    for text, holds in SEARCHED.items():
        truth = [holds(rows) for rows in states]
        if truth[0] is truth[-1]:
            continue
        searched += 1
        good, bad = (0, len(truth) - 1) if truth[0] else (len(truth) - 1, 0)
        *_, last = bisects.over(lake, lake.find("t"), BisectRequest(text, good, bad))
        found = last.result
        assert found is not None and found.culprit is not None, text
        assert all((probe.outcome is ProbeOutcome.GOOD) is truth[probe.version] for probe in found.probes)
        assert truth[found.culprit] is not truth[0] and truth[found.culprit - 1] is truth[0]
        flips = [v for v in range(1, len(truth)) if truth[v] is not truth[v - 1]]
        assert len(flips) > 1 or (found.culprit, found.last) == (flips[0], flips[0] - 1)
        if text == "amount >= 0":
            broken = sum((row["amount"] or 0) < 0 for row in states[found.bad_seen])
            assert len(found.examples.rows) == min(5, broken) > 0
            assert all(row["amount"] < 0 for row in found.examples.rows)
    assert searched


def test_numbers_over_versions_of_a_table_with_widened_types(root: Path, open_lake: Callable[..., Lake]) -> None:
    writer, lake = random_table(root / "t", 7), open_lake()
    steps = aggregates().over(lake, lake.find("t"), "sum(amount)", range(len(writer.states)))
    *_, last = steps
    amounts = [[row["amount"] for row in rows if row["amount"] is not None] for rows in writer.states]
    assert [each.value for each in last.values] == [sum(some) if some else None for some in amounts]


def _has_extra(lake: Any, ref: TableRef, version: int) -> bool:
    return '"extra"' in lake.snapshot(ref, version).metadata.schema_json


def _definition(lake: Any, ref: TableRef, version: int, text: str) -> str:
    fields = builders.json.loads(lake.snapshot(ref, version).metadata.schema_json)["fields"]
    return str([each for each in fields if each["name"] in text])


# a search ------------------------------------------------------------------------------------------------------------


def found_by(lake: Any, ref: TableRef, text: str = "amount >= 0", *, judge: Judge | None = None) -> Bisection:
    *_, last = bisect(lake, ref, BisectRequest(text), judge=judge)
    assert last.result is not None
    return last.result


def many_versions(path: Path, *, versions: int, files: int, bad: int) -> None:
    """Version 0 has `files` files, each later one brings another; from `bad` on there is a row below zero."""
    log, numbers = builders.HandLog(path), count()

    def added(amount: float) -> dict[str, Any]:
        file = path / f"{next(numbers)}.parquet"
        rows = pa.table({"id": list(range(100)), "amount": [1.0] * 99 + [amount], "note": ["x" * 50] * 100})
        pq.write_table(rows, file)
        return builders.add(file.name, size=file.stat().st_size, rows=100)

    path.mkdir(parents=True)
    start = [added(1.0) for _ in range(files)]
    columns = {"id": "long", "amount": "double", "note": "string"}
    log.commit(builders.protocol(), builders.metadata(columns), builders.commit_info(), *start)
    for version in range(1, versions):
        log.commit(builders.commit_info(), added(-1.0 if version == bad else 1.0))


def test_a_search_opens_each_file_once(root: Path, open_lake: Callable[..., Lake]) -> None:
    many_versions(root / "t", versions=33, files=20, bad=23)
    lake = CountingLake(open_lake())
    ref = lake.find("t")
    found = found_by(lake, ref)
    assert found.culprit == 23 and found.examples.rows[0]["amount"] == -1.0
    *judged, example = lake.opened
    assert len(set(judged)) == len(judged) == 52 and lake.scans == 0  # every file is in the newest version
    assert example == ("42.parquet", None)  # of the only file that breaks it
    ends, others = ([probe.number for probe in probes] for probes in (found.probes[:2], found.probes[2:]))
    assert [(n.files_read, n.files, n.rows_read) for n in ends] == [(20, 20, 2_000), (32, 52, 3_200)]
    assert len(others) >= 5 and all((n.files_read, n.rows_read, n.bytes_read) == (0, 0, 0) for n in others)
    assert all(number.source is ValueSource.ROWS and number.files == 20 + number.version for number in others)


def test_a_file_that_was_judged_may_go(root: Path, open_lake: Callable[..., Lake]) -> None:
    path = root / "t"
    for number in range(9):
        rows = pa.table({"id": [number], "amount": [1.0 if number < 5 else -1.0]})
        write_deltalake(str(path), rows, mode="overwrite")
    lake, judge = CountingLake(open_lake()), Judge()
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
    assert (again.last, again.first_seen, again.candidates) == (0, 8, tuple(range(1, 9)))
    gone = [probe for probe in again.probes if probe.outcome is ProbeOutcome.SKIPPED]
    assert {probe.version for probe in gone} == set(range(1, 8)) and "is gone" in str(gone[0].reason)


def test_a_table_that_was_replaced_in_between_is_said_with_both_ids(root: Path, open_lake: Callable[..., Lake]) -> None:
    log, columns = builders.HandLog(root / "t").start(columns={"amount": "long"}, table_id="one"), {"amount": "long"}
    for name, amount in (("good", 1), ("bad", -1)):
        pq.write_table(pa.table({"amount": [amount]}), root / "t" / name)
    size = (root / "t" / "bad").stat().st_size
    assert size == (root / "t" / "good").stat().st_size
    log.commit(builders.commit_info(), builders.add("good", size=size, rows=1))
    anew = (builders.metadata(columns, table_id="two"), builders.remove("good"), builders.add("bad", size=size, rows=1))
    log.commit(builders.commit_info("CREATE OR REPLACE TABLE"), *anew)
    lake = open_lake()
    found = found_by(lake, lake.find("t"))
    assert (found.culprit, found.table_id, found.older_id) == (2, "two", "one")
    assert "its id is one at v0 and two at v2" in " ".join(notes(found))


def test_a_condition_of_no_truth_is_refused_on_a_table_without_rows(root: Path, open_lake: Callable[..., Lake]) -> None:
    builders.HandLog(root / "t").start(columns={"id": "long", "amount": "double"})
    lake = open_lake()
    assert "gives DOUBLE" in str(judged(Judge(), lake, 0, "amount").problem)
    assert judged(Judge(), lake, 0, "amount > 0").value == VersionVerdict(True, None, 0, 0, 0)


def test_a_column_called_as_the_number_of_a_file(root: Path, open_lake: Callable[..., Lake]) -> None:
    builders.write(root / "t", {"file": [1, 2], "file_": [3, 4], "total": [5, -6], "rows": [0, 0]})
    builders.write(root / "t", {"file": [1], "file_": [-3], "total": [5], "rows": [0]})
    lake = open_lake()
    number = judged(Judge(), lake, 1, "total > 0 AND file > 0 AND file_ > 0")
    assert number.value == VersionVerdict(False, None, 2, 0, 3)


def test_the_question_that_was_asked_longest_ago_is_forgotten_first() -> None:
    judged = JudgedFiles(most=5)
    first, second = (FileQuestion("t", "id", text, "") for text in ("a", "b"))
    for question, names in ((first, ["x", "y"]), (second, ["x", "y"]), (second, ["z", "w"])):
        judged.put(question, pa.array(names), np.full((len(names), 3), 7))
    keys = pa.array(["z", "n", "x"])
    unknown, given = judged.look_up(second, keys)
    assert unknown.tolist() == [1] and given.tolist() == [[7] * 3, [0] * 3, [7] * 3]
    assert judged.look_up(first, keys)[0].tolist() == [0, 1, 2]


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


@pytest.mark.parametrize("most", [64, 0])
def test_on_an_object_store_few_files_are_fetched_else_each_version_is_scanned(remote: Lake, most: int) -> None:
    lake = CountingLake(remote)
    ref, judge = lake.find("t"), Judge(partial(can_be_fetched, most_files=most))
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
