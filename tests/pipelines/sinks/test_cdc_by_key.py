"""Changes of databases in the sinks that apply them: the table is the database's state, or all that it ever was.

What a change leaves alone stays; what nothing orders is told.
"""

import json
import random
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from pipelines.declare.cdc import debezium
from pipelines.sinks.history import history
from pipelines.sinks.upsert import upsert
from tests.worlds.cases import soak
from tests.worlds.spark import by_key
from tests.worlds.spark.debezium_log import ROW, Flavour, Log, State, database, states

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3_000)]

Table = Callable[..., list[Any]]


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    """`table(make, schema, batch, …)`: the rows of that sink's table after these batches of envelopes or records."""

    def rows_of(
        make: Any, schema: str, *batches: list[Any], flavour: Any = "postgresql", current: bool = True, **modes: Any
    ) -> list[Any]:
        key = "_id" if flavour == "mongodb" else "id"
        sink = make(keys=[key], sequence="position", deleted="op = 'd'", except_columns=["op", "changed_at"])
        frames = []
        for batch in ([], *batches):
            records = [change if isinstance(change, tuple) else (None, json.dumps(change)) for change in batch]
            raw = spark.createDataFrame(records, "key STRING, value STRING")
            frames.append(debezium(raw, schema, flavour=flavour, **modes).localCheckpoint())  # as a stream's are
        rows = by_key.written(sink, tmp_path / sink.kind, *frames).collect()
        return [row for row in rows if not current or make is upsert or row.is_current]

    return rows_of


MODES: dict[Flavour, dict[str, Any]] = {
    "postgresql": {"decimals": "precise", "times": "microseconds"},
    "mysql": {"decimals": "precise", "times": "microseconds", "servers": [[0, 1], 2]},
    "mongodb": {},
}
SHORT = [pytest.param(name, 300, 2, marks=pytest.mark.ci) for name in MODES]


