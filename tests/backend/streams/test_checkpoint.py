"""A stream's checkpoint read from its folder: what was planned, what was finished, where the sources stood."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.errors import CheckpointError, ObjectMissingError, PathRefusedError
from backend.lake.storage.folder import Folder
from backend.lake.storage.storage import declared_folder
from backend.settings import load_settings
from backend.streams.checkpoint import query_id, read_checkpoint, read_offsets
from tests.worlds.streams.checkpoints import write_checkpoint

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints" / "silver"


@pytest.fixture
def folder(tmp_path: Path, place: Path) -> Folder:
    return declared_folder(load_settings(home=tmp_path), str(place))


@pytest.mark.parametrize(
    ("planned", "finished", "processed"),
    [
        ([], [], None),
        ([0], [], None),
        ([0], [0], 0),
        ([7, 8, 9], [7, 8], 8),
        ([7, 8, 9], [7, 8, 9], 9),
        ([8, 9], [], 8),  # its commits are gone: Spark runs the last batch again, and no other
        ([9, 10], [9, 10, 11], 10),
    ],
)
def test_the_last_batch_that_spark_will_not_run_again(
    place: Path, folder: Folder, planned: list[int], finished: list[int], processed: int | None
) -> None:
    write_checkpoint(place, {batch: ["{}"] for batch in planned}, finished=finished)
    found = read_checkpoint(folder)
    assert (found.planned, found.finished, found.processed_batch) == (tuple(planned), tuple(finished), processed)


def test_a_folder_that_is_not_there_is_an_empty_checkpoint(folder: Folder) -> None:
    assert read_checkpoint(folder).is_empty
    with pytest.raises(ObjectMissingError):
        query_id(folder)


def test_offsets_name_each_source_and_what_had_none(place: Path, folder: Folder) -> None:
    write_checkpoint(place, {3: ['{"logOffset":3}', None]}, at=AT)
    found = read_offsets(folder, 3)
    assert found.sources == ('{"logOffset":3}', None)
    assert found.planned_at == AT
    assert found.conf == {"spark.sql.shuffle.partitions": "2"}
    assert found.watermark is None, "0 is what Spark writes before it knows"
    assert query_id(folder) == "query-1"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "offsets/3 is empty"),
        (b"v1\n{}", "names no source"),
        (b"v1\n{\n{}", "offsets/3 is not JSON"),
        (b"v7\n{}\n{}", "has format v7"),
        (b"\x00\xff\n", "is no text"),
        (b"garbage", "begins with 'garbage'"),
        (None, "offsets/3 is missing"),
    ],
)
def test_offsets_that_cannot_be_read_name_their_file(
    place: Path, folder: Folder, content: bytes | None, said: str
) -> None:
    write_checkpoint(place, {3: ["{}"]})
    file = place / "offsets" / "3"
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(CheckpointError, match=said) as refused:
        read_offsets(folder, 3)
    assert refused.value.file == "offsets/3"


@pytest.mark.parametrize("content", ["", "[]", '{"id": 3}', "{"])
def test_metadata_that_names_no_query_is_told(place: Path, folder: Folder, content: str) -> None:
    write_checkpoint(place, {})
    (place / "metadata").write_text(content)
    with pytest.raises(CheckpointError, match="metadata"):
        query_id(folder)


def test_a_checkpoint_outside_the_home_and_the_roots_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with pytest.raises(PathRefusedError):
        declared_folder(load_settings(home=home), str(tmp_path / "elsewhere"))
