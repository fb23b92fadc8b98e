"""A reset stream, a rewound one, and either taken back: tables are what they were, and nothing is twice.

A rewind sets a table and the stream that writes it back before what went wrong, and on again with mended code.
"""

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
from backend.errors import JobError, StreamRefusedError
from backend.jobs.model import Job, JobKind
from backend.maintenance.model import ActPreview, ActResult, Lift, Rewind
from backend.settings import load_settings
from backend.stream_model.stream import DesiredState
from backend.streams.backlog import BacklogReader
from backend.streams.checkpoint import begun_at
from backend.streams.reset import ResetLevel, ResetRequest, parse_starts, set_aside
from backend.times import Clock
from pipelines import append, complete, expect, files, into, table
from pipelines.declare.pipeline import declarations, load_registry
from pipelines.jobs.stream_acts import is_behind
from tests.worlds.spark.act_host import ActHost, running_job
from tests.worlds.spark.declared import Function, pipeline_of, same

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

NAME, NUMBERS = "silver_numbers", "silver/silver_numbers"


class World(ActHost):
    """Stopped streams that are reset, and whose tables are rewound."""

    def add(self, *ids: int) -> None:
        rows = self.spark.createDataFrame([(number,) for number in ids], "id BIGINT")
        rows.coalesce(1).write.format("delta").mode("append").save(self.lake.uri("bronze/numbers"))

    def ids(self, name: str = NUMBERS) -> list[int]:
        return sorted(row.id for row in self.lake.rows(name))

    def ask(self, level: ResetLevel, job_id: str, *wheres: str) -> Job:
        (declared,) = declarations(self.registry, self.settings)
        self.starts = parse_starts(self.reader(), declared, wheres, Clock()) if wheres else {}
        job = running_job(JobKind.RESET, NAME, ResetRequest(NAME, level, self.starts).text(), job_id, "a bad batch")
        self.reset(job)
        return job

    def reset(self, job: Job) -> None:
        self.runner.run(job)

    def again(self) -> int | None:
        """The rows of the preview."""
        (declared,) = declarations(self.registry, self.settings)
        reader = BacklogReader(self.settings, self.reader())
        return reader.look(begun_at(declared, self.starts), now=datetime.now(UTC)).from_start().rows

    @property
    def checkpoint(self) -> Path:
        return self.settings.home / "checkpoints" / NAME

    def preview(self, to_version: int, name: str = NUMBERS) -> ActPreview:
        return self.planned(name, Rewind(to_version))

    def rewind(self, to_version: int, name: str = NUMBERS) -> ActResult:
        planned = self.preview(to_version, name)
        assert planned.refused == ""
        return self.run(self.submit(planned.act))


def world_of(spark: SparkSession, home: Path, first: Iterable[int], function: Function = same, **about: Any) -> World:
    """A stream of a table that holds these numbers."""
    source = home / "lake" / "bronze" / "numbers"
    spark.createDataFrame([(number,) for number in first], "id BIGINT").write.format("delta").save(str(source))
    pipeline = pipeline_of(table(str(source)), function, name=NAME, trigger="available now", **about)
    return World(spark, home, *pipeline.streams)


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Callable[..., World]:
    """A stream that has not read its ten numbers yet."""
    return lambda **about: world_of(spark, tmp_path, range(10), **about)


@pytest.fixture
def numbers(spark: SparkSession, tmp_path: Path) -> Callable[..., World]:
    """A stream that has run three batches: 1 2 3, then 10 -11 12, then 20 21."""

    def made(function: Function = same, **about: Any) -> World:
        world = world_of(spark, tmp_path, (1, 2, 3), function, **about)
        for batch in ((), (10, -11, 12), (20, 21)):
            if batch:
                world.add(*batch)
            world.lake.process(NAME)
        return world

    return made


@pytest.mark.ci
def test_a_full_refresh_fills_the_table_anew_and_undo_brings_both_back(shop: Callable[..., World]) -> None:
    numbers = shop()
    numbers.lake.process(NAME)
    before = (numbers.checkpoint / "metadata").read_text()
    numbers.add(*range(10, 15))

    job = numbers.ask(ResetLevel.FULL, "job-1")

    assert numbers.ids() == [] and not numbers.checkpoint.exists()
    said = json.loads(numbers.lake.history("silver/silver_numbers")[-1]["userMetadata"])
    assert said == {"reset": "job-1", "by": "ana", "reason": "a bad batch"}
    numbers.reset(job)
    assert len(set_aside(numbers.settings, NAME)) == 1, "a job that is begun twice does each step once"
    numbers.lake.process(NAME)
    assert numbers.ids() == list(range(15))

    numbers.ask(ResetLevel.UNDO, "job-2")

    assert numbers.ids() == list(range(10))
    assert (numbers.checkpoint / "metadata").read_text() == before
    numbers.lake.process(NAME)
    assert numbers.ids() == list(range(15)), "it goes on where it stood, and nothing is twice"


