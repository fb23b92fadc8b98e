"""Reading from an S3 server that takes its time: requests counted before the server, time of both sides.

Rule: the server and what counts and delays are the tests' own (`tests.object_store`); both sides go through it.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from backend.lake.lake import POLL_S, Lake
from backend.settings import load_settings
from bench import ours, peer
from bench.measure import BenchError, Run, Task, fresh, repeated, require_equal
from tests.object_store import Proxy, make_bucket, proxy, server_url, storage_options

DELAY_S = 0.03
BUCKET = "bench"
VIEWERS = 20


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """Requests of `history(100)` (the most of all runs) and of one look of all viewers that finds nothing new."""

    ours: Run
    theirs: Run
    requests: int
    their_requests: int
    idle_requests: int


def measure(table: Path, repeats: int, limit: int = 100) -> StoreFigures:
    """A table's log in a bucket of its own, read by both sides."""
    objects = {f"t/_delta_log/{file.name}": file.read_bytes() for file in sorted((table / "_delta_log").iterdir())}
    server_url()
    make_bucket(BUCKET, objects)
    with _slow() as store:
        uri, options, counts = f"s3://{BUCKET}/t", storage_options(store.url), ([0], [0])

        def counted(task: Task, most: list[int]) -> Run:
            store.forget()
            run = fresh(task, uri=uri, limit=limit, options=options)
            most[0] = max(most[0], store.count())
            return run

        found, other = repeated(
            repeats, lambda: counted(ours.history, counts[0]), lambda: counted(peer.history, counts[1])
        )
        require_equal(found.answer, other.answer, "history from the object store")
        return StoreFigures(found, other, counts[0][0], counts[1][0], _idle_requests(store, uri, options))


@contextmanager
def _slow() -> Iterator[Proxy]:
    with proxy() as store:
        store.delay_s = DELAY_S
        yield store


def _idle_requests(store: Proxy, uri: str, options: dict[str, str]) -> int:
    """Requests that all viewers together cost who look at a table at the same time, with nothing new."""
    root = f"s3://{BUCKET}"
    with TemporaryDirectory(prefix="weir-bench-") as home:
        lake = Lake(load_settings(home=Path(home), lake={"roots": [root], "storage_options": {root: options}}))
        ref = lake.find(uri)
        latest = lake.latest_version(ref)
        store.forget()
        time.sleep(POLL_S + 0.1)  # as long as a look is taken for fresh
        if {lake.latest_version(ref) for _ in range(VIEWERS)} != {latest}:
            raise BenchError("a table that nobody writes to changed")
        return int(store.count())
