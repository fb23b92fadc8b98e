"""A question that a stream host answers once for all who ask the same: asked, looked up again, and in words.

Rule: no Streamlit, pages and commands ask alike. The control store alone says what runs and what was found: a reload, a
second viewer and the command meet one job, and leaving ends nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Generic, TypeVar

from backend.errors import JobError
from backend.jobs.model import Job, JobRequest, JobState

if TYPE_CHECKING:
    from backend.store.store import ControlStore

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class HostReply(Generic[Answer]):
    """The newest `job` of a question, None where nobody asked it; its `answer`, or the `problem`: why it has none. One
    that is not over has neither."""

    job: Job | None = None
    answer: Answer | None = None
    problem: JobError | None = None


@dataclass(frozen=True, slots=True)
class HostQuestion(Generic[Answer]):
    """`request` names the job; `verb`: what the host does, "compare"; `read`: the answer that a job left, which raises
    `JobError` where that is gone."""

    request: JobRequest
    verb: str
    read: Callable[[Job], Answer]

    def look(self, store: "ControlStore | None") -> HostReply[Answer]:
        """What became of it so far; None: there is no store yet."""
        job = store.jobs.find(self.request.fingerprint) if store is not None else None
        return HostReply() if job is None else self.reply(job)

    def ask(self, store: "ControlStore", before: HostReply[Answer], *, now: datetime) -> Job:
        """The job that answers it, a new one where what `before` left is gone."""
        gone = before.job.job_id if before.job is not None and before.problem is not None else None
        return store.jobs.submit(self.request, now=now, instead_of=gone)

    def reply(self, job: Job) -> HostReply[Answer]:
        """What a job found, whole or by the time it was ended."""
        if job.state is JobState.DONE or job.result_uri is not None:
            try:
                return HostReply(job, self.read(job))
            except JobError as exc:
                return HostReply(job, problem=exc)
        problem = None
        if job.state is JobState.CANCELLED:
            problem = JobError(f"job {job.job_id} was cancelled", hint=f"{self.verb} again to begin anew")
        elif job.state is JobState.FAILED:
            problem = JobError(f"the stream host could not {self.verb}: {job.error}", hint=job.hint)
        return HostReply(job, problem=problem)
