"""What a statement will read: each table that it names at one version, and the files that WHERE cannot rule out.

Rule: no data file is opened. A name means what it means elsewhere (`Lake.find`), a version what Changes takes it for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from backend.errors import QueryError, QueryTooLargeError, TableNotFoundError
from backend.format import bytes_text, things
from backend.lake.files.file_difference import DIFFERENCE_COLUMNS
from backend.lake.history.history import resolve_version
from backend.lake.lake import is_uri
from backend.lake.model import Commit, Snapshot, TableRef
from backend.lake.rows.rows import candidates
from backend.lake.storage.folder import is_remote
from backend.lake.table.restricted import hidden_columns, refused, require_shown
from backend.lake.table.schema import SchemaColumn, columns, readable_names
from backend.query.statement import Source, Statement, read_statement
from backend.query.views import Columns, World, lake_view, table_view
from backend.sql.filters import pruning_filter
from backend.times import Clock, parse_time

_MOST_COMMITS = 100  # looked through for the only one that changed rows

_VALUES = frozenset(("lower_bounds", "upper_bounds", "partition", "file_path"))  # which tell values of rows
LEAST_CPU_S = 8.0


@dataclass(frozen=True, slots=True)
class TableRead:
    """One table that a statement reads. `table`: its name in the lake, with its view ("silver/orders$files",
    "orders$changes(1, 3)"); no `version` where it has none. `num_files` and `size_bytes`: of the data files that may be
    opened.

    `rows` reads them; where there are rows `before`, the table is what changed from those to these. `files`
    (`DIFFERENCE_COLUMNS`) and `snapshot` are there where these are rows of a version, on this machine; `columns` are
    those that the statement needs. `between`: the two versions of `$changes`; `commit`: the only one there. `ref`: the
    table, of those that have versions.
    """

    name: str
    table: str
    rows: Callable[[], pa.RecordBatchReader] = field(compare=False, repr=False)
    version: int | None = None
    committed_at: datetime | None = None
    num_files: int = 0
    size_bytes: int = 0
    columns: tuple[str, ...] = ()
    before: Callable[[], pa.RecordBatchReader] | None = field(default=None, compare=False, repr=False)
    snapshot: Snapshot | None = field(default=None, compare=False, repr=False)
    files: pa.Table | None = field(default=None, compare=False, repr=False)
    between: tuple[int, int] | None = None
    commit: Commit | None = field(default=None, compare=False, repr=False)
    ref: TableRef | None = field(default=None, compare=False, repr=False)

    @property
    def collated(self) -> tuple[SchemaColumn, ...]:
        """The outermost columns that are read and whose texts Spark does not compare by their bytes."""
        every = columns(self.snapshot.metadata) if self.snapshot else ()
        return tuple(each for each in every if each.collation and each.depth == 0 and each.name in self.columns)

    @property
    def pin(self) -> str:
        """The version that is read, "3-118" for what changed between two; "now" where there are none."""
        if self.between is not None:
            return "{}-{}".format(*self.between)
        return "now" if self.version is None else str(self.version)


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A statement that may run, with what it reads, a read for each place where it names a table. `most_rows`: the
    answer is one of so many first rows, held in memory by whoever asked."""

    statement: Statement
    reads: tuple[TableRead, ...]
    most_rows: int | None = None

    @property
    def num_files(self) -> int:
        return sum(read.num_files for read in self.reads)

    @property
    def size_bytes(self) -> int:
        return sum(read.size_bytes for read in self.reads)

    @property
    def cpu_s(self) -> float:
        """Seconds of processor time that it may take: what reads little has no reason to compute long, unless it was
        written never to end."""
        return LEAST_CPU_S + self.num_files + self.size_bytes / 1e6

    @property
    def versions(self) -> tuple[tuple[str, int], ...]:
        """The tables with their versions, each once."""
        return tuple(dict.fromkeys((r.table, r.version) for r in self.reads if r.version is not None))

    @property
    def pins(self) -> tuple[str, ...]:
        """With which `plan_query` reads the same versions again."""
        return tuple(read.pin for read in self.reads)

    def require_small(self, most_bytes: int) -> None:
        """Raise `QueryTooLargeError` for one that reads more."""
        if self.size_bytes > most_bytes:
            raise QueryTooLargeError(
                f"the query reads {bytes_text(self.size_bytes)} in {things(self.num_files, 'file')}, more than "
                f"{bytes_text(most_bytes)}",
                hint="filter by a column with statistics, or confirm it: weir query … --yes",
            )


def plan_query(
    world: World,
    text: str,
    clock: Clock,
    *,
    at: str | None = None,
    pins: Sequence[str] = (),
    most_rows: int | None = None,
) -> QueryPlan:
    """`at`: the version of each table that the statement says none for; `pins`: those of an earlier plan of the same
    statement, whatever it says. Raises `QueryError`, and what names and versions raise that there are not."""
    statement = read_statement(text, most_rows=most_rows)
    sources = statement.sources
    if pins and len(pins) != len(sources):
        raise QueryError("the versions are not those of this statement", hint="run it again for the latest ones")
    if pins:
        sources = tuple(map(_pinned, sources, pins))
    return QueryPlan(statement, tuple(_read(world, source, at, clock) for source in sources), most_rows)


