"""The pure parts of a diff: versions by name, the key, the plan, schemas, properties, files."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from backend.diff.commits import commit_changes
from backend.diff.key import KeyFound, choose_key, merge_key, parse_names
from backend.diff.model import DiffMethod, KeyChoice, KeySource
from backend.diff.plan import DiffFacts, DiffPlan, DiffRequest, FilesFacts, plan_diff
from backend.diff.values import json_value, same
from backend.diff.versions import Offset, parse_version, resolve_version
from backend.errors import DiffError, VersionFormatError, VersionNotFoundError
from backend.lake.model import Commit, Metadata, OperationMetrics, Protocol, TableRef
from backend.lake.table.metadata_diff import FieldChange, PropertyChange, diff_properties, diff_schemas

REF = TableRef("/lake/t", "t", "/lake")
START = datetime(2026, 1, 1, tzinfo=UTC)


def field(
    name: str, kind: Any = "long", *, nullable: bool = True, id: int | None = None, comment: str = ""
) -> dict[str, Any]:
    traits: dict[str, Any] = {"delta.columnMapping.id": id} if id is not None else {}
    traits |= {"comment": comment} if comment else {}
    return {"name": name, "type": kind, "nullable": nullable, "metadata": traits}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def metadata(*fields: dict[str, Any], **traits: Any) -> Metadata:
    return Metadata(traits.pop("id", "t-1"), json.dumps(struct(*fields)), **traits)


def commit(version: int, operation: str = "WRITE", *, minutes: int | None = None, **parameters: Any) -> Commit:
    at = START + timedelta(minutes=version if minutes is None else minutes)
    return Commit(version, at, operation, parameters, OperationMetrics(), {}, None, None, None)


@dataclass
class LakeWithLog:
    """Fifty-two pages would be slow to write; a log of `length` commits a minute apart."""

    length: int
    asked: int = 0

    def latest_version(self, ref: TableRef) -> int:
        return self.length - 1

    def history(
        self,
        ref: TableRef,
        *,
        limit: int | None = None,
        starting_version: int | None = None,
        ending_version: int | None = None,
    ) -> list[Commit]:
        self.asked += 1
        last = self.length - 1 if ending_version is None else ending_version
        return [commit(v) for v in range(last, -1, -1)][:limit]


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("7", 7),
        (7, 7),
        ("v7", 7),
        ("latest", Offset(0)),
        ("-5", Offset(5)),
        (-5, Offset(5)),
        ("latest-2", Offset(2)),
        ("2026-11-20T10:00Z", datetime(2026, 11, 20, 10, tzinfo=UTC)),
        ("2026-11-20T12:00+02:00", datetime(2026, 11, 20, 10, tzinfo=UTC)),
        ("2026-11-20", datetime(2026, 11, 20, tzinfo=UTC)),
    ],
)
def test_versions_are_named_in_four_ways(text: str | int, meaning: object) -> None:
    assert parse_version(text) == meaning


@pytest.mark.parametrize("text", ["", "banana", "1.5", "v", "2026-13-01", "latest+1x"])
def test_what_names_no_version_is_refused_with_the_forms_that_do(text: str) -> None:
    with pytest.raises(VersionFormatError) as caught:
        parse_version(text)
    assert "latest" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("latest", 499),
        ("-5", 494),
        ("2026-01-01T00:10:30Z", 10),
        ("2026-01-01T00:10:00Z", 10),
        ("2030-01-01", 499),
        ("0", 0),
    ],
)
def test_versions_resolve_against_the_log(text: str, version: int) -> None:
    assert resolve_version(LakeWithLog(500), REF, text) == version


def test_a_recent_time_does_not_read_the_whole_log() -> None:
    lake = LakeWithLog(500)
    resolve_version(lake, REF, "2030-01-01")
    assert lake.asked == 1


@pytest.mark.parametrize("text", ["500", "-501", "2025-12-31T23:59Z"])
def test_a_version_that_is_not_there_is_not_found(text: str) -> None:
    with pytest.raises(VersionNotFoundError):
        resolve_version(LakeWithLog(500), REF, text)


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


TABLE = metadata(field("id"), field("Day"), field("v"))


def test_the_given_key_wins_then_the_property_then_merges() -> None:
    merges = [commit(3, "MERGE", predicate="t.Day = s.Day"), commit(2, "MERGE", mergePredicate="t.day = s.day")]
    declared = metadata(field("id"), field("Day"), configuration={"weir.primaryKey": "id"})
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
    found = choose_key(None, metadata(field("id"), configuration={"weir.primaryKey": "nope"}), ())
    assert found.key is None
    assert "nope" in found.reasons[0]


def test_key_names_are_read_from_lists_quotes_and_json() -> None:
    assert parse_names("a, b") == ("a", "b")
    assert parse_names("`a b`,c") == ("a b", "c")
    assert parse_names('["a","b,c"]') == ("a", "b,c")
    assert parse_names("[broken") == ()


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
    return plan_diff(DiffRequest(versions[0], versions[1], **options), found)


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
    plan = plan_diff(DiffRequest(0, 9), DiffFacts("old-id", "new-id", Feed(True, 0), NO_KEY))
    (reason,) = plan.reasons(plan.method)
    assert plan.method is DiffMethod.LOG_ONLY
    assert "old-id" in reason and "new-id" in reason


def test_the_same_version_needs_no_method() -> None:
    assert plan_diff(DiffRequest(4, 4), DiffFacts("t", "t", None, NO_KEY)).method is DiffMethod.SAME_VERSION


def test_schemas_differ_by_field() -> None:
    before = metadata(field("a"), field("b", "integer"), field("c", nullable=False), field("s", struct(field("x"))))
    after = metadata(
        field("a", comment="the a"), field("b", "long"), field("c"), field("s", struct(field("y"))), field("d", "date")
    )
    found = diff_schemas(before, after)
    assert [f.path for f in found.added] == ["s.y", "d"]
    assert [f.path for f in found.dropped] == ["s.x"]
    assert found.changed == (
        FieldChange("a", "comment", None, "the a"),
        FieldChange("b", "type", "integer", "long"),
        FieldChange("c", "nullability", "not null", "nullable"),
    )
    assert diff_schemas(before, before).is_empty


def test_a_rename_is_known_by_id_and_otherwise_a_drop_and_an_add() -> None:
    mapped = diff_schemas(metadata(field("a", id=1)), metadata(field("b", id=1), field("a", id=2)))
    assert (mapped.renamed, [f.path for f in mapped.added], mapped.dropped) == ((("a", "b"),), ["a"], ())
    plain = diff_schemas(metadata(field("a")), metadata(field("b")))
    assert ([f.path for f in plain.added], [f.path for f in plain.dropped], plain.renamed) == (["b"], ["a"], ())


def test_renaming_a_struct_does_not_rename_what_is_in_it() -> None:
    before = metadata(field("s", struct(field("x", id=2)), id=1))
    after = metadata(field("t", struct(field("x", id=2)), id=1))
    assert diff_schemas(before, after).renamed == (("s", "t"),)


def test_turning_column_mapping_on_changes_no_column() -> None:
    assert diff_schemas(metadata(field("a")), metadata(field("a", id=1))).is_empty


def test_arrays_and_maps_are_looked_into() -> None:
    def nested(kind: str) -> Metadata:
        array = {"type": "array", "elementType": struct(field("x", kind)), "containsNull": True}
        return metadata(
            field("m", {"type": "map", "keyType": "string", "valueType": array, "valueContainsNull": False})
        )

    assert diff_schemas(nested("integer"), nested("long")).changed == (
        FieldChange("m.value.element.x", "type", "integer", "long"),
    )


def test_properties_protocol_and_features_differ_by_key() -> None:
    before = metadata(field("a"), configuration={"x": "1", "y": "1"})
    after = metadata(field("a"), configuration={"x": "2", "z": "1"})
    found = diff_properties((before, Protocol(1, 2)), (after, Protocol(1, 7, (), ("changeDataFeed",))))
    assert found == (
        PropertyChange("feature: changeDataFeed", None, "supported"),
        PropertyChange("protocol: minWriterVersion", "2", "7"),
        PropertyChange("x", "1", "2"),
        PropertyChange("y", "1", None),
        PropertyChange("z", None, "1"),
    )


def test_values_leave_as_json_without_losing_digits() -> None:
    assert json_value(float("nan")) is None
    assert json_value({"x": [float("inf"), 2**63 - 1]}) == {"x": [None, 2**63 - 1]}
    assert json_value(datetime(2026, 1, 1, 2, tzinfo=UTC)) == "2026-01-01T02:00:00Z"
    assert json_value(b"\x00\xff") == "AP8="
    assert same({"x": [float("nan")]}, {"x": [float("nan")]})
    assert not same(None, 0.0)


def test_what_an_operation_cannot_do_is_zero_where_its_writer_leaves_it_out() -> None:
    def counts(operation: str, metrics: OperationMetrics, **parameters: Any) -> tuple[int | None, ...]:
        [found] = commit_changes([replace(commit(1, operation, **parameters), metrics=metrics)], None)
        assert found.is_reported
        return found.inserted, found.updated, found.deleted

    assert counts("UPDATE", OperationMetrics(rows_updated=3)) == (0, 3, 0)
    assert counts("DELETE", OperationMetrics(rows_deleted=2)) == (0, 0, 2)
    assert counts("DELETE", OperationMetrics()) == (None, None, None)
    assert counts("WRITE", OperationMetrics(rows_inserted=5), mode="Append") == (5, 0, 0)
    assert counts("STREAMING UPDATE", OperationMetrics(rows_inserted=5), outputMode="Append") == (5, 0, 0)
    assert counts("WRITE", OperationMetrics(rows_inserted=5), mode="Overwrite") == (5, None, None)
    assert counts("MERGE", OperationMetrics(rows_inserted=5)) == (5, None, None)
