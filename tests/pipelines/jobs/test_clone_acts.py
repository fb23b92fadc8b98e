"""A version copied by Spark: the same rows at another place, in one commit, and never over anything."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError

from backend.errors import StreamRefusedError
from backend.jobs.model import JobState
from backend.maintenance.model import Clone, Repair, TableAct, Vacuum
from tests.pipelines.jobs.test_table_acts import NAME, Shelf, shelf

__all__ = ["shelf"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

COPY = "kept/it's a `copy`; DROP"


def rows(table: Shelf, uri: str, version: int | None = None) -> list[tuple[object, ...]]:
    reader = table.spark.read.format("delta")
    reader = reader if version is None else reader.option("versionAsOf", version)
    return sorted(map(tuple, reader.load(uri).select("id", "day").collect()))


def test_a_copy_has_the_rows_and_what_was_said_of_them(shelf: Callable[..., Shelf]) -> None:
    table = shelf()
    table.write("a'b", "c", **{"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": "name"})
    table.sql("ALTER TABLE {} SET TBLPROPERTIES ('catalog.team_name' = 'it\\'s blue')")
    table.sql("COMMENT ON TABLE {} IS 'sales, x\\'); DROP'")
    table.sql("ALTER TABLE {} ADD CONSTRAINT known CHECK (id >= 0)")
    table.sql("ALTER TABLE {} ALTER COLUMN id COMMENT 'the \\'key\\''")
    table.sql("DELETE FROM {} WHERE id % 10 = 3")
    version = table.lake.latest_version(table.ref)
    table.write("d", start=500)
    target = str(Path(table.uri).parents[1] / COPY)
    planned = table.preview(Clone(COPY, version))
    assert planned.figures["rows"] == 180 and planned.act.arguments == Clone(target, version)

    job = table.submit(planned.act)
    result = table.run(job)

    assert [(proof.what, proof.holds) for proof in result.proofs] == [("the rows are those of the version", True)]
    assert result.proofs[0].detail == "180 rows against 180, each the same"
    assert rows(table, target) == rows(table, table.uri, version) and len(rows(table, target)) == 180
    detail = DeltaTable.forPath(table.spark, target).detail().collect()[0]
    assert (detail["partitionColumns"], detail["description"]) == (["day"], "sales, x'); DROP")
    copied = table.lake.snapshot(table.lake.find(target)).metadata.configuration
    assert copied["catalog.team_name"] == "it's blue" and copied["delta.constraints.known"] == "id >= 0"
    assert table.spark.read.format("delta").load(target).schema["id"].metadata["comment"] == "the 'key'"
    (commit,) = table.lake.history(table.lake.find(target))
    assert job.job_id in (commit.user_metadata or "") and commit.version == 0
    assert table.preview(Clone(COPY)).refused == f"{target}: there is a table already"
    shutil.rmtree(target)
    assert len(rows(table, table.uri)) == 280


def test_a_shallow_copy_reads_the_files_and_changes_apart(shelf: Callable[..., Shelf]) -> None:
    table = shelf()
    table.write("a", "b")
    target = str(Path(table.uri).parents[1] / "kept" / "copy")
    planned = table.preview(Clone("kept/copy", shallow=True))
    assert planned.figures["bytes_written"] == 0 and "VACUUM" in planned.risks[0]
    result = table.run(table.submit(planned.act))
    assert [(proof.what, proof.holds) for proof in result.proofs] == [("it reads the files of the version", True)]
    assert not list(Path(target).rglob("part-*.parquet")) and rows(table, target) == rows(table, table.uri)
    table.spark.sql(f"DELETE FROM delta.`{target}` WHERE id < 150")
    assert (len(rows(table, target)), len(rows(table, table.uri))) == (50, 200)
    fixed = Repair("id >= 0", from_table="kept/copy")
    assert table.preview(fixed).figures["rows_in"] == 50


def test_vacuum_is_refused_while_a_shallow_copy_reads_a_file(shelf: Callable[..., Shelf]) -> None:
    """Plain VACUUM breaks the copy."""
    table = shelf()
    table.write("a", "b", **{"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    table.act(Clone("kept/copy", shallow=True))
    table.sql("DELETE FROM {} WHERE day = 'a'")
    assert table.preview(Vacuum()).refused == "kept/copy is a shallow copy, and reads 1 file that would be deleted"
    target = str(Path(table.uri).parents[1] / "kept" / "copy")
    assert len(rows(table, target)) == 200
    table.sql("VACUUM {}")
    with pytest.raises(Py4JJavaError, match=r"FAILED_READ_FILE.FILE_NOT_EXIST"):
        rows(table, target)


def test_a_copy_that_is_begun_twice_is_made_once(shelf: Callable[..., Shelf]) -> None:
    table = shelf()
    table.write("a")
    job = table.submit(table.preview(Clone("kept/copy")).act)
    end = table.runner.run(job)  # its host dies before it notes the end
    result = table.run(job)
    assert end.state is JobState.DONE and result.proofs[0].holds is True
    target = str(Path(table.uri).parents[1] / "kept" / "copy")
    assert len(table.lake.history(table.lake.find(target))) == 1


def test_what_came_to_lie_there_meanwhile_stays(shelf: Callable[..., Shelf]) -> None:
    table = shelf()
    table.write("a")
    planned = table.preview(Clone("kept/copy"))
    target = str(Path(table.uri).parents[1] / "kept" / "copy")
    table.spark.range(3).write.format("delta").save(target)
    for act in (planned.act, TableAct(table.uri, NAME, 0, Clone("/etc/copy", 0))):
        with pytest.raises(StreamRefusedError, match=r"there is a table already|outside every allowed root"):
            table.run(table.submit(act))
    assert table.spark.read.format("delta").load(target).count() == 3
