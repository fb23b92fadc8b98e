"""Two hosts and a page on six streams while nothing happens, second by second, and what they ask of the store."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa

from backend.lake.lake import Lake
from backend.settings import Settings, load_settings
from backend.store.leases import StoreClock
from backend.store.notices import KeptAnswer, NoticeTopic
from backend.store.store import ControlStore
from backend.stream_model.stream import StreamState
from backend.streams.backlog import BacklogReader
from backend.streams.status import Newest, statuses
from pipelines.host.backlogs import DrainWatch, keep_backlogs
from pipelines.host.job_host import JobHost
from pipelines.host.progress import prune, roll_up
from pipelines.host.stream_host import StreamHost, declare, new_heartbeat
from pipelines.host.tables import TableWatch
from tests.worlds.hosts.in_memory import Runner, declaration
from tests.worlds.hosts.rounds import rounds_of
from tests.worlds.processes import wait_until
from tests.worlds.stopwatch import Stopwatch

NAMES = tuple(f"s{number}" for number in range(6))


class OneHost:
    """Each of its loops and watches, told what is due in this second."""

    def __init__(self, settings: Settings, watch: Stopwatch) -> None:
        self.store = ControlStore.open(settings)
        self.settings = settings.store
        clock, declared = StoreClock(self.store.now), tuple(map(declaration, NAMES))
        heartbeat, lake = new_heartbeat(datetime.now(UTC)), Lake(settings)
        declare(self.store, declared, datetime.now(UTC))
        self.host = StreamHost(settings, self.store, Runner(), declared, heartbeat, clock, watch)
        self.jobs = JobHost(settings, self.store, None, heartbeat.host_id, elapsed=watch)  # type: ignore[arg-type]
        self.drains = DrainWatch(settings, lake, self.store, lambda _: None, clock)
        self.reader, self.clock, self.declared = BacklogReader(settings, lake, keep_s=0), clock, declared
        self.alone = rounds_of(lambda _: None)
        self.tables = TableWatch(settings, lake, self.store, (), heartbeat.host_id, ("x",), clock)

    def second(self, number: int) -> None:
        self.host.tick()
        self.drains.look()
        for _ in range(4):
            self.jobs.step()
        if number % 5 == 0:
            owned = [stream for stream in self.declared if stream.name in self.host.owned()]
            keep_backlogs(self.reader, self.store, owned, self.clock, self.alone)
        if number % 10 == 0:
            for name in self.host.owned():
                self.store.touch(name, at=self.store.now())  # Spark: there was nothing to read
        if number % 15 == 0:
            self.tables.round(())
        if number % 30 == 0:
            roll_up(self.reader, self.store, self.clock, self.alone)
        if number == 0:
            prune(self.settings, self.store, self.clock())


def statements_at_rest(home: Path, url: str, *, seconds: int) -> Counter[str]:
    """Raises `AssertionError` where a stream did not run all the time."""
    watch, settings = Stopwatch(), load_settings(home=home, store={"url": url})
    hosts, page = [OneHost(settings, watch) for _ in range(2)], ControlStore(url)
    stores = [*(each.store for each in hosts), page]

    def run() -> bool:
        for each in hosts:
            each.host.tick()
        return [seen.state for seen in page.observed().values()] == [StreamState.RUNNING] * len(NAMES)

    wait_until(run, "all streams run")
    if not url.startswith("sqlite"):
        wait_until(lambda: all(store.notices.heard() is not None for store in stores), "they listen")
    reading = page_on(page, settings, watch)
    with ExitStack() as counting:
        asked = [counting.enter_context(counted(store)) for store in stores]
        for number in range(seconds):
            watch.forward(1.0)
            for each in hosts:
                each.second(number)
            reading()
    wait_until(run, "they run still")
    for store in stores:
        store.close()
    return sum(asked, Counter[str]())


def page_on(store: ControlStore, settings: Settings, watch: Stopwatch) -> KeptAnswer[object]:
    """What `app/cache.py` asks for all pages."""
    backlogs, newest = BacklogReader(settings, Lake(settings)), Newest()

    def read() -> object:
        store.take_in(settings.roots)
        streams = statuses(store, backlogs, now=store.now(), heartbeat_stale_s=15, newest=newest)
        return streams, store.hosts(now=datetime.now(UTC)), store.judgements()

    return KeptAnswer(store.notices, read, *NoticeTopic, every_s=settings.host.heartbeat_stale_s / 3, elapsed=watch)


@contextmanager
def counted(store: ControlStore) -> Iterator[Counter[str]]:
    """Its statements meanwhile."""
    statements = Counter[str]()

    def note(connection: object, cursor: object, statement: str, *more: object) -> None:
        if not statement.startswith("BEGIN"):
            statements[" ".join(statement.split())] += 1

    engine = store._database._engine
    sa.event.listen(engine, "before_cursor_execute", note)
    yield statements
    sa.event.remove(engine, "before_cursor_execute", note)
