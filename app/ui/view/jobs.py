"""How far a job of the stream host is, in words.

Rule: pure, and free of pandas, which the terminal does without; what is not known is not shown as 0.
"""

from datetime import datetime

from backend.format import ago, count_text, duration_text
from backend.jobs.model import Job, JobState


def job_share(job: Job) -> float:
    """From 0 to 1, of the tasks of the phase that runs."""
    progress = job.progress
    return min(1.0, progress.done / progress.total) if progress.total else 0.0


def job_words(job: Job, *, now: datetime, is_orphan: bool = False) -> str:
    """What is going on, as one line."""
    if job.state is JobState.QUEUED:
        return f"Waiting for a stream host · asked for by {job.actor} {ago(job.requested_at, now)}"
    if is_orphan:
        return f"{job.host_id} does not answer any more: another host takes over, or the job fails"
    if job.cancel_requested:
        return "Being cancelled"
    progress = job.progress
    words = [f"Spark on {job.host_id}: {progress.phase or 'starting'}"]
    if progress.total:
        words.append(f"{count_text(progress.done)} of {count_text(progress.total)} tasks")
    if job.started_at is not None:
        words.append(duration_text(max(0, round((now - job.started_at).total_seconds()))))
    return " · ".join(words)
