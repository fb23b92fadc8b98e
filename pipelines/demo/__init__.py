"""The demo medallion: a generator that lands files, and six streams declared the way users declare theirs.

Rule: importing this package imports no Spark, so that the generator starts fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backend.settings import Settings
    from pipelines.spec import Registry


def register(registry: Registry, settings: Settings) -> None:
    """Declare the six streams; `load_registry` calls this for each module in `host.pipelines`."""
    from pipelines.demo.streams import declare  # here, because it imports Spark

    declare(registry, settings)
