"""Spark's own schedulers: the demo on a standalone cluster of two workers with tables on S3, and executors as pods.

The tests of the cluster share it, one S3 server and one lakehouse, and run in order.
Every daemon leads a process group of its own, its executors with it, so that no JVM outlives a test.
"""

import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyspark
import pytest

from backend.access import Actor
from backend.jobs.model import Job, JobRequest, JobState
from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.lake.storage.storage import declared_folder
from backend.maintenance.clone_and_drop import ASIDE, dropped_tables
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
from backend.streams.checkpoint import read_starts
from backend.streams.faults import Outcome
from backend.streams.preflight import preflight
from backend.streams.reset import ResetLevel, ResetRequest, reset_job, set_aside
from tests.test_deploy import EXECUTOR, example, host_environment
from tests.worlds.kustomize import one
from tests.worlds.lake.object_store import SECRET, list_keys, make_bucket, server_url, storage_options
from tests.worlds.processes import free_port, wait_until
from tests.worlds.spark.host_process import FAST, World, check_lake, drain, kill_group, now

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]

SPARK_HOME = Path(pyspark.__file__).parent
WORKERS = 2
_JVM = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=192m -XX:+UseSerialGC"
# Two workers and a driver share two cores: what a local master sets for small batches, and little heap.
SMALL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "1g",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": _JVM,
    "spark.executor.extraJavaOptions": _JVM,
    "spark.sql.streaming.noDataProgressEventInterval": "2s",
}


@dataclass
class SparkCluster:
    """`url` is what `WEIR_SPARK__MASTER` takes. Close it in any case."""

    folder: Path
    port: int = field(default_factory=free_port)
    page: int = field(default_factory=free_port)
    master: "subprocess.Popen[bytes] | None" = None
    workers: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start(self) -> "SparkCluster":
        at = ("--port", str(self.port), "--webui-port", str(self.page))
        self.master = self._daemon("master", "org.apache.spark.deploy.master.Master", *at)
        for number in range(WORKERS):
            name = f"worker-{number}"
            size = ("--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(self.folder / name))
            self.workers[name] = self._daemon(name, "org.apache.spark.deploy.worker.Worker", *size, self.url)
        wait_until(lambda: len(self.alive()) == WORKERS, self._describe, pause_s=0.2)
        return self

    def alive(self) -> set[str]:
        """Ids of the workers that the master counts on."""
        assert self.master is not None
        assert self.master.poll() is None, self._describe()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.page}/json/", timeout=5) as answer:
                return {each["id"] for each in json.load(answer)["workers"] if each["state"] == "ALIVE"}
        except OSError:
            return set()

    def kill_worker(self, name: str) -> None:
        """As when its machine dies: executors with it."""
        kill_group(self.workers.pop(name))

    def finished_tasks(self, name: str) -> int:
        """How many the worker's executors have logged as done."""
        logs = (self.folder / name).glob("app-*/*/stderr")
        return sum(log.read_text(errors="replace").count(": Finished task ") for log in logs)

    def close(self) -> None:
        for daemon in (*self.workers.values(), *((self.master,) if self.master else ())):
            kill_group(daemon)

    def _daemon(self, name: str, java_class: str, *arguments: str) -> "subprocess.Popen[bytes]":
        env = {
            **os.environ,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _JVM,
        }
        env |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_PUBLIC_DNS": "127.0.0.1"}
        command = [str(SPARK_HOME / "bin" / "spark-class"), java_class, "--host", "127.0.0.1", *arguments]
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd=self.folder, start_new_session=True)

    def _describe(self) -> str:
        said = [f"{path.name}: …{path.read_text()[-1500:]}" for path in sorted(self.folder.glob("*.log"))]
        return "\n".join(["the cluster is not up", *said])


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


_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
Object = dict[str, Any]


@dataclass
class KubernetesApi:
    """`image` is what the pods' image holds: a path in it, and where that lies here. Close it in any case."""

    folder: Path
    image: tuple[str, str]
    pods: dict[str, Object] = field(default_factory=dict)
    asked: set[tuple[str, str]] = field(default_factory=set)
    processes: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    def start(self) -> "KubernetesApi":
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"api": self}))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        return self

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        for process in self.processes:
            kill_group(process)

    def create(self, resource: str, made: Object) -> Object:
        made["metadata"].setdefault("uid", f"uid-{made['metadata']['name']}")
        if resource == "pods":
            made["status"] = {"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": []}
            self.pods[made["metadata"]["name"]] = made
            self._run(made)
        return made

    def _run(self, pod: Object) -> None:
        (container,) = pod["spec"]["containers"]
        env = {each["name"]: self._value(each, pod) for each in container.get("env", [])}
        there, here = self.image
        command = [word.replace(there, here) for word in (*container["command"], *container["args"])]
        with (self.folder / f"{pod['metadata']['name']}.log").open("ab") as log:
            self.processes.append(
                subprocess.Popen(command, env={**os.environ, **env}, stdout=log, stderr=log, start_new_session=True)
            )

    def _value(self, variable: Object, pod: Object) -> str:
        if "value" in variable or "valueFrom" not in variable:
            return str(variable.get("value") or "")
        path = variable["valueFrom"]["fieldRef"]["fieldPath"].split(".")
        found: Any = pod
        for name in path:
            found = found[name]
        return str(found)


