"""Sentences and lists of a search for the first bad version, as built from what it found."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from app.search import text as words
from app.ui.lists import list_frame
from backend.errors import LakehouseError
from backend.lake.files.stats import ColumnTotals, StatKind
from backend.lake.model import Commit, OperationMetrics, StreamOrigin, TableRef
from backend.search.condition import Examples, VersionVerdict
from backend.search.search import Bisection, Probe, ProbeOutcome, Purpose
from backend.search.suggest import Held
from backend.sql.numbers import ValueSource, VersionValue

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
CHECK = Purpose.CHECK


def commit(version: int, operation: str | None = "MERGE", origin: StreamOrigin | None = None) -> Commit:
    at = NOW - timedelta(hours=22) + timedelta(minutes=5)
    return Commit(version, at, operation, {}, OperationMetrics(), {}, "maria", None, None, origin)


def probe(version: int, outcome: ProbeOutcome, purpose: Purpose = Purpose.SEARCH, reason: str | None = None) -> Probe:
    broken = 0 if outcome is ProbeOutcome.GOOD else 3
    verdict = None if outcome is ProbeOutcome.SKIPPED else VersionVerdict(broken == 0, None, broken, 1, 10)
    error = LakehouseError(reason) if reason else None
    number = VersionValue(
        version, verdict, error, ValueSource.ROWS, files=412, files_read=3, rows_read=10, bytes_read=2_000
    )
    return Probe(number, purpose, NOW, "MERGE", 0.1234)


GOOD, BAD = ProbeOutcome.GOOD, ProbeOutcome.BAD
FOUND = Bisection(
    ref=TableRef("/lake/orders", "orders", "/lake"),
    table_id="id",
    condition="amount >= 0",
    by_row=True,
    good=3,
    bad=131,
    probes=(
        probe(3, GOOD, Purpose.END), probe(131, BAD, Purpose.END), probe(67, GOOD), probe(118, BAD), probe(117, GOOD),
    ),
    last=117,
    first_seen=118,
    candidates=(118,),
    commits=(commit(118, origin=StreamOrigin("silver_orders", None, None, 41)),),
    again=(),
    changing=120,
    unprobed=116,
)  # fmt: skip


def test_the_answer_names_who_wrote_the_commit() -> None:
    by_hand = replace(FOUND, commits=(commit(118),))
    assert "(MERGE by maria, 2026-11-20 " in words.headline(by_hand)
    assert "its commit is not in the log any more" in words.headline(replace(FOUND, commits=()))
    by_query = replace(FOUND, commits=(commit(118, origin=StreamOrigin(None, "abc", None, 7)),))
    assert "by stream silver, batch 7" in words.headline(by_query, {"abc": "silver"}), "who knows it, names it"


def test_what_disagrees_is_said_and_no_agreement_is_claimed() -> None:
    found = replace(FOUND, again=(125,), probes=(*FOUND.probes, probe(125, GOOD, CHECK)))
    said = " / ".join(words.notes(found))
    assert "v125 is good again: the condition changes more than once" in said
    assert "the first bad version after good v117 is v118" in said and "agree" not in said
    back = replace(found, good=131, bad=3)
    assert "v125 is bad again" in " / ".join(words.notes(back))


def test_what_was_skipped_and_what_was_inferred() -> None:
    gone = probe(116, ProbeOutcome.SKIPPED, reason="a.parquet is gone")
    found = replace(FOUND, probes=(*FOUND.probes[:4], gone), last=115, candidates=(116, 117, 118))
    said = " / ".join(words.notes(found))
    assert "v116 could not be judged: a.parquet is gone" in said and "first bad version" not in said
    assert "v118 is bad: 3 of 10" in said
    inferred = replace(FOUND, first_seen=119, probes=(*FOUND.probes[:3], probe(119, BAD)))
    assert "v118 itself was not judged; v119 was, and no commit in between changed rows" in words.notes(inferred)


def test_the_log_alone_is_said_only_where_it_was_alone() -> None:
    text = "the log's row counts answered: no data file was opened"
    assert text not in words.notes(FOUND)
    logged = tuple(replace(each, number=replace(each.number, source=ValueSource.LOG)) for each in FOUND.probes)
    assert text in words.notes(replace(FOUND, probes=logged))
    assert text not in words.notes(replace(FOUND, probes=(*logged[:1], *FOUND.probes[1:])))


def test_what_an_empty_oldest_version_does_not_hold_is_no_difference() -> None:
    empty = Held(0, 0, {"a": ColumnTotals("a", "bigint", StatKind.INTEGER, False, 0)})
    full = Held(9, 4, {"a": ColumnTotals("a", "bigint", StatKind.INTEGER, False, 1, 3, 8, files_with_bounds=1)})
    moved = Held(10, 4, {"a": ColumnTotals("a", "bigint", StatKind.INTEGER, False, 1, 3, 70, files_with_bounds=1)})
    for held, highest in (([empty, full], "8"), ([full, moved], "8 → 70")):
        assert list_frame(words.held_columns(held), ["a"]).loc[0, ["Lowest", "Highest"]].tolist() == ["3", highest]


def test_the_rows_that_break_a_condition_are_text() -> None:
    rows = ({"id": 2**60, "amount": -1.5, "note": None}, {"id": 3, "amount": None, "note": "x" * 900})
    frame = list_frame(words.example_columns(Examples(("id", "amount", "note"), rows)), rows)
    assert frame["id"].tolist() == [str(2**60), "3"] and frame["note"].tolist()[0] == "null"
    assert len(frame["note"].tolist()[1]) == 200
    for text in ("amount\n >=  0", "x" * 500):
        assert len(words.one_line(text)) <= words.MOST_CONDITION and "\n" not in words.one_line(text)
