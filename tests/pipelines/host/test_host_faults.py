"""A real host with streams of the demo, from its first start through faults to a lake that equals the ledger.

The tests of this module share one lakehouse and run in order, each from the state that the one before left: a JVM and
first batches cost more than all that is asked of them here.
"""

import json
import os
import random
import re
import signal
import subprocess
import urllib.request
from collections import Counter
from collections.abc import Iterator

import pytest
from deltalake import DeltaTable
from prometheus_client.parser import text_string_to_metric_families

from backend.access import Actor
from backend.jobs.model import JobState
from backend.lake.lake import Lake
from backend.maintenance.model import Repair, act_job
from backend.maintenance.plan import preview
from backend.maintenance.readers import load_users
from backend.stream_model.stream import StreamState
from tests.worlds.processes import free_port, kill_hard, let_pass
from tests.worlds.spark.host_process import FAST, World, check_events, drain, group_is_empty, now
from tests.worlds.spark.poisoned import SOUND

pytestmark = [pytest.mark.spark, pytest.mark.ci, pytest.mark.timeout(900)]
POISONED = ("poisoned_rows", "poisoned_start")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    address = f"127.0.0.1:{free_port()}"
    env = {**FAST, "WEIR_HOST__PIPELINES": '["tests.worlds.spark.poisoned"]', "WEIR_HOST__METRICS_ADDRESS": address}
    env["WEIR_AUTH__GRANTS"] = '[{"role": "operator", "group": "shop", "on": ["stream:bronze_*", "Bronze/*"]}]'
    opened = World(tmp_path_factory.mktemp("faults"), env, SOUND)
    opened.spawn("pipelines.demo.generator")
    opened.host()
    try:
        yield opened
    finally:
        opened.close()


def host_of(world: World) -> "subprocess.Popen[bytes]":
    return world.processes[-1]


def ask(world: World, name: str, action: str) -> None:
    world.store.request(name, action, reason="test", actor=Actor("ann"), now=now())  # type: ignore[arg-type]


def test_poisoned_streams_end_failed_and_the_others_never_pause(world: World) -> None:
    world.until_state(StreamState.RUNNING)
    runs = world.runs(*SOUND)
    world.until_state(StreamState.FAILED, *POISONED)
    world.until_batch(1)
    assert world.runs(*SOUND) == runs

    seen = world.observed()
    rows, start = seen["poisoned_rows"].last_failure, seen["poisoned_start"].last_failure
    assert rows is not None
    assert start is not None
    assert (rows.error_class, rows.batch_id) == ("USER_RAISED_EXCEPTION", _planned_not_done(world, "poisoned_rows"))
    assert "this row is poison" in rows.message
    assert start.error_class == "ValueError"
    assert "no such colour" in start.message
    assert len(seen["poisoned_rows"].failures) == 3

    told = Counter((line["stream"], line["state"]) for line in world.log() if line["event"] == "stream_state")
    assert {name: told[name, "BACKOFF"] for name in POISONED} == dict.fromkeys(POISONED, 2)
    assert {name: told[name, "STARTING"] for name in SOUND} == dict.fromkeys(SOUND, 1), "nobody else was started again"


def _planned_not_done(world: World, name: str) -> int:
    """The batch that the checkpoint holds as begun and not as ended."""
    checkpoint = world.home / "checkpoints" / name
    begun, ended = ({int(path.name) for path in (checkpoint / part).glob("[0-9]*")} for part in ("offsets", "commits"))
    (batch,) = begun - ended
    return batch


def test_a_host_counts_what_the_store_holds(world: World) -> None:
    world.until(lambda: _held(world) == _counted(world) == _held(world), "the same batches, rows and milliseconds")
    assert _held(world)[1] > 0
    served = _served(world)
    assert served["weir_stream_failures_total", "poisoned_start"] == 3
    assert served["weir_stream_starts_total", "poisoned_start"] == 3
    assert served["weir_stream_starts_total", "bronze_events"] == 1
    assert served["weir_jvm_process_resident_memory_bytes", ""] > 100_000_000
    assert served["weir_host_store_up", ""] == 1


def _held(world: World) -> tuple[int, int, int]:
    found = world.store.progress("bronze_events", limit=5_000, raw=False)
    return len(found), sum(each.num_input_rows for each in found), sum(each.batch_duration_ms or 0 for each in found)


def _counted(world: World) -> tuple[int, int, int]:
    served, seconds = _served(world), "weir_stream_batch_duration_seconds"
    rows, took_s = served["weir_stream_input_rows_total", "bronze_events"], served[f"{seconds}_sum", "bronze_events"]
    return int(served[f"{seconds}_count", "bronze_events"]), int(rows), round(took_s * 1_000)


def _served(world: World) -> dict[tuple[str, str], float]:
    """By name and stream."""
    url = f"http://{world.env['WEIR_HOST__METRICS_ADDRESS']}/metrics"
    with urllib.request.urlopen(url, timeout=60) as answer:
        text = answer.read().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(each.name, each.labels.get("stream", "")): each.value for each in samples}


