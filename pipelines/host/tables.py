"""What a host does about tables by itself: expectations judged, commits noticed, policies carried out.

Rule: whoever writes the tables, pipelines or others. What is found is kept in the store for everybody; what policies
ask for are jobs like a person's.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial

import structlog

from backend.errors import LakehouseError, StreamRefusedError
from backend.expectations.looks import Looks
from backend.expectations.model import Finding, Judgement, State, TableExpectation, settle
from backend.jobs.model import POLICY
from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.maintenance.policies import PolicyPlans
from backend.search.notice import Key, Notice, notice_text
from backend.search.notices import NoticeLooks
from backend.settings import Settings
from backend.sql.session import CancelToken
from backend.store.store import ControlStore
from backend.work import Stopped
from pipelines.host.periodic import LEASE_S, Rounds, Task

KEYS_LIMIT_S = 600.0  # one table
MOST_WAITING = 4  # jobs of policies: none shall begin long after its window has closed
_BACK = timedelta(hours=1)  # before the last sign of life of the host before
_LONGEST_BACK = timedelta(days=7)  # at a first start; a silence that others told may have ended meanwhile
_SILENCES_EVERY_S = 300.0  # silence is told after an hour
_NEWS_AGAIN_S = 20.0  # at a first start: what is written meanwhile comes first

log = structlog.get_logger()
Clock = Callable[[], datetime]


class TableWatch:
    """Judges the expectations on tables that pipelines declare and people have; of several hosts one judges each.
    `judged` is called with every judgement."""

    def __init__(
        self,
        settings: Settings,
        lake: Lake,
        store: ControlStore,
        expectations: Sequence[TableExpectation],
        host_id: str,
        pipelines: Iterable[str],
        clock: Clock,
        *,
        judged: Callable[[Judgement], None] = lambda _: None,
    ) -> None:
        self._settings, self._store, self._host_id, self._clock = settings, store, host_id, clock
        self._expectations, self._pipelines, self._judged = tuple(expectations), tuple(pipelines), judged
        self._looks = Looks(lake, settings.host.keys_max_bytes)
        self._token = CancelToken()

    def tasks(self) -> Iterator[Task]:
        """What it does in the table of periodic tasks: a large table must not hold up the look for fresh data."""
        host = self._settings.host
        for name, is_quick, every_s in (
            ("table-freshness", True, host.freshness_interval_s),
            ("table-expectations", False, host.expectations_interval_s),
        ):
            ours = [expectation for expectation in self._expectations if expectation.kind.is_quick is is_quick]
            if ours or not is_quick:  # people may begin to expect something
                look = partial(self.round, ours, by_hand=not is_quick)
                yield Task(name, every_s, look, failed="expectations_not_judged", cancel=self._token.stop)

    def declare(self) -> None:
        """Makes known what is expected, before anything is judged."""
        early = Finding(State.UNKNOWN, "its host has just begun", is_early=True)
        declared = [Judgement(expectation, early, self._host_id, self._clock()) for expectation in self._expectations]
        try:
            self._store.expect(self._pipelines, declared)
        except LakehouseError as exc:
            log.warning("expectations_not_declared", error=exc.message)

    def round(
        self, expectations: Sequence[TableExpectation], rounds: Rounds | None = None, *, by_hand: bool = False
    ) -> None:
        """Judges each that no other living host judges, `by_hand` those of people as well; raises `StoreError`, and
        `Stopped` when told to end."""
        former = {(each.expectation.uri, each.expectation.name): each for each in self._store.judgements()}
        alive = self._store.live_hosts(within_s=self._settings.host.heartbeat_stale_s)
        others = {host.host_id for host in alive} - {self._host_id}
        of_people = [each.expectation for each in former.values() if by_hand and each.expectation.by]
        for expectation in [*expectations, *of_people]:
            before = former.get((expectation.uri, expectation.name))
            if before is not None and before.host_id in others:
                continue
            if rounds is not None and rounds.is_stopping:
                raise Stopped
            self._judge(expectation, before)

    def _judge(self, expectation: TableExpectation, before: Judgement | None) -> None:
        now = self._clock()
        if not expectation.kind.is_quick:
            self._token.begin(KEYS_LIMIT_S)
        finding = self._looks.look(expectation, before.finding if before else None, self._token, now=now)
        judgement = settle(expectation, finding, before, host_id=self._host_id, now=now)
        self._store.note_judgement(judgement)
        self._judged(judgement)
        if before is None or before.state is not judgement.state:
            log.info(
                "expectation_judged", table=expectation.table, expectation=expectation.name, state=judgement.state.value
            )


class CommitWatch:
    """Judges what commits did to tables of the lake, as they come: a table is read when its latest version is another
    one than at the round before. `lake`: not that of the host's own work, since it passes by every table."""

    def __init__(self, lake: Lake, store: ControlStore, clock: Clock, host_id: str = "") -> None:
        self._lake, self._store, self._clock, self._host_id = lake, store, clock, host_id
        self._looks, self._since = NoticeLooks(lake, self._streams), clock() - _LONGEST_BACK
        self._seen, self._tried = dict[str, int](), set[str]()
        self._written: dict[str, tuple[int, datetime]] = {}  # latest versions that were found, and when each was made
        self._logged: set[Key] = set()
        self._silences_due_s = 0.0
        self._not_kept: list[Notice] = []  # while the store is away

    @property
    def looked_at(self) -> int:
        """Tables whose commits were looked at."""
        return len(self._tried)

    def look(self, rounds: Rounds) -> None:
        """One round; raises `StoreError`, `StorageError`, and `Stopped` when told to end."""
        self._keep()
        if not self._seen:
            self._since = self._back_to()
        led_at = time.monotonic()
        is_due = led_at >= self._silences_due_s
        while news := self._news():
            listed_s = time.monotonic()
            for ref in news:
                if rounds.is_stopping:
                    raise Stopped
                self._look(ref, is_new=True)
                if time.monotonic() - led_at > LEASE_S / 4:
                    if not rounds.leads():
                        return
                    led_at = time.monotonic()
                if time.monotonic() - listed_s > _NEWS_AGAIN_S:
                    break
            else:
                break
        if is_due:
            for ref in self._lake.tables():
                if rounds.is_stopping:
                    raise Stopped
                self._look(ref, is_new=False)
            self._silences_due_s = led_at + _SILENCES_EVERY_S

    def _back_to(self) -> datetime:
        """Until when other hosts looked at each table; a week before now where none did."""
        now = self._clock()
        others = [host.beat_at for host in self._store.hosts(now=now) if host.host_id != self._host_id]
        return max([now - _LONGEST_BACK, *(beat_at - _BACK for beat_at in others)])

    def _news(self) -> list[TableRef]:
        """Tables whose latest version was not looked at, the one that was written last first."""
        for ref in self._lake.tables():
            try:
                latest = self._lake.latest_version(ref)
                if self._written.get(ref.uri, (-1,))[0] != latest:
                    (commit,) = self._lake.history(ref, limit=1)
                    self._written[ref.uri] = latest, commit.committed_at or self._since
            except LakehouseError as exc:  # it is told where the table is shown
                log.debug("notices_of_table_not_judged", table=ref.name, error=exc.message)
        news = [ref for ref in self._lake.tables() if self._seen.get(ref.uri) != self._written.get(ref.uri, (None,))[0]]
        return sorted(news, key=lambda ref: self._written[ref.uri][1], reverse=True)

    def _look(self, ref: TableRef, *, is_new: bool) -> None:
        """At what its commits did since the last look, where `is_new`, and whether it has been silent for long."""
        try:
            latest, now = self._lake.latest_version(ref), self._clock()
            notices = self._looks.silences(ref, now - (_BACK if ref.uri in self._seen else _LONGEST_BACK), now)
            notices += self._looks.look(ref, self._since, now) if is_new else []
            if is_new:
                self._seen[ref.uri] = -1 if self._looks.is_waiting(ref) else latest
        except LakehouseError as exc:  # it is told where the table is shown
            log.debug("notices_of_table_not_judged", table=ref.name, error=exc.message)
            return
        finally:
            self._tried.add(ref.uri)
        for notice in notices:
            if notice.is_open and notice.key not in self._logged:
                self._logged.add(notice.key)
                log.warning("commit_noticed", table=ref.name, version=notice.version, what=notice_text(notice))
        self._not_kept += notices
        self._keep()

    def _streams(self) -> dict[str, str]:
        """The stream of each query id that hosts last saw."""
        return {seen.query_id: name for name, seen in self._store.observed().items() if seen.query_id}

    def _keep(self) -> None:
        self._store.noticed.keep(self._not_kept, now=self._clock())
        self._not_kept = []


def submit_due(plans: PolicyPlans, store: ControlStore, clock: Clock, rounds: Rounds) -> None:
    """Asks for the acts on tables that policies make due; raises `StoreError`, `StorageError`."""
    waiting = sum(job.actor == POLICY.name for job in store.jobs.unfinished())
    for plan in plans.plans(store, now=clock()):
        if plan.job is None or waiting >= MOST_WAITING:
            continue
        if not rounds.leads():
            return
        try:
            job = store.jobs.submit(plan.job, now=clock())
        except StreamRefusedError as exc:  # somebody else, or another policy, was first
            log.info("policy_waits", table=plan.table, reason=exc.message)
            continue
        waiting += 1
        log.info("policy_asked", job=job.job_id, act=str(job.kind), table=plan.table, reason=job.reason)
