"""A table's schema, properties and protocol, and what changed of them between versions and commits."""

import pytest

from backend.lake.model import Commit, Metadata, OperationMetrics, Protocol
from backend.lake.table.metadata_diff import (
    ChangeKind,
    FieldChange,
    InForce,
    PropertyChange,
    TableChange,
    compare,
    diff_properties,
    diff_schemas,
    metadata_changes,
    needs_before,
)
from backend.lake.table.properties import explain_features, explain_properties
from backend.lake.table.schema import columns as schema_columns
from tests.worlds.lake.builders import column, schema_json, struct

# schemas --------------------------------------------------------------------------------------------------------------


def metadata(*columns, table_id="t", **more):
    return Metadata(table_id, schema_json(columns), **more)


def read(*columns, partition_by=()):
    return schema_columns(metadata(*columns, partition_columns=partition_by))


def test_nested_columns():
    city = struct(column("city", "string"), column("day", "integer"))
    columns = read(
        column("address", city),
        column("tags", {"type": "array", "elementType": "string", "containsNull": True}),
        column("homes", {"type": "array", "elementType": city, "containsNull": False}),
        column("by_name", {"type": "map", "keyType": "string", "valueType": city, "valueContainsNull": True}),
        partition_by=("day",),
    )
    assert [(f.path, f.type, f.depth) for f in columns] == [
        ("address", "struct<city:string,day:int>", 0),
        ("address.city", "string", 1),
        ("address.day", "int", 1),
        ("tags", "array<string>", 0),
        ("homes", "array<struct<city:string,day:int>>", 0),
        ("homes.element", "struct<city:string,day:int>", 1),
        ("homes.element.city", "string", 2),
        ("homes.element.day", "int", 2),
        ("by_name", "map<string,struct<city:string,day:int>>", 0),
        ("by_name.value", "struct<city:string,day:int>", 1),
        ("by_name.value.city", "string", 2),
        ("by_name.value.day", "int", 2),
    ]
    assert not any(f.is_partition for f in columns)


# properties -----------------------------------------------------------------------------------------------------------

DOCUMENTED = [
    "appendOnly", "autoOptimize.autoCompact", "autoOptimize.optimizeWrite", "checkpoint.writeStatsAsJson",
    "checkpoint.writeStatsAsStruct", "checkpointInterval", "checkpointPolicy", "columnMapping.mode",
    "dataSkippingNumIndexedCols", "dataSkippingStatsColumns", "deletedFileRetentionDuration",
    "enableChangeDataFeed", "enableDeletionVectors", "enableExpiredLogCleanup", "enableInCommitTimestamps",
    "enableRowTracking", "enableTypeWidening", "isolationLevel", "logRetentionDuration",
    "randomizeFilePrefixes", "setTransactionRetentionDuration", "targetFileSize", "tuneFileSizesForRewrites",
    "universalFormat.enabledFormats", "minReaderVersion", "minWriterVersion",
]  # fmt: skip


def rows_of(**configuration: str):
    metadata = Metadata("id", "{}", configuration={key.replace("__", "."): v for key, v in configuration.items()})
    return {row.key: row for row in explain_properties(metadata)}


def test_every_documented_key_is_explained_although_unset():
    rows = rows_of()
    for key in DOCUMENTED:
        row = rows[f"delta.{key}"]
        assert (row.is_set, row.value, row.problem, bool(row.meaning)) == (False, None, None, True), key


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("delta.logRetentionDuraton", "delta.logRetentionDuration"),
        ("delta.enableChangeDataFeeds", "delta.enableChangeDataFeed"),
        ("delta.appendonly", "delta.appendOnly"),
        ("Delta.targetFileSize", "delta.targetFileSize"),
        ("detla.checkpointInterval", "delta.checkpointInterval"),
        ("catalog.team_nam", "catalog.team_name"),
        ("catalog.enginering.comms.slack", "catalog.engineering.comms.slack"),
    ],
)
def test_a_misspelled_key_is_flagged_with_the_nearest(slip, meant):
    row = rows_of(**{slip: "x"})[slip]
    assert row.suggestion == meant
    assert meant in row.problem