class _Handler(BaseHTTPRequestHandler):
    api: KubernetesApi
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        _, _, rest = self._path()
        if "watch" in parse_qs(urlsplit(self.path).query):
            self._note("watch")
            self._answer({})  # an empty stream of events: Spark lists from time to time besides
        elif rest:
            self._note("get")
            self._answer(self.api.pods[rest])
        else:
            self._note("list")
            kind = {"pods": "PodList", "persistentvolumeclaims": "PersistentVolumeClaimList"}[self._path()[1]]
            self._answer({"apiVersion": "v1", "kind": kind, "metadata": {}, "items": self._listed()})

    def do_POST(self) -> None:
        self._note(_VERBS[self.command])
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        self._answer(self.api.create(self._path()[1], body))

    do_PUT = do_PATCH = do_POST

    def do_DELETE(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._note("delete" if self._path()[2] else "deletecollection")
        self._answer({"apiVersion": "v1", "kind": "Status", "status": "Success"})

    def _listed(self) -> list[Object]:
        """The pods that have the labels which are asked for; of anything else there is none."""
        (selector,) = parse_qs(urlsplit(self.path).query).get("labelSelector", [""])
        wanted = dict(each.split("=", 1) for each in selector.split(",") if "=" in each)
        pods = self.api.pods.values() if self._path()[1] == "pods" else ()
        return [pod for pod in pods if wanted.items() <= pod["metadata"].get("labels", {}).items()]

    def _path(self) -> tuple[str, str, str]:
        """Namespace, resource and name."""
        _, _, _, _, namespace, resource, *name = urlsplit(self.path).path.split("/")
        return namespace, resource, "/".join(name)

    def _note(self, verb: str) -> None:
        self.api.asked.add((verb, self._path()[1]))

    def _answer(self, body: Object) -> None:
        content = json.dumps(body).encode() if body else b""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None: ...


ROOT = Path(__file__).parents[2]
HOST = "weir-host-orders-0"
DRIVER = """
from backend.settings import load_settings
from pipelines.spark.session import open_session
spark = open_session(load_settings())
rows = spark.range(1_000, numPartitions=4)
print(rows.selectExpr("sum(id)").first()[0])
print(rows.rdd.map(lambda row: __import__("sys").executable).distinct().collect()[0])
spark.stop()
"""


@pytest.fixture
def api(tmp_path: Path) -> Iterator[KubernetesApi]:
    opened = KubernetesApi(tmp_path, ("/opt/weir/", f"{ROOT}/")).start()
    opened.pods[HOST] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": HOST, "namespace": "weir", "uid": "uid-0", "labels": {}},
        "spec": {"containers": []},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    try:
        yield opened
    finally:
        opened.close()


def test_executors_come_up_as_pods_and_the_driver_s_rights_suffice(api: KubernetesApi, tmp_path: Path) -> None:
    given = host_environment()
    conf = json.loads(given["WEIR_SPARK__CONF"].replace("/opt/weir/", f"{ROOT}/"))
    here = {"spark.driver.host": "127.0.0.1", "spark.driver.port": str(free_port()), "spark.blockManager.port": "0"}
    conf |= {**here, "spark.executor.memory": "512m", "spark.dynamicAllocation.maxExecutors": "2"}
    conf["spark.pyspark.python"] = sys.executable
    conf |= {key: value for key, value in SMALL.items() if key not in here and "memory" not in key}
    env = {"WEIR_HOME": str(tmp_path), "WEIR_SPARK__MASTER": f"k8s://{api.url}", "WEIR_SPARK__CONF": json.dumps(conf)}
    ran = subprocess.run(
        [sys.executable, "-c", DRIVER],
        env={**os.environ, **env, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=800,
        cwd=ROOT,
    )
    logs = "\n".join(path.read_text(errors="replace")[-2_000:] for path in tmp_path.rglob("*.log"))
    assert ran.returncode == 0, ran.stderr + logs
    assert ran.stdout.split() == ["499500", sys.executable]
    executors = [pod for name, pod in api.pods.items() if name != HOST]
    assert 1 <= len(executors) <= 2  # as many as the work asked for
    for pod in executors:
        assert EXECUTOR["metadata"]["labels"].items() <= pod["metadata"]["labels"].items()
        assert pod["spec"]["serviceAccountName"] == "weir-executor"
        assert pod["spec"]["securityContext"] == EXECUTOR["spec"]["securityContext"]
    allowed = {
        (verb, resource)
        for rule in one(example(), "Role", "weir-executors")["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert not list(ROOT.glob("*.jar")), "an executor may not write into the image's folder"
    assert ("create", "pods") in api.asked
    assert api.asked <= allowed
