"""A job opens nothing outside the roots, whatever the store or a log says: refused before Spark is asked."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from backend.changes.host_job import to_json
from backend.changes.model import Question
from backend.errors import PathRefusedError
from backend.jobs.model import Job, JobKind, JobState
from backend.lake.model import TableRef
from backend.settings import load_settings
from pipelines.jobs.runner import SparkJobs
from tests.builders import HandLog, add, remove


def no_spark() -> SparkSession:
    raise AssertionError("Spark was asked")


def refused(home: Path, question: Question) -> str:
    settings = load_settings(home=home, lake={"roots": [str(home / "lake")]})
    job = Job(
        "j1",
        JobKind.DIFF,
        "t",
        "f",
        to_json(question),
        "ann",
        "why",
        60.0,
        JobState.RUNNING,
        datetime.now(UTC),
        attempts=1,
    )
    with pytest.raises(PathRefusedError) as caught:
        SparkJobs(settings, no_spark, "host-a").run(job)
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
