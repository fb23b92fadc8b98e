"""A database's log as Debezium writes it, mixed as far as partitions allow, cut, and sent again in part: the tables are
the database's last state and its whole history.
"""

import random
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from pipelines.declare.cdc import debezium
from pipelines.sinks.history import history
from pipelines.sinks.upsert import upsert
from tests.worlds.cases import soak
from tests.worlds.spark import by_key
from tests.worlds.spark.debezium_log import ROW, Flavour, Log, Record, State, database, states

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3_000)]

MODES: dict[Flavour, dict[str, Any]] = {
    "postgresql": {"decimals": "precise", "times": "microseconds"},
    "mysql": {"decimals": "precise", "times": "microseconds", "servers": [[0, 1], 2]},
    "mongodb": {},
}


LONG = [pytest.param(name, marks=pytest.mark.ci) for name in ("postgresql", "mongodb")]


@pytest.mark.parametrize("changes", [1_000, *soak((100_000,))])
@pytest.mark.parametrize("flavour", ["mysql", *LONG])
def test_tables_are_the_last_state_and_the_whole_history(
    spark: SparkSession, tmp_path: Path, flavour: Flavour, changes: int
) -> None:
    dice = random.Random(20261124)
    ledger = list(database(dice, changes, keys=changes // 20))
    log = Log(flavour, ledger, dice)
    assert {change.op for change in ledger} == {"r", "c", "u", "d"}
    frames = [unwrapped(spark, batch, flavour) for batch in log.batches(4)]
    key = "_id" if flavour == "mongodb" else "id"
    about: dict[str, Any] = {
        "keys": [key],
        "sequence": "position",
        "deleted": "op = 'd'",
        "except_columns": ["op", "changed_at"],
    }
    written = [
        by_key.written(sink, tmp_path / sink.kind, frames[0].limit(0), *frames)
        for sink in (upsert(**about), history(**about))
    ]
    expected = states(ledger)
    latest = {key: mine[-1][0] for key, mine in expected.items() if mine and mine[-1][1] is None}
    assert {row[key]: values(row) for row in written[0].collect()} == {
        each: plain(row, flavour) for each, row in latest.items()
    }
    check_history(written[1], expected, flavour, key)


def unwrapped(spark: SparkSession, batch: list[Record], flavour: Flavour) -> DataFrame:
    schema = f"`_id` BIGINT, {ROW}" if flavour == "mongodb" else ROW
    records = spark.createDataFrame(batch, "key STRING, value STRING")
    return debezium(records, schema, flavour=flavour, **MODES[flavour]).localCheckpoint()  # as a stream's batch is


def values(row: Row) -> State:
    """The row's columns, without those that the connector adds."""
    found = row.asDict(recursive=True)
    found["at"] = found["at"].replace(tzinfo=UTC)
    return {name: found[name] for name in ("id", "number", "status", "amount", "at", "day", "biography", "place")}


def plain(row: State, flavour: Flavour) -> State:
    """As a column holds it: MongoDB knows milliseconds."""
    at = row["at"]
    return {**row, "at": at.replace(microsecond=at.microsecond // 1_000 * 1_000) if flavour == "mongodb" else at}


def check_history(rows: DataFrame, expected: dict[int, Any], flavour: Flavour, key: str) -> None:
    """Each key's states in their order; each ends where the next begins, or before, where the row was deleted."""
    found: dict[int, list[Row]] = {}
    for row in rows.collect():
        found.setdefault(row[key], []).append(row)
    assert {
        each: [values(row) for row in sorted(mine, key=lambda row: row.valid_from)] for each, mine in found.items()
    } == {each: [plain(row, flavour) for row, _ in mine] for each, mine in expected.items() if mine}
    for each, mine in found.items():
        in_order = sorted(mine, key=lambda row: row.valid_from)
        following = [*in_order[1:], None]
        for row, after, (_, end) in zip(in_order, following, expected[each], strict=True):
            assert row.is_current == (end is None) == (row.valid_to is None)
            if after is not None and end == after.number:
                assert row.valid_to == after.valid_from
            elif end is not None:
                assert row.valid_from < row.valid_to and (after is None or row.valid_to < after.valid_from)
