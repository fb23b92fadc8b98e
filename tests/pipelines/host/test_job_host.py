"""The job host against a runner without Spark and a real store: what it takes, ends, gives back and takes over."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from backend.access import Actor
from backend.errors import JobError
from backend.jobs.model import Job, JobEnd, JobKind, JobProgress, JobRequest, JobState
from backend.settings import load_settings
from backend.store.leases import job_resource
from backend.store.store import ControlStore
from pipelines.host.job_host import POLL_S, JobHost
from pipelines.jobs.runner import JobCancelled
from tests.worlds.hosts.in_memory import table_away
from tests.worlds.processes import wait_until
from tests.worlds.stopwatch import Stopwatch

LEASE_TTL_S = 60.0  # no test takes so long: a lease runs out where a test has it run out
WANTED = JobRequest(JobKind.DIFF, "orders", "f1", "{}", Actor("ann"), "incident", 3_600.0)


def is_set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


@dataclass
class Runner:
    """Jobs that wait until `release`d or cancelled, and then raise their `problem`.

    `deaf` ones do not heed a cancel, `changing` ones are beyond it. `may_forget`: until then a result is being deleted.
    """

    release: threading.Event = field(default_factory=threading.Event)
    problem: Exception | None = None
    deaf: bool = False
    changing: bool = False
    said: str = ""
    asked_to_stop: threading.Event = field(default_factory=threading.Event)
    started: list[str] = field(default_factory=list)
    cancelled: set[str] = field(default_factory=set)
    forgotten: list[str] = field(default_factory=list)
    may_forget: threading.Event = field(default_factory=is_set)
    at_work: int = 0
    most_at_work: int = 0

    def run(self, job: Job) -> JobEnd:
        self.cancelled.discard(job.job_id)
        self.started.append(job.job_id)
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        try:
            while not self.release.wait(0.01):
                if job.job_id in self.cancelled and not self.deaf:
                    raise JobCancelled
            if self.problem is not None:
                raise self.problem
            return JobEnd(JobState.DONE, self.result_uri(job), detail=self.said)
        finally:
            self.at_work -= 1

    def stops_short(self, job_id: str) -> bool:
        self.asked_to_stop.set()
        if self.changing or not self.at_work:
            return False
        self.cancel(job_id)
        return True

    def cancel(self, job_id: str) -> None:
        self.cancelled.add(job_id)

    def progress(self, job_id: str) -> JobProgress:
        return JobProgress("comparing rows", 3, 8)

    def result_uri(self, job: Job) -> str:
        return f"/results/{job.job_id}-{job.attempts}"

    def forget(self, result_uri: str) -> None:
        self.may_forget.wait(60)
        self.forgotten.append(result_uri)


class Host(JobHost):
    """Counts its rounds."""

    rounds = 0

    def step(self) -> None:
        super().step()
        self.rounds += 1


class World:
    """Hosts with one store and one stopwatch."""

    def __init__(self, home: Path) -> None:
        limits = {"host": {"lease_ttl_s": LEASE_TTL_S}, "jobs": {"at_once": 1}}
        self.settings = load_settings(home=home, **limits)
        self.store, self.watch, self.hosts = ControlStore.open(self.settings), Stopwatch(), list[Host]()

    def host(self, runner: Runner, host_id: str = "host-a") -> Host:
        return Host(self.settings, self.store, runner, host_id, elapsed=self.watch, poll_s=0.02)

    def start(self, runner: Runner, host_id: str = "host-a") -> Host:
        self.hosts.append(host := self.host(runner, host_id))
        host.start()
        return host

    def rounds(self, number: int) -> None:
        """Returns after so many whole rounds of every host."""
        enough = [(host, host.rounds + number + 1) for host in self.hosts]
        wait_until(lambda: all(host.rounds >= many for host, many in enough), "the hosts go on")

    def ask(self, **changes: object) -> Job:
        return self.store.jobs.submit(replace(WANTED, **changes), now=datetime.now(UTC))  # type: ignore[arg-type]

    def running(self, runner: Runner, **changes: object) -> Job:
        """A job that a started host has begun."""
        self.start(runner)
        job = self.ask(**changes)
        return self.until(job, JobState.RUNNING)

    def cancel(self, job: Job) -> None:
        self.store.jobs.cancel(job.job_id, actor=Actor("bob"), reason="typo", now=datetime.now(UTC))

    def job(self, job: Job) -> Job:
        current = self.store.jobs.get(job.job_id)
        assert current is not None
        return current

    def until(self, job: Job, *states: JobState) -> Job:
        wait_until(lambda: self.job(job).state in states, lambda: str(self.job(job)))
        return self.job(job)

    def expire(self, job: Job) -> None:
        """The job's lease has run out, as the store sees it."""
        self.store.renew(self.store.leases()[job_resource(job.job_id)], ttl_s=-1)

    def abandoned(self, attempts: int, **changes: object) -> Job:
        """A job as hosts leave it that were killed so many times."""
        job = self.ask(**changes)
        for number in range(attempts):
            lease = self.store.acquire(job_resource(job.job_id), f"dead-{number}", ttl_s=-1)
            assert lease is not None
            self.store.jobs.begin(lease, job.job_id, now=datetime.now(UTC))
        return job

    def done_long_ago(self, job: Job) -> None:
        lease = self.store.acquire(job_resource(job.job_id), "host-a", ttl_s=LEASE_TTL_S)
        assert lease is not None
        self.store.jobs.begin(lease, job.job_id, now=datetime.now(UTC))
        ended_at = datetime.now(UTC) - timedelta(days=8)
        self.store.jobs.end(lease, job.job_id, JobEnd(JobState.DONE, "/x"), now=ended_at)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    opened = World(tmp_path)
    yield opened
    for host in opened.hosts:
        host.stop(1)
    opened.store.close()


