"""A loop that hangs ends the host; one that is slow, was frozen or waits for the store does not."""

import subprocess
import sys
import threading

import pytest
from structlog.testing import capture_logs

from backend.errors import StoreError
from backend.store.store import ControlStore
from pipelines.host.loop_watch import LOOKS, LoopWatch
from pipelines.host.stream_host import Loop
from tests.pipelines.host.test_host_loop import Runner, host_on, store  # noqa: F401 (a fixture)


def watch(ended: list[int]) -> tuple[LoopWatch, list[str]]:
    ends: list[str] = []
    return LoopWatch(lambda: ended[0], ttl_s=20, end=lambda: ends.append("ended")), ends


def test_a_loop_that_does_not_come_round_ends_the_host() -> None:
    looked, ends = watch([7])
    for _ in range(LOOKS):
        looked.look()
    assert ends == []
    with capture_logs() as logs:
        looked.look()
    assert ends == ["ended"]
    assert (logs[0]["event"], logs[0]["for_s"]) == ("loop_hangs", 80)


def test_one_round_between_two_looks_is_enough() -> None:
    looked, ends = watch(ended := [0])
    for number in range(5 * LOOKS):
        ended[0] += number % (LOOKS - 1) == 0
        looked.look()
    assert ends == []


def test_the_process_ends_with_the_stack_of_each_thread() -> None:
    hanging = (
        "import threading; from pipelines.host.loop_watch import LoopWatch\n"
        "def the_loop(): threading.Event().wait()\n"
        "threading.Thread(target=the_loop, daemon=True).start()\n"
        "watch = LoopWatch(lambda: 1, ttl_s=1)\n"
        "for _ in range(9): watch.look()\n"
    )
    ended = subprocess.run([sys.executable, "-c", hanging], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    assert "in the_loop" in ended.stderr


@pytest.mark.parametrize("raised", [None, StoreError("away"), KeyError("odd")])
def test_rounds_that_fail_are_rounds(store: ControlStore, raised: Exception | None) -> None:  # noqa: F811
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
