"""Opening a store: where it lies, what is no store, and the newest schema, whoever else opens it."""

import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from backend.errors import SettingsError, StoreError
from backend.lake.model import TableRef
from backend.settings import load_settings
from backend.store.engine import HEAD, Database
from backend.store.schema import metadata
from backend.store.store import ControlStore
from backend.stream_model.stream import DesiredState
from tests.worlds.store.statements import past_the_store
from tests.worlds.store.values import DECLARATION, FRESH, JOB, JUMP, NOW, judgement, observed, progress

STORES = Path(__file__).parents[2] / "worlds" / "store"

OPEN = """
import sys
from backend.store.store import ControlStore
print("ready", flush=True)
sys.stdin.readline()
ControlStore(sys.argv[1]).desired()
"""


@pytest.fixture
def baseline_url(empty_url: str) -> str:
    """A store of the oldest schema that is read, with rows in its tables."""
    path = Path(empty_url.partition(":///")[2])
    if empty_url.startswith("sqlite"):
        path.parent.mkdir()
        with sqlite3.connect(path) as connection:
            connection.executescript((STORES / "schema_0017.sqlite.sql").read_text())
    else:
        with past_the_store(empty_url) as connection:
            connection.exec_driver_sql((STORES / "schema_0017.postgresql.sql").read_text())
    return empty_url


def assert_is_newest(url: str) -> None:
    with past_the_store(url) as connection:
        differences = compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata)
        (revision,) = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalars()
    assert (differences, revision) == ([], HEAD)


def test_a_new_store_has_the_schema_that_the_code_uses(empty_url: str) -> None:
    ControlStore(empty_url).close()
    assert_is_newest(empty_url)


def test_a_store_of_the_baseline_gets_the_schema_that_the_code_uses(baseline_url: str) -> None:
    ControlStore(baseline_url).close()
    assert_is_newest(baseline_url)


def test_what_a_store_of_the_baseline_holds_is_read(baseline_url: str) -> None:
    store = ControlStore(baseline_url)
    name = DECLARATION.name
    assert store.declarations() == {name: DECLARATION}
    wanted, seen = store.desired()[name], store.observed()[name]
    assert (wanted.state, wanted.generation, wanted.actor, wanted.requested_at) == (DesiredState.RUNNING, 1, "ann", NOW)
    assert seen == observed(last_trigger_at=NOW)
    assert store.progress(name) == [progress(1), progress(2)]
    assert [run.input_rows for run in store.runs(name)] == [20], "one batch is added up, one is not yet"
    assert [host.streams for host in store.hosts()] == [(name,)] and len(store.leases()) == 0
    old = replace(JUMP, job="", rows=None, where="", repair="")
    assert store.judgements() == [judgement(FRESH)] and store.noticed.open() == [old]
    assert store.topic_ends()[name][0].ends == {"t": {0: 7}} and store.backlogs()[name].seen_at == NOW
    assert store.pins.of_table(TableRef("/lake/silver/orders", "silver/orders", "/lake"))[0].name == "may"
    assert store.saved.get("Totals").text == "SELECT 1" and len(store.told.items()) == 1
    assert store.jobs.find(JOB.fingerprint) in store.jobs.unfinished()
    assert [entry.action for entry in store.audit_entries()] == ["diff job", "save query", "pin", "start"]
    assert store.unreadable() == ()
    checked = store.verify_audit()
    assert (checked.problem, checked.first, checked.head.number) == ("", 1, 4), "it is chained as it was found"
    store.add_progress([progress(3)])
    assert store.roll_up(store.not_rolled_up()) == 2
    store.close()


def test_a_trail_with_gaps_is_counted_anew(baseline_url: str) -> None:
    with past_the_store(baseline_url) as connection:
        connection.execute(sa.text("UPDATE audit SET id = 400 WHERE id = 4"))
        connection.execute(sa.text("DELETE FROM audit WHERE id = 2"))
    store = ControlStore(baseline_url)
    assert [entry.id for entry in store.audit_entries()] == [3, 2, 1] and store.verify_audit().problem == ""
    assert [entry.action for entry in store.audit_entries()] == ["diff job", "save query", "start"]
    store.close()


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


@pytest.mark.parametrize(("revision", "maker"), [("9999", "a newer Weir"), ("0008", "an earlier Weir")])
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
        store.ensure_all_desired(["x"], DesiredState.RUNNING, now=NOW.replace(tzinfo=None))


@pytest.mark.parametrize("url", ["sqlite://", "mysql://x/y", "not a url"])
def test_urls_that_cannot_work_are_settings_errors(url: str) -> None:
    with pytest.raises(SettingsError, match=r"store\.url"):
        ControlStore(url)


def test_an_unreachable_database_is_a_store_error_without_its_password() -> None:
    with pytest.raises(StoreError) as unreachable:
        ControlStore("postgresql://weir:s3cret@127.0.0.1:1/weir")
    assert "s3cret" not in unreachable.value.message
    assert "127.0.0.1" in unreachable.value.message
