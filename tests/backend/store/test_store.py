"""The control store keeps what it is given, on every database it supports."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa

from backend.access import Actor
from backend.errors import OverrideError, SettingsError, StoreError, StreamNotFoundError, StreamRefusedError
from backend.settings import load_settings
from backend.store.store import ControlStore
from backend.stream_model.stream import DesiredState, HostHeartbeat, StreamState
from tests.worlds.store.values import DECLARATION, NOW, held, observed, progress


@pytest.fixture
def declared(store: ControlStore) -> ControlStore:
    store.declare([DECLARATION], now=NOW)
    return store


def ask(store: ControlStore, action: str, *, reason: str = "because") -> int:
    return store.request("silver_orders", action, reason=reason, actor=Actor("ann"), now=NOW).generation  # type: ignore[arg-type]


def test_an_empty_store_answers_every_read_with_nothing(store: ControlStore) -> None:
    assert store.desired() == store.observed() == store.declarations() == {}
    assert store.progress("nobody") == store.hosts() == store.audit_entries() == []


def test_declaring_twice_keeps_the_later(declared: ControlStore) -> None:
    later = replace(DECLARATION, trigger_interval_ms=7_000)
    declared.declare([later], now=NOW)
    assert declared.declarations() == {"silver_orders": later}


def test_a_request_is_audited_and_grows_the_generation(declared: ControlStore) -> None:
    assert (ask(declared, "start"), ask(declared, "stop", reason=" upgrade "), ask(declared, "restart")) == (1, 2, 3)
    wanted = declared.desired()["silver_orders"]
    assert (wanted.state, wanted.actor, wanted.requested_at) == (DesiredState.RUNNING, "ann", NOW)
    assert [(entry.action, entry.reason) for entry in declared.audit_entries(subject="silver_orders")] == [
        ("restart", "because"),
        ("stop", "upgrade"),
        ("start", "because"),
    ]


def test_starting_what_flows_does_not_restart_it(declared: ControlStore) -> None:
    generation = ask(declared, "start")
    declared.observe(observed(generation=generation), token=held(declared).token)
    assert ask(declared, "start") == generation
    assert ask(declared, "restart") == generation + 1
    assert len(declared.audit_entries()) == 3


@pytest.mark.parametrize("state", [StreamState.FAILED, StreamState.BACKOFF, StreamState.STOPPED])
def test_starting_what_does_not_flow_is_a_new_generation(declared: ControlStore, state: StreamState) -> None:
    generation = ask(declared, "start")
    declared.observe(observed(generation=generation, state=state), token=held(declared).token)
    assert ask(declared, "start") == generation + 1


def test_a_request_without_a_reason_changes_nothing(declared: ControlStore) -> None:
    with pytest.raises(StreamRefusedError, match="reason"):
        ask(declared, "stop", reason="  ")
    assert declared.desired() == {}
    assert declared.audit_entries() == []


def test_an_unknown_stream_is_refused_and_the_nearest_named(declared: ControlStore) -> None:
    with pytest.raises(StreamNotFoundError) as refused:
        declared.request("silver_order", "stop", reason="x", actor=Actor("ann"), now=NOW)
    assert "silver_orders" in refused.value.hint
    assert declared.audit_entries() == []


def test_of_several_streams_all_are_asked_or_none(declared: ControlStore) -> None:
    with pytest.raises(StreamNotFoundError):
        declared.request_all(("silver_orders", "nobody"), "stop", reason="x", actor=Actor("ann"), now=NOW)
    assert (declared.desired(), declared.audit_entries()) == ({}, [])
    declared.declare([replace(DECLARATION, name="gold_orders")], now=NOW)
    asked = declared.request_all(("silver_orders", "gold_orders"), "stop", reason="x", actor=Actor("ann"), now=NOW)
    assert [each.name for each in asked] == ["silver_orders", "gold_orders"]
    assert sorted(entry.subject for entry in declared.audit_entries()) == ["gold_orders", "silver_orders"]


def test_the_default_never_overwrites_a_wish(declared: ControlStore) -> None:
    ask(declared, "stop")
    declared.ensure_desired("silver_orders", DesiredState.RUNNING, now=NOW)
    declared.ensure_desired("other", DesiredState.RUNNING, now=NOW)
    states = {name: wanted.state for name, wanted in declared.desired().items()}
    assert states == {"other": DesiredState.RUNNING, "silver_orders": DesiredState.STOPPED}


def test_an_observation_round_trips(store: ControlStore) -> None:
    seen = observed(next_start_at=NOW)
    store.observe(seen, token=held(store).token)
    assert store.observed() == {"silver_orders": seen}


def test_touch_moves_forward_only_and_survives_an_observation(store: ControlStore) -> None:
    token = held(store).token
    store.observe(observed(), token=token)
    store.touch("silver_orders", at=NOW)
    store.touch("silver_orders", at=NOW - timedelta(seconds=9))
    store.observe(observed(state=StreamState.STOPPING), token=token)
    seen = store.observed()["silver_orders"]
    assert (seen.state, seen.last_trigger_at) == (StreamState.STOPPING, NOW)


def test_progress_round_trips_oldest_first_and_limited_to_the_newest(store: ControlStore) -> None:
    batches = [progress(number) for number in range(5)]
    store.add_progress(batches)
    assert store.progress("silver_orders") == batches
    assert store.progress("silver_orders", limit=2) == batches[3:]
    assert store.progress("silver_orders", raw=False) == [replace(batch, raw_json="") for batch in batches]
    assert store.progress("silver_orders", since=batches[2].progressed_at) == batches[2:]


def test_runs_are_the_newest_first_with_all_their_batches(store: ControlStore) -> None:
    first, second = [progress(i) for i in range(3)], [replace(progress(i), run_id="later") for i in range(3, 900)]
    store.add_progress([*first, *second, progress(0, stream="other")])
    (later, earlier) = store.runs("silver_orders")
    assert (later.run_id, later.query_id, later.first_batch, later.last_batch) == ("later", "q", 3, 899)
    assert (later.first_at, later.last_at) == (second[0].progressed_at, second[-1].progressed_at)
    assert (later.input_rows, earlier.input_rows) == (10 * len(second), 10 * len(first))
    assert store.runs("silver_orders", limit=1) == [later]
    assert store.runs("nobody") == []


def test_the_same_progress_twice_is_kept_once(store: ControlStore) -> None:
    store.add_progress([progress(1)])
    store.add_progress([progress(1), progress(2)])
    assert [item.batch_id for item in store.progress("silver_orders")] == [1, 2]


def test_retention_takes_what_is_added_up(store: ControlStore) -> None:
    store.add_progress([progress(number, stream=name) for name in ("a", "b", "c") for number in range(4)])
    assert store.prune_progress(before=progress(3).progressed_at, keep=100) == 0, "none is added up yet"
    assert store.roll_up(store.not_rolled_up()) == 12
    assert store.prune_progress(before=progress(3).progressed_at, keep=100) == 9
    assert [item.batch_id for item in store.progress("a")] == [3]


def test_names_of_streams_are_written_and_read_where_they_changed(store: ControlStore, store_url: str) -> None:
    names = tuple(f"stream_{number:04}" for number in range(1_000))
    first = HostHeartbeat("a", "box", 1, NOW, NOW, streams=names, max_streams=20)
    for heartbeat in (first, replace(first, host_id="b"), replace(first, host_id="c", streams=())):
        store.beat(heartbeat)
    reader = ControlStore(store_url)
    with bytes_sent(store) as sent, bytes_sent(reader) as read:
        assert [host.streams for host in reader.live_hosts(within_s=AGES_S)] == [names, names, ()]
        assert len(read) == 2, "and then nobody asks for them"
        for _ in range(5):
            store.beat(replace(first, beat_at=NOW + timedelta(seconds=1)))
            alive = reader.live_hosts(within_s=AGES_S)
        assert (len(read), len(sent)) == (7, 5)
        assert max(sent) < 1_000, "a sign of life is small"
    assert alive[0] == replace(first, beat_at=NOW + timedelta(seconds=1))
    store.beat(replace(first, streams=names[:2]))
    assert [len(host.streams) for host in reader.live_hosts(within_s=AGES_S)] == [2, 1_000, 0]
    assert [len(host.streams) for host in sorted(reader.hosts(), key=lambda host: host.host_id)] == [2, 1_000, 0]
    reader.close()


def test_what_another_host_has_declared_alike_is_not_written_again(store: ControlStore) -> None:
    """Hosts that start together wait for each other there."""
    streams = [replace(DECLARATION, name=f"s{number}", sink_table=f"s{number}") for number in range(100)]
    store.declare(streams, now=NOW)
    with bytes_sent(store) as sent:
        store.declare([*streams[1:], replace(streams[0], description="another")], now=NOW)
    assert len(sent) < 6
    assert store.declarations()["s0"].description == "another"


def test_a_host_of_the_former_weir_is_read_each_time(store: ControlStore, store_url: str) -> None:
    store.beat(HostHeartbeat("a", "box", 1, NOW, NOW, streams=("one",)))
    engine = sa.create_engine(store_url)
    for streams in ('["one"]', '["one", "two"]'):
        with engine.begin() as connection:
            connection.execute(sa.text(f"UPDATE host SET streams_key = NULL, streams = '{streams}'"))
        assert list(store.hosts()[0].streams) == json.loads(streams)
    engine.dispose()


AGES_S = 1e9


@contextmanager
def bytes_sent(store: ControlStore) -> Iterator[list[int]]:
    """Of each statement's parameters."""
    sent: list[int] = []

    def note(connection: object, cursor: object, statement: str, parameters: object, *more: object) -> None:
        if statement not in ("BEGIN", "BEGIN IMMEDIATE"):
            sent.append(len(str(parameters)))

    engine = store._database._engine
    sa.event.listen(engine, "before_cursor_execute", note)
    yield sent
    sa.event.remove(engine, "before_cursor_execute", note)


