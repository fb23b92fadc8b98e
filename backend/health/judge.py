"""Every table of the lake judged, one after the other in the background, for all viewers.

Rule: nobody waits for a big lake. A judgement holds as long as the card that it was made for; ages in it are told anew
by whoever shows it. The reading ends when nobody looks any more.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

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


class LakeJudge:
    """Thread-safe. `read` gives the evidence of one table or raises `LakehouseError`."""

    def __init__(self, read: Callable[[TableRef], HealthEvidence]) -> None:
        self._read = read
        self._changed = threading.Condition()
        self._judged: dict[str, JudgedTable] = {}
        self._wanted: list[TableCard] = []
        self._under_way: TableCard | None = None
        self._running = False
        self._looked_s = 0.0

    def judged(self, cards: Sequence[TableCard]) -> dict[str, JudgedTable]:
        """What is judged of all the lake's cards, by address; the rest follows, the most to merge first."""
        with self._changed:
            self._looked_s = time.monotonic()
            self._judged = {c.ref.uri: old for c in cards if (old := self._judged.get(c.ref.uri)) and old.holds(c)}
            self._wanted = [c for c in cards if c.ref.uri not in self._judged and c is not self._under_way]
            self._wanted.sort(key=lambda card: (-merge_gain(card).spared, card.ref.name))
            self._wanted.reverse()  # taken from the end
            if self._wanted and not self._running:
                self._running = True
                threading.Thread(target=self._judge_all, name="lake-health", daemon=True).start()
            if len(cards) <= SMALL_LAKE:
                self._changed.wait_for(lambda: not self._running, PATIENCE_S)
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

    def _judge(self, card: TableCard) -> JudgedTable:
        try:
            evidence = self._read(card.ref)
            urgent = min((recommendation.severity for recommendation in recommend(evidence)), key=list(Severity).index)
            return JudgedTable(card, evidence, urgent, judged_at_s=time.monotonic())
        except LakehouseError as exc:
            problem = exc.message
        except Exception as exc:  # noqa: BLE001 - one table's boundary: whatever it holds hides no other
            problem = f"Weir failed on it: {type(exc).__name__}"
        return JudgedTable(card, None, Severity.FINE, problem, time.monotonic())
