"""What is asked of a quarantine as it is now, and what a host answered.

Rule: reads alone; `backend.streams.requeue.request` says what it means.
"""

from collections.abc import Sequence

from backend.errors import StreamRefusedError
from backend.jobs.model import Job
from backend.jobs.results import read_result, results_lake
from backend.lake.lake import Lake
from backend.lake.table.metadata_diff import column_names
from backend.settings import Settings
from backend.stream_model.stream import StreamDeclaration
from backend.streams.requeue.request import (
    RequeueAnswer,
    RequeueRequest,
    checked,
    parse_repairs,
    quarantine_of,
    why_never,
)


def load_request(lake: Lake, declared: StreamDeclaration, where: str, repairs: Sequence[str]) -> RequeueRequest:
    """The request for the quarantine's rows of now; `repairs` as people write them.

    Raises `QueryError` for SQL that may not run, `StreamRefusedError`, or a `TableError`.
    """
    quarantine = quarantine_of(declared)
    if quarantine is None or why_never(declared):
        raise StreamRefusedError(f"{declared.name}: {why_never(declared)}")
    snapshot = lake.snapshot(lake.find(quarantine))
    request = RequeueRequest(declared.name, snapshot.version, where.strip(), parse_repairs(repairs))
    return checked(request, list(column_names(snapshot.metadata)))


def load_answer(settings: Settings, job: Job) -> RequeueAnswer:
    """What a job found or did; raises `JobError` where it failed, `JobResultMissingError`."""
    found = read_result(results_lake(settings), settings, job, ["detail"], again="preview it again")
    return RequeueAnswer.parse(str(found["detail"][0].as_py()))
