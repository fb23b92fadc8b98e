"""The thread of a watch: it outlives rounds that fail, and ends when it is told to or has nothing more to do."""

import threading
import time
from collections.abc import Callable
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from backend.errors import StoreError
from backend.work import Stopped
from pipelines.host.rounds import Rounds
from tests.worlds.processes import wait_until


@pytest.mark.parametrize(("failure", "level"), [(StoreError("silent"), "warning"), (KeyError("odd"), "error")])
def test_a_round_that_fails_is_told_and_the_next_one_comes(failure: Exception, level: str) -> None:
    done: list[int] = []

    def once() -> None:
        done.append(len(done))
        if len(done) == 1:
            raise failure

    rounds = Rounds("watch", once, every_s=0.01, failed="not_watched")
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
        Rounds("lasts", once, every_s=0.01, failed="not_watched").start()
        wait_until(lambda: not alive("lasts")(), "it has ended")
    assert [line["error"] for line in logs] == ["away", "locked", "locked"]


def alive(name: str) -> Callable[[], bool]:
    return lambda: name in {each.name for each in threading.enumerate()}


def test_a_stop_ends_the_pause_and_a_round_may_end_them_all() -> None:
    waiting = Rounds("waits", lambda: None, every_s=600, failed="x")
    waiting.start()
    waiting.stop(5)
    assert waiting.is_stopping and not alive("waits")()

    def ended() -> None:
        raise Stopped

    Rounds("ends", ended, every_s=600, failed="x").start()
    wait_until(lambda: not alive("ends")(), "it has ended")


def test_rounds_that_never_began_can_be_stopped() -> None:
    Rounds("idle", lambda: None, every_s=1, failed="x").stop(5)


def test_rounds_that_take_long_come_less_often() -> None:
    began: list[float] = []

    def slow() -> None:
        began.append(time.monotonic())
        time.sleep(0.05)

    rounds = Rounds("slow", slow, every_s=0.001, failed="x", longest_pause_s=0.4)
    rounds.start()
    wait_until(lambda: len(began) > 2, "rounds go on")
    rounds.stop(5)
    assert all(after - before >= 0.45 for before, after in pairwise(began))
