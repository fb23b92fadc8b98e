"""Sinks that apply changes by key: whatever the order, the cuts and the replays, the table is what all changes say."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines.sinks.history import history
from pipelines.sinks.upsert import update, upsert
from pipelines.specs.sinks import Sink
from tests.worlds.cases import soak
from tests.worlds.spark import by_key

pytestmark = pytest.mark.spark

# Columns may have any name.
CHANGE = "`order.id` STRING, op STRING, `a``b` STRING, amount DOUBLE, `event-time` BIGINT"
Change = tuple[str | None, str, str | None, float | None, int | None]
ABOUT: dict[str, Any] = {"keys": ["order.id"], "sequence": "event-time", "except_columns": ["op"]}
UPSERT, HISTORY, UPDATE = upsert(**ABOUT), history(**ABOUT), update(keys=["order.id"])


@pytest.fixture
def written(spark: SparkSession, tmp_path: Path) -> Callable[..., list[Any]]:
    """`written(sink, batch, …)`: the table's rows after these batches."""

    def write(sink: Sink, *batches: list[Change]) -> list[Any]:
        frames = [spark.createDataFrame(batch, CHANGE) for batch in ([], *batches)]
        return by_key.written(sink, tmp_path, *frames).collect()

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


def states(changes: list[Change]) -> dict[str, list[tuple[Any, ...]]]:
    """By key: name, amount, from and to of every state, by walking each key's changes in order."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for key in {change[0] for change in changes if change[0]}:
        mine = sorted((change for change in changes if change[0] in (key, None)), key=lambda change: change[4] or 0)
        ends = [*(change[4] for change in mine[1:]), None]
        spans = zip(mine, ends, strict=True)
        found[key] = [(*change[2:], end) for change, end in spans if change[1] not in ("d", "t")]
    return found


def check_upserted(rows: list[Any], changes: list[Change]) -> None:
    newest = {key: of[-1][:3] for key, of in states(changes).items() if of and of[-1][3] is None}
    assert {row["order.id"]: (row["a`b"], row.amount, row["event-time"]) for row in rows} == newest
    assert len(rows) == len(newest) > 0


def check_history(rows: list[Any], changes: list[Change]) -> None:
    spans = {(row["order.id"], row["a`b"], row.amount, row.valid_from, row.valid_to) for row in rows}
    expected = {(key, *state) for key, of in states(changes).items() for state in of}
    assert spans == expected and len(rows) == len(expected)
    assert all(row.is_current == (row.valid_to is None) for row in rows)


@pytest.mark.parametrize(
    ("make", "check"), [(upsert, check_upserted), (history, check_history)], ids=["upsert", "history"]
)
@pytest.mark.parametrize(
    ("deleted", "truncated"),
    [
        ("op = 'd'", "op = 't'"),
        pytest.param("op = 'd'", None, marks=pytest.mark.ci),
        pytest.param(None, "op = 't'", marks=pytest.mark.ci),
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


@pytest.mark.ci
def test_a_column_is_the_tables_in_other_letters_too(spark: SparkSession, tmp_path: Path) -> None:
    made = spark.createDataFrame([], "id STRING, Amount DOUBLE, lsn BIGINT")
    changes = [spark.createDataFrame([("a", float(at), at)], "id STRING, amount DOUBLE, lsn BIGINT") for at in (1, 2)]
    rows = by_key.written(upsert(keys=["id"], sequence="lsn"), tmp_path, made, *changes).collect()
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
        by_key.written(sink, tmp_path / "parted", *frames, partition_cols=("id",))
    plain = by_key.written(sink, tmp_path / "plain", *frames, partition_cols=("name",)).collect()
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
