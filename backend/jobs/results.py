"""What stream hosts leave behind of what they computed: one small Delta table a job, below `jobs.results_uri`.

Rule: read only. The host that ran the job writes its table, and deletes it with the job.
"""

from collections.abc import Sequence

import pyarrow as pa

from backend.errors import JobError, JobResultMissingError, ObjectMissingError, TableError
from backend.jobs.model import Job
from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.lake.storage.folder import normal_uri
from backend.settings import Settings


def results_lake(settings: Settings) -> Lake:
    """A lake of the folder that hosts write results to, and of nothing else."""
    lake = settings.lake.model_copy(update={"roots": [settings.results_uri]})
    return Lake(settings.model_copy(update={"lake": lake}))


def read_result(lake: Lake, settings: Settings, job: Job, columns: Sequence[str], *, again: str) -> pa.Table:
    """The rows that a job left, `again` is what to do without them; raises `JobError` where it found nothing,
    `JobResultMissingError`."""
    if job.result_uri is None:
        raise JobError(f"job {job.job_id} has no result: {job.error or f'it is {job.state}'}", hint=job.hint)
    ref = TableRef(normal_uri(job.result_uri), job.job_id, normal_uri(settings.results_uri))
    try:
        return lake.read_files(lake.snapshot(ref), columns=list(columns)).read_all()
    except (TableError, ObjectMissingError) as exc:
        raise JobResultMissingError(
            f"the result of job {job.job_id} cannot be read: {exc.message}", hint=again
        ) from exc
