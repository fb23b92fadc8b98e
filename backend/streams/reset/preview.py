"""The preview of a reset, read from the store and the stream's sources.

Rule: reads alone; `backend.streams.reset.plan` says what it means.
"""

from collections.abc import Sequence
from datetime import datetime
from types import MappingProxyType

from backend.errors import StreamNotFoundError
from backend.settings import Settings
from backend.store.store import ControlStore
from backend.streams.backlog.reader import BacklogReader
from backend.streams.model import StreamStatus
from backend.streams.reset.plan import ResetLevel, ResetPreview, preview
from backend.streams.reset.set_aside import set_aside
from backend.streams.reset.starts import Starts, begun_at


def load_preview(
    settings: Settings,
    store: ControlStore,
    backlogs: BacklogReader,
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
    again = backlogs.from_start(begun_at(named[name].declaration, starts), store.topic_ends().get(name, ()), now=now)
    kept = set_aside(settings, name)
    others = [status.declaration for status in statuses]
    return preview(named[name], level, others, again=again, set_aside=kept)
