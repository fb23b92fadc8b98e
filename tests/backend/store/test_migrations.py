"""Opening a store brings it to the newest schema, whoever else opens it."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from backend.errors import StoreError
from backend.store import migrate
from backend.store.schema import metadata
from backend.store.store import ControlStore

OPEN = """
import sys
from backend.store.store import ControlStore
print("ready", flush=True)
sys.stdin.readline()
ControlStore(sys.argv[1]).desired()
"""


def test_the_migrations_make_the_schema_that_the_code_uses(store: ControlStore, store_url: str) -> None:
    engine = sa.create_engine(store_url)
    with engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata)
    engine.dispose()
    assert differences == []


def test_processes_that_open_an_empty_store_at_once_all_succeed(store_url: str) -> None:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    racers = [subprocess.Popen([sys.executable, "-c", OPEN, store_url], **pipes, text=True) for _ in range(4)]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    ends = [(racer.communicate(timeout=60)[1], racer.returncode) for racer in racers]
    assert [code for _, code in ends] == [0] * 4, ends


def test_sqlite_is_in_wal_mode(tmp_path: Path) -> None:
    ControlStore(f"sqlite:///{tmp_path / 'weir.db'}").close()
    with sqlite3.connect(tmp_path / "weir.db") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize(("revision", "maker"), [("9999", "a newer Weir"), ("0003", "before its first release")])
def test_a_store_of_another_weir_is_refused(store: ControlStore, store_url: str, revision: str, maker: str) -> None:
    engine = sa.create_engine(store_url)
    with engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE alembic_version SET version_num = '{revision}'"))
    engine.dispose()
    with pytest.raises(StoreError, match=maker):
        ControlStore(store_url)


def test_a_file_that_is_no_database_is_a_store_error(tmp_path: Path) -> None:
    path = tmp_path / "weir.db"
    path.write_text("this is not SQLite, whatever its name says" * 50)
    with pytest.raises(StoreError, match="not a database"):
        ControlStore(f"sqlite:///{path}")


def test_the_newest_revision_is_known_without_reading_the_migrations() -> None:
    scripts = ScriptDirectory(str(migrate.MIGRATIONS))
    assert scripts.get_current_head() == migrate.HEAD
