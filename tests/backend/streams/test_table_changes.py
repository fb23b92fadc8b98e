"""A declaration beside its table: what a start sets at once, what waits for a word, what cannot be."""

import pytest

from backend.stream_model.overrides import known_keys, require_settable
from backend.stream_model.stream import DeclaredTable, StreamDeclaration
from backend.streams.table_changes import DeclaredChange, PresentTable, approved_changes, table_changes

PLAIN = PresentTable("Orders", {"catalog.team_name": "sales"}, ("appendOnly", "invariants"))
EVERY = PresentTable("", {}, ("changeDataFeed", "clustering", "deletionVectors", "typeWidening", "rowTracking"))


def changes(present: PresentTable = PLAIN, **declared: object) -> list[DeclaredChange]:
    return list(table_changes(DeclaredTable("silver/orders", "/l", **declared), present))  # type: ignore[arg-type]


def of_property(key: str, value: str, present: PresentTable = PLAIN) -> DeclaredChange:
    (change,) = changes(present, properties={key: value})
    return change


def test_nothing_differs_where_nothing_is_said_or_all_is_as_it_is() -> None:
    assert changes() == []
    kept = {"delta.logRetentionDuration": "interval 7 days", "delta.enableChangeDataFeed": "true"}
    present = PresentTable("Orders", kept, ("changeDataFeed",), ("id", "Day"), ("Region",))
    said = {"delta.logretentionduration": "INTERVAL 1 week", "delta.enableChangeDataFeed": "TRUE"}
    assert changes(present, comment="Orders", properties=said) == []
    assert changes(present, cluster_by=("ID", "day"), partition_cols=("region",)) == []
    assert changes(EVERY, properties={"delta.feature.clustering": "supported", "delta.minReaderVersion": "3"}) == []


def test_what_adds_and_can_be_taken_back_is_set_at_once() -> None:
    (comment,) = changes(comment="Orders of the shop")
    assert (str(comment), comment.waits) == ("comment of silver/orders: Orders → Orders of the shop", "")
    for key, value in {
        "catalog.team_name": "Sales",
        "quality": "gold",
        "delta.autoOptimize.autoCompact": "true",
        "delta.targetFileSize": "128mb",
        "delta.logRetentionDuration": "interval 60 days",
        "delta.deletedFileRetentionDuration": "interval 30 days",
        "delta.appendOnly": "true",
    }.items():
        change = of_property(key, value)
        assert (change.waits, change.is_due(())) == ("", True), key
    assert of_property("delta.enableChangeDataFeed", "true", EVERY).waits == ""
    assert changes(EVERY, cluster_by=("id",))[0].is_due(())


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("delta.enableChangeDataFeed", "true", "by changeDataFeed"),
        ("delta.enableDeletionVectors", "true", "by deletionVectors"),
        ("delta.columnMapping.mode", "name", "by columnMapping"),
        ("delta.enableRowTracking", "true", "by rowTracking"),
        ("delta.checkpointPolicy", "v2", "by v2Checkpoint"),
        ("delta.feature.timestampNtz", "supported", "by timestampNtz"),
        ("delta.constraints.positive", "amount > 0", "by checkConstraints"),
        ("delta.logRetentionDuration", "interval 1 day", "is deleted for good"),
        ("delta.deletedFileRetentionDuration", "interval 1 hour", "is deleted for good"),
        ("delta.deletedFileRetentionDuration", "soon", "is deleted for good"),
        ("delta.somethingNew", "true", "nobody here knows"),
    ],
)
def test_what_raises_the_protocol_or_cannot_be_undone_waits_for_a_word(key: str, value: str, why: str) -> None:
    change = of_property(key, value)
    assert why in change.waits
    assert not change.is_due(())
    assert not change.is_due(approved_changes("comment"))
    assert change.is_due(approved_changes(f"comment, {key}"))


def test_to_turn_a_feature_off_waits_and_to_say_that_it_is_off_does_not() -> None:
    on = PresentTable("", {"delta.enableChangeDataFeed": "true"}, ("changeDataFeed",))
    assert "goes without it" in of_property("delta.enableChangeDataFeed", "false", on).waits
    assert of_property("delta.enableChangeDataFeed", "false").waits == ""


def test_clustering_waits_where_the_table_knows_none_and_partitions_never_change() -> None:
    (clustering,) = changes(cluster_by=("id",))
    assert "by clustering" in clustering.waits and clustering.is_due(approved_changes("cluster_by"))
    parted = PresentTable("", {}, ("clustering",), (), ("day",))
    for change in (*changes(parted, cluster_by=("id",)), *changes(parted, partition_cols=("region",))):
        assert not change.is_due(approved_changes("cluster_by,partition_cols")), change


def test_a_word_is_a_setting_of_streams_that_write_tables() -> None:
    stream = StreamDeclaration("orders", "", "", "/t", "t", (), None, 5_000, "/c")
    assert "table_changes" not in known_keys(stream)
    told = StreamDeclaration("orders", "", "", "/t", "t", (), None, 5_000, "/c", tables=(DeclaredTable("t", "/t"),))
    assert "table_changes" in known_keys(told)
    require_settable("orders", ["table_changes"])
