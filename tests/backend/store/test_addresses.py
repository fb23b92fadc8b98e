"""One lake for all hosts: a stream's checkpoint and table lie where the store says, and no host says otherwise."""

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.access import Actor
from backend.errors import StreamRefusedError
from backend.store.store import ControlStore
from backend.stream_model.stream import DesiredState
from tests.worlds.store.values import DECLARATION, NOW, held

HOME = "/var/lib/other"
ELSEWHERE = replace(
    DECLARATION, checkpoint_location=f"{HOME}/checkpoints/silver_orders", sink_uri=f"{HOME}/lake/silver/orders"
)


@pytest.fixture
def declared(store: ControlStore) -> ControlStore:
    store.declare([DECLARATION], now=NOW)
    store.ensure_desired("silver_orders", DesiredState.RUNNING, now=NOW)
    return store


def stop(store: ControlStore) -> None:
    store.request("silver_orders", "stop", reason="it moves", actor=Actor("ann"), now=NOW)


def test_a_host_with_a_home_of_its_own_is_refused_and_told_both_addresses(declared: ControlStore) -> None:
    bronze = replace(DECLARATION, name="bronze", checkpoint_location="/checkpoints/bronze")
    declared.declare([bronze], now=NOW)
    with pytest.raises(StreamRefusedError) as refused:
        declared.declare([ELSEWHERE, replace(bronze, checkpoint_location=f"{HOME}/checkpoints/bronze")], now=NOW)
    assert refused.value.message == (
        "this host would write a second lake. silver_orders (and 1 more): its checkpoint is "
        "/var/lib/other/checkpoints/silver_orders here and /checkpoints/silver_orders in the store, its table is "
        "/var/lib/other/lake/silver/orders here and /lake/silver/orders in the store"
    )
    assert "WEIR_HOST__CHECKPOINTS_URI=/checkpoints and WEIR_LAKE__TABLES_URI=/lake" in refused.value.hint
    assert declared.declarations()["silver_orders"] == DECLARATION, "the last one does not win"


def test_one_address_is_enough_and_only_its_setting_is_named(declared: ControlStore) -> None:
    with pytest.raises(StreamRefusedError) as refused:
        declared.declare([replace(DECLARATION, sink_uri="s3://other/silver/orders")], now=NOW)
    assert "CHECKPOINTS_URI" not in refused.value.hint
    assert "WEIR_LAKE__TABLES_URI=/lake" in refused.value.hint


@pytest.mark.parametrize(
    "same", [{"checkpoint_location": "file:///checkpoints/silver_orders"}, {"sink_uri": "", "sink_table": ""}]
)
def test_another_spelling_and_no_table_at_all_are_no_other_lake(declared: ControlStore, same: dict[str, str]) -> None:
    declared.declare([replace(DECLARATION, **same)], now=NOW)  # type: ignore[arg-type]


def test_what_a_person_stopped_may_be_moved_once_no_host_has_it(declared: ControlStore) -> None:
    lease = held(declared)
    stop(declared)
    with pytest.raises(StreamRefusedError):
        declared.declare([ELSEWHERE], now=NOW)
    declared.release(lease)
    declared.declare([ELSEWHERE], now=NOW + timedelta(seconds=1))
    assert declared.declarations()["silver_orders"] == ELSEWHERE


def test_what_nobody_stopped_is_not_moved_though_no_host_is_there(declared: ControlStore) -> None:
    with pytest.raises(StreamRefusedError):
        declared.declare([ELSEWHERE], now=NOW)
