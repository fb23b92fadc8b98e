"""What Weir knows of tables and of the lake, as tables that a statement may name: "t$history", weir.streams.

Rule: only columns that the statement needs are filled, from the log and the store alone. Columns are called as Trino
calls them where it has them; what the log does not say is null.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from backend.access import Actor
from backend.cells import cells
from backend.errors import LakehouseError, QueryError
from backend.lake.files.file_sizes import partition_codes, partition_files
from backend.lake.files.stats import column_stats, columns_with_stats
from backend.lake.lake import Lake
from backend.lake.model import Commit, Snapshot, UnreadableTable
from backend.lake.table.schema import partition_values
from backend.settings import Settings
from backend.sql.values import json_value

if TYPE_CHECKING:
    from backend.store.store import ControlStore
    from backend.streams.verdict import StreamStatus

_TEXT, _NUMBER, _TIME, _FLAG = pa.string(), pa.int64(), pa.timestamp("us", "UTC"), pa.bool_()
_MAP = pa.map_(_TEXT, _TEXT)
MOST_ROWS = 1_000_000  # of acts, and of the batches of a stream
NOTICE_DAYS = 7
Columns = Collection[str] | None
_HISTORY = {
    "version": _NUMBER, "timestamp": _TIME, "user_name": _TEXT, "operation": _TEXT, "operation_parameters": _MAP,
    "read_version": _NUMBER, "isolation_level": _TEXT, "is_blind_append": _FLAG, "operation_metrics": _MAP,
    "engine_info": _TEXT, "user_metadata": _TEXT, "stream": _TEXT, "user_id": _TEXT, "cluster_id": _TEXT,
    "change_bytes": _NUMBER, "job": _TEXT,
}  # fmt: skip
LAKE_VIEWS: Mapping[str, Mapping[str, pa.DataType]] = {
    "tables": {
        "table_name": _TEXT, "layer": _TEXT, "uri": _TEXT, "version": _NUMBER, "num_files": _NUMBER,
        "size_bytes": _NUMBER, "num_rows": _NUMBER, "small_files": _NUMBER, "last_commit_at": _TIME,
        "last_operation": _TEXT, "owner": _TEXT, "classification": _TEXT, "description": _TEXT, "problem": _TEXT,
    },
    "columns": {"table_name": _TEXT, "column_name": _TEXT, "data_type": _TEXT, "comment": _TEXT},
    "commits": {"table_name": _TEXT} | _HISTORY,
    "streams": {
        "stream": _TEXT, "pipeline": _TEXT, "layer": _TEXT, "source": _TEXT, "sink_table": _TEXT, "state": _TEXT,
        "verdict": _TEXT, "reason": _TEXT, "input_rows_per_s": pa.float64(), "starved_by": _TEXT,
        "last_batch_at": _TIME,
    },
    "batches": {
        "stream": _TEXT, "batch_id": _NUMBER, "query_id": _TEXT, "run_id": _TEXT, "progressed_at": _TIME,
        "num_input_rows": _NUMBER, "output_rows": _NUMBER, "batch_duration_ms": _NUMBER, "watermark": _TIME,
        "rows_dropped_by_watermark": _NUMBER, "state_rows": _NUMBER, "state_bytes": _NUMBER,
    },
    "acts": {
        "at": _TIME, "actor": _TEXT, "action": _TEXT, "subject": _TEXT, "reason": _TEXT, "detail": _TEXT,
        "role": _TEXT, "granted_by": _TEXT, "result": _TEXT, "id": _NUMBER,
    },
    "notices": {
        "table_name": _TEXT, "version": _NUMBER, "committed_at": _TIME, "kind": _TEXT, "subject": _TEXT,
        "before": _TEXT, "after": _TEXT, "condition": _TEXT, "by": _TEXT, "mended_at": _NUMBER,
        "job": _TEXT, "rows": _NUMBER, "where": _TEXT, "repair": _TEXT,
    },
    "queries": {"name": _TEXT, "owner": _TEXT, "saved_at": _TIME, "text": _TEXT, "chart": _TEXT},
}  # fmt: skip

VIEW_COLUMNS: Mapping[str, Sequence[str]] = {  # those of "t$changes" beside the table's own
    "history": tuple(_HISTORY),
    "properties": ("key", "value"),
    "files": (
        *("file_path", "record_count", "file_size_in_bytes", "deleted_rows", "modified_at", "deletion_vector"),
        *("partition", "null_value_counts", "lower_bounds", "upper_bounds"),
    ),
    "partitions": ("partition", "file_count", "total_size", "record_count"),
    "changes": ("_change_type", "_commit_version", "_commit_timestamp"),
}


@dataclass(frozen=True, slots=True)
class World:
    """What a query may ask, and who asks: the lake, and the control store where there is one."""

    lake: Lake
    store: "ControlStore | None"
    now: datetime
    settings: Settings
    actor: Actor | None = None


def table_view(world: World, view: str, snapshot: Snapshot, columns: Columns) -> pa.Table:
    """`view` ("history", "properties", "files" or "partitions") of a table at a version."""
    if view == "history":
        commits = world.lake.history(snapshot.ref, ending_version=snapshot.version)
        return _table(_HISTORY, map(_commit, commits), columns)
    if view == "properties":
        return _table({"key": _TEXT, "value": _TEXT}, _properties(snapshot), columns)
    return _files(snapshot, columns) if view == "files" else _partitions(snapshot)


def lake_view(world: World, name: str, columns: Columns) -> pa.Table:
    """`weir.` tables; raises `QueryError` where there is none of this name."""
    if name not in LAKE_VIEWS:
        raise QueryError(
            f"there is no table weir.{name}", hint=f"there are {', '.join(f'weir.{t}' for t in LAKE_VIEWS)}"
        )
    rows: Mapping[str, Callable[[World], Iterable[Sequence[Any]]]] = {
        "tables": _tables, "columns": _columns, "commits": _commits, "streams": _streams, "batches": _batches,
        "acts": _acts, "notices": _notices, "queries": _queries,
    }  # fmt: skip
    return _table(LAKE_VIEWS[name], rows[name](world), columns)


def _table(schema: Mapping[str, pa.DataType], rows: Iterable[Sequence[Any]], columns: Columns) -> pa.Table:
    """Rows as columns; those that nobody needs are left out."""
    lines, wanted = list(rows), _wanted(schema, columns)
    at = {name: number for number, name in enumerate(schema)}
    return pa.table({name: pa.array([line[at[name]] for line in lines], schema[name]) for name in wanted})


def _wanted(names: Iterable[str], columns: Columns) -> list[str]:
    """Those asked for, at least one: a table without columns has no rows."""
    every = list(names)
    return [name for name in every if columns is None or name.lower() in columns] or every[:1]


# of one table ---------------------------------------------------------------------------------------------------------


def _commit(commit: Commit) -> tuple[Any, ...]:
    return (
        commit.version, commit.committed_at, commit.user, commit.operation, _texts(commit.parameters),
        commit.read_version, commit.isolation_level, commit.is_blind_append, _texts(commit.raw_metrics),
        commit.engine, commit.user_metadata, commit.origin.stream if commit.origin else None, commit.user_id,
        commit.cluster_id, commit.metrics.change_bytes, commit.job,
    )  # fmt: skip


def _texts(values: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    def text(value: Any) -> str | None:
        return value if value is None or isinstance(value, str) else orjson.dumps(json_value(value)).decode()

    return [(str(key), text(value)) for key, value in values.items()]


def _properties(snapshot: Snapshot) -> list[tuple[str, str]]:
    protocol = snapshot.protocol
    features = ((f"delta.feature.{feature}", "supported") for feature in protocol.features)
    return [
        *sorted(snapshot.metadata.configuration.items()),
        ("delta.minReaderVersion", str(protocol.min_reader_version)),
        ("delta.minWriterVersion", str(protocol.min_writer_version)),
        *features,
    ]


def _files(snapshot: Snapshot, columns: Columns) -> pa.Table:
    """A row for each file. Bounds and nulls, by the columns' names, are read from the log only where asked for."""
    names = {
        "file_path": "path", "record_count": "num_records", "file_size_in_bytes": "size_bytes",
        "deleted_rows": "deleted_rows", "modified_at": "modified_at", "deletion_vector": "dv_id",
    }  # fmt: skip
    statistics = ("null_value_counts", "lower_bounds", "upper_bounds")
    partition = ("partition",) if snapshot.metadata.partition_columns else ()
    wanted = _wanted([*names, *partition, *statistics], columns)
    plain = [name for name in wanted if name in names]
    rows = snapshot.columns([names[name] for name in plain] or ["path"])
    found = {name: rows[names[name]] for name in plain}
    if "partition" in wanted:
        codes, texts = partition_codes(snapshot)
        found["partition"] = _partition(snapshot, texts).take(pa.array(codes))
    stats = [column_stats(snapshot, column) for column in columns_with_stats(snapshot.metadata)
             ] if set(statistics) & set(wanted) else []  # fmt: skip
    for name, part in zip(statistics, ("null_count", "min", "max"), strict=True):
        if name in wanted:
            values = [(each.column, cells(getattr(each, part))) for each in stats]
            known = [[(column, str(json_value(of_file[row]))) for column, of_file in values if of_file[row] is not None]
                     for row in range(snapshot.num_files)]  # fmt: skip
            found[name] = pa.array(known, _MAP)
    return pa.table({name: found[name] for name in wanted})


