"""Sinks that apply changes by key: whatever the order, the cuts and the replays, the table is what all changes say."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines.jvm.failures import SpecError
from pipelines.sinks.history import history
from pipelines.sinks.upsert import update, upsert
from pipelines.specs.sinks import Sink
from tests.worlds.cases import soak
from tests.worlds.spark import by_key

pytestmark = pytest.mark.spark

CHANGE = "id STRING, op STRING, name STRING, amount DOUBLE, lsn BIGINT"
Change = tuple[str, str, str | None, float | None, int]
UPSERT = upsert(keys=["id"], sequence="lsn", deleted="op = 'd'", except_columns=["op"])
HISTORY = history(keys=["id"], sequence="lsn", deleted="op = 'd'", except_columns=["op"])


@pytest.fixture
def written(spark: SparkSession, tmp_path: Path) -> Callable[..., list[Any]]:
    """`written(sink, batch, …)`: the table's rows after these batches."""

    def write(sink: Sink, *batches: list[Change]) -> list[Any]:
        empty, *frames = (spark.createDataFrame(batch, CHANGE) for batch in ([], *batches))
        return by_key.written(sink, tmp_path, empty, *frames).collect()

    return write


def random_changes(seed: int) -> list[Change]:
    """Changes of a few keys, each with a position of its own; some delete."""
    dice = random.Random(seed)
    positions = dice.sample(range(1_000), 40)
    return [(f"k{dice.randrange(6)}", dice.choice("cuud"), f"n{at}", float(at), at) for at in positions]


def cut(changes: list[Change], seed: int) -> list[list[Change]]:
    """The changes in a random order, some of them twice, in three batches."""
    dice = random.Random(seed)
    sent = [*changes, *dice.sample(changes, 10)]
    dice.shuffle(sent)
    first, second = sorted(dice.sample(range(1, len(sent)), 2))
    return [sent[:first], sent[first:second], sent[second:]]


def newest(changes: list[Change]) -> dict[str, tuple[Any, ...]]:
    last = {change[0]: change for change in sorted(changes, key=lambda change: change[4])}
    return {key: change[2:] for key, change in last.items() if change[1] != "d"}


def states(changes: list[Change]) -> set[tuple[Any, ...]]:
    """Key, name, from and to of every state, by walking each key's changes in order."""
    found = set()
    for key in {change[0] for change in changes}:
        mine = sorted((change for change in changes if change[0] == key), key=lambda change: change[4])
        ends = [*(change[4] for change in mine[1:]), None]
        found |= {(key, c[2], c[4], end) for c, end in zip(mine, ends, strict=True) if c[1] != "d"}
    return found


def with_truncations(seed: int) -> list[Change]:
    """Random changes, and two truncations among them."""
    changes = random_changes(seed)
    taken = {change[4] for change in changes}
    free = [at for at in range(100, 900) if at not in taken]
    return [*changes, *((None, "t", None, None, at) for at in random.Random(seed).sample(free, 2))]  # type: ignore[list-item]


def as_deletions(changes: list[Change]) -> list[Change]:
    """A truncation is a deletion of each key there is."""
    keys = {change[0] for change in changes if change[1] != "t"}
    gone = [(key, "d", None, None, change[4]) for change in changes if change[1] == "t" for key in keys]
    return [*(change for change in changes if change[1] != "t"), *gone]


def check_upserted(rows: list[Any], changes: list[Change]) -> None:
    assert {row.id: (row.name, row.amount, row.lsn) for row in rows} == newest(changes)
    assert len(rows) == len(newest(changes)) > 0


def check_history(rows: list[Any], changes: list[Change]) -> None:
    assert {(row.id, row.name, row.valid_from, row.valid_to) for row in rows} == states(changes)
    assert len(rows) == len(states(changes))
    assert all(row.is_current == (row.valid_to is None) for row in rows)


SINKS = {"upsert": (upsert, check_upserted), "history": (history, check_history)}


@pytest.mark.parametrize("kind", ["upsert", pytest.param("history", marks=pytest.mark.ci)])
@pytest.mark.parametrize(
    ("deleted", "truncated"), [("op = 'd'", None), ("op = 'd'", "op = 't'"), (None, "op = 't'")], ids=str
)
@pytest.mark.parametrize("seed", [1, *soak((2,), (3,))])
def test_a_table_holds_what_all_changes_say(
    written: Callable[..., list[Any]], kind: str, deleted: str | None, truncated: str | None, seed: int
) -> None:
    make, check = SINKS[kind]
    changes = with_truncations(seed) if truncated else random_changes(seed)
    changes = [change for change in changes if deleted or change[1] != "d"]
    sink = make(keys=["id"], sequence="lsn", deleted=deleted, except_columns=["op"], truncated=truncated)
    check(written(sink, *cut(changes, seed)), as_deletions(changes))


