"""Changed rows held against the rows of the first state: what they have in common beyond what the table has anyway,
also in another table whose rows they name, and which inserted rows were there already.

Rule: exact, or not said. What cannot be read in time, or is too much to read, is left out; the answer stands without
it. How many rows hold a key in the second state is arithmetic.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc

from backend.cells import cells
from backend.changes.explain import (
    LEAST_ROWS,
    MOST_ROWS,
    Findings,
    OneSided,
    explain,
    hold_against,
    joined_groups,
)
from backend.changes.model import Explanation, LookIn, Population, Repeats, RowKind
from backend.changes.plan import PreparedDiff
from backend.changes.read import why_not_by_duckdb
from backend.errors import DiffError, LakehouseError, UnsupportedFeatureError
from backend.lake.files.file_difference import DIFFERENCE_COLUMNS
from backend.lake.lake import Lake
from backend.lake.model import FILE_COLUMNS, Commit, Snapshot
from backend.lake.storage.folder import is_remote
from backend.lake.table.schema import NESTED, column_names, column_types, readable_names
from backend.sql.parquet_rows import numbered_rows, why_not_as_stored
from backend.sql.session import CancelToken, Connection, session
from backend.work import Stopped

_LISTED, _MOST_COLUMNS = 10, 100
_SAMPLE, _LEAST_ALIKE = 64, 20  # inserted rows that are looked at; rows alike in some columns that tell anything
_MOST_LOOKED_AT = 10_000_000  # values of the first state, for rows alike in some columns: it is read once more
_MOST_FILES, _MOST_PATHS = 20_000, 20  # of the state, and of them those that hold such rows


def explained(
    prepared: PreparedDiff, findings: Findings, token: CancelToken, *, reads_apart: bool = True
) -> Explanation:
    """What stands out; where the first state cannot be read in time, what was done. With `reads_apart` a large state's
    files that the second has not stand for it."""
    explanation = _held_against(prepared, findings, token, reads_apart=reads_apart)
    repeats = _repeats(prepared, findings.inserted, token)
    return replace(explanation, repeats=repeats, look_in=_looked_in(prepared, findings.joined, token))


def _held_against(prepared: PreparedDiff, findings: Findings, token: CancelToken, *, reads_apart: bool) -> Explanation:
    alone = Explanation(findings.done, hit=findings.hit)
    if not findings.groups:
        return alone
    first, files, is_whole = _files_to_read(prepared, len(findings.columns))
    if not files.num_rows or not (is_whole or reads_apart):
        return alone
    try:
        with session(token) as connection, ExitStack() as held:
            rows = _rows_of(prepared, first, files, findings.columns, held)
            num_rows, masks = hold_against(findings, connection, rows(connection))
    except (LakehouseError, Stopped):
        return alone
    return explain(findings, Population(first.version, num_rows, is_whole), masks)


def _files_to_read(prepared: PreparedDiff, columns: int) -> tuple[Snapshot, pa.Table, bool]:
    """The files of the first state where that is little to read, else those of them that the second has not."""
    first, apart = prepared.input.states()[0]
    if _is_little(prepared, first, columns):
        return first, first.columns(DIFFERENCE_COLUMNS), True
    return first, apart, False


def _is_little(prepared: PreparedDiff, snapshot: Snapshot, columns: int) -> bool:
    most = prepared.limits.values_beside // (10 if is_remote(snapshot.ref.uri) else 1)
    return snapshot.size_bytes <= most if snapshot.num_rows is None else snapshot.num_rows * columns <= most


def _rows_of(
    prepared: PreparedDiff, snapshot: Snapshot, files: pa.Table, columns: Sequence[str], held: ExitStack
) -> Callable[[Connection], str]:
    """A query for the rows of files of the first state or of the table to look in, by DuckDB where it can; `held` keeps
    its files open."""
    lake, given, is_other = prepared.lake, prepared.input, snapshot is prepared.look_in
    metadata, as_of = (snapshot.metadata, None) if is_other else (given.newer.metadata, given.as_of)

    def rows(connection: Connection) -> str:
        if (why_not_as_stored(metadata, columns) if is_other else why_not_by_duckdb(given, columns)) is None:
            with suppress(UnsupportedFeatureError):
                local = held.enter_context(lake.local_files(snapshot, files))
                if local is not None:
                    return numbered_rows(connection, local, metadata, columns)
        connection.register("beside", lake.read_files(snapshot, files, columns=columns, as_of=as_of))
        return f"SELECT * FROM beside AS r({', '.join(f'c{i}' for i in range(len(columns)))})"  # names may be alike

    return rows


# what they share in another table -------------------------------------------------------------------------------------


def _looked_in(prepared: PreparedDiff, changed: pa.Table | None, token: CancelToken) -> LookIn | None:
    """What changed rows share in the rows of another table that they name: by the column of the two tables that leads
    most of them to one row there. A row that names several is left out, as its count would be theirs."""
    other, first = prepared.look_in, prepared.input.first
    if other is None:
        return None
    table, kinds = LookIn(other.ref.name, other.version), column_types(other.metadata.schema_json)
    columns = [*prepared.joins, *(n for n in readable_names(other.metadata) if n not in prepared.joins)]
    columns = [name for name in columns if not kinds[name].startswith(NESTED)][:_MOST_COLUMNS]
    if changed is None:
        return replace(table, reason=f"fewer than {LEAST_ROWS} rows changed in one way, or more than {MOST_ROWS:,}")
    if not _is_little(prepared, other, len(columns)):
        return replace(table, reason="that is too much to read")
    try:
        with session(token, what="what rows share there") as connection, ExitStack() as held:
            connection.register("changed", changed)
            rows = _rows_of(prepared, other, other.columns(DIFFERENCE_COLUMNS), columns, held)(connection)
            names = ", ".join(f"c{i}" for i in range(len(columns)))
            connection.execute(f"CREATE TEMP TABLE looked_in AS SELECT * FROM ({rows}) AS r({names})")
            counts = []
            for i in range(len(prepared.joins)):
                one = f"SELECT c{i} FROM looked_in WHERE c{i} IS NOT NULL GROUP BY ALL HAVING count(*) = 1"
                query = f"SELECT CAST(coalesce(sum(n), 0) AS BIGINT) FROM changed SEMI JOIN ({one}) ON k{i} = c{i}"
                counts.append((connection.execute(query).fetchall()[0][0], -i, one))
            found, number, one = max(counts)
            by, of = -number, pc.sum(changed["n"]).as_py()
            table = replace(table, by=columns[by], of=int(of), found=found)
            if not found:
                return replace(table, reason=f"no row there has the {table.by} of a changed row for itself")
            connection.execute(f"CREATE TEMP TABLE other AS SELECT * FROM looked_in SEMI JOIN ({one}) USING (c{by})")
            places = [i for i in range(len(columns)) if i != by]
            values = ", ".join(f"o.c{place} AS c{i}" for i, place in enumerate(places))
            joined = f"SELECT {values}, n FROM changed JOIN other o ON k{by} = o.c{by} WHERE kind"
            queries = {RowKind(kind): f"{joined} = '{kind}'" for kind in pc.unique(changed["kind"]).to_pylist()}
            findings = joined_groups(connection, [f"{other.ref.name}.{columns[place]}" for place in places], queries)
            if not findings.groups:
                return table
            _, files, is_whole = _files_to_read(prepared, 1)
            rows = _rows_of(prepared, first, files, [table.by], held)(connection)
            every = [f"{other.ref.name}.{name}" for name in columns]
            values = ", ".join(f"o.c{every.index(name)} AS c{i}" for i, name in enumerate(findings.columns))
            query = f"SELECT {values} FROM ({rows}) AS r(c0) JOIN other o ON r.c0 = o.c{by}"
            num_rows, masks = hold_against(findings, connection, query)
    except (LakehouseError, Stopped) as exc:
        return replace(table, reason=str(exc))
    population = Population(first.version, num_rows, is_whole)
    return replace(table, common=explain(findings, population, masks).common, population=population)


# rows that were there already -----------------------------------------------------------------------------------------


def _repeats(prepared: PreparedDiff, inserted: OneSided | None, token: CancelToken) -> Repeats | None:
    """Which inserted rows were there already; what cannot be read in time is not known, and of rows without a key not
    asked. The key is read alone first: mostly that is all."""
    first = prepared.input.first
    if inserted is None or not first.num_files:
        return None
    declared = prepared.plan.key.columns if prepared.plan.key else ()
    came = replace(inserted, key=declared if inserted.key is None else inserted.key)
    unknown = Repeats(first.version, came.inserted, key=came.key or ()) if came.key else None
    if came.rows is None:
        return unknown

    def find(asked: OneSided) -> tuple[Repeats, tuple[str, ...], pa.Table] | None:
        _, files, is_whole = _files_to_read(prepared, len(asked.columns))
        if not is_whole:
            raise DiffError("the first state is too much to read")
        with ExitStack() as held:
            return _find_repeats(asked, first, _rows_of(prepared, first, files, asked.columns, held), token)

    try:
        found = find(came.of_key() if came.key else came)
    except (LakehouseError, Stopped):
        return unknown
    if found is None:
        return None
    repeats, names, keys = found
    repeats = replace(repeats, copies=None) if came.key else repeats
    if repeats.is_by_chance:
        return repeats
    # Where it is too much to read, or its versions are gone, the keys are known all the same.
    with suppress(LakehouseError, Stopped):
        wrote = _written_by(prepared.lake, (first, prepared.input.as_of), names, keys, token)
        repeats = replace(repeats, written_by=wrote)
    with suppress(LakehouseError, Stopped):
        whole = find(came) if came.key else None
        repeats = replace(repeats, copies=whole[0].copies, differs=whole[0].differs) if whole else repeats
    return repeats


def _find_repeats(
    came: OneSided, first: Snapshot, rows: Callable[[Connection], str], token: CancelToken
) -> tuple[Repeats, tuple[str, ...], pa.Table] | None:
    """What of the inserted rows was there in the first state, by which columns, and the keys that were (a column each);
    None where nothing was. `rows` gives a query for the first state's rows, c0, c1 … as `came` has them. Without a key
    whole rows are compared, but for columns that each load has for itself."""
    names = [f"c{i}" for i in range(len(came.columns))]
    with session(token) as connection:
        connection.register("came", came.rows)
        connection.execute("CREATE TEMP VIEW new AS SELECT * FROM came WHERE is_new AND n > 0")
        has_map = "MAP(" in str(connection.execute("DESCRIBE came").fetchall())  # equal only with entries in one order
        is_little = not has_map and (first.num_rows or 0) * len(names) <= _MOST_LOOKED_AT
        key = came.key or (_lasting(came.columns, rows(connection), connection) if is_little else ()) or came.columns
        keys = [names[came.columns.index(name)] for name in key]
        listed, filled = ", ".join(keys), " AND ".join(f"{name} IS NOT NULL" for name in keys) if came.key else "true"
        connection.execute(f"CREATE TEMP TABLE keys AS SELECT DISTINCT {listed} FROM new WHERE {filled}")
        connection.execute(
            f"CREATE TEMP TABLE there AS SELECT r.* FROM ({rows(connection)}) AS r({', '.join(names)}) "
            f"SEMI JOIN keys k ON {_same('r', 'k', keys)}"
        )
        others = [] if has_map else [name for name in names if name not in keys][:_MOST_COLUMNS]
        alike = [keys, names, *([*keys, name] for name in others)]
        has = [f"EXISTS (SELECT 1 FROM there t WHERE {_same('t', 'c', some)}) AS h{i}" for i, some in enumerate(alike)]
        asked = ["true", "h0", "h1", *(f"h0 AND NOT h{i}" for i in range(2, len(alike)))]
        sums = (f"CAST(coalesce(sum(n) FILTER ({each}), 0) AS BIGINT)" for each in asked)
        ((of, known, copies, *differ),) = connection.execute(
            f"SELECT {', '.join(sums)} FROM (SELECT n, {', '.join(has)} FROM new c)"
        ).fetchall()
        if not known or (copies < known and not came.key and _is_by_chance(connection, keys, known, of)):
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
    differs = {came.columns[names.index(name)]: n for name, n in zip(others, differ, strict=True) if n}
    repeats = Repeats(first.version, of, known, None if has_map else copies, repeated, came.key or (), rows_of)
    return replace(repeats, differs=differs), key, old


def _lasting(columns: Sequence[str], rows: str, connection: Connection) -> tuple[str, ...]:
    """The columns by which rows of another load are found again: those of which a sample of new rows has values that
    the first state has, unlike a load's time or number; none where few of the columns that tell rows apart are left."""
    numbers = range(len(columns))
    if len(columns) > _MOST_COLUMNS:
        return ()
    connection.execute(
        f"CREATE TEMP TABLE few AS SELECT * FROM (FROM new) USING SAMPLE reservoir({_SAMPLE} ROWS) REPEATABLE (7)"
    )
    seen = ", ".join(f"coalesce(bool_or(c{i} IN (SELECT f.c{i} FROM few f)), false)" for i in numbers)
    names = ", ".join(f"c{i}" for i in numbers)
    (known,) = connection.execute(f"SELECT {seen} FROM ({rows}) AS r({names})").fetchall()
    (varied,) = connection.execute(
        f"SELECT {', '.join(f'count(DISTINCT c{i}) > 1' for i in numbers)} FROM new"
    ).fetchall()
    is_enough = 2 * sum(map(all, zip(known, varied, strict=True))) > sum(varied)
    return tuple(name for name, is_known in zip(columns, known, strict=True) if is_known and is_enough)


def _is_by_chance(connection: Connection, keys: Sequence[str], known: int, of: int) -> bool:
    """Whether rows may be alike in these columns by chance: then such a row equals several, where a copy equals one."""
    share, listed = min(known, of - 0.5) / of, ", ".join(keys)
    ((pairs,),) = connection.execute(
        f"SELECT sum(c.n * t.n) FROM new c JOIN (SELECT {listed}, count(*) AS n FROM there GROUP BY ALL) t "
        f"ON {_same('t', 'c', keys)}"
    ).fetchall()
    by_chance = -math.log(1 - share) / share  # rows that equal such a row, where each is there so often on the average
    return known < max(_LEAST_ALIKE, of / 2) or pairs / known > 0.75 * by_chance


def _same(one: str, other: str, names: Sequence[str]) -> str:
    return " AND ".join(f"{one}.{name} IS NOT DISTINCT FROM {other}.{name}" for name in names)


def _written_by(
    lake: Lake, state: tuple[Snapshot, Snapshot | None], columns: Sequence[str], keys: pa.Table, token: CancelToken
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


def _added_at(lake: Lake, snapshot: Snapshot, paths: Sequence[str]) -> Iterator[int]:
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
