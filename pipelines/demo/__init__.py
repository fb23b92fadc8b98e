"""The demo medallion: a generator that lands files, and six streams declared the way users declare theirs.

Rule: importing this package imports no Spark, so that the generator starts fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backend.settings import Settings
    from pipelines.declare.pipeline import Pipeline


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
    from pipelines.demo.events import events  # here, because they import Spark
    from pipelines.demo.orders import orders

    declared = [pipeline.paced(settings.demo.pace) for pipeline in (events, orders)]
    if not settings.demo.kafka:
        return declared
    from pipelines.demo.from_topics import from_topics

    return [from_topics(pipeline, settings.demo.kafka) for pipeline in declared]
