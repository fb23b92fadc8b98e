"""Adds up what batches reported per minute and per hour, and deletes what is older than settings say.

Rule: a thread of its own, for nothing waits for it. Every host may do it at any time: nothing is added up twice.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

import structlog

from backend.lake.lake import Lake
from backend.settings import Settings
from backend.store.store import CHUNK, ControlStore
from backend.stream_model.backlog import Lag
from backend.stream_model.rollup import HOUR_S, MINUTE_S
from backend.stream_model.stream import Progress, StreamDeclaration
from backend.streams.backlog import BacklogReader
from pipelines.host.rounds import Rounds

EVERY_S = 30.0
PAUSE_S = 0.1  # between two pieces: others write, too
PRUNE_EVERY = timedelta(hours=1)
SEEN_WITHIN = timedelta(hours=1)  # of older batches it would take many commits to say what waited after them

log = structlog.get_logger()


class Retention:
    """`rounds` begin once the store is open; their stop waits for the piece under way."""

    def __init__(self, settings: Settings, lake: Lake, store: ControlStore, clock: Callable[[], datetime]) -> None:
        self._settings, self._store, self._clock = settings.store, store, clock
        self._backlogs = BacklogReader(settings, lake, keep_s=0)
        self._pruned_at: datetime | None = None
        self.rounds = Rounds("retention", self.once, every_s=EVERY_S, failed="retention_failed")

    def once(self) -> None:
        """A round: adds up all that came, and deletes once an hour."""
        while waiting := self._store.not_rolled_up():
            self._store.roll_up(waiting.keys(), self._lags(waiting.values()))
            if len(waiting) < CHUNK or self.rounds.pause(PAUSE_S):
                break
        now = self._clock()
        if self._pruned_at is None or now - self._pruned_at > PRUNE_EVERY:
            self._prune(now)
            self._pruned_at = now

    def _lags(self, batches: Iterable[Progress]) -> dict[str, dict[datetime, Lag]]:
        """What waited after each of these batches, where that can still be seen."""
        now, recent = self._clock(), dict[str, list[Progress]]()
        for batch in batches:
            if now - batch.ended_at < SEEN_WITHIN:
                recent.setdefault(batch.stream, []).append(batch)
        declared = self._store.declarations()
        return {name: self._lags_of(declared[name], of, now) for name, of in recent.items() if name in declared}

    def _lags_of(self, declared: StreamDeclaration, batches: list[Progress], now: datetime) -> dict[datetime, Lag]:
        batches.sort(key=lambda batch: batch.progressed_at)
        try:
            return {lag.at: lag for lag in self._backlogs.history(declared, batches, now=now)}
        except Exception:  # the sums must go on
            log.exception("lags_not_kept", stream=declared.name)
            return {}

    def _prune(self, now: datetime) -> None:
        limits, before = self._settings, now - timedelta(days=self._settings.progress_retention_days)
        rows = self._store.prune_progress(before=before, keep=limits.progress_max_rows)
        for grain_s, days in ((MINUTE_S, limits.minutes_retention_days), (HOUR_S, limits.hours_retention_days)):
            self._store.prune_rollups(grain_s=grain_s, before=now - timedelta(days=days))
        self._store.prune_hosts(before=before)
        self._store.prune_judgements(before=before)
        self._store.noticed.prune(before=before)
        log.info("progress_pruned", rows=rows, before=before.isoformat())
