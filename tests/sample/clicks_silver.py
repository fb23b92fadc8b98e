"""Silver: each click as it was last corrected, without impossible ones."""

from clicks_bronze import clicks

from pipelines import expect, table, upsert


@clicks.streaming_table(
    "silver_clicks",
    source=table("bronze_clicks"),
    sink=upsert(keys=["click_id"], sequence="version"),
    trigger="2 seconds",
    expectations=[
        expect("has_id", "click_id IS NOT NULL AND version IS NOT NULL", on_violation="drop"),
        expect("took_time", "ms >= 0", on_violation="quarantine"),
        expect("has_page", "page IS NOT NULL"),
    ],
    table_properties={"delta.enableChangeDataFeed": "true"},
    owner="web",
)
def silver_clicks(rows):
    """Clicks by id: the highest version wins."""
    return rows.select("click_id", "user_id", "page", "ms", "version")
