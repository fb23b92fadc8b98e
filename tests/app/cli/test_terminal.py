"""What every command of `weir` does alike: its words on wrong input, what it prints, and how its process ends."""

import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.cli.output import NARROWEST, table_lines
from backend.store.store import ControlStore
from tests.worlds.lake import builders
from tests.worlds.processes import wait_until
from tests.worlds.terminal import Weir


@pytest.mark.parametrize(
    ("typed", "code", "words"),
    [
        ("table nope", 3, "nope"),
        ("history /etc", 4, ""),
        ("table orders --version 99", 3, "99"),
        ("table orders --version banana", 2, "banana"),
        ("table broken", 1, ""),
        ("versions nowhere", 3, "nowhere"),
        ("versions orders --at 9", 3, "9"),
        ("versions orders --at x", 2, "x"),
        ("diff orders --from 0", 2, "--to"),
        ("diff orders --from 0 --to 1 --key nope", 3, "nope"),
        ("diff orders --from 0 --to 1 --columns nope", 3, "nope"),
        ("diff orders --from 0 --to 1 --output x.xls", 2, "x.xls"),
        ("diff orders --from 0 --to 1 --on moon", 2, "'here', 'host'"),
        ("diff orders --from 0 --to 1 --output no/such/folder.csv", 1, "folder.csv"),
        ("export orders -o x.xls", 2, "csv, parquet, arrow, json"),
        ("export orders -o no/such/folder.csv", 1, "folder.csv"),
        ("export orders --columns nope -o a.csv", 3, "'nope'"),
        ("export orders --where 'amount >> 1' -o a.csv", 2, ""),
        ("history orders --limit 0", 2, "limit"),
        ("history orders --limit many", 2, "--limit"),
        ("tables --nope", 2, "--nope"),
        ("nope", 2, "nope"),
        ("table", 2, ""),
        ("stream nope", 3, "nope"),
        ("preflight nope", 3, "nope"),
        ("stop nope --reason x", 3, "nope"),
        ("stop flows", 2, "--reason"),
        ("stop flows --reason '  '", 4, "reason"),
        ("stop --reason x", 2, "--all"),
        ("stop flows --all --reason x", 2, "one way"),
        ("stop --all --downstream --reason x", 2, "one way"),
        ("stop --layer platinum --dry-run", 3, "platinum"),
        ("stop --tag team=x --reason x", 3, "team=x"),
        ("start --upstream-of nope --reason x", 3, "nope"),
    ],
)
def test_wrong_input_ends_with_words_and_a_code(
    weir: Weir, lake: Path, store: ControlStore, typed: str, code: int, words: str
) -> None:
    answer = weir(*shlex.split(typed))
    assert (answer.code, answer.out) == (code, "")
    assert answer.err.startswith("error: ") and "\nhint: " in answer.err
    assert words in answer.err


def test_what_is_typed_in_another_encoding_is_a_usage_error(weir: Weir, store: ControlStore) -> None:
    before = store.desired()
    for args in (("stop", "flows", "--reason", "\udcff"), ("cancel", "\udcff", "--reason", "x")):
        answer = weir(*args)
        assert (answer.code, answer.out) == (2, "") and answer.err.startswith("error: what was typed is not UTF-8\n")
    assert store.desired() == before