def test_heartbeats_are_one_row_a_host_newest_first(store: ControlStore) -> None:
    beat = HostHeartbeat("a", "box", 1, NOW, NOW, "4.2.0", "http://127.0.0.1:4040")
    other = replace(beat, host_id="b", beat_at=NOW + timedelta(seconds=1))
    for heartbeat in (beat, other, replace(beat, beat_at=NOW + timedelta(seconds=2))):
        store.beat(heartbeat)
    assert [found.host_id for found in store.hosts()] == ["a", "b"]
    assert store.prune_hosts(before=NOW + timedelta(seconds=2)) == 1
    assert [found.host_id for found in store.hosts()] == ["a"]


def test_the_audit_trail_is_newest_first_and_limited(declared: ControlStore) -> None:
    names = ["silver_orders", "other"]
    declared.declare([replace(DECLARATION, name="other")], now=NOW)
    for n, name in enumerate((*names, *names)):
        declared.request(name, "stop", reason=f"why {n}", actor=Actor("ann"), now=NOW + timedelta(seconds=n))
    assert [entry.reason for entry in declared.audit_entries(limit=2)] == ["why 3", "why 2"]
    assert [entry.reason for entry in declared.audit_entries(subject="other")] == ["why 3", "why 1"]


def test_naive_times_are_refused(store: ControlStore) -> None:
    with pytest.raises(StoreError, match="aware"):
        store.ensure_desired("x", DesiredState.RUNNING, now=NOW.replace(tzinfo=None))


