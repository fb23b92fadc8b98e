"""Judging a lake in the background: nobody waits for a big one, and what is judged holds as long as its card."""

import threading

from backend.errors import StorageError
from backend.health.judge import SMALL_LAKE, health_judge
from backend.health.model import HealthEvidence, Severity
from backend.lake.model import TableCard, TableRef
from tests.backend.health.test_health import WELL
from tests.worlds.processes import wait_until


class Reader:
    """Evidence for one table each time the test says so."""

    def __init__(self, *, held: bool = False) -> None:
        self.read: list[str] = []
        self.go_on = threading.Semaphore(0)
        self.held, self.broken = held, set[str]()

    def __call__(self, ref: TableRef) -> HealthEvidence:
        if self.held:
            assert self.go_on.acquire(timeout=60)
        self.read.append(ref.name)
        if ref.name in self.broken:
            raise StorageError("the disk does not answer")
        return WELL


def cards(number: int, spared: int = 0) -> list[TableCard]:
    refs = [TableRef(f"/lake/t{n:03d}", f"t{n:03d}", "/lake") for n in range(number)]
    return [TableCard(ref, 1, 100 + n, 1, 1, n, None, None, files_after_merge=100) for n, ref in enumerate(refs)]


def test_a_small_lake_is_judged_at_once_and_only_changed_tables_again() -> None:
    reader, lake = Reader(), cards(3)
    judge = health_judge(reader)
    assert {found.severity for found in judge.judged(lake).values()} == {Severity.FINE}
    lake[1] = cards(3)[1]
    assert len(judge.judged(lake)) == 3
    assert sorted(reader.read) == ["t000", "t001", "t001", "t002"]
    assert len(judge.judged(lake[:1])) == 1, "a table that is gone is forgotten"


def test_a_big_lake_is_shown_before_it_is_judged_the_most_to_merge_first() -> None:
    reader, lake = Reader(held=True), cards(SMALL_LAKE + 20)
    judge = health_judge(reader)
    assert judge.judged(lake) == {}
    reader.go_on.release(3)
    wait_until(lambda: len(judge.judged(lake)) == 3, "three are judged")
    assert set(reader.read) == {"t117", "t118", "t119"}
    reader.go_on.release(len(lake))
    wait_until(lambda: len(judge.judged(lake)) == len(lake), "all are judged")
    assert len(reader.read) == len(lake)


def test_a_table_that_cannot_be_judged_says_why_and_hides_no_other() -> None:
    reader = Reader()
    reader.broken = {"t001"}
    found = health_judge(reader).judged(cards(3))
    assert found["/lake/t001"].problem == "the disk does not answer"
    assert [each.evidence is None for _, each in sorted(found.items())] == [False, True, False]
