"""A table's columns, nested ones included, from the schema that its log holds; and the values of its partition columns
as one text per file, for grouping and for people, of many files as Arrow columns.

Rule: types are Spark's simple strings; a schema that cannot be read is `TableCorruptError`, an odd detail of one column
hides only itself. Of partitions, inside, `physical=escaped value` joined by "/" in the order of names; nulls are left
out. Shown are the table's own column names in its order, with Hive's word for null, and that word escaped where it is a
value. An empty text is a value of a column of texts, and null in any other. A decimal has its type's scale, however its
writer put it.
Source: Delta protocol, "Schema Serialization Format", "Column Mapping", "Identity Columns", "Type Widening"; of
partition values what Spark 4.2 with Delta 4.4, and deltalake 1.6.6, read; of an empty text PROTOCOL.md says that it is
null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson

from backend.errors import TableCorruptError
from backend.lake.model import Metadata

if TYPE_CHECKING:
    import pyarrow as pa


_SHORT = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
CASELESS = "UTF8_LCASE"  # the collation that compares texts in lower case
_CONSTRAINT = "delta.constraints."
_READ = frozenset((
    "string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date", "timestamp",
    "timestamp_ntz", "void", "variant",
))  # fmt: skip
_READ_STARTS = ("decimal", "interval ")
PARTS = ("elementType", "keyType", "valueType")  # of a collection's type
NESTED = ("struct", "array", "map", "variant")  # what their types begin with


@dataclass(frozen=True, slots=True)
class Identity:
    """How an identity column gives out its numbers; `high_water_mark` is the last one, None before the first row."""

    start: int | None
    step: int | None
    high_water_mark: int | None
    allows_explicit: bool


@dataclass(frozen=True, slots=True)
class TypeChange:
    """One widening of a column's type. `inside` names the part of an array or map, "" for the column itself."""

    before: str
    after: str
    version: int | None
    inside: str = ""


@dataclass(frozen=True, slots=True)
class SchemaColumn:
    """One column or nested field with everything its schema says of it.

    `names` lead to it from the top; `path` is the text of them that no other column of the table has: dotted, or with
    each name in backticks where a name holds such a dot itself. `kind` is the type's own word ("struct", "long");
    `physical` are the names in data files and statistics from the top down; `in_collection` is true below an array or
    map, where no statistics are kept.
    """

    path: str
    names: tuple[str, ...]
    type: str
    kind: str
    nullable: bool
    physical: tuple[str, ...]
    comment: str | None = None
    is_partition: bool = False
    in_collection: bool = False
    field_id: int | None = None
    default: str | None = None
    generated_as: str | None = None
    identity: Identity | None = None
    widened: tuple[TypeChange, ...] = ()
    collation: str | None = None

    @property
    def name(self) -> str:
        return self.names[-1]

    @property
    def depth(self) -> int:
        return len(self.names) - 1

    @property
    def declared_type(self) -> str:
        """The type with how its texts are compared."""
        return f"{self.type} collate {self.collation}" if self.collation else self.type

    @property
    def physical_name(self) -> str | None:
        """The name in the data files where it differs from the column's own."""
        return self.physical[-1] if self.physical and self.physical[-1] != self.name else None


@dataclass(frozen=True, slots=True)
class Constraint:
    """One CHECK constraint: every row must satisfy `expression`."""

    name: str
    expression: str


def columns(metadata: Metadata, *, with_elements: bool = False) -> tuple[SchemaColumn, ...]:
    """Every column and nested field in order; elements of arrays are `.element`, of maps `.key` and `.value`: those
    that are nested themselves, or all of them."""
    try:
        struct = orjson.loads(metadata.schema_json)
        return tuple(_top_level(struct, frozenset(metadata.partition_columns), with_elements=with_elements))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise TableCorruptError("the table's schema cannot be read", hint="its metaData action is damaged") from exc


def spelled(name: str, names: Iterable[str]) -> str | None:
    """A name among a table's as the table writes it: the same, else the one that differs in case alone."""
    names = tuple(names)
    return name if name in names else next((own for own in names if own.lower() == name.lower()), None)


def column_names(metadata: Metadata) -> tuple[str, ...]:
    """The outermost columns in the table's order."""
    return tuple(column_types(metadata.schema_json)) or tuple(column.name for column in columns(metadata))


