"""What two hosts and a page ask of the store while nothing happens, counted: fifteen statements a second at most."""

import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.cache import STREAMS_KEPT_S
from backend.lake.lake import Lake
from backend.settings import load_settings
from backend.store.clock import StoreClock
from backend.store.notices import Kept, Topic
from backend.store.store import ControlStore
from backend.stream_model.stream import StreamState
from backend.streams.backlog.reader import BacklogReader
from backend.streams.status import Newest, statuses
from pipelines.host.backlog_watch import BacklogWatch
from pipelines.host.drain_watch import DrainWatch
from pipelines.host.job_host import JobHost
from pipelines.host.retention import Retention
from pipelines.host.stream_host import StreamHost, declare, new_heartbeat
from pipelines.host.table_watch import TableWatch
from tests.postgres import POSTGRES, empty_postgres_url
from tests.processes import wait_until
from tests.stopwatch import Stopwatch
from tests.unit.test_host_loop import Runner, declaration

NAMES = tuple(f"s{number}" for number in range(6))
SECONDS, MOST_PER_S = 60, 15.0


@pytest.fixture
def postgres(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with empty_postgres_url() as url:
        monkeypatch.setenv("WEIR_HOME", str(tmp_path))
        monkeypatch.setenv("WEIR_STORE__URL", url)
        yield url


class OneHost:
    """Each of its loops and watches, told second by second what is due."""

    def __init__(self, watch: Stopwatch) -> None:
        settings = load_settings()
        self.store = ControlStore.open(settings)
        clock, declared = StoreClock(self.store.now), tuple(map(declaration, NAMES))
        heartbeat, lake = new_heartbeat(datetime.now(UTC)), Lake(settings)
        declare(self.store, declared, datetime.now(UTC))
        self.host = StreamHost(settings, self.store, Runner(), declared, heartbeat, clock, watch)
        self.jobs = JobHost(settings, self.store, None, heartbeat.host_id, elapsed=watch)  # type: ignore[arg-type]
        self.drains = DrainWatch(settings, lake, self.store, lambda _: None, clock)
        self.backlogs = BacklogWatch(settings, lake, self.store, declared, self.host.owned, clock)
        self.tables = TableWatch(settings, lake, self.store, (), heartbeat.host_id, ("x",), clock)
        self.retention = Retention(settings, lake, self.store, clock)

    def second(self, number: int) -> None:
        self.host.tick()
        self.drains.look()
        for _ in range(4):
            self.jobs.step()
        if number % 5 == 0:
            self.backlogs.look()
        if number % 10 == 0:
            for name in self.host.owned():
                self.store.touch(name, at=self.store.now())  # Spark: there was nothing to read
        if number % 15 == 0:
            self.tables.round(())
        if number % 30 == 0:
            self.retention.once()


@pytest.mark.postgres
@pytest.mark.skipif(POSTGRES not in os.environ, reason=f"{POSTGRES} names no database")
def test_at_rest_the_store_is_asked_little(postgres: str) -> None:
    watch = Stopwatch()
    hosts = [OneHost(watch) for _ in range(2)]
    page = ControlStore(postgres)

    def running() -> bool:
        for each in hosts:
            each.host.tick()
        states = {seen.state for seen in page.observed().values()}
        return states == {StreamState.RUNNING} and len(page.observed()) == len(NAMES)

    wait_until(running, "all streams run")
    stores = [each.store for each in hosts]
    wait_until(lambda: all(store.notices.heard() is not None for store in (*stores, page)), "they listen")
    reading, counted = page_on(page, watch), Counter[str]()
    begin = watch.ahead_s
    for store in (*stores, page):
        sa.event.listen(store._database._engine, "before_cursor_execute", counting(counted))
    for number in range(SECONDS):
        watch.forward(1.0)
        for each in hosts:
            each.second(number)
        reading()
    per_s = counted.total() / (watch.ahead_s - begin)
    print(f"{per_s:.1f} statements a second", *counted.most_common(30), sep="\n")  # noqa: T201
    assert per_s <= MOST_PER_S
    assert page.observed().keys() == set(NAMES)
    assert {seen.state for seen in page.observed().values()} == {StreamState.RUNNING}, "no lease was lost"
    for store in (*stores, page):
        store.close()


def page_on(store: ControlStore, watch: Stopwatch) -> Kept[object]:
    """What `app/cache.py` asks for all pages."""

    settings, newest = load_settings(), Newest()
    backlogs = BacklogReader(settings, Lake(settings))

    def read() -> object:
        store.take_in(settings.roots)
        streams = statuses(store, backlogs, now=store.now(), heartbeat_stale_s=15, newest=newest)
        return streams, store.hosts(now=datetime.now(UTC)), store.judgements()

    return Kept(store.notices, read, *Topic, every_s=STREAMS_KEPT_S, elapsed=watch)


def counting(counted: Counter[str]):  # type: ignore[no-untyped-def]
    def note(connection: object, cursor: object, statement: str, *more: object) -> None:
        counted[" ".join(statement.split())[:90]] += 1

    return note
