"""A fresh store per test: SQLite always, PostgreSQL too when WEIR_TEST_POSTGRES_URL is set. Tables are made once, and
copied."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from backend.store.store import ControlStore
from tests.worlds.store.postgres import POSTGRES, empty_postgres_url
from tests.worlds.store.stream_store import copy_of_empty_store

POSTGRES_MARKS = (pytest.mark.postgres, pytest.mark.ci)
DATABASES = ["sqlite", *([pytest.param("postgresql", marks=POSTGRES_MARKS)] if os.environ.get(POSTGRES) else [])]


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def empty_url(database: str, tmp_path: Path) -> Iterator[str]:
    """A database without any table, or none yet."""
    if database == "sqlite":
        yield f"sqlite:///{tmp_path / 'deep' / 'weir.db'}"
        return
    with empty_postgres_url() as url:
        yield url


@pytest.fixture(scope="session")
def with_tables() -> Iterator[str | None]:
    """The name of a database on PostgreSQL with every table and no row."""
    with empty_postgres_url() as url:
        ControlStore(url).close()
        yield make_url(url).database


@pytest.fixture
def store_url(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    if database == "sqlite":
        copy_of_empty_store(tmp_path / "deep" / "weir.db")
        yield f"sqlite:///{tmp_path / 'deep' / 'weir.db'}"
        return
    with empty_postgres_url(template=request.getfixturevalue("with_tables")) as url:
        yield url


@pytest.fixture
def store(store_url: str) -> Iterator[ControlStore]:
    opened = ControlStore(store_url)
    yield opened
    opened.close()
