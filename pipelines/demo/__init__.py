"""The demo medallion: a generator that lands files, and six streams declared the way users declare theirs.

Rule: importing this package imports no Spark, so that the generator starts fast.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from backend.settings import Settings
    from pipelines.declare.pipeline import Pipeline
    from pipelines.specs.streams import StreamSpec


def _owned(team: str, classification: str) -> dict[str, str]:
    """Whose a table is, as properties that pages show."""
    return {
        "catalog.team_name": team,
        "catalog.engineering.comms.slack": f"#{team}",
        "catalog.engineering.comms.email": f"{team}@example.com",
        "catalog.table.classification": classification,
    }


INGESTION = _owned("data-ingestion", "internal")
PLATFORM = _owned("data-platform", "internal")
PLATFORM_CONFIDENTIAL = _owned("data-platform", "confidential")
ANALYTICS = _owned("analytics", "internal")


def pipelines(settings: Settings) -> list[Pipeline]:
    """The six streams at the pace of `demo.pace`, from files or from the topics of `demo.kafka`.

    A batch takes two to three seconds of a processor, however few its rows: at pace 1, six streams take half a core.
    """
    from pipelines.demo.streams import events, orders  # here, because they import Spark

    declared = [pipeline.paced(settings.demo.pace) for pipeline in (events, orders)]
    if servers := settings.demo.kafka:
        for pipeline in declared:
            pipeline.streams = [_from_topic(stream, servers) for stream in pipeline.streams]
    return declared


def _from_topic(stream: StreamSpec, servers: str) -> StreamSpec:
    """A stream that reads the files in `landing/X` reads the topic X, and nothing else changes: the place in the topic
    stands for the file's name, the producer's time for the time of landing."""
    from pyspark.sql import functions as F

    from pipelines.sources.files import FileSource
    from pipelines.sources.kafka import kafka

    (source,) = stream.sources
    if not isinstance(source, FileSource):
        return stream

    def as_landed(records: DataFrame) -> DataFrame:
        place = F.format_string("%s/%d/%d", "topic", "partition", "offset")
        landed = (place.alias("file_name"), F.col("timestamp").alias("file_modified_at"))
        return stream.function(records.select("value", *landed))

    topic = kafka(servers, Path(source.folder).name, format="text")
    return replace(stream, sources=(topic,), function=as_landed)
