"""The job host against a runner without Spark and a real store: what it takes, ends, gives back and takes over."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from backend.errors import JobError
from backend.jobs.model import Job, JobEnd, JobKind, JobProgress, JobRequest, JobState
from backend.settings import Settings, load_settings
from backend.store.leases import job_resource
from backend.store.store import ControlStore
from pipelines.host.job_host import JobHost
from pipelines.jobs.runner import JobCancelled
from tests.processes import wait_until

POLL_S = 0.02
WANTED = JobRequest(JobKind.DIFF, "orders", "f1", "{}", "ann", "incident", 60.0)


def _done() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


@dataclass
class Runner:
    """Jobs that wait until `release`d, cancelled, or broken; `deaf` ones do not hear a cancel, what one with `has_part`
    had found can be read, and `changing` ones are beyond a cancel. `keeps`: until then a result is being deleted."""

    release: threading.Event = field(default_factory=threading.Event)
    problem: Exception | None = None
    deaf: bool = False
    has_part: bool = False
    changing: bool = False
    said: str = ""
    asked_to_stop: threading.Event = field(default_factory=threading.Event)
    started: list[str] = field(default_factory=list)
    cancelled: dict[str, float] = field(default_factory=dict)
    forgotten: list[str] = field(default_factory=list)
    keeps: threading.Event = field(default_factory=_done)
    at_work: int = 0
    most_at_work: int = 0

    def run(self, job: Job) -> JobEnd:
        self.cancelled.pop(job.job_id, None)
        self.started.append(job.job_id)
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        try:
            while not self.release.wait(0.01):
                if job.job_id in self.cancelled and not self.deaf:
                    raise JobCancelled
            if self.problem is not None:
                raise self.problem
            return JobEnd(JobState.DONE, self.result_uri(job), said=self.said)
        finally:
            self.at_work -= 1

    def stops_short(self, job_id: str) -> bool:
        self.asked_to_stop.set()
        if self.changing or not self.at_work:
            return False
        self.cancel(job_id)
        return True

    def cancel(self, job_id: str) -> None:
        self.cancelled.setdefault(job_id, time.monotonic())

    def progress(self, job_id: str) -> JobProgress:
        return JobProgress("comparing rows", 3, 8)

    def so_far(self, job: Job) -> str | None:
        return self.result_uri(job) if self.has_part else None

    def result_uri(self, job: Job) -> str:
        return f"/results/{job.job_id}-{job.attempts}"

    def forget(self, result_uri: str) -> None:
        self.keeps.wait(60)
        self.forgotten.append(result_uri)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(home=tmp_path, host={"lease_ttl_s": 1.0}, jobs={"at_once": 1})


@pytest.fixture
def store(settings: Settings) -> Iterator[ControlStore]:
    opened = ControlStore.open(settings)
    yield opened
    opened.close()


class Host(JobHost):
    """Counts its rounds."""

    rounds = 0

    def step(self) -> None:
        super().step()
        self.rounds += 1


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    started: list[Host] = []
    yield started
    for host in started:
        host.stop(1)


@pytest.fixture
def start(settings: Settings, store: ControlStore, hosts: list[Host]) -> Callable[..., JobHost]:
    def started(runner: Runner, host_id: str = "host-a") -> JobHost:
        host = Host(settings, store, runner, host_id, poll_s=POLL_S)
        host.start()
        hosts.append(host)
        return host

    return started


@pytest.fixture
def rounds(hosts: list[Host]) -> Callable[[int], None]:
    """Returns after so many whole rounds of every host."""

    def passed(number: int) -> None:
        enough = [(host, host.rounds + number + 1) for host in hosts]
        wait_until(lambda: all(host.rounds >= many for host, many in enough), "the hosts go on")

    return passed


def ask(store: ControlStore, **changes: object) -> Job:
    return store.jobs.submit(replace(WANTED, **changes), now=datetime.now(UTC))  # type: ignore[arg-type]


def until(store: ControlStore, job: Job, condition: Callable[[Job], bool], *, within_s: float = 5) -> Job:
    seen: list[Job] = []

    def is_met() -> bool:
        found = store.jobs.get(job.job_id)
        assert found is not None
        seen.append(found)
        return condition(found)

    wait_until(is_met, lambda: str(seen[-1]), limit_s=within_s)
    return seen[-1]


def is_in(*states: JobState) -> Callable[[Job], bool]:
    return lambda job: job.state in states


def test_a_job_is_run_once_its_progress_told_and_its_result_kept(
    store: ControlStore, start: Callable[..., JobHost], rounds: Callable[[int], None]
) -> None:
    first, second = Runner(), Runner()
    start(first, "host-a"), start(second, "host-b")
    job = ask(store)
    seen = until(store, job, lambda found: found.progress.done == 3)
    assert seen.state is JobState.RUNNING
    first.release.set(), second.release.set()
    done = until(store, job, is_in(JobState.DONE))
    assert done.result_uri == f"/results/{job.job_id}-1"
    assert first.started + second.started == [job.job_id]
    rounds(6)
    assert first.forgotten == second.forgotten == []
    assert job_resource(job.job_id) not in store.leases()


def test_no_more_jobs_at_once_than_set(
    store: ControlStore, start: Callable[..., JobHost], rounds: Callable[[int], None]
) -> None:
    runner = Runner()
    start(runner)
    jobs = [ask(store, fingerprint=name) for name in "abc"]
    until(store, jobs[0], is_in(JobState.RUNNING))
    rounds(3)
    assert runner.started == [jobs[0].job_id]
    runner.release.set()
    for job in jobs:
        until(store, job, is_in(JobState.DONE))
    assert (runner.most_at_work, runner.started) == (1, [job.job_id for job in jobs])


@pytest.mark.parametrize("deaf", [False, True])
def test_a_cancelled_job_is_over_within_a_second_and_leaves_no_result(
    store: ControlStore, start: Callable[..., JobHost], deaf: bool
) -> None:
    runner = Runner(deaf=deaf)
    start(runner)
    job = ask(store)
    until(store, job, is_in(JobState.RUNNING))
    asked_at = time.monotonic()
    store.jobs.cancel(job.job_id, actor="bob", reason="typo", now=datetime.now(UTC))
    until(store, job, is_in(JobState.CANCELLED), within_s=1)
    until(store, job, lambda _: job.job_id in runner.cancelled)
    assert runner.cancelled[job.job_id] - asked_at < 1
    runner.release.set()  # a deaf one comes to its end all the same
    wait_until(lambda: runner.forgotten, "the result is forgotten")
    assert runner.forgotten == [f"/results/{job.job_id}-1"]
    assert until(store, job, is_in(JobState.CANCELLED)).result_uri is None


def test_a_job_that_changes_tables_is_carried_through(store: ControlStore, start: Callable[..., JobHost]) -> None:
    runner = Runner(changing=True, said="12 of 15 rows requeued")
    start(runner)
    job = ask(store, kind=JobKind.REQUEUE)
    until(store, job, is_in(JobState.RUNNING))
    store.jobs.cancel(job.job_id, actor="bob", reason="typo", now=datetime.now(UTC))
    wait_until(runner.asked_to_stop.is_set, "the host looks whether it can be ended")
    runner.release.set()
    assert until(store, job, lambda found: found.state.is_over).state is JobState.DONE
    entry = store.audit_entries()[0]
    assert (entry.action, entry.actor, entry.subject) == ("requeue done", "ann", "orders")
    assert entry.detail == f"job {job.job_id}: 12 of 15 rows requeued"


def test_a_job_that_changes_tables_has_no_time_limit(
    store: ControlStore, start: Callable[..., JobHost], rounds: Callable[[int], None]
) -> None:
    runner = Runner(changing=True)
    start(runner)
    job = ask(store, kind=JobKind.REQUEUE, time_limit_s=0.1)
    wait_until(runner.asked_to_stop.is_set, "the host looks whether it can be ended")
    rounds(3)
    assert (until(store, job, is_in(JobState.RUNNING)).error, runner.cancelled) == ("", {})
    assert job_resource(job.job_id) in store.leases()
    runner.release.set()
    until(store, job, is_in(JobState.DONE))


def test_a_job_that_changes_tables_is_not_begun_by_another_host_while_it_goes_on(
    store: ControlStore, start: Callable[..., JobHost]
) -> None:
    runner, other = Runner(changing=True), Runner()
    host = start(runner, "host-a")
    job = ask(store, kind=JobKind.REQUEUE)
    until(store, job, is_in(JobState.RUNNING))
    host.stop(0.1)
    assert (runner.at_work, runner.cancelled) == (1, {})
    assert job_resource(job.job_id) in store.leases(), "it runs out by itself"
    other.release.set()
    start(other, "host-b")
    done = until(store, job, is_in(JobState.DONE))
    assert (done.host_id, done.attempts) == ("host-b", 2)
    assert job.job_id in runner.cancelled, "its next step is refused by then"


def test_a_job_that_ends_while_its_host_stops_is_not_done_again(
    store: ControlStore, start: Callable[..., JobHost]
) -> None:
    runner = Runner(changing=True)
    host = start(runner)
    job = ask(store, kind=JobKind.REQUEUE)
    until(store, job, is_in(JobState.RUNNING))
    threading.Timer(0.1, runner.release.set).start()
    host.stop(10)
    assert until(store, job, is_in(JobState.DONE)).attempts == 1
    assert job_resource(job.job_id) not in store.leases()


def test_a_job_whose_lease_ran_out_changes_no_more_and_is_begun_again(
    store: ControlStore, start: Callable[..., JobHost]
) -> None:
    runner = Runner(changing=True)
    start(runner)
    job = ask(store, kind=JobKind.REQUEUE)
    until(store, job, is_in(JobState.RUNNING))
    with leases_away(store):
        wait_until(lambda: job.job_id in runner.cancelled, "its next step is refused")
    wait_until(lambda: len(runner.started) == 2, "it is begun again")
    runner.release.set()
    assert until(store, job, is_in(JobState.DONE)).attempts == 1


def test_a_cancel_that_the_store_did_not_take_is_told_when_it_answers(store: ControlStore, tmp_path: Path) -> None:
    runner, settings = Runner(), load_settings(home=tmp_path, host={"lease_ttl_s": 60})  # no renewal is due meanwhile
    host = JobHost(settings, store, runner, "host-a", poll_s=POLL_S)
    host.start()
    job = ask(store)
    until(store, job, is_in(JobState.RUNNING))
    with leases_away(store):
        store.jobs.cancel(job.job_id, actor="bob", reason="typo", now=datetime.now(UTC))
        wait_until(lambda: not runner.at_work, "the job has heard it")
    until(store, job, is_in(JobState.CANCELLED))
    host.stop(1)


@contextmanager
def leases_away(store: ControlStore) -> Iterator[None]:
    """What needs a lease fails; the rest of the store answers."""
    engine = sa.create_engine(store.shown_url)
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE lease RENAME TO away"))
    yield
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE away RENAME TO lease"))
    engine.dispose()


def test_a_job_ends_at_its_time_limit(store: ControlStore, start: Callable[..., JobHost]) -> None:
    runner = Runner()
    start(runner)
    job = ask(store, time_limit_s=0.3)
    failed = until(store, job, is_in(JobState.FAILED))
    assert "longer than 0.3 s" in failed.error
    assert "WEIR_JOBS__TIME_LIMIT_S" in failed.hint
    assert job.job_id in runner.cancelled


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_what_a_job_had_found_when_it_was_ended_is_kept(
    store: ControlStore, start: Callable[..., JobHost], is_cancelled: bool
) -> None:
    runner = Runner(has_part=True)
    host = start(runner)
    job = ask(store, time_limit_s=60.0 if is_cancelled else 0.3)
    until(store, job, is_in(JobState.RUNNING, JobState.FAILED))
    if is_cancelled:
        store.jobs.cancel(job.job_id, actor="bob", reason="enough", now=datetime.now(UTC))
    ended = until(store, job, is_in(JobState.CANCELLED, JobState.FAILED))
    assert ended.state is (JobState.CANCELLED if is_cancelled else JobState.FAILED)
    assert ended.result_uri == f"/results/{job.job_id}-1"
    wait_until(lambda: not host.busy, "the job's thread has ended")
    assert (host.busy, runner.forgotten) == (0, [])
    again = ask(store)
    assert again.job_id != job.job_id, "what is not whole answers nobody"


@pytest.mark.parametrize("problem", [JobError("no such column", hint="name another"), ValueError("no such column")])
def test_a_job_that_breaks_says_why_and_the_next_one_runs(
    store: ControlStore, start: Callable[..., JobHost], problem: Exception
) -> None:
    runner = Runner(problem=problem)
    runner.release.set()
    start(runner)
    failed = until(store, ask(store), is_in(JobState.FAILED))
    assert "no such column" in failed.error
    assert failed.hint
    runner.problem = None
    until(store, ask(store), is_in(JobState.DONE))


def test_a_host_that_stops_gives_its_job_back_and_another_does_it(
    store: ControlStore, start: Callable[..., JobHost]
) -> None:
    host = start(Runner(), "host-a")
    job = ask(store)
    until(store, job, is_in(JobState.RUNNING))
    host.stop(1)
    waiting = until(store, job, is_in(JobState.QUEUED))
    assert (waiting.attempts, waiting.host_id) == (0, None)
    other = Runner()
    other.release.set()
    start(other, "host-b")
    done = until(store, job, is_in(JobState.DONE))
    assert (done.host_id, done.attempts) == ("host-b", 1)


def abandoned(store: ControlStore, job: Job, attempts: int) -> None:
    """The job as hosts leave it that were killed so many times."""
    long_ago = datetime.now(UTC) - timedelta(minutes=1)
    for number in range(attempts):
        lease = store.acquire(job_resource(job.job_id), f"dead-{number}", ttl_s=-1)
        assert lease is not None
        store.jobs.begin(lease, job.job_id, now=long_ago)


def test_a_job_whose_host_was_killed_is_begun_once_more(store: ControlStore, start: Callable[..., JobHost]) -> None:
    job = ask(store)
    abandoned(store, job, 1)
    runner = Runner()
    runner.release.set()
    start(runner, "host-b")
    done = until(store, job, is_in(JobState.DONE))
    assert (done.host_id, done.attempts) == ("host-b", 2)


def test_a_job_that_killed_two_hosts_fails_with_the_reason(store: ControlStore, start: Callable[..., JobHost]) -> None:
    job = ask(store)
    abandoned(store, job, 2)
    runner = Runner()
    start(runner, "host-b")
    failed = until(store, job, is_in(JobState.FAILED))
    assert "dead-1" in failed.error
    assert runner.started == []


def test_a_job_cancelled_while_its_host_was_dead_is_not_begun(
    store: ControlStore, start: Callable[..., JobHost]
) -> None:
    job = ask(store)
    abandoned(store, job, 1)
    store.jobs.cancel(job.job_id, actor="bob", reason="typo", now=datetime.now(UTC))
    runner = Runner()
    start(runner, "host-b")
    until(store, job, is_in(JobState.CANCELLED))
    assert runner.started == []


def test_a_host_that_lost_its_lease_stops_and_writes_nothing(
    store: ControlStore, start: Callable[..., JobHost], rounds: Callable[[int], None]
) -> None:
    runner = Runner()
    host = start(runner, "host-a")
    job = ask(store)
    until(store, job, is_in(JobState.RUNNING))
    resource = job_resource(job.job_id)
    store.renew(store.leases()[resource], ttl_s=-1)  # as if the host had been frozen for long
    taken = store.acquire(resource, "host-b", ttl_s=600)
    assert taken is not None
    store.jobs.begin(taken, job.job_id, now=datetime.now(UTC))
    until(store, job, lambda _: job.job_id in runner.cancelled)
    runner.release.set()
    wait_until(lambda: not host.busy, "the job's thread has ended")
    rounds(3)
    seen = store.jobs.get(job.job_id)
    assert seen is not None
    assert (seen.state, seen.host_id, seen.attempts) == (JobState.RUNNING, "host-b", 2)


def test_old_results_are_deleted(settings: Settings, store: ControlStore) -> None:
    job = ask(store)
    abandoned(store, job, 1)
    runner = Runner()
    runner.release.set()
    host = JobHost(settings, store, runner, "host-a", clock=lambda: datetime.now(UTC) - timedelta(days=30))
    lease = store.acquire(job_resource(job.job_id), "host-a", ttl_s=1)
    assert lease is not None
    store.jobs.begin(lease, job.job_id, now=datetime.now(UTC))
    store.jobs.end(lease, job.job_id, JobEnd(JobState.DONE, "/x"), now=datetime.now(UTC) - timedelta(days=8))
    host.prune()
    assert store.jobs.get(job.job_id) is not None  # by that host's clock it is of tomorrow
    JobHost(settings, store, runner, "host-a").prune()
    assert store.jobs.get(job.job_id) is None
    assert runner.forgotten == [f"/results/{job.job_id}-1", f"/results/{job.job_id}-2"]


def test_a_result_that_takes_long_to_delete_holds_up_no_job(store: ControlStore, start: Callable[..., JobHost]) -> None:
    old, runner = ask(store, fingerprint="old"), Runner(keeps=threading.Event())
    lease = store.acquire(job_resource(old.job_id), "host-a", ttl_s=1)
    assert lease is not None
    store.jobs.begin(lease, old.job_id, now=datetime.now(UTC))
    store.jobs.end(lease, old.job_id, JobEnd(JobState.DONE, "/x"), now=datetime.now(UTC) - timedelta(days=8))
    runner.release.set()
    start(runner)
    until(store, ask(store), is_in(JobState.DONE))
    assert runner.forgotten == []
    runner.keeps.set()
    wait_until(lambda: runner.forgotten, "the old result is deleted")
