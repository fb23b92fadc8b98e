"""Maps, which have no order: to DuckDB two of them are equal only with their entries in one.

Rule: pure; SQL over one value, for whatever a map lies in.
"""

import pyarrow as pa

from backend.query.quoting import quoted_name, quoted_text


def with_sorted_maps(kind: pa.DataType, value: str, depth: int = 0) -> str | None:
    """The value with the entries of every map in it in the order of their keys; None where the type holds no map."""
    entry = f"e{depth}"
    if pa.types.is_map(kind):
        entries = f"map_entries({value})"
        if inner := with_sorted_maps(kind.item_type, f"{entry}.value", depth + 1):
            packed = f"struct_pack(key := {entry}.key, value := {inner})"
            entries = f"list_transform({entries}, lambda {entry}: {packed})"
        return f"map_from_entries(list_sort({entries}))"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = with_sorted_maps(kind.value_type, entry, depth + 1)
        return inner and f"list_transform({value}, lambda {entry}: {inner})"
    if pa.types.is_struct(kind):
        return _struct(kind, value, depth)
    return None


def _struct(kind: pa.StructType, value: str, depth: int) -> str | None:
    fields = {field.name: f"struct_extract({value}, {quoted_text(field.name)})" for field in kind}
    found = {field.name: with_sorted_maps(field.type, fields[field.name], depth + 1) for field in kind}
    if not any(found.values()):
        return None
    packed = ", ".join(f"{quoted_name(name)} := {found[name] or each}" for name, each in fields.items())
    return f"CASE WHEN {value} IS NULL THEN NULL ELSE struct_pack({packed}) END"
