"""Every table of the lake judged, one after the other in the background, for all viewers.

Rule: nobody waits for a big lake. A judgement holds as long as the card that it was made for; ages in it are told anew
by whoever shows it. The reading ends when nobody looks any more.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Generic, TypeVar

from backend.errors import LakehouseError
from backend.health.model import HealthEvidence, Recommendation, Severity
from backend.health.recommend import recommend
from backend.health.rules import merge_gain
from backend.lake.model import TableCard, TableRef

PATIENCE_S = 1.5  # a small lake is waited for, so that its page is whole at once
SMALL_LAKE = 100  # tables
NOBODY_LOOKS_S = 10.0  # the page looks each second while judgements come
MOST_REST_S = 0.02
RETRY_S = 60.0  # a table that could not be judged is tried again
Judged = TypeVar("Judged")


@dataclass(frozen=True, slots=True)
class JudgedTable:
    """A table's evidence and how urgent it was when it was judged; without evidence `problem` says why."""

    card: TableCard
    evidence: HealthEvidence | None
    severity: Severity
    problem: str = ""
    judged_at_s: float = 0.0

    def recommendations(self, now: datetime) -> tuple[Recommendation, ...]:
        """With the ages of now; empty where the table could not be judged."""
        return recommend(replace(self.evidence, now=now)) if self.evidence else ()

    def holds(self, card: TableCard) -> bool:
        is_old = self.evidence is None and time.monotonic() - self.judged_at_s > RETRY_S
        return self.card is card and not is_old


def _judged_health(read: Callable[[TableRef], HealthEvidence], card: TableCard) -> JudgedTable:
    try:
        evidence = read(card.ref)
        urgent = min((recommendation.severity for recommendation in recommend(evidence)), key=list(Severity).index)
        return JudgedTable(card, evidence, urgent, judged_at_s=time.monotonic())
    except LakehouseError as exc:
        problem = exc.message
    except Exception as exc:  # noqa: BLE001 - one table's boundary: whatever it holds hides no other
        problem = f"Weir failed on it: {type(exc).__name__}"
    return JudgedTable(card, None, Severity.FINE, problem, time.monotonic())


class LakeJudge(Generic[Judged]):
    """Thread-safe. `judge` is asked of one table after the other, the first by `rank` first, and raises nothing;
    `holds`: whether what it gave is still of this card."""

    def __init__(
        self,
        judge: Callable[[TableCard], Judged],
        holds: Callable[[Judged, TableCard], bool],
        rank: Callable[[TableCard], Any],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._judge, self._holds, self._rank, self._patience_s = judge, holds, rank, patience_s
        self._changed = threading.Condition()
        self._judged: dict[str, Judged] = {}
        self._wanted: list[TableCard] = []
        self._under_way: TableCard | None = None
        self._running = False
        self._looked_s = 0.0

    def judged(self, cards: Sequence[TableCard]) -> dict[str, Judged]:
        """What is judged of all the lake's cards, by address; the rest follows, the first by rank first."""
        with self._changed:
            self._looked_s = time.monotonic()
            before = self._judged
            self._judged = {c.ref.uri: old for c in cards if (old := before.get(c.ref.uri)) and self._holds(old, c)}
            self._wanted = [c for c in cards if c.ref.uri not in self._judged and c is not self._under_way]
            self._wanted.sort(key=self._rank, reverse=True)  # taken from the end
            if self._wanted and not self._running:
                self._running = True
                threading.Thread(target=self._judge_all, name="lake-judge", daemon=True).start()
            if len(cards) <= SMALL_LAKE:
                self._changed.wait_for(lambda: not self._running, self._patience_s)
            return dict(self._judged)

    def _judge_all(self) -> None:
        while (card := self._next()) is not None:
            started_s = time.monotonic()
            judged = self._judge(card)
            with self._changed:
                self._judged[card.ref.uri] = judged
                leave_room = len(self._wanted) > SMALL_LAKE
            if leave_room:
                time.sleep(min(MOST_REST_S, time.monotonic() - started_s))  # pages need the interpreter too

    def _next(self) -> TableCard | None:
        with self._changed:
            self._under_way = None
            if self._wanted and time.monotonic() - self._looked_s < NOBODY_LOOKS_S:
                self._under_way = self._wanted.pop()
                return self._under_way
            self._running = False
            self._changed.notify_all()
            return None


def health_judge(read: Callable[[TableRef], HealthEvidence]) -> LakeJudge[JudgedTable]:
    """The most to merge first. `read` gives the evidence of one table or raises `LakehouseError`."""
    return LakeJudge(
        partial(_judged_health, read), JudgedTable.holds, lambda card: (-merge_gain(card).spared, card.ref.name)
    )
