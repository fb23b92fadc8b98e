"""The streams of this Weir: replace them by your own (docs/pipelines.md)."""

from pipelines import Pipeline, files

shop = Pipeline("shop")
orders = files("s3://my-bucket/landing/orders", format="json", schema="id BIGINT, amount DOUBLE")
events = files("s3://my-bucket/landing/events", format="json", schema="id BIGINT, kind STRING")


@shop.streaming_table("bronze_orders", source=orders, trigger="10 seconds", tags={"host": "orders"})
def bronze_orders(records):
    return records


@shop.streaming_table("bronze_events", source=events, trigger="10 seconds", tags={"host": "events"})
def bronze_events(records):
    return records
