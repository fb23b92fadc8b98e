"""A query that a stream host answers with Spark: the plan as a job, and the rows that the job kept.

Rule: the host plans the statement again, and reads the tables of the request or none. What Spark would not answer as
DuckDB does, and what only Weir can read, is refused before a job is asked for.
"""

from dataclasses import dataclass

import pyarrow as pa

from backend.access import Actor
from backend.errors import JobError, QueryError
from backend.format import cut
from backend.jobs.host_query import HostAnswer, HostQuery, PinnedRead
from backend.jobs.model import Job, JobKind, JobRequest
from backend.jobs.results import ResultLake, read_result
from backend.query.plan import QueryPlan, plan_query
from backend.query.statement import translated
from backend.query.views import World
from backend.settings import Settings
from backend.sql.saved import audit_text
from backend.times import Clock

PLACE = "place"  # of a row of the answer: the order in which a table's rows are read is nobody's promise


@dataclass(frozen=True, slots=True)
class HostPlan:
    """What the host runs: Spark's SQL, over tables called as the plan's reads are."""

    plan: QueryPlan
    sql: str


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The first rows of an answer, in its order; `is_cut`: there are more."""

    rows: pa.Table
    is_cut: bool
    by: str


def job_request(plan: QueryPlan, *, actor: Actor, reason: str, time_limit_s: float) -> JobRequest:
    """The job that would answer; raises `QueryError` for what a host cannot do."""
    _spark_sql(plan)
    asked = HostQuery(plan.statement.text, _reads(plan))
    tables = ", ".join(dict.fromkeys(read.table for read in plan.reads))
    versions = ", ".join(f"{table} v{version}" for table, version in plan.versions)
    told = {"versions": versions, "statement": audit_text(plan.statement.text)}
    subject = cut(tables, 200) or "no table"
    return JobRequest(JobKind.QUERY, subject, asked.fingerprint, asked.to_json(), actor, reason, time_limit_s, told)


def host_plan(world: World, job: Job, clock: Clock) -> HostPlan:
    """What the host that took the job runs. Every path that the logs name is looked at here, before Spark follows it:
    raises `PathRefusedError` for one outside the roots, `JobError` where another table lies there by now."""
    asked = HostQuery.of(job.request)
    plan = plan_query(world, asked.text, clock, pins=[str(read.version) for read in asked.reads])
    sql = _spark_sql(plan)
    if _reads(plan) != asked.reads:
        raise JobError("a table of the query was replaced by another one meanwhile", hint="run it again")
    for read in plan.reads:
        if read.snapshot is not None:
            world.lake.require_files(read.snapshot, read.snapshot.columns(["path"]))
    return HostPlan(plan, sql)


def kept_rows(lake: ResultLake, settings: Settings, job: Job) -> KeptRows:
    """What a job found; raises `JobError` where it found nothing, `JobResultMissingError`."""
    answer = HostAnswer.of(job.require_answer())
    names = [f"c{number}" for number in range(len(answer.columns))]
    rows = read_result(lake, settings, job, [PLACE, *names], again="run it again").sort_by(PLACE)
    return KeptRows(rows.select(names).rename_columns(answer.columns), answer.is_cut, answer.by)


def _spark_sql(plan: QueryPlan) -> str:
    for read in plan.reads:
        if read.snapshot is None:
            hint = "run it here: Weir reads it of the table's log, or of its own store"
            raise QueryError(f"the stream host has no {read.table}", hint=hint)
    return translated(plan.statement, "Spark", {})


def _reads(plan: QueryPlan) -> tuple[PinnedRead, ...]:
    return tuple(
        PinnedRead(snapshot.ref.uri, read.table, snapshot.version, snapshot.metadata.id)
        for read in plan.reads
        if (snapshot := read.snapshot) is not None
    )
