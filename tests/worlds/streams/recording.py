"""What was known of real streams each 10 s, kept so that each later rule of a verdict is judged by the same."""

import lzma
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import TypeAdapter

from backend.streams.verdict import StreamStatus

FOLDER = Path(__file__).with_name("recordings")


@dataclass(frozen=True, slots=True)
class Moment:
    """What was known of every stream at `at`, without what no verdict is judged by."""

    at: datetime
    streams: tuple[StreamStatus, ...]


_LINE = TypeAdapter(Moment)


def replay(name: str) -> Iterator[Moment]:
    """The moments of a recording, in order."""
    with lzma.open(FOLDER / name, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield _LINE.validate_json(line)
