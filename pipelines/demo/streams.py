"""The six streams of the demo.

Rule: written as a user would write them. Nothing in Weir knows their names.
"""

from dataclasses import replace

from backend.settings import Settings
from pipelines.demo import tables as t
from pipelines.demo import transforms
from pipelines.sinks import AppendSink, ChangeSink, CompleteSink, QuarantineSink
from pipelines.sources import ChangeFeedSource, DeltaSource, TextFileSource
from pipelines.spec import Registry, StreamSpec

# Two cores keep up with six streams at this pace, and a viewer still sees life.
BRONZE_S = 10.0
SILVER_S = 15.0
GOLD_S = 30.0


def declare(registry: Registry, settings: Settings) -> None:
    """Add the six streams to the registry."""
    landing, pace = str(settings.home / "landing"), settings.demo.pace
    for spec in (*_events(landing), *_orders(landing)):
        registry.add(replace(spec, trigger_interval_s=(spec.trigger_interval_s or 0) / pace))


def _events(landing: str) -> tuple[StreamSpec, ...]:
    return (
        StreamSpec(
            name="bronze_events",
            description="Takes in landed event files as they are",
            source=TextFileSource(f"{landing}/events"),
            transform=transforms.keep_raw,
            sink=AppendSink(t.BRONZE_EVENTS),
            trigger_interval_s=BRONZE_S,
        ),
        StreamSpec(
            name="silver_events",
            description="Parses events, drops late and double ones, sets broken ones apart",
            source=DeltaSource(t.BRONZE_EVENTS),
            transform=transforms.clean_events,
            sink=QuarantineSink(t.SILVER_EVENTS, t.QUARANTINE_EVENTS),
            trigger_interval_s=SILVER_S,
            expectations=transforms.EVENT_EXPECTATIONS,
        ),
        StreamSpec(
            name="gold_events_hourly",
            description="Counts events and adds up amounts by hour and type",
            source=DeltaSource(t.SILVER_EVENTS),
            transform=transforms.count_hourly,
            sink=CompleteSink(t.GOLD_EVENTS_HOURLY),
            trigger_interval_s=GOLD_S,
        ),
    )


def _orders(landing: str) -> tuple[StreamSpec, ...]:
    return (
        StreamSpec(
            name="bronze_orders",
            description="Takes in landed order changes as they are",
            source=TextFileSource(f"{landing}/orders"),
            transform=transforms.keep_raw,
            sink=AppendSink(t.BRONZE_ORDERS),
            trigger_interval_s=BRONZE_S,
        ),
        StreamSpec(
            name="silver_orders",
            description="Applies order changes by log position: the newest wins, whenever it arrives",
            source=ChangeFeedSource(t.BRONZE_ORDERS),
            transform=transforms.unwrap_orders,
            sink=ChangeSink(t.SILVER_ORDERS, t.DELETED_ORDERS, key="order_id", sequence="lsn", deleted="op = 'd'"),
            trigger_interval_s=SILVER_S,
            expectations=transforms.ORDER_EXPECTATIONS,
        ),
        StreamSpec(
            name="gold_orders_by_status",
            description="Counts orders by present status",
            source=ChangeFeedSource(t.SILVER_ORDERS),
            transform=transforms.count_by_status,
            sink=CompleteSink(t.GOLD_ORDERS_BY_STATUS),
            trigger_interval_s=GOLD_S,
        ),
    )
