"""Streams with nothing but what a test says of them, and who is looked at for what waits."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from backend.stream_model.backlog import Backlog, SourceBacklog
from backend.stream_model.stream import InputKind, Progress, StreamDeclaration, StreamInput, TopicEnds
from tests.worlds.store.values import NOW


def stream(name: str = "silver", *inputs: StreamInput, **changes: object) -> StreamDeclaration:
    plain = StreamDeclaration(name, "", "", f"/l/{name}", f"x/{name}", (), None, 5_000, f"/c/{name}", inputs=inputs)
    return replace(plain, **changes)  # type: ignore[arg-type]


def waits(seen_at: datetime, *, files: int = 3) -> Backlog:
    source = SourceBacklog("bronze/orders", InputKind.TABLE, versions=1, files=files, oldest_unread_at=NOW)
    return Backlog((source,), seen_at)


@dataclass
class Looks:
    """Notes who is looked at; 7 files wait for each."""

    at: list[str] = field(default_factory=list)

    def read(
        self, declared: StreamDeclaration, recent: Sequence[Progress], _: Sequence[TopicEnds] = (), *, now: datetime
    ) -> Backlog:
        assert all(batch.raw_json for batch in recent), "a look works from what Spark said of each batch"
        self.at.append(declared.name)
        return waits(now, files=7)