def constraints(metadata: Metadata) -> tuple[Constraint, ...]:
    """The CHECK constraints, by name. NOT NULL is a trait of its column, and not among them."""
    pairs = ((key, text) for key, text in metadata.configuration.items() if key.startswith(_CONSTRAINT))
    return tuple(Constraint(key.removeprefix(_CONSTRAINT), text) for key, text in sorted(pairs))


def stored_type(kind: Any) -> Any:
    """A type as data files hold it: a user-defined one (Spark's vectors) is its `sqlType`."""
    while isinstance(kind, Mapping) and kind.get("type") == "udt":
        kind = kind["sqlType"]
    return kind


@dataclass(frozen=True, slots=True)
class ReadSchema:
    """The schema that rows are read with, and the outermost columns that it leaves out: of a type that no reader here
    knows."""

    json: str
    left_out: tuple[str, ...]


@lru_cache(maxsize=256)
def read_schema(schema_json: str) -> ReadSchema:
    """Raises `TableCorruptError` for a schema that cannot be read."""
    try:
        struct = orjson.loads(schema_json)
        items = [(item, _readable(item["type"])) for item in struct["fields"]]
        fields_read = [item | {"type": kind} for item, kind in items if kind is not None]
        left_out = tuple(str(item["name"]) for item, kind in items if kind is None)
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise TableCorruptError("the table's schema cannot be read", hint="its metaData action is damaged") from exc
    if fields_read == struct["fields"]:
        return ReadSchema(schema_json, ())
    return ReadSchema(orjson.dumps(struct | {"fields": fields_read}).decode(), left_out)


def readable_names(metadata: Metadata) -> tuple[str, ...]:
    """The outermost columns whose rows can be read, in the table's order."""
    left_out = read_schema(metadata.schema_json).left_out
    return tuple(field.path for field in columns(metadata) if field.depth == 0 and field.path not in left_out)


def _readable(kind: Any) -> Any:
    """A type with what is user-defined in it as its `sqlType`; None where something in it cannot be read."""
    kind = stored_type(kind)
    if isinstance(kind, str):
        return kind if kind in _READ or kind.startswith(_READ_STARTS) else None
    if kind["type"] == "struct":
        inside = [(item, _readable(item["type"])) for item in kind["fields"]]
        known = all(inner is not None for _, inner in inside)
        return kind | {"fields": [item | {"type": inner} for item, inner in inside]} if known else None
    parts = {name: _readable(kind[name]) for name in PARTS if name in kind}
    return None if None in parts.values() else kind | parts


def simple_type(kind: Any) -> str:
    """Spark's simple string of a type: `bigint`, `struct<a:int>`, `array<string>`."""
    kind = stored_type(kind)
    if isinstance(kind, str):
        return _SHORT.get(kind, kind)
    if kind["type"] == "struct":
        inside = ",".join(f"{item['name']}:{simple_type(item['type'])}" for item in kind["fields"])
        return f"struct<{inside}>"
    if kind["type"] == "array":
        return f"array<{simple_type(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{simple_type(kind['keyType'])},{simple_type(kind['valueType'])}>"
    return str(kind["type"])


# walking ---------------------------------------------------------------------------------------------------------


def _top_level(struct: Mapping[str, Any], partitions: frozenset[str], *, with_elements: bool) -> Iterator[SchemaColumn]:
    paths = {str(item["name"]) for item in struct["fields"]}
    for column in _walked(struct["fields"], None, with_elements=with_elements):
        if column.depth == 0:
            yield replace(column, is_partition=True) if column.path in partitions else column
            continue
        path = ".".join(f"`{name}`" for name in column.names) if column.path in paths else column.path
        paths.add(path)
        yield column if path == column.path else replace(column, path=path)


def _walked(
    fields: Iterable[Mapping[str, Any]], above: SchemaColumn | None, *, with_elements: bool
) -> Iterator[SchemaColumn]:
    """Fields, each before what is in it. A plain part of an array or map says nothing new beside its column's type."""
    is_collection = above is not None and above.kind in ("array", "map")
    for item in fields:
        if is_collection and not with_elements and isinstance(item["type"], str):
            continue
        column = _column(item, above, in_collection=is_collection or (above is not None and above.in_collection))
        yield column
        yield from _walked(_fields_in(stored_type(item["type"])), column, with_elements=with_elements)


