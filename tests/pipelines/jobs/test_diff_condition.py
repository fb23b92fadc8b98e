"""A condition on rows of a diff: the stream host keeps the rows that are kept in process, and fails where that fails.

Rule: both are asked the same; Spark's own idea of a condition is nowhere asked.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backend.access import Actor
from backend.changes.host_job import job_request
from backend.errors import QueryError
from backend.jobs.model import Job, JobState
from backend.lake.table.metadata_diff import column_names
from backend.sql.condition import check_row_condition, satisfied
from pipelines.jobs.condition import satisfies
from tests.worlds.cases import soak
from tests.worlds.lake.diffs import Asked, asked, diff, prepare
from tests.worlds.spark.diff_world import World

pytestmark = [pytest.mark.spark, pytest.mark.ci, pytest.mark.timeout(600)]


CONDITIONS = [
    "place = 11 OR rows.place = 0",
    "rows IN ('é', '%_')",
    "regexp_matches(rows, '^[e%]') OR rows ILIKE 'É' -- DuckDB's own",
    "day < DATE '1582-10-15' AND dayofweek(day) = 5",
    "day = DATE '9999-12-30' OR y + 1 > 127",
    "\"at\" < TIMESTAMPTZ '1500-01-01 00:00:00+00'",
    "hour(rows.at) = 1 AND date_trunc('hour', rows.at) <> rows.at",
    "local > TIMESTAMP '2026-03-29 02:30:00' OR second(local) = 59",
    "m > 1e30",
    "m + 0.1 = 0.2 OR m = 0",
    "f > 1e300",  # as NaN is, of which engines think otherwise
    "f = 0 AND y = -128 OR isinf(f)",
    's."a.b" = 1 OR s."x y"[1].k = \'v\'',
    "mp['k'] = 2 OR raw = '\\xFF'::BLOB",
    "yes",
    "NOT yes OR small = 0.5",
]


def test_values_of_every_type_reach_duckdb_through_spark_as_they_are(world: World, spark: SparkSession) -> None:
    snapshot = world.lake.snapshot(world.lake.find("odd"))
    names = list(column_names(snapshot.metadata))
    rows = world.lake.read_files(snapshot, columns=names).read_all().combine_chunks().sort_by("id")
    table = spark.read.format("delta").load(str(Path(snapshot.ref.uri))).orderBy("id")
    numbered = table.select(*(F.col(f"`{name}`").alias(f"c{i}") for i, name in enumerate(names)))
    for text in CONDITIONS:  # one by one: of all at once each would have a Python worker of its own
        answers = numbered.coalesce(1).select("c0", satisfies(text, names, numbered.schema).alias("a"))
        by_spark = answers.orderBy("c0").collect()
        condition = check_row_condition(text, names)
        struct = rows.select(condition.columns).to_struct_array().combine_chunks()
        [here] = satisfied(condition, [struct])
        assert [row.a for row in by_spark] == here.to_pylist(), text
        assert 0 < here.true_count < len(rows), text


def failed(world: World, name: str, options: Asked) -> Job:
    job = world.ended(world.ask(name, 0, world.lake.latest_version(world.lake.find(name)), options))
    assert (job.state, job.result_uri) == (JobState.FAILED, None)
    return job


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ('CAST("v.w" AS INTEGER) > 1', "the condition cannot be computed: Could not convert string '"),
        ("id + 1", "the condition gives BIGINT, not true or false"),
        *soak(
            ("id > DATE '2026-01-01'", "the condition cannot be computed: Cannot compare values of type BIGINT and"),
            ("CAST(id AS TINYINT) > 1", "can't be cast because the value is out of range"),
            ('regexp_matches("v.w", "v.w" || \'(\')', "the condition cannot be computed: missing ): "),
        ),
    ],
)
def test_what_rows_make_impossible_ends_the_job_in_the_words_of_this_process(
    world: World, where: str, said: str
) -> None:
    """Of several methods no other is tried."""
    options = asked(where=where)
    with pytest.raises(QueryError) as caught:
        diff(world.lake, world.lake.find("plain"), 0, 4, **options)
    assert said in caught.value.message and caught.value.hint
    job = failed(world, "plain", options)
    assert said in job.error and "not by" not in job.error and "Traceback" not in job.error
    assert job.hint == caught.value.hint


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("duckdb.py", "raise ModuleNotFoundError('no duckdb')", "no duckdb"),
        *soak(
            ("duckdb.py", "__version__ = '0.1'", "DuckDB is 0.1 there and"),
            ("backend/__init__.py", "raise ModuleNotFoundError('no backend')", "no backend"),
        ),
    ],
)
def test_executors_that_lack_what_it_takes_end_the_job_and_say_so(
    world: World, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, said: str
) -> None:
    shadow = tmp_path / file
    shadow.parent.mkdir(exist_ok=True)
    shadow.write_text(text)
    workers = {"PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"}  # else the folder they start in goes first
    for name, value in workers.items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    job = failed(world, "plain", asked(where="id > 1"))
    assert job.error.startswith(f"Spark's executors cannot check a condition on rows: {said}")
    assert "install this version of Weir" in job.hint


def test_a_condition_that_may_not_run_is_refused_by_the_host_whoever_asked(world: World) -> None:
    prepared = prepare(world.lake, world.lake.find("plain"), 0, 4, on_host=True, where="id > 1")
    wanted = job_request(prepared, actor=Actor("ann"), reason="test", time_limit_s=60)
    body = json.loads(wanted.request) | {"where": "read_text('/etc/passwd') <> '' OR id > 0"}
    hostile = replace(wanted, request=json.dumps(body), fingerprint="hostile condition")
    job = world.ended(world.store.jobs.submit(hostile, now=datetime.now(UTC)))
    assert job.state is JobState.FAILED and "the function 'read_text' is not allowed" in job.error