def test_an_unknown_engine_key_is_flagged_and_a_free_tag_is_not():
    rows = rows_of(**{"delta.wholly.unheard": "1", "team": "core", "catalog.cost_center": "7"})
    assert "unknown" in rows["delta.wholly.unheard"].problem
    assert rows["delta.wholly.unheard"].suggestion is None
    assert rows["team"].problem is None
    assert rows["catalog.cost_center"].problem is None


@pytest.mark.parametrize(
    ("key", "value", "good"),
    [
        ("delta.logRetentionDuration", "interval 30 days", True),
        ("delta.logRetentionDuration", "interval 1 week 2 hours", True),
        ("delta.deletedFileRetentionDuration", "banana", False),
        ("delta.appendOnly", "yes", False),
        ("delta.appendOnly", "TRUE", True),
        ("delta.checkpointInterval", "ten", False),
        ("delta.dataSkippingNumIndexedCols", "-1", True),
        ("delta.targetFileSize", "128mb", True),
        ("delta.targetFileSize", "big", False),
        ("delta.columnMapping.mode", "name", True),
        ("delta.columnMapping.mode", "nme", False),
        ("delta.constraints.positive", "amount > 0", True),
        ("delta.feature.deletionVectors", "supported", True),
        ("delta.universalFormat.x", "y", True),
    ],
)
def test_a_value_that_engines_would_not_understand_is_said(key, value, good):
    row = rows_of(**{key: value})[key]
    assert (row.problem is None) == good and row.meaning
    assert good or value in row.problem


def test_features_listed_and_implied():
    listed = {f.name: f for f in explain_features(Protocol(3, 7, ("deletionVectors",), ("deletionVectors", "mars")))}
    assert set(listed) == {"deletionVectors", "mars"}
    assert (listed["deletionVectors"].in_reader, listed["mars"].in_reader) == (True, False)
    assert "does not know" in listed["mars"].meaning
    implied = {f.name for f in explain_features(Protocol(2, 5))}
    assert {"appendOnly", "changeDataFeed", "columnMapping"} <= implied
    assert "identityColumns" not in implied


# two versions ---------------------------------------------------------------------------------------------------------


def test_a_rename_is_known_by_id_and_otherwise_a_drop_and_an_add():
    mapped = diff_schemas(metadata(column("a", number=1)), metadata(column("b", number=1), column("a", number=2)))
    assert (mapped.renamed, [f.path for f in mapped.added], mapped.dropped) == ((("a", "b"),), ["a"], ())
    plain = diff_schemas(metadata(column("a")), metadata(column("b")))
    assert ([f.path for f in plain.added], [f.path for f in plain.dropped], plain.renamed) == (["b"], ["a"], ())


def test_renaming_a_struct_does_not_rename_what_is_in_it():
    before = metadata(column("s", struct(column("x", number=2)), number=1))
    after = metadata(column("t", struct(column("x", number=2)), number=1))
    assert diff_schemas(before, after).renamed == (("s", "t"),)


def test_a_rename_is_told_by_the_whole_name():
    def named(total, inner):
        return metadata(column(total, number=1), column("order", struct(column(inner, number=3)), number=2))

    first, second, third = named("order.total", "total"), named("order.sum", "total"), named("sale.sum", "sum")
    assert diff_schemas(first, second).renamed == (("order.total", "order.sum"),)
    assert diff_schemas(second, third).renamed == (("order.sum", "sale.sum"), ("order.total", "order.sum"))


def test_turning_column_mapping_on_changes_no_column():
    assert diff_schemas(metadata(column("a")), metadata(column("a", number=1))).is_empty


def test_arrays_and_maps_are_looked_into():
    def nested(kind: str) -> Metadata:
        array = {"type": "array", "elementType": struct(column("x", kind)), "containsNull": True}
        return metadata(
            column("m", {"type": "map", "keyType": "string", "valueType": array, "valueContainsNull": False})
        )

    assert diff_schemas(nested("integer"), nested("long")).changed == (
        FieldChange(("m", "value", "element", "x"), "type", "integer", "long"),
    )


