"""`weir up` with real processes: restart, shutdown, a second start, a busy port, and a killed supervisor."""

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from app.run.supervise import GRACE_S, LONGEST_PAUSE_S, restart_pause_s
from app.run.up import demo_services, page_url
from backend.settings import load_settings
from tests.worlds.processes import free_port, processes_of, wait_until

RUN_PAGE = Path(__file__).parents[3] / "docs" / "run.md"
PAGE = """
    import http.server, os, sys
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200); self.end_headers(); self.wfile.write(b'{"status": "ok"}')
    http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["WEIR_PORT"])), Page).serve_forever()
"""
ANY_PAGE = PAGE.replace('{"status": "ok"}', "<html>any path is the app</html>")
# Ignores SIGTERM and has a child of its own that does too: only the end of the whole group ends them.
STUBBORN_PAIR = """
    import os, signal, subprocess, sys
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()  # " + os.environ["WEIR_HOME"]])
    print("two of us", os.getpid(), flush=True)
    signal.pause()
"""
POLITE = """
    import signal, sys
    signal.signal(signal.SIGTERM, lambda *_: (print("goodbye", flush=True), sys.exit(0)))
    print("hello", flush=True)
    signal.pause()
"""
DIES_TWICE = """
    import os, pathlib, signal, sys
    lives = pathlib.Path(os.environ["WEIR_HOME"], "lives")
    lives.write_text(lives.read_text() + "x" if lives.exists() else "x")
    sys.exit(3) if len(lives.read_text()) < 3 else signal.pause()
"""


def script_of(programs: dict[str, str], grace_s: float = GRACE_S) -> str:
    """A Python program that is `weir up` with these small programs as its services."""
    services = ", ".join(
        f"Service({name!r}, (sys.executable, '-c', {textwrap.dedent(code)!r}))" for name, code in programs.items()
    )
    return textwrap.dedent(f"""
        import sys
        from app.cli import hold_standard_streams
        from app.run.supervise import Service
        from app.run.up import main
        from backend.errors import LakehouseError
        hold_standard_streams()
        try:
            sys.exit(main(services=[{services}], grace_s={grace_s}))
        except LakehouseError as exc:
            print("error:", exc.message, "hint:", exc.hint)
            sys.exit(exc.exit_code)
    """)