def test_a_null_keeps_the_value_where_that_is_asked_for(written: Callable[..., list[Any]]) -> None:
    sink = upsert(keys=["id"], sequence="lsn", deleted="op = 'd'", except_columns=["op"], keep_when_null=["name"])
    rows = written(
        sink,
        [("a", "c", "first", 1.0, 1), ("a", "u", None, 2.0, 2), ("b", "c", "gone", 1.0, 3)],
        [("a", "u", None, None, 4), ("b", "d", "gone", None, 5), ("b", "c", None, 6.0, 6)],
    )
    assert {row.id: (row.name, row.amount) for row in rows} == {"a": ("first", None), "b": (None, 6.0)}


ODD = "`order.id` STRING, `event-time` BIGINT, op STRING, `a``b` STRING, amount DOUBLE"


def odd_columns(kind: str) -> Sink:
    keys, sequence, deleted = ["order.id"], "event-time", "op = 'd'"
    if kind == "history":
        return history(keys=keys, sequence=sequence, deleted=deleted, except_columns=["op"], truncated="op = 't'")
    return upsert(
        keys=keys, sequence=sequence, deleted=deleted, except_columns=["op"], truncated="op = 't'",
        keep_when_null=["a`b"],
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["upsert", "history"])
def test_columns_may_have_any_name(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    first = [("1", 1, "c", "x", 1.0), ("2", 1, "c", "y", 1.0), ("3", 1, "c", "z", 1.0)]
    later = [("1", 2, "d", None, None), ("2", 4, "u", None, 2.0), (None, 3, "t", None, None)]
    frames = [spark.createDataFrame(rows, ODD) for rows in ([], first, later)]
    rows = by_key.written(odd_columns(kind), tmp_path, *frames).collect()
    current = {(row["order.id"], row["a`b"], row.amount) for row in rows if kind == "upsert" or row.is_current}
    assert current == {("2", None, 2.0)}


def test_a_column_is_the_tables_in_other_letters_too(spark: SparkSession, tmp_path: Path) -> None:
    made = spark.createDataFrame([], "id STRING, Amount DOUBLE, lsn BIGINT")
    changes = [spark.createDataFrame([("a", float(at), at)], "id STRING, amount DOUBLE, lsn BIGINT") for at in (1, 2)]
    rows = by_key.written(upsert(keys=["id"], sequence="lsn"), tmp_path, made, *changes).collect()
    assert [(row.id, row.Amount) for row in rows] == [("a", 2.0)]


def test_an_aggregate_writes_over_its_groups(written: Callable[..., list[Any]]) -> None:
    rows = written(update(keys=["id"]), [("a", "", "x", 1.0, 1), ("b", "", "x", 1.0, 1)], [("a", "", "x", 5.0, 0)])
    assert {row.id: row.amount for row in rows} == {"a": 5.0, "b": 1.0}


def test_an_aggregates_group_of_null_is_one_group(written: Callable[..., list[Any]]) -> None:
    rows = written(update(keys=["id"]), [(None, "", "x", 1.0, 1)], [(None, "", "x", 5.0, 0), ("", "", "x", 2.0, 0)])
    assert {row.id: row.amount for row in rows} == {None: 5.0, "": 2.0}
    assert len(rows) == 2


@pytest.mark.parametrize("sink", [UPSERT, HISTORY, update(keys=["id"])])
def test_an_empty_key_that_is_a_partition_fails_the_batch(spark: SparkSession, tmp_path: Path, sink: Sink) -> None:
    """Delta keeps it as null: each change of it would be a further row."""
    frames = [spark.createDataFrame(rows, CHANGE) for rows in ([], [("a", "c", "x", 1.0, 1)], [("", "c", "x", 1.0, 1)])]
    with pytest.raises(PySparkException, match="upsert: id is an empty text, which Delta keeps as null"):
        by_key.written(sink, tmp_path / "parted", *frames, partition_cols=("id",))
    plain = by_key.written(sink, tmp_path / "plain", *frames, partition_cols=("name",)).collect()
    assert {row.id for row in plain} == {"a", ""}


@pytest.mark.parametrize("sink", [UPSERT, HISTORY])
@pytest.mark.parametrize("change", [(None, "c", "x", 1.0, 1), ("a", "c", "x", 1.0, None)])
def test_a_change_that_cannot_be_ordered_fails_the_batch(
    written: Callable[..., list[Any]], sink: Sink, change: Change
) -> None:
    with pytest.raises(PySparkException, match="cannot be ordered"):
        written(sink, [("b", "c", "x", 1.0, 1), change])


@pytest.mark.parametrize(
    ("sink", "complaint"),
    [
        (upsert(keys=["nr"], sequence="lsn"), "returns no nr"),
        (upsert(keys=["id"], sequence="lsn", except_columns=["lsn"]), "lsn must be written"),
        (history(keys=["id"], sequence="at"), "returns no at"),
        (history(keys=["id"], sequence="lsn", except_columns=["id"]), "keys must be written"),
    ],
)
def test_columns_that_a_sink_needs_are_asked_for_before_the_first_batch(
    written: Callable[..., list[Any]], sink: Sink, complaint: str
) -> None:
    with pytest.raises(SpecError, match=complaint):
        written(sink)