def _partition(snapshot: Snapshot, texts: Sequence[str]) -> pa.Array:
    values = [partition_values(text, snapshot.metadata) for text in texts]
    return pa.array(values, pa.struct([(name, _TEXT) for name in snapshot.metadata.partition_columns]))


def _partitions(snapshot: Snapshot) -> pa.Table:
    """A row for each partition; one for the table where it has none."""
    parts = partition_files(snapshot, 0)
    names = {"partition": _partition(snapshot, [part.partition for part in parts])}
    return pa.table((names if snapshot.metadata.partition_columns else {}) | {
        "file_count": pa.array([part.num_files for part in parts], _NUMBER),
        "total_size": pa.array([part.size_bytes for part in parts], _NUMBER),
        "record_count": pa.array([part.num_rows for part in parts], _NUMBER),
    })  # fmt: skip


# of the lake ----------------------------------------------------------------------------------------------------------


def _fields(values: Iterable[object], names: Iterable[str]) -> list[tuple[Any, ...]]:
    """Attributes as columns; null where a value has none of the name."""
    return [tuple(getattr(value, name, None) for name in names) for value in values]


def _tables(world: World) -> list[tuple[Any, ...]]:
    cards = world.lake.cards()
    names = [*list(LAKE_VIEWS["tables"])[3:-1], "reason"]
    refs = _fields((card.ref for card in cards), ("name", "layer", "uri"))
    return [(*ref, *card) for ref, card in zip(refs, _fields(cards, names), strict=True)]


