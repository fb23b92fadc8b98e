"""Questions that stream hosts answer, for every viewer of a process: what to ask, and what was found.

Rule: whether a job is there, runs or ended is asked of the control store each time; only what never changes is kept,
the log's part of a question and the result of a finished job.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from backend.diff.cache import DiffQuestion
from backend.diff.host_job import job_request, read_answer, results_lake
from backend.diff.model import VersionDiff
from backend.diff.prepare import DiffLake, PreparedDiff, prepare
from backend.jobs.model import Job, JobRequest
from backend.settings import Settings

KEPT = 32
Key = TypeVar("Key")
Value = TypeVar("Value")


class DiffJobs:
    """Thread-safe."""

    def __init__(self, settings: Settings, lake: DiffLake) -> None:
        self._settings, self._lake = settings, lake
        self._results = results_lake(settings)
        self._lock = threading.Lock()
        self._prepared: OrderedDict[DiffQuestion, PreparedDiff] = OrderedDict()
        self._answers: OrderedDict[tuple[DiffQuestion, str], VersionDiff] = OrderedDict()

    def request(self, question: DiffQuestion, *, actor: str, reason: str = "") -> JobRequest:
        """The job that would answer; raises as `job_request` does."""
        prepared, limit_s = self._prepare(question), self._settings.jobs.time_limit_s
        return job_request(prepared, actor=actor, reason=reason, time_limit_s=limit_s)

    def answer(self, question: DiffQuestion, job: Job) -> VersionDiff:
        """What a finished job found; raises `JobError` when its result is gone."""
        key = (question, job.job_id)
        return self._kept(
            self._answers, key, lambda: read_answer(self._results, self._settings, self._prepare(question), job)
        )

    def _prepare(self, question: DiffQuestion) -> PreparedDiff:
        first, second = question.from_version, question.to_version
        return self._kept(
            self._prepared, question, lambda: prepare(self._lake, question.ref, first, second, question.options)
        )

    def _kept(self, kept: OrderedDict[Key, Value], key: Key, make: Callable[[], Value]) -> Value:
        with self._lock:
            if key in kept:
                kept.move_to_end(key)
                return kept[key]
        value = make()
        with self._lock:
            kept[key] = value
            while len(kept) > KEPT:
                kept.popitem(last=False)
        return value
