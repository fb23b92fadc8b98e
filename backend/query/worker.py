"""The process of one query: takes tables over its standard input, runs one statement, gives rows out.

Rule: it opens no file but those that it was born with, knows no lake and no credentials, and ends with the process
that started it. What came wrong is one JSON line on standard error.
"""

import json
import os
import pickle
import resource
import shutil
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from backend.cells import WHOLE
from backend.errors import LakehouseError, QueryError
from backend.format import bytes_text
from backend.sql.session import Connection, close_doors, open_alone, query_errors, slices
from backend.sql.values import quoted_name

BATCH_ROWS = 10_000
HELD_BYTES = 64_000_000  # of a row, and of rows that are held together: the page's process takes no more of an answer
# What Arrow has no type for, or one that loses a part: DuckDB's text of it is whole.
_AS_TEXT = (
    *("interval", "bit", "bignum", "uhugeint", "geometry", "variant", "union", "type"),
    *("time with time zone", "time_ns", "timestamp_ns", "timestamptz_ns"),
)
_LEAVES_AS = dict.fromkeys(_AS_TEXT, "VARCHAR") | dict.fromkeys(("timestamp_s", "timestamp_ms"), "TIMESTAMP")
_LATE_S = 5  # who started it kills it at its limit
_BESIDE_BYTES = 2 << 30  # of addresses, for code, stacks and what DuckDB does not count


@dataclass(frozen=True, slots=True)
class HandedTable:
    """A table of the statement: a query over the open files at `paths` and over the tables `beside` them, by name; or
    (None) an Arrow stream that follows the request, two where it is the difference of the rows before and after.
    `commit`: the only one that made it, by version and time. `caseless`: columns of which Spark compares texts in
    lower case."""

    name: str
    query: str | None = None
    paths: Sequence[str] = ()
    beside: tuple[tuple[str, pa.Table], ...] = ()
    is_difference: bool = False
    commit: tuple[int, datetime | None] | None = None
    caseless: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueryLimits:
    memory_bytes: int
    spill_bytes: int
    time_limit_s: float


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """`folder`: where it may spill. `cpu_s`: of processor time. `is_held`: the answer is, by whoever asked. The streams
    come in the order of `tables`."""

    sql: str
    tables: tuple[HandedTable, ...]
    folder: str
    limits: QueryLimits
    cpu_s: float
    is_held: bool