def _columns(world: World) -> list[tuple[Any, ...]]:
    cards = (card for card in world.lake.cards() if not isinstance(card, UnreadableTable))
    return [(card.ref.name, *column) for card in cards for column in card.columns]


def _commits(world: World) -> list[tuple[Any, ...]]:
    """Of every table that can be read: `weir.tables` says of which not."""
    rows = list[tuple[Any, ...]]()
    for ref in world.lake.tables():
        with suppress(LakehouseError):
            rows += ((ref.name, *_commit(commit)) for commit in world.lake.history(ref))
    return rows


def _streams(world: World) -> list[tuple[Any, ...]]:
    streams = _statuses(world)
    declared = _fields((s.declaration for s in streams), ("name", "pipeline", "layer", "source", "writes_to"))
    states = _fields(streams, ("state", "verdict", "because", "input_rows_per_s", "starved_by"))
    newest = _fields((s.progress for s in streams), ["progressed_at"])
    return [(*of_one, *state, *at) for of_one, state, at in zip(declared, states, newest, strict=True)]


def _statuses(world: World) -> "list[StreamStatus]":
    if world.store is None:
        return []
    from backend.streams.backlog import BacklogReader
    from backend.streams.status import statuses

    world.store.take_in(world.settings.roots)
    backlogs, stale_s = BacklogReader(world.settings, world.lake), world.settings.host.heartbeat_stale_s
    return statuses(world.store, backlogs, now=world.store.now(), heartbeat_stale_s=stale_s)


def _batches(world: World) -> list[tuple[Any, ...]]:
    if world.store is None:
        return []
    read = partial(world.store.progress, limit=MOST_ROWS, raw=False)
    return _fields((batch for name in world.store.declarations() for batch in read(name)), list(LAKE_VIEWS["batches"]))


def _acts(world: World) -> list[tuple[Any, ...]]:
    seen_by = world.actor or world.settings.auth.actor("")  # nobody: it has no name
    entries = world.store.audit_entries(limit=MOST_ROWS, seen_by=seen_by) if world.store else []
    return _fields(entries, list(LAKE_VIEWS["acts"]))


def _queries(world: World) -> list[tuple[Any, ...]]:
    saved = world.store.saved.all() if world.store else []
    return [(q.name, q.owner, q.saved_at, q.text, q.chart.kind if q.chart else None) for q in saved]


def _notices(world: World) -> list[tuple[Any, ...]]:
    """Judged here and now, as `weir notices` does."""
    from backend.expectations.shown import as_shown
    from backend.search.notices import NoticeLooks
    from backend.streams.status import query_names

    streams = query_names(_statuses(world))
    looks, since = NoticeLooks(world.lake, lambda: streams), world.now - timedelta(days=NOTICE_DAYS)
    names, rows = ["table", *list(LAKE_VIEWS["notices"])[1:]], list[tuple[Any, ...]]()
    for ref in world.lake.tables():
        with suppress(LakehouseError):  # `weir.tables` says why it cannot be read
            rows += _fields(as_shown(looks.look(ref, since, world.now), world.lake.hidden_at), names)
    return rows
