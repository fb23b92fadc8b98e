"""What differs between the rows of two sides: one join by key in DuckDB, or one sum of whole rows. All of its SQL.

Rule: exact. Net is arithmetic, not replay: a row that came counts 1, one that went −1, and what does not cancel is the
difference. A key names a row where no side has it twice; rows of other keys are set apart and compared as whole rows,
so nothing is dropped. Inside, columns are c0, c1 …: a table's own names cannot clash.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from backend.changes.changed_rows import APART, ChangedBatches, Changes, Pairing, RowBucket, changed_batches, fetch_rows
from backend.changes.explain import Findings, find
from backend.changes.model import Limits, Premises, Question, RowChanges
from backend.errors import QueryError
from backend.sql.filters import find_matching
from backend.sql.session import CancelToken, Connection, ended_within, pairs_joined, row_errors, session
from backend.sql.values import quoted_name, quoted_text

Take = Callable[[ChangedBatches], None]  # gets every changed row

SIGN = pa.field("sign", pa.int8())
_BUCKETS = {0: "update", 1: "insert", -1: "delete"}  # by `n`, the sum of both sides' signs


Sides = tuple[str, str]  # a query for each side that DuckDB reads itself: c0, c1 … and `n`: −1 before, 1 after
Read = Callable[[Connection], pa.RecordBatchReader | Sides]  # a stream has c0, c1 … and SIGN


def net_changes(
    read: Read,
    pairing: Pairing,
    question: Question,
    token: CancelToken,
    *,
    take: Take | None = None,
    limits: Limits = Limits(),
    premises: Premises = Premises(),
) -> tuple[RowChanges, Findings]:
    """The rows that differ, and what stands out among all of them beyond the `premises`; `token.rows_total` is how many
    there are to compare, where that is known.

    Raises `DiffError`, `Stopped`, `QueryError` for a condition, and what reading the rows raises.
    """
    with session(token, memory_bytes=limits.memory_bytes) as connection:
        if pairing.width > limits.many_columns:
            connection.execute("SET threads = 1")  # a batch of each thread is tens of megabytes
        comparison = _Comparison(connection, pairing, question, token, limits)
        comparison.read(read(connection))
        changes, buckets = comparison.found()
        with token.sheltered():  # all is compared: an end that comes now would lose it
            first = fetch_rows(changes, buckets, question.row_limit, is_filtered=question.where is not None)
        findings: list[Findings] = []
        with suppress(QueryError), row_errors():  # values that cannot be reckoned with: the answer stands without it
            ended_within(token, lambda: findings.append(find(changes, buckets, first, premises)))
        if take is not None:
            token.check()  # a file holds all rows
            take(
                ChangedBatches(
                    first.arrow_schema, pairing.key, changed_batches(changes, buckets, first.arrow_schema, token)
                )
            )
    return first, findings[0] if findings else Findings()


class _Comparison:
    """One comparison in a database of its own. Its tables:

    `changed`  rows that differ by key: b_c0 … before, a_c0 … after, `n` −1 and 1 where there is no after and no before
    `unnamed`  keys that a side has twice
    `summed`   whole rows that do not cancel: of a stream, of rows without a key, in the end of those set apart
    `keyed`    the keys of `summed` when it holds rows set apart
    """

    def __init__(
        self, connection: Connection, pairing: Pairing, question: Question, token: CancelToken, limits: Limits
    ) -> None:
        self._connection, self._question, self._token, self._limits = connection, question, token, limits
        self._pairing, self._key = pairing, pairing.paired_by
        self._names = [f"c{i}" for i in range(pairing.width)]
        self._keys = [f"c{i}" for i in self._key]
        self._has_apart = False

    def read(self, rows: pa.RecordBatchReader | Sides) -> None:
        """Finds what differs."""
        if isinstance(rows, tuple):
            if self._key:
                self._join(rows, self._token.rows_total)
                return
            with self._token.reading(self._token.rows_total):
                self._sum(" UNION ALL ".join(rows))
            return
        self._connection.register("given", self._token.counted(rows))
        values = [f"{_with_sorted_maps(f.type, f.name) or f.name} AS {f.name}" for f in rows.schema]
        self._sum(f"SELECT {', '.join(values)}, sign AS n FROM given")
        self._connection.unregister("given")
        if self._key:
            ((num_rows,),) = self._run("SELECT count(*) FROM summed")
            self._token.rows_total = self._token.rows_read + num_rows
            self._join(("SELECT * FROM summed WHERE n < 0", "SELECT * FROM summed WHERE n > 0"), num_rows)

    def found(self) -> tuple[Changes, dict[str, RowBucket]]:
        """What was found and is wanted: no update within the tolerance, nothing that fails the condition."""
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

    def _sum(self, rows: str) -> None:
        """Whole rows that do not cancel, each once."""
        names = ", ".join(self._names)
        self._run(
            f"CREATE OR REPLACE TEMP TABLE summed AS SELECT {names}, CAST(sum(n) AS BIGINT) AS n FROM ({rows}) "
            f"GROUP BY {names} HAVING sum(n) <> 0"
        )

    # the join by key

    def _join(self, sides: Sides, num_rows: int | None) -> None:
        """A key that both sides have names a row each exactly where as many pairs come of it as each side has such
        rows: so the pairs are counted, and no more are made than keys that name rows can make."""
        (gone, most_gone), (came, most_came) = (
            self._run(f"SELECT count(*), coalesce(max(abs(n)), 1) FROM ({side})")[0] for side in sides
        )
        with self._token.reading(num_rows):
            self._run(f"CREATE TEMP TABLE changed AS {self._differing(sides, limit=gone + came + 1)}")
        pairs = pairs_joined(self._connection)
        alone = dict(self._run("SELECT n, count(*) FROM changed WHERE n <> 0 GROUP BY n"))
        named = gone - alone.get(-1, 0)
        is_named = pairs is not None and named == came - alone.get(1, 0) == pairs - sum(alone.values())
        if is_named and most_gone == most_came == 1:  # a stream sums up equal rows
            values = ", ".join(f"coalesce(a_{name}, b_{name}) AS {name}" for name in self._names)
            rows = f"SELECT {values}, n FROM changed WHERE n <> 0"
            self._find_unnamed(rows)
            ((unnamed,),) = self._run(f"SELECT count(*) FROM ({rows}) WHERE {self._is_unnamed(self._keys)}")
            if unnamed:
                self._set_apart(rows)
            return
        if self._token.rows_total is not None:  # rows are read twice more
            self._token.rows_total += 2 * (num_rows or 0)
        with self._token.reading(num_rows):
            self._find_unnamed(" UNION ALL ".join(sides))
        if pairs is None or pairs > gone + came:  # cut off: the pairs of other keys may be missing
            named_rows = f"WHERE NOT ({self._is_unnamed(self._keys)})"
            before, after = (f"SELECT * FROM ({side}) {named_rows}" for side in sides)
            self._run(f"DELETE FROM changed; INSERT INTO changed {self._differing((before, after))}")
        with self._token.reading(num_rows):
            self._set_apart(" UNION ALL ".join(sides))

    def _differing(self, sides: Sides, *, limit: int | None = None) -> str:
        names = ", ".join(f"{side}.{name} AS {side}_{name}" for side in "ba" for name in self._names)
        on = " AND ".join(f"b.{name} = a.{name}" for name in self._keys)
        others = (name for name in self._names if name not in self._keys)
        differs = "".join(f" OR b_{name} IS DISTINCT FROM a_{name}" for name in others)
        n = "CASE WHEN b.n IS NULL THEN 1 WHEN a.n IS NULL THEN -1 ELSE 0 END"
        return (
            f"SELECT * FROM (SELECT {names}, CAST({n} AS TINYINT) AS n FROM ({sides[0]}) b FULL JOIN "
            f"({sides[1]}) a ON {on}{'' if limit is None else f' LIMIT {limit}'}) WHERE n <> 0{differs}"
        )

    # rows set apart

    def _find_unnamed(self, rows: str) -> None:
        keys = ", ".join(self._keys)
        self._run(
            f"CREATE OR REPLACE TEMP TABLE unnamed AS SELECT {keys} FROM ({rows}) WHERE NOT ({_is_null(self._keys)}) "
            f"GROUP BY {keys} HAVING sum(n) FILTER (n > 0) > 1 OR sum(n) FILTER (n < 0) < -1"
        )

    def _is_unnamed(self, keys: Sequence[str]) -> str:
        return f"{_is_null(keys)} OR ({', '.join(keys)}) IN (SELECT * FROM unnamed)"

    def _set_apart(self, rows: str) -> None:
        """Moves the rows of unnamed keys, all of which `rows` holds, and sums them up; those whose key is one row a
        side after all become changed ones again."""
        self._has_apart = True
        self._sum(f"SELECT * FROM ({rows}) WHERE {self._is_unnamed(self._keys)}")
        self._run(
            f"DELETE FROM changed WHERE {self._is_unnamed([f'coalesce(a_{name}, b_{name})' for name in self._keys])}"
        )
        keys = ", ".join(self._keys)
        self._run(
            f"CREATE TEMP TABLE keyed AS SELECT *, CASE WHEN {_is_null(self._keys)} THEN 'null' "
            "WHEN added = 1 AND removed = 1 THEN 'update' WHEN added = 1 AND removed = 0 THEN 'insert' "
            "WHEN added = 0 AND removed = 1 THEN 'delete' ELSE 'duplicate' END AS bucket FROM ("
            f"SELECT {keys}, count(*) AS entries, sum(greatest(n, 0)) AS added, sum(greatest(-n, 0)) AS removed "
            f"FROM summed GROUP BY {keys})"
        )
        before, after = (f"SELECT * FROM summed SEMI JOIN (FROM keyed WHERE bucket NOT IN ('null', 'duplicate')) "
                 f"USING ({keys}) WHERE n {sign} 0" for sign in "<>")  # fmt: skip
        self._run(f"INSERT INTO changed {self._differing((before, after))}")

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
        return Changes(self._connection, self._pairing, pairs, one_sided, self._question.tolerance, self._limits)

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
        query = find_matching(self._connection, where, self._pairing.columns, rows)
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


def _is_null(names: Sequence[str]) -> str:
    """Whether any of these is."""
    return " OR ".join(f"{name} IS NULL" for name in names)


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
        fields = {field.name: f"struct_extract({value}, {quoted_text(field.name)})" for field in kind}
        found = {field.name: _with_sorted_maps(field.type, fields[field.name], depth + 1) for field in kind}
        if any(found.values()):
            packed = ", ".join(f"{quoted_name(name)} := {found[name] or each}" for name, each in fields.items())
            return f"CASE WHEN {value} IS NULL THEN NULL ELSE struct_pack({packed}) END"
    return None
