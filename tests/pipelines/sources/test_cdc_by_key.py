"""Changes of databases in the sinks that apply them: what a change leaves alone stays; what nothing orders is told."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines.declare.cdc import debezium
from pipelines.sinks.history import history
from pipelines.sinks.upsert import upsert
from tests.worlds.spark import by_key

pytestmark = pytest.mark.spark

PERSON = "id BIGINT, name STRING, biography STRING, tags ARRAY<STRING>, photo BINARY"
LEFT = "__debezium_unavailable_value"
Table = Callable[..., list[Any]]


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    """`table(make, schema, batch, …)`: the rows of that sink's table after these batches of envelopes."""

    def rows_of(
        make: Any, schema: str, *batches: list[Any], flavour: Any = "postgresql", key: str = "id", **modes: Any
    ) -> list[Any]:
        sink = make(keys=[key], sequence="position", deleted="op = 'd'", except_columns=["op", "changed_at"])
        records = [
            [each if isinstance(each, tuple) else (None, json.dumps(each)) for each in batch] for batch in batches
        ]
        raw = [spark.createDataFrame(batch, "key STRING, value STRING") for batch in ([], *records)]
        frames = [
            debezium(each, schema, flavour=flavour, **modes).localCheckpoint() for each in raw
        ]  # as a stream's are
        return by_key.written(sink, tmp_path, *frames).collect()

    return rows_of


def long(*cases: tuple[Any, ...]) -> list[Any]:
    return [pytest.param(*case, marks=pytest.mark.ci) for case in cases]


def change(op: str, row: Any, lsn: int, **more: Any) -> dict[str, Any]:
    images = {"before": row} if op == "d" else {"after": row}
    return {"op": op, "source": {"lsn": lsn}, "ts_ms": 1, **images, **more}


def batched(cases: list[list[list[Any]]]) -> list[list[Any]]:
    """The cases' batches side by side: the first ones in one batch, then the second ones."""
    return [[each for case in cases if turn < len(case) for each in case[turn]] for turn in range(max(map(len, cases)))]


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


@pytest.mark.parametrize("make", [upsert, history])
def test_a_value_that_was_not_sent_stays(table: Table, make: Any) -> None:
    rows = table(make, PERSON, *batched([batches for batches, _ in LEFT_ALONE]))
    current = {
        row.id: (row.name, row.biography, row.tags, row.photo and bytes(row.photo))
        for row in rows
        if make is upsert or row.is_current
    }
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


@pytest.mark.parametrize("make", [upsert, history])
@pytest.mark.parametrize("at_once", [True, False])
def test_a_partial_update_changes_what_it_names(table: Table, make: Any, at_once: bool) -> None:
    updates = [
        [partial(key, *update, order=order) for order, update in enumerate(case, 2)]
        for key, (case, _) in enumerate(PARTIAL)
    ]
    cases = [[[inserted(key), *update]] if at_once else [[inserted(key)], update] for key, update in enumerate(updates)]
    rows = table(make, CONTACT, *batched(cases), flavour="mongodb", key="_id")
    current = [row for row in rows if make is upsert or row.is_current]
    assert {row["_id"]: (row.name, row.phone, tuple(row.address)) for row in current} == {
        key: expected for key, (_, expected) in enumerate(PARTIAL)
    }


def test_a_deletion_without_its_document_has_its_key(table: Table) -> None:
    deletion = json.dumps({"op": "d", "source": {**SOURCE, "ord": 2}})
    rows = table(upsert, CONTACT, [inserted(1)], [(json.dumps({"id": "1"}), deletion)], flavour="mongodb", key="_id")
    assert rows == []


def test_a_part_of_a_list_is_no_value(table: Table) -> None:
    with pytest.raises(PySparkException, match="does not fit the schema: tags array<string>"):
        table(upsert, "`_id` BIGINT, tags ARRAY<STRING>", [partial(1, {"tags.0": "x"})], flavour="mongodb", key="_id")


def place(server: int, file: str, pos: int, **more: Any) -> dict[str, Any]:
    row = {"id": 1, "name": f"{server} {pos}"}
    return {"op": "u", "after": row, "source": {"server_id": server, "file": file, "pos": pos, **more}, "ts_ms": 1}


SWITCHED = [place(1, "mysql-bin.004711", 900), place(2, "mysql-bin.000001", 400)]
REPLICA = [place(1, "b.004711", 900, gtid="3e11-fa47:9"), place(1, "b.000001", 400, gtid="3e11-fa47:10")]


ONE_OR_TWO = [(upsert, False), (history, True), *long((upsert, True), (history, False))]


@pytest.mark.parametrize(("make", "at_once"), ONE_OR_TWO)
@pytest.mark.parametrize("changes", [SWITCHED, REPLICA], ids=["server", "replica"])
def test_another_servers_binlog_is_told(table: Table, make: Any, at_once: bool, changes: list[Any]) -> None:
    batches = [changes] if at_once else [[each] for each in changes]
    with pytest.raises((PySparkException, Py4JJavaError), match="of two binlogs, and nothing orders them"):
        table(make, "id BIGINT, name STRING", *batches, flavour="mysql")


DECLARED = [(SWITCHED, [1, 2]), (REPLICA, ["3e11-fa47"])]


@pytest.mark.parametrize(("changes", "servers"), DECLARED, ids=["server", "replica"])
@pytest.mark.parametrize("make", [upsert, pytest.param(history, marks=pytest.mark.ci)])
def test_servers_that_are_declared_are_ordered(table: Table, make: Any, changes: list[Any], servers: list[Any]) -> None:
    rows = table(make, "id BIGINT, name STRING", changes[1:], changes[:1], flavour="mysql", servers=servers)
    assert [row.name for row in rows if make is upsert or row.is_current] == [changes[1]["after"]["name"]]


def in_transaction(name: str, **more: Any) -> dict[str, Any]:
    return {**inserted(1, name=name), "op": "u", **more}


@pytest.mark.parametrize("make", [upsert, history])
def test_two_changes_that_nothing_orders_are_told(table: Table, make: Any) -> None:
    with pytest.raises(PySparkException, match="nothing orders two changes of one key"):
        table(make, CONTACT, [in_transaction("a"), in_transaction("b")], flavour="mongodb", key="_id")


@pytest.mark.parametrize("make", [upsert, history])
def test_the_place_in_a_transaction_orders_its_changes(table: Table, make: Any) -> None:
    twice = [in_transaction(name, transaction={"total_order": order}) for order, name in ((10, "b"), (9, "a"))]
    rows = table(make, CONTACT, [*twice, *twice], flavour="mongodb", key="_id")
    assert [row.name for row in rows if make is upsert or row.is_current] == ["b"]
