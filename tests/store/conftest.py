"""A fresh store per test: SQLite always, PostgreSQL too when WEIR_TEST_POSTGRES_URL is set."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from backend.store.store import ControlStore

POSTGRES = "WEIR_TEST_POSTGRES_URL"
DATABASES = ["sqlite", *([pytest.param("postgresql", marks=pytest.mark.postgres)] if os.environ.get(POSTGRES) else [])]


@contextmanager
def empty_postgres_url() -> Iterator[str]:
    """A new, empty database on the test server; dropped afterwards."""
    server = make_url(os.environ[POSTGRES]).set(drivername="postgresql+psycopg")
    name = f"weir_{uuid.uuid4().hex[:12]}"
    admin = sa.create_engine(server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.exec_driver_sql(f'CREATE DATABASE "{name}"')
    try:
        yield server.set(database=name).render_as_string(hide_password=False)
    finally:
        with admin.connect() as connection:
            connection.exec_driver_sql(f'DROP DATABASE "{name}" WITH (FORCE)')
        admin.dispose()


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
