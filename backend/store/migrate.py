"""Makes a new store, and brings one that is there to the newest schema.

Rule: one transaction under the store's write lock. So two processes that open an empty store at once both succeed, and
a killed migration leaves nothing behind.
"""

import time
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from backend.errors import StoreError
from backend.store.engine import BUSY_TIMEOUT_S, Database
from backend.store.schema import metadata

ADVISORY_LOCK = 0x57454952  # "WEIR"
BASELINE = "0017"
MIGRATIONS = Path(__file__).parent / "migrations"
HEAD = max(file.name[1:5] for file in (MIGRATIONS / "versions").glob("v[0-9]*.py"))


def migrate(database: Database) -> None:
    """Upgrades to the newest revision; does not write when the store is there already."""
    with database.reading() as connection:
        if _revision(connection) == HEAD:
            return
    if database.is_sqlite:
        _use_wal(database)
    with database.writing() as connection:
        if not database.is_sqlite:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(ADVISORY_LOCK)))
        _upgrade(connection)


def _revision(connection: Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    return revision


def _upgrade(connection: Connection) -> None:
    from alembic import command  # 0.2 s, and most who open a store find it as it should be
    from alembic.config import Config
    from alembic.util.exc import CommandError

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    revision = _revision(connection)
    if revision is None:
        metadata.create_all(connection)
        command.stamp(config, "head")
        return
    if revision < BASELINE:
        raise StoreError(
            f"an earlier Weir made the control store: its schema is {revision}, the oldest that is read is {BASELINE}",
            hint=f"open it once with the Weir of 2026-11-28, which brings it to {BASELINE}, or point WEIR_STORE__URL "
            "at a new store, in which hosts declare their streams anew and the audit trail begins",
        )
    try:
        command.upgrade(config, "head")
    except CommandError as exc:
        raise StoreError(
            f"a newer Weir made the control store: its schema is {revision}, the newest that is known is {HEAD}",
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
