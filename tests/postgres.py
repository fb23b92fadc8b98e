"""A database of one's own on the PostgreSQL of the tests; tests that need it are skipped without."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy.engine import make_url

POSTGRES = "WEIR_TEST_POSTGRES_URL"


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