def _fields_in(kind: Any) -> Iterable[Mapping[str, Any]]:
    """The fields of a struct; of an array or map its parts, as fields."""
    if isinstance(kind, str):
        return ()
    if kind["type"] == "struct":
        fields: Iterable[Mapping[str, Any]] = kind["fields"]
        return fields
    if kind["type"] == "array":
        return ({"name": "element", "type": kind["elementType"], "nullable": kind.get("containsNull", True)},)
    if kind["type"] == "map":
        value = {"name": "value", "type": kind["valueType"], "nullable": kind.get("valueContainsNull", True)}
        return {"name": "key", "type": kind["keyType"], "nullable": False}, value
    return ()


def _column(item: Mapping[str, Any], above: SchemaColumn | None, *, in_collection: bool) -> SchemaColumn:
    name, kind, traits = str(item["name"]), item["type"], item.get("metadata") or {}
    names, physical = (above.names, above.physical) if above else ((), ())
    names, collations = (*names, name), traits.get("__COLLATIONS")
    collation = collations.get(name) if isinstance(collations, Mapping) else None
    return SchemaColumn(
        path=".".join(names),
        names=names,
        type=simple_type(kind),
        kind=_kind_word(kind),
        nullable=bool(item.get("nullable", True)),
        physical=(*physical, _text(traits.get("delta.columnMapping.physicalName")) or name),
        comment=_text(traits.get("comment")),
        in_collection=in_collection,
        field_id=_whole(traits.get("delta.columnMapping.id")),
        default=_text(traits.get("CURRENT_DEFAULT")),
        generated_as=_text(traits.get("delta.generationExpression")),
        identity=_identity(traits),
        widened=tuple(_type_changes(traits.get("delta.typeChanges"))),
        collation=collation.partition(".")[2] if isinstance(collation, str) else None,  # of "spark.UTF8_LCASE"
    )


def _kind_word(kind: Any) -> str:
    kind = stored_type(kind)
    return kind if isinstance(kind, str) else str(kind["type"])


# traits ----------------------------------------------------------------------------------------------------------


def _identity(traits: Mapping[str, Any]) -> Identity | None:
    start, step = _whole(traits.get("delta.identity.start")), _whole(traits.get("delta.identity.step"))
    if start is None and step is None:
        return None
    mark = _whole(traits.get("delta.identity.highWaterMark"))
    return Identity(start, step, mark, traits.get("delta.identity.allowExplicitInsert") is True)


def _type_changes(value: Any) -> Iterator[TypeChange]:
    for item in value if isinstance(value, list) else ():
        if isinstance(item, Mapping) and "fromType" in item and "toType" in item:
            kinds = (item["fromType"], item["toType"])
            before, after = (_SHORT.get(kind, kind) if isinstance(kind, str) else str(kind) for kind in kinds)
            yield TypeChange(before, after, _whole(item.get("tableVersion")), _text(item.get("fieldPath")) or "")


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _whole(value: Any) -> int | None:
    """A whole number, also one that a writer left as text."""
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and value.isascii():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


# partition values -------------------------------------------------------------------------------------------------

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_THE_WORD = NULL_PARTITION.replace("_", "%5F", 1)
_DIGITS = Context(prec=76, rounding=ROUND_HALF_UP)  # as Spark casts a text


def encode_partition(values: Mapping[str, str | None]) -> str:
    return "/".join(encode_value(name, value) for name, value in sorted(values.items()) if value is not None)


def show_partition(encoded: str, metadata: Metadata, physical: Mapping[str, str], types: Mapping[str, str]) -> str:
    """`types` as `column_types` gives them."""
    pairs = (text.partition("=") for text in encoded.split("/") if text)
    values = {name: value for name, _, value in pairs}

    def shown(column: str) -> str:
        value = _typed(values.get(_escape(physical.get(column, column))), types.get(column, ""))
        if value is None:
            return NULL_PARTITION
        return _THE_WORD if value == NULL_PARTITION else value

    return "/".join(f"{column}={shown(column)}" for column in metadata.partition_columns)


def _typed(value: str | None, kind: str) -> str | None:
    """A value's one text in a column of this type."""
    if not value:
        return value if kind in ("string", "binary") else None
    if not kind.startswith("decimal("):
        return value
    try:
        scale = int(kind.removesuffix(")").partition(",")[2])
        return f"{Decimal(value).quantize(Decimal(1).scaleb(-scale), context=_DIGITS):f}"
    except (InvalidOperation, ValueError):
        return value


def partition_values(shown: str, metadata: Metadata) -> dict[str, str | None]:
    """The values in `day=2026-01-01/country=NL`, by the table's column names; None is null."""
    values: dict[str, str | None] = {}
    for column in metadata.partition_columns:
        head = f"{column}="
        if not shown.startswith(head):
            values[column] = None
            continue
        value, _, shown = shown.removeprefix(head).partition("/")
        text = NULL_PARTITION if value == _THE_WORD else value.replace("%2F", "/").replace("%25", "%")
        values[column] = None if value == NULL_PARTITION else text
    return values


