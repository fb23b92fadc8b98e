"""The demo medallion: a generator that lands files, and six streams declared the way users declare theirs.

Rule: importing this package imports no Spark, so that the generator starts fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backend.settings import Settings
    from pipelines.pipeline import Pipeline


def pipelines(settings: Settings) -> list[Pipeline]:
    """The six streams at the pace of `demo.pace`.

    A batch takes two to three seconds of a processor, however few its rows: at pace 1, six streams take half a core.
    """
    from pipelines.demo.events import events  # here, because they import Spark
    from pipelines.demo.orders import orders

    return [each.paced(settings.demo.pace) for each in (events, orders)]
