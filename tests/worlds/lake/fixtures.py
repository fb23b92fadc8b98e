"""What the lake's tests share: a `Lake` over the test's own folder."""

from collections.abc import Callable
from pathlib import Path

import pytest

from backend.lake.lake import Lake
from backend.settings import load_settings


@pytest.fixture
def open_lake(tmp_path: Path) -> Callable[..., Lake]:
    """`open_lake()` reads tmp_path/lake; `open_lake(a, b, health={…})` other roots and settings (also `home`)."""

    def build(*roots: Path, **sections: object) -> Lake:
        chosen = [str(root) for root in roots] or [str(tmp_path / "lake")]
        given = {"home": tmp_path, "lake": {"roots": chosen, "refresh_s": 0.001}, **sections}
        return Lake(load_settings(**given))

    return build


@pytest.fixture
def lake(root: Path, open_lake: Callable[..., Lake]) -> Lake:
    """The lake of tmp_path/lake: a test writes its tables there and finds them."""
    return open_lake()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    folder.mkdir()
    return folder