@pytest.mark.parametrize("command", ["tables", "up", "ui", "host", "demo"])
def test_wrong_settings_are_a_usage_error_before_anything_starts(
    weir: Weir, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("WEIR_PORT", "0")
    answer = weir(command)
    assert (answer.code, "port" in answer.err) == (2, True)


def test_a_store_that_does_not_answer_is_told_without_its_password(weir: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_STORE__URL", "postgresql+psycopg://me:s3cret@127.0.0.1:1/none")
    answer = weir("streams")
    assert answer.code == 1
    assert answer.err.startswith("error: ")
    assert "s3cret" not in answer.err + answer.out


RED, HOSTILE = "\x1b[31mred", "\x1b]0;pwned\x07\x1b[2J\x9b2Jcol"


@pytest.mark.parametrize(
    "args",
    [
        ("tables",),
        ("table", "t"),
        ("table", "t", "--json"),
        ("table", RED),
        ("files", RED),
        ("versions", RED),
        ("health", RED),
        ("profile", "t"),
        ("diff", "t", "--from", "0", "--to", "1"),
        ("diff", RED, "--from", "0", "--to", "1"),
        ("diff", "t", "--from", "0", "--to", "1", "--key", "nope"),
        ("export", "t", "--columns", "nope", "-o", "some.csv"),
        ("export", RED, "-o", "all.csv"),
    ],
)
def test_names_of_columns_and_folders_cannot_drive_the_terminal(weir: Weir, home: Path, args: Sequence[str]) -> None:
    path = builders.write(
        home / "lake" / "t", {"id": [1], HOSTILE: ["a"]}, description=f"{RED} [bold]gone[/bold] :cat:"
    )
    builders.write(path, {"id": [2], HOSTILE: ["b"]})
    shutil.copytree(path, path.with_name(RED))
    answer = weir(*args)
    assert "[bold]gone[/bold] :cat:" in answer.out or args != ("table", "t"), "markup is text"
    said = answer.out + answer.err
    assert "�" in said or "\\u009b2Jcol" in said, "else this test would say nothing"
    assert [c for c in said if not c.isprintable() and c != "\n"] == []


def test_help_lists_every_command(weir: Weir) -> None:
    answer = weir("--help")
    assert answer.code == 0
    listed = re.findall(r"^  ([a-z]+) ", answer.out, re.MULTILINE)
    assert len(listed) > 40 and [name for name in listed if weir(name, "--help").code != 0] == []
    for command in ("up", "ui", "host", "demo", "tables", "diff", "streams", "start", "stop", "restart", "health"):
        assert command in answer.out
    headings = [line for line in answer.out.splitlines() if line.endswith(":")]
    assert headings == ["Options:", "Read:", "Act:", "Run:"]
    assert weir("--version").out.startswith("weir ")


# -- as a process -----------------------------------------------------------------------------------------------------

WEIR = [sys.executable, "-m", "app.cli"]


def shell(command: str) -> tuple[int, bytes, bytes]:
    """How `weir` with these words of a shell ends, and what it prints."""
    ended = subprocess.run(["sh", "-c", f"{shlex.join(WEIR)} {command}"], capture_output=True, timeout=60, check=False)
    return ended.returncode, ended.stdout, ended.stderr


def test_a_reader_that_leaves_early_makes_no_noise(home: Path, lake: Path) -> None:
    process = subprocess.Popen([*WEIR, "history", "orders", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (1, b"")


@pytest.mark.parametrize(
    ("command", "code"),
    [("history orders --json >&-", 0), ("table nope 2>&-", 3), ("tables <&- >&- 2>&-", 0)],
)
def test_closed_streams_change_no_exit_code_and_make_no_noise(home: Path, lake: Path, command: str, code: int) -> None:
    assert shell(command) == (code, b"", b"")


@pytest.mark.parametrize(("command", "unbuffered"), [("tables", ""), ("history orders --json", "1"), ("--help", "")])
def test_a_full_disk_under_the_output_is_said_once(
    home: Path, lake: Path, monkeypatch: pytest.MonkeyPatch, command: str, unbuffered: str
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    code, _, err = shell(f"{command} >/dev/full")
    assert (code, err) == (1, b"error: standard output cannot be written: No space left on device\n")


def test_ctrl_c_ends_without_a_traceback(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that accepts and never answers holds the command inside its work."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        monkeypatch.setenv("WEIR_STORE__URL", f"postgresql+psycopg://me@127.0.0.1:{port}/none?sslmode=disable")
        process = subprocess.Popen([*WEIR, "streams"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        silent.settimeout(60)
        with silent.accept()[0]:
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.strip() == b"error: interrupted"


def test_demo_becomes_the_generator_and_ends_with_it(home: Path) -> None:
    process = subprocess.Popen([*WEIR, "demo"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        landed = (home / "landing").rglob
        wait_until(lambda: any(landed("*.jsonl")) or process.poll() is not None, "a file is landed")
        assert process.poll() is None
        process.send_signal(signal.SIGINT)  # one process: a child left behind would not see it
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, b"Traceback" in err) == (0, False), err


def test_a_table_is_aligned_and_folded_where_the_terminal_is_narrow() -> None:
    rows = [("table", "rows"), ("日本", "7"), ("a" * 30, "1,204")]
    whole = table_lines(rows, [False, True], None)
    assert whole == [
        ["table".ljust(30) + "   rows"],
        ["日本" + " " * 26 + "      7"],
        ["a" * 30 + "  1,204"],
    ]
    assert table_lines(rows, [False, True], 22)[2] == ["a" * 15 + "  1,204", "a" * 15]
    words = [("why",), ("stopped two minutes ago",)]
    assert table_lines(words, [False], 12) == [["why"], ["stopped two", "minutes ago"]]
    tiny = table_lines(rows, [False, True], 3)
    assert max(len(line) for lines in tiny for line in lines) == NARROWEST + 2 + 5, "no column is folded to nothing"