def test_the_store_of_the_settings_is_made_under_home(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("WEIR_HOME", str(tmp_path / "home"))
    ControlStore.open(load_settings()).close()
    assert (tmp_path / "home" / "store" / "weir.db").is_file()


@pytest.mark.parametrize("url", ["sqlite://", "mysql://x/y", "not a url"])
def test_urls_that_cannot_work_are_settings_errors(url: str) -> None:
    with pytest.raises(SettingsError, match=r"store\.url"):
        ControlStore(url)


def test_an_unreachable_database_is_a_store_error_without_its_password() -> None:
    with pytest.raises(StoreError) as unreachable:
        ControlStore("postgresql://weir:s3cret@127.0.0.1:1/weir")
    assert "s3cret" not in unreachable.value.message
    assert "127.0.0.1" in unreachable.value.message


def test_overrides_stay_until_others_are_asked_for(declared: ControlStore) -> None:
    def asked(action: str, overrides: dict[str, str] | None = None) -> dict[str, str]:
        given = {} if overrides is None else {"silver_orders": overrides}
        names = ("silver_orders",)
        declared.request_all(names, action, reason="slow", actor=Actor("ann"), now=NOW, overrides=given)  # type: ignore[arg-type]
        return dict(declared.desired()["silver_orders"].overrides)

    slower = {"trigger": "30 seconds"}
    assert asked("start") == {}
    assert asked("restart", slower) == asked("stop") == asked("start") == slower
    declared.observe(observed(generation=3), token=held(declared).token)
    assert asked("restart", {}) == {}
    said = [entry.detail for entry in reversed(declared.audit_entries())]
    assert said[1].endswith("generation 2; trigger: 5 seconds → 30 seconds")
    assert said[4].endswith("generation 5; trigger: 30 seconds → 5 seconds")
    assert "trigger" not in said[0] + said[2] + said[3]


def test_starting_what_flows_with_other_settings_restarts_it(declared: ControlStore) -> None:
    generation = ask(declared, "start")
    declared.observe(observed(generation=generation), token=held(declared).token)
    other = {"silver_orders": {"trigger": "1 minute"}}
    (wanted,) = declared.request_all(
        ("silver_orders",), "start", reason="r", actor=Actor("a"), now=NOW, overrides=other
    )
    assert wanted.generation == generation + 1


def test_an_override_that_cannot_be_changes_nothing(declared: ControlStore) -> None:
    wrong = {"silver_orders": {"trigger": "now and then"}}
    with pytest.raises(OverrideError, match="not understood"):
        declared.request_all(("silver_orders",), "start", reason="r", actor=Actor("a"), now=NOW, overrides=wrong)
    assert declared.desired() == {} and declared.audit_entries() == []
