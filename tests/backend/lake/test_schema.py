"""Schema: Spark's type names, nesting, comments; a damaged one is an error."""

import json

import pytest

from backend.errors import TableCorruptError
from backend.lake.model import Metadata
from backend.lake.table.schema import fields


def column(name, kind, **more):
    return {"name": name, "type": kind, "nullable": True, "metadata": {}} | more


def read(*columns, partition_by=()):
    return fields(Metadata("id", json.dumps({"type": "struct", "fields": columns}), partition_columns=partition_by))


def test_plain_columns():
    found = read(
        column("id", "long", nullable=False, metadata={"comment": "the key"}),
        column("price", "decimal(10,2)"),
        column("day", "date"),
        partition_by=("day",),
    )
    assert [(f.path, f.type, f.nullable, f.comment, f.is_partition, f.depth) for f in found] == [
        ("id", "bigint", False, "the key", False, 0),
        ("price", "decimal(10,2)", True, None, False, 0),
        ("day", "date", True, None, True, 0),
    ]


def test_nested_columns():
    city = {"type": "struct", "fields": [column("city", "string"), column("day", "integer")]}
    found = read(
        column("address", city),
        column("tags", {"type": "array", "elementType": "string", "containsNull": True}),
        column("homes", {"type": "array", "elementType": city, "containsNull": False}),
        column("by_name", {"type": "map", "keyType": "string", "valueType": city, "valueContainsNull": True}),
        partition_by=("day",),
    )
    assert [(f.path, f.type, f.depth) for f in found] == [
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
    assert not any(f.is_partition for f in found)


@pytest.mark.parametrize("text", ["", "garbage", "[]", "{}", '{"fields":[{"name":"a"}]}', '{"fields":"x"}'])
def test_a_damaged_schema_is_an_error(text):
    with pytest.raises(TableCorruptError):
        fields(Metadata("id", text))