def test_properties_protocol_and_features_differ_by_key():
    before = metadata(column("a"), configuration={"x": "1", "y": "1"})
    after = metadata(column("a"), configuration={"x": "2", "z": "1"})
    changes = diff_properties((before, Protocol(1, 2)), (after, Protocol(1, 7, (), ("changeDataFeed",))))
    assert changes == (
        PropertyChange("feature: changeDataFeed", None, "supported"),
        PropertyChange("protocol: minWriterVersion", "2", "7"),
        PropertyChange("x", "1", "2"),
        PropertyChange("y", "1", None),
        PropertyChange("z", None, "1"),
    )


# commits --------------------------------------------------------------------------------------------------------------


def commit(version: int, meta: Metadata | None = None, protocol: Protocol | None = None) -> Commit:
    return Commit(version, None, "X", {}, OperationMetrics(), {}, None, None, None, metadata=meta, protocol=protocol)


def changed(before: Metadata, after: Metadata) -> list[tuple[str, ...]]:
    changes = compare(InForce(before, Protocol(1, 2)), InForce(after, Protocol(1, 2)))
    return [(c.kind.value, c.subject, c.before, c.after, c.trait) for c in changes]  # type: ignore[misc]


def test_columns_added_dropped_and_altered():
    home = struct(column("city", "string"), column("no", "integer"))
    before = metadata(
        column("id", "integer", nullable=False), column("old", "string"), column("n", CURRENT_DEFAULT="0")
    )
    after = metadata(
        column("id", "long", comment="the key"), column("n", CURRENT_DEFAULT="1"), column("home", home),
        column("price", "decimal(10,2)"),
    )  # fmt: skip
    assert changed(before, after) == [
        ("column", "home", None, "struct<city:string,no:int>", ""),
        ("column", "price", None, "decimal(10,2)", ""),
        ("column", "old", "string", None, ""),
        ("column", "id", "int", "bigint", "type"),
        ("column", "id", "not null", "nullable", "nullability"),
        ("column", "id", None, "the key", "comment"),
        ("column", "n", "0", "1", "default"),
    ]


def test_a_column_that_stands_elsewhere_among_its_siblings_has_moved():
    home = [struct(column("city"), column("no"), *more) for more in ([], [column("zip")])]
    turned = struct(column("no"), column("city"))
    before = metadata(column("id"), column("gone"), column("home", home[0]), column("n"), column("last"))
    assert changed(before, metadata(column("id"), column("home", home[1]), column("n"), column("last"))) == [
        ("column", "home.zip", None, "bigint", ""),
        ("column", "gone", "bigint", None, ""),
    ]
    moved = metadata(column("last"), column("id"), column("gone"), column("home", turned), column("n"))
    assert changed(before, moved) == [
        ("column", "last", "after n", "first", "position"),
        ("column", "home.no", "after home.city", "first", "position"),
    ]


def test_partitioning_description_and_a_table_made_anew():
    before = metadata(column("a"), partition_columns=("a",), description="old")
    after = metadata(column("a"), table_id="u", description="new")
    assert changed(before, after) == [
        ("table", "u", "t", "u", ""),
        ("partitioning", "partitioned by", "a", None, ""),
        ("description", "table description", "old", "new", ""),
    ]


def test_a_damaged_schema_hides_the_columns_alone():
    before = metadata(column("a"))
    assert changed(before, Metadata("t", "{broken", configuration={"k": "v"})) == [
        ("unknown", "columns", None, None, ""),
        ("property", "k", None, "v", ""),
    ]


def test_what_held_before_the_run_is_asked_for_and_never_guessed():
    plain, wide = metadata(column("a")), metadata(column("a"), column("b"))
    run = [commit(9, protocol=Protocol(1, 3)), commit(8, wide), commit(7)]
    assert needs_before(run) == 7 and needs_before([commit(7)]) is None
    known = metadata_changes(run, InForce(plain, Protocol(1, 2)))
    assert [change.subject for change in known[8]] == ["b"]
    assert known[9] == (TableChange(ChangeKind.PROTOCOL, "writer", "2", "3"),)
    unknown = metadata_changes(run, None)
    assert [change.kind for change in unknown[8] + unknown[9]] == [ChangeKind.UNKNOWN, ChangeKind.UNKNOWN]
