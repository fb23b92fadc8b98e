"""Opening a store: where it lies, what is no store, and the newest schema, whoever else opens it."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from backend.errors import SettingsError, StoreError
from backend.settings import load_settings
from backend.store.engine import Database
from backend.store.schema import metadata
from backend.store.store import ControlStore
from backend.stream_model.stream import DesiredState
from tests.worlds.store.statements import past_the_store
from tests.worlds.store.values import NOW

OPEN = """
import sys
from backend.store.store import ControlStore
print("ready", flush=True)
sys.stdin.readline()
ControlStore(sys.argv[1]).desired()
"""


def test_the_migrations_make_the_schema_that_the_code_uses(empty_url: str) -> None:
    ControlStore(empty_url).close()
    with past_the_store(empty_url) as connection:
        differences = compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata)
    assert differences == []


def test_processes_that_open_an_empty_store_at_once_all_succeed(empty_url: str) -> None:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    racers = [subprocess.Popen([sys.executable, "-c", OPEN, empty_url], **pipes, text=True) for _ in range(4)]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    ends = [(racer.communicate(timeout=60)[1], racer.returncode) for racer in racers]
    assert [code for _, code in ends] == [0] * 4, ends


def test_the_store_of_the_settings_is_made_under_home_in_wal_mode(tmp_path: Path) -> None:
    ControlStore.open(load_settings(home=tmp_path)).close()
    with sqlite3.connect(tmp_path / "store" / "weir.db") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize(("revision", "maker"), [("9999", "a newer Weir"), ("0003", "before its first release")])
def test_a_store_of_another_weir_is_refused(store: ControlStore, store_url: str, revision: str, maker: str) -> None:
    with past_the_store(store_url) as connection:
        connection.execute(sa.text(f"UPDATE alembic_version SET version_num = '{revision}'"))
    with pytest.raises(StoreError, match=maker):
        ControlStore(store_url)


def test_a_file_that_is_no_database_is_a_store_error(tmp_path: Path) -> None:
    path = tmp_path / "weir.db"
    path.write_text("this is not SQLite, whatever its name says" * 50)
    with pytest.raises(StoreError, match="not a database"):
        ControlStore(f"sqlite:///{path}")


@pytest.mark.parametrize(
    ("place", "mode", "is_told"),
    [
        ("db.example.com", "", True),
        ("db.example.com:5433", "verify-ca", True),
        ("db.example.com", "verify-full", False),
        ("[2001:db8::5]", "require", True),
        ("localhost", "", False),
        ("[::1]", "", False),
        ("", "", False),
    ],
)
def test_a_start_says_that_nothing_verifies_a_database_elsewhere(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, place: str, mode: str, is_told: bool
) -> None:
    monkeypatch.delenv("PGHOST", raising=False)
    url = f"postgresql+psycopg://weir@{place}/weir"
    for in_url, in_environment in ((mode, ""), ("", mode)):
        caplog.clear()
        monkeypatch.setenv("PGSSLMODE", in_environment)
        Database(f"{url}?sslmode={in_url}" if in_url else url).dispose()
        assert ("sslmode=verify-full" in caplog.text) is is_told


def test_naive_times_are_refused(store: ControlStore) -> None:
    with pytest.raises(StoreError, match="aware"):
        store.ensure_desired("x", DesiredState.RUNNING, now=NOW.replace(tzinfo=None))


@pytest.mark.parametrize("url", ["sqlite://", "mysql://x/y", "not a url"])
def test_urls_that_cannot_work_are_settings_errors(url: str) -> None:
    with pytest.raises(SettingsError, match=r"store\.url"):
        ControlStore(url)


def test_an_unreachable_database_is_a_store_error_without_its_password() -> None:
    with pytest.raises(StoreError) as unreachable:
        ControlStore("postgresql://weir:s3cret@127.0.0.1:1/weir")
    assert "s3cret" not in unreachable.value.message
    assert "127.0.0.1" in unreachable.value.message
