"""The difference of two table schemas and of everything else the metadata holds.

Rule: pure; a field is the same field when its column-mapping id says so; without ids, when its path does. A schema that
cannot be read is `TableCorruptError`.
Source: Delta protocol, "Schema Serialization Format" and "Column Mapping".
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from backend.errors import TableCorruptError
from backend.lake.model import Metadata, Protocol

_ID = "delta.columnMapping.id"
CLUSTERED_BY = "clustered by"
Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FieldState:
    """A column or nested field as one version has it; `names` lead to it from the top, `type` is Spark's simple
    string."""

    names: Names
    type: str
    nullable: bool
    comment: str | None = None
    field_id: int | None = None

    @property
    def path(self) -> str:
        """For people: a dot may stand between two names, or in one."""
        return ".".join(self.names)


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One trait of a field that differs. `what` is "type", "nullability" or "comment"."""

    names: Names
    what: str
    before: str | None
    after: str | None

    @property
    def path(self) -> str:
        return ".".join(self.names)


@dataclass(frozen=True, slots=True)
class SchemaDiff:
    """`renamed` holds (old path, new path), known by column-mapping id; without ids a rename is a drop and an add."""

    added: tuple[FieldState, ...] = ()
    dropped: tuple[FieldState, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    changed: tuple[FieldChange, ...] = ()
    partitioning: tuple[tuple[str, ...], tuple[str, ...]] | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.dropped or self.renamed or self.changed or self.partitioning)


@dataclass(frozen=True, slots=True)
class PropertyChange:
    """One table property, protocol version, feature or description that differs; None: not set."""

    key: str
    before: str | None
    after: str | None


def diff_schemas(before: Metadata, after: Metadata) -> SchemaDiff:
    """What changed from one version's columns to another's; nested fields by dotted path."""
    old, new = _fields(before), _fields(after)
    pairs = _paired(old, new)
    kept_old, kept_new = {a.names for a, _ in pairs}, {b.names for _, b in pairs}
    partitioning = (before.partition_columns, after.partition_columns)
    return SchemaDiff(
        added=tuple(field for field in new if field.names not in kept_new),
        dropped=tuple(field for field in old if field.names not in kept_old),
        renamed=tuple((a.path, b.path) for a, b in pairs if a.names[-1] != b.names[-1]),  # not what is in it
        changed=tuple(change for a, b in pairs for change in _changes(a, b)),
        partitioning=partitioning if before.partition_columns != after.partition_columns else None,
    )


def diff_properties(
    before: tuple[Metadata, Protocol], after: tuple[Metadata, Protocol], *, clustered: tuple[Names, Names] = ((), ())
) -> tuple[PropertyChange, ...]:
    """Table properties, name, description, protocol versions and features, and the columns that the table is clustered
    by, that differ, sorted by key."""
    old, new = (_properties(*side, by) for side, by in zip((before, after), clustered, strict=True))
    return tuple(
        PropertyChange(key, old.get(key), new.get(key))
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    )


def column_names(metadata: Metadata) -> tuple[str, ...]:
    """The top-level columns in the table's order."""
    return tuple(field.names[0] for field in _struct_fields(_struct(metadata), (), nested=False))


def column_types(metadata: Metadata) -> dict[str, str]:
    """The top-level columns with their types as the schema writes them."""
    return {field.names[0]: field.type for field in _struct_fields(_struct(metadata), (), nested=False)}


def _properties(metadata: Metadata, protocol: Protocol, clustered: Names) -> dict[str, str]:
    properties = dict(metadata.configuration)
    properties |= {CLUSTERED_BY: ", ".join(clustered)} if clustered else {}
    properties |= {f"feature: {name}": "supported" for name in protocol.features}
    properties["protocol: minReaderVersion"] = str(protocol.min_reader_version)
    properties["protocol: minWriterVersion"] = str(protocol.min_writer_version)
    properties |= {"table name": metadata.name} if metadata.name else {}
    properties |= {"table description": metadata.description} if metadata.description else {}
    return properties


def _paired(old: tuple[FieldState, ...], new: tuple[FieldState, ...]) -> list[tuple[FieldState, FieldState]]:
    """The fields both versions have: by id where both carry one, else by path without regard to case."""
    by_id = {field.field_id: field for field in old if field.field_id is not None}
    by_path = {_without_case(field.names): field for field in old} | {field.names: field for field in old}
    exact = {field.names for field in new}
    pairs = []
    for field in new:
        match = by_id.get(field.field_id) if field.field_id is not None else None
        candidate = by_path.get(field.names) or by_path.get(_without_case(field.names))
        if candidate and candidate.names != field.names and candidate.names in exact:
            candidate = None  # it is another field, whose name differs in case alone
        if match is None and candidate and (candidate.field_id is None or field.field_id is None):
            match = candidate
        if match is not None:
            pairs.append((match, field))
    return pairs


def _changes(a: FieldState, b: FieldState) -> Iterator[FieldChange]:
    if a.type != b.type:
        yield FieldChange(b.names, "type", a.type, b.type)
    if a.nullable != b.nullable:
        yield FieldChange(b.names, "nullability", _null_word(a), _null_word(b))
    if a.comment != b.comment:
        yield FieldChange(b.names, "comment", a.comment, b.comment)


def _null_word(field: FieldState) -> str:
    return "nullable" if field.nullable else "not null"


def _without_case(names: Names) -> Names:
    return tuple(name.lower() for name in names)


def _fields(metadata: Metadata) -> tuple[FieldState, ...]:
    try:
        return tuple(_struct_fields(_struct(metadata), ()))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise TableCorruptError("the table's schema cannot be read", hint="its metaData action is damaged") from exc


def _struct(metadata: Metadata) -> Mapping[str, Any]:
    struct = orjson.loads(metadata.schema_json) if metadata.schema_json else {}
    return struct if isinstance(struct, dict) else {}


def _struct_fields(struct: Mapping[str, Any], parent: Names, *, nested: bool = True) -> Iterator[FieldState]:
    for field in struct.get("fields", ()):
        names, traits = (*parent, str(field["name"])), field.get("metadata") or {}
        nullable = bool(field.get("nullable", True))
        yield FieldState(names, _type_word(field["type"]), nullable, traits.get("comment"), traits.get(_ID))
        if nested:
            yield from _nested_fields(field["type"], names)


def _nested_fields(kind: Any, names: Names) -> Iterator[FieldState]:
    """Fields inside a struct, array or map; elements are called `element`, `key` and `value` as Parquet does."""
    if not isinstance(kind, dict):
        return
    if kind.get("type") == "struct":
        yield from _struct_fields(kind, names)
    elif kind.get("type") == "array":
        yield FieldState((*names, "element"), _type_word(kind["elementType"]), bool(kind.get("containsNull", True)))
        yield from _nested_fields(kind["elementType"], (*names, "element"))
    elif kind.get("type") == "map":
        yield FieldState((*names, "key"), _type_word(kind["keyType"]), nullable=False)
        yield from _nested_fields(kind["keyType"], (*names, "key"))
        yield FieldState((*names, "value"), _type_word(kind["valueType"]), bool(kind.get("valueContainsNull", True)))
        yield from _nested_fields(kind["valueType"], (*names, "value"))


def _type_word(kind: Any) -> str:
    """The type's own word; what is inside shows as fields of its own, so that a change is told once."""
    return str(kind.get("type")) if isinstance(kind, dict) else str(kind)
