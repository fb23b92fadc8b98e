"""When a query is to be stopped, with an executor of Java's that a test looks into in place of time that passes."""

from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.spark.dead_mans_switch import DeadMansSwitch


class Task:
    """A scheduled stop. It is due where its delay has passed by the clock of the test."""

    def __init__(self, clock: "Clock", delay_ms: int) -> None:
        self.clock, self.due_at, self.cancelled = clock, clock.now + delay_ms / 1_000, False

    def cancel(self, interrupt: bool) -> None:
        self.cancelled = True

    def getDelay(self, unit: str) -> float:
        return (self.due_at - self.clock.now) * 1_000


class Clock:
    """Java's executor and the stopwatch that it heeds."""

    def __init__(self) -> None:
        self.now, self.tasks = 100.0, list[Task]()

    def schedule(self, stop: object, delay_ms: int, unit: str) -> Task:
        self.tasks.append(Task(self, delay_ms))
        return self.tasks[-1]

    @property
    def armed(self) -> list[float]:
        """When stops are due that nobody cancelled."""
        return [task.due_at for task in self.tasks if not task.cancelled]

    @property
    def jvm(self) -> Any:
        concurrent = SimpleNamespace(
            Executors=SimpleNamespace(newScheduledThreadPool=lambda threads: self),
            TimeUnit=SimpleNamespace(MILLISECONDS="ms"),
        )
        events = SimpleNamespace(EventHandler=SimpleNamespace(create=lambda *of: of))
        classes = SimpleNamespace(Class=SimpleNamespace(forName=lambda name: name))
        return SimpleNamespace(
            java=SimpleNamespace(util=SimpleNamespace(concurrent=concurrent), beans=events, lang=classes)
        )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def switch(clock: Clock) -> DeadMansSwitch:
    return DeadMansSwitch(clock.jvm, elapsed=lambda: clock.now)


QUERY: Any = SimpleNamespace(_jsq="query")


def test_a_stream_that_nobody_ever_held_is_never_stopped(clock: Clock, switch: DeadMansSwitch) -> None:
    switch.watch("numbers", QUERY)
    assert (clock.armed, switch.allows("numbers"), switch.has_tripped("numbers")) == ([], True, False)


def test_the_later_word_counts(clock: Clock, switch: DeadMansSwitch) -> None:
    switch.watch("numbers", QUERY)
    switch.hold("numbers", clock.now + 1)
    switch.hold("numbers", clock.now + 4)
    assert clock.armed == [104.0]
    clock.now += 3.9
    assert (switch.allows("numbers"), switch.has_tripped("numbers")) == (True, False)
    clock.now += 0.1
    assert (switch.allows("numbers"), switch.has_tripped("numbers")) == (False, True)


def test_a_word_that_comes_too_late_does_not_bring_the_query_back_and_the_next_query_is_held(
    clock: Clock, switch: DeadMansSwitch
) -> None:
    switch.hold("numbers", clock.now + 1)
    switch.watch("numbers", QUERY)
    clock.now += 2
    switch.hold("numbers", clock.now + 5)
    assert switch.has_tripped("numbers")
    switch.watch("numbers", QUERY)
    assert (clock.armed, switch.has_tripped("numbers")) == ([107.0], False)
