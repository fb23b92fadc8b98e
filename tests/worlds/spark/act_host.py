"""A host that acts on tables and on stopped streams: a real store, its real jobs, the test run's Spark.

Rule: a job is killed at a phase that it tells of: `Killed` passes through every boundary, and nothing is noted.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backend.access import Actor
from backend.errors import StreamRefusedError
from backend.jobs.model import Job, JobKind, JobState
from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.maintenance.model import ActPreview, ActResult, Arguments, TableAct, act_job
from backend.maintenance.plan import load_preview
from backend.settings import load_settings
from backend.store.leases import stream_resource
from backend.store.store import ControlStore
from backend.stream_model.stream import Observed, StreamState
from pipelines.declare.pipeline import declarations
from pipelines.host.job_host import JobHost
from pipelines.jobs.runner import SparkJobs
from pipelines.specs.streams import Registry, StreamSpec
from tests.worlds.processes import wait_until
from tests.worlds.spark.lakes import DemoLake, open_lake

METADATA = "spark.databricks.delta.commitInfo.userMetadata"


class Killed(BaseException):
    """The host is gone."""


class Phases:
    """Hears what a job is about to do; the host dies at the first phase that begins so."""

    def __init__(self, dies_at: str = "") -> None:
        self.dies_at, self.heard = dies_at, list[str]()

    def tell(self, phase: str) -> None:
        self.heard.append(phase)
        if self.dies_at and phase.startswith(self.dies_at):
            raise Killed(phase)

    changes = tell


class ActHost:
    """Streams that are stopped, their store, and the jobs of their host."""

    lake: DemoLake

    def __init__(self, spark: SparkSession, home: Path, *streams: StreamSpec, **settings: object) -> None:
        self.spark, self.settings = spark, load_settings(home=home, **settings)
        (home / "store").mkdir(parents=True, exist_ok=True)
        self.store = ControlStore.open(self.settings)
        self.declare(*streams)

    def declare(self, *streams: StreamSpec) -> None:
        """These are what the host runs from now on."""
        self.serve(*streams)
        if streams:
            self.lake = open_lake(self.settings, *streams)
        self.store.declare(declarations(self.registry, self.settings), now=datetime.now(UTC))
        for stream in streams:
            self.see(stream.name, StreamState.STOPPED)

    def serve(self, *streams: StreamSpec) -> None:
        """Its jobs know these streams; nothing is said of them to others."""
        self.streams, self.registry = streams, Registry(streams)
        self.runner = SparkJobs(self.settings, lambda: self.spark, "host-a", self.store, self.registry)

    def see(self, name: str, state: StreamState) -> None:
        lease = self.store.acquire(stream_resource(name), "host", ttl_s=600)
        assert lease is not None
        self.store.observe(Observed(name, state, "host", 1, datetime.now(UTC)), token=lease.token)
        self.store.release(lease)

    def reader(self) -> Lake:
        """One that has seen nothing before."""
        return Lake(self.settings)

    def version(self, name: str) -> int:
        lake = self.reader()
        return lake.latest_version(lake.find(name))

    def planned(self, name: str, arguments: Arguments) -> ActPreview:
        return load_preview(self.settings, self.reader(), self.store, name, arguments, now=datetime.now(UTC))

    def submit(self, act: TableAct) -> Job:
        wanted = act_job(act, actor=Actor("ana"), reason="to put it right")
        return self.store.jobs.submit(wanted, now=datetime.now(UTC))

    def job_now(self, job: Job) -> Job:
        return self.store.jobs.get(job.job_id) or job

    def ended(self, job: Job) -> Job:
        """Once a host has run it."""
        host = JobHost(self.settings, self.store, self.runner, "host-a")

        def is_over() -> bool:
            host.step()
            return self.job_now(job).state.is_over

        wait_until(is_over, f"the {job.kind} has ended")
        return self.job_now(job)

    def run(self, job: Job) -> ActResult:
        """By a host; raises what it wrote down of a failure."""
        ended = self.ended(job)
        if ended.state is JobState.FAILED:
            raise StreamRefusedError(ended.error, hint=ended.hint)
        return ActResult.of(ended)

    @contextmanager
    def dying_at(self, phase: str) -> Iterator[Phases]:
        """The host dies before its job begins that phase; asserts that it did."""
        phases = Phases(phase)
        self.runner.listen = phases.tell
        try:
            yield phases
        except Killed:
            pass
        else:
            raise AssertionError(f"no job came to {phase!r}, but to {phases.heard}")
        finally:
            self.runner.listen = lambda _: None


def running_job(kind: JobKind, subject: str, request: str, job_id: str, reason: str = "to put it right") -> Job:
    """As a host has it that has just begun it."""
    now = datetime.now(UTC)
    return Job(job_id, kind, subject, job_id, request, "ana", reason, 600, JobState.RUNNING, now, attempts=1)


class ActTable(ActHost):
    """One table with an awkward name, in an empty lake."""

    NAME = "sales/it's `odd` \\ 100 %"

    def __init__(self, spark: SparkSession, home: Path, **settings: object) -> None:
        super().__init__(spark, home, **settings)
        self.uri = str(home / "lake" / self.NAME)

    def write(self, *days: str, rows: int = 100, start: int = 0, **options: str) -> None:
        """A commit for each day, one file each."""
        for number, day in enumerate(days):
            batch = self.spark.range(start + number * rows, start + (number + 1) * rows).withColumn("day", F.lit(day))
            writer = batch.coalesce(1).write.format("delta").mode("append").partitionBy("day")
            writer.options(**options).save(self.uri)

    def sql(self, text: str, *, by: Job | None = None) -> None:
        """`by`: as this job commits it."""
        name = self.uri.replace("`", "``")
        if by is not None:
            self.spark.conf.set(METADATA, json.dumps({str(by.kind): by.job_id}))
        try:
            self.spark.sql(text.format(f"delta.`{name}`"))
        finally:
            self.spark.conf.unset(METADATA)

    @property
    def ref(self) -> TableRef:
        return self.reader().find(self.uri)

    @property
    def snapshot(self) -> Any:
        return self.reader().snapshot(self.ref)

    def operations(self) -> list[str | None]:
        """Newest first."""
        return [commit.operation for commit in self.reader().history(self.ref)]

    def rows(self, uri: str = "", version: int | None = None) -> list[tuple[Any, ...]]:
        reader = self.spark.read.format("delta")
        reader = reader if version is None else reader.option("versionAsOf", version)
        return sorted(map(tuple, reader.load(uri or self.uri).collect()), key=repr)

    def ids(self) -> list[int]:
        return sorted(row.id for row in self.spark.read.format("delta").load(self.uri).collect())

    def preview(self, arguments: Arguments) -> ActPreview:
        return self.planned(self.uri, arguments)

    def act(self, arguments: Arguments) -> ActResult:
        """As it is previewed now; every proof holds."""
        planned = self.preview(arguments)
        assert not planned.refused, planned.refused
        result = self.run(self.submit(planned.act))
        assert result.proofs and all(proof.holds for proof in result.proofs), result
        return result