@pytest.mark.parametrize(("flavour", "changes", "batches"), [*SHORT, *soak(*((name, 100_000, 4) for name in MODES))])
def test_tables_are_the_last_state_and_the_whole_history_of_a_log(
    table: Table, flavour: Flavour, changes: int, batches: int
) -> None:
    """The log is mixed as far as partitions allow, cut, and sent again in part."""
    dice = random.Random(20261124)
    ledger = list(database(dice, changes, keys=changes // 20))
    assert {change.op for change in ledger} == {"r", "c", "u", "d"}
    log, key, schema = Log(flavour, ledger, dice).batches(batches), "id", ROW
    if flavour == "mongodb":
        key, schema = "_id", f"`_id` BIGINT, {ROW}"
    expected = states(ledger)
    latest = {key: mine[-1][0] for key, mine in expected.items() if mine and mine[-1][1] is None}
    rows = table(upsert, schema, *log, flavour=flavour, **MODES[flavour])
    assert {row[key]: values(row) for row in rows} == {number: plain(row, flavour) for number, row in latest.items()}
    spans: dict[int, list[Row]] = {}
    for row in table(history, schema, *log, flavour=flavour, current=False, **MODES[flavour]):
        spans.setdefault(row[key], []).append(row)
    for mine in spans.values():
        mine.sort(key=lambda row: row.valid_from)
    assert {number: [values(row) for row in mine] for number, mine in spans.items()} == {
        number: [plain(row, flavour) for row, _ in mine] for number, mine in expected.items() if mine
    }
    for number, mine in spans.items():
        check_spans(mine, [end for _, end in expected[number]])


def values(row: Row) -> State:
    """The row's columns, without those that the connector adds."""
    found = row.asDict(recursive=True)
    found["at"] = found["at"].replace(tzinfo=UTC)
    return {name: found[name] for name in ("id", "number", "status", "amount", "at", "day", "biography", "place")}


def plain(row: State, flavour: Flavour) -> State:
    """As a column holds it: MongoDB knows milliseconds."""
    at = row["at"]
    return {**row, "at": at.replace(microsecond=at.microsecond // 1_000 * 1_000) if flavour == "mongodb" else at}


def check_spans(mine: list[Row], ends: list[int | None]) -> None:
    """Each state of a key ends where the next begins, or before, where the row was deleted."""
    for row, after, end in zip(mine, [*mine[1:], None], ends, strict=True):
        assert row.is_current == (end is None) == (row.valid_to is None)
        if after is not None and end == after.number:
            assert row.valid_to == after.valid_from
        elif end is not None:
            assert row.valid_from < row.valid_to and (after is None or row.valid_to < after.valid_from)


def side_by_side(cases: list[list[list[Any]]]) -> list[list[Any]]:
    """The cases' first batches in one batch, then their second ones."""
    return [
        [change for case in cases if turn < len(case) for change in case[turn]] for turn in range(max(map(len, cases)))
    ]


PERSON = "id BIGINT, name STRING, biography STRING, tags ARRAY<STRING>, photo BINARY"
LEFT = "__debezium_unavailable_value"


def change(op: str, row: Any, lsn: int, **more: Any) -> dict[str, Any]:
    images = {"before": row} if op == "d" else {"after": row}
    return {"op": op, "source": {"lsn": lsn}, "ts_ms": 1, **images, **more}


def person(key: int, name: str, biography: object = LEFT, *rest: Any) -> dict[str, Any]:
    tags, photo = rest or ([LEFT], "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==")
    return {"id": key, "name": name, "biography": biography, "tags": tags, "photo": photo}


def first(key: int) -> dict[str, Any]:
    return change("r", person(key, "Anne", "long", ["a"], "3q0="), 1)


WHOLE = ("long", ["a"], b"\xde\xad")
LEFT_ALONE: list[tuple[list[list[Any]], tuple[Any, ...]]] = [
    ([[first(0)], [change("u", person(0, "Eve"), 2)]], ("Eve", *WHOLE)),
    ([[first(1), change("u", person(1, "Eve"), 2)]], ("Eve", *WHOLE)),
    (
        [[first(2)], [change("u", person(2, "Eve"), 3), change("u", person(2, "Eva", None), 2)]],
        ("Eve", None, *WHOLE[1:]),
    ),
    ([[first(3)], [change("d", person(3, "Anne"), 2), change("c", person(3, "Eve"), 3)]], ("Eve", None, None, None)),
    ([[first(4)], [change("u", person(4, "Eve"), 2, before=person(4, "", "longer"))]], ("Eve", "longer", *WHOLE[1:])),
    ([[change("u", person(5, "Eve"), 2)]], ("Eve", None, None, None)),  # nobody knows
    ([[first(6)], [change("u", person(6, "Eve"), 2)], [first(6)]], ("Eve", *WHOLE)),  # sent again
]


@pytest.mark.parametrize("make", [upsert, pytest.param(history, marks=pytest.mark.ci)])
def test_a_value_that_was_not_sent_stays(table: Table, make: Any) -> None:
    rows = table(make, PERSON, *side_by_side([batches for batches, _ in LEFT_ALONE]))
    current = {row.id: (row.name, row.biography, row.tags, row.photo and bytes(row.photo)) for row in rows}
    assert current == {key: expected for key, (_, expected) in enumerate(LEFT_ALONE)}


CONTACT = "`_id` BIGINT, name STRING, phone STRING, address STRUCT<city: STRING, zip: STRING>"
DOCUMENT = {"name": "a", "phone": "555", "address": {"city": "Bern", "zip": "3000"}}
SOURCE = {"ts_ms": 1_700_000_000_000, "ord": 1}


def inserted(key: int, **other: Any) -> dict[str, Any]:
    return {"op": "c", "after": json.dumps({"_id": key, **DOCUMENT, **other}), "source": SOURCE, "ts_ms": 1}


def partial(key: int, fields: Any, removed: Any = None, order: int = 2) -> tuple[str, str]:
    update = {"updatedFields": json.dumps(fields), "removedFields": removed}
    source = {**SOURCE, "ord": order}
    return json.dumps({"id": str(key)}), json.dumps({"op": "u", "source": source, "updateDescription": update})


PARTIAL: list[tuple[list[tuple[Any, Any]], tuple[Any, ...]]] = [
    ([({"name": "b"}, None)], ("b", "555", ("Bern", "3000"))),
    ([({"address.city": "Wien"}, ["phone"])], ("a", None, ("Wien", "3000"))),
    ([({}, ["address.zip"])], ("a", "555", ("Bern", None))),
    ([({}, ["address"]), ({"address.zip": "1"}, None)], ("a", "555", (None, "1"))),
    ([({"address": {"city": "Graz"}}, None)], ("a", "555", ("Graz", None))),
    ([({"name": None}, None)], (None, "555", ("Bern", "3000"))),
    ([({"age.of": 1, "other": 2}, None)], ("a", "555", ("Bern", "3000"))),
]
GONE = len(PARTIAL)  # is deleted without its document: its key alone says whose deletion it is


@pytest.mark.ci
@pytest.mark.parametrize("make", [upsert, history])
@pytest.mark.parametrize("at_once", [False, *soak((True,))])
def test_a_partial_update_changes_what_it_names(table: Table, make: Any, at_once: bool) -> None:
    updates: list[list[tuple[str, str]]] = [
        [partial(key, *update, order=order) for order, update in enumerate(case, 2)]
        for key, (case, _) in enumerate(PARTIAL)
    ]
    updates.append([(json.dumps({"id": str(GONE)}), json.dumps({"op": "d", "source": {**SOURCE, "ord": 2}}))])
    cases = [[[inserted(key), *update]] if at_once else [[inserted(key)], update] for key, update in enumerate(updates)]
    rows = table(make, CONTACT, *side_by_side(cases), flavour="mongodb")
    assert {row["_id"]: (row.name, row.phone, tuple(row.address)) for row in rows} == {
        key: expected for key, (_, expected) in enumerate(PARTIAL)
    }


def test_a_part_of_a_list_is_no_value(table: Table) -> None:
    with pytest.raises(PySparkException, match="does not fit the schema: tags array<string>"):
        table(upsert, "`_id` BIGINT, tags ARRAY<STRING>", [partial(1, {"tags.0": "x"})], flavour="mongodb")


def place(server: int, file: str, pos: int, **more: Any) -> dict[str, Any]:
    row = {"id": 1, "name": f"{server} {pos}"}
    return {"op": "u", "after": row, "source": {"server_id": server, "file": file, "pos": pos, **more}, "ts_ms": 1}


SWITCHED = [place(1, "mysql-bin.004711", 900), place(2, "mysql-bin.000001", 400)]
REPLICA = [place(1, "b.004711", 900, gtid="3e11-fa47:9"), place(1, "b.000001", 400, gtid="3e11-fa47:10")]
UNORDERED = [
    (upsert, [SWITCHED]),
    pytest.param(history, [REPLICA[:1], REPLICA[1:]], marks=pytest.mark.ci),
    *soak((history, [SWITCHED]), (upsert, [SWITCHED[:1], SWITCHED[1:]]), (upsert, [REPLICA])),
]


@pytest.mark.parametrize(("make", "batches"), UNORDERED)
def test_another_servers_binlog_is_told(table: Table, make: Any, batches: list[Any]) -> None:
    with pytest.raises((PySparkException, Py4JJavaError), match="of two binlogs, and nothing orders them"):
        table(make, "id BIGINT, name STRING", *batches, flavour="mysql")


@pytest.mark.ci
@pytest.mark.parametrize(
    ("make", "changes", "servers"), [(upsert, SWITCHED, [1, 2]), (history, REPLICA, ["3e11-fa47"])]
)
def test_servers_that_are_declared_are_ordered(table: Table, make: Any, changes: list[Any], servers: list[Any]) -> None:
    rows = table(make, "id BIGINT, name STRING", changes[1:], changes[:1], flavour="mysql", servers=servers)
    assert [row.name for row in rows] == [changes[1]["after"]["name"]]


def in_transaction(name: str, **more: Any) -> dict[str, Any]:
    return {**inserted(1, name=name), "op": "u", **more}


@pytest.mark.ci
@pytest.mark.parametrize("make", [upsert, *soak((history,))])
def test_two_changes_that_nothing_orders_are_told(table: Table, make: Any) -> None:
    with pytest.raises(PySparkException, match="nothing orders two changes of one key"):
        table(make, CONTACT, [in_transaction("a"), in_transaction("b")], flavour="mongodb")


@pytest.mark.ci
@pytest.mark.parametrize("make", [upsert, *soak((history,))])
def test_the_place_in_a_transaction_orders_its_changes(table: Table, make: Any) -> None:
    twice = [in_transaction(name, transaction={"total_order": order}) for order, name in ((10, "b"), (9, "a"))]
    assert [row.name for row in table(make, CONTACT, [*twice, *twice], flavour="mongodb")] == ["b"]
