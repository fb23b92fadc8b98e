"""Every changed row, as record batches for a file: never more than a batch in memory.

Rule: the same rows, in the same order of buckets, that `backend.diff.rows` gives the first of; those of a bucket by
their key, unless they are too many to be sorted in bounded memory.
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa

from backend.diff.export import ChangedBatches, change_schema
from backend.diff.rows import APART, MANY_COLUMNS, ORDER, Bucket, Source
from backend.duckdb_session import CancelToken
from backend.errors import DiffError
from backend.query.quoting import quoted_text

_BATCH_ROWS = 16_384
_MOST_SORTED = 1_000_000


def changed_batches(
    source: Source, rows: pa.Schema, buckets: Mapping[str, Bucket], token: CancelToken
) -> ChangedBatches:
    """All rows of the buckets, read when they are asked for; `rows` is their schema."""
    keys = tuple(source.columns[i] for i in source.key)
    return ChangedBatches(rows, keys, _batches(source, buckets, change_schema(rows), token))


def _batches(
    source: Source, buckets: Mapping[str, Bucket], schema: pa.Schema, token: CancelToken
) -> Iterator[pa.RecordBatch]:
    for name in ORDER:
        if name not in buckets:
            continue
        rows = _updates(source) if name == "update" else _one_sided(source, name)
        query = f"{rows}{_order(source, name, buckets[name])}"
        for batch in _watched(source.connection.sql(query).to_arrow_reader(_BATCH_ROWS), token):
            columns = [_as(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
            yield pa.record_batch(columns, schema)


def _watched(reader: pa.RecordBatchReader, token: CancelToken) -> Iterator[pa.RecordBatch]:
    """The same, ended by the token; DuckDB's own errors come through Arrow here."""
    while True:
        token.check()
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except (OSError, pa.ArrowException) as exc:
            token.check()
            raise DiffError(f"the changed rows cannot be written out: {str(exc).splitlines()[0]}") from exc
        yield batch


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)


def _updates(source: Source) -> str:
    differs = source.differs()
    touched = ", ".join(f"CASE WHEN {each} THEN {quoted_text(name)} END" for name, each in differs.items())
    cells = ", ".join(f"{side}_c{i}" for side in "ba" for i in range(len(source.columns)))
    only = f" WHERE {' OR '.join(differs.values())}" if source.tolerance else ""
    changed = f"list_filter([{touched}], lambda each: each IS NOT NULL)"
    return f"SELECT 'update', {changed}, NULL, 1, {cells} FROM pairs{only}"


def _one_sided(source: Source, bucket: str) -> str:
    places = range(len(source.columns))
    before = ", ".join(f"CASE WHEN n < 0 THEN c{i} END" for i in places)
    after = ", ".join(f"CASE WHEN n > 0 THEN c{i} END" for i in places)
    apart = quoted_text(APART[bucket].value) if bucket in APART else "NULL"
    return (
        f"SELECT CASE WHEN n > 0 THEN 'insert' ELSE 'delete' END, CAST([] AS VARCHAR[]), {apart}, abs(n), "
        f"{before}, {after} FROM ({source.rows_of(bucket)})"
    )


def _order(source: Source, name: str, bucket: Bucket) -> str:
    """By the key; wide rows cannot be sorted, and those without a key have no order."""
    if not source.key or len(source.columns) > MANY_COLUMNS or bucket.entries > _MOST_SORTED:
        return ""
    prefix = "a_c" if name == "update" else "c"
    return f" ORDER BY {', '.join(f'{prefix}{i}' for i in source.key)}"
