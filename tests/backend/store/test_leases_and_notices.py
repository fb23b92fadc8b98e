"""What hosts share: leases by the store's clock, signs of life, and notices of each change."""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from backend.errors import StoreError, StreamRefusedError
from backend.store import leases
from backend.store.engine import Database
from backend.store.leases import StoreClock, stream_resource
from backend.store.notices import KeptAnswer, NoticeTopic
from backend.store.store import ControlStore
from backend.stream_model.stream import DesiredState, HostHeartbeat, Lease
from tests.worlds.processes import wait_until
from tests.worlds.store import stream_store
from tests.worlds.store.statements import past_the_store, statements
from tests.worlds.store.values import JOB, NOW, held, leased, observed, progress

RESOURCE = stream_resource("silver_orders")
A_MOMENT = timedelta(minutes=5)  # on any machine


def expired(store: ControlStore) -> Lease:
    return leased(store, RESOURCE, ttl_s=-0.001)


def test_a_second_owner_waits_until_the_lease_expires(store: ControlStore) -> None:
    first = leased(store, RESOURCE)
    assert store.acquire(RESOURCE, "host-b", ttl_s=15) is None
    assert store.leases() == {RESOURCE: first}
    former, first = first, held(store)
    assert first.token == former.token + 1, "who asks again has a newer one"
    shortened = store.renew(first, ttl_s=0.5)
    assert shortened is not None and shortened.token == first.token
    tries: list[Lease | None] = []
    wait_until(lambda: tries.append(store.acquire(RESOURCE, "host-b", ttl_s=15)) or tries[-1], "free")
    second = tries[-1]
    assert (second.owner, second.token) == ("host-b", first.token + 1)
    assert second.expires_at > shortened.expires_at + timedelta(seconds=14.9)
    assert store.leases() == {RESOURCE: second}


def test_the_end_of_a_lease_is_told_by_the_clock_of_the_store(store: ControlStore) -> None:
    before = store.now()
    lease = held(store)
    assert before <= lease.expires_at - timedelta(seconds=15) <= store.now()
    renewed = store.renew(lease, ttl_s=7_200)
    assert abs(renewed.expires_at - store.now() - timedelta(hours=2)) < A_MOMENT
    assert abs(store.now() - datetime.now(UTC)) < A_MOMENT, "one machine's here"


def test_a_clock_that_follows_the_store_does_not_follow_the_machine() -> None:
    told, passed = [datetime(2026, 3, 1, tzinfo=UTC)], [100.0]

    def look() -> datetime:
        passed[0] += 2.0  # the answer took that long: it was told half-way
        return told[0]

    clock = StoreClock(look, elapsed=lambda: passed[0])
    assert abs(clock() - datetime.now(UTC)) < A_MOMENT, "its machine's, before it looked"
    clock.look()
    assert clock() == told[0] + timedelta(seconds=1)
    passed[0] += 60.0
    assert clock() == told[0] + timedelta(seconds=61)


@pytest.mark.ci
def test_a_process_that_froze_amid_a_transaction_holds_up_no_other(store: ControlStore, store_url: str) -> None:
    if store_url.startswith("sqlite"):
        pytest.skip("a file's lock stays with its process")
    expired(store)
    frozen = Database(store_url)
    with pytest.raises(StoreError), frozen.writing() as connection:
        leases.is_current(connection, RESOURCE, 1)
        assert store.acquire(RESOURCE, "host-b", ttl_s=15) is not None, "after ten seconds"
        leases.is_current(connection, RESOURCE, 1)
    frozen.dispose()


def test_signs_of_life_are_told_by_the_readers_clock(store: ControlStore) -> None:
    at = store.now()
    store.beat(HostHeartbeat("a", "box", 1, at - timedelta(hours=1), at))
    ahead = timedelta(hours=1)
    (told,) = store.hosts()
    (here,) = store.hosts(now=datetime.now(UTC) + ahead)
    assert told.beat_at == at
    assert abs(here.beat_at - told.beat_at - ahead) < A_MOMENT
    assert here.beat_at - here.started_at == timedelta(hours=1)


def test_a_lost_lease_cannot_be_renewed_released_or_written_under(store: ControlStore) -> None:
    with pytest.raises(StreamRefusedError):
        store.observe(observed(), token=0)
    lost = expired(store)
    assert store.leases() == {}, "an expired one is nobody's"
    lost = store.renew(lost, ttl_s=-0.001)
    assert lost is not None, "its owner may renew it while nobody took it"
    taken = held(store, owner="host-b")
    assert store.renew(lost, ttl_s=15) is None
    store.release(lost)
    assert store.leases() == {RESOURCE: taken}
    with pytest.raises(StreamRefusedError, match="no longer current"):
        store.observe(observed(), token=lost.token)
    assert store.observed() == {}
    store.observe(observed(host_id="host-b"), token=taken.token)


def test_a_released_lease_is_free_at_once_and_its_token_goes_on(store: ControlStore) -> None:
    first = held(store)
    store.release(first)
    assert store.leases() == {}
    with pytest.raises(StreamRefusedError):
        store.observe(observed(), token=first.token)
    assert held(store, owner="host-b").token == first.token + 1


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "expired"])
def test_of_many_contenders_exactly_one_wins(store: ControlStore, is_new: bool) -> None:
    token = 0 if is_new else expired(store).token
    with ThreadPoolExecutor(8) as pool:
        owners = [f"host-{number}" for number in range(16)]
        granted = list(pool.map(lambda owner: store.acquire(RESOURCE, owner, ttl_s=15), owners))
    (lease,) = [lease for lease in granted if lease]
    assert lease.token == token + 1


