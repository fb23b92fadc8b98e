"""The demo medallion: a generator that lands files, and six streams declared the way users declare theirs.

Rule: importing this package imports no Spark, so that the generator starts fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backend.settings import Settings
    from pipelines.declare.pipeline import Pipeline


def pipelines(settings: Settings) -> list[Pipeline]:
    """The six streams at the pace of `demo.pace`, from files or from the topics of `demo.kafka`.

    A batch takes two to three seconds of a processor, however few its rows: at pace 1, six streams take half a core.
    """
    from pipelines.demo.streams import events, from_topic, orders  # here, because they import Spark

    declared = [pipeline.paced(settings.demo.pace) for pipeline in (events, orders)]
    if servers := settings.demo.kafka:
        for pipeline in declared:
            pipeline.streams = [from_topic(stream, servers) for stream in pipeline.streams]
    return declared
