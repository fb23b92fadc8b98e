"""Stop, act, start in one request: streams of this table stand still while an act changes its rows.

Rule: only what the job itself stopped does it start again, however it ends; a person who asked for something else
before or meanwhile is not overruled. A host that takes the job over knows by the reason which streams those are.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from backend.access import Actor
from backend.errors import StreamRefusedError
from backend.jobs.model import Job
from backend.maintenance.model import Repair, Restore, TableAct
from backend.maintenance.readers import Users
from backend.store.store import ControlStore
from pipelines.jobs.requeue import ActListener

PAUSE_S, MOST_S = 0.5, 900.0


@contextmanager
def stopped_writers(
    store: ControlStore, job: Job, act: TableAct, users: Callable[[], Users], listener: ActListener
) -> Iterator[frozenset[str]]:
    """The streams that the job stopped; `users`: who uses the table, as of now. Raises `StreamRefusedError` where one
    does not stop."""
    if not (isinstance(act.arguments, Restore | Repair) and act.arguments.stops_writers):
        yield frozenset()
        return
    actor, reason = Actor(job.actor), f"{act.kind} of {act.name}, job {job.job_id}"
    wanted = store.desired()
    running = [name for name in users().stoppable_writers if name not in wanted or not wanted[name].wants_stop]
    if running:
        store.request_all(running, "stop", reason=reason, actor=actor, now=store.now())
    ours = frozenset(name for name, desired in store.desired().items() if desired.reason == reason)
    try:
        _wait(lambda: users().stoppable_writers, listener)
        yield ours
    finally:
        still = [name for name, desired in store.desired().items() if name in ours and desired.reason == reason]
        if still:
            store.request_all(still, "start", reason=reason, actor=actor, now=store.now())


def _wait(running: Callable[[], tuple[str, ...]], listener: ActListener) -> None:
    give_up = time.monotonic() + MOST_S
    while names := running():
        listener.tell(f"waiting for {', '.join(names)} to stop")
        if time.monotonic() > give_up:
            raise StreamRefusedError(
                f"{', '.join(names)} did not stop within {MOST_S:.0f} s", hint="stop it, then ask for the act again"
            )
        time.sleep(PAUSE_S)
