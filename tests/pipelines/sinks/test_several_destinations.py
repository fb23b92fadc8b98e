"""One batch into several tables: each of them has each row once, wherever the batch was broken off."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from backend.errors import StreamRefusedError
from backend.streams.reset.plan import ResetLevel
from pipelines import append, into, upsert
from tests.pipelines.jobs.test_requeue import (
    FIRST,
    HISTORY,
    LATER,
    NAME,
    UPSERT,
    Order,
    Shop,
    as_history,
    as_upserted,
    repaired,
)
from tests.pipelines.jobs.test_reset import Shop as Numbers
from tests.worlds.spark.declared import Dying

pytestmark = [pytest.mark.spark, pytest.mark.ci, pytest.mark.timeout(600)]


def good(orders: list[Order]) -> list[Order]:
    return [order for order in orders if order[1] == "d" or (order[2] is not None and order[2] > 0)]


def small(orders: list[Order]) -> list[Order]:
    return [order for order in orders if order[2] is not None and order[2] < 100]


def held(shop: Shop) -> tuple[list[object], ...]:
    """What each of the three tables holds, in the order of the ledger."""
    return (
        sorted((row.id, row.op, row.amount, row.lsn) for row in shop.table()),
        sorted((row.id, row.amount, row.lsn) for row in shop.lake.rows("silver/silver_latest")),
        sorted(((r.id, r.amount, r.valid_from, r.valid_to) for r in shop.lake.rows("gold/orders_history")), key=str),
    )


def ledger(orders: list[Order]) -> tuple[list[object], ...]:
    return sorted(orders), as_upserted(small(orders)), as_history(orders)


@pytest.fixture
def dying() -> Dying:
    return Dying(UPSERT, after=False)


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path, dying: Dying) -> Shop:
    also = [into("silver_latest", dying, where="amount < 100"), into("orders_history", HISTORY, layer="gold")]
    return Shop(spark, tmp_path, append(), also=also)


def process_once(shop: Shop) -> str:
    """Why the stream failed."""
    shop.lake.runtime.start(NAME)
    ended = shop.lake.ended(NAME)
    return ended.failure.message if ended.failure else ""


def test_a_batch_killed_between_its_tables_is_in_each_once(shop: Shop, dying: Dying) -> None:
    assert "died between two writes" in process_once(shop)
    assert dying.writes == 1
    rows, latest, states = held(shop)
    assert (len(rows), latest, states) == (2, [], []), "the first table has the batch, the others have not"

    shop.lake.process(NAME)  # the same batch again
    assert held(shop) == ledger(good(FIRST))
    assert len(shop.quarantined()) == 5
    shop.add(LATER)
    shop.lake.process(NAME)
    assert held(shop) == ledger(good([*FIRST, *LATER]))

    # rows that are requeued go to all of them as well; a job that dies for good between two is ended by the next
    request = shop.asked()
    dying.writes = 0
    with pytest.raises(RuntimeError, match="died between two writes"):
        shop.send(request)
    assert dying.writes == 1 and len(shop.table()) == 3 + 5, "the first table has them"
    with pytest.raises(StreamRefusedError, match="job-1 had broken off"):
        shop.send(request, "job-2")
    assert held(shop) == ledger(repaired([*FIRST, *LATER]))
    assert [row.id for row in shop.quarantined()] == ["c"]


def test_a_full_refresh_empties_every_table(spark: SparkSession, tmp_path: Path) -> None:
    by_id = upsert(keys=["id"], sequence="id")
    numbers = Numbers(
        spark, tmp_path, also=[into("silver_even", append(), where="id % 2 = 0"), into("silver_by_id", by_id)]
    )
    numbers.lake.process("silver_numbers")
    tables = ("silver_numbers", "silver_even", "silver_by_id")
    assert [len(numbers.lake.rows(f"silver/{name}")) for name in tables] == [10, 5, 10]
    numbers.ask(ResetLevel.FULL, "job-1")
    assert [len(numbers.lake.rows(f"silver/{name}")) for name in tables] == [0, 0, 0]
    numbers.lake.process("silver_numbers")
    assert [len(numbers.lake.rows(f"silver/{name}")) for name in tables] == [10, 5, 10]
    numbers.ask(ResetLevel.REPROCESS, "job-2")
    numbers.lake.process("silver_numbers")
    assert [len(numbers.lake.rows(f"silver/{name}")) for name in tables] == [20, 10, 10], "as the preview says"
