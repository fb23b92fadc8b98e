"""Two versions by their names, the key of a table, and which methods can tell their difference."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from backend.changes.key import KeyFound, choose_key, merge_key, parse_names
from backend.changes.model import DiffMethod, KeyChoice, KeySource, Question
from backend.changes.plan import DiffFacts, DiffPlan, FilesFacts, plan_diff
from backend.changes.versions import check_name, parse_version, resolve_version
from backend.errors import DiffError, VersionFormatError, VersionNotFoundError
from backend.lake.model import Commit, Metadata, OperationMetrics, TableRef
from backend.times import Clock
from tests.worlds.lake.diffs import NOWHERE

START = datetime(2026, 1, 1, tzinfo=UTC)
CLOCK = Clock(START + timedelta(minutes=400, seconds=20), timezone(timedelta(hours=2)))


def commit(version: int, operation: str = "WRITE", **parameters: Any) -> Commit:
    at = START + timedelta(minutes=version)
    return Commit(version, at, operation, parameters, OperationMetrics(), {}, None, None, None)


@dataclass
class LakeWithLog:
    """Fifty-two pages would be slow to write; a log of `length` commits a minute apart."""

    length: int
    names: Mapping[str, int] = field(default_factory=dict)

    def named_versions(self, ref: TableRef) -> Mapping[str, int]:
        return self.names

    def latest_version(self, ref: TableRef) -> int:
        return self.length - 1

    def history(self, ref: TableRef, *, limit: int | None = None, ending_version: int | None = None) -> list[Commit]:
        last = self.length - 1 if ending_version is None else ending_version
        return [commit(version) for version in range(last, -1, -1)][:limit]

    def version_at(self, ref: TableRef, when: datetime) -> int | None:
        return min(self.length - 1, (when - START) // timedelta(minutes=1)) if when >= START else None


@pytest.mark.parametrize(
    "text",
    [
        *("", "banana", "1.5", "v", "2026-13-01", "tomorrow", "today 08:41", "latest2", "latest+1", "v-1"),
        *("--1", "1_0", "٣", "9" * 5_000, "NaN", "1; DROP TABLE t", "2126-11-20T10:00+25:00", "2026-02-30"),
        "0001-01-01T00:00+14:00",
    ],
)
def test_what_names_no_version_is_refused_with_the_forms_that_do(text: str) -> None:
    with pytest.raises(VersionFormatError) as refused:
        parse_version(text, CLOCK)
    assert "`latest`" in refused.value.hint and "such as `-5`" in refused.value.hint
    assert len(refused.value.message) < 200


@pytest.mark.parametrize(
    ("text", "version"),
    [
        *(("7", 7), (7, 7), ("v7", 7), ("latest", 499), ("-5", 494), (-5, 494), ("latest-2", 497)),
        ("2026-01-01T02:10+02:00", 10),
        ("2026-01-01T00:10:30Z", 10),
        ("2026-01-01T00:10:00Z", 10),
        ("2030-01-01", 499),
        ("30 min ago", 370),
        ("2 h ago", 280),
        ("today 04:30", 150),
        ("08:40", 400),
        ("02:00", 0),
    ],
)
def test_versions_by_name_resolve_against_the_log(text: str | int, version: int) -> None:
    assert resolve_version(LakeWithLog(500), NOWHERE, text, CLOCK) == version


@pytest.mark.parametrize("text", ["500", "-501", "2025-12-31T23:59Z", "yesterday", "24 h ago"])
def test_a_version_that_is_not_there_is_not_found(text: str) -> None:
    with pytest.raises(VersionNotFoundError):
        resolve_version(LakeWithLog(500), NOWHERE, text, CLOCK)


def test_a_pins_name_means_its_version_and_hides_no_other() -> None:
    lake = LakeWithLog(500, {"features-2026-11": 118, "gone": 900, "latest": 3, "30 min ago": 3})
    assert resolve_version(lake, NOWHERE, " features-2026-11 ", CLOCK) == 118
    assert resolve_version(lake, NOWHERE, "gone", CLOCK) == 900, "so that it can be unpinned by its name"
    assert resolve_version(lake, NOWHERE, "latest", CLOCK) == 499
    assert resolve_version(lake, NOWHERE, "30 min ago", CLOCK) == 370
    with pytest.raises(VersionFormatError, match="'Features-2026-11'"):
        resolve_version(lake, NOWHERE, "Features-2026-11", CLOCK)


@pytest.mark.parametrize("name", ["features-2026-11", " Q3 audit ", "möbel_v2", "x", "a" * 80])
def test_what_may_be_a_name_means_nothing_else(name: str) -> None:
    assert check_name(name) == name.strip()


@pytest.mark.parametrize(
    "name",
    [
        *("", "118", "v118", "latest", "-5", "2 h ago", "yesterday", "2026-11-20", "now", "Oldest"),
        *("a'b", "a/b", "-x", "a" * 81),
    ],
)
def test_what_means_a_version_or_cannot_be_typed_is_no_name(name: str) -> None:
    with pytest.raises(VersionFormatError, match="no name for a version"):
        check_name(name)


# the key --------------------------------------------------------------------------------------------------------------


def table_of(*names: str, **traits: Any) -> Metadata:
    fields = [{"name": name, "type": "long", "nullable": True, "table_of": {}} for name in names]
    return Metadata("t-1", json.dumps({"type": "struct", "fields": fields}), **traits)


@pytest.mark.parametrize(
    ("predicate", "key"),
    [
        ("t.id = s.id", ("id",)),
        ("target.id = source.id AND target.day = source.day", ("id", "day")),
        ('["(t.order_id#12L = s.order_id#40L)"]', ("order_id",)),
        ('["(order_id#12L = order_id#40L)"]', ("order_id",)),
        ('["((t.a#1 = s.a#2) AND (t.b#3 <=> s.b#4))"]', ("a", "b")),
        ("t.`odd name` = s.`odd name`", ("odd name",)),
        ("t.id = s.other_id", None),
        ("t.id = s.id AND t.is_current = true", None),
        ("t.id = s.id OR t.k = s.k", None),
        ("t.id = t.id", None),
        ("t.id > s.id", None),
        ("lower(t.id) = lower(s.id)", None),
        ("", None),
        ("[not json", None),
    ],
)
def test_a_merge_condition_names_a_key_only_when_it_is_nothing_but_equal_columns(
    predicate: str, key: tuple[str, ...] | None
) -> None:
    assert merge_key(predicate) == key


TABLE = table_of("id", "Day", "v")


def test_the_given_key_wins_then_the_property_then_merges() -> None:
    merges = [commit(3, "MERGE", predicate="t.Day = s.Day"), commit(2, "MERGE", mergePredicate="t.day = s.day")]
    declared = table_of("id", "Day", configuration={"weir.primaryKey": "id"})
    assert choose_key(["ID"], declared, merges).key == KeyChoice(("id",), KeySource.GIVEN)
    assert choose_key(None, declared, merges).key == KeyChoice(("id",), KeySource.PROPERTY)
    assert choose_key(None, TABLE, merges).key == KeyChoice(("Day",), KeySource.MERGE)
    assert choose_key(None, TABLE, [commit(1)]).key is None


@pytest.mark.parametrize(
    ("merges", "why"),
    [
        (["t.id = s.id", "t.Day = s.Day"], "different ones"),
        (["t.id = s.id", "t.id = s.id AND t.v = 1"], "more than equal columns"),
        (["t.gone = s.gone"], "does not have"),
    ],
)
def test_merges_that_do_not_agree_make_no_key(merges: Sequence[str], why: str) -> None:
    found = choose_key(None, TABLE, [commit(i, "MERGE", predicate=text) for i, text in enumerate(merges)])
    assert found.key is None
    assert why in found.reasons[-1]


def test_a_wrong_key_is_an_error_when_given_and_a_reason_when_declared() -> None:
    with pytest.raises(DiffError, match="nope"):
        choose_key(["nope"], TABLE, ())
    found = choose_key(None, table_of("id", configuration={"weir.primaryKey": "nope"}), ())
    assert found.key is None
    assert "nope" in found.reasons[0]


def test_key_names_are_read_from_lists_quotes_and_json() -> None:
    assert parse_names("a, b") == ("a", "b")
    assert parse_names("`a b`,c") == ("a b", "c")
    assert parse_names('["a","b,c"]') == ("a", "b,c")
    assert parse_names("[broken") == ()


# the plan -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Feed:
    covered: bool
    first_covered_version: int | None = None
    reason: str = ""


NO_KEY = KeyFound(None, ("no key",))
BY_ID = KeyFound(KeyChoice(("id",), KeySource.GIVEN), ("key `id`: as given",))
FILES = FilesFacts(7, 5_000, 70)


def planned(*versions: int, feed: Feed | None = None, key: KeyFound = NO_KEY, **facts: Any) -> DiffPlan:
    options = {name: facts.pop(name) for name in ("method", "max_bytes", "on_host") if name in facts}
    found = DiffFacts("t", "t", feed or Feed(False, None, "never on"), key, **({"files": FILES} | facts))
    return plan_diff(Question(NOWHERE, versions[0], versions[1], **options), found)


def test_the_plan_takes_the_feed_when_it_covers_the_range() -> None:
    plan = planned(1, 3, feed=Feed(True, 1), key=BY_ID)
    assert plan.methods == (DiffMethod.CHANGE_FEED, DiffMethod.KEY_JOIN, DiffMethod.MULTISET, DiffMethod.LOG_ONLY)
    assert "v2 to v3" in plan.reasons(plan.method)[0]
    back = planned(3, 1, feed=Feed(True, 1))
    assert any("going back to v1" in reason for reason in back.reasons(back.method))


def test_each_rung_says_why_not_the_better_ones() -> None:
    plan = planned(0, 9, feed=Feed(False, 4, "off until v4"), key=BY_ID)
    assert (plan.method, plan.first_covered_version, plan.bytes_to_read) == (DiffMethod.KEY_JOIN, 4, 5_000)
    assert "not by the change feed: off until v4" in plan.reasons(plan.method)
    rows = planned(0, 9)
    assert (rows.method, rows.rows_to_read) == (DiffMethod.MULTISET, 70)
    why_not = {"not by the change feed: never on", "not by a join by key: no key is known", "no key"}
    assert why_not <= set(rows.reasons(rows.method))
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


def test_more_data_than_allowed_is_read_when_its_method_is_named_or_by_the_host() -> None:
    plan = planned(0, 9, key=BY_ID, max_bytes=4_999)
    assert plan.methods == (DiffMethod.LOG_ONLY,) and "WEIR_LAKE__DIFF_MAX_BYTES" in plan.hint
    for wanted in ({"method": DiffMethod.KEY_JOIN}, {"on_host": True}, {"max_bytes": 5_000}):
        assert planned(0, 9, key=BY_ID, **({"max_bytes": 4_999} | wanted)).method is DiffMethod.KEY_JOIN
