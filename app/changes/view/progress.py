"""How far a comparison of rows is, in words: one that runs here, or a job on the stream host.

Rule: pure, and free of pandas, which the terminal does without; what is not known is not shown as 0.
"""

from backend.changes.cache import DiffProgress, LogPart
from backend.format import bytes_text, count_text, duration_text, things
from backend.jobs.model import Job, JobState


def progress_text(step: DiffProgress) -> tuple[float, str]:
    """How far a comparison is: share done, and words: "1.2 M of 4.8 M rows read · 12 s"."""
    took = duration_text(step.elapsed_s if step.elapsed_s < 10 else round(step.elapsed_s))
    if step.is_waiting:
        return 0.0, f"Waiting for other comparisons to end · {took}"
    if not step.rows_read:
        return 0.0, f"Opening files · {took}"
    if step.rows_total is None:
        return 0.0, f"{things(step.rows_read, 'row')} read · {took}"
    share = step.rows_read / step.rows_total if step.rows_total else 1.0
    return share, f"{count_text(step.rows_read)} of {count_text(step.rows_total)} rows read · {took}"


def ended_words(job: Job) -> str:
    """Why there is no answer."""
    if job.state is JobState.CANCELLED and job.result_uri is None:
        return "Cancelled: no row was compared."
    if job.state is JobState.FAILED:
        return f"The stream host could not compare: {job.error}"
    return f"The result of job {job.job_id} is gone: it was deleted, or lies where this page cannot read it."


def cost_words(part: LogPart) -> str:
    """What the job would read."""
    size = part.plan.bytes_to_read
    if size is None:
        return "Spark reads the changes of the commits in between there. The rest is known."
    return f"Spark reads {bytes_text(size)} there. The rest is known."
