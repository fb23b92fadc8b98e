"""Sinks that apply changes by key: whatever the order, the cuts and the replays, the table is what all changes say.

Of databases as well: what a change leaves alone stays; what nothing orders is told. What a test expects comes from the
ledger, in the log's own order: never from an envelope.
"""

import base64
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from pipelines.declare.cdc import debezium
from pipelines.jvm.failures import SpecError
from pipelines.sinks.by_key import history, update, upsert
from pipelines.sinks.commits import stamp
from pipelines.spark.tables import create_table
from pipelines.specs.ends import CHANGE, Sink, Target
from pipelines.specs.tables import TableSpec
from tests.worlds.cases import soak

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3_000)]

Flavour = Literal["postgresql", "mysql", "mongodb"]
ROW = (
    "id BIGINT, number BIGINT, status STRING, amount DECIMAL(12,2), at TIMESTAMP, day DATE, biography STRING,"
    " place STRUCT<city: STRING, zip: STRING>"
)
Record = tuple[str | None, str | None]  # key and value
State = dict[str, Any]
UNAVAILABLE = "__debezium_unavailable_value"
PARTITIONS = 4
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COLUMNS = ("status", "amount", "at", "day", "biography", "place")


@dataclass(frozen=True, slots=True)
class LogChange:
    """`before`, `after`: the whole row. `touched`: what an update set. `within`: its place in its transaction."""

    number: int
    transaction: int
    within: int
    op: str
    before: State | None
    after: State | None
    touched: tuple[str, ...]

    @property
    def key(self) -> int:
        return int((self.after or self.before or {})["id"])


