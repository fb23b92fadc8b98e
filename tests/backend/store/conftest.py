"""A fresh store per test: SQLite always, PostgreSQL too when WEIR_TEST_POSTGRES_URL is set."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.store.store import ControlStore
from tests.worlds.store.postgres import POSTGRES, empty_postgres_url

DATABASES = ["sqlite", *([pytest.param("postgresql", marks=pytest.mark.postgres)] if os.environ.get(POSTGRES) else [])]


@pytest.fixture(params=DATABASES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'deep' / 'weir.db'}"
        return
    with empty_postgres_url() as url:
        yield url


@pytest.fixture
def store(store_url: str) -> Iterator[ControlStore]:
    opened = ControlStore(store_url)
    yield opened
    opened.close()
