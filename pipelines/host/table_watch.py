"""Judges the expectations on tables that pipelines declare and people have, whoever writes the tables.

Rule: threads of their own, so that a large table holds up neither streams nor the look for fresh data. Judgements are
kept in the store for everybody; of several hosts one judges.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial

import structlog

from backend.errors import LakehouseError
from backend.expectations.looks import Looks
from backend.expectations.model import Finding, Judgement, State, TableExpectation, settle
from backend.lake.lake import Lake
from backend.settings import Settings
from backend.sql.session import CancelToken
from backend.store.store import ControlStore
from backend.work import Stopped
from pipelines.host.rounds import Rounds

KEYS_LIMIT_S = 600.0  # one table

log = structlog.get_logger()


class TableWatch:
    """`start` it when the host's heart beats; `stop` ends a look under way. `judged` is called with every judgement."""

    def __init__(
        self,
        settings: Settings,
        lake: Lake,
        store: ControlStore,
        expectations: Sequence[TableExpectation],
        host_id: str,
        pipelines: Iterable[str],
        clock: Callable[[], datetime],
        *,
        judged: Callable[[Judgement], None] = lambda _: None,
    ) -> None:
        self._settings, self._store, self._host_id, self._clock = settings, store, host_id, clock
        self._expectations, self._pipelines, self._judged = tuple(expectations), tuple(pipelines), judged
        self._looks = Looks(lake, settings.host.keys_max_bytes)
        self._token = CancelToken()
        self._rounds: list[Rounds] = []

    def start(self) -> None:
        host = self._settings.host
        for is_quick, every_s in ((True, host.freshness_interval_s), (False, host.expectations_interval_s)):
            ours = [expectation for expectation in self._expectations if expectation.kind.is_quick is is_quick]
            name = "table-freshness" if is_quick else "table-expectations"
            if ours or not is_quick:  # people may begin to expect something
                look = partial(self.round, ours, by_hand=not is_quick)
                self._rounds.append(Rounds(name, look, every_s=every_s, failed="expectations_not_judged"))
        self.declare()
        for rounds in self._rounds:
            rounds.start()

    def stop(self, limit_s: float) -> None:
        self._token.stop()
        for rounds in self._rounds:
            rounds.stop(0)  # told at once, then awaited
        for rounds in self._rounds:
            rounds.stop(limit_s / len(self._rounds))

    def declare(self) -> None:
        """Makes known what is expected, before anything is judged."""
        early = Finding(State.UNKNOWN, "its host has just begun", is_early=True)
        declared = [Judgement(expectation, early, self._host_id, self._clock()) for expectation in self._expectations]
        try:
            self._store.expect(self._pipelines, declared)
        except LakehouseError as exc:
            log.warning("expectations_not_declared", error=exc.message)

    def round(self, expectations: Sequence[TableExpectation], *, by_hand: bool = False) -> None:
        """Judges each that no other living host judges, `by_hand` those of people as well; raises `StoreError`, and
        `Stopped` when told to end."""
        former = {
            (judgement.expectation.uri, judgement.expectation.name): judgement for judgement in self._store.judgements()
        }
        others = self._living_others()
        of_people = [each.expectation for each in former.values() if by_hand and each.expectation.by]
        for expectation in [*expectations, *of_people]:
            before = former.get((expectation.uri, expectation.name))
            if before is not None and before.host_id in others:
                continue
            if any(rounds.is_stopping for rounds in self._rounds):
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

    def _living_others(self) -> set[str]:
        alive = self._store.live_hosts(within_s=self._settings.host.heartbeat_stale_s)
        return {host.host_id for host in alive} - {self._host_id}
