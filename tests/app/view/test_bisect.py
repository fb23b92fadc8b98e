"""Sentences and lists of a search for the first bad version, as built from what it found."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.search import text as words
from app.search import view
from backend.errors import LakehouseError
from backend.lake.files.stats import ColumnTotals, StatKind
from backend.lake.model import Commit, OperationMetrics, StreamOrigin, TableRef
from backend.search.model import Bisection, BisectProgress, Examples, Probe, ProbeOutcome, Purpose, VersionVerdict
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


def read_as(probe: Probe, **more: Any) -> Probe:
    return replace(probe, number=replace(probe.number, **more))


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


def test_the_answer_is_one_sentence() -> None:
    said = words.headline(FOUND)
    assert said == (
        "v118 (MERGE by stream silver_orders, batch 41, 2026-11-20 14:05:00 UTC) is the first version that breaks "
        "`amount >= 0`"
    )
    by_hand = replace(FOUND, commits=(commit(118),))
    assert "(MERGE by maria, 2026-11-20 " in words.headline(by_hand)
    assert "its commit is not in the log any more" in words.headline(replace(FOUND, commits=()))
    by_query = replace(FOUND, commits=(commit(118, origin=StreamOrigin(None, "abc", None, 7)),))
    assert "by stream silver, batch 7" in words.headline(by_query, {"abc": "silver"}), "who knows it, names it"
    mended = replace(FOUND, good=131, bad=3)
    assert words.headline(mended).endswith("is the first version that satisfies `amount >= 0` again")


def test_a_range_names_its_commits() -> None:
    few = replace(FOUND, candidates=(116, 117, 118), last=115)
    assert words.headline(few) == "The first version that breaks `amount >= 0` is one of 3 commits: v116, v117, v118"
    many = replace(FOUND, candidates=tuple(range(100, 119)))
    assert words.headline(many).endswith("19 commits: v100, v101, v102, v103, v104, v105 … v118")


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
    logged = tuple(read_as(each, source=ValueSource.LOG) for each in FOUND.probes)
    assert text in words.notes(replace(FOUND, probes=logged))
    assert text not in words.notes(replace(FOUND, probes=(*logged[:1], *FOUND.probes[1:])))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"files_read": 0}, "nothing: 412 files judged before"),
        ({"files_read": 0, "files": 0}, "nothing: it has no file"),
        ({"source": ValueSource.LOG}, "from the log"),
        ({"source": ValueSource.KEPT}, "judged before"),
        ({"value": None, "files_read": 0}, "nothing read"),
    ],
)
def test_what_a_probe_read(more: dict[str, Any], said: str) -> None:
    assert words.read_text(read_as(FOUND.probes[0], **more)) == said


def test_progress_in_words() -> None:
    step = BisectProgress(FOUND.probes[:2], "judging v67", 67, rows_read=1_204, at_most_left=7)
    share, text = words.progress_text(step)
    assert share == pytest.approx(2 / 10) and text == (
        "Judging v67 · 1,204 rows read · 2 versions judged · at most 7 more"
    )
    assert words.progress_text(BisectProgress((), "looking for the two ends"))[0] == 0.0


def test_what_an_empty_oldest_version_does_not_hold_is_no_difference() -> None:
    empty = Held(0, 0, {"a": ColumnTotals("a", "bigint", StatKind.INTEGER, False, 0)})
    full = Held(9, 4, {"a": ColumnTotals("a", "bigint", StatKind.INTEGER, False, 1, 3, 8, files_with_bounds=1)})
    moved = Held(10, 4, {"a": ColumnTotals("a", "bigint", StatKind.INTEGER, False, 1, 3, 70, files_with_bounds=1)})
    assert view.held_frame([empty, full]).loc[0, ["Lowest", "Highest"]].tolist() == ["3", "8"]
    assert view.held_frame([full, moved]).loc[0, ["Lowest", "Highest"]].tolist() == ["3", "8 → 70"]


def test_probes_and_the_rows_that_break_a_condition_are_text() -> None:
    assert words.notes(FOUND)[-1] == "5 versions judged; not judged: 116 commits that changed rows"
    frame = view.probe_frame((*FOUND.probes, probe(90, ProbeOutcome.SKIPPED, reason="gone")), NOW)
    assert (frame["Outcome"].tolist()[-1], frame["It gave"].tolist()[-1]) == ("○ skipped", "gone")
    rows = ({"id": 2**60, "amount": -1.5, "note": None}, {"id": 3, "amount": None, "note": "x" * 900})
    frame = view.example_frame(Examples(("id", "amount", "note"), rows))
    assert frame["id"].tolist() == [str(2**60), "3"] and frame["note"].tolist()[0] == "null"
    assert len(frame["note"].tolist()[1]) == 200
    for text in ("amount\n >=  0", "x" * 500):
        assert len(words.one_line(text)) <= words.MOST_CONDITION and "\n" not in words.one_line(text)
