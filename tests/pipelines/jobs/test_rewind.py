"""A rewind: a table and the stream that writes it, back before what went wrong, and on again with mended code."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backend.access import Actor
from backend.errors import StreamRefusedError
from backend.jobs.model import Job, JobKind, JobState
from backend.lake.lake import Lake
from backend.maintenance.model import ActPreview, ActResult, Rewind, act_job
from backend.maintenance.plan import preview
from backend.maintenance.readers import load_users
from backend.settings import load_settings
from backend.store.leases import stream_resource
from backend.store.store import ControlStore
from backend.stream_model.stream import DesiredState, Observed, StreamState
from backend.streams.reset.plan import ResetLevel, ResetRequest
from pipelines import complete, expect, files, table
from pipelines.declare.registry import declarations, load_registry
from pipelines.host.job_host import JobHost
from pipelines.jobs.rewind import is_behind
from pipelines.jobs.runner import Acts, SparkJobs
from pipelines.specs.registry import Registry
from pipelines.specs.streams import StreamSpec
from tests.worlds.processes import wait_until
from tests.worlds.spark.declared import pipeline_of
from tests.worlds.spark.lakes import DemoLake, open_lake

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


class World:
    """Streams that are stopped, their store, and the jobs of their host."""

    def __init__(self, spark: SparkSession, home: Path, *streams: StreamSpec) -> None:
        self.spark, self.settings = spark, load_settings(home=home)
        (home / "store").mkdir(parents=True)
        self.store = ControlStore.open(self.settings)
        self.declare(*streams)

    def declare(self, *streams: StreamSpec) -> None:
        """These are what the host runs from now on."""
        self.streams = streams
        self.lake: DemoLake = open_lake(self.settings, *streams)
        registry = Registry(streams)
        self.store.declare(declarations(registry, self.settings), now=datetime.now(UTC))
        for stream in streams:
            self.see(stream.name, StreamState.STOPPED)
        self.runner = SparkJobs(
            self.settings, lambda: self.spark, "host-a", acts=Acts.of(self.settings, self.store, registry)
        )

    def see(self, name: str, state: StreamState) -> None:
        lease = self.store.acquire(stream_resource(name), "host", ttl_s=600)
        assert lease is not None
        self.store.observe(Observed(name, state, "host", 1, datetime.now(UTC)), token=lease.token)
        self.store.release(lease)

    def preview(self, name: str, to_version: int) -> ActPreview:
        lake, now = Lake(self.settings), datetime.now(UTC)
        ref = lake.find(name)
        asked = Rewind(to_version)
        users = load_users(self.settings, lake, self.store, ref, asked, now=now)
        return preview(self.settings, lake, ref, asked, users, now=now, store=self.store)

    def ask(self, planned: ActPreview) -> Job:
        wanted = act_job(planned.act, actor=Actor("ana"), reason="cents as euros")
        return self.store.jobs.submit(wanted, now=datetime.now(UTC))

    def rewind(self, name: str, to_version: int) -> ActResult:
        planned = self.preview(name, to_version)
        assert planned.refused == ""
        job = self.run(self.ask(planned))
        assert job.state is JobState.DONE, job.error
        return ActResult.of(job)

    def run(self, job: Job) -> Job:
        host = JobHost(self.settings, self.store, self.runner, "host-a")

        def ended() -> Job:
            host.step()
            found = self.store.jobs.get(job.job_id)
            assert found is not None
            return found

        wait_until(lambda: ended().state.is_over, f"the {job.kind} has ended")
        return ended()

    def undo(self, stream: str) -> None:
        request = ResetRequest(stream, ResetLevel.UNDO).text()
        self.runner.run(
            Job(
                "undo", JobKind.RESET, stream, "undo", request, "ana", "after all", 600, JobState.RUNNING,
                datetime.now(UTC),
            )
        )  # fmt: skip

    def version(self, name: str) -> int:
        lake = Lake(self.settings)
        return lake.latest_version(lake.find(name))

    def ids(self, name: str) -> list[int]:
        return sorted(row.id for row in self.lake.rows(name))

    def add(self, *ids: int) -> None:
        rows = self.spark.createDataFrame([(each,) for each in ids], "id BIGINT")
        rows.coalesce(1).write.format("delta").mode("append").save(self.lake.uri("bronze/numbers"))


@pytest.fixture
def numbers(spark: SparkSession, tmp_path: Path) -> Callable[..., World]:
    """A stream of a table of numbers that has run three batches: 1 2 3, then 10 -11 12, then 20 21."""

    def made(function: Callable[[DataFrame], DataFrame] = lambda rows: rows, **about: Any) -> World:
        source = tmp_path / "lake" / "bronze" / "numbers"
        spark.createDataFrame([(1,), (2,), (3,)], "id BIGINT").write.format("delta").save(str(source))
        declared = {"trigger": "available now", "name": "silver_numbers", **about}
        world = World(spark, tmp_path, *pipeline_of(table(str(source)), function, **declared).streams)
        for batch in ((), (10, -11, 12), (20, 21)):
            if batch:
                world.add(*batch)
            world.lake.process("silver_numbers")
        return world

    return made


def good(rows: DataFrame) -> DataFrame:
    return rows.where("id > 0")


# an incident ---------------------------------------------------------------------------------------------------------


def change(order: int, status: str, amount: float, lsn: int) -> str:
    row = {"order_id": f"o{order}", "customer_id": "u", "country": "ES", "status": status, "amount": amount}
    return json.dumps({"op": "u", "before": None, "after": row, "ts_ms": 1_700_000_000_000, "source": {"lsn": lsn}})


LANDED = [
    [change(order, "placed", 10.0 + order, order) for order in range(6)],
    [change(order, "paid", 100 * (10.0 + order), 10 + order) for order in (1, 3)] + [change(6, "placed", 7.5, 16)],
    [change(order, "shipped", 10.0 + order, 20 + order) for order in (0, 2, 7)],
]


def is_sound(line: str) -> bool:
    return json.loads(line)["after"]["amount"] < 500


@pytest.mark.ci
def test_after_a_bad_batch_silver_and_gold_are_as_if_it_had_never_come(spark: SparkSession, tmp_path: Path) -> None:
    names = ("bronze_orders", "silver_orders", "gold_orders_by_status")

    def run(home: Path, landed: Iterable[list[str]]) -> World:
        demo = load_registry(load_settings(home=home))
        world = World(spark, home, *(replace(demo.get(name), trigger_interval_s=None) for name in names))
        for number, lines in enumerate(landed):
            (home / "landing" / "orders" / f"{number}.jsonl").write_text("".join(f"{line}\n" for line in lines))
            world.lake.process(*names)
        return world

    def rows(world: World) -> list[list[Any]]:
        return [
            sorted(map(tuple, world.lake.rows(name))) for name in ("silver/silver_orders", "gold/gold_orders_by_status")
        ]

    shop = run(tmp_path / "shop", LANDED)
    never = run(tmp_path / "never", [[line for line in lines if is_sound(line)] for lines in LANDED])
    shop.declare(*shop.streams)  # listens again
    bad = [row.order_id for row in shop.lake.rows("silver/silver_orders") if row.amount > 500]
    assert sorted(bad) == ["o1", "o3"] and rows(shop) != rows(never)
    first_batch = shop.version("silver/silver_orders") - 2

    result = shop.rewind("silver/silver_orders", first_batch)

    assert [(proof.what, proof.holds) for proof in result.proofs] == [
        ("silver/silver_orders is what it was", True),
        ("the checkpoint ends with batch 0", True),
    ]
    bronze, silver, gold = shop.streams
    sound = expect("sound_amount", "amount < 500", on_violation="drop")
    shop.declare(bronze, replace(silver, expectations=(*silver.expectations, sound)), gold)
    shop.lake.process("silver_orders", "gold_orders_by_status")
    assert rows(shop) == rows(never)


# what is run again ---------------------------------------------------------------------------------------------------


def test_each_row_is_there_once_with_the_code_as_it_is_then(numbers: Callable[..., World]) -> None:
    world = numbers()
    planned = world.preview("silver/silver_numbers", 1)
    assert planned.figures["batch"] == 0 and planned.figures["rows_again"] == 5
    assert planned.typed and planned.way_back == "`weir reset silver_numbers --level undo` takes both back"
    world.rewind("silver/silver_numbers", 1)
    assert world.ids("silver/silver_numbers") == [1, 2, 3]
    world.declare(*(replace(stream, function=good) for stream in world.streams))
    world.lake.process("silver_numbers")
    assert world.ids("silver/silver_numbers") == [1, 2, 3, 10, 12, 20, 21]


def test_it_is_taken_back_whole(numbers: Callable[..., World]) -> None:
    world = numbers()
    world.rewind("silver/silver_numbers", 1)
    world.lake.process("silver_numbers")
    world.add(30)
    world.undo("silver_numbers")
    assert world.ids("silver/silver_numbers") == [-11, 1, 2, 3, 10, 12, 20, 21]
    world.lake.process("silver_numbers")
    assert world.ids("silver/silver_numbers") == [-11, 1, 2, 3, 10, 12, 20, 21, 30]


def test_what_the_stream_had_counted_goes_back_as_well(numbers: Callable[..., World]) -> None:
    """State of a later version would count rows twice."""

    def count(rows: DataFrame) -> DataFrame:
        return rows.groupBy((F.col("id") > 5).alias("is_high")).count()

    world = numbers(count, sink=complete())
    world.rewind("silver/silver_numbers", world.version("silver/silver_numbers") - 2)
    world.lake.process("silver_numbers")
    counted = {row["is_high"]: row["count"] for row in world.lake.rows("silver/silver_numbers")}
    assert counted == {False: 4, True: 4}


def test_what_was_put_aside_goes_back_as_well(numbers: Callable[..., World]) -> None:
    rule = expect("positive", "id > 0", on_violation="quarantine")
    world = numbers(expectations=[rule])
    aside = "silver/silver_numbers_quarantine"
    assert [json.loads(row.row)["id"] if hasattr(row, "row") else row.id for row in world.lake.rows(aside)] == [-11]
    to_version = world.version("silver/silver_numbers") - 2
    assert any(line.startswith(f"{aside}, now v") for line in world.preview("silver/silver_numbers", to_version).notes)
    world.rewind("silver/silver_numbers", to_version)
    assert world.lake.rows(aside) == []
    world.lake.process("silver_numbers")
    assert len(world.lake.rows(aside)) == 1 and world.ids("silver/silver_numbers") == [1, 2, 3, 10, 12, 20, 21]


def test_files_are_read_again_each_once(spark: SparkSession, tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    source = files(str(landing), format="json", schema="id BIGINT")
    world = World(spark, tmp_path, *pipeline_of(source, name="bronze_numbers", trigger="available now").streams)
    for number in range(3):
        (landing / f"{number}.json").write_text(f'{{"id": {number}}}\n')
        world.lake.process("bronze_numbers")
    world.rewind("bronze/bronze_numbers", 1)
    assert world.ids("bronze/bronze_numbers") == [0]
    (landing / "3.json").write_text('{"id": 3}\n')
    world.lake.process("bronze_numbers")
    assert world.ids("bronze/bronze_numbers") == [0, 1, 2, 3]


def test_a_job_that_is_begun_again_does_each_step_once(numbers: Callable[..., World]) -> None:
    world = numbers()
    job = world.ask(world.preview("silver/silver_numbers", 1))
    first = world.runner.run(job)
    restored = world.version("silver/silver_numbers")
    place = world.settings.home / "checkpoints" / "silver_numbers" / "metadata"
    query = place.read_text()
    again = world.runner.run(job)
    assert world.version("silver/silver_numbers") == restored and place.read_text() == query
    assert first.detail == again.detail


# what cannot be ------------------------------------------------------------------------------------------------------


def test_what_cannot_be_rewound_is_refused_with_what_helps(numbers: Callable[..., World]) -> None:
    world, name = numbers(), "silver/silver_numbers"
    assert world.preview("bronze/numbers", 0).refused == "bronze/numbers: no declared stream writes it"
    assert world.preview(name, world.version(name)).refused == "silver_numbers wrote nothing since that version"
    planned = world.preview(name, 0)
    assert planned.refused == "it is older than the first batch of silver_numbers"
    assert planned.way_out == "--level full reads all again: weir reset silver_numbers"
    world.store.ensure_desired("silver_numbers", DesiredState.RUNNING, now=datetime.now(UTC))
    planned = world.preview(name, 1)
    assert planned.refused.startswith("silver_numbers: it is wanted to run")
    assert planned.way_out == "weir stop silver_numbers"


def test_where_its_source_is_gone_it_is_refused(numbers: Callable[..., World]) -> None:
    world = numbers()
    source = world.lake.uri("bronze/numbers")
    world.spark.sql(f"OPTIMIZE delta.`{source}`")
    world.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    world.spark.sql(f"VACUUM delta.`{source}` RETAIN 0 HOURS")
    world.spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    planned = world.preview("silver/silver_numbers", 1)
    assert "files are gone" in planned.refused or "is gone" in planned.refused, planned.refused
    with pytest.raises(StreamRefusedError):
        world.runner.run(world.ask(planned))
    assert world.ids("silver/silver_numbers") == [-11, 1, 2, 3, 10, 12, 20, 21]


def test_nobody_starts_a_stream_that_is_being_rewound(numbers: Callable[..., World]) -> None:
    world = numbers()
    world.ask(world.preview("silver/silver_numbers", 1))
    with pytest.raises(StreamRefusedError, match="it is being rewound"):
        world.store.request("silver_numbers", "start", reason="now", actor=Actor("ben"), now=datetime.now(UTC))


@pytest.mark.parametrize(
    ("path", "behind"),
    [
        ("metadata", True),
        ("offsets/7", False),
        ("offsets/8", True),
        ("commits/.8.crc", True),
        ("state/0/0/8.delta", False),  # batch 7 wrote it
        ("state/0/0/9.delta", True),
        ("state/0/1/9.snapshot", True),
        ("state/0/1/left-keyToNumValues/.9.delta.crc", True),
        ("state/0/1/9_2d5b.zip", True),
        ("state/0/1/SSTs/000012-ab.sst", False),
        ("state/0/_metadata/v2/9", False),
        ("sources/0/12", False),
        ("sources/0/9.compact", False),
        ("start.json", False),
    ],
)
def test_which_files_of_a_checkpoint_stay_behind(path: str, behind: bool) -> None:
    assert is_behind(path, 7) is behind
