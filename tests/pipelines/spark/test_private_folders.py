"""What Weir keeps in the machine's shared temporary folder is its own: nobody else plants files there."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.settings import load_settings
from pipelines.specs import sources
from pipelines.specs.sources import Inputs


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
