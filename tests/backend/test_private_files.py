"""What Weir keeps for itself is its owner's alone, whatever the umask; what a person saves is as their umask says."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli import main
from backend.private_files import private_folder, write_private
from backend.settings import load_settings
from backend.store.store import ControlStore
from tests.app.run.test_up import script_of
from tests.worlds.lake import builders
from tests.worlds.pages.serving import served


@pytest.fixture(autouse=True, params=[0o000], ids=["umask 0000"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """The one that hides nothing, unless a test says otherwise."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    """What others could enter, read or write, below a folder."""
    there = [folder, *folder.rglob("*")]
    status = {str(path.relative_to(folder.parent)): path.lstat() for path in there}
    return {name: stat.filemode(each.st_mode) for name, each in status.items() if each.st_mode & 0o077}


def test_the_files_of_a_server_and_its_store_are_private(tmp_path: Path) -> None:
    home = tmp_path / "home"
    builders.orders_table(home / "lake" / "orders")
    home.chmod(0o755)
    (home / "logs").mkdir()
    (home / "logs" / "ui.log").write_text("of an older Weir\n")
    with served(home) as server:
        subprocess.run([sys.executable, "-m", "app.cli", "streams"], env=server.env, check=True, capture_output=True)
        store = ControlStore.open(load_settings(home=home))  # held open: its WAL is there
        store.now()
        assert {"weir.db", "weir.db-wal", "weir.db-shm"} <= {file.name for file in (home / "store").iterdir()}
        for folder in ("store", "logs"):
            assert modes(home / folder) == {}
        store.close()


def test_an_older_store_is_closed_to_others_at_start_and_a_folder_of_others_left_alone(tmp_path: Path) -> None:
    ControlStore.open(load_settings(home=tmp_path)).close()
    (tmp_path / "store").chmod(0o755)
    (tmp_path / "store" / "weir.db").chmod(0o644)
    ControlStore.open(load_settings(home=tmp_path)).close()
    assert modes(tmp_path / "store") == {}
    shared = tmp_path / "shared"
    shared.mkdir()
    ControlStore(f"sqlite:///{shared / 'weir.db'}").close()
    assert modes(shared) == {"shared": "drwxrwxrwx"}


@pytest.mark.parametrize("umask", [0o000, 0o022], indirect=True)
def test_caches_are_private(umask: int, tmp_path: Path) -> None:
    folder = tmp_path / "home" / "cache" / "cards"
    write_private(folder / "a.json", b"one")
    write_private(folder / "a.json", b"two")
    assert (folder / "a.json").read_bytes() == b"two"
    assert [file.name for file in folder.iterdir()] == ["a.json"]
    assert modes(folder) == {}
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o755 & ~umask, "tables may lie there as well"
    folder.chmod(0o555)
    assert stat.S_IMODE(private_folder(folder).stat().st_mode) == 0o500, "its owner may not write it still"
    folder.chmod(0o700)


def test_the_locks_of_a_store_survive_its_second_opening(tmp_path: Path) -> None:
    """Closing any descriptor of a file ends the process's locks on it, which SQLite would not notice."""
    settings = load_settings(home=tmp_path)
    first = ControlStore.open(settings)
    try_to_write = (
        "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None).execute('BEGIN IMMEDIATE')"
    )
    with first._database.writing():
        ControlStore.open(settings).close()
        run = subprocess.run(
            [sys.executable, "-c", try_to_write, str(tmp_path / "store" / "weir.db")], capture_output=True, text=True
        )
    first.close()
    assert "database is locked" in run.stderr


def test_up_makes_logs_and_lock_private(tmp_path: Path) -> None:
    """The log of each child too, which is opened before the child has anything to say."""
    code = "print('hello', flush=True); import os, signal; os.kill(os.getppid(), signal.SIGTERM); signal.pause()"
    env = {**os.environ, "WEIR_HOME": str(tmp_path / "home"), "PYTHONUNBUFFERED": "1"}
    run = subprocess.run(
        [sys.executable, "-c", script_of({"one": code}, 2.0)], env=env, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "hello" in (tmp_path / "home" / "logs" / "one.log").read_text()
    assert modes(tmp_path / "home" / "logs") == {}
    assert stat.S_IMODE((tmp_path / "home" / "up.lock").stat().st_mode) == 0o600


@pytest.mark.parametrize("umask", [0o000, 0o077], indirect=True)
def test_an_export_from_the_terminal_is_as_the_umask_says(
    umask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    builders.orders_table(tmp_path / "lake" / "orders")
    monkeypatch.setenv("WEIR_LAKE__ROOTS", f'["{tmp_path / "lake"}"]')
    monkeypatch.setenv("WEIR_HOME", str(tmp_path / "home"))
    with pytest.raises(SystemExit) as ended:
        main(["export", "orders", "--output", str(tmp_path / "rows.csv")])
    assert ended.value.code == 0, capsys.readouterr().err
    assert stat.S_IMODE((tmp_path / "rows.csv").stat().st_mode) == 0o666 & ~umask
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["rows.csv"]
