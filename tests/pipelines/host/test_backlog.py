"""What waits, beside what Spark then reads: after each batch the count of the rest equals the rows of later batches."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from backend.lake.lake import Lake
from backend.settings import load_settings
from backend.stream_model.backlog import Backlog
from backend.stream_model.progress import parse_progress
from backend.stream_model.stream import Progress
from backend.streams.backlog import BacklogReader
from pipelines import files, table
from pipelines.declare.pipeline import declaration
from pipelines.specs.streams import Registry
from tests.worlds.cases import few
from tests.worlds.spark.declared import pipeline_of
from tests.worlds.spark.lakes import DemoLake, open_lake

pytestmark = [pytest.mark.spark, pytest.mark.ci]


@dataclass
class Watched:
    """A lake with one stream, and its backlog as it was after each batch."""

    lake: DemoLake
    registry: Registry
    name: str

    @property
    def home(self) -> Path:
        return self.lake.settings.home

    def batches(self) -> list[Progress]:
        heard = [json.dumps(each) for each in self.lake.heard.progress if each["name"] == self.name]
        found = {batch.batch_id: batch for batch in map(parse_progress, heard)}
        return [found[batch] for batch in sorted(found) if "addBatch" in found[batch].durations_ms]

    def backlog(self, *, after: int | None = None, recent: list[Progress] | None = None) -> Backlog:
        """Now, or as it was when the checkpoint ended with this batch."""
        declared = declaration(self.registry, self.registry.get(self.name), self.lake.settings)
        if after is not None:
            declared = replace(declared, checkpoint_location=str(self._cut(Path(declared.checkpoint_location), after)))
        reader = BacklogReader(self.lake.settings, Lake(self.lake.settings))
        return reader.read(declared, recent or [], now=datetime.now(UTC))

    def _cut(self, checkpoint: Path, after: int) -> Path:
        copy = self.home / "copies" / str(after)
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(checkpoint, copy)
        for folder in ("offsets", "commits"):
            for file in (copy / folder).glob("[0-9]*"):
                if int(file.name) > after:
                    file.unlink()
        return copy


@pytest.fixture
def spark_tables(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """A table that is written to beside the stream, with a change feed."""
    uri = str(tmp_path / "lake" / "bronze" / "numbers")
    spark.sql(
        f"CREATE TABLE delta.`{uri}` (id BIGINT, word STRING) USING delta "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    yield uri


def append(spark: SparkSession, uri: str, first: int, last: int, *, files: int = 1) -> None:
    rows = spark.range(first, last, 1, files).selectExpr("id", "'new' AS word")
    rows.write.format("delta").mode("append").save(uri)


def reading(home: Path, source: object) -> Watched:
    numbers = pipeline_of(source, name="silver_numbers", trigger="available now")
    lake = open_lake(load_settings(home=home), *numbers.streams)
    return Watched(lake, Registry(numbers.streams), numbers.streams[0].name)


def assert_each_rest_was_read(watched: Watched) -> list[Backlog]:
    """What waited after each batch is what the later ones read; returns the backlogs."""
    batches = watched.batches()
    left = [watched.backlog(after=batch.batch_id) for batch in batches]
    assert [each.rows for each in left] == [
        sum(later.num_input_rows for later in batches[place + 1 :]) for place in range(len(batches))
    ]
    assert left[-1].is_caught_up
    return left


@pytest.mark.soak
def test_a_table_read_file_by_file_from_its_first_snapshot_on(
    spark: SparkSession, tmp_path: Path, spark_tables: str
) -> None:
    append(spark, spark_tables, 0, 40, files=4)
    append(spark, spark_tables, 40, 55, files=1)
    watched = reading(tmp_path, table(spark_tables, maxFilesPerTrigger=1))
    assert watched.backlog().rows == 55, "before its first batch"
    watched.lake.process(watched.name)
    append(spark, spark_tables, 55, 75, files=2)
    spark.sql(f"OPTIMIZE delta.`{spark_tables}`")
    append(spark, spark_tables, 75, 78)
    waiting = watched.backlog()
    assert (waiting.rows, waiting.files, waiting.versions) == (23, 3, 3)
    watched.lake.process(watched.name)

    left = assert_each_rest_was_read(watched)

    assert len(left) == 8, "one file a batch"
    assert left[1].is_first_read and "2 of 5 files done" in left[1].sources[0].detail
    lags = watched.backlog(recent=watched.batches()).lags
    assert lags and lags[-1].behind_s == 0 and lags[-1].rows == 0


@pytest.mark.parametrize("vectors", few(1, ["false", "true"]))
def test_a_change_feed_of_updates_deletes_and_merges(
    spark: SparkSession, tmp_path: Path, spark_tables: str, vectors: str
) -> None:
    spark.sql(f"ALTER TABLE delta.`{spark_tables}` SET TBLPROPERTIES (delta.enableDeletionVectors = {vectors})")
    append(spark, spark_tables, 0, 10)
    watched = reading(tmp_path, table(spark_tables).changes(maxFilesPerTrigger=1))
    watched.lake.process(watched.name)
    written = DeltaTable.forPath(spark, spark_tables)
    written.update("id < 3", {"word": "'changed'"})
    written.delete("id = 4")
    new = spark.range(8, 14).selectExpr("id", "'merged' AS word")
    merge = written.alias("t").merge(new.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    append(spark, spark_tables, 20, 25)
    written.delete("id = 22")
    waiting = watched.backlog()
    assert (waiting.rows, waiting.versions) == (3 * 2 + 1 + (2 * 2 + 4) + 5 + 1, 5)
    watched.lake.process(watched.name)
    assert len(watched.lake.rows("silver/silver_numbers")) == 10 + waiting.rows
    if vectors == "false":  # else Spark also counts the rows that it reads of a file and leaves out
        assert_each_rest_was_read(watched)


def test_files_of_a_folder(spark: SparkSession, tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    for number in range(11):  # past the tenth, Spark's own log is compacted
        (landing / f"odd name {number}.json").write_text('{"id": 1}\n')
    watched = reading(tmp_path, files(str(landing), format="json", schema="id BIGINT", max_files_per_trigger=1))
    assert watched.backlog().files == 11
    watched.lake.process(watched.name)
    batches = watched.batches()
    left = [watched.backlog(after=batch.batch_id) for batch in batches]
    assert [each.files for each in left] == list(range(10, -1, -1))
    assert left[-1].is_caught_up and left[0].is_caught_up is False
    (landing / "later.json").write_text('{"id": 2}\n{"id": 3}\n')
    now = watched.backlog(recent=batches)
    assert (now.files, now.size_bytes, now.rows) == (1, 20, None)
    assert now.lags[-1].behind_s == 0
