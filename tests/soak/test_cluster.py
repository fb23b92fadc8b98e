"""The demo on a Spark standalone cluster of two workers, with tables and checkpoints on S3: its streams unchanged.

The tests of this module share one cluster, one S3 server and one lakehouse, and run in order.
"""

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest

from backend.access import Actor
from backend.jobs.model import Job, JobRequest, JobState
from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.lake.storage.storage import declared_folder
from backend.maintenance.drop import ASIDE, dropped_tables
from backend.maintenance.model import (
    ActResult,
    Alter,
    Arguments,
    Drop,
    Optimize,
    Restore,
    Rewind,
    Undrop,
    Vacuum,
    act_job,
)
from backend.maintenance.plan import load_preview
from backend.stream_model.stream import StreamState
from backend.streams.preflight.model import Outcome
from backend.streams.preflight.reading import preflight
from backend.streams.reset.plan import ResetLevel, ResetRequest, reset_job
from backend.streams.reset.preview import set_aside
from backend.streams.reset.starts import read_starts
from tests.worlds.lake.object_store import SECRET, list_keys, make_bucket, server_url, storage_options
from tests.worlds.spark.cluster import SMALL, SparkCluster
from tests.worlds.spark.demo_lake import check_lake, drain
from tests.worlds.spark.host_process import FAST, World, now

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]
BUCKET = "cluster-demo"
EVENTS = "bronze/bronze_events"
ORDERS = "silver/silver_orders"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    opened = SparkCluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield opened.start()
    finally:
        opened.close()


