"""Brings a store to the newest schema.

Rule: one transaction under the store's write lock. So two processes that open an empty store at once both succeed, and
a killed migration leaves nothing behind.
"""

import time
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy.engine import Connection

from backend.errors import StoreError
from backend.store.engine import BUSY_TIMEOUT_S, Database

ADVISORY_LOCK = 0x57454952  # "WEIR"
FIRST_RELEASE = "0008"


def migrate(database: Database) -> None:
    """Upgrades to the newest revision; does not write when the store is there already."""
    config = _config()
    head = ScriptDirectory.from_config(config).get_current_head()
    with database.reading() as connection:
        if _revision(connection) == head:
            return
    if database.is_sqlite:
        _use_wal(database)
    with database.writing() as connection:
        if not database.is_sqlite:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(ADVISORY_LOCK)))
        _upgrade(config, connection)


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _upgrade(config: Config, connection: Connection) -> None:
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as exc:
        is_older = (_revision(connection) or "") < FIRST_RELEASE
        raise StoreError(
            f"the control store was made by {'Weir before its first release' if is_older else 'a newer Weir'}",
            hint="run that version, or point WEIR_STORE__URL elsewhere",
        ) from exc


def _use_wal(database: Database) -> None:
    """SQLite may answer "locked" at once, without its busy time-out, when two processes switch the journal together."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            with database.autocommit() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode = WAL")
            return
        except StoreError as exc:
            if "locked" not in exc.message or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
