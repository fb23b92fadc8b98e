"""Kept differences: computed once for all who ask, stopped when nobody waits, forgotten where they may heal."""

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from backend.changes.cache import CacheLimits, Differences, DiffProgress
from backend.changes.model import DiffMethod, NetCounts, Question, VersionDiff
from backend.errors import DiffError
from backend.sql.session import CancelToken
from tests.worlds.lake.diffs import NOWHERE, answer_of
from tests.worlds.processes import wait_until

NO_LAKE: Any = SimpleNamespace(hidden=lambda _: None)


def question(to_version: int = 1, **options: Any) -> Question:
    return Question(NOWHERE, 0, to_version, table_ids=("id",), **options)


def answer(method: DiffMethod = DiffMethod.KEY_JOIN) -> VersionDiff:
    return answer_of(method=method, net=NetCounts(1, 2, 3))


class Slow:
    """A computation that ends when it is let go, or stopped."""

    def __init__(self, method: DiffMethod = DiffMethod.KEY_JOIN) -> None:
        self.calls, self.tokens = 0, list[CancelToken]()
        self.go = threading.Event()
        self._method = method

    def __call__(self, lake: Any, asked: Question, token: CancelToken) -> VersionDiff:
        self.calls += 1
        self.tokens.append(token)
        token.rows_total = 10
        while not self.go.wait(0.005):
            token.check()
            token.rows_read = 4
        return answer(self._method)


@pytest.fixture
def slow() -> Iterator[Slow]:
    made = Slow()
    yield made
    made.go.set()


class Later:
    """What waits for its time, until the test lets that go by."""

    def __init__(self) -> None:
        self.due = list[Callable[[], object]]()

    def __call__(self, seconds: float, act: Callable[[], object]) -> None:
        assert seconds == CacheLimits().grace_s
        self.due.append(act)

    def passes(self) -> None:
        for act in self.due:
            act()
        self.due.clear()


def last(steps: Iterator[DiffProgress]) -> DiffProgress:
    return list(steps)[-1]


def test_two_viewers_share_one_computation_and_a_third_gets_it_at_once(slow: Slow) -> None:
    differences = Differences(compute=slow)
    first, second = (differences.over(NO_LAKE, question()) for _ in range(2))
    step = next(first)
    wait_until(lambda: next(first).rows_read == 4, "four rows are read")
    assert next(second).rows_total == 10
    assert step.result is None
    slow.go.set()
    assert last(first).result == last(second).result == answer()
    assert differences.known(NO_LAKE, question()) == answer()
    assert [each.result for each in differences.over(NO_LAKE, question())] == [answer()]
    assert slow.calls == 1


def test_what_is_not_there_soon_is_computed_on_for_who_comes_next_and_stopped_if_nobody_does(slow: Slow) -> None:
    later = Later()
    differences = Differences(compute=slow, after=later)
    assert differences.soon(NO_LAKE, question(), 0.01) is None
    steps = differences.over(NO_LAKE, question())
    next(steps)
    later.passes()  # somebody came back before
    slow.go.set()
    assert last(steps).result == answer() == differences.soon(NO_LAKE, question(), 0.0)
    assert slow.calls == 1
    assert differences.soon(NO_LAKE, question(2), 60.0) == answer()
    slow.go.clear()
    assert differences.soon(NO_LAKE, question(3), 0.01) is None
    later.passes()
    wait_until(lambda: slow.calls == 3 and slow.tokens[-1].is_stopped, "the third is stopped")


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_only_the_last_who_leaves_or_cancels_stops_it(slow: Slow, is_cancelled: bool) -> None:
    later = Later()
    differences = Differences(compute=slow, after=later)
    first, second = (differences.over(NO_LAKE, question()) for _ in range(2))
    next(first), next(second)
    for viewer, is_stopped in ((first, False), (second, True)):
        viewer.close()
        if is_cancelled:
            differences.abandon(NO_LAKE, question())
        else:
            later.passes()
        assert slow.tokens[0].is_stopped is is_stopped
    assert differences.known(NO_LAKE, question()) is None


def test_a_failure_reaches_everybody_who_waits_and_is_not_kept() -> None:
    go, calls = threading.Event(), list[int]()

    def fails(*_: Any) -> VersionDiff:
        calls.append(1)
        go.wait(60)
        raise DiffError("no")

    differences = Differences(compute=fails)
    waiting = [differences.over(NO_LAKE, question()) for _ in range(2)]
    for each in waiting:
        next(each)
    go.set()
    for each in waiting:
        with pytest.raises(DiffError, match="no"):
            last(each)
    assert len(calls) == 1
    with pytest.raises(DiffError, match="no"):
        last(differences.over(NO_LAKE, question()))
    assert len(calls) == 2


def test_more_than_two_at_once_wait_for_their_turn(slow: Slow) -> None:
    differences = Differences(time_limit_s=60.0, compute=slow)
    running = [differences.over(NO_LAKE, question(number)) for number in range(3)]
    for each in running:
        next(each)
    wait_until(lambda: slow.calls == CacheLimits().at_once, "as many run as may")
    assert sum(next(each).is_waiting for each in running) == 1
    slow.go.set()
    assert all(last(each).result for each in running)
    assert slow.calls == 3


def test_an_answer_without_rows_is_kept_for_moments_only() -> None:
    gone, now_s = Slow(DiffMethod.LOG_ONLY), [0.0]
    gone.go.set()
    differences = Differences(compute=gone, clock=lambda: now_s[0])
    last(differences.over(NO_LAKE, question()))
    now_s[0] = CacheLimits().heals_after_s
    assert differences.known(NO_LAKE, question()) is not None
    now_s[0] += 1
    assert differences.known(NO_LAKE, question()) is None


def test_only_so_many_answers_are_kept(slow: Slow) -> None:
    slow.go.set()
    differences = Differences(compute=slow, limits=CacheLimits(answers=2))
    for number in range(3):
        last(differences.over(NO_LAKE, question(number)))
    assert [differences.known(NO_LAKE, question(number)) is not None for number in range(3)] == [False, True, True]