def test_a_drained_stream_reads_what_was_there_and_stops_alone_and_its_start_keeps_the_query(world: World) -> None:
    others = tuple(name for name in SOUND if name != "silver_events")
    before, runs = world.observed()["silver_events"], world.runs(*others)
    newest = DeltaTable(str(world.home / "lake" / "bronze" / "bronze_events")).version()
    ask(world, "silver_events", "drain")
    world.until_state(StreamState.STOPPED, "silver_events")
    offsets = world.home / "checkpoints" / "silver_events" / "offsets"
    last = max((path for path in offsets.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    assert json.loads(last.read_text().splitlines()[2])["reservoirVersion"] > newest, "all of it was read"
    world.until_moved(1, *others)
    assert world.states("silver_events") == {"silver_events": "STOPPED"}

    ask(world, "silver_events", "start")
    world.until_state(StreamState.RUNNING, "silver_events")
    after = world.observed()["silver_events"]
    assert after.query_id == before.query_id and after.run_id != before.run_id
    assert world.runs(*others) == runs


@pytest.mark.soak
def test_an_act_stops_the_stream_that_writes_the_table_and_starts_it_again(world: World) -> None:
    """Rows stay as they are, so that the lake equals the ledger afterwards."""
    world.until_batch(0)
    world.until_state(StreamState.RUNNING)
    lake, before = Lake(world.settings), world.observed()["silver_events"]
    ref = lake.find("silver/silver_events")
    asked = Repair("event_id IS NOT NULL", {"event_type": "event_type"}, stops_writers=True)
    users = load_users(world.settings, lake, world.store, ref, asked, now=now())
    planned = preview(world.settings, lake, ref, asked, users, now=now(), store=world.store)
    assert (planned.refused, users.running_writers) == ("", ("silver_events",))
    job = world.store.jobs.submit(act_job(planned.act, actor=Actor("ann"), reason="test"), now=now())

    world.until(lambda: world.job_now(job).state.is_over, "the act ends")
    assert world.job_now(job).state is JobState.DONE, world.job_now(job).error
    world.until_state(StreamState.RUNNING, "silver_events")
    world.until_moved(1, "silver_events")
    after = world.observed()["silver_events"]
    assert after.query_id == before.query_id and after.run_id != before.run_id
    told = [entry for entry in world.store.audit_entries(subject="silver_events") if job.job_id in entry.reason]
    assert [(entry.action, entry.actor) for entry in told] == [("start", "ann"), ("stop", "ann")]
    history = DeltaTable(ref.uri).history()
    assert [entry["operation"] for entry in history if job.job_id in entry.get("userMetadata", "")] == ["UPDATE"]


def test_a_second_host_refuses_until_the_first_is_killed_and_then_the_lake_equals_the_ledger(world: World) -> None:
    """Killed once and while it writes; the test of every sink kills more often."""
    first, owner = host_of(world), world.observed()["bronze_events"].host_id
    second = world.host()

    def refused() -> set[str]:
        return {line["stream"] for line in world.log() if line["event"] == "stream_refused"}

    world.until(lambda: refused() >= {*SOUND, *POISONED}, "the second host refuses all")
    assert "metrics_not_served" in {line["event"] for line in world.log()}, "the first one has the port"
    assert {seen.host_id for seen in world.observed().values()} == {owner}
    assert set(world.states().values()) == {"RUNNING"}

    ask(world, "silver_events", "stop")
    world.until_state(StreamState.STOPPED, "silver_events")
    let_pass(random.Random(11), 0, 3)
    killed_at = now()
    kill_hard(first)
    world.until(lambda: owner not in {seen.host_id for seen in world.observed().values()}, "the second host takes over")
    taken = [line for line in world.log() if line["event"] == "streams_owned"][-1]["timestamp"]
    assert taken > killed_at.isoformat()
    world.until_state(StreamState.RUNNING, "bronze_events")
    assert world.states("silver_events") == {"silver_events": "STOPPED"}, "what people stopped stays stopped"
    world.until(lambda: group_is_empty(first), "the dead host's JVM is gone")
    assert second.poll() is None
    assert world.states(*POISONED) == dict.fromkeys(POISONED, "FAILED"), (
        "a new host does not retry what waits for a person"
    )
    ask(world, "silver_events", "start")
    drain(world)
    check_events(world)


@pytest.mark.soak
def test_ctrl_c_stops_everything_and_leaves_the_wishes(world: World) -> None:
    host = host_of(world)
    is_own, log = re.compile(rf".*-{host.pid}-\w+"), world.home / "logs" / "host.log"
    world.until(
        lambda: log.exists() and any(e["event"] == "host_ready" and is_own.match(e["host_id"]) for e in world.log()),
        "it listens to signals",
    )
    world.until(
        lambda: any(e["event"] == "grant_names_nothing" and "'Bronze/*'" in e["problem"] for e in world.log()),
        "its log says which grant names no table",
    )
    assert not any("bronze_*'" in e.get("problem", "") for e in world.log())
    world.until_state(StreamState.RUNNING)
    wishes = world.store.desired()
    os.kill(host.pid, signal.SIGINT)
    assert host.wait(300) == 0
    world.until(lambda: group_is_empty(host), "no process is left")
    assert set(world.states().values()) == {"STOPPED"}
    assert world.store.desired() == wishes
    assert not [lease for lease in world.store.leases().values() if is_own.match(lease.owner)]
    world.until(lambda: world.store.leases() == {}, "those of hosts that were killed before have run out")
