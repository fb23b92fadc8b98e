"""What policies do next: for each policy and table of its pattern the act that is due, or why it waits.

Rule: `why_not_now` and `why_not_worth` are pure; `PolicyPlans` reads. A table is looked at only when nothing else makes
its policy wait, by the preview that pages and commands show. Looking takes a twentieth of the time at most.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from backend.errors import LakehouseError, QueryError
from backend.format import bytes_text, clock_text, duration_text, percent, things
from backend.jobs.model import (
    POLICY,
    TRIES,
    Job,
    JobKind,
    JobRequest,
    JobState,
    PolicyRuns,
    by_table,
    kind_of,
    reason_of,
    runs_of,
)
from backend.lake.lake import Lake
from backend.lake.model import Snapshot, TableRef
from backend.lake.storage.folder import normal_uri
from backend.lake.table.schema import columns
from backend.maintenance.files import small_within
from backend.maintenance.model import ActPreview, Arguments, Optimize, Repair, TableAct, Vacuum, act_job
from backend.maintenance.places import commit_risk
from backend.maintenance.plan import preview
from backend.maintenance.readers import load_users
from backend.settings import Settings
from backend.sql.filters import condition_text
from backend.store.store import ControlStore
from backend.streams.backlog import BacklogReader
from backend.streams.status import statuses
from backend.streams.verdict import StreamStatus, Verdict
from backend.table_policies import ExpireWhen, OptimizeWhen, TablePolicy, VacuumWhen

TRY_AGAIN = timedelta(hours=1)  # where there is no window
LOOK_FACTOR = 20
_BEHIND = (Verdict.CATCHING_UP, Verdict.SLOW)
_TIMES = ("timestamp", "timestamp_ntz", "date")


@dataclass(frozen=True, slots=True)
class PolicyPlan:
    """One policy on one table, `ref` None where no table is of its pattern. `why_not`: why its act is not done now,
    empty where it is due. `next_at`: when it may be, None where that depends on something else than time.
    `previewed`: the act, where the table was looked at."""

    policy: TablePolicy
    ref: TableRef | None
    runs: PolicyRuns
    why_not: str
    next_at: datetime | None = None
    previewed: ActPreview | None = None

    @property
    def kind(self) -> JobKind:
        return kind_of(self.policy)

    @property
    def text(self) -> str:
        return self.policy.text

    @property
    def table(self) -> str | None:
        return self.ref.name if self.ref else None

    @property
    def due(self) -> TableAct | None:
        return self.previewed.act if self.previewed and not self.why_not else None

    @property
    def failures(self) -> int:
        """In a row."""
        return len(self.runs.failed)

    @property
    def state(self) -> str:
        """ "due", "resting", "running", "waiting"."""
        if self.runs.under_way and self.runs.under_way == self.runs.last:
            return "running"
        return "resting" if self.runs.rests else "due" if self.due else "waiting"

    @property
    def job(self) -> JobRequest | None:
        """What a host is asked, where it is due."""
        return act_job(self.due, actor=POLICY, reason=reason_of(self.policy)) if self.due else None


def why_not_now(
    policy: TablePolicy, runs: PolicyRuns, streams: Sequence[StreamStatus], now: datetime
) -> tuple[str, datetime | None]:
    """Why an act waits as the store tells it, and until when; empty where the table decides. `streams`: those that read
    or write it."""
    opening = policy.opening
    if runs.under_way:
        return f"its {runs.under_way.kind} is under way", None
    if runs.rests:
        return f"rests after {things(TRIES, 'failure')} in a row: {runs.failed[0].error}", None
    if job := runs.broken_off:
        ended_at = job.ended_at or job.requested_at
        again = opening.next_after(job.requested_at) if policy.window else ended_at + TRY_AGAIN
        if now < again:
            ended = "was cancelled" if job.state is JobState.CANCELLED else f"failed: {job.error}"
            return f"{ended}; tried again {clock_text(again, None, now)}", again
    every = timedelta(hours=policy.when.every_hours)
    if runs.done_at and now < runs.done_at + every:
        next_at = opening.opens_at(runs.done_at + every)
        ago = duration_text((now - runs.done_at).total_seconds())
        return f"done {ago} ago, next after {duration_text(every.total_seconds())}", next_at
    if (opens_at := opening.opens_at(now)) > now:
        return f"next window opens {clock_text(opens_at, None, now)}", opens_at
    behind = [
        f"{stream.declaration.name} is {stream.verdict.lower()}" for stream in streams if stream.verdict in _BEHIND
    ]
    return ", ".join(behind), None


def why_not_worth(policy: TablePolicy, planned: ActPreview) -> str:
    """Why an act waits as its preview tells it; empty where it is due."""
    if planned.refused or policy.optimize is None:
        return planned.refused
    figures, when = planned.figures, policy.optimize
    files_in, before = figures["files_in"] or 0, figures["files_before"] or 0
    spared = files_in - (figures["files_out"] or 0)  # of a clustered table nobody knows how many come out
    share = spared / before if before else 0.0
    if spared < when.spares_files:
        return f"{things(spared, 'file')} would be spared, the policy wants {when.spares_files:,}"
    if share < when.spares_share:
        return f"{percent(share)} of the files would be spared, the policy wants {percent(when.spares_share)}"
    return ""


def expiry(snapshot: Snapshot, asked: ExpireWhen, now: datetime) -> Repair:
    """The deletion of rows that are too old, as of the full hour, so that one asked a moment later is the same. Raises
    `QueryError` where the column holds no time."""
    column = next((field for field in columns(snapshot.metadata) if field.path == asked.column), None)
    if column is None or column.type not in _TIMES:
        kind = f"is a {column.type}" if column else "is no column of the table"
        raise QueryError(f"{asked.column} {kind}, so nothing says how old a row is", hint="a time or a day is needed")
    limit = (now - timedelta(days=asked.older_than_days)).replace(minute=0, second=0, microsecond=0)
    return Repair(condition_text(asked.column, "<", limit.date() if column.type == "date" else limit))


class PolicyPlans:
    """For one process. `elapsed`: seconds of a clock that only goes on."""

    def __init__(self, settings: Settings, lake: Lake, *, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._lake, self._elapsed = settings, lake, elapsed
        self._backlogs = BacklogReader(settings, lake)
        self._kept: dict[tuple[str, str], tuple[float, str, ActPreview | None]] = {}

    def plans(self, store: ControlStore | None, *, now: datetime) -> list[PolicyPlan]:
        """In the order of the policies, then of the tables; raises `StoreError`, `StorageError`."""
        policies = self._settings.table_policies
        if not policies:
            return []
        acts = by_table(store.jobs.acts_on_tables()) if store else {}
        stale_s = self._settings.host.heartbeat_stale_s
        streams = statuses(store, self._backlogs, now=now, heartbeat_stale_s=stale_s) if store else []
        tables, plans = self._lake.tables(), list[PolicyPlan]()
        for policy in policies:
            matching = [ref for ref in tables if policy.is_for(ref.name, ref.uri)]
            plans += [self._plan(policy, ref, acts.get(ref.name, []), streams, store, now) for ref in matching]
            if not matching and policy in self._settings.policies:  # nobody wrote the demo's down
                plans.append(PolicyPlan(policy, None, PolicyRuns(), f"no table is called {policy.tables}"))
        return plans

    def _plan(
        self,
        policy: TablePolicy,
        ref: TableRef,
        acts: Sequence[Job],
        streams: Sequence[StreamStatus],
        store: ControlStore | None,
        now: datetime,
    ) -> PolicyPlan:
        runs = runs_of(policy, acts)
        why, next_at = why_not_now(policy, runs, [stream for stream in streams if _uses(stream, ref)], now)
        if why := why or commit_risk(self._settings, ref.uri):
            return PolicyPlan(policy, ref, runs, why, next_at)
        why, planned = self._look(policy, ref, store, now)
        return PolicyPlan(policy, ref, runs, why, None, planned)

    def _look(
        self, policy: TablePolicy, ref: TableRef, store: ControlStore | None, now: datetime
    ) -> tuple[str, ActPreview | None]:
        """At the table; what was not worth it is kept in proportion to what the look took."""
        key, began = (policy.text, ref.uri), self._elapsed()
        if (kept := self._kept.pop(key, None)) and began < kept[0]:
            self._kept[key] = kept
            return kept[1:]
        try:
            why, planned = self._previewed(policy, ref, store, now)
        except LakehouseError as exc:
            why, planned = exc.message, None
        if why:
            ended = self._elapsed()
            self._kept[key] = ended + LOOK_FACTOR * (ended - began), why, planned
        return why, planned

    def _previewed(
        self, policy: TablePolicy, ref: TableRef, store: ControlStore | None, now: datetime
    ) -> tuple[str, ActPreview]:
        snapshot = self._lake.snapshot(ref)
        due = _asked(policy, snapshot, now)
        users = load_users(self._settings, self._lake, store, ref, due, now=now)

        def previewed(arguments: Arguments) -> ActPreview:
            return preview(self._settings, self._lake, ref, arguments, users, now=now)

        planned = previewed(due)
        why, most = why_not_worth(policy, planned), policy.optimize.most_bytes if policy.optimize else None
        if why or most is None or (planned.figures["bytes_in"] or 0) <= most:
            return why, planned
        asked = planned.act.arguments
        assert isinstance(asked, Optimize)
        if below := small_within(snapshot, asked, most):
            part = previewed(replace(asked, small_bytes=below))
            if not part.refused and (part.figures["bytes_in"] or 0) <= most:
                return "", part
        return f"merging any two files rewrites more than {bytes_text(most)} at once", planned


def _asked(policy: TablePolicy, snapshot: Snapshot, now: datetime) -> Arguments:
    match policy.when:
        case ExpireWhen() as when:
            return expiry(snapshot, when, now)
        case VacuumWhen(lite=lite):
            return Vacuum(lite)
        case OptimizeWhen():
            return Optimize()


def _uses(stream: StreamStatus, ref: TableRef) -> bool:
    declared = stream.declaration
    uris = [output.uri for output in declared.outputs]
    uris += [source.uri for source in declared.inputs if source.is_table and not source.is_static]
    return any(normal_uri(uri) == ref.uri for uri in uris)
