"""What policies did to tables, as the jobs of the store tell it.

Rule: pure. A policy is known by its text: once that changes, it begins anew. After `TRIES` failures in a row on one
table it rests there, until somebody has done that act.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from backend.access import Actor
from backend.jobs.model import Job, JobKind, JobState
from backend.table_policies import TablePolicy

POLICY = Actor("policy")
TRIES = 3
KEPT = 8  # newest acts of a kind on a table that a policy acts on: what it did last is known however long ago


@dataclass(frozen=True, slots=True)
class PolicyRuns:
    """`last`: its newest job. `done_at`: when the act was last done, an OPTIMIZE or VACUUM by whomever. `failed`: its
    failures in a row, newest first. `under_way`: the act on the table that is not over, whosever."""

    last: Job | None = None
    done_at: datetime | None = None
    failed: tuple[Job, ...] = ()
    under_way: Job | None = None

    @property
    def rests(self) -> bool:
        return len(self.failed) >= TRIES

    @property
    def broken_off(self) -> Job | None:
        """Its newest job, where that was not done, nor since by somebody else."""
        last = self.last
        if last is None or last.state not in (JobState.FAILED, JobState.CANCELLED):
            return None
        return None if self.done_at and self.done_at > last.requested_at else last


@dataclass(frozen=True, slots=True)
class RestingPolicy:
    """`error`: why it failed last, at `since`."""

    policy: str
    table: str
    kind: JobKind
    error: str
    since: datetime


def reason_of(policy: TablePolicy) -> str:
    """What its jobs give as their reason."""
    return f"policy: {policy.text}"


def kind_of(policy: TablePolicy) -> JobKind:
    return JobKind.OPTIMIZE if policy.optimize else JobKind.VACUUM if policy.vacuum else JobKind.REPAIR


def by_table(jobs: Iterable[Job]) -> dict[str, list[Job]]:
    """Acts by their table, in their order."""
    tables: dict[str, list[Job]] = {}
    for job in jobs:
        tables.setdefault(job.subject, []).append(job)
    return tables


def runs_of(policy: TablePolicy, of_table: Sequence[Job]) -> PolicyRuns:
    """`of_table`: every act on one table, newest first."""
    same = [job for job in of_table if job.kind is kind_of(policy)]
    own = [job for job in same if job.actor == POLICY.name and job.reason == reason_of(policy)]
    done = [job for job in (own if policy.expire else same) if job.state is JobState.DONE]
    failed = list[Job]()
    for job in same:
        if job.state is JobState.DONE:
            break
        if job in own and job.state is JobState.FAILED:
            failed.append(job)
    return PolicyRuns(
        own[0] if own else None,
        max((job.ended_at or job.requested_at for job in done), default=None),
        tuple(failed),
        next((job for job in of_table if not job.state.is_over), None),
    )


def resting(policies: Iterable[TablePolicy], jobs: Sequence[Job]) -> Iterator[RestingPolicy]:
    """Those that a person has to look at."""
    for policy in policies:
        for table, of_table in sorted(by_table(jobs).items()):
            if (runs := runs_of(policy, of_table)).rests:
                newest = runs.failed[0]
                since = newest.ended_at or newest.requested_at
                yield RestingPolicy(policy.text, table, newest.kind, newest.error, since)