def test_a_forged_row_holds_up_no_job_and_deletes_no_folder(world: World) -> None:
    with sa.create_engine(world.store.shown_url).begin() as connection:
        for number, (column, value) in enumerate(
            {"kind": "of another Weir", "job_id": "../../home", "state": "?"}.items()
        ):
            row = dict.fromkeys(("subject", "fingerprint", "request", "actor", "reason", "phase", "error", "hint"), "x")
            row |= {"job_id": f"{number:012x}", "kind": "diff", "state": "QUEUED", "attempts": 1, "done_units": 0}
            row |= {"time_limit_s": 60.0, "cancel_requested": False, "requested_at": "2026-01-01 00:00:00"}
            named = {**row, column: value}
            connection.execute(sa.text(f"INSERT INTO job ({', '.join(named)}) VALUES (:{', :'.join(named)})"), named)
        connection.execute(sa.text("UPDATE job SET state = 'DONE', ended_at = '2026-01-01' WHERE job_id LIKE '%/%'"))
    world.start(runner := Runner(release=is_set()))
    job = world.ask()
    assert world.until(job, JobState.DONE)
    world.hosts[0].prune()
    assert runner.started == [job.job_id]
    assert runner.forgotten == []


def test_a_job_is_run_once_its_progress_reported_and_its_result_stays(world: World) -> None:
    first, second = Runner(), Runner()
    world.start(first, "host-a"), world.start(second, "host-b")
    job = world.ask()
    wait_until(lambda: world.job(job).progress.done == 3, "its progress is reported")
    assert world.job(job).state is JobState.RUNNING
    first.release.set(), second.release.set()
    assert world.until(job, JobState.DONE).result_uri == f"/results/{job.job_id}-1"
    assert first.started + second.started == [job.job_id]
    world.rounds(6)
    assert first.forgotten == second.forgotten == []
    assert job_resource(job.job_id) not in world.store.leases()


def test_no_more_jobs_at_once_than_set(world: World) -> None:
    runner = Runner()
    first = world.running(runner)
    jobs = [first, *(world.ask(fingerprint=name) for name in "bc")]
    world.rounds(3)
    assert runner.started == [first.job_id]
    runner.release.set()
    for job in jobs:
        world.until(job, JobState.DONE)
    assert (runner.most_at_work, runner.started) == (1, [job.job_id for job in jobs])


@pytest.mark.parametrize("deaf", [False, True])
def test_a_cancelled_job_is_over_with_the_next_round_and_leaves_no_result(world: World, deaf: bool) -> None:
    assert POLL_S <= 0.5, "rounds come so often that a cancel takes effect within a second"
    runner = Runner(deaf=deaf)
    host, job = world.host(runner), world.ask()
    host.step()
    assert world.job(job).state is JobState.RUNNING
    wait_until(lambda: runner.at_work, "its thread is at work")
    world.cancel(job)
    host.step()
    assert (world.job(job).state, runner.cancelled) == (JobState.CANCELLED, {job.job_id})
    runner.release.set()  # a deaf one comes to its end all the same
    wait_until(lambda: not runner.at_work, "its thread has ended")
    wait_until(lambda: (host.step(), runner.forgotten)[1], "the result is forgotten")
    assert runner.forgotten == [f"/results/{job.job_id}-1"]
    assert (world.job(job).state, world.job(job).result_uri) == (JobState.CANCELLED, None)


