"""What was known of real streams, moment by moment, kept so that each later rule of a verdict is judged by the same.

`record` asks the store of a running Weir each 10 s, as its pages do.
"""

import lzma
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from pydantic import TypeAdapter

from backend.lake.lake import Lake
from backend.settings import load_settings
from backend.store.clock import elapsed
from backend.store.store import ControlStore
from backend.streams.backlog.reader import BacklogReader
from backend.streams.status import gather_evidence
from backend.streams.verdict import StreamEvidence

EVERY_S = 10.0
FOLDER = Path(__file__).with_name("recordings")


@dataclass(frozen=True, slots=True)
class Moment:
    """What was known of every stream at `at`, without what no verdict is judged by."""

    at: datetime
    streams: tuple[StreamEvidence, ...]


_LINE = TypeAdapter(Moment)


def replay(name: str) -> Iterator[Moment]:
    """The moments of a recording, in order."""
    with lzma.open(FOLDER / name, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield _LINE.validate_json(line)


def record(home: Path, file: Path, *, minutes: float) -> None:
    settings = load_settings(home=home)
    store, backlogs = ControlStore.open(settings), BacklogReader(settings, Lake(settings))
    began = elapsed()
    with lzma.open(file, "wt", encoding="utf-8") as lines:
        while elapsed() - began < 60 * minutes:
            now = store.now()
            known = gather_evidence(store, backlogs, now=now, heartbeat_stale_s=settings.host.heartbeat_stale_s)
            moment = Moment(now, tuple(_judged_by(each) for each in known))
            lines.write(_LINE.dump_json(moment, exclude_defaults=True).decode() + "\n")
            time.sleep(EVERY_S)


def _judged_by(evidence: StreamEvidence) -> StreamEvidence:
    declaration = replace(evidence.declaration, checkpoint_location="", sink_uri="", inputs=(), expectations=())
    batches = [replace(each, raw_json="", durations_ms={}, expectations=()) for each in evidence.recent]
    observed = evidence.observed and replace(evidence.observed, host_id="host")
    host = evidence.host and replace(evidence.host, host_id="host", hostname="host")
    return replace(evidence, declaration=declaration, recent=batches, observed=observed, host=host)
