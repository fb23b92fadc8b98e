"""A lease has one owner at a time, and a former owner's writes are refused."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from backend.errors import StreamRefusedError
from backend.store.leases import stream_resource
from backend.store.store import ControlStore
from tests.store.values import NOW, held, observed

RESOURCE = stream_resource("silver_orders")
LATER = NOW + timedelta(seconds=15)


def test_a_second_owner_waits_until_the_lease_expires(store: ControlStore) -> None:
    first = held(store)
    assert store.acquire(RESOURCE, "host-b", ttl_s=15, now=LATER - timedelta(milliseconds=1)) is None
    second = store.acquire(RESOURCE, "host-b", ttl_s=15, now=LATER)
    assert second is not None
    assert second.token > first.token
    assert store.leases()[RESOURCE] == second


def test_renewing_extends_and_keeps_the_token(store: ControlStore) -> None:
    lease = held(store)
    renewed = store.renew(lease, ttl_s=15, now=NOW + timedelta(seconds=10))
    assert renewed is not None
    assert (renewed.token, renewed.expires_at) == (lease.token, NOW + timedelta(seconds=25))
    assert store.acquire(RESOURCE, "host-b", ttl_s=15, now=LATER) is None


def test_a_late_renewal_works_while_nobody_took_the_lease(store: ControlStore) -> None:
    assert store.renew(held(store), ttl_s=15, now=NOW + timedelta(hours=1)) is not None


def test_a_lost_lease_cannot_be_renewed_released_or_written_under(store: ControlStore) -> None:
    lost = held(store)
    taken = store.acquire(RESOURCE, "host-b", ttl_s=15, now=LATER)
    assert taken is not None
    assert store.renew(lost, ttl_s=15, now=LATER) is None
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


def test_an_observation_without_any_lease_is_refused(store: ControlStore) -> None:
    with pytest.raises(StreamRefusedError):
        store.observe(observed(), token=0)


def test_of_many_contenders_exactly_one_wins(store: ControlStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        owners = [f"host-{number}" for number in range(16)]
        granted = list(pool.map(lambda owner: store.acquire(RESOURCE, owner, ttl_s=15, now=NOW), owners))
    assert len([lease for lease in granted if lease]) == 1