def main() -> None:
    """Answer the request on standard input."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not print into the rows
    try:
        _answer(pickle.load(sys.stdin.buffer), out)
    except LakehouseError as exc:
        _fail(exc.message, exc.hint)
    except MemoryError:
        _fail("the query needs more memory than it may have", "group or filter earlier")
    except (OSError, EOFError, pa.ArrowException) as exc:  # who started it is gone, or no longer sends
        _fail(f"the query's process ended: {type(exc).__name__}", "run it again")


def _fail(message: str, hint: str) -> None:
    sys.stderr.write(json.dumps({"message": message, "hint": hint}) + "\n")
    sys.stderr.flush()
    os._exit(1)


def _answer(request: QueryRequest, out: IO[bytes]) -> None:
    limits = request.limits
    _hold(limits, request.cpu_s)
    with query_errors(limits.memory_bytes):
        connection = open_alone(request.folder, memory_bytes=limits.memory_bytes, spill_bytes=limits.spill_bytes)
        for table in request.tables:
            _take(connection, table)
        close_doors(connection, [path for table in request.tables for path in table.paths])
        threading.Thread(target=_end_with_parent, args=(request.folder,), daemon=True).start()
        result = connection.sql(request.sql)
        rows = _in_arrow_types(result).to_arrow_reader(BATCH_ROWS)
        fields = zip(rows.schema, result.types, strict=True)  # a HUGEINT is a decimal to Arrow
        schema = pa.schema([f.with_metadata({WHOLE: ""}) if kind.id == "hugeint" else f for f, kind in fields])
        with pa.ipc.new_stream(out, schema) as writer:
            sent = 0
            for piece in (piece for batch in rows for piece in slices(batch)):
                sent = piece.nbytes + (sent if request.is_held else 0)
                if sent > HELD_BYTES:
                    what = f"the answer holds more than {bytes_text(HELD_BYTES)}"
                    raise QueryError(what, hint="select fewer columns or rows, or export it: weir query … --csv")
                writer.write_batch(piece)
    out.close()
    os._exit(0)  # nothing is to be tidied: the folder is its parent's


def _in_arrow_types(result: Any) -> Any:
    """The relation, with each value in a type of which Arrow loses nothing. Columns go by their place: two may have one
    name."""
    targets = list(map(_leaves_as, result.types))
    if not any(targets):
        return result
    return result.project(
        ", ".join(
            f"{f'CAST(#{place} AS {target})' if target else f'#{place}'} AS {quoted_name(name)}"
            for place, (name, target) in enumerate(zip(result.columns, targets, strict=True), 1)
        )
    )


def _leaves_as(kind: Any) -> str | None:
    """The type that a value leaves as, inside of nested types as well; None for its own."""
    if kind.id not in ("struct", "tuple", "map", "list", "array"):
        return _LEAVES_AS.get(kind.id)
    inner = [(name, child, _leaves_as(child)) for name, child in kind.children if isinstance(child, type(kind))]
    if not any(target for *_, target in inner):
        return None
    types = [str(target or child) for _, child, target in inner]
    if kind.id in ("struct", "tuple"):  # a tuple's fields have no names but in Arrow
        names = [quoted_name(name or f"element{place}") for place, (name, *_) in enumerate(inner, 1)]
        return f"STRUCT({', '.join(map(' '.join, zip(names, types, strict=True)))})"
    return f"MAP({', '.join(types)})" if kind.id == "map" else f"{types[0]}[]"


def _hold(limits: QueryLimits, cpu_s: float) -> None:
    """It ends itself late, takes no memory without end, and is the first that a full machine ends."""
    signal.alarm(int(limits.time_limit_s) + _LATE_S)
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s), int(cpu_s) + _LATE_S))
    most = 2 * limits.memory_bytes + _BESIDE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):  # Linux alone
        Path("/proc/self/oom_score_adj").write_text("1000")


def _take(connection: Connection, table: HandedTable) -> None:
    name = quoted_name(table.name)
    if table.caseless:
        stored = replace(table, name=f"{table.name} stored", caseless=())
        _take(connection, stored)
        columns = ", ".join(f"{each} COLLATE NOCASE AS {each}" for each in map(quoted_name, table.caseless))
        connection.execute(f"CREATE TEMP VIEW {name} AS SELECT * REPLACE ({columns}) FROM {quoted_name(stored.name)}")
        return
    if table.query is not None:
        for beside, rows in table.beside:
            connection.register(beside, rows)
        connection.execute(f"CREATE TEMP VIEW {name} AS {table.query}")
        return
    if table.is_difference:
        before, after = (_streamed(connection, quoted_name(f"{table.name} {side}")) for side in ("before", "after"))
        sides = (("delete", before, after), ("insert", after, before))
        version, at = table.commit or (None, None)
        time = f"'{at.isoformat()}'" if at else "NULL"
        commit = f"{version or 'NULL'}::BIGINT AS _commit_version, {time}::TIMESTAMPTZ AS _commit_timestamp"
        query = " UNION ALL ".join(
            f"SELECT *, '{kind}' AS _change_type, {commit} FROM (FROM {own} EXCEPT ALL FROM {other})"
            for kind, own, other in sides
        )
        connection.execute(f"CREATE TEMP VIEW {name} AS {query}")
        return
    _streamed(connection, name)


def _streamed(connection: Connection, name: str) -> str:
    """A table of the next stream. It can be read once, and a plan may read a table twice."""
    stream: Any = pa.ipc.open_stream(sys.stdin.buffer)
    connection.register("incoming", stream)
    connection.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM incoming")
    connection.unregister("incoming")
    return name


def _end_with_parent(folder: str) -> None:
    """Standard input stays open as long as the parent lives."""
    if not sys.stdin.buffer.read(1):
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)