def physical_names(metadata: Metadata) -> dict[str, str]:
    """Each top-level column's name in files and partition values (differs under column mapping)."""
    try:
        fields = orjson.loads(metadata.schema_json)["fields"]
        return {str(field["name"]): physical_name(field) for field in fields}
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return {}


def physical_name(field: Mapping[str, Any]) -> str:
    """The name that a field of the schema has in files."""
    return str((field.get("metadata") or {}).get("delta.columnMapping.physicalName", field["name"]))


def has_decimals(metadata: Metadata) -> bool:
    """Whether the log may write a partition's value in several ways."""
    types = column_types(metadata.schema_json)
    return any(types.get(name, "").startswith("decimal") for name in metadata.partition_columns)


@lru_cache(maxsize=256)
def column_types(schema_json: str) -> Mapping[str, str]:
    """The types of the outermost columns as the log names them, of a nested one its kind; none where it cannot be
    read."""
    try:
        fields = orjson.loads(schema_json)["fields"]
        return {str(f["name"]): _kind_word(f["type"]) for f in fields}
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return {}


def encode_value(name: str, value: str) -> str:
    return f"{_escape(name)}={_escape(value)}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")


def encode_partitions(maps: pa.Array, names: Sequence[str]) -> pa.DictionaryArray:
    """`encode_partition` of each in a column of map<string, string>, dictionary-encoded."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_map(maps.type) or pa.types.is_null(maps.type)):
        raise pa.ArrowTypeError(f"partitionValues is no map of text to text but {maps.type}")
    codes, texts = np.zeros(len(maps), np.int64), [""]
    if pa.types.is_null(maps.type):
        names = ()
    for name in sorted(names):
        values = _values(maps, name).dictionary_encode()
        parts = ["" if value is None else encode_value(name, value) for value in (*values.dictionary.to_pylist(), None)]
        own = pc.fill_null(values.indices, len(parts) - 1).to_numpy(zero_copy_only=False)
        used = pa.array(codes * len(parts) + own).dictionary_encode()
        pairs = ((texts[at // len(parts)], parts[at % len(parts)]) for at in used.dictionary.to_pylist())
        texts, codes = ["/".join(filter(None, pair)) for pair in pairs], used.indices.to_numpy().astype(np.int64)
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(texts, pa.string()))


def show_partitions(encoded: pa.Array, metadata: Metadata) -> pa.DictionaryArray:
    """What people read: `day=2026-01-01/country=NL`; each distinct text is worked out once."""
    import numpy as np
    import pyarrow as pa

    if not metadata.partition_columns:
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(encoded), np.int32)), pa.array([""], pa.string()))
    codes = encoded if pa.types.is_dictionary(encoded.type) else encoded.dictionary_encode()
    own = physical_names(metadata), column_types(metadata.schema_json)
    shown = pa.array([show_partition(text, metadata, *own) for text in codes.dictionary.to_pylist()], pa.string())
    unique = shown.dictionary_encode()
    return pa.DictionaryArray.from_arrays(unique.indices.take(codes.indices), unique.dictionary)


def _values(maps: pa.Array, name: str) -> pa.Array:
    """The value of one key in each map, the first where a key occurs twice; null where it is absent."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    offsets = maps.offsets.to_numpy()
    start, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    is_name = pc.equal(maps.keys.slice(start, count).cast(pa.string()), name)
    at = np.flatnonzero(pc.fill_null(is_name, False).to_numpy(zero_copy_only=False))
    rows = np.searchsorted(offsets - start, at, side="right") - 1
    items = maps.items.slice(start, count).cast(pa.string())
    if len(at) == len(maps) and bool((np.diff(rows) == 1).all()) and not maps.null_count:
        return items.take(pa.array(at))
    positions = np.full(len(maps), -1, np.int64)
    positions[rows[::-1]] = at[::-1]
    if maps.null_count:
        positions[pc.is_null(maps).to_numpy(zero_copy_only=False)] = -1
    return items.take(pa.array(positions, pa.int64(), mask=positions < 0))


def column_kinds(metadata: Metadata) -> dict[str, str]:
    """Types of the outermost columns, as Spark's simple strings."""
    return {column.name: column.type for column in columns(metadata) if column.depth == 0}
