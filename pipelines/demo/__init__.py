"""The demo medallion: a generator that lands files, and six streams declared the way users declare theirs.

Rule: importing this package imports no Spark, so that the generator starts fast.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backend.settings import Settings
    from pipelines.declare.pipeline import Pipeline
    from pipelines.specs.streams import StreamSpec


def pipelines(settings: Settings) -> list[Pipeline]:
    """The six streams at the pace of `demo.pace`, from files or from the topics of `demo.kafka`.

    A batch takes two to three seconds of a processor, however few its rows: at pace 1, six streams take half a core.
    """
    from pipelines.demo.streams import events, from_topic, orders  # here, because they import Spark

    def as_set(stream: StreamSpec) -> StreamSpec:
        paced_s = stream.trigger_interval_s and stream.trigger_interval_s / settings.demo.pace
        paced = replace(stream, trigger_interval_s=paced_s)
        return from_topic(paced, settings.demo.kafka) if settings.demo.kafka else paced

    return [replace(pipeline, streams=list(map(as_set, pipeline.streams))) for pipeline in (events, orders)]
