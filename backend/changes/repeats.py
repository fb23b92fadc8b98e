"""Inserted rows that repeat what was there: their key is in the first state already, and which commits wrote it.

Rule: exact, or not said. Only the rows that came and went and those of the first state are read; how many rows hold a
key in the second state is arithmetic.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import count

import pyarrow as pa

from backend.cells import cells
from backend.changes.explain import OneSided
from backend.changes.model import Repeats
from backend.changes.prepare import DiffLake
from backend.lake.model import FILE_COLUMNS, Commit, Snapshot
from backend.lake.table.metadata_diff import column_names
from backend.sql.session import CancelToken, Connection, session

_LISTED = 10
_MOST_FILES, _MOST_PATHS = 20_000, 20  # of the state, and of them those that hold such rows


def find_repeats(
    came: OneSided, first: Snapshot, rows: Callable[[Connection], str], token: CancelToken
) -> tuple[Repeats, pa.Table] | None:
    """What of the inserted rows was there in the first state, and the keys that were (a column each); None where
    nothing was. `rows` gives a query for the first state's rows, c0, c1 … as `came` has them. Without a key whole rows
    are compared."""
    names, key = [f"c{i}" for i in range(len(came.columns))], came.key or came.columns
    keys = [names[came.columns.index(name)] for name in key]
    listed, filled = ", ".join(keys), " AND ".join(f"{name} IS NOT NULL" for name in keys) if came.key else "true"
    with session(token) as connection:
        connection.register("came", came.rows)
        has_map = "MAP(" in str(connection.execute("DESCRIBE came").fetchall())  # equal only with entries in one order
        connection.execute(
            f"CREATE TEMP TABLE keys AS SELECT DISTINCT {listed} FROM came WHERE is_new AND n > 0 AND {filled}"
        )
        connection.execute(
            f"CREATE TEMP TABLE there AS SELECT r.* FROM ({rows(connection)}) AS r({', '.join(names)}) "
            f"SEMI JOIN keys k ON {_same('r', 'k', keys)}"
        )
        has = [f"EXISTS (SELECT 1 FROM there t WHERE {_same('t', 'c', some)})" for some in (keys, names)]
        sums = (f"CAST(coalesce(sum(n) FILTER ({each}), 0) AS BIGINT)" for each in ("true", "has_key", "is_copy"))
        ((of, known, copies),) = connection.execute(
            f"SELECT {', '.join(sums)} FROM (SELECT n, {has[0]} AS has_key, {has[1]} AS is_copy FROM came c "
            "WHERE is_new AND n > 0)"
        ).fetchall()
        if not known:
            return None
        holding = (
            f"SELECT {listed}, CAST(sum(n) AS BIGINT) AS holding FROM (SELECT {listed}, n FROM came UNION ALL SELECT "
            f"{listed}, 1 FROM there) x SEMI JOIN keys k ON {_same('x', 'k', keys)} GROUP BY ALL HAVING sum(n) > 1"
        )
        ((repeated,),) = connection.execute(f"SELECT count(*) FROM ({holding})").fetchall()
        some = connection.sql(f"{holding} ORDER BY ALL LIMIT {_LISTED}").to_arrow_table()
        old = connection.sql(f"SELECT DISTINCT {listed} FROM there").to_arrow_table()
    values = zip(*(cells(column) for column in some.columns), strict=True)
    rows_of = tuple((dict(zip(key, each[:-1], strict=True)), each[-1]) for each in values)
    return Repeats(first.version, of, known, None if has_map else copies, repeated, came.key or (), rows_of), old


def _same(one: str, other: str, names: Sequence[str]) -> str:
    return " AND ".join(f"{one}.{name} IS NOT DISTINCT FROM {other}.{name}" for name in names)


def written_by(
    lake: DiffLake, state: tuple[Snapshot, Snapshot | None], columns: Sequence[str], keys: pa.Table, token: CancelToken
) -> tuple[Commit, ...]:
    """The commits whose files hold the rows with these keys in a state (and the version whose schema they are read
    with), oldest first; none where the files are too many. Raises what reading raises."""
    snapshot, as_of = state
    if snapshot.num_files > _MOST_FILES:
        return ()
    files, number = snapshot.columns(FILE_COLUMNS), "_" * (1 + max(map(len, column_names(snapshot.metadata))))
    names = keys.column_names
    with session(token) as connection:
        connection.register("keys", keys)
        read = lake.read_files(snapshot, files, columns=[*columns, number], as_of=as_of, numbered=number)
        connection.register("beside", read)
        found = connection.execute(
            f"SELECT DISTINCT r.file FROM beside AS r({', '.join(names)}, file) SEMI JOIN keys k "
            f"ON {_same('r', 'k', names)} LIMIT {_MOST_PATHS + 1}"
        ).fetchall()
    if len(found) > _MOST_PATHS:
        return ()
    paths = files["path"].take(pa.array([place for (place,) in found])).to_pylist()
    versions = sorted(set(_added_at(lake, snapshot, paths)))
    ref = snapshot.ref
    return tuple(
        commit for v in versions for commit in lake.history(ref, limit=1, starting_version=v, ending_version=v)
    )


def _added_at(lake: DiffLake, snapshot: Snapshot, paths: Sequence[str]) -> Iterator[int]:
    """The version that added each file: back in steps that double until it is not there, then halved."""

    def has(version: int, path: str) -> bool:
        return path in set(lake.snapshot(snapshot.ref, version).columns(["path"])["path"].to_pylist())

    for path in paths:
        with_it, without = snapshot.version, -1
        for step in count():
            version = snapshot.version - 2**step
            if version < 0 or not has(version, path):
                without = max(version, -1)
                break
            with_it = version
        while with_it - without > 1:
            middle = (with_it + without) // 2
            with_it, without = (middle, without) if has(middle, path) else (with_it, middle)
        yield with_it
