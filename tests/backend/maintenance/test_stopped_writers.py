"""Stop, act, start: only what the job stopped starts again, and nobody who asked for something else is overruled."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from backend.access import Actor
from backend.jobs.model import Job
from backend.maintenance.model import Restore, TableAct, act_job
from backend.maintenance.readers import TableWriter, Users
from backend.store.store import ControlStore
from backend.stream_model.stream import DesiredState
from pipelines.jobs.stopped_writers import stopped_writers
from tests.worlds.store.values import DECLARATION, NOW

ACT = TableAct("/lake/silver/orders", "silver/orders", 7, Restore(3, stops_writers=True))
STREAM, OTHER = "silver_orders", "late_orders"
BO = Actor("bo")


@dataclass
class Host:
    """Streams that write the table: one asked to stop still runs while it is looked at once more."""

    store: ControlStore
    job: Job
    told: list[str] = field(default_factory=list)
    stopping: set[str] = field(default_factory=set)

    def users(self) -> Users:
        wanted = self.store.desired()
        writers = tuple(TableWriter(name, "append", stopped=name in self.stopping) for name in sorted(wanted))
        self.stopping |= {name for name, desired in wanted.items() if desired.wants_stop}
        return Users(writers)

    def tell(self, phase: str) -> None:
        self.told.append(phase)

    def changes(self, phase: str) -> None:
        self.tell(phase)

    def stopped(self) -> AbstractContextManager[frozenset[str]]:
        return stopped_writers(self.store, self.job, ACT, self.users, self)

    def wanted(self, name: str = STREAM) -> DesiredState:
        return self.store.desired()[name].state

    def ask(self, action: str, name: str = STREAM) -> None:
        self.store.request(name, action, reason="of my own", actor=BO, now=NOW)  # type: ignore[arg-type]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    store = ControlStore(f"sqlite:///{tmp_path / 'weir.db'}")
    store.declare([DECLARATION, replace(DECLARATION, name=OTHER)], now=NOW)
    opened = Host(store, store.jobs.submit(act_job(ACT, actor=Actor("ann"), reason="a bad load"), now=NOW))
    for name in (STREAM, OTHER):
        opened.ask("start", name)
    yield opened
    store.close()


def test_streams_stand_still_meanwhile_and_run_again_after(host: Host) -> None:
    with host.stopped() as stopped:
        assert stopped == {STREAM, OTHER}
        assert (host.wanted(), host.wanted(OTHER)) == (DesiredState.STOPPED, DesiredState.STOPPED)
    assert (host.wanted(), host.wanted(OTHER)) == (DesiredState.RUNNING, DesiredState.RUNNING)
    assert host.told == [f"waiting for {OTHER}, {STREAM} to stop"]
    (started, *_) = host.store.audit_entries(subject=STREAM)
    assert (started.action, started.actor, host.job.job_id in started.reason) == ("start", "ann", True)


def test_an_act_that_fails_leaves_none_of_them_stopped(host: Host) -> None:
    with pytest.raises(OSError, match="disk"), host.stopped():
        raise OSError("disk")
    assert (host.wanted(), host.wanted(OTHER)) == (DesiredState.RUNNING, DesiredState.RUNNING)


def test_what_a_person_drained_before_is_awaited_and_stays_so(host: Host) -> None:
    host.ask("drain", OTHER)
    with host.stopped() as stopped:
        assert stopped == {STREAM}
    assert (host.wanted(), host.wanted(OTHER)) == (DesiredState.RUNNING, DesiredState.DRAINED)


def test_what_a_person_stops_meanwhile_stays_stopped(host: Host) -> None:
    with host.stopped():
        host.ask("stop")
    assert (host.wanted(), host.wanted(OTHER)) == (DesiredState.STOPPED, DesiredState.RUNNING)


def test_a_host_that_takes_the_job_over_starts_what_the_first_one_stopped(host: Host) -> None:
    first = host.stopped()
    first.__enter__()  # and is killed
    assert host.wanted() is DesiredState.STOPPED
    with host.stopped() as stopped:
        assert stopped == {STREAM, OTHER}
    assert (host.wanted(), host.wanted(OTHER)) == (DesiredState.RUNNING, DesiredState.RUNNING)
    first.gen.close()  # type: ignore[attr-defined]
