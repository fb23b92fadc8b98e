"""What a host does around Spark, without a session: errors are named, checkpoints moved once, folders its own."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from backend.settings import load_settings
from pipelines.jvm.failures import describe, describe_traceback
from pipelines.jvm.hadoop import CheckpointFiles
from pipelines.specs import sources
from pipelines.specs.sources import Inputs

UDF = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
ZeroDivisionError: division by zero
"""
FOREACH_BATCH = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "clientserver.py", line 642, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
py4j.protocol.Py4JJavaError: An error occurred while calling o1.execute.
: org.apache.spark.sql.delta.DeltaRuntimeException: [DELTA_MERGE_SOURCE_CACHED] The MERGE operation failed
\tat org.apache.spark.sql.delta.DeltaErrorsBase.merge(DeltaErrors.scala:1629)
"""


def test_the_error_that_a_person_is_told_of_is_the_innermost() -> None:
    """Out of a traceback inside a Java message."""
    assert describe_traceback(UDF) == ("ZeroDivisionError", "division by zero")
    assert describe_traceback(FOREACH_BATCH) == ("DELTA_MERGE_SOURCE_CACHED", "The MERGE operation failed")
    assert describe_traceback("ValueError: just words") is None
    assert describe(KeyError("colour")) == ("KeyError", "'colour'")
    assert describe(ValueError("first\nsecond")) == ("ValueError", "first")


@pytest.fixture
def files() -> CheckpointFiles:
    return CheckpointFiles(cast(SparkSession, None))


def test_a_checkpoint_that_was_brought_back_is_not_moved_aside_by_a_second_run(
    files: CheckpointFiles, tmp_path: Path
) -> None:
    """An undo before any start: there is nothing to set aside, and its own checkpoint comes back."""
    checkpoint, undone, own = (tmp_path / name for name in ("silver", "job-1/checkpoint", "job-2"))
    undone.mkdir(parents=True)
    (undone / "metadata").write_text("{}")
    for _ in range(2):
        files.move(str(checkpoint), str(own / "checkpoint"), done=str(own / "moved"))
        files.move(str(undone), str(checkpoint), done=str(own / "moved_back"))
        assert (checkpoint / "metadata").exists()
        assert not (own / "checkpoint").exists() and not undone.exists()


def test_a_checkpoint_is_moved_aside_once(files: CheckpointFiles, tmp_path: Path) -> None:
    checkpoint, own = tmp_path / "silver", tmp_path / "job-1"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text("old")
    files.move(str(checkpoint), str(own / "checkpoint"), done=str(own / "moved"))
    checkpoint.mkdir()  # its next start
    files.move(str(checkpoint), str(own / "checkpoint"), done=str(own / "moved"))
    assert checkpoint.exists() and (own / "checkpoint" / "metadata").read_text() == "old"


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder in which another user was first, with an umask that hides nothing."""
    shared = tmp_path / "tmp"
    (shared / "weir-no-rows").mkdir(parents=True)
    (shared / "weir-no-rows" / "planted.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    monkeypatch.setattr(sources, "_empty", [])  # another test of this process may have made one
    before = os.umask(0)
    yield shared
    os.umask(before)


def test_the_folder_without_rows_is_private_and_made_anew(shared: Path, tmp_path: Path) -> None:
    inputs = Inputs(None, load_settings(home=tmp_path), "orders", {}, schemas={})  # type: ignore[arg-type]
    folders = []
    for _ in range(2):
        folder = Path(inputs.folder("landing"))
        folders.append(folder)
        assert folder.parent == shared and list(folder.iterdir()) == []
        status = folder.lstat()
        assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (os.geteuid(), 0o700)
        assert Path(inputs.folder("landing")) == folder, "one for all sources"
        shutil.rmtree(folder)  # as a sweeper does with what is old
    assert folders[0] != folders[1]
