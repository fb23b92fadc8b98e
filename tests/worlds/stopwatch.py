"""A stopwatch that a test can put forward, in place of `elapsed`."""

from backend.work import elapsed


class Stopwatch:
    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return elapsed() + self.ahead_s

    def forward(self, seconds: float) -> None:
        self.ahead_s += seconds
