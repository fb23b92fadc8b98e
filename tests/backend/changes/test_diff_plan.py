"""Which methods can answer, best first, and what each says of the better ones."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from backend.changes.key import KeyFound
from backend.changes.model import DiffMethod, KeyChoice, KeySource, Question
from backend.changes.plan import DiffFacts, DiffPlan, FilesFacts, plan_diff
from backend.errors import DiffError
from backend.lake.model import TableRef


@dataclass(frozen=True)
class Feed:
    covered: bool
    first_covered_version: int | None = None
    reason: str = ""


REF = TableRef("/lake/t", "t", "/lake")
NO_KEY = KeyFound(None, ("no key",))


BY_ID = KeyFound(KeyChoice(("id",), KeySource.GIVEN), ("key `id`: as given",))
FILES = FilesFacts(7, 5_000, 70)


def planned(*versions: int, feed: Feed | None = None, key: KeyFound = NO_KEY, **facts: Any) -> DiffPlan:
    options = {name: facts.pop(name) for name in ("method", "max_bytes", "on_host") if name in facts}
    found = DiffFacts("t", "t", feed or Feed(False, None, "never on"), key, **({"files": FILES} | facts))
    return plan_diff(Question(REF, versions[0], versions[1], **options), found)


def test_the_plan_takes_the_feed_when_it_covers_the_range() -> None:
    plan = planned(1, 3, feed=Feed(True, 1), key=BY_ID)
    assert plan.methods == (
        DiffMethod.CHANGE_FEED,
        DiffMethod.KEY_JOIN,
        DiffMethod.MULTISET,
        DiffMethod.LOG_ONLY,
    )
    assert "v2 to v3" in plan.reasons(plan.method)[0]
    back = planned(3, 1, feed=Feed(True, 1))
    assert any("going back to v1" in reason for reason in back.reasons(back.method))


def test_each_rung_says_why_not_the_better_ones() -> None:
    plan = planned(0, 9, feed=Feed(False, 4, "off until v4"), key=BY_ID)
    assert (plan.method, plan.first_covered_version, plan.bytes_to_read) == (DiffMethod.KEY_JOIN, 4, 5_000)
    assert "not by the change feed: off until v4" in plan.reasons(plan.method)
    rows = planned(0, 9)
    assert (rows.method, rows.rows_to_read) == (DiffMethod.MULTISET, 70)
    assert {"not by the change feed: never on", "not by a join by key: no key is known", "no key"} <= set(
        rows.reasons(rows.method)
    )
    gone = planned(0, 9, key=BY_ID, files=replace(FILES, problem="f1 is gone"))
    assert gone.methods == (DiffMethod.LOG_ONLY,)
    assert "not by a join by key or a comparison of whole rows: f1 is gone" in gone.reasons(gone.method)
    assert "delta.enableChangeDataFeed" in gone.hint


def test_row_tracking_pairs_rows_without_a_key_and_spark_reads_what_weir_does_not() -> None:
    tracked = {"no_changes": None, "files": replace(FILES, no_row_ids=None)}
    assert planned(0, 9).against[DiffMethod.ROW_ID] == "row tracking is off"
    assert planned(0, 9, **tracked).methods == (DiffMethod.ROW_ID, DiffMethod.MULTISET, DiffMethod.LOG_ONLY)
    assert "stream host" in planned(0, 9, **tracked).against[DiffMethod.SPARK_CHANGES]
    assert planned(0, 9, on_host=True, **tracked).method is DiffMethod.SPARK_CHANGES
    altered = planned(0, 9, on_host=True, **(tracked | {"no_changes": "the schema changed"}))
    assert altered.method is DiffMethod.ROW_ID
    nested = {"files": replace(FILES, no_row_ids=None, no_row_ids_here="nested columns")}
    assert planned(0, 9, **nested).against[DiffMethod.ROW_ID] == "nested columns"
    assert planned(0, 9, on_host=True, **nested).method is DiffMethod.ROW_ID
    assert planned(0, 9, key=BY_ID, **tracked).method is DiffMethod.KEY_JOIN  # who gives a key means it


def test_the_host_reads_any_amount() -> None:
    assert planned(0, 9, key=BY_ID, max_bytes=4_999).method is DiffMethod.LOG_ONLY
    assert planned(0, 9, key=BY_ID, max_bytes=4_999, on_host=True).method is DiffMethod.KEY_JOIN


def test_a_method_that_failed_stays_as_a_reason() -> None:
    plan = planned(1, 3, feed=Feed(True, 1), key=BY_ID)
    assert "not by the change feed: c1 is gone" in plan.reasons(
        DiffMethod.KEY_JOIN, {DiffMethod.CHANGE_FEED: "c1 is gone"}
    )


def test_more_data_than_allowed_is_read_when_its_method_is_named() -> None:
    plan = planned(0, 9, key=BY_ID, max_bytes=4_999)
    assert plan.methods == (DiffMethod.LOG_ONLY,) and "WEIR_LAKE__DIFF_MAX_BYTES" in plan.hint
    assert planned(0, 9, key=BY_ID, max_bytes=4_999, method=DiffMethod.KEY_JOIN).method is DiffMethod.KEY_JOIN
    assert planned(0, 9, key=BY_ID, max_bytes=5_000).method is DiffMethod.KEY_JOIN


def test_a_method_that_is_not_possible_is_refused() -> None:
    with pytest.raises(DiffError, match="never on"):
        planned(0, 9, method=DiffMethod.CHANGE_FEED)
    with pytest.raises(DiffError, match="no key is known"):
        planned(0, 9, method=DiffMethod.KEY_JOIN)


def test_two_tables_share_no_feed() -> None:
    plan = planned(0, 0, is_one_table=False, key=BY_ID)
    assert plan.method is DiffMethod.KEY_JOIN
    assert "not by the change feed: two tables share no change feed" in plan.reasons(plan.method)


def test_the_plan_refuses_to_compare_two_tables_under_one_path() -> None:
    plan = plan_diff(Question(REF, 0, 9), DiffFacts("old-id", "new-id", Feed(True, 0), NO_KEY))
    (reason,) = plan.reasons(plan.method)
    assert plan.method is DiffMethod.LOG_ONLY
    assert "old-id" in reason and "new-id" in reason


def test_across_a_replacement_two_tables_are_compared() -> None:
    facts = DiffFacts("old-id", "new-id", None, BY_ID, FILES, is_one_table=False)
    plan = plan_diff(Question(REF, 0, 9, across_replace=True), facts)
    assert plan.method is DiffMethod.KEY_JOIN
    assert any("compared as two tables" in reason and "old-id" in reason for reason in plan.reasons(plan.method))


def test_the_same_version_needs_no_method() -> None:
    assert plan_diff(Question(REF, 4, 4), DiffFacts("t", "t", None, NO_KEY)).method is DiffMethod.SAME_VERSION