class Up:
    """One `weir up` in its own process, on its own home and port, with small programs as services."""

    def __init__(self, home: Path, port: int, *, grace_s: float = GRACE_S, **programs: str) -> None:
        self.home, self.port, self.output = home, port, home.parent / f"out-{time.monotonic_ns()}.txt"
        env = {**os.environ, "WEIR_HOME": str(home), "WEIR_PORT": str(port), "PYTHONUNBUFFERED": "1"}
        with self.output.open("wb") as out:
            argv = [sys.executable, "-c", script_of(programs, grace_s)]
            self.process = subprocess.Popen(argv, env=env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)

    def text(self) -> str:
        return self.output.read_text()

    def log(self, name: str) -> str:
        path = self.home / "logs" / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def wait_for_text(self, text: str) -> None:
        wait_until(lambda: text in self.text(), f"{text!r} in the output of weir up")

    def stop(self, signum: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(signum)
        return self.process.wait(timeout=120)


@contextmanager
def running(home: Path, *, grace_s: float = GRACE_S, **programs: str) -> Iterator[Up]:
    up = Up(home, free_port(), grace_s=grace_s, **programs)
    try:
        yield up
    finally:
        up.process.kill()
        up.process.wait()
        kill_all_of(home)


@contextmanager
def orphaned(home: Path, start: str, *, host: str, grace_s: float = GRACE_S) -> Iterator[int]:
    """The process id of a `weir up` that a shell started (`start` with `{up}` in it) and left; its host says hello."""
    program = home.parent / "up.py"
    program.write_text(script_of({"host": host}, grace_s))
    env = {**os.environ, "WEIR_HOME": str(home), "WEIR_PORT": str(free_port())}
    command = start.format(up=f"{sys.executable} {program}")
    nowhere = subprocess.DEVNULL
    subprocess.run(["sh", "-c", command], env=env, stdout=nowhere, stderr=nowhere, timeout=120, check=True)
    log, lock = home / "logs" / "host.log", home / "up.lock"
    try:
        wait_until(lambda: log.exists() and log.read_text() != "", "the host's first words")
        yield int(lock.read_text())
    finally:
        kill_all_of(home)


def kill_all_of(home: Path) -> None:
    for pid in processes_of(home):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(autouse=True)
def _hangup_is_heard() -> Iterator[None]:
    """Also where the tests themselves were started by nohup: what they start would inherit that."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "weir"


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_says_where_the_page_is_and_stops_on_a_signal(home: Path, signum: signal.Signals) -> None:
    with running(home, ui=PAGE, host=POLITE) as up:
        up.wait_for_text(f"ready at http://127.0.0.1:{up.port}")
        wait_until(lambda: "hello" in up.log("host"), "the host's log")

        assert up.stop(signum) == 0

        assert "goodbye" in up.log("host")
        assert processes_of(home) == []
        assert up.text().count("ready at") == 1


@pytest.mark.parametrize(
    ("start", "signum"),
    [
        ("{up} &", signal.SIGINT),
        ("nohup {up} &", signal.SIGTERM),
        ("setsid {up} <&- &", signal.SIGINT),
        ("{up} | head -n 1 &", signal.SIGTERM),
        ("{up} <&- >&- 2>&- &", signal.SIGINT),
    ],
)
def test_stops_on_a_signal_when_the_shell_that_started_it_is_gone(
    home: Path, start: str, signum: signal.Signals
) -> None:
    """A shell starts what runs in the background with SIGINT ignored. Closed streams are those of a service manager."""
    with orphaned(home, start, host=POLITE) as up:
        os.kill(up, signum)
        wait_until(lambda: processes_of(home) == [], "the end of everything")
        assert "goodbye" in (home / "logs" / "host.log").read_text()  # asked to stop before anyone was killed


@pytest.mark.ci
def test_an_orphan_with_stubborn_children_is_gone_after_its_grace(home: Path) -> None:
    with orphaned(home, "{up} <&- >&- 2>&- &", host=STUBBORN_PAIR, grace_s=0.5) as up:
        os.kill(up, signal.SIGTERM)
        wait_until(lambda: processes_of(home) == [], "the end of everything")


def test_what_nohup_started_outlives_the_terminal(home: Path) -> None:
    def ignores_hangup(pid: int) -> bool:
        (mask,) = re.findall(r"^SigIgn:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        return bool(int(mask, 16) & 1 << (signal.SIGHUP - 1))

    with orphaned(home, "nohup {up} &", host=POLITE) as up:
        assert ignores_hangup(up)
    with orphaned(home.with_name("other"), "{up} &", host=POLITE) as up:
        assert not ignores_hangup(up)


def test_a_page_that_only_answers_is_not_announced(home: Path) -> None:
    with running(home, ui=ANY_PAGE) as up:
        wait_until(lambda: up.log("ui").count("GET /healthz") >= 3, "three probes")

        assert "ready at" not in up.text()


def test_a_second_ctrl_c_ends_even_the_stubborn_at_once(home: Path) -> None:
    with running(home, grace_s=3_600, host=STUBBORN_PAIR) as up:
        wait_until(lambda: "two of us" in up.log("host"), "the pair")
        assert len(processes_of(home)) == 4  # supervisor, guard, and the pair

        up.process.send_signal(signal.SIGINT)
        up.wait_for_text("stopping")
        assert up.stop(signal.SIGINT) == 0
        assert processes_of(home) == []


def test_a_child_that_dies_starts_again_and_the_terminal_says_so(home: Path) -> None:
    with running(home, ui=PAGE, host=DIES_TWICE) as up:
        wait_until(lambda: (home / "lives").exists() and len((home / "lives").read_text()) == 3, "three lives")

        assert "host ended (exit code 3), starting it again in 1 s" in up.text()
        assert "host ended (exit code 3), starting it again in 2 s" in up.text()
        assert "ui ended" not in up.text()


def test_a_killed_child_takes_its_own_children_along(home: Path) -> None:
    with running(home, host=STUBBORN_PAIR) as up:
        wait_until(lambda: "two of us" in up.log("host"), "the pair")
        first = int(up.log("host").split()[3])
        os.kill(first, signal.SIGKILL)
        up.wait_for_text("host ended (killed by SIGKILL)")
        wait_until(lambda: up.log("host").count("two of us") == 2, "the second life")

        assert len(processes_of(home)) == 4  # nothing of the first pair is left beside the second


def test_a_killed_supervisor_leaves_no_child_and_the_next_start_waits_for_that(home: Path) -> None:
    with running(home, ui=PAGE, host=POLITE) as up:
        up.wait_for_text("ready at")
        wait_until(lambda: "hello" in up.log("host"), "the host's log")
        up.process.kill()
        up.process.wait()

        again = Up(home, up.port, ui=PAGE)
        again.wait_for_text("ready at")

        assert "goodbye" in up.log("host")  # asked to stop before anyone was killed
        assert again.stop() == 0
        assert processes_of(home) == []


def test_a_second_up_on_the_same_home_is_refused_and_names_the_first(home: Path) -> None:
    with running(home, ui=PAGE) as up:
        up.wait_for_text("ready at")

        second = Up(home, free_port(), ui=PAGE)

        assert second.process.wait(timeout=60) == 4
        assert f"Weir already runs on {home} (process {up.process.pid})" in second.text()
        assert up.process.poll() is None


def test_a_busy_port_is_refused_before_anything_starts(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = int(taken.getsockname()[1])
        up = Up(home, port, host=POLITE)

        assert up.process.wait(timeout=60) == 2
        assert f"port {port} on 127.0.0.1 is taken" in up.text()
        assert f"WEIR_PORT={port + 1}" in up.text()
        assert up.log("host") == ""


def test_the_pause_before_a_restart_doubles_up_to_a_limit() -> None:
    assert [restart_pause_s(deaths) for deaths in (1, 2, 3)] == [1, 2, 4]
    assert restart_pause_s(1_000) == LONGEST_PAUSE_S


def test_the_generator_runs_only_with_the_demo_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [service.name for service in demo_services(load_settings())] == ["ui", "host", "generator"]
    through_topics = demo_services(load_settings(demo={"kafka": "127.0.0.1:9094"}))
    assert [service.name for service in through_topics] == ["broker", "topics", "ui", "host", "generator"]
    folder, port = through_topics[0].argv[-2:]
    assert port == "9094"
    assert f"| `{Path(folder).name}/` |" in RUN_PAGE.read_text(), "the folders of WEIR_HOME are listed"
    monkeypatch.setenv("WEIR_HOST__PIPELINES", '["mine.streams"]')
    assert [service.name for service in demo_services(load_settings())] == ["ui", "host"]
    monkeypatch.delenv("WEIR_HOST__PIPELINES")
    monkeypatch.setenv("WEIR_DEMO__ENABLED", "false")
    assert [service.name for service in demo_services(load_settings())] == ["ui", "host"]


@pytest.mark.parametrize(
    ("address", "url"),
    [("127.0.0.1", "http://127.0.0.1:8501"), ("0.0.0.0", "http://127.0.0.1:8501"), ("::1", "http://[::1]:8501")],
)
def test_the_announced_url_is_one_a_browser_here_can_open(
    address: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_UI__ADDRESS", address)
    monkeypatch.setenv("WEIR_PORT", "8501")
    assert page_url(load_settings()) == url
