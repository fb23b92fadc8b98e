"""The manifests' settings, pod template and executor script with Spark's own Kubernetes scheduler."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_kubernetes import EXECUTOR, example, host_environment
from tests.worlds.kustomize import one
from tests.worlds.processes import free_port
from tests.worlds.spark.cluster import SMALL
from tests.worlds.spark.kubernetes_api import KubernetesApi

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[3]
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