def test_hosts_that_start_together_make_each_thing_once(store_url: str) -> None:
    """What is made has no lock of its own: the second to put it replaces the first, as on S3."""
    stores = [ControlStore(store_url) for _ in range(4)]
    tables: dict[str, int] = {}
    made, together = [], threading.Barrier(len(stores))

    def make(number: int) -> None:
        together.wait()
        for name in ("bronze", "silver", "gold"):
            with stores[number].alone(name):
                is_there = name in tables
                time.sleep(0.02)  # the others look, too
                if not is_there:
                    tables[name] = number
                    made.append(name)

    with ThreadPoolExecutor(len(stores)) as pool:
        list(pool.map(make, range(len(stores))))
    assert sorted(made) == ["bronze", "gold", "silver"]
    assert not stores[0].leases(), "given back"
    for opened in stores:
        opened.close()


def test_who_died_in_a_section_keeps_the_others_out_for_its_lease_and_who_failed_leaves_it(store: ControlStore) -> None:
    assert store.acquire("section/tables", "one that died", ttl_s=0.5)
    with store.alone("tables", ttl_s=0.3):
        before = store.leases()["section/tables"].expires_at
        wait_until(lambda: store.leases()["section/tables"].expires_at > before, "it is renewed while it lasts")
    with pytest.raises(ZeroDivisionError), store.alone("tables"):
        _ = 1 / 0
    assert not store.leases()


def test_leases_of_many_are_taken_and_renewed_at_once(store: ControlStore) -> None:
    names = [stream_resource(f"s{number:04}") for number in range(1_500)]
    others = store.acquire(names[7], "host-b", ttl_s=60)
    mine = store.acquire_all(names, "host-a", ttl_s=30)
    assert mine.keys() == set(names) - {names[7]}
    assert store.leases() == {**mine, names[7]: others}
    store.release(mine[names[3]])
    assert store.acquire(names[3], "host-b", ttl_s=60)
    renewed = store.renew_all(list(mine.values()), ttl_s=90)
    assert renewed.keys() == mine.keys() - {names[3]}, "it has a new owner"
    assert all(lease.token == mine[name].token for name, lease in renewed.items())
    assert all(lease.expires_at > mine[name].expires_at for name, lease in renewed.items())
    assert store.leases()[names[7]] == others
    assert store.acquire_all([], "host-a", ttl_s=30) == store.renew_all([], ttl_s=30) == {}


AGES_S = 1e9


def sizes(sent: list[tuple[str, int]]) -> list[int]:
    """Of what each statement carries."""
    return [size for statement, size in sent if not statement.startswith("BEGIN")]


def test_names_of_streams_are_written_and_read_where_they_changed(store: ControlStore, store_url: str) -> None:
    names = tuple(f"stream_{number:04}" for number in range(1_000))
    first = HostHeartbeat("a", "box", 1, NOW, NOW, streams=names, max_streams=20)
    for heartbeat in (first, replace(first, host_id="b"), replace(first, host_id="c", streams=())):
        store.beat(heartbeat)
    reader = ControlStore(store_url)
    with statements(reader) as sent:
        assert [host.streams for host in reader.live_hosts(within_s=AGES_S)] == [names, names, ()]
    assert len(sizes(sent)) == 2, "and then nobody asks for them"
    with statements(reader) as sent:
        for _ in range(5):
            store.beat(replace(first, beat_at=NOW + timedelta(seconds=1)))
            alive = reader.live_hosts(within_s=AGES_S)
    assert len(sizes(sent)) == 10 and max(sizes(sent)) < 1_000, "a sign of life is small"
    assert alive[0] == replace(first, beat_at=NOW + timedelta(seconds=1))
    store.beat(replace(first, streams=names[:2]))
    assert [len(host.streams) for host in reader.live_hosts(within_s=AGES_S)] == [2, 1_000, 0]
    assert [len(host.streams) for host in sorted(reader.hosts(), key=lambda host: host.host_id)] == [2, 1_000, 0]
    reader.close()


def test_a_host_of_the_former_weir_is_read_each_time(store: ControlStore, store_url: str) -> None:
    store.beat(HostHeartbeat("a", "box", 1, NOW, NOW, streams=("one",)))
    for streams in ('["one"]', '["one", "two"]'):
        with past_the_store(store_url) as connection:
            connection.execute(sa.text(f"UPDATE host SET streams_key = NULL, streams = '{streams}'"))
        assert list(store.hosts()[0].streams) == json.loads(streams)


def test_heartbeats_are_one_row_a_host_newest_first(store: ControlStore) -> None:
    beat = HostHeartbeat("a", "box", 1, NOW, NOW, "4.2.0", "http://127.0.0.1:4040")
    other = replace(beat, host_id="b", beat_at=NOW + timedelta(seconds=1))
    for heartbeat in (beat, other, replace(beat, beat_at=NOW + timedelta(seconds=2))):
        store.beat(heartbeat)
    assert [found.host_id for found in store.hosts()] == ["a", "b"]
    assert store.prune_hosts(before=NOW + timedelta(seconds=2)) == 1
    assert [found.host_id for found in store.hosts()] == ["a"]


# notices: told by PostgreSQL, asked each time on SQLite -------------------------------------------------------------

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
    told.ensure_all_desired([NAME], DesiredState.RUNNING, now=NOW)
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
    told.ensure_all_desired([NAME], DesiredState.RUNNING, now=NOW)
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
