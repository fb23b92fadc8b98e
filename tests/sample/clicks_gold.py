"""Gold: how often each page was clicked, and how long it took. Settings name this module alone."""

from clicks_silver import clicks
from pyspark.sql import functions as F


@clicks.materialized_view("gold_pages", refresh="2 seconds", cluster_by=["page"])
def gold_pages(silver_clicks):
    """Clicks by page."""
    return silver_clicks.groupBy("page").agg(F.count("*").alias("clicks"), F.avg("ms").alias("mean_ms"))