def _pinned(source: Source, pin: str) -> Source:
    if _is_lake_view(source):
        return source
    if source.view == "changes":
        first, _, last = pin.partition("-")
        return replace(source, arguments=(first, last))
    return replace(source, version=pin, is_time=False)


def _is_lake_view(source: Source) -> bool:
    return len(source.parts) == 2 and source.parts[0].lower() == "weir"


def _read(world: World, source: Source, at: str | None, clock: Clock) -> TableRead:
    if _is_lake_view(source):
        if source.version is not None:
            raise QueryError(f"{source.written} has no versions", hint="leave VERSION AS OF away")
        name = source.parts[1].lower()
        table = lake_view(world, name, source.columns)
        return TableRead(source.name, f"weir.{name}", table.to_reader)
    name = "/".join(source.parts)
    if is_uri(name):
        raise TableNotFoundError(f"no table {name!r}", hint="a query names tables as the lake does: silver.orders")
    ref = world.lake.find(name)
    return replace(_read_table(world, source, ref, at, clock), ref=ref)


def _read_table(world: World, source: Source, ref: TableRef, at: str | None, clock: Clock) -> TableRead:
    if source.view == "changes":
        return _changes(world, source, ref, clock)
    written = source.version or at or "latest"
    if source.is_time and source.version:
        written = parse_time(source.version, clock).isoformat()
    snapshot = world.lake.snapshot(ref, resolve_version(world.lake, ref, written, clock))
    if source.view:
        is_asked = source.columns is None or not _VALUES.isdisjoint(source.columns)
        if snapshot.hidden and source.view in ("files", "partitions") and is_asked:
            raise refused(snapshot.hidden, hidden_columns(snapshot.hidden, snapshot.metadata))
        table = table_view(world, source.view, snapshot, source.columns)
        label = f"{ref.name}${source.view}"
        return TableRead(source.name, label, table.to_reader, snapshot.version, snapshot.committed_at)
    return _rows(world, source, snapshot)


def _rows(world: World, source: Source, snapshot: Snapshot) -> TableRead:
    read_columns = _columns(snapshot, source.columns)
    every = columns(snapshot.metadata)
    collated = {column.path for column in every if column.collation}  # bytes rule out too much
    where = pruning_filter(source.conditions, [each for each in every if each.path not in collated], source.alias)
    numbers = candidates(snapshot, where)
    files = snapshot.rows_at(numbers, DIFFERENCE_COLUMNS)
    some = None if is_remote(snapshot.ref.uri) else files
    read = partial(world.lake.read_files, snapshot, some, columns=read_columns, where=where)
    size = pc.sum(files["size_bytes"]).as_py() or 0
    ref, version, committed_at = snapshot.ref, snapshot.version, snapshot.committed_at
    return TableRead(
        source.name, ref.name, read, version, committed_at, len(numbers), size, read_columns, snapshot=snapshot,
        files=some,
    )  # fmt: skip


def _columns(snapshot: Snapshot, wanted: Columns) -> tuple[str, ...]:
    """At least one: rows are counted by it. Raises `RowsRefusedError` for one that may not be seen."""
    every = readable_names(snapshot.metadata)
    if not every:
        raise QueryError(f"{snapshot.ref.name} has no columns at v{snapshot.version}", hint="name another version")
    names = tuple(name for name in every if wanted is None or name.lower() in wanted)
    require_shown(snapshot.hidden, snapshot.metadata, names)
    closed = hidden_columns(snapshot.hidden, snapshot.metadata)
    return names or tuple(name for name in every if name not in closed)[:1] or every[:1]


def _changes(world: World, source: Source, ref: TableRef, clock: Clock) -> TableRead:
    """What the commits after the first version, up to the second, changed: by the change feed, or where it does not
    cover them the rows that only one of both versions has, whose commit is known where one alone changed rows."""
    lake = world.lake
    first, last = (resolve_version(lake, ref, text, clock) for text in source.arguments)
    if first >= last:
        raise QueryError(f"no commit comes after v{first} up to v{last}", hint="name the older version first")
    newer, files = lake.snapshot(ref, last), lake.file_difference(ref, first, last)
    sides = (files.only_first, files.only_second)
    made = partial(
        TableRead, source.name, f"{ref.name}$changes({first}, {last})", between=(first, last),
        num_files=sum(map(len, sides)), size_bytes=sum(pc.sum(side["size_bytes"]).as_py() or 0 for side in sides),
    )  # fmt: skip
    names, older = _columns(newer, source.columns), lake.snapshot(ref, first)
    if lake.cdf_support(ref, first, last).covered:
        return made(partial(lake.changes, ref, first, last, columns=names))
    _columns(older, source.columns)
    every = readable_names(newer.metadata)
    before = partial(lake.read_files, older, files.only_first, columns=every, as_of=newer)
    rows = partial(lake.read_files, newer, files.only_second, columns=every)
    between = (
        lake.history(ref, starting_version=first + 1, ending_version=last) if last - first <= _MOST_COMMITS else []
    )
    moved = [commit for commit in between if commit.may_change_rows]
    return made(rows, before=before, commit=moved[0] if len(moved) == 1 else None)
