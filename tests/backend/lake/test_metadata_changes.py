"""What commits changed of their table, each against what was in force before it."""

import json
from typing import Any

from backend.lake.history.metadata_changes import (
    ChangeKind,
    InForce,
    TableChange,
    compare,
    metadata_changes,
    needs_before,
)
from backend.lake.model import Commit, Metadata, OperationMetrics, Protocol


def column(name: str, kind: Any = "long", nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def metadata(*fields: dict[str, Any], table_id: str = "t", **more: Any) -> Metadata:
    return Metadata(table_id, json.dumps({"type": "struct", "fields": list(fields)}), **more)


def commit(version: int, meta: Metadata | None = None, protocol: Protocol | None = None) -> Commit:
    return Commit(version, None, "X", {}, OperationMetrics(), {}, None, None, None, metadata=meta, protocol=protocol)


def changed(before: Metadata, after: Metadata) -> list[tuple[str, ...]]:
    found = compare(InForce(before, Protocol(1, 2)), InForce(after, Protocol(1, 2)))
    return [(c.kind.value, c.subject, c.before, c.after, c.trait) for c in found]  # type: ignore[misc]


def test_properties_and_constraints() -> None:
    before = metadata(column("a"), configuration={"delta.appendOnly": "false", "gone": "1", "same": "x"})
    after = metadata(
        column("a"), configuration={"delta.appendOnly": "true", "same": "x", "delta.constraints.positive": "a > 0"}
    )
    assert changed(before, after) == [
        ("property", "delta.appendOnly", "false", "true", ""),
        ("constraint", "positive", None, "a > 0", ""),
        ("property", "gone", "1", None, ""),
    ]


def test_columns_added_dropped_and_altered() -> None:
    home = {"type": "struct", "fields": [column("city", "string"), column("no", "integer")]}
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


def test_a_column_that_stands_elsewhere_among_its_siblings_has_moved() -> None:
    home = [{"type": "struct", "fields": [column("city"), column("no"), *more]} for more in ([], [column("zip")])]
    turned = {"type": "struct", "fields": [column("no"), column("city")]}
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


def test_a_renamed_column_is_known_by_its_id() -> None:
    mapped = {"delta.columnMapping.id": 1}
    before, after = metadata(column("a", **mapped)), metadata(column("b", **mapped))
    assert changed(before, after) == [("column", "b", "a", "b", "name")]


def test_partitioning_description_and_a_table_made_anew() -> None:
    before = metadata(column("a"), partition_columns=("a",), description="old")
    after = metadata(column("a"), table_id="u", description="new")
    assert changed(before, after) == [
        ("table", "u", "t", "u", ""),
        ("partitioning", "partitioned by", "a", None, ""),
        ("description", "table description", "old", "new", ""),
    ]


def test_protocol_and_features() -> None:
    meta = metadata(column("a"))
    before, after = Protocol(1, 2), Protocol(3, 7, ("deletionVectors",), ("deletionVectors", "appendOnly"))
    assert compare(InForce(meta, before), InForce(meta, after)) == (
        TableChange(ChangeKind.PROTOCOL, "reader", "1", "3"),
        TableChange(ChangeKind.PROTOCOL, "writer", "2", "7"),
        TableChange(ChangeKind.FEATURE, "appendOnly", None, "supported"),
        TableChange(ChangeKind.FEATURE, "deletionVectors", None, "supported"),
    )


def test_a_damaged_schema_hides_the_columns_alone() -> None:
    before = metadata(column("a"))
    assert changed(before, Metadata("t", "{broken", configuration={"k": "v"})) == [
        ("unknown", "columns", None, None, ""),
        ("property", "k", None, "v", ""),
    ]


def test_each_commit_stands_against_the_one_before_it() -> None:
    plain, wide = metadata(column("a")), metadata(column("a"), column("b"))
    run = [commit(4, plain), commit(3), commit(2, wide), commit(1, plain), commit(0, plain, Protocol(1, 2))]
    found = metadata_changes(run, None)
    assert {version: [(c.before, c.after) for c in changes] for version, changes in found.items()} == {
        0: [(None, "1 column")],
        2: [(None, "bigint")],
        4: [("bigint", None)],
    }
    assert needs_before(run) is None


def test_what_held_before_the_run_is_asked_for_and_never_guessed() -> None:
    plain, wide = metadata(column("a")), metadata(column("a"), column("b"))
    run = [commit(9, protocol=Protocol(1, 3)), commit(8, wide), commit(7)]
    assert needs_before(run) == 7 and needs_before([commit(7)]) is None
    known = metadata_changes(run, InForce(plain, Protocol(1, 2)))
    assert [change.subject for change in known[8]] == ["b"]
    assert known[9] == (TableChange(ChangeKind.PROTOCOL, "writer", "2", "3"),)
    unknown = metadata_changes(run, None)
    assert [change.kind for change in unknown[8] + unknown[9]] == [ChangeKind.UNKNOWN, ChangeKind.UNKNOWN]
