"""Who is looked at for what waits, where a test says what that is."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from backend.stream_model.backlog import Backlog, SourceBacklog
from backend.stream_model.stream import InputKind, Progress, StreamDeclaration, TopicEnds
from tests.worlds.store.values import NOW


@dataclass
class Looks:
    """Notes who is looked at."""

    at: list[str] = field(default_factory=list)

    def read(
        self,
        declared: StreamDeclaration,
        recent: Sequence[Progress],
        topics: Sequence[TopicEnds] = (),
        *,
        now: datetime,
    ) -> Backlog:
        assert all(batch.raw_json for batch in recent), "a look works from what Spark said of each batch"
        self.at.append(declared.name)
        return waits(now, files=7)


def waits(seen_at: datetime, *, files: int = 3) -> Backlog:
    source = SourceBacklog("bronze/orders", InputKind.TABLE, versions=1, files=files, oldest_unread_at=NOW)
    return Backlog((source,), seen_at)
