"""How `weir diff` waits for an answer: of this process, or of a stream host.

Rule: the first Ctrl-C ends a comparison here with what it had compared, a second one does not wait for that. On a host
Ctrl-C cancels the job that this command asked for, which may leave a part of the answer; a job that somebody else asked
for goes on.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from app import services
from app.changes.text import progress_text
from app.cli.output import say, status_line
from app.cli.store import START_HINT, awaited, require_host
from backend.changes.cache import Differences
from backend.changes.host_job import DiffJobs
from backend.changes.model import Question, VersionDiff
from backend.errors import JobError, JobResultMissingError
from backend.jobs.model import Job, JobRequest, JobState

if TYPE_CHECKING:
    from backend.lake.lake import Lake
    from backend.store.store import ControlStore

_POLL_S = 0.1
_SILENT_S = 1.0  # what is over sooner needs no word


# here -----------------------------------------------------------------------------------------------------------------


def here(differences: Differences, lake: "Lake", question: Question) -> VersionDiff:
    """The answer, or what there is of it when it was interrupted; raises what comparing raises, `KeyboardInterrupt`
    where there is nothing yet or somebody does not wait for it."""
    with _presses() as pressed, ExitStack() as stack:
        show: Callable[[str], None] | None = None
        for step in differences.over(lake, question):
            if step.result is not None:
                return step.result
            if pressed:
                break
            if show is None and step.elapsed_s > _SILENT_S:
                show = stack.enter_context(status_line())
            if show is not None:
                show(progress_text(step)[1])
        stack.close()
        sys.stderr.write("ended: what was compared is counted, Ctrl-C again leaves at once\n")
        while not differences.abandon(question, _POLL_S):
            if len(pressed) > 1:
                raise KeyboardInterrupt
    answer = differences.known(question) or differences.so_far(question)
    if answer is None:
        raise KeyboardInterrupt
    return answer


@contextmanager
def _presses() -> Iterator[list[int]]:
    """Ctrl-C as it is pressed meanwhile. It raises nothing: within a lock, that would break the lock."""
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda signum, _: pressed.append(signum))
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


# on a stream host ----------------------------------------------------------------------------------------------------


def on_host(jobs: DiffJobs, question: Question) -> VersionDiff:
    """The answer as a host finds it, or what it had found when it was ended; raises `JobError` when the job found
    nothing or nobody does it."""
    if (answer := jobs.without_rows(question)) is not None:
        return answer
    wanted, store = jobs.request(question, actor=services.actor(), reason="weir diff"), services.existing_store()
    if store is None:
        raise JobError("there is no control store, so no stream host either", hint=START_HINT)
    done = _done(store, wanted)
    try:
        return jobs.answer(question, done)
    except JobResultMissingError:
        return jobs.answer(question, _done(store, wanted, instead_of=done.job_id))


def _done(store: "ControlStore", wanted: JobRequest, *, instead_of: str | None = None) -> Job:
    known, asked_at = store.jobs.find(wanted.fingerprint), services.now()
    if known is None or known.state is not JobState.DONE or known.job_id == instead_of:
        require_host(store)
    job = store.jobs.submit(wanted, now=asked_at, instead_of=instead_of)
    try:
        return _ended(store, job)
    except KeyboardInterrupt:
        if job.requested_at != asked_at:
            raise
        job = store.jobs.cancel(job.job_id, actor=services.actor(), reason="Ctrl-C", now=services.now())
        say(f"job {job.job_id} is cancelled, Ctrl-C again does not wait", style="dim", to_stderr=True)
    try:
        return _ended(store, job)
    except JobError:
        raise KeyboardInterrupt from None


def _ended(store: "ControlStore", job: Job) -> Job:
    job = awaited(store, job, hint=f"{START_HINT}; the same command finds the job again")
    if job.result_uri is not None:
        return job
    if job.state is JobState.CANCELLED:
        raise JobError(f"job {job.job_id} was cancelled", hint="compare again to begin anew")
    if job.state is JobState.FAILED:
        raise JobError(f"the stream host could not compare: {job.error}", hint=job.hint)
    return job
