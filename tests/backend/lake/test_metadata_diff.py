"""Schemas and properties of two versions, field by field."""

import json
from typing import Any

from backend.lake.model import Metadata, Protocol
from backend.lake.table.metadata_diff import FieldChange, PropertyChange, diff_properties, diff_schemas


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


def test_schemas_differ_by_field() -> None:
    before = metadata(field("a"), field("b", "integer"), field("c", nullable=False), field("s", struct(field("x"))))
    after = metadata(
        field("a", comment="the a"), field("b", "long"), field("c"), field("s", struct(field("y"))), field("d", "date")
    )
    found = diff_schemas(before, after)
    assert [f.path for f in found.added] == ["s.y", "d"]
    assert [f.path for f in found.dropped] == ["s.x"]
    assert found.changed == (
        FieldChange(("a",), "comment", None, "the a"),
        FieldChange(("b",), "type", "integer", "long"),
        FieldChange(("c",), "nullability", "not null", "nullable"),
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
        FieldChange(("m", "value", "element", "x"), "type", "integer", "long"),
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
