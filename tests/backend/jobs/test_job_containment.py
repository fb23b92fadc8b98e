"""A job opens nothing outside the roots, whatever the store or a log says: refused before Spark is asked."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from backend.changes.host_job import to_json
from backend.changes.model import Question
from backend.errors import JobResultMissingError, LakehouseError, PathRefusedError, StreamRefusedError
from backend.jobs.model import Job, JobKind, JobState
from backend.jobs.results import read_result, results_lake
from backend.lake.model import TableRef
from backend.maintenance.model import ActResult
from backend.settings import Settings, load_settings
from backend.store.store import ControlStore
from backend.stream_model.stream import DesiredState
from backend.streams.requeue import RequeueAnswer, RequeueRequest
from backend.streams.reset.plan import ResetLevel, ResetRequest
from pipelines.jobs.reset import Resets
from pipelines.jobs.runner import SparkJobs
from pipelines.sources.delta import table
from pipelines.specs.registry import Registry
from tests.worlds.lake.builders import HandLog, add, remove
from tests.worlds.spark.declared import pipeline_of


def no_spark() -> SparkSession:
    raise AssertionError("Spark was asked")


def job_of(kind: JobKind, request: str, subject: str = "t") -> Job:
    at = datetime.now(UTC)
    return Job("0123456789ab", kind, subject, "f", request, "ann", "why", 60.0, JobState.RUNNING, at, attempts=1)


def lake_of(home: Path) -> Settings:
    return load_settings(home=home, lake={"roots": [str(home / "lake")]})


def refused(home: Path, question: Question) -> str:
    with pytest.raises(PathRefusedError) as caught:
        SparkJobs(lake_of(home), no_spark, "host-a").run(job_of(JobKind.DIFF, to_json(question)))
    return caught.value.message


def asked(folder: Path, first: int, second: int, against: Path | None = None) -> Question:
    tables = [TableRef(str(path), "t", "") for path in (folder, against) if path]
    return Question(tables[0], first, second, tables[1] if against else None, on_host=True)


def test_a_table_outside_the_roots_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    assert "outside every allowed root" in refused(tmp_path, asked(Path("/etc"), 0, 1))


@pytest.mark.parametrize("path", ["/etc/passwd", "../../secret.parquet", "file:///etc/passwd"])
def test_a_file_outside_is_refused_also_when_only_a_commit_in_between_names_it(tmp_path: Path, path: str) -> None:
    HandLog(tmp_path / "lake" / "t").start().commit(add("a.parquet")).commit(add(path)).commit(remove(path))
    for first, second in ((1, 3), (3, 1)):
        assert refused(tmp_path, asked(tmp_path / "lake" / "t", first, second))
    HandLog(tmp_path / "lake" / "u").start()
    assert refused(tmp_path, asked(tmp_path / "lake" / "t", 2, 0, against=tmp_path / "lake" / "u"))


@pytest.mark.parametrize(
    "garbage", ["", "{", "[]", "7", "null", '{"format": 1}', '{"ref": {"uri": "/etc"}}', "\0", "é"]
)
def test_a_question_that_is_garbage_is_refused_with_a_message(tmp_path: Path, garbage: str) -> None:
    for parse in (ResetRequest.parse, RequeueRequest.parse):
        with pytest.raises(LakehouseError, match="cannot be read"):
            parse(garbage)
    for read in (RequeueAnswer.of, ActResult.of):
        with pytest.raises(LakehouseError, match="cannot be read"):
            read(replace(job_of(JobKind.REQUEUE, "{}"), answer=garbage))
    with pytest.raises(LakehouseError) as caught:
        SparkJobs(lake_of(tmp_path), no_spark, "host-a").run(job_of(JobKind.DIFF, garbage))
    assert caught.value.message and "Spark was asked" not in caught.value.message


@pytest.mark.parametrize("uri", ["/etc", "file:///etc", "{results}/../lake/t", "s3://others/x", "{home}"])
def test_a_result_is_read_where_hosts_write_results_and_nowhere_else(tmp_path: Path, uri: str) -> None:
    settings = lake_of(tmp_path)
    HandLog(tmp_path / "lake" / "t").start()
    forged = uri.format(results=settings.results_uri, home=tmp_path)
    job = replace(job_of(JobKind.DIFF, "{}"), state=JobState.DONE, result_uri=forged)
    with pytest.raises(JobResultMissingError, match="outside every allowed root"):
        read_result(results_lake(settings), settings, job, ["detail"], again="compare again")


def test_an_act_is_on_the_stream_that_its_row_locks(tmp_path: Path) -> None:
    settings, store = lake_of(tmp_path), ControlStore(f"sqlite:///{tmp_path}/weir.db")
    streams = [pipeline_of(table("silver"), name=name).streams[0] for name in ("runs", "stopped")]
    store.ensure_desired("runs", DesiredState.RUNNING, now=datetime.now(UTC))
    request = ResetRequest("stopped", ResetLevel.REPROCESS).text()
    with pytest.raises(StreamRefusedError, match="runs is not stopped"):
        Resets(settings, store, Registry(streams)).run(job_of(JobKind.RESET, request, "runs"), None)  # type: ignore[arg-type]
