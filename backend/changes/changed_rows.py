"""Rows that differ, read out of the tables of a comparison: the first ones for a page, or all of them for a file.

Rule: the tables are handed in as queries. The limit of a page is shared between the kinds, so that ten thousand inserts
do not hide one update; of all rows no more than a batch is in memory: they travel as record batches of `change_schema`,
and `backend.sql.export` makes the file. What was cut off is said beside the data by the caller: `RowChanges.truncated`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from backend.cells import cells
from backend.changes.model import (
    ROW_ID,
    ApartCounts,
    CommonChange,
    Limits,
    NetCounts,
    RowChange,
    RowChanges,
    RowKind,
    SetApart,
    VersionDiff,
)
from backend.errors import DiffError
from backend.sql.export import Format, encoded
from backend.sql.session import CancelToken, Connection
from backend.sql.values import json_value, quoted_text, same

COMMON_COLUMNS, COMMON_CHANGES = 12, 3
ORDER_COLUMNS = 8  # enough to make the order of rows without a key stable
APART = {"duplicate": SetApart.DUPLICATE_KEY, "null": SetApart.NULL_KEY}
ORDER = ("update", "delete", "insert", "duplicate", "null")


@dataclass(frozen=True, slots=True)
class RowBucket:
    """Net rows of one sort: keys (sorts of rows), distinct rows, rows on the after and on the before side."""

    keys: int
    entries: int
    added: int
    removed: int


def bucket_sizes(buckets: Mapping[str, RowBucket]) -> dict[str, int]:
    """How many `RowChange` each bucket makes, in the order in which they are shown."""
    return {
        name: buckets[name].keys if name == "update" else buckets[name].entries for name in ORDER if name in buckets
    }


@dataclass(frozen=True, slots=True)
class Pairing:
    """The columns of the rows to compare, and those among them that pair rows: () for none. `by_ids`: a last column
    beyond these, of row ids, pairs them; the key then only names them."""

    columns: tuple[str, ...]
    key: tuple[str, ...] = ()
    by_ids: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of an answer's rows: ids are shown where no key names the rows."""
        return (*self.columns, ROW_ID) if self.by_ids and not self.key else self.columns

    @property
    def width(self) -> int:
        """How many columns the rows have."""
        return len(self.columns) + self.by_ids

    @property
    def paired_by(self) -> list[int]:
        """The numbers of the columns that pair rows."""
        return [len(self.columns)] if self.by_ids else [self.columns.index(name) for name in self.key]


@dataclass(frozen=True, slots=True)
class Changes:
    """Where the rows that differ are. `pairs` is a query for updated rows, before (b_c0 …) and after (a_c0 …) side by
    side, "" without a key; `one_sided` has one a bucket for the others, c0 … and `n`, how often each came (< 0: went).
    Two floats within `tolerance` are the same."""

    connection: Connection
    pairing: Pairing
    pairs: str
    one_sided: Mapping[str, str]
    tolerance: float
    limits: Limits

    def differs(self) -> dict[str, str]:
        """Per column, a condition on a row of `pairs`."""
        if not self.tolerance:
            return {name: f"b_c{i} IS DISTINCT FROM a_c{i}" for i, name in enumerate(self.pairing.columns)}
        kinds = _arrow(self.connection, f"SELECT * FROM ({self.pairs}) LIMIT 0").schema.types
        return {
            name: f"NOT {_near(kinds[i], f'b_c{i}', f'a_c{i}', self.tolerance)}"
            for i, name in enumerate(self.pairing.columns)
        }


def _near(kind: pa.DataType, before: str, after: str, tolerance: float, depth: int = 0) -> str:
    """A condition in SQL: the values are equal, or are but for floats in them that are within the tolerance."""
    near = "false"
    if pa.types.is_floating(kind):
        near = f"abs(CAST({before} AS DOUBLE) - CAST({after} AS DOUBLE)) <= {tolerance!r}"
    elif pa.types.is_struct(kind):
        parts = []
        for field in kind:
            name = quoted_text(field.name)
            one, other = f"struct_extract({before}, {name})", f"struct_extract({after}, {name})"
            parts.append(_near(field.type, one, other, tolerance, depth))
        near = f"{before} IS NOT NULL AND {after} IS NOT NULL AND {' AND '.join(parts)}"
    elif pa.types.is_map(kind):
        values = _near(pa.list_(kind.item_type), f"map_values({before})", f"map_values({after})", tolerance, depth)
        near = f"map_keys({before}) = map_keys({after}) AND {values}"
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        pair = f"e{depth}"
        inner = _near(kind.value_type, f"{pair}[1]", f"{pair}[2]", tolerance, depth + 1)
        apart = f"list_filter(list_zip({before}, {after}), lambda {pair}: NOT {inner})"
        near = f"len({before}) = len({after}) AND len({apart}) = 0"
    return f"({before} IS NOT DISTINCT FROM {after} OR coalesce({near}, false))"


