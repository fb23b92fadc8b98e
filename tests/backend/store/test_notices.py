"""Who keeps what the store holds sees each change of it: told by PostgreSQL, asked each time on SQLite."""

from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from backend.store.leases import stream_resource
from backend.store.notices import KeptAnswer, NoticeTopic
from backend.store.store import ControlStore
from backend.stream_model.stream import DesiredState, HostHeartbeat
from tests.worlds.processes import wait_until
from tests.worlds.store import stream_store
from tests.worlds.store.statements import past_the_store
from tests.worlds.store.values import JOB, NOW, progress

NAME = "silver_orders"
NEVER_S = 1e9


class Counted:
    """What is read, how often."""

    def __init__(self, store: ControlStore, read: Callable[[], object], *topics: NoticeTopic, **more: object) -> None:
        self.reads, self._read = 0, read
        self.kept = KeptAnswer(store.notices, self, *topics, **{"every_s": NEVER_S, **more})  # type: ignore[arg-type]

    def __call__(self) -> object:
        self.reads += 1
        return self._read()


@pytest.fixture
def told(store: ControlStore, store_url: str) -> ControlStore:
    """A store that is told what others change: PostgreSQL does, SQLite tells nobody."""
    if store_url.startswith("sqlite"):
        pytest.skip("SQLite tells nobody")
    wait_until(lambda: store.notices.heard() is not None, "it listens")
    return store


def test_sqlite_is_asked_each_time(tmp_path: Path) -> None:
    store = stream_store.open_store(tmp_path)
    desired = Counted(store, store.desired, NoticeTopic.DESIRED)
    for _ in range(3):
        desired.kept()
    assert desired.reads == 3
    store.close()


@pytest.mark.parametrize(
    ("topic", "change"),
    [
        (NoticeTopic.LEASES, lambda other: other.acquire(stream_resource("x"), "b", ttl_s=60)),
        (NoticeTopic.HOSTS, lambda other: other.beat(HostHeartbeat("a", "box", 1, NOW, NOW, streams=("x",)))),
        (NoticeTopic.JOBS, lambda other: other.jobs.submit(JOB, now=NOW)),
        (NoticeTopic.STREAMS, lambda other: other.add_progress([progress(1)])),
    ],
)
def test_what_another_process_changes_is_read_once_more(
    told: ControlStore, store_url: str, topic: NoticeTopic, change: Callable[[ControlStore], object]
) -> None:
    other = ControlStore(store_url)
    ours, rest = Counted(told, object, topic), Counted(told, object, NoticeTopic.DESIRED)
    first = ours.kept(), rest.kept()
    assert (ours.kept(), rest.kept()) == first
    change(other)
    wait_until(lambda: ours.kept() is not first[0], "it is told")
    for _ in range(5):
        ours.kept(), rest.kept()
    assert (ours.reads, rest.reads) == (2, 1), "and of nothing else"
    other.close()


def test_a_sign_of_life_alone_is_no_notice(told: ControlStore) -> None:
    beat = HostHeartbeat("a", "box", 1, NOW, NOW, streams=("x",))
    before = told.notices.heard(NoticeTopic.HOSTS)
    told.beat(beat)
    wait_until(lambda: told.notices.heard(NoticeTopic.HOSTS) == before + 2, "here, and from the store")  # type: ignore[operator]
    before = told.notices.heard(NoticeTopic.HOSTS)
    told.beat(beat)
    assert told.notices.heard(NoticeTopic.HOSTS) == before


def test_what_this_process_changed_is_read_at_once(told: ControlStore) -> None:
    """Else a host would take back what it has just given."""
    leases = Counted(told, told.leases, NoticeTopic.LEASES)
    assert leases.kept() == {}
    lease = told.acquire("stream/x", "a", ttl_s=60)
    assert leases.kept() == {"stream/x": lease}
    told.release(lease)
    assert leases.kept() == {}


def test_what_nobody_told_is_seen_by_its_sign(told: ControlStore, store_url: str) -> None:
    """A lease that ran out tells nobody, nor does what a former Weir writes."""
    passed = [0.0]
    leases = Counted(
        told, told.leases, NoticeTopic.LEASES, every_s=5.0, sign=told.lease_sign, elapsed=lambda: passed[0]
    )
    told.ensure_desired(NAME, DesiredState.RUNNING, now=NOW)
    desired = Counted(
        told, told.desired, NoticeTopic.DESIRED, every_s=5.0, sign=told.desired_sign, elapsed=lambda: passed[0]
    )
    before = told.notices.heard(NoticeTopic.LEASES)
    told.acquire("stream/x", "a", ttl_s=60)
    wait_until(lambda: told.notices.heard(NoticeTopic.LEASES) == before + 2, "here, and from the store")  # type: ignore[operator]
    held = leases.kept()
    desired.kept()
    assert list(held) == ["stream/x"]  # type: ignore[call-overload]
    for _ in range(4):
        passed[0] += 6.0
        assert leases.kept() is held
        desired.kept()
    assert (leases.reads, desired.reads) == (1, 1), "nothing has changed"
    with past_the_store(store_url) as connection:
        connection.execute(sa.text("UPDATE lease SET expires_at = now()"))
        connection.execute(sa.text("UPDATE desired SET generation = generation + 1"))
    assert leases.kept() is held
    passed[0] += 6.0
    assert leases.kept() == {}
    assert desired.kept()[NAME].generation == 2  # type: ignore[index]


def test_while_nobody_listens_everything_is_read_and_then_once_more(told: ControlStore, store_url: str) -> None:
    told.ensure_desired(NAME, DesiredState.RUNNING, now=NOW)
    desired = Counted(told, told.desired, NoticeTopic.DESIRED)
    desired.kept()
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_notify%' AND pid <> "
    with past_the_store(store_url) as connection:
        connection.execute(sa.text(f"{ended} pg_backend_pid() AND datname = current_database()"))
    wait_until(lambda: told.notices.heard() is None, "the line is cut")
    before = desired.reads
    desired.kept(), desired.kept()
    assert desired.reads == before + 2
    wait_until(lambda: told.notices.heard() is not None, "it listens again")
    before = desired.reads
    desired.kept(), desired.kept()
    assert desired.reads == before + 1
