"""Streams with nothing but what a test says of them, and who is looked at for what waits."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from backend.stream_model.backlog import Backlog, SourceBacklog
from backend.stream_model.stream import InputKind, Progress, StreamDeclaration, StreamInput, TopicEnds
from backend.streams.backlog import BatchEnd, batch_end
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


def ended_batch(at: datetime, *sources: Mapping[str, Any], took_s: float = 1, run_id: str = "r") -> BatchEnd:
    """Of a batch that ended then, with what Spark said of each source."""
    raw = json.dumps({"sources": sources})
    began = at - timedelta(seconds=took_s)
    return batch_end(Progress("s", "q", run_id, 1, began, 10, None, None, int(took_s * 1_000), raw_json=raw))