# the first rows -------------------------------------------------------------------------------------------------------


def fetch_rows(changes: Changes, buckets: Mapping[str, RowBucket], limit: int, *, is_filtered: bool) -> RowChanges:
    """The counts, and at most `limit` changed rows: updates, deletes, inserts, then those set apart, each in the order
    of the key."""
    pairing = changes.pairing
    sizes = bucket_sizes(buckets)
    shares = share_out(limit, sizes)
    rows = [
        row
        for name, share in shares.items()
        for row in (_updates(changes, share) if name == "update" else _one_sided(changes, name, share))
    ]
    names = ", ".join(f"c{i}" for i in range(len(pairing.names)))
    schema = _arrow(changes.connection, f"SELECT {names} FROM ({changes.one_sided['insert']}) LIMIT 0").schema
    differs = changes.differs() if "update" in buckets else {}
    cells = _changed_cells(changes, differs)
    return RowChanges(
        count_net(buckets, has_key=bool(pairing.paired_by), is_filtered=is_filtered),
        pa.schema([field.with_name(name) for field, name in zip(schema, pairing.names, strict=True)]),
        count_apart(buckets),
        tuple(rows),
        sum(sizes.values()) > len(rows),
        cells,
        tuple(each for name in list(cells)[:COMMON_COLUMNS] for each in _common(changes, name, differs[name])),
    )


def count_net(buckets: Mapping[str, RowBucket], *, has_key: bool, is_filtered: bool = False) -> NetCounts:
    """Without a key, whether an update happened is not known: None. `is_filtered`: its other half may be left out."""
    added = sum(bucket.added for bucket in buckets.values())
    removed = sum(bucket.removed for bucket in buckets.values())
    if has_key:
        updated = buckets["update"].keys if "update" in buckets else 0
        return NetCounts(added - updated, updated, removed - updated)
    may_update = (added or removed) if is_filtered else (added and removed)
    return NetCounts(added, None if may_update else 0, removed)


def count_apart(buckets: Mapping[str, RowBucket]) -> ApartCounts:
    none = RowBucket(0, 0, 0, 0)
    twice, null = buckets.get("duplicate", none), buckets.get("null", none)
    return ApartCounts(twice.keys, twice.added, twice.removed, null.added, null.removed)


