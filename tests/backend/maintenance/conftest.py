"""What acts and policies share: a table of many small files, made once and copied."""

import shutil
from pathlib import Path

import pytest

from tests.worlds.lake import builders


@pytest.fixture(scope="session")
def clicks_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return builders.partitioned_table(tmp_path_factory.mktemp("clicks") / "clicks", days=2, files_per_day=6)


@pytest.fixture
def clicks(tmp_path: Path, clicks_once: Path) -> Path:
    """`bronze/clicks` of the test's own lake: two partitions of six files."""
    return Path(shutil.copytree(clicks_once, tmp_path / "lake" / "bronze" / "clicks"))
