"""Pages and hosts are killed with SIGKILL at any moment: no act is lost or done twice, and the page is soon back."""

import os
import random
import secrets
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from backend.stream_model.stream import DesiredState
from tests.worlds.hosts.engine import STREAMS
from tests.worlds.hosts.world import World
from tests.worlds.processes import free_port, wait_until

pytestmark = pytest.mark.timeout(1_800)
VICTIMS = ("host", "clicker", "host", "clicker", "page")


@dataclass
class Pages:
    """The pages' server, and a process that asks for acts as it does; each can be killed and started anew."""

    world: World
    port: int = field(default_factory=free_port)
    accepted: list[str] = field(default_factory=list)
    _server: "subprocess.Popen[bytes] | None" = None
    _clicker: "subprocess.Popen[bytes] | None" = None
    _told: int = 0

    def start_server(self) -> None:
        self._server = self._spawn("app.server.asgi", "page")
        wait_until(self._answers, "the page answers")

    def start_clicker(self) -> None:
        self._told += 1
        self._clicker = self._spawn("tests.worlds.hosts.clicker", f"acts-{self._told}")
        wait_until(self._acts, "it asks for acts")

    def kill_server(self) -> None:
        _kill(self._server)

    def kill_clicker(self) -> None:
        _kill(self._clicker)
        self.accepted += self._acts()

    def _acts(self) -> list[str]:
        """Whole lines: what it was about to say when it died, nobody was told."""
        return [line for line in self._out(f"acts-{self._told}").read_text().split("\n")[:-1] if line]

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=5) as reply:
                return b'"status"' in reply.read()
        except OSError:
            return False

    def _out(self, name: str) -> Path:
        return self.world.folder / f"{name}.txt"

    def _spawn(self, module: str, name: str) -> "subprocess.Popen[bytes]":
        env = {**os.environ, "WEIR_HOME": str(self.world.folder / "home"), "WEIR_PORT": str(self.port)}
        env |= {"WEIR_STORE__URL": self.world.url, "WEIR_CONFIG": os.devnull}
        with self._out(name).open("ab") as out, self._out(f"{name}-errors").open("ab") as errors:
            return subprocess.Popen([sys.executable, "-m", module], env=env, stdout=out, stderr=errors)


def _kill(process: "subprocess.Popen[bytes] | None") -> None:
    if process is not None:
        process.kill()
        process.wait(60)


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    seed = int(os.environ.get("WEIR_TEST_SEED") or secrets.randbits(32))
    print(f"WEIR_TEST_SEED={seed}")  # noqa: T201 - shown when it fails
    world = World(tmp_path, None, random.Random(seed))
    (tmp_path / "home" / "lake").mkdir(parents=True)
    opened = Pages(world)
    try:
        yield opened
    finally:
        opened.kill_server()
        opened.kill_clicker()
        world.close()


@pytest.mark.parametrize("times", [20, pytest.param(200, marks=pytest.mark.soak)])
def test_killed_at_any_moment_no_act_is_lost_or_done_twice(pages: Pages, times: int) -> None:
    world, dice = pages.world, pages.world.dice
    world.until_as_desired()
    pages.start_server()
    pages.start_clicker()
    for number in range(times):
        world.let_be(0, 0.5)
        match VICTIMS[number % len(VICTIMS)]:
            case "host":
                world.until(lambda: world.kill_host(dice.choice(world.slots), 0))
            case "clicker":
                pages.kill_clicker()
                pages.start_clicker()
            case "page":
                pages.kill_server()
                pages.start_server()
    pages.kill_clicker()
    print(f"{len(pages.accepted)} acts")  # noqa: T201
    world.until_as_desired()
    check_acts(pages, clickers_killed=times * VICTIMS.count("clicker") // len(VICTIMS) + 1)


def check_acts(pages: Pages, *, clickers_killed: int) -> None:
    """What was accepted is in the audit trail once, and is what is desired; of each killed page one more may be."""
    entries = [entry for entry in pages.world.store.audit_entries(limit=1_000_000) if entry.actor == "ann"]
    told = Counter(entry.reason for entry in entries)
    assert set(told.values()) == {1}
    assert set(pages.accepted) <= told.keys()
    assert len(told) - len(pages.accepted) <= clickers_killed
    asked = Counter(entry.subject for entry in entries)
    for name, wanted in pages.world.store.desired().items():
        assert wanted.generation == 1 + asked[name]
        last = next((entry for entry in entries if entry.subject == name), None)
        if last is not None:
            assert wanted.state is (DesiredState.STOPPED if last.action == "stop" else DesiredState.RUNNING)
            assert wanted.reason == last.reason
    assert asked.keys() == set(STREAMS)
