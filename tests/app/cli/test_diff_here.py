"""Ctrl-C while `weir diff` compares in its own process, with a real signal."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from app.cli import INTERRUPTED
from app.cli.tables.compare import here
from backend.changes.cache import Differences
from backend.changes.model import Partial, Question, VersionDiff
from backend.errors import DiffError
from backend.lake.lake import Lake
from backend.settings import load_settings
from backend.sql.session import CancelToken
from tests.worlds.lake import builders
from tests.worlds.lake.diffs import NOWHERE, but, diff
from tests.worlds.processes import wait_until

NO_LAKE: Any = None


@pytest.fixture
def whole(tmp_path: Path) -> VersionDiff:
    for n in (1, 2):
        builders.write(tmp_path / "lake" / "orders", {"id": [n]})
    lake = Lake(load_settings(home=tmp_path / "home", lake={"roots": [str(tmp_path / "lake")]}))
    return diff(lake, lake.find("orders"), 0, 1)


def press_ctrl_c(token: CancelToken) -> None:
    """As the terminal sends it; returns when it was noticed."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    wait_until(lambda: token.ending() is not None, "the comparison was told to end", pause_s=0.001)


def compared(compute: Callable[[CancelToken], VersionDiff]) -> VersionDiff:
    """As the command has it computed."""
    differences = Differences(compute=lambda _lake, _question, token: compute(token))
    return here(differences, NO_LAKE, Question(NOWHERE, 0, 1))


def test_ctrl_c_leaves_what_was_compared(whole: VersionDiff, capsys: pytest.CaptureFixture[str]) -> None:
    def slow(token: CancelToken) -> VersionDiff:
        press_ctrl_c(token)
        return but(whole, partial=Partial(token.ended(), 1, 2))

    assert compared(slow).changes.partial == Partial("cancelled", 1, 2)
    assert "Ctrl-C again leaves at once" in capsys.readouterr().err


def test_ctrl_c_before_anything_was_compared_is_an_interruption() -> None:
    def slow(token: CancelToken) -> VersionDiff:
        press_ctrl_c(token)
        token.check()
        raise AssertionError

    with pytest.raises(KeyboardInterrupt):
        compared(slow)


def test_a_second_ctrl_c_waits_for_nothing() -> None:
    released = threading.Event()

    def deaf(token: CancelToken) -> VersionDiff:
        press_ctrl_c(token)
        press_ctrl_c(token)
        released.wait()
        raise AssertionError

    with pytest.raises(KeyboardInterrupt):
        compared(deaf)
    released.set()


@pytest.fixture(scope="module")
def many_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with a table whose versions take a second to compare."""
    home, keys = tmp_path_factory.mktemp("many"), np.random.default_rng(1)
    for _ in range(2):
        rows = pa.table({"id": keys.permutation(1_000_000), "v": keys.random(1_000_000)})
        write_deltalake(str(home / "lake" / "many"), rows, mode="overwrite")
    return home


@pytest.mark.parametrize("is_noticed", [False, True], ids=["both at once", "one after the other"])
def test_leaving_at_once_while_a_comparison_runs_is_no_abort(many_rows: Path, tmp_path: Path, is_noticed: bool) -> None:
    """A thread that comes back from native code while Python ends would abort the process (exit code -6)."""
    argv = [sys.executable, "-m", "app.cli", "diff", "many", "--from", "0", "--to", "1", "--key", "id", "--json"]
    env = {**os.environ, "WEIR_HOME": str(many_rows), "TMPDIR": str(tmp_path)}
    # Unbuffered: reading one line must not take what `communicate` is to get.
    process = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, bufsize=0)
    wait_until(lambda: list(tmp_path.glob("weir-diff-*")) != [], "the comparison's database")
    process.send_signal(signal.SIGINT)
    wait_until(lambda: not _is_pending(signal.SIGINT, process.pid), "the first was taken")  # else both are one
    if is_noticed:
        assert process.stderr is not None and process.stderr.readline().startswith(b"ended: ")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED, said
    assert said.endswith(b"error: interrupted\n")
    assert list(tmp_path.iterdir()) == []  # nor are its temporary files left behind


def _is_pending(number: signal.Signals, pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    masks = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


def test_an_answer_and_an_error_come_through(whole: VersionDiff) -> None:
    def fails(token: CancelToken) -> VersionDiff:
        raise DiffError("no")

    assert compared(lambda _: whole) is whole
    with pytest.raises(DiffError, match="no"):
        compared(fails)
