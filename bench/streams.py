"""`make bench-streams`: what Weir's streams cost beside the same work in PySpark alone, and fifty on one host.

Rule: a comparison counts only where both tables hold the same rows; each turn begins with an empty folder.
"""

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from backend.format import things
from bench import stream_tasks as tasks
from bench.harness import Bench, BenchError, Line, Run, Suite, Task, at_most, duration, fresh, require_equal
from tests.worlds.streams.kafka_broker import KafkaBroker

RECORDS, PARTITIONS = 10_000_000, 4
CHANGES, BATCHES = 2_000_000, 10
STREAMS, SECONDS = 50, 120.0
COMMITS = 20
OPTIMIZE_WRITE, AUTO_COMPACT = "delta.autoOptimize.optimizeWrite", "delta.autoOptimize.autoCompact"
TOPIC, BROKEN, BROKEN_EVERY = "orders", "broken_orders", 1_000


def at_home(bench: Bench, task: Task, **arguments: Any) -> Callable[[], Run]:
    """A task in a home of its own, each time."""

    def run() -> Run:
        with TemporaryDirectory(prefix="weir-bench-", dir=bench.folder) as home:
            return fresh(task, limit_s=2 * tasks.LIMIT_S, home=home, **arguments)

    return run


def ingest(bench: Bench) -> Iterator[Line]:
    """Records of a topic into bronze, a million a batch"""
    records = round(RECORDS * bench.scale)
    with _broker(bench.folder) as broker:
        for topic, broken_every in ((TOPIC, 0), (BROKEN, BROKEN_EVERY)):
            broker.create(topic, partitions=PARTITIONS)
            fill = {"records": records, "broken_every": broken_every}
            at_home(bench, tasks.fill_topic, servers=broker.servers, topic=topic, **fill)()
        for what, topic, format, at_least in (
            (f"{records:,} records as bytes", TOPIC, "bytes", 0.95),
            (f"{records:,} records as JSON", TOPIC, "json", 0.95),
            (f"the same, one in {BROKEN_EVERY:,} a dead letter", BROKEN, "json", 0.9),
        ):
            read: dict[str, Any] = {"servers": broker.servers, "topic": topic, "format": format}
            ours, bare = bench.runs(at_home(bench, tasks.our_ingest, **read), at_home(bench, tasks.bare_ingest, **read))
            yield _paced(what, records, ours, bare, at_least=at_least)


def changes(bench: Bench) -> Iterator[Line]:
    """Changes by key, four inserts to one update, beside a MERGE that is neither ordered nor safe to replay"""
    count = round(CHANGES * bench.scale)
    with TemporaryDirectory(prefix="weir-bench-", dir=bench.folder) as folder:
        uri = f"{folder}/changes"
        at_home(bench, tasks.fill_changes, uri=uri, changes=count, batches=BATCHES)()
        ours, bare = bench.runs(at_home(bench, tasks.our_upsert, uri=uri), at_home(bench, tasks.bare_upsert, uri=uri))
        yield _paced(f"{count:,} changes in {BATCHES} batches", count, ours, bare, at_least=0.8)


def throttle(bench: Bench) -> Iterator[Line]:
    """Files of a table by day, after small batches of four tasks, each with rows of four days"""
    commits = max(10, round(COMMITS * min(1, bench.scale)))
    with TemporaryDirectory(prefix="weir-bench-", dir=bench.folder) as folder:
        uri = f"{folder}/small"
        at_home(bench, tasks.fill_small, uri=uri, batches=commits)()
        settings = [
            (f"{commits} batches, nothing set", 1, ()),
            (f"a trigger ten times as long: {commits // 10} batches", 10, ()),
            ("optimizeWrite", 1, (OPTIMIZE_WRITE,)),
            ("autoCompact", 1, (AUTO_COMPACT,)),
            ("optimizeWrite and autoCompact", 1, (OPTIMIZE_WRITE, AUTO_COMPACT)),
        ]
        runs = bench.runs(
            *(
                at_home(bench, tasks.our_batches, uri=uri, commits=each, properties=dict.fromkeys(names, "true"))
                for _, each, names in settings
            )
        )
    for (what, _, _), run in zip(settings, runs, strict=True):
        require_equal(run.answer["holds"], runs[0].answer["holds"], what)
        yield Line(what, ours=f"{things(run.answer['files'], 'file')} in {duration(run.seconds)}")


def many(bench: Bench) -> Iterator[Line]:
    """Fifty streams that ask for a batch each second, on one host"""
    share = min(1, bench.scale)
    streams, seconds = max(3, round(STREAMS * share)), max(20.0, SECONDS * share)
    heard, alone = (
        at_home(bench, tasks.many_rates, streams=streams, seconds=seconds, listening=listening)().answer
        for listening in (True, False)
    )
    if not heard["told"] or not alone["batches"]:
        raise BenchError(f"no batch of {streams} streams ended in {seconds:.0f} s")
    yield Line(
        f"batches of {streams} streams that ended in {seconds:.0f} s, with the listener and without",
        ours=f"{heard['batches']:,}",
        theirs=f"{alone['batches']:,}",
        ratio=f"{heard['batches'] / alone['batches']:.2f}×",
    )
    took = heard["callbacks_ms"]
    worst = took[round(0.99 * (len(took) - 1))]
    shown = f"median {duration(statistics.median(took) / 1_000)}, 99 % under {duration(worst / 1_000)}"
    yield Line("what an event of a batch holds up Spark's own thread of events", ours=shown)
    yield at_most("events dropped", heard["dropped"], 0, (str(heard["dropped"]), "0"))
    yield Line("events waiting for the store, at most", ours=str(heard["most_waiting"]))
    bytes_each = heard["bytes"] / heard["told"]
    yield at_most("growth of the store for each batch", bytes_each, 1_000, (f"{bytes_each:,.0f} bytes", "1 kB"))


def _paced(what: str, rows: int, ours: Run, bare: Run, *, at_least: float | None = None) -> Line:
    """Rows a second against the peer's."""
    require_equal(ours.answer, bare.answer, what)
    ratio = bare.seconds / ours.seconds
    mine, theirs = (f"{rows / run.seconds:,.0f} rows/s" for run in (ours, bare))
    target = f"≥ {at_least:g}×" if at_least else ""
    return Line(what, target, mine, theirs, f"{ratio:.2f}×", None if at_least is None else ratio >= at_least)


@contextmanager
def _broker(folder: Path) -> Iterator[KafkaBroker]:
    with TemporaryDirectory(prefix="weir-bench-kafka-", dir=folder) as data:
        broker = KafkaBroker(Path(data))
        try:
            yield broker.start()
        finally:
            broker.close()


SUITE = Suite(
    "bench-streams",
    __doc__,
    "streams.md",
    {"ingest": ingest, "changes": changes, "throttle": throttle, "many": many},
    packages=("pyspark", "delta-spark"),
    repeats=3,
)
