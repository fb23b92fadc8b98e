"""A fresh store per test: SQLite always, PostgreSQL too when WEIR_TEST_POSTGRES_URL is set."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.store.store import ControlStore
from tests.worlds.store.postgres import POSTGRES, empty_postgres_url
from tests.worlds.store.stream_store import copy_of_empty_store

POSTGRES_MARKS = (pytest.mark.postgres, pytest.mark.ci)
DATABASES = ["sqlite", *([pytest.param("postgresql", marks=POSTGRES_MARKS)] if os.environ.get(POSTGRES) else [])]


@pytest.fixture(params=DATABASES)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without any table, or none yet."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'deep' / 'weir.db'}"
        return
    with empty_postgres_url() as url:
        yield url


@pytest.fixture
def store_url(empty_url: str) -> str:
    if empty_url.startswith("sqlite"):
        copy_of_empty_store(Path(empty_url.removeprefix("sqlite:///")))
    return empty_url


@pytest.fixture
def store(store_url: str) -> Iterator[ControlStore]:
    opened = ControlStore(store_url)
    yield opened
    opened.close()