def test_a_job_that_changes_tables_is_carried_through_whatever_its_time_limit(world: World) -> None:
    runner = Runner(changing=True, said="12 of 15 rows requeued")
    job = world.running(runner, kind=JobKind.REQUEUE, time_limit_s=5.0)
    world.watch.forward(6)
    wait_until(runner.asked_to_stop.is_set, "the host looks whether it can be ended")
    world.rounds(3)
    assert (world.job(job).state, world.job(job).error, runner.cancelled) == (JobState.RUNNING, "", set())
    assert job_resource(job.job_id) in world.store.leases()
    world.cancel(job)
    world.rounds(3)
    runner.release.set()
    wait_until(lambda: world.job(job).state.is_over, "it ends")
    assert world.job(job).state is JobState.DONE
    entry = world.store.audit_entries()[0]
    assert (entry.action, entry.actor, entry.subject) == ("requeue done", "ann", "orders")
    assert entry.detail == f"job {job.job_id}: 12 of 15 rows requeued"


def test_a_job_that_changes_tables_is_not_begun_by_another_host_while_it_goes_on(world: World) -> None:
    runner, other = Runner(changing=True), Runner()
    job = world.running(runner, kind=JobKind.REQUEUE)
    world.hosts[0].stop(0.1)
    assert (runner.at_work, runner.cancelled) == (1, set())
    assert job_resource(job.job_id) in world.store.leases(), "it runs out by itself"
    other.release.set()
    world.start(other, "host-b")
    world.hosts = world.hosts[1:]
    world.rounds(3)
    assert other.started == []
    world.watch.forward(LEASE_TTL_S)
    wait_until(lambda: job.job_id in runner.cancelled, "its next step is refused")
    world.expire(job)
    done = world.until(job, JobState.DONE)
    assert (done.host_id, done.attempts) == ("host-b", 2)


def test_a_job_that_ends_while_its_host_stops_is_not_done_again(world: World) -> None:
    runner = Runner(changing=True)
    job = world.running(runner, kind=JobKind.REQUEUE)
    stopping = threading.Thread(target=world.hosts[0].stop, args=(60,))
    stopping.start()
    wait_until(runner.asked_to_stop.is_set, "the host looks whether it can be ended")
    runner.release.set()
    stopping.join(60)
    assert world.until(job, JobState.DONE).attempts == 1
    assert job_resource(job.job_id) not in world.store.leases()


def test_a_job_whose_lease_ran_out_changes_no_more_and_is_begun_again(world: World) -> None:
    runner = Runner(changing=True)
    job = world.running(runner, kind=JobKind.REQUEUE)
    with table_away(world.store, "lease"):
        world.watch.forward(LEASE_TTL_S)
        wait_until(lambda: job.job_id in runner.cancelled, "its next step is refused")
    wait_until(lambda: len(runner.started) == 2, "it is begun again")
    runner.release.set()
    assert world.until(job, JobState.DONE).attempts == 1


def test_a_cancel_that_the_store_did_not_take_is_recorded_when_it_answers(world: World) -> None:
    runner = Runner()
    job = world.running(runner)
    with table_away(world.store, "lease"):
        world.cancel(job)
        wait_until(lambda: not runner.at_work, "the job heeds it")
    world.until(job, JobState.CANCELLED)


@pytest.mark.parametrize("state", [JobState.CANCELLED, JobState.FAILED])
def test_a_job_ended_by_a_cancel_or_its_time_limit_leaves_no_result(world: World, state: JobState) -> None:
    runner = Runner()
    job = world.running(runner, time_limit_s=5.0)
    if state is JobState.CANCELLED:
        world.cancel(job)
    else:
        world.watch.forward(6)
    ended = world.until(job, JobState.CANCELLED, JobState.FAILED)
    assert (ended.state, ended.result_uri) == (state, None)
    assert ("longer than 5 s" in ended.error) is (state is JobState.FAILED)
    assert ("WEIR_JOBS__TIME_LIMIT_S" in ended.hint) is (state is JobState.FAILED)
    wait_until(lambda: not world.hosts[0].busy, "the job's thread has ended")
    wait_until(lambda: runner.forgotten == [f"/results/{job.job_id}-1"], "what it wrote by then is deleted")
    assert world.ask().job_id != job.job_id


