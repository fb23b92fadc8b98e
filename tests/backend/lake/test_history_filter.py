"""Filters over a history: what is kept, how far is looked, and what is said of it."""

from datetime import UTC, datetime, timedelta

import pytest

from backend.lake.history.history_filter import HistoryFilter, choices, look_back, stream_of
from backend.lake.model import Commit, OperationMetrics, StreamOrigin, TableRef

START = datetime(2026, 1, 1, tzinfo=UTC)
REF = TableRef("file:///t", "t", "file:///")


def commit(version: int, operation: str | None = "WRITE", **more: object) -> Commit:
    at = START + timedelta(minutes=version)
    fields = {"user": None, "engine": "Spark", "user_metadata": None} | more
    return Commit(version, at, operation, {}, OperationMetrics(), {}, **fields)  # type: ignore[arg-type]


class Log:
    """Commits 5 … 1,999, and how many of them were read."""

    def __init__(self) -> None:
        self.commits = [
            commit(version, "OPTIMIZE" if version % 100 == 0 else "WRITE") for version in range(1999, 4, -1)
        ]
        self.read = 0

    def history(self, ref, *, limit=None, starting_version=None, ending_version=None):
        found = [c for c in self.commits if ending_version is None or c.version <= ending_version][:limit]
        self.read += len(found)
        return found


def look(log: Log, most: int, newest: int = 1999, since: datetime | None = None):
    heard: list[int] = []
    found = look_back(log, REF, newest=newest, most=most, since=since, progress=heard.append)
    return found, heard


def test_only_so_many_are_looked_at() -> None:
    log = Log()
    found, heard = look(log, 1200)
    assert [c.version for c in found.looked_at] == list(range(1999, 799, -1)) and not found.is_whole
    assert heard == [500, 1000, 1200] and log.read <= 1201
    rare = HistoryFilter(operations=frozenset({"OPTIMIZE"}))
    assert [c.version for c in found.matching(rare)] == list(range(1900, 700, -100))


@pytest.mark.parametrize("most", [1995, 1996, 5000])
def test_the_whole_log_is_known_to_be_whole(most: int) -> None:
    found, _ = look(Log(), most)
    assert found.is_whole and len(found.looked_at) == 1995


def test_nothing_older_than_asked_is_read() -> None:
    log = Log()
    since = START + timedelta(minutes=1600)
    found, _ = look(log, 100_000, since=since)
    assert found.is_whole and log.read == 500
    assert [c.version for c in found.looked_at] == list(range(1999, 1599, -1))
    kept = found.matching(HistoryFilter(since=since, until=START + timedelta(minutes=1602)))
    assert [c.version for c in kept] == [1602, 1601, 1600]


def test_every_group_must_fit() -> None:
    ann, bob = commit(1, user="ann"), commit(2, "MERGE", user="bob", engine="delta-rs")
    nobody = commit(3, None, engine=None)
    assert HistoryFilter().is_empty and HistoryFilter().keeps(nobody)
    both = HistoryFilter(operations=frozenset({"WRITE", "MERGE"}), users=frozenset({"bob"}))
    assert [both.keeps(c) for c in (ann, bob, nobody)] == [False, True, False]
    unnamed = HistoryFilter(operations=frozenset({"not named"}), engines=frozenset({"not named"}))
    assert [unnamed.keeps(c) for c in (ann, bob, nobody)] == [False, False, True]
    timeless = Commit(4, None, "WRITE", {}, OperationMetrics(), {}, None, None, None)
    assert HistoryFilter().keeps(timeless) and not HistoryFilter(since=START).keeps(timeless)


def test_streams_go_by_stamp_then_by_query() -> None:
    names = {"q1": "silver_orders"}
    stamped = commit(1, origin=StreamOrigin("bronze", "q9", None, 1))
    known, foreign = (commit(2, origin=StreamOrigin(None, query, None, 7)) for query in ("q1", "q2"))
    assert [stream_of(c, names) for c in (stamped, known, foreign, commit(3))] == [
        "bronze",
        "silver_orders",
        "query q2",
        None,
    ]
    chosen = HistoryFilter(streams=frozenset({"silver_orders"}), names=names)
    assert [chosen.keeps(c) for c in (stamped, known, foreign, commit(3))] == [False, True, False, False]


def test_choices_are_those_that_occur_with_counts() -> None:
    commits = [commit(1, user="ann"), commit(2, "MERGE"), commit(3, origin=StreamOrigin("s", None, None, 1))]
    found = choices(commits, {})
    assert found.operations == {"WRITE": 2, "MERGE": 1}
    assert found.users == {"not named": 2, "ann": 1} and found.engines == {"Spark": 3} and found.streams == {"s": 1}
