"""A Spark standalone cluster from the pyspark wheel: a master and workers of one core each, on ports of their own.

Rule: every daemon leads a process group of its own, its executors with it, so that no JVM outlives a test.
"""

import json
import os
import subprocess
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from tests.worlds.processes import free_port, wait_until
from tests.worlds.spark.host_process import kill_group

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
