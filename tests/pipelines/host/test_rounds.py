"""The threads of a host: a watch outlives rounds that fail; a loop that hangs ends the host, a slow one does not."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from backend.errors import StoreError
from backend.store.store import ControlStore
from backend.work import Stopped
from pipelines.host.periodic import HUNG_LOOKS, LoopWatch, Rounds, Task
from pipelines.host.stream_host import Loop
from tests.worlds.hosts.in_memory import Runner, host_on
from tests.worlds.processes import wait_until


@pytest.mark.parametrize(("failure", "level"), [(StoreError("silent"), "warning"), (KeyError("odd"), "error")])
def test_a_round_that_fails_is_told_and_the_next_one_comes(failure: Exception, level: str) -> None:
    done: list[int] = []

    def once() -> None:
        done.append(len(done))
        if len(done) == 1:
            raise failure

    rounds = Rounds(Task("watch", 0.01, lambda _: once(), "not_watched"))
    with capture_logs() as logs:
        rounds.start()
        wait_until(lambda: len(done) > 2, "rounds go on")
        rounds.stop(5)
    assert [(each["event"], each["log_level"]) for each in logs] == [("not_watched", level)]


def test_a_reason_that_lasts_is_told_once_and_told_again_when_it_comes_back() -> None:
    fates = [StoreError("away"), StoreError("away"), StoreError("locked"), None, StoreError("locked"), Stopped()]

    def once() -> None:
        if (fate := fates.pop(0)) is not None:
            raise fate

    with capture_logs() as logs:
        Rounds(Task("lasts", 0.01, lambda _: once(), "not_watched")).start()
        wait_until(lambda: not alive("lasts")(), "it has ended")
    assert [line["error"] for line in logs] == ["away", "locked", "locked"]


def alive(name: str) -> Callable[[], bool]:
    return lambda: name in {each.name for each in threading.enumerate()}


def test_a_stop_ends_the_pause_and_a_round_may_end_them_all() -> None:
    waiting = Rounds(Task("waits", 600, lambda _: None, "x"))
    waiting.start()
    waiting.stop(5)
    assert waiting.is_stopping and not alive("waits")()

    def ended() -> None:
        raise Stopped

    Rounds(Task("ends", 600, lambda _: ended(), "x")).start()
    wait_until(lambda: not alive("ends")(), "it has ended")


def test_rounds_that_never_began_can_be_stopped() -> None:
    Rounds(Task("idle", 1, lambda _: None, "x")).stop(5)


def test_rounds_that_take_long_come_less_often() -> None:
    began: list[float] = []

    def slow() -> None:
        began.append(time.monotonic())
        time.sleep(0.05)

    rounds = Rounds(Task("slow", 0.001, lambda _: slow(), "x", longest_pause_s=0.4))
    rounds.start()
    wait_until(lambda: len(began) > 2, "rounds go on")
    rounds.stop(5)
    assert all(after - before >= 0.45 for before, after in pairwise(began))


# the loop -------------------------------------------------------------------------------------------------------------


def loop_watch(ended: list[int]) -> tuple[LoopWatch, list[str]]:
    ends: list[str] = []
    return LoopWatch(lambda: ended[0], ttl_s=20, end=lambda: ends.append("ended")), ends


def test_a_loop_that_does_not_come_round_ends_the_host() -> None:
    looked, ends = loop_watch([7])
    for _ in range(HUNG_LOOKS):
        looked.look()
    assert ends == []
    with capture_logs() as logs:
        looked.look()
    assert ends == ["ended"]
    assert (logs[0]["event"], logs[0]["for_s"]) == ("loop_hangs", 80)


def test_one_round_between_two_looks_is_enough() -> None:
    looked, ends = loop_watch(ended := [0])
    for number in range(5 * HUNG_LOOKS):
        ended[0] += number % (HUNG_LOOKS - 1) == 0
        looked.look()
    assert ends == []


def test_the_process_ends_with_the_stack_of_each_thread() -> None:
    hanging = (
        "import threading; from pipelines.host.periodic import LoopWatch\n"
        "def the_loop(): threading.Event().wait()\n"
        "threading.Thread(target=the_loop, daemon=True).start()\n"
        "watch = LoopWatch(lambda: 1, ttl_s=1)\n"
        "for _ in range(9): watch.look()\n"
    )
    ended = subprocess.run([sys.executable, "-c", hanging], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    assert "in the_loop" in ended.stderr


@pytest.mark.parametrize("raised", [None, StoreError("away"), KeyError("odd")])
def test_rounds_that_fail_are_rounds(store: ControlStore, raised: Exception | None) -> None:
    """A host that waits for its store is not ended."""
    host, stop, ticks = host_on(store, Runner()), threading.Event(), [0]

    class Host:
        clock = host.clock

        def tick(self) -> None:
            ticks[0] += 1
            if ticks[0] == 3:
                stop.set()
            if raised:
                raise raised

    loop = Loop(Host(), stop, interval_s=0.001)  # type: ignore[arg-type]
    assert loop.run() == 0
    assert loop.ended == 3
