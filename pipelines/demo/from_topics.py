"""The demo's bronze streams with topics of Kafka as their sources, and nothing else changed."""

from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.declare.pipeline import Pipeline
from pipelines.sources.files import FileSource
from pipelines.sources.kafka import kafka
from pipelines.specs.streams import StreamSpec


def from_topics(pipeline: Pipeline, servers: str) -> Pipeline:
    """A stream that reads the files in `landing/X` reads the topic X."""
    return replace(pipeline, streams=[_from_topic(stream, servers) for stream in pipeline.streams])


def _from_topic(stream: StreamSpec, servers: str) -> StreamSpec:
    (source,) = stream.sources
    if not isinstance(source, FileSource):
        return stream
    topic = kafka(servers, Path(source.folder).name, format="text")
    return replace(stream, sources=(topic,), function=lambda records: stream.function(_as_landed(records)))


def _as_landed(records: DataFrame) -> DataFrame:
    """With the place in the topic for the file's name, and the producer's time for the time of landing."""
    place = F.format_string("%s/%d/%d", "topic", "partition", "offset")
    return records.select("value", place.alias("file_name"), F.col("timestamp").alias("file_modified_at"))
