"""What differs between the rows of two sides: one join by key in DuckDB, or one sum of whole rows. All of its SQL.

Rule: exact. Net is arithmetic, not replay: a row that came counts 1, one that went −1, and what does not cancel is the
difference. A key names a row where no side has it twice; rows of other keys are set apart and compared as whole rows,
so nothing is dropped. Inside, columns are c0, c1 …: a table's own names cannot clash.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any

import pyarrow as pa

from backend.changes.changed_rows import APART, Changes, RowBucket, changed_batches, fetch_rows
from backend.changes.explain import Findings, find
from backend.changes.export import ChangedBatches
from backend.changes.model import Limits, Partial, Question, RowChanges
from backend.errors import QueryError
from backend.sql.filters import find_matching
from backend.sql.quoting import quoted_name, quoted_text
from backend.sql.session import CancelToken, Connection, ended_within, pairs_joined, row_errors, session

Take = Callable[[ChangedBatches], None]  # gets every changed row

SIGN = pa.field("sign", pa.int8())
_BUCKETS = {0: "update", 1: "insert", -1: "delete"}  # by `n`, the sum of both sides' signs


@dataclass(frozen=True, slots=True)
class Pairing:
    """The columns of the rows to compare, and those among them that name a row: () for none."""

    columns: tuple[str, ...]
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Compared:
    """What a method found: rows that differ, and what stands out among all of them."""

    changes: RowChanges
    findings: Findings = Findings()


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of both sides, a query for each (c0, c1 … and `n`: −1 before, 1 after), and how many their files hold, 0
    where that is not known. `bounds` are the number of a key column and between which values it lies: no other part has
    such values."""

    before: str
    after: str
    num_rows: int
    bounds: tuple[int, Any, Any] | None = None

    @property
    def both(self) -> str:
        return f"{self.before} UNION ALL {self.after}"


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows of files that DuckDB reads itself: all of them, and for a key (numbers of its columns) the same in parts of
    about so many rows that share no key."""

    whole: Part
    parts: Callable[[Sequence[int], int], Sequence[Part]]


Read = Callable[[Connection], pa.RecordBatchReader | FileRows]  # a stream has c0, c1 … and SIGN


def column_name(number: int) -> str:
    return f"c{number}"


def net_changes(
    read: Read,
    pairing: Pairing,
    question: Question,
    token: CancelToken,
    *,
    take: Take | None = None,
    limits: Limits = Limits(),
) -> Compared:
    """Compares the rows; `token.rows_total` is how many they are, where that is known. Files are joined part by part
    where their footers tell keys apart: what was joined when the token ended it is a partial answer, unless all rows
    are to be taken (`take`).

    Raises `DiffError`, `Stopped`, `QueryError` for a condition, and what reading the rows raises.
    """
    with session(token, memory_bytes=limits.memory_bytes) as connection:
        if len(pairing.columns) > limits.many_columns:
            connection.execute("SET threads = 1")  # a batch of each thread is tens of megabytes
        comparison = _Comparison(connection, pairing, question, token, limits)
        left_out = comparison.read(read(connection))
        with nullcontext() if left_out is None else token.sheltered():  # it was ended once already
            changes, buckets = comparison.found()
        with token.sheltered():  # all is compared: an end that comes now would lose it
            is_filtered = question.where is not None
            first = fetch_rows(changes, buckets, question.row_limit, is_filtered=is_filtered, partial=left_out)
        findings: list[Findings] = []
        with suppress(QueryError), row_errors():  # values that cannot be reckoned with: the answer stands without it
            ended_within(token, lambda: findings.append(find(changes, buckets, first)))
        if take is not None:
            token.check()  # a file holds all rows
            take(changed_batches(changes, buckets, first.arrow_schema, token))
    return Compared(first, findings[0] if findings else Findings())


class _NotWithin(Exception):
    """A part holds other keys than the footers of its files say."""


class _Comparison:
    """One comparison in a database of its own. Its tables:

    `changed`  rows that differ by key: b_c0 … before, a_c0 … after, `n` −1 and 1 where there is no after and no before
    `unnamed`  keys that a side of the part has twice
    `apart`    rows of null and repeated keys that do not cancel in their part: c0 … and `n`, how often each came
    `summed`   whole rows that do not cancel: of a stream, of rows without a key, in the end of `apart`
    `keyed`    the keys of `summed` when it holds rows set apart
    """

    def __init__(
        self, connection: Connection, pairing: Pairing, question: Question, token: CancelToken, limits: Limits
    ) -> None:
        self._connection, self._question, self._token, self._limits = connection, question, token, limits
        columns = self._columns = pairing.columns
        self._key = [columns.index(name) for name in pairing.key]
        self._names = [column_name(i) for i in range(len(columns))]
        self._keys = [column_name(i) for i in self._key]
        self._has_apart = False

    def read(self, rows: pa.RecordBatchReader | FileRows) -> Partial | None:
        """Finds what differs; what is left out where the token ended it."""
        if isinstance(rows, FileRows):
            if self._key:
                return self._join_files(rows)
            with self._token.reading(self._token.rows_total):
                self._sum(rows.whole.both)
            return None
        self._sum_stream(rows)
        if self._key:
            sides = [f"SELECT * FROM summed WHERE n {sign} 0" for sign in "<>"]
            ((num_rows,),) = self._run("SELECT count(*) FROM summed")
            self._token.rows_total = self._token.rows_read + num_rows
            self._join([Part(sides[0], sides[1], num_rows)])
        return None

    def found(self) -> tuple[Changes, dict[str, RowBucket]]:
        """What was found and is wanted: no update within the tolerance, nothing that fails the condition."""
        if self._has_apart:
            self._name_apart()
        changes = self._changes()
        if self._key and self._question.tolerance:
            differs = " OR ".join(changes.differs().values())
            self._run(f"DELETE FROM changed WHERE n = 0 AND NOT ({differs})")
        if self._question.where is not None:
            self._keep_where(self._question.where)
        return changes, self._buckets()

    def _run(self, sql: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._connection.execute(sql).fetchall()
        return found

    # whole rows

    def _sum_stream(self, rows: pa.RecordBatchReader) -> None:
        self._connection.register("given", self._token.counted(rows))
        values = [f"{_with_sorted_maps(f.type, f.name) or f.name} AS {f.name}" for f in rows.schema]
        self._sum(f"SELECT {', '.join(values)}, sign AS n FROM given")
        self._connection.unregister("given")

    def _sum(self, rows: str) -> None:
        self._run(f"CREATE OR REPLACE TEMP TABLE summed AS {self._summed(rows)}")

    def _summed(self, rows: str, more: str = "") -> str:
        """Whole rows that do not cancel, each once."""
        names = ", ".join(self._names)
        return f"SELECT {names}, CAST(sum(n) AS BIGINT) AS n{more} FROM ({rows}) GROUP BY {names} HAVING sum(n) <> 0"

    # the join by key

    def _join_files(self, rows: FileRows) -> Partial | None:
        total, most_rows = self._token.rows_total, max(1, self._limits.values_at_once // len(self._columns))
        if total is not None and total <= most_rows:
            return self._join([rows.whole])
        parts = rows.parts(self._key, most_rows)
        if len(parts) > 1:
            self._token.rows_total = sum(part.num_rows for part in parts)
        try:
            return self._join(parts)
        except _NotWithin:
            self._run("DROP TABLE changed; DROP TABLE IF EXISTS apart")
            self._has_apart, self._token.rows_read = False, 0
            return self._join([rows.whole])

    def _join(self, parts: Sequence[Part]) -> Partial | None:
        self._join_one(parts[0], 0)  # until then nothing can be told
        for number, part in enumerate(parts[1:], 1):
            if ended_within(self._token, partial(self._join_one, part, number)):
                with self._token.sheltered():
                    return self._left_out(parts, number)
        return None

    def _left_out(self, parts: Sequence[Part], number: int) -> Partial:
        """Takes out what cannot be told: the part that was ended, and null keys, which may cancel in a later part."""
        self._run(f"DELETE FROM changed WHERE part = {number}")
        null_keys = 0
        if self._has_apart:
            self._run(f"DELETE FROM apart WHERE part = {number}")
            null = _is_null(self._keys)
            ((null_keys,),) = self._run(f"SELECT CAST(coalesce(sum(abs(n)), 0) AS BIGINT) FROM apart WHERE {null}")
            self._run(f"DELETE FROM apart WHERE {null}")
        read, total = (sum(part.num_rows for part in some) for some in (parts[:number], parts))
        return Partial(self._token.ended(), read, total, null_keys)

    def _join_one(self, part: Part, number: int) -> None:
        """Joins a part. A key that both sides have names a row each exactly where as many pairs come of it as each side
        has such rows: so the pairs are counted, and no more are made than keys that name rows can make."""
        told = [self._run(f"SELECT count(*), coalesce(max(abs(n)), 1) FROM ({side})")[0] for side in _sides(part)]
        (gone, _), (came, _) = told
        has_copies = any(copies > 1 for _, copies in told)  # a stream sums up equal rows
        into = "CREATE TEMP TABLE changed AS" if number == 0 else "INSERT INTO changed"
        with self._token.reading(part.num_rows or self._token.rows_total):
            self._run(f"{into} {self._differing(part, number, limit=gone + came + 1)}")
        pairs = pairs_joined(self._connection)
        self._require_within(part, number)
        alone = dict(self._run(f"SELECT n, count(*) FROM changed WHERE part = {number} AND n <> 0 GROUP BY n"))
        named = gone - alone.get(-1, 0)
        is_named = pairs is not None and named == came - alone.get(1, 0) == pairs - sum(alone.values())
        if is_named and not has_copies:
            values = ", ".join(f"coalesce(a_{name}, b_{name}) AS {name}" for name in self._names)
            rows = f"SELECT {values}, n FROM changed WHERE part = {number} AND n <> 0"
            self._find_unnamed(rows)
            ((unnamed,),) = self._run(f"SELECT count(*) FROM ({rows}) WHERE {self._is_unnamed(self._keys)}")
            if unnamed:
                self._set_apart(rows, number)
            return
        if self._token.rows_total is not None:  # rows are read twice more
            self._token.rows_total += 2 * part.num_rows
        with self._token.reading(part.num_rows):
            self._find_unnamed(part.both)
        if pairs is None or pairs > gone + came:  # cut off: the pairs of other keys may be missing
            self._run(f"DELETE FROM changed WHERE part = {number}")
            sides = [f"SELECT * FROM ({side}) WHERE NOT ({self._is_unnamed(self._keys)})" for side in _sides(part)]
            self._run(f"INSERT INTO changed {self._differing(Part(sides[0], sides[1], 0), number)}")
        with self._token.reading(part.num_rows):
            self._set_apart(part.both, number)

    def _differing(self, part: Part, number: int, *, limit: int | None = None) -> str:
        names = ", ".join(f"{side}.{name} AS {side}_{name}" for side in "ba" for name in self._names)
        on = " AND ".join(f"b.{name} = a.{name}" for name in self._keys)
        others = (name for name in self._names if name not in self._keys)
        differs = "".join(f" OR b_{name} IS DISTINCT FROM a_{name}" for name in others)
        if part.bounds is not None:  # kept, to be seen
            differs += f" OR NOT (a_c{part.bounds[0]} {_between(part.bounds)})"
        n = "CASE WHEN b.n IS NULL THEN 1 WHEN a.n IS NULL THEN -1 ELSE 0 END"
        return (
            f"SELECT * FROM (SELECT {names}, CAST({n} AS TINYINT) AS n, CAST({number} AS USMALLINT) AS part "
            f"FROM ({part.before}) b FULL JOIN ({part.after}) a ON {on}{'' if limit is None else f' LIMIT {limit}'}) "
            f"WHERE n <> 0{differs}"
        )

    def _require_within(self, part: Part, number: int) -> None:
        if part.bounds is not None:
            name, between = column_name(part.bounds[0]), _between(part.bounds)
            outside = f"part = {number} AND NOT (coalesce(a_{name}, b_{name}) {between})"
            if self._run(f"SELECT 1 FROM changed WHERE {outside} LIMIT 1"):
                raise _NotWithin

    # rows set apart

    def _find_unnamed(self, rows: str) -> None:
        keys = ", ".join(self._keys)
        self._run(
            f"CREATE OR REPLACE TEMP TABLE unnamed AS SELECT {keys} FROM ({rows}) WHERE NOT ({_is_null(self._keys)}) "
            f"GROUP BY {keys} HAVING sum(n) FILTER (n > 0) > 1 OR sum(n) FILTER (n < 0) < -1"
        )

    def _is_unnamed(self, keys: Sequence[str]) -> str:
        return f"{_is_null(keys)} OR ({', '.join(keys)}) IN (SELECT * FROM unnamed)"

    def _set_apart(self, rows: str, number: int) -> None:
        """Moves the rows of unnamed keys; `rows` holds all that the part has of them."""
        if not self._has_apart:
            types = ", ".join(f"a_{name} AS {name}" for name in self._names)
            self._run(f"CREATE TEMP TABLE apart AS SELECT {types}, CAST(n AS BIGINT) AS n, part FROM changed LIMIT 0")
            self._has_apart = True
        mine = f"SELECT * FROM ({rows}) WHERE {self._is_unnamed(self._keys)}"
        self._run(f"INSERT INTO apart {self._summed(mine, f', {number}')}")
        keys = [f"coalesce(a_{name}, b_{name})" for name in self._keys]
        self._run(f"DELETE FROM changed WHERE part = {number} AND ({self._is_unnamed(keys)})")

    def _name_apart(self) -> None:
        """Sums up the rows set apart; those whose key is one row a side after all become changed ones."""
        self._sum("SELECT * FROM apart")
        keys = ", ".join(self._keys)
        self._run(
            f"CREATE TEMP TABLE keyed AS SELECT *, CASE WHEN {_is_null(self._keys)} THEN 'null' "
            "WHEN added = 1 AND removed = 1 THEN 'update' WHEN added = 1 AND removed = 0 THEN 'insert' "
            "WHEN added = 0 AND removed = 1 THEN 'delete' ELSE 'duplicate' END AS bucket FROM ("
            f"SELECT {keys}, count(*) AS entries, sum(greatest(n, 0)) AS added, sum(greatest(-n, 0)) AS removed "
            f"FROM summed GROUP BY {keys})"
        )
        sides = [f"SELECT * FROM summed SEMI JOIN (FROM keyed WHERE bucket NOT IN ('null', 'duplicate')) "
                 f"USING ({keys}) WHERE n {sign} 0" for sign in "<>"]  # fmt: skip
        self._run(f"INSERT INTO changed {self._differing(Part(sides[0], sides[1], 0), 0)}")

    # what is wanted

    def _changes(self) -> Changes:
        one_sided = {"insert": "SELECT * FROM summed WHERE n > 0", "delete": "SELECT * FROM summed WHERE n < 0"}
        pairs = ""
        if self._key:
            cells = ", ".join(f"{side}_{name}" for side in "ba" for name in self._names)
            pairs = f"SELECT {cells} FROM changed WHERE n = 0"
            same = " AND ".join(f"summed.{name} IS NOT DISTINCT FROM k.{name}" for name in self._keys)
            for bucket, side, n in (("insert", "a", 1), ("delete", "b", -1)):
                values = ", ".join(f"{side}_{name} AS {name}" for name in self._names)
                one_sided[bucket] = f"SELECT {values}, CAST(n AS BIGINT) AS n FROM changed WHERE n = {n}"
            for bucket in APART:
                mine = f"SELECT * FROM keyed WHERE bucket = '{bucket}'"
                one_sided[bucket] = f"SELECT summed.* FROM summed SEMI JOIN ({mine}) k ON {same}"
        tolerance = self._question.tolerance
        return Changes(self._connection, self._columns, self._key, pairs, one_sided, tolerance, self._limits)

    def _keep_where(self, where: str) -> None:
        """Leaves out keys, or rows without a key, of which no row satisfies the condition before or after."""
        states = []
        if self._key:
            for side, mine in (("b", "n <= 0"), ("a", "n >= 0")):
                values = ", ".join(f"{side}_{name} AS {name}" for name in self._names)
                states.append(f"SELECT {values}, rowid AS row_id FROM changed WHERE {mine}")
        if self._has_apart or not self._key:
            states.append(f"SELECT {', '.join(self._names)}, -1 - rowid AS row_id FROM summed")
        rows = f"({' UNION ALL '.join(states)})"
        query = find_matching(self._connection, where, self._columns, rows)
        with row_errors():
            self._run(f"CREATE TEMP TABLE matched AS {query}")
        if not self._key:
            self._run("DELETE FROM summed WHERE -1 - rowid NOT IN (FROM matched)")
            return
        self._run("DELETE FROM changed WHERE rowid NOT IN (FROM matched)")
        if self._has_apart:
            same = " AND ".join(f"s.{name} IS NOT DISTINCT FROM keyed.{name}" for name in self._keys)
            mine = f"SELECT 1 FROM summed s JOIN matched ON -1 - s.rowid = matched.row_id WHERE {same}"
            self._run(f"DELETE FROM keyed WHERE NOT EXISTS ({mine})")

    def _buckets(self) -> dict[str, RowBucket]:
        if not self._key:
            found = self._run(
                "SELECT CASE WHEN n > 0 THEN 'insert' ELSE 'delete' END, count(*), count(*), "
                "CAST(sum(greatest(n, 0)) AS BIGINT), CAST(sum(greatest(-n, 0)) AS BIGINT) FROM summed GROUP BY 1"
            )
            return {name: RowBucket(*counts) for name, *counts in found}
        buckets = {}
        for n, count in self._run("SELECT n, count(*) FROM changed GROUP BY n"):
            added, removed = (0 if n < 0 else count), (0 if n > 0 else count)
            buckets[_BUCKETS[n]] = RowBucket(count, added + removed, added, removed)
        if self._has_apart:
            found = self._run(
                "SELECT bucket, count(*), CAST(sum(entries) AS BIGINT), CAST(sum(added) AS BIGINT), "
                "CAST(sum(removed) AS BIGINT) FROM keyed GROUP BY bucket"
            )
            buckets |= {name: RowBucket(*counts) for name, *counts in found if name in APART}
        return buckets


def _sides(part: Part) -> tuple[str, str]:
    return part.before, part.after


def _is_null(names: Sequence[str]) -> str:
    """Whether any of these is."""
    return " OR ".join(f"{name} IS NULL" for name in names)


def _between(bounds: tuple[int, Any, Any]) -> str:
    return f"BETWEEN {' AND '.join(_literal(value) for value in bounds[1:])}"


def _literal(value: int | date | str) -> str:
    if isinstance(value, int):
        return str(value)
    return quoted_text(value) if isinstance(value, str) else f"DATE {quoted_text(value.isoformat())}"


def _with_sorted_maps(kind: pa.DataType, value: str, depth: int = 0) -> str | None:
    """The value with the entries of every map in it in the order of their keys, as SQL; None where the type holds no
    map. To DuckDB two maps are equal only with their entries in one order."""
    entry = f"e{depth}"
    if pa.types.is_map(kind):
        entries = f"map_entries({value})"
        if inner := _with_sorted_maps(kind.item_type, f"{entry}.value", depth + 1):
            packed = f"struct_pack(key := {entry}.key, value := {inner})"
            entries = f"list_transform({entries}, lambda {entry}: {packed})"
        return f"map_from_entries(list_sort({entries}))"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _with_sorted_maps(kind.value_type, entry, depth + 1)
        return inner and f"list_transform({value}, lambda {entry}: {inner})"
    if pa.types.is_struct(kind):
        return _struct_with_sorted_maps(kind, value, depth)
    return None


def _struct_with_sorted_maps(kind: pa.StructType, value: str, depth: int) -> str | None:
    fields = {field.name: f"struct_extract({value}, {quoted_text(field.name)})" for field in kind}
    found = {field.name: _with_sorted_maps(field.type, fields[field.name], depth + 1) for field in kind}
    if not any(found.values()):
        return None
    packed = ", ".join(f"{quoted_name(name)} := {found[name] or each}" for name, each in fields.items())
    return f"CASE WHEN {value} IS NULL THEN NULL ELSE struct_pack({packed}) END"
