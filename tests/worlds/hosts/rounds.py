"""One line of a host's table of periodic work, done round by round by a test."""

from collections.abc import Callable

from backend.store.store import ControlStore
from pipelines.host.periodic import LeaderLease, Rounds, Task


def rounds_of(run: Callable[[Rounds], object], *, every_s: float = 600.0) -> Rounds:
    """Of a host that is alone."""
    return Rounds(Task("test", every_s, run, "round_failed"))


def led(name: str, run: Callable[[Rounds], object], store: ControlStore, host_id: str) -> Rounds:
    """Of a host that makes them while it leads."""
    return Rounds(Task(name, 600.0, run, "round_failed", by_leader=True), LeaderLease(store, name, host_id))
