"""Checkpoints on a disk, moved aside and back by jobs that may begin twice. No session is asked for these."""

from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from pipelines.jvm.hadoop import CheckpointFiles


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
