"""The demo's tables: schema, comments, properties and owners.

Rule: a stream creates its tables from here before anything reads them.
"""

from collections.abc import Mapping

from pipelines.tables import Column, TableSpec

_CHANGE_FEED = {"delta.enableChangeDataFeed": "true"}


def _owned(team: str, classification: str) -> Mapping[str, str]:
    return {
        "catalog.team_name": team,
        "catalog.engineering.comms.slack": f"#{team}",
        "catalog.engineering.comms.email": f"{team}@example.com",
        "catalog.table.classification": classification,
    }


_RAW = (
    Column("raw", "STRING", "The line as it was landed"),
    Column("file_name", "STRING", "File that held it"),
    Column("file_modified_at", "TIMESTAMP", "When the file landed"),
    Column("ingested_at", "TIMESTAMP", "When the stream read it"),
)

BRONZE_EVENTS = TableSpec(
    name="bronze_events",
    layer="bronze",
    comment="Events as landed: one row a line, nothing parsed, nothing dropped",
    columns=_RAW,
    properties={"delta.appendOnly": "true", **_owned("data-ingestion", "internal")},
)
BRONZE_ORDERS = TableSpec(
    name="bronze_orders",
    layer="bronze",
    comment="Order changes as landed: whole Debezium envelopes as text",
    columns=_RAW,
    properties={"delta.appendOnly": "true", **_CHANGE_FEED, **_owned("data-ingestion", "confidential")},
)
SILVER_EVENTS = TableSpec(
    name="silver_events",
    layer="silver",
    comment="Events that are well formed, in time and valid; each event_id once",
    columns=(
        Column("event_id", "STRING", "The producer's identity of the event"),
        Column("user_id", "STRING", "Who did it"),
        Column("event_type", "STRING", "view, cart, purchase or refund"),
        Column("amount", "DECIMAL(12,2)", "In the shop's currency, above 0"),
        Column("timestamp", "TIMESTAMP", "When it happened"),
        Column("file_name", "STRING", "Landed file that it came with"),
        Column("ingested_at", "TIMESTAMP", "When bronze took it in"),
        Column("processed_at", "TIMESTAMP", "When silver took it in"),
    ),
    properties=_owned("data-platform", "internal"),
)
QUARANTINE_EVENTS = TableSpec(
    name="quarantine_events",
    layer="silver",
    comment="Events that broke an expectation of silver_events, as landed, with the reason",
    columns=(
        Column("raw", "STRING", "The line as it was landed"),
        Column("broken_expectations", "ARRAY<STRING>", "Expectations that it breaks"),
        Column("file_name", "STRING", "Landed file that it came with"),
        Column("ingested_at", "TIMESTAMP", "When bronze took it in"),
        Column("stream", "STRING", "Stream that set it apart"),
        Column("batch_id", "BIGINT", "Micro-batch of that stream"),
        Column("quarantined_at", "TIMESTAMP", "When it was set apart"),
    ),
    properties=_owned("data-platform", "internal"),
)
GOLD_EVENTS_HOURLY = TableSpec(
    name="gold_events_hourly",
    layer="gold",
    comment="Events by hour and type",
    columns=(
        Column("window_start", "TIMESTAMP", "Hour, first instant"),
        Column("window_end", "TIMESTAMP", "Hour, first instant after it"),
        Column("event_type", "STRING", "view, cart, purchase or refund"),
        Column("event_count", "BIGINT", "Events"),
        Column("amount_sum", "DECIMAL(22,2)", "Sum of amounts"),
        Column("amount_avg", "DECIMAL(16,6)", "Average amount"),
    ),
    properties=_owned("analytics", "internal"),
)
SILVER_ORDERS = TableSpec(
    name="silver_orders",
    layer="silver",
    comment="Orders as the shop's database holds them now; deleted ones are gone",
    columns=(
        Column("order_id", "STRING", "Key"),
        Column("customer_id", "STRING", "Who ordered"),
        Column("country", "STRING", "Shop that took the order"),
        Column("status", "STRING", "placed, paid, shipped, delivered or cancelled"),
        Column("amount", "DECIMAL(12,2)", "In the shop's currency"),
        Column("lsn", "BIGINT", "Position of the last change in the source's log"),
        Column("changed_at", "TIMESTAMP", "When the source committed that change"),
    ),
    properties={**_CHANGE_FEED, **_owned("data-platform", "confidential")},
)
DELETED_ORDERS = TableSpec(
    name="deleted_orders",
    layer="silver",
    comment="Last known change of each deleted order, so that an older change never brings it back",
    columns=(
        Column("order_id", "STRING", "Key"),
        Column("lsn", "BIGINT", "Position of the deletion in the source's log"),
    ),
    properties=_owned("data-platform", "internal"),
)
GOLD_ORDERS_BY_STATUS = TableSpec(
    name="gold_orders_by_status",
    layer="gold",
    comment="Orders by present status",
    columns=(
        Column("status", "STRING", "placed, paid, shipped, delivered or cancelled"),
        Column("orders", "BIGINT", "Orders in this status now"),
        Column("total_amount", "DECIMAL(22,2)", "Sum of their amounts"),
    ),
    properties=_owned("analytics", "internal"),
)
