"""The end of every run of the demo: its source stops, the streams drain, and each table equals the ledger."""

from datetime import timedelta

from backend.stream_model.stream import StreamState
from tests.worlds.spark.host_process import World, now


def drain(world: World) -> None:
    """`world.processes[0]` is the generator."""
    world.until_state(StreamState.RUNNING)
    generator = world.processes[0]
    generator.terminate()
    generator.wait(20)
    world.until_drained(now() + timedelta(seconds=1))


def check_events(world: World) -> None:
    ids = world.rows("silver/silver_events")["event_id"].to_pylist()
    assert len(ids) == len(set(ids)), "an event is in silver twice"
    found, expected = set(ids), world.ledger.expected_silver_event_ids()
    assert not expected - found, f"{len(expected - found)} of {len(expected)} events are missing"
    assert not found - expected, f"{len(found - expected)} events too many"
    assert ids, "an empty table proves nothing"


def check_lake(world: World) -> None:
    """Every silver and gold table of the demo against the ledger."""
    check_events(world)
    ledger = world.ledger
    hourly = {
        (row["window_start"], row["event_type"]): (row["event_count"], row["amount_sum"], row["amount_avg"])
        for row in world.rows("gold/gold_events_hourly").to_pylist()
    }
    expected = ledger.expected_gold()
    assert hourly == {key: (gold.event_count, gold.amount_sum, gold.amount_avg) for key, gold in expected.items()}

    orders = {
        row["order_id"]: (row["customer_id"], row["country"], row["status"], row["amount"], row["lsn"])
        for row in world.rows("silver/silver_orders").to_pylist()
    }
    assert orders == {
        key: (order.customer_id, order.country, order.status, order.amount, order.lsn)
        for key, order in ledger.expected_orders().items()
    }

    by_status = {
        row["status"]: (row["orders"], row["total_amount"])
        for row in world.rows("gold/gold_orders_by_status").to_pylist()
    }
    wanted = {status: (of.orders, of.total_amount) for status, of in ledger.expected_orders_by_status().items()}
    assert {status: found for status, found in by_status.items() if found[0]} == wanted
    assert orders, "an empty lake proves nothing"