@pytest.mark.soak
def test_a_full_refresh_that_fails_halfway_can_be_taken_back(shop: Callable[..., World]) -> None:
    numbers = shop(also=[into("gold_copy", append())])
    numbers.lake.process(NAME)
    log = numbers.settings.home / "lake" / "gold" / "gold_copy" / "_delta_log"
    version = len(list(log.glob("*.json")))
    locked = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", "invariants", "locked"]}
    (log / f"{version:020}.json").write_text(json.dumps({"protocol": locked}))

    with pytest.raises(JobError, match="locked"):
        numbers.ask(ResetLevel.FULL, "job-1")
    assert numbers.ids() == [], "the first table was emptied, the second one could not be"
    numbers.ask(ResetLevel.UNDO, "job-2")
    assert numbers.ids() == list(range(10)) and (numbers.checkpoint / "offsets").exists()


@pytest.mark.ci
def test_a_table_that_only_grows_is_refused_before_anything_moves(shop: Callable[..., World]) -> None:
    numbers = shop(table_properties={"delta.appendOnly": "true"})
    numbers.lake.process(NAME)
    with pytest.raises(StreamRefusedError, match="silver_numbers: it has no checkpoint that was set aside"):
        numbers.ask(ResetLevel.UNDO, "job-0")
    with pytest.raises(StreamRefusedError, match="silver/silver_numbers is append-only"):
        numbers.ask(ResetLevel.FULL, "job-1")
    assert numbers.checkpoint.exists() and numbers.ids() == list(range(10))
    locked = "SET TBLPROPERTIES ('pipelines.reset.allowed' = 'false')"
    numbers.spark.sql(f"ALTER TABLE delta.`{numbers.lake.uri('silver/silver_numbers')}` {locked}")
    with pytest.raises(StreamRefusedError, match=r"silver_numbers has pipelines\.reset\.allowed=false"):
        numbers.ask(ResetLevel.REPROCESS, "job-2")
    assert numbers.checkpoint.exists()


@pytest.mark.soak
def test_reprocessing_an_append_doubles_rows_and_undo_takes_them_back(shop: Callable[..., World]) -> None:
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


@pytest.mark.soak
def test_it_begins_at_a_version_once_and_reads_what_the_preview_said(shop: Callable[..., World]) -> None:
    numbers = shop()
    numbers.add(*range(10, 13))  # v1
    numbers.add(*range(13, 18))  # v2
    numbers.lake.process(NAME)
    assert numbers.ids() == list(range(18))

    numbers.ask(ResetLevel.FROM, "job-1", "1")
    numbers.reset(numbers.ask(ResetLevel.FROM, "job-1", "1"))
    assert numbers.again() == 8
    numbers.lake.process(NAME)
    assert numbers.ids() == sorted([*range(18), *range(10, 18)])
    numbers.add(*range(18, 20))
    numbers.lake.process(NAME)
    assert numbers.ids() == sorted([*range(20), *range(10, 18)]), "it goes on from its checkpoint, not from there again"

    numbers.ask(ResetLevel.UNDO, "job-2")
    numbers.lake.process(NAME)
    assert numbers.ids() == list(range(20))


@pytest.mark.ci
def test_it_begins_after_all_that_is_there(shop: Callable[..., World]) -> None:
    numbers = shop()
    numbers.ask(ResetLevel.FROM, "job-1", "latest")
    assert numbers.again() == 0
    numbers.lake.process(NAME)
    assert numbers.ids() == [], "the version it begins at is not there yet"
    numbers.add(*range(10, 12))  # after it was asked for, before it starts: not passed over
    numbers.lake.process(NAME)
    assert numbers.ids() == [10, 11]


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


@pytest.mark.soak
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

    result = shop.rewind(first_batch, "silver/silver_orders")

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


def test_each_row_is_there_once_with_the_code_as_it_is_then_and_it_is_taken_back(numbers: Callable[..., World]) -> None:
    world = numbers()
    planned = world.preview(1)
    assert planned.figures["batch"] == 0 and planned.figures["rows_again"] == 5
    assert planned.typed and planned.way_back == "a reset of silver_numbers that undoes the last one takes both back"
    world.rewind(1)
    assert world.ids() == [1, 2, 3]
    world.declare(*(replace(stream, function=lambda rows: rows.where("id > 0")) for stream in world.streams))
    world.lake.process(NAME)
    assert world.ids() == [1, 2, 3, 10, 12, 20, 21]

    world.add(30)
    world.ask(ResetLevel.UNDO, "undo")
    assert world.ids() == [-11, 1, 2, 3, 10, 12, 20, 21]
    world.lake.process(NAME)
    assert world.ids() == [-11, 1, 2, 3, 10, 12, 20, 21, 30]


