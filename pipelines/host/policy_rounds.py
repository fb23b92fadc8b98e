"""Asks for the acts on tables that policies make due.

Rule: of several hosts that share a store one does it, by a lease that it keeps. What it asks for are jobs like a
person's: few at once, so that none begins long after its window has closed.
"""

from collections.abc import Callable
from datetime import datetime

import structlog

from backend.errors import StreamRefusedError
from backend.jobs.model import POLICY
from backend.lake.lake import Lake
from backend.maintenance.policies import PolicyPlans
from backend.settings import Settings
from backend.store.store import ControlStore
from pipelines.host.rounds import Rounds, Turn

EVERY_S = 15.0
MOST_WAITING = 4  # jobs

log = structlog.get_logger()


class PolicyRounds:
    """`rounds` do nothing where there is no policy."""

    def __init__(
        self, settings: Settings, lake: Lake, store: ControlStore, host_id: str, clock: Callable[[], datetime]
    ) -> None:
        self._store, self._clock, self._turn = store, clock, Turn(store, "policies", host_id)
        self._has_policies, self._plans = bool(settings.table_policies), PolicyPlans(settings, lake)
        self.rounds = Rounds("policies", self.once, every_s=EVERY_S, failed="policies_not_judged", turn=self._turn)

    def once(self) -> None:
        """One round; raises `StoreError`, `StorageError`."""
        if not self._has_policies or not self._turn.take():
            return
        waiting = sum(job.actor == POLICY.name for job in self._store.jobs.unfinished())
        for plan in self._plans.plans(self._store, now=self._clock()):
            wanted = plan.job
            if wanted is None or waiting >= MOST_WAITING:
                continue
            if not self._turn.keep():
                return
            try:
                job = self._store.jobs.submit(wanted, now=self._clock())
            except StreamRefusedError as exc:  # somebody else, or another policy, was first
                log.info("policy_waits", table=plan.table, reason=exc.message)
                continue
            waiting += 1
            log.info("policy_asked", job=job.job_id, act=str(job.kind), table=plan.table, reason=job.reason)
