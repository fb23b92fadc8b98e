"""A lake, its store and policies over it: what a host decides, and jobs ended as a host ends them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from backend.access import Actor
from backend.jobs.model import Job, JobEnd, JobState
from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.maintenance.clone_and_drop import DroppedTable, folder_of
from backend.maintenance.model import ActPreview, Arguments, act_job
from backend.maintenance.plan import preview
from backend.maintenance.policies import PolicyPlan, PolicyPlans
from backend.maintenance.readers import load_users
from backend.settings import load_settings
from backend.store.leases import job_resource
from backend.store.store import ControlStore
from tests.worlds.store import stream_store
from tests.worlds.store.values import leased

ANA = Actor("ana")


def end(store: ControlStore, job: Job, how: JobEnd, *, now: datetime) -> Job:
    """What a host would do."""
    lease = leased(store, job_resource(job.job_id))
    store.jobs.begin(lease, job.job_id, now=now)
    return store.jobs.end(lease, job.job_id, how, now=now)


def move_aside(root: Path, name: str, job: Job) -> Path:
    """What a host does of a drop; the folder that holds note and table."""
    lake, folder = Lake(load_settings()), Path(folder_of(str(root), job.job_id))
    folder.mkdir(parents=True)
    (folder / "dropped.json").write_text(DroppedTable.of(lake.snapshot(lake.find(name)), str(root), job).text())
    (root / name).rename(folder / "table")
    return folder


class PolicyWorld:
    """`now` is the hosts' clock; looks at tables are never kept unless `elapsed` says how long they took."""

    def __init__(self, home: Path, *policies: dict[str, Any], **settings: Any) -> None:
        self.home, self.now = home, datetime.now(UTC)
        self.settings = load_settings(home=home, policies=list(policies), demo={"policy": False}, **settings)
        self.store = stream_store.open_store(home)
        self.store.beat(stream_store.HostHeartbeat("host-a", "machine", 1, self.now, self.now))

    @property
    def lake(self) -> Lake:
        return Lake(self.settings)

    def uri(self, name: str) -> str:
        return str(self.home / "lake" / name)

    def ref(self, name: str) -> TableRef:
        return self.lake.find(name)

    def plans(self) -> list[PolicyPlan]:
        return PolicyPlans(self.settings, self.lake).plans(self.store, now=self.now)

    def plan(self) -> PolicyPlan:
        (plan,) = self.plans()
        return plan

    def preview(self, name: str, arguments: Arguments) -> ActPreview:
        """As pages and commands make it."""
        users = load_users(self.settings, self.lake, self.store, self.ref(name), arguments, now=self.now)
        return preview(self.settings, self.lake, self.ref(name), arguments, users, now=self.now)

    def ask(self) -> Job:
        """What the host asks of itself for the one act that is due."""
        wanted = self.plan().job
        assert wanted is not None, self.plan().why_not
        return self.store.jobs.submit(wanted, now=self.now)

    def by_hand(self, name: str, arguments: Arguments) -> Job:
        wanted = act_job(self.preview(name, arguments).act, actor=ANA, reason="by hand")
        return self.store.jobs.submit(wanted, now=self.now)

    def done(self, job: Job) -> Job:
        return end(self.store, job, JobEnd(JobState.DONE, "/results/x"), now=self.now)

    def fail(self, error: str = "it gave way to v7 MERGE") -> Job:
        return end(self.store, self.ask(), JobEnd(JobState.FAILED, None, error), now=self.now)

    def pass_(self, **time: float) -> None:
        self.now += timedelta(**time)
        self.store.beat(stream_store.HostHeartbeat("host-a", "machine", 1, self.now, self.now))