@pytest.mark.soak
def test_what_the_stream_had_counted_goes_back_as_well(numbers: Callable[..., World]) -> None:
    """State of a later version would count rows twice."""

    def count(rows: DataFrame) -> DataFrame:
        return rows.groupBy((F.col("id") > 5).alias("is_high")).count()

    world = numbers(count, sink=complete())
    world.rewind(world.version(NUMBERS) - 2)
    world.lake.process(NAME)
    assert {row["is_high"]: row["count"] for row in world.lake.rows(NUMBERS)} == {False: 4, True: 4}


@pytest.mark.soak
def test_what_was_put_aside_goes_back_as_well(numbers: Callable[..., World]) -> None:
    world = numbers(expectations=[expect("positive", "id > 0", on_violation="quarantine")])
    aside = "silver/silver_numbers_quarantine"
    assert world.ids(aside) == [-11]
    to_version = world.version(NUMBERS) - 2
    assert any(line.startswith(f"{aside}, now v") for line in world.preview(to_version).notes)
    world.rewind(to_version)
    assert world.lake.rows(aside) == []
    world.lake.process(NAME)
    assert world.ids(aside) == [-11] and world.ids() == [1, 2, 3, 10, 12, 20, 21]


@pytest.mark.soak
def test_files_are_read_again_each_once(spark: SparkSession, tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    source = files(str(landing), format="json", schema="id BIGINT")
    world = World(spark, tmp_path, *pipeline_of(source, name="bronze_numbers", trigger="available now").streams)
    for number in range(3):
        (landing / f"{number}.json").write_text(f'{{"id": {number}}}\n')
        world.lake.process("bronze_numbers")
    world.rewind(1, "bronze/bronze_numbers")
    assert world.ids("bronze/bronze_numbers") == [0]
    (landing / "3.json").write_text('{"id": 3}\n')
    world.lake.process("bronze_numbers")
    assert world.ids("bronze/bronze_numbers") == [0, 1, 2, 3]


@pytest.mark.soak
def test_a_rewind_killed_after_its_plan_or_at_its_end_does_each_step_once(numbers: Callable[..., World]) -> None:
    world = numbers()
    job, before = world.submit(world.preview(1).act), world.version(NUMBERS)
    with world.dying_at("rewind of"):
        world.runner.run(job)
    assert world.version(NUMBERS) == before, "the plan is written down, and nothing is done"
    first = world.runner.run(job)
    place = world.checkpoint / "metadata"
    query = place.read_text()
    assert world.runner.run(job).detail == first.detail
    assert world.version(NUMBERS) == before + 1 and place.read_text() == query


# what cannot be ------------------------------------------------------------------------------------------------------


@pytest.mark.ci
def test_what_cannot_be_rewound_is_refused_with_what_helps(numbers: Callable[..., World]) -> None:
    world = numbers()
    assert world.preview(0, "bronze/numbers").refused == "bronze/numbers: no declared stream writes it"
    assert world.preview(world.version(NUMBERS)).refused == "silver_numbers wrote nothing since that version"
    planned = world.preview(0)
    assert planned.refused == "it is older than the first batch of silver_numbers"
    assert planned.way_out == "a full reset of silver_numbers reads all again"

    job, now = world.submit(world.preview(1).act), datetime.now(UTC)
    with pytest.raises(StreamRefusedError, match="it is being rewound"):
        world.store.request("silver_numbers", "start", reason="now", actor=Actor("ben"), now=now)
    world.store.jobs.cancel(job.job_id, actor=Actor("ben"), reason="not yet", now=now)

    source = world.lake.uri("bronze/numbers")
    world.spark.sql(f"OPTIMIZE delta.`{source}`")
    world.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    world.spark.sql(f"VACUUM delta.`{source}` RETAIN 0 HOURS")
    world.spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    planned = world.preview(1)
    assert "files are gone" in planned.refused or "is gone" in planned.refused, planned.refused
    with pytest.raises(StreamRefusedError):
        world.runner.run(world.submit(planned.act))
    assert world.ids() == [-11, 1, 2, 3, 10, 12, 20, 21]

    world.store.ensure_all_desired(["silver_numbers"], DesiredState.RUNNING, now=datetime.now(UTC))
    planned = world.preview(1)
    assert planned.refused.startswith("silver_numbers is wanted to run")
    assert planned.lifts == (Lift("stop", ("silver_numbers",)),)


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