@pytest.fixture(scope="module")
def world(cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    make_bucket(BUCKET)
    env = {
        **FAST,
        "WEIR_DEMO__PACE": "2",
        "WEIR_SPARK__MASTER": cluster.url,
        "WEIR_SPARK__CONF": json.dumps(SMALL),
        "WEIR_LAKE__TABLES_URI": f"s3://{BUCKET}/lake",
        "WEIR_LAKE__STORAGE_OPTIONS": json.dumps({f"s3://{BUCKET}": storage_options(server_url())}),
        "WEIR_HOST__CHECKPOINTS_URI": f"s3://{BUCKET}/checkpoints",
    }
    opened = World(tmp_path_factory.mktemp("demo"), env)
    try:
        opened.spawn("pipelines.demo.generator")
        opened.host()
        yield opened
    finally:
        opened.close()


def test_executors_of_both_workers_run_the_six_streams(world: World, cluster: SparkCluster) -> None:
    world.until_batch(0)
    assert all(cluster.finished_tasks(worker) > 20 for worker in cluster.workers)
    assert not any(seen.failures for seen in world.observed().values())
    assert not (world.home / "lake").exists()
    assert not (world.home / "checkpoints").exists()
    assert {key.split("/")[1] for key in list_keys(BUCKET, "checkpoints/")} == set(world.streams)


def test_a_worker_is_killed_and_the_lake_equals_the_ledger(world: World, cluster: SparkCluster) -> None:
    runs = world.runs(*world.streams)
    cluster.kill_worker("worker-0")
    (left,) = cluster.workers
    before = cluster.finished_tasks(left)
    world.until_moved(1, "silver_events", "silver_orders")
    assert len(cluster.alive()) == 1
    assert cluster.finished_tasks(left) > before
    assert world.runs(*world.streams) == runs, "Spark tries a lost task again: no query ended"
    drain(world)
    check_lake(world)


def test_pages_find_checkpoints_and_sinks_there(world: World) -> None:
    lake = Lake(world.settings)
    for name in world.streams:
        found = preflight(world.settings, lake, world.store, name, now=now())
        odd = [check for check in found.checks if check.outcome is not Outcome.OK]
        assert [(check.name, check.outcome) for check in odd] == [("room for state", Outcome.UNKNOWN)], (name, odd)
        (sink,) = [check for check in found.checks if check.name == "sink"]
        assert "Its last batch of this query is" in sink.detail


def test_a_reset_moves_a_checkpoint_there_and_undo_brings_it_back(world: World) -> None:
    name, place = "silver_events", f"s3://{BUCKET}/checkpoints/silver_events"
    world.store.request(name, "stop", reason="test", actor=Actor("ann"), now=now())
    world.until_state(StreamState.STOPPED, name)
    before = _files(f"checkpoints/{name}/")
    starts = {f"s3://{BUCKET}/lake/bronze/bronze_events": {"startingVersion": "2"}}

    moved = _reset(world, ResetRequest(name, ResetLevel.FROM, starts))
    assert set_aside(world.settings, name) == [moved]
    assert _files(f"checkpoints/.set_aside/{name}/{moved}/checkpoint/") == before
    assert read_starts(declared_folder(world.settings, place)) == starts

    _reset(world, ResetRequest(name, ResetLevel.UNDO))
    assert _files(f"checkpoints/{name}/") == before
    assert moved not in set_aside(world.settings, name)
    world.store.request(name, "start", reason="test", actor=Actor("ann"), now=now())
    world.until_state(StreamState.RUNNING, name)
    world.until_drained(now() + timedelta(seconds=1))
    check_lake(world)


def test_a_stream_is_rewound_there_and_runs_its_batches_again(world: World) -> None:
    """After the two batches at least that the tests before have seen."""
    name, place = "silver_orders", "checkpoints/silver_orders/"
    world.store.request(name, "stop", reason="test", actor=Actor("ann"), now=now())
    world.until_state(StreamState.STOPPED, name)
    before, latest = _files(place), Lake(world.settings).latest_version(_ref(world, ORDERS))

    rewound = _act(world, Rewind(latest - 1), ORDERS)
    batch = rewound.figures["batch"]
    assert _files(f"checkpoints/.set_aside/{name}/{set_aside(world.settings, name)[-1]}/checkpoint/") == before
    gone = before - _files(place)
    numbers = [int(path.rpartition("/")[2]) for path in gone if path.startswith(("offsets", "commits"))]
    assert numbers and min(numbers) > batch
    world.store.request(name, "start", reason="test", actor=Actor("ann"), now=now())
    world.until_state(StreamState.RUNNING, name)
    world.until_drained(now() + timedelta(seconds=1))
    check_lake(world)


def test_acts_on_tables_run_there_as_they_were_previewed(world: World) -> None:
    """Last of those that look at the lake: a restore that takes rows away stops who reads the table."""
    world.store.request_all(world.streams, "stop", reason="test", actor=Actor("ann"), now=now())
    world.until_state(StreamState.STOPPED, *world.streams)
    before = sorted(world.rows(EVENTS)["raw"].to_pylist())
    snapshot = Lake(world.settings).snapshot(_ref(world, EVENTS))
    version, files = snapshot.version, snapshot.num_files

    merged = _act(world, Optimize())
    assert merged.figures["files_in"] == files > 1 and merged.figures["files_out"] == 1
    assert sorted(world.rows(EVENTS)["raw"].to_pylist()) == before
    restored = _act(world, Restore(version, keeps_properties=True))
    assert restored.figures["rows"] == len(before) and sorted(world.rows(EVENTS)["raw"].to_pylist()) == before
    _act(world, Alter({"delta.deletedFileRetentionDuration": "interval 0 seconds"}))
    vacuumed = _act(world, Vacuum())
    assert vacuumed.figures["files"] == 1, "the merged file alone: the restored version needs the others"
    assert sorted(world.rows(EVENTS)["raw"].to_pylist()) == before

    objects = _files(f"lake/{EVENTS}/")
    _act(world, Drop())
    (dropped,) = dropped_tables(world.settings)
    assert _files(f"lake/{EVENTS}/") == set() and _files(f"lake/{ASIDE}/{dropped.job_id}/table/") == objects
    _act(world, Undrop(EVENTS))
    assert _files(f"lake/{EVENTS}/") == objects and _files(f"lake/{ASIDE}/") == set()
    assert sorted(world.rows(EVENTS)["raw"].to_pylist()) == before


def _ref(world: World, name: str) -> TableRef:
    return Lake(world.settings).find(name)


def _act(world: World, arguments: Arguments, name: str = EVENTS) -> ActResult:
    planned = load_preview(world.settings, Lake(world.settings), world.store, name, arguments, now=now())
    result = ActResult.of(_done(world, act_job(planned.act, actor=Actor("ann"), reason="test")))
    assert all(proof.holds for proof in result.proofs), result
    return result


def _reset(world: World, request: ResetRequest) -> str:
    """The job's id, once the host has done it."""
    return _done(world, reset_job(request, actor=Actor("ann"), reason="test")).job_id


def _done(world: World, wanted: JobRequest) -> Job:
    job = world.store.jobs.submit(wanted, now=now())
    world.until(lambda: world.job_now(job).state.is_over, f"the {wanted.kind}")
    assert world.job_now(job).state is JobState.DONE, world.job_now(job).error
    return world.job_now(job)


def _files(prefix: str) -> set[str]:
    return {key.removeprefix(prefix) for key in list_keys(BUCKET, prefix) if not key.endswith("/")}


def test_the_secret_is_in_no_log(world: World) -> None:
    logs = [*(world.home / "logs").iterdir(), *(world.home / "out").iterdir()]
    assert any("host.log" in path.name for path in logs)
    assert not [path for path in logs if SECRET in path.read_text(errors="replace")]
