"""Which values of a table a person may not see: every one of a restricted table, those of restricted columns of others.

Rule: the tags of the latest version decide, and those of the version that is read. A column goes by its name in files,
so that one that was renamed is the same; a restricted field closes its whole column.
"""

import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import orjson

from backend.errors import RowsRefusedError
from backend.lake.model import Hidden, Metadata
from backend.lake.table.schema import physical_name, physical_names

_TAGS = ("catalog.table.classification", "classification")


def hidden_values(table: str, states: Sequence[Metadata], words: Collection[str], who: str) -> Hidden | None:
    """What a table's states hide from whom no grant names it to, by the `words` of their tags; None: nothing."""
    closed, physical = frozenset(map(_folded, words)), set[str]()
    for state in states:
        if _is_tagged(state.configuration, closed, _TAGS[:1]):
            return Hidden(table, is_all=True, who=who)
        physical |= _restricted_fields(state.schema_json, closed)
    if not physical:
        return None
    names = {name: None for state in states for name, own in physical_names(state).items() if own in physical}
    return Hidden(table, is_all=False, who=who, physical=frozenset(physical), names=tuple(names))


def hidden_columns(hidden: Hidden | None, metadata: Metadata) -> list[str]:
    """The outermost columns that are hidden, as this state of the table calls them."""
    own = physical_names(metadata).items() if hidden else ()
    return [name for name, stored in own if hidden and (hidden.is_all or stored in hidden.physical)]


def require_shown(hidden: Hidden | None, metadata: Metadata, columns: Iterable[str]) -> None:
    """Raise `RowsRefusedError` where one of these outermost columns is hidden, or the whole table is."""
    closed = set(hidden_columns(hidden, metadata)) & set(columns)
    if hidden and (hidden.is_all or closed):
        raise refused(hidden, sorted(closed))


def refused(hidden: Hidden, columns: Iterable[str] = ()) -> RowsRefusedError:
    """Names the table, or its columns, and who may see them."""
    what, hint = f"the rows of {hidden.table} are", "its schema, history and sizes are open"
    if not hidden.is_all and (names := ", ".join(columns)):
        what, hint = f"{names} of {hidden.table} is", "name the other columns"
    return RowsRefusedError(f"{what} restricted: {hidden.who}", table=hidden.table, hint=f"{hint}; ask them for more")


def masked(reader: Any, names: Collection[str]) -> Any:
    """Rows (a `RecordBatchReader`) with nulls in these columns."""
    import pyarrow as pa

    schema = pa.schema([f.with_nullable(nullable=True) if f.name in names else f for f in reader.schema])

    def nulls(batch: pa.RecordBatch) -> list[pa.Array]:
        pairs = zip(schema, batch.columns, strict=True)
        return [pa.nulls(len(batch), field.type) if field.name in names else column for field, column in pairs]

    batches = (pa.RecordBatch.from_arrays(nulls(batch), schema=schema) for batch in reader)
    return pa.RecordBatchReader.from_batches(schema, batches) if names else reader


@lru_cache(maxsize=256)
def _restricted_fields(schema_json: str, words: frozenset[str]) -> frozenset[str]:
    """The outermost columns with a tag, or with one inside, by their names in files."""
    with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):  # no row of such a schema is read
        return frozenset(physical_name(f) for f in orjson.loads(schema_json)["fields"] if _holds_tag(f, words))
    return frozenset()


def _holds_tag(node: Any, words: frozenset[str]) -> bool:
    inner = node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ()
    own = isinstance(node, Mapping) and _is_tagged(node.get("metadata") or {}, words, _TAGS)
    return own or any(_holds_tag(each, words) for each in inner)


def _is_tagged(tags: Mapping[str, Any], words: frozenset[str], keys: Collection[str]) -> bool:
    return any(key.lower() in keys and _folded(value) in words for key, value in tags.items())


def _folded(text: object) -> str:
    return unicodedata.normalize("NFKC", str(text)).strip().casefold()
