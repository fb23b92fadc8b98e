"""Judges what commits did to tables of the lake, whoever wrote them, as they come.

Rule: of several hosts that share a store one does it, by a lease that it keeps. A table is read when its latest version
is another one than at the round before.
"""

import time
from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from backend.errors import LakehouseError
from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.search.notice import Key, Notice, notice_text
from backend.search.notices import NoticeLooks
from backend.store.store import ControlStore
from backend.work import Stopped
from pipelines.host.rounds import LEASE_S, Rounds, Turn

EVERY_S = 5.0
_LONGEST_PAUSE_S = 30.0  # with thousands of tables a round takes seconds
_BACK = timedelta(hours=1)  # that a host looks at when it begins
_SILENCES_EVERY_S = 300.0  # silence is told after an hour
_SILENT_BACK = timedelta(days=7)  # a silence that others told may have ended meanwhile

log = structlog.get_logger()


class NoticeRounds:
    """`lake`: of its own, since it passes by every table. `rounds` begin once the store is open."""

    def __init__(self, lake: Lake, store: ControlStore, host_id: str, clock: Callable[[], datetime]) -> None:
        self._lake, self._store, self._clock, self._turn = lake, store, clock, Turn(store, "notices", host_id)
        self._looks, self._begun_at = NoticeLooks(lake, self._streams), clock()
        self._seen: dict[str, int] = {}
        self._logged: set[Key] = set()
        self._silences_due_s = 0.0
        self._not_kept: list[Notice] = []  # while the store is away
        self.rounds = Rounds(
            "notices", self.once, every_s=EVERY_S, failed="notices_not_judged", longest_pause_s=_LONGEST_PAUSE_S,
            turn=self._turn,
        )  # fmt: skip

    def once(self) -> None:
        """One round; raises `StoreError`, `StorageError`, and `Stopped` when told to end."""
        self._keep()
        if not self._turn.take():
            return
        renewed_at = time.monotonic()
        is_due = renewed_at >= self._silences_due_s
        for ref in self._lake.tables():
            if self.rounds.is_stopping:
                raise Stopped
            self._look(ref, is_due=is_due)
            if time.monotonic() - renewed_at > LEASE_S / 4:
                if not self._turn.keep():
                    return
                renewed_at = time.monotonic()
        if is_due:
            self._silences_due_s = renewed_at + _SILENCES_EVERY_S

    def _look(self, ref: TableRef, *, is_due: bool) -> None:
        """`is_due`: also at a table of no new version, which may have been silent for long."""
        try:
            latest, now = self._lake.latest_version(ref), self._clock()
            is_new = self._seen.get(ref.uri) != latest
            if not is_new and not is_due:
                return
            found = self._looks.silences(ref, now - (_BACK if ref.uri in self._seen else _SILENT_BACK), now)
            found += self._looks.look(ref, self._begun_at - _BACK, now) if is_new else []
        except LakehouseError as exc:  # it is told where the table is shown
            log.debug("notices_of_table_not_judged", table=ref.name, error=exc.message)
            return
        self._seen[ref.uri] = -1 if self._looks.is_waiting(ref) else latest
        for notice in found:
            if notice.is_open and notice.key not in self._logged:
                self._logged.add(notice.key)
                log.warning("commit_noticed", table=ref.name, version=notice.version, what=notice_text(notice))
        self._not_kept += found
        self._keep()

    def _streams(self) -> dict[str, str]:
        """The stream of each query id that hosts last saw."""
        return {seen.query_id: name for name, seen in self._store.observed().items() if seen.query_id}

    def _keep(self) -> None:
        self._store.noticed.keep(self._not_kept, now=self._clock())
        self._not_kept = []
