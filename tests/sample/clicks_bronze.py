"""A sample project, as a user would have it: three modules outside Weir's packages, run by settings alone.

Bronze: clicks of a Kafka topic. What cannot be parsed is kept beside it, in `bronze_clicks_dead_letters`.
"""

import os

from pipelines import Pipeline, kafka

clicks = Pipeline("clicks")
CLICK = "click_id STRING, user_id STRING, page STRING, ms BIGINT, version BIGINT"


@clicks.streaming_table(
    "bronze_clicks",
    source=kafka(os.environ["CLICKS_SERVERS"], "clicks", format="json", schema=CLICK),
    trigger="2 seconds",
    reset_allowed=False,
)
def bronze_clicks(records):
    """Clicks as the topic has them."""
    return records