def database(dice: random.Random, changes: int, keys: int) -> Iterator[LogChange]:
    """What a database does: a snapshot, then transactions of one to six changes, several of one key among them."""
    there: dict[int, State] = {}
    number = transaction = 0
    while number < changes:
        transaction += 1
        some = [dice.randrange(keys) for _ in range(dice.randint(1, 3))]
        for within in range(1 if number < keys // 5 else dice.randint(1, 6)):
            key, before = dice.choice(some), None
            before = there.get(key)
            row = _row(dice, key, number)
            if before is None:
                op, touched = ("r" if number < keys // 5 else "c"), _COLUMNS
            elif dice.random() < 0.12:
                op, touched = "d", ()
            else:
                op, touched = "u", tuple(name for name in _COLUMNS if dice.random() < 0.4)
                row = {**before, "number": number, **{name: row[name] for name in touched}}
            after = None if op == "d" else row
            yield LogChange(number, transaction, within, op, before, after, touched)
            number += 1
            if after is None:
                del there[key]
            else:
                there[key] = after


def _row(dice: random.Random, key: int, number: int) -> State:
    return {
        "id": key,
        "number": number,
        "status": dice.choice(("placed", "paid", "sent", None)),
        "amount": dice.choice((None, Decimal(dice.randrange(-(10**8), 10**8)).scaleb(-2))),
        "at": _EPOCH + timedelta(microseconds=dice.randrange(10**13, 4 * 10**15)),
        "day": date(1970, 1, 1) + timedelta(days=dice.randrange(-9_000, 20_000)),
        "biography": dice.choice((None, "long" * 3, "short")),
        "place": dice.choice((None, {"city": dice.choice(("Bern", "Wien")), "zip": dice.choice(("3000", None))})),
    }


@dataclass
class Log:
    """The same changes as a connector writes them to a topic's partitions."""

    flavour: Flavour
    changes: list[LogChange]
    dice: random.Random
    partitions: list[list[Record]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])

    def __post_init__(self) -> None:
        for change in self.changes:
            records = self.partitions[change.key % PARTITIONS]
            key = json.dumps({"id": str(change.key) if self.flavour == "mongodb" else change.key})
            records.append((key, json.dumps(self.envelope(change))))
            if change.op == "d":
                records.append((key, None))
            if self.dice.random() < 0.02:
                records.append((None, json.dumps({"ts_ms": change.number})))
            if self.dice.random() < 0.02:
                records.append((None, json.dumps({"status": "BEGIN", "id": str(change.transaction), "ts_ms": 1})))

    def batches(self, count: int) -> list[list[Record]]:
        """The partitions' records, each in its order, cut anywhere and mixed; some stretches come once more later."""
        cuts = {
            number: sorted(self.dice.choices(range(len(each) + 1), k=count - 1))
            for number, each in enumerate(self.partitions)
        }
        batches: list[list[Record]] = []
        for turn in range(count):
            mixed = []
            for number, records in enumerate(self.partitions):
                bounds = [0, *cuts[number], len(records)]
                begin = max(
                    0, bounds[turn] - self.dice.choice((0, 0, len(records) // 10))
                )  # a connector that begins anew
                mixed += [(self.dice.random(), record) for record in records[begin : bounds[turn + 1]]]
            batches.append([record for _, record in sorted(mixed, key=lambda each: each[0])])
        return [*batches, batches[count // 2]]

    def envelope(self, change: LogChange) -> dict[str, Any]:
        about = {"op": change.op, "source": self.source(change), "ts_ms": 1_700_000_000_000 + change.number}
        about["transaction"] = {"id": str(change.transaction), "total_order": change.within + 1}
        if self.flavour != "mongodb":
            return {
                **about,
                "before": self.row(change.before) if change.op == "d" else None,
                "after": self.row(change.after, change),
            }
        if change.op == "u":
            return {**about, "after": None, "before": None, "updateDescription": _update(change)}
        return {**about, "before": None, "after": change.after and json.dumps(_document(change.after))}

    def source(self, change: LogChange) -> dict[str, Any]:
        number, total = change.number, len(self.changes)
        if self.flavour == "postgresql":
            return {"lsn": 9_000_000_000 + 97 * number}
        if self.flavour == "mongodb":  # a transaction has one moment
            return {"ts_ms": 1_700_000_000_000 + change.transaction // 3 * 1_000, "ord": change.transaction % 3}
        server, file = (1, 999_998) if number < total * 2 // 3 else (2, 1)
        file += min(3, number // (total // 6)) if server == 1 else 0
        return {
            "server_id": 0 if change.op == "r" else server,
            "file": f"mysql-bin.{file:06}",
            "pos": 4 + 300 * number % 10**9,
            "row": change.within,
        }

    def row(self, row: State | None, change: LogChange | None = None) -> State | None:
        """As JSON without a schema: decimals as bytes, moments in microseconds, days since 1970. A large value that an
        update leaves alone is not sent."""
        if row is None:
            return None
        sent = {**row, "amount": _in_bytes(row["amount"]), "at": (row["at"] - _EPOCH) // timedelta(microseconds=1)}
        sent["day"] = (row["day"] - date(1970, 1, 1)).days
        if change and change.op == "u" and "biography" not in change.touched:
            sent["biography"] = UNAVAILABLE
        return sent


def _in_bytes(amount: Decimal | None) -> str | None:
    if amount is None:
        return None
    unscaled = int(amount.scaleb(2))
    return base64.b64encode(unscaled.to_bytes(8, "big", signed=True)).decode()


def _document(row: State) -> State:
    """Extended JSON."""
    extended = {**row, "_id": {"$numberLong": str(row["id"])}, "number": {"$numberLong": str(row["number"])}}
    extended["amount"] = row["amount"] and {"$numberDecimal": str(row["amount"])}
    extended["at"] = {"$date": row["at"].isoformat(timespec="milliseconds").replace("+00:00", "Z")}
    extended["day"] = {"$date": f"{row['day']}T00:00:00Z"}
    return extended


def _update(change: LogChange) -> dict[str, Any]:
    """What is set by path, what is removed; of a place that stays one, the field within."""
    before, after = change.before or {}, change.after or {}
    document = _document(after)
    fields = {name: document[name] for name in ("number", *change.touched) if after[name] is not None}
    removed = [name for name in change.touched if after[name] is None]
    if "place" in fields and before["place"]:
        place = fields.pop("place")
        fields |= {f"place.{name}": value for name, value in place.items() if value is not None}
        removed += [f"place.{name}" for name, value in place.items() if value is None]
    return {"updatedFields": json.dumps(fields), "removedFields": removed or None}


def states(changes: list[LogChange]) -> dict[int, list[tuple[State, int | None]]]:
    """Every state that each key had, in order, with the number of the change that ended it."""
    history: dict[int, list[tuple[State, int | None]]] = {}
    for change in changes:
        mine = history.setdefault(change.key, [])
        if mine and mine[-1][1] is None:
            mine[-1] = (mine[-1][0], change.number)
        if change.after is not None:
            mine.append((change.after, None))
    return history


def table_after(
    sink: Sink, folder: Path, empty: DataFrame, *batches: DataFrame, partition_cols: Sequence[str] = ()
) -> DataFrame:
    """The sink's table, made in this folder for the columns of `empty`, once it took these batches in turn."""
    spark, rows = empty.sparkSession, empty.drop(CHANGE).schema
    table = TableSpec("silver_orders", "silver", partition_cols=tuple(partition_cols))
    tables = (table, *sink.beside(table))
    target = Target("silver_orders", table, {each.name: str(folder / each.name) for each in tables})
    create_table(spark, table, sink.table_schema(rows), target.uri)
    for each in tables[1:]:
        create_table(spark, each, sink.beside_schema(rows), target.uris[each.name])
    try:
        for number, batch in enumerate(batches):
            stamp(spark, "silver_orders", number)
            sink.write(batch, target)
    finally:  # the session is shared
        for key in ("write.txnAppId", "write.txnVersion", "commitInfo.userMetadata"):
            spark.conf.unset(f"spark.databricks.delta.{key}")
    return spark.read.format("delta").load(target.uri)


# Columns may have any name.
COLUMNS = "`order.id` STRING, op STRING, `a``b` STRING, amount DOUBLE, `event-time` BIGINT"
Change = tuple[str | None, str, str | None, float | None, int | None]
ABOUT: dict[str, Any] = {"keys": ["order.id"], "sequence": "event-time", "except_columns": ["op"]}
UPSERT, HISTORY, UPDATE = upsert(**ABOUT), history(**ABOUT), update(keys=["order.id"])


@pytest.fixture
def written(spark: SparkSession, tmp_path: Path) -> Callable[..., list[Any]]:
    """`written(sink, batch, …)`: the table's rows after these batches."""

    def write(sink: Sink, *batches: list[Change]) -> list[Any]:
        frames = [spark.createDataFrame(batch, COLUMNS) for batch in ([], *batches)]
        return table_after(sink, tmp_path, *frames).collect()

    return write


def random_changes(dice: random.Random, *, truncations: int) -> list[Change]:
    """Changes of a few keys, each with a position of its own; some delete, some empty the table."""
    positions = dice.sample(range(1_000), 40)
    changes: list[Change] = [
        (f"k{dice.randrange(6)}", dice.choice("cuud"), f"n{at}", float(at), at) for at in positions
    ]
    free = [at for at in range(100, 900) if at not in positions]
    return [*changes, *((None, "t", None, None, at) for at in dice.sample(free, truncations))]


def cut(changes: list[Change], dice: random.Random) -> list[list[Change]]:
    """The changes in a random order, some of them twice, in two batches."""
    sent = [*changes, *dice.sample(changes, 10)]
    dice.shuffle(sent)
    place = dice.randrange(10, len(sent) - 10)
    return [sent[:place], sent[place:]]


def states_by_key(changes: list[Change]) -> dict[str, list[tuple[Any, ...]]]:
    """By key: name, amount, from and to of every state, by walking each key's changes in order."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for key in {change[0] for change in changes if change[0]}:
        mine = sorted((change for change in changes if change[0] in (key, None)), key=lambda change: change[4] or 0)
        ends = [*(change[4] for change in mine[1:]), None]
        spans = zip(mine, ends, strict=True)
        found[key] = [(*change[2:], end) for change, end in spans if change[1] not in ("d", "t")]
    return found


def check_upserted(rows: list[Any], changes: list[Change]) -> None:
    newest = {key: of[-1][:3] for key, of in states_by_key(changes).items() if of and of[-1][3] is None}
    assert {row["order.id"]: (row["a`b"], row.amount, row["event-time"]) for row in rows} == newest
    assert len(rows) == len(newest) > 0


def check_history(rows: list[Any], changes: list[Change]) -> None:
    spans = {(row["order.id"], row["a`b"], row.amount, row.valid_from, row.valid_to) for row in rows}
    expected = {(key, *state) for key, of in states_by_key(changes).items() for state in of}
    assert spans == expected and len(rows) == len(expected)
    assert all(row.is_current == (row.valid_to is None) for row in rows)


@pytest.mark.parametrize(
    ("make", "check"), [(history, check_history), *soak((upsert, check_upserted))], ids=["history", "upsert"]
)
@pytest.mark.parametrize(
    ("deleted", "truncated"),
    [
        ("op = 'd'", "op = 't'"),
        *soak(("op = 'd'", None), (None, "op = 't'")),
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", [1, *soak((2,), (3,))])
def test_a_table_holds_what_all_changes_say(
    written: Callable[..., list[Any]],
    make: Callable[..., Sink],
    check: Callable[..., None],
    deleted: str | None,
    truncated: str | None,
    seed: int,
) -> None:
    dice = random.Random(seed)
    changes = random_changes(dice, truncations=2 if truncated else 0)
    changes = [change for change in changes if deleted or change[1] != "d"]
    check(written(make(**ABOUT, deleted=deleted, truncated=truncated), *cut(changes, dice)), changes)


@pytest.mark.ci
def test_a_null_keeps_the_value_where_that_is_asked_for(written: Callable[..., list[Any]]) -> None:
    rows = written(
        upsert(**ABOUT, deleted="op = 'd'", keep_when_null=["a`b"]),
        [("a", "c", "first", 1.0, 1), ("a", "u", None, 2.0, 2), ("b", "c", "gone", 1.0, 3)],
        [("a", "u", None, None, 4), ("b", "d", "gone", None, 5), ("b", "c", None, 6.0, 6)],
    )
    assert {row["order.id"]: (row["a`b"], row.amount) for row in rows} == {"a": ("first", None), "b": (None, 6.0)}


def test_an_aggregate_writes_over_its_groups_null_among_them(written: Callable[..., list[Any]]) -> None:
    first: list[Change] = [("a", "", "x", 1.0, 1), ("b", "", "x", 1.0, 1), (None, "", "x", 1.0, 1)]
    rows = written(UPDATE, first, [("a", "", "x", 5.0, 0), (None, "", "x", 5.0, 0), ("", "", "x", 2.0, 0)])
    assert sorted((row["order.id"] or repr(row["order.id"]), row.amount) for row in rows) == [
        ("''", 2.0),
        ("None", 5.0),
        ("a", 5.0),
        ("b", 1.0),
    ]


def test_a_key_that_comes_twice_is_no_aggregate_s_and_nothing_is_written(
    written: Callable[..., list[Any]], spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match="update: 3 rows for 2 keys in one batch"):
        written(UPDATE, [("a", "", "x", 1.0, 1), (None, "", "x", 1.0, 1), (None, "", "x", 2.0, 1)])
    assert spark.read.format("delta").load(str(tmp_path / "silver_orders")).count() == 0


@pytest.mark.soak
def test_a_column_is_the_tables_in_other_letters_too(spark: SparkSession, tmp_path: Path) -> None:
    made = spark.createDataFrame([], "id STRING, Amount DOUBLE, lsn BIGINT")
    changes = [spark.createDataFrame([("a", float(at), at)], "id STRING, amount DOUBLE, lsn BIGINT") for at in (1, 2)]
    rows = table_after(upsert(keys=["id"], sequence="lsn"), tmp_path, made, *changes).collect()
    assert [(row.id, row.Amount) for row in rows] == [("a", 2.0)]


@pytest.mark.parametrize("make", [upsert, *soak((history,))])
@pytest.mark.ci
def test_an_empty_key_that_is_a_partition_fails_the_batch(
    spark: SparkSession, tmp_path: Path, make: Callable[..., Sink]
) -> None:
    """Delta keeps it as null: each change of it would be a further row."""
    sink, columns = make(keys=["id"], sequence="lsn"), "id STRING, name STRING, lsn BIGINT"
    frames = [spark.createDataFrame(rows, columns) for rows in ([], [("a", "x", 1)], [("", "x", 1)])]
    with pytest.raises(PySparkException, match="upsert: id is an empty text, which Delta keeps as null"):
        table_after(sink, tmp_path / "parted", *frames, partition_cols=("id",))
    plain = table_after(sink, tmp_path / "plain", *frames, partition_cols=("name",)).collect()
    assert {row.id for row in plain} == {"a", ""}


@pytest.mark.parametrize(
    ("sink", "change"),
    [
        (UPSERT, (None, "c", "x", 1.0, 1)),
        pytest.param(HISTORY, ("a", "c", "x", 1.0, None), marks=pytest.mark.ci),
        *soak((UPSERT, ("a", "c", "x", 1.0, None)), (HISTORY, (None, "c", "x", 1.0, 1))),
    ],
)
def test_a_change_that_cannot_be_ordered_fails_the_batch(
    written: Callable[..., list[Any]], sink: Sink, change: Change
) -> None:
    with pytest.raises(PySparkException, match="cannot be ordered"):
        written(sink, [("b", "c", "x", 1.0, 1), change])


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
        rows = table_after(sink, tmp_path / sink.kind, *frames).collect()
        return [row for row in rows if not current or make is upsert or row.is_current]

    return rows_of


MODES: dict[Flavour, dict[str, Any]] = {
    "postgresql": {"decimals": "precise", "times": "microseconds"},
    "mysql": {"decimals": "precise", "times": "microseconds", "servers": [[0, 1], 2]},
    "mongodb": {},
}


@pytest.mark.soak
@pytest.mark.parametrize(("changes", "batches"), [(300, 2), (100_000, 4)])
@pytest.mark.parametrize("flavour", MODES)
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


@pytest.mark.parametrize("make", [upsert, *soak((history,))])
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


@pytest.mark.soak
@pytest.mark.parametrize("make", [history, upsert])
@pytest.mark.parametrize("at_once", [False, True])
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
    *soak((history, [REPLICA[:1], REPLICA[1:]]), (history, [SWITCHED])),
    *soak((upsert, [SWITCHED[:1], SWITCHED[1:]]), (upsert, [REPLICA])),
]


@pytest.mark.parametrize(("make", "batches"), UNORDERED)
def test_another_servers_binlog_is_told(table: Table, make: Any, batches: list[Any]) -> None:
    with pytest.raises((PySparkException, Py4JJavaError), match="of two binlogs, and nothing orders them"):
        table(make, "id BIGINT, name STRING", *batches, flavour="mysql")


def in_transaction(name: str, **more: Any) -> dict[str, Any]:
    return {**inserted(1, name=name), "op": "u", **more}


@pytest.mark.soak
@pytest.mark.parametrize("make", [upsert, history])
def test_two_changes_that_nothing_orders_are_told(table: Table, make: Any) -> None:
    with pytest.raises(PySparkException, match="nothing orders two changes of one key"):
        table(make, CONTACT, [in_transaction("a"), in_transaction("b")], flavour="mongodb")