@pytest.mark.parametrize("problem", [JobError("no such column", hint="name another"), ValueError("no such column")])
def test_a_job_that_breaks_says_why_and_the_next_one_runs(world: World, problem: Exception) -> None:
    runner = Runner(problem=problem, release=is_set())
    world.start(runner)
    failed = world.until(world.ask(), JobState.FAILED)
    assert "no such column" in failed.error
    assert failed.hint
    runner.problem = None
    world.until(world.ask(), JobState.DONE)


def test_a_host_that_stops_gives_its_job_back_and_another_does_it(world: World) -> None:
    job = world.running(Runner())
    world.hosts[0].stop(1)
    waiting = world.until(job, JobState.QUEUED)
    assert (waiting.attempts, waiting.host_id) == (0, None)
    world.start(Runner(release=is_set()), "host-b")
    done = world.until(job, JobState.DONE)
    assert (done.host_id, done.attempts) == ("host-b", 1)


@pytest.mark.parametrize(("kills", "is_cancelled", "state"), [
    (1, False, JobState.DONE), (2, False, JobState.FAILED), (1, True, JobState.CANCELLED),
])  # fmt: skip
def test_a_job_whose_host_was_killed_is_begun_once_more_unless_it_is_cancelled(
    world: World, kills: int, is_cancelled: bool, state: JobState
) -> None:
    job = world.abandoned(kills)
    if is_cancelled:
        world.cancel(job)
    runner = Runner(release=is_set())
    world.start(runner, "host-b")
    ended = world.until(job, JobState.DONE, JobState.FAILED, JobState.CANCELLED)
    assert ended.state is state
    if state is JobState.DONE:
        assert (ended.host_id, ended.attempts) == ("host-b", 2)
    else:
        assert runner.started == []
    assert ("dead-1" in ended.error) is (state is JobState.FAILED), "the last host that it killed is named"


def test_a_host_that_lost_its_lease_stops_and_writes_nothing(world: World) -> None:
    runner = Runner()
    job = world.running(runner)
    world.expire(job)  # as if the host had been frozen for long
    taken = world.store.acquire(job_resource(job.job_id), "host-b", ttl_s=600)
    assert taken is not None
    world.store.jobs.begin(taken, job.job_id, now=datetime.now(UTC))
    world.watch.forward(LEASE_TTL_S / 2)  # a renewal is due
    wait_until(lambda: job.job_id in runner.cancelled, "it is ended here")
    runner.release.set()
    wait_until(lambda: not world.hosts[0].busy, "the job's thread has ended")
    world.rounds(3)
    seen = world.job(job)
    assert (seen.state, seen.host_id, seen.attempts) == (JobState.RUNNING, "host-b", 2)


def test_old_results_are_deleted(world: World) -> None:
    """Of as many attempts as there can be, whatever the store says."""
    job, runner = world.abandoned(1), Runner()
    world.done_long_ago(job)
    with sa.create_engine(world.store.shown_url).begin() as connection:
        connection.execute(sa.text("UPDATE job SET attempts = 1000000000000"))
    month_ago = datetime.now(UTC) - timedelta(days=30)
    JobHost(world.settings, world.store, runner, "host-a", clock=lambda: month_ago).prune()
    assert world.store.jobs.get(job.job_id) is not None  # by that host's clock it is of tomorrow
    world.host(runner).prune()
    assert world.store.jobs.get(job.job_id) is None
    assert runner.forgotten == [f"/results/{job.job_id}-1", f"/results/{job.job_id}-2"]


def test_a_result_that_takes_long_to_delete_holds_up_no_job(world: World) -> None:
    runner = Runner(may_forget=threading.Event(), release=is_set())
    world.done_long_ago(world.ask(fingerprint="old"))
    world.start(runner)
    world.until(world.ask(), JobState.DONE)
    assert runner.forgotten == []
    runner.may_forget.set()
    wait_until(lambda: runner.forgotten, "the old result is deleted")
