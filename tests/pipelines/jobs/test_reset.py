"""A reset stream, and the reset undone: its tables are what they were, and nothing is twice that should not be."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from backend.errors import StreamRefusedError
from backend.jobs.model import Job, JobKind, JobState
from backend.lake.lake import Lake
from backend.settings import load_settings
from backend.store.leases import stream_resource
from backend.store.store import ControlStore
from backend.stream_model.stream import DesiredState, Observed, StreamState
from backend.streams.backlog.reader import BacklogReader
from backend.streams.reset.plan import ResetLevel, ResetRequest
from backend.streams.reset.preview import load_preview, set_aside
from backend.streams.reset.starts import begun_at, parse_starts
from backend.streams.verdict import StreamStatus, Verdict
from backend.times import Clock
from pipelines import append, into, table, upsert
from pipelines.declare.registry import declarations
from pipelines.jobs.reset import Resets
from pipelines.specs.registry import Registry
from tests.worlds.spark.declared import pipeline_of
from tests.worlds.spark.lakes import DemoLake, open_lake

pytestmark = pytest.mark.spark

NAME = "silver_numbers"


class Shop:
    """A stream of a table, its store, and the acts of its host."""

    def __init__(self, spark: SparkSession, home: Path, **declared: object) -> None:
        self.spark, self.settings = spark, load_settings(home=home)
        self.source = str(home / "lake" / "bronze" / "numbers")
        self.add(0, 10)
        numbers = pipeline_of(table(self.source), name=NAME, trigger="available now", **declared)
        (home / "store").mkdir()
        self.store = ControlStore.open(self.settings)
        self.registry = Registry(numbers.streams)
        self.lake: DemoLake = open_lake(self.settings, *numbers.streams)
        self.store.declare(declarations(self.registry, self.settings), now=datetime.now(UTC))
        self.see(StreamState.STOPPED)
        self.resets = Resets(self.settings, self.store, self.registry)

    def add(self, first: int, last: int) -> None:
        self.spark.range(first, last).write.format("delta").mode("append").save(self.source)

    def see(self, state: StreamState) -> None:
        now = datetime.now(UTC)
        lease = self.store.acquire(stream_resource(NAME), "host", ttl_s=600)
        assert lease is not None
        self.store.observe(Observed(NAME, state, "host", 1, now), token=lease.token)
        self.store.release(lease)

    def ask(self, level: ResetLevel, job_id: str, *wheres: str) -> Job:
        (declared,) = declarations(self.registry, self.settings)
        self.starts = parse_starts(Lake(self.settings), declared, wheres, Clock()) if wheres else {}
        request = ResetRequest(NAME, level, self.starts).text()
        job = Job(
            job_id, JobKind.RESET, NAME, job_id, request, "ana", "a bad batch", 600, JobState.RUNNING,
            datetime.now(UTC),
        )  # fmt: skip
        self.resets.run(job, self.spark.newSession())
        return job

    def ids(self) -> list[int]:
        return sorted(row.id for row in self.lake.rows("silver/silver_numbers"))

    def again(self) -> int | None:
        """The rows of the preview."""
        (declared,) = declarations(self.registry, self.settings)
        reader = BacklogReader(self.settings, Lake(self.settings))
        return reader.from_start(begun_at(declared, self.starts), now=datetime.now(UTC)).rows

    @property
    def checkpoint(self) -> Path:
        return self.settings.home / "checkpoints" / NAME


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Callable[..., Shop]:
    return lambda **declared: Shop(spark, tmp_path, **declared)


@pytest.mark.ci
def test_a_full_refresh_fills_the_table_anew_and_undo_brings_both_back(shop: Callable[..., Shop]) -> None:
    numbers = shop()
    numbers.lake.process(NAME)
    before = (numbers.checkpoint / "metadata").read_text()
    numbers.add(10, 15)

    job = numbers.ask(ResetLevel.FULL, "job-1")

    assert numbers.ids() == [] and not numbers.checkpoint.exists()
    said = json.loads(numbers.lake.history("silver/silver_numbers")[-1]["userMetadata"])
    assert said == {"reset": "job-1", "by": "ana", "reason": "a bad batch"}
    numbers.resets.run(job, numbers.spark.newSession())
    assert len(set_aside(numbers.settings, NAME)) == 1, "a job that is begun twice does each step once"
    numbers.lake.process(NAME)
    assert numbers.ids() == list(range(15))

    numbers.ask(ResetLevel.UNDO, "job-2")

    assert numbers.ids() == list(range(10))
    assert (numbers.checkpoint / "metadata").read_text() == before
    numbers.lake.process(NAME)
    assert numbers.ids() == list(range(15)), "it goes on where it stood, and nothing is twice"


def test_a_full_refresh_that_fails_halfway_can_be_taken_back(shop: Callable[..., Shop]) -> None:
    numbers = shop(also=[into("gold_copy", append())])
    numbers.lake.process(NAME)
    log = numbers.settings.home / "lake" / "gold" / "gold_copy" / "_delta_log"
    version = len(list(log.glob("*.json")))
    locked = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", "invariants", "locked"]}
    (log / f"{version:020}.json").write_text(json.dumps({"protocol": locked}))

    with pytest.raises(Py4JJavaError, match="locked"):
        numbers.ask(ResetLevel.FULL, "job-1")
    assert numbers.ids() == [], "the first table was emptied, the second one could not be"
    numbers.ask(ResetLevel.UNDO, "job-2")
    assert numbers.ids() == list(range(10)) and (numbers.checkpoint / "offsets").exists()


def test_a_table_that_only_grows_is_refused_before_anything_moves(shop: Callable[..., Shop]) -> None:
    numbers = shop(table_properties={"delta.appendOnly": "true"})
    numbers.lake.process(NAME)
    with pytest.raises(StreamRefusedError, match="silver/silver_numbers is append-only"):
        numbers.ask(ResetLevel.FULL, "job-1")
    assert numbers.checkpoint.exists() and numbers.ids() == list(range(10))
    (declared,) = declarations(numbers.registry, numbers.settings)
    statuses = [StreamStatus(declared, None, None, StreamState.STOPPED, None, Verdict.STOPPED, "")]
    found = load_preview(
        numbers.settings, Lake(numbers.settings), numbers.store, statuses,
        name=NAME, level=ResetLevel.FULL, now=datetime.now(UTC),
    )  # fmt: skip
    assert found.refused.startswith("silver/silver_numbers is append-only")
    locked = "SET TBLPROPERTIES ('pipelines.reset.allowed' = 'false')"
    numbers.spark.sql(f"ALTER TABLE delta.`{numbers.lake.uri('silver/silver_numbers')}` {locked}")
    with pytest.raises(StreamRefusedError, match=r"silver_numbers has pipelines\.reset\.allowed=false"):
        numbers.ask(ResetLevel.REPROCESS, "job-2")
    assert numbers.checkpoint.exists()


@pytest.mark.ci
def test_reprocessing_an_append_doubles_rows_and_undo_takes_them_back(shop: Callable[..., Shop]) -> None:
    numbers = shop()
    numbers.lake.process(NAME)
    numbers.ask(ResetLevel.REPROCESS, "job-1")
    numbers.lake.process(NAME)
    assert numbers.ids() == sorted([*range(10), *range(10)])
    numbers.ask(ResetLevel.UNDO, "job-2")
    assert numbers.ids() == list(range(10))
    # What was undone is kept as well: the undo can be taken back.
    numbers.ask(ResetLevel.UNDO, "job-3")
    assert numbers.ids() == sorted([*range(10), *range(10)])


@pytest.mark.ci
def test_it_begins_at_a_version_once_and_reads_what_the_preview_said(shop: Callable[..., Shop]) -> None:
    numbers = shop()
    numbers.add(10, 13)  # v1
    numbers.add(13, 18)  # v2
    numbers.lake.process(NAME)
    assert numbers.ids() == list(range(18))

    numbers.ask(ResetLevel.FROM, "job-1", "1")
    numbers.resets.run(numbers.ask(ResetLevel.FROM, "job-1", "1"), numbers.spark.newSession())
    assert numbers.again() == 8
    numbers.lake.process(NAME)
    assert numbers.ids() == sorted([*range(18), *range(10, 18)])
    numbers.add(18, 20)
    numbers.lake.process(NAME)
    assert numbers.ids() == sorted([*range(20), *range(10, 18)]), "it goes on from its checkpoint, not from there again"

    numbers.ask(ResetLevel.UNDO, "job-2")
    numbers.lake.process(NAME)
    assert numbers.ids() == list(range(20))


def test_it_begins_after_all_that_is_there(shop: Callable[..., Shop]) -> None:
    numbers = shop()
    numbers.ask(ResetLevel.FROM, "job-1", "latest")
    assert numbers.again() == 0
    numbers.lake.process(NAME)
    assert numbers.ids() == [], "the version it begins at is not there yet"
    numbers.add(10, 12)  # after it was asked for, before it starts: not passed over
    numbers.lake.process(NAME)
    assert numbers.ids() == [10, 11]


@pytest.mark.ci
def test_reprocessing_by_key_changes_nothing(shop: Callable[..., Shop]) -> None:
    numbers = shop(sink=upsert(keys=["id"], sequence="id"))
    numbers.lake.process(NAME)
    numbers.ask(ResetLevel.REPROCESS, "job-1")
    numbers.lake.process(NAME)
    assert numbers.ids() == list(range(10))


def test_what_may_not_be_reset_is_left_as_it_is(shop: Callable[..., Shop]) -> None:
    numbers = shop(reset_allowed=False)
    numbers.lake.process(NAME)
    with pytest.raises(StreamRefusedError, match="reset_allowed=False"):
        numbers.ask(ResetLevel.FULL, "job-1")
    with pytest.raises(StreamRefusedError, match="no checkpoint of silver_numbers was set aside"):
        numbers.ask(ResetLevel.UNDO, "job-2")
    numbers.see(StreamState.RUNNING)
    with pytest.raises(StreamRefusedError, match="is not stopped"):
        numbers.ask(ResetLevel.REPROCESS, "job-3")
    numbers.see(StreamState.STOPPED)
    numbers.store.ensure_desired(NAME, DesiredState.RUNNING, now=datetime.now(UTC))
    with pytest.raises(StreamRefusedError, match="is not stopped"):
        numbers.ask(ResetLevel.REPROCESS, "job-4")
    assert numbers.checkpoint.exists() and numbers.ids() == list(range(10))
