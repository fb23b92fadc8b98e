"""The preview of a reset, read from the store and the stream's sources.

Rule: reads alone; `backend.streams.reset.plan` says what it means.
"""

from collections.abc import Sequence
from datetime import datetime
from types import MappingProxyType

from backend.errors import LakehouseError, StreamNotFoundError
from backend.lake.lake import Lake
from backend.settings import Settings
from backend.store.store import ControlStore
from backend.stream_model.stream import StreamDeclaration
from backend.streams.backlog.reader import BacklogReader
from backend.streams.reset.plan import ResetLevel, ResetPreview, preview
from backend.streams.reset.set_aside import set_aside
from backend.streams.reset.starts import Starts, begun_at
from backend.streams.verdict import StreamStatus


def load_preview(
    settings: Settings,
    lake: Lake,
    store: ControlStore,
    statuses: Sequence[StreamStatus],
    *,
    name: str,
    level: ResetLevel,
    now: datetime,
    starts: Starts = MappingProxyType({}),
) -> ResetPreview:
    """`starts`: where each source begins, of FROM. Raises `StreamNotFoundError` or `StoreError`."""
    named = {status.declaration.name: status for status in statuses}
    if name not in named:
        raise StreamNotFoundError(f"no stream {name!r}", hint=f"streams: {', '.join(named) or 'none'}")
    declared = named[name].declaration
    topics = store.topic_ends().get(name, ())
    again = BacklogReader(settings, lake).from_start(begun_at(declared, starts), topics, now=now)
    return preview(
        named[name],
        level,
        [status.declaration for status in statuses],
        again=again,
        set_aside=set_aside(settings, name),
        append_only=_append_only(lake, declared) if level is ResetLevel.FULL else (),
    )


def _append_only(lake: Lake, declared: StreamDeclaration) -> list[str]:
    """Its tables that nobody may take rows from; one that cannot be read, or is not there, is not known to be one."""
    found = []
    for output in declared.outputs:
        try:
            properties = lake.snapshot(lake.find(output.uri)).metadata.configuration
        except LakehouseError:
            continue
        if properties.get("delta.appendOnly", "").lower() == "true":
            found.append(output.table)
    return found