def share_out(limit: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """Shares of `limit`: everybody the same, what one does not need goes to the others."""
    shares, left = dict.fromkeys(sizes, 0), limit
    hungry = [name for name in sizes if sizes[name] > 0]
    while left > 0 and hungry:
        portion = max(left // len(hungry), 1)
        for name in hungry:
            given = min(portion, sizes[name] - shares[name], left)
            shares[name] += given
            left -= given
        hungry = [name for name in hungry if shares[name] < sizes[name]]
    return shares


def _updates(changes: Changes, limit: int) -> Iterator[RowChange]:
    pairing = changes.pairing
    if limit <= 0:
        return
    width = len(pairing.names)
    names = [f"{side}_c{i}" for side in "ba" for i in range(width)]
    for values in _tuples(_first(changes, changes.pairs, [f"a_c{i}" for i in pairing.paired_by], limit).select(names)):
        before, after = (dict(zip(pairing.names, side, strict=True)) for side in (values[:width], values[width:]))
        yield row_change(before, after, pairing.key, tolerance=changes.tolerance)


def row_change(
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    key: Sequence[str],
    *,
    tolerance: float = 0.0,
    set_apart: SetApart | None = None,
    copies: int = 1,
) -> RowChange:
    """One changed row of its two sides, one of which is None but for an update; `key` names it to people."""
    changed: tuple[str, ...] = ()
    if before is not None and after is not None:
        changed = tuple(name for name in after if not same(before[name], after[name], tolerance))
    kind = RowKind.INSERT if before is None else RowKind.DELETE if after is None else RowKind.UPDATE
    cells = after or before or {}
    return RowChange(kind, {name: cells[name] for name in key} or None, before, after, changed, set_apart, copies)


def _first(changes: Changes, rows: str, keys: Sequence[str], limit: int) -> pa.Table:
    """The first rows by keys that no two of them share; of wide rows DuckDB cannot sort more than the keys."""
    order = ", ".join(keys)
    first = f"FROM ({rows}) r ORDER BY {order} LIMIT {limit}"
    if len(changes.pairing.columns) <= changes.limits.many_columns:
        return _arrow(changes.connection, f"SELECT * {first}")
    found = _arrow(
        changes.connection, f"SELECT r.* FROM ({rows}) r SEMI JOIN (SELECT {order} {first}) k USING ({order})"
    )
    return found.sort_by([(name, "ascending") for name in keys])


def _one_sided(changes: Changes, bucket: str, limit: int) -> Iterator[RowChange]:
    """Inserted or deleted rows, and those that cannot be paired: a null or repeated key, or no key at all."""
    pairing, paired = changes.pairing, changes.pairing.paired_by
    if limit <= 0:
        return
    rows = changes.one_sided[bucket]
    if paired and bucket not in APART:
        found = _first(changes, rows, [f"c{i}" for i in paired], limit)
    else:
        rest = [i for i in range(len(pairing.columns)) if i not in paired]
        order = ", ".join(f"c{i}" for i in [*paired, *rest][: len(paired) + ORDER_COLUMNS])
        found = _arrow(changes.connection, f"SELECT * FROM ({rows}) ORDER BY {order}, n LIMIT {limit}")
    for *values, n in _tuples(found.select([*(f"c{i}" for i in range(len(pairing.names))), "n"])):
        cells = dict(zip(pairing.names, values, strict=True))
        before, after = (cells, None) if n < 0 else (None, cells)
        yield row_change(before, after, pairing.key, set_apart=APART.get(bucket), copies=abs(n))


def _changed_cells(changes: Changes, differs: Mapping[str, str]) -> dict[str, int]:
    """Updates per column that they touch, over all of them."""
    pairing, paired = changes.pairing, changes.pairing.paired_by
    names = [name for number, name in enumerate(pairing.columns) if number not in paired and name in differs]
    if not names:
        return {}
    sums = ", ".join(f"count_if({differs[name]})" for name in names)  # thousands of FILTERs take half a minute
    (counts,) = changes.connection.execute(f"SELECT {sums} FROM ({changes.pairs})").fetchall()
    return {name: count for name, count in zip(names, counts, strict=True) if count}


def _common(changes: Changes, name: str, differs: str) -> list[CommonChange]:
    """The changes of one column that most updates share."""
    number = changes.pairing.columns.index(name)
    found = _arrow(
        changes.connection,
        f"SELECT b_c{number}, a_c{number}, count(*) FROM ({changes.pairs}) WHERE {differs} GROUP BY 1, 2 "
        f"HAVING count(*) > 1 ORDER BY 3 DESC, 1, 2 LIMIT {COMMON_CHANGES}",
    )
    return [CommonChange(name, *values) for values in _tuples(found)]


def _arrow(connection: Connection, query: str) -> pa.Table:
    return connection.sql(query).to_arrow_table()


def _tuples(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(cells(column) for column in table.columns), strict=True)


# all rows -------------------------------------------------------------------------------------------------------------


_LEADING = (
    pa.field("change", pa.string()),
    pa.field("changed_columns", pa.list_(pa.string())),
    pa.field("set_apart", pa.string()),
    pa.field("copies", pa.int64()),
)


@dataclass(frozen=True, slots=True)
class ChangedBatches:
    """`batches` of `change_schema(rows)`, paired by the columns `key` (() for none)."""

    rows: pa.Schema
    key: Sequence[str]
    batches: Iterable[pa.RecordBatch]


def change_schema(rows: pa.Schema) -> pa.Schema:
    """How changed rows of a table travel: what changed, then its columns before and after."""
    sides = (field.with_name(f"{side}.{field.name}") for side in ("before", "after") for field in rows)
    return pa.schema([*_LEADING, *(field.with_nullable(True) for field in sides)])


def changed_batches(
    changes: Changes, buckets: Mapping[str, RowBucket], rows: pa.Schema, token: CancelToken
) -> Iterator[pa.RecordBatch]:
    """All rows of the buckets, in the order in which `fetch_rows` has the first of them; `rows` is their schema. They
    are read when they are asked for."""
    schema = change_schema(rows)
    limits = changes.limits
    for name in ORDER:
        if name not in buckets:
            continue
        query = _all_rows(changes, name)
        # Wide rows, or many, cannot be sorted in bounded memory; those without a key have no order.
        is_small = len(changes.pairing.columns) <= limits.many_columns and buckets[name].entries <= limits.sorted_rows
        if changes.pairing.paired_by and is_small:
            prefix = "a_c" if name == "update" else "c"
            query += f" ORDER BY {', '.join(f'{prefix}{i}' for i in changes.pairing.paired_by)}"
        reader = changes.connection.sql(query).to_arrow_reader(changes.limits.batch_rows)
        for batch in _checked(reader, token):
            columns = [
                column if column.type == field.type else column.cast(field.type)
                for column, field in zip(batch.columns, schema, strict=True)
            ]
            yield pa.record_batch(columns, schema)


def _checked(reader: pa.RecordBatchReader, token: CancelToken) -> Iterator[pa.RecordBatch]:
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


def _all_rows(changes: Changes, bucket: str) -> str:
    """A query for the rows of a bucket as `change_schema` has them."""
    numbers = range(len(changes.pairing.names))
    if bucket == "update":
        touched = ", ".join(f"CASE WHEN {each} THEN {quoted_text(n)} END" for n, each in changes.differs().items())
        cells = ", ".join(f"{side}_c{i}" for side in "ba" for i in numbers)
        changed = f"list_filter([{touched}], lambda each: each IS NOT NULL)"
        return f"SELECT 'update', {changed}, NULL, 1, {cells} FROM ({changes.pairs})"
    before, after = (", ".join(f"CASE WHEN n {sign} 0 THEN c{i} END" for i in numbers) for sign in "<>")
    apart = quoted_text(APART[bucket].value) if bucket in APART else "NULL"
    return (
        f"SELECT CASE WHEN n > 0 THEN 'insert' ELSE 'delete' END, CAST([] AS VARCHAR[]), {apart}, abs(n), "
        f"{before}, {after} FROM ({changes.one_sided[bucket]})"
    )


# as a file ------------------------------------------------------------------------------------------------------------


def fetched(diff: VersionDiff) -> ChangedBatches:
    """The rows that a difference holds."""
    schema = change_schema(diff.changes.arrow_schema)
    lines = []
    for row in diff.changes.rows:
        sides = (row.before or {}, row.after or {})
        lines.append((*_leading(row), *(side.get(name) for side in sides for name in diff.changes.columns)))
    columns = [pa.array([line[i] for line in lines], field.type) for i, field in enumerate(schema)]
    key = next((tuple(row.key) for row in diff.changes.rows if row.key), ())
    return ChangedBatches(diff.changes.arrow_schema, key, [pa.record_batch(columns, schema=schema)])


def file_of(changed: ChangedBatches, form: Format) -> Iterator[tuple[int, bytes]]:
    """The file in pieces, each with the rows that it adds. A column has two, one for each side; JSON is as
    `row_document`."""
    schema = change_schema(changed.rows)
    if form.suffix != "json":
        return encoded(pa.RecordBatchReader.from_batches(schema, changed.batches), form)
    no_row = pa.record_batch([pa.array([], kind) for kind in schema.types], schema)
    documents = (_documents(changed, batch) for batch in changed.batches)
    return encoded(pa.RecordBatchReader.from_batches(_documents(changed, no_row).schema, documents), form)


def exported(diff: VersionDiff, form: Format) -> bytes:
    """The rows that a difference holds, as a file of one format."""
    return b"".join(piece for _, piece in file_of(fetched(diff), form))


def row_document(row: RowChange) -> dict[str, Any]:
    """One changed row as JSON can hold it."""
    change, columns, set_apart, copies = _leading(row)
    return {
        "change": change,
        "key": json_value(row.key),
        "before": json_value(row.before),
        "after": json_value(row.after),
        "changed_columns": columns,
        "set_apart": set_apart,
        "copies": copies,
    }


def _documents(changed: ChangedBatches, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a batch with the fields of `row_document`: a row before and after as one value each."""
    names, leading = changed.rows.names, dict(zip(batch.schema.names, batch.columns, strict=True))
    is_new, is_gone = (pc.equal(batch["change"], kind.value) for kind in (RowKind.INSERT, RowKind.DELETE))
    before, after = batch.columns[len(_LEADING) : -len(names)], batch.columns[-len(names) :]
    if changed.key:
        places = [names.index(name) for name in changed.key]
        key = _row(changed.key, [pc.if_else(is_gone, before[place], after[place]) for place in places])
    else:
        key = pa.nulls(batch.num_rows)
    return pa.record_batch({
        "change": batch["change"],
        "key": key,
        "before": _row(names, before, mask=is_new),
        "after": _row(names, after, mask=is_gone),
        **{field.name: leading[field.name] for field in _LEADING[1:]},
    })  # fmt: skip


def _row(names: Sequence[str], columns: Sequence[pa.Array], mask: pa.Array | None = None) -> pa.StructArray:
    return pa.StructArray.from_arrays(columns, names=list(names), mask=mask)


def _leading(row: RowChange) -> tuple[str, list[str], str | None, int]:
    return row.kind.value, list(row.changed), row.set_apart.value if row.set_apart else None, row.copies
