"""Batches: every micro-batch that Spark reported until retention takes it, and their sums per minute and per hour of
each run, which are there for months.

Rule: adding the same event twice keeps one row, so a writer may retry a batch that it is not sure of. A batch is marked
as counted in the transaction that adds it up, so it counts exactly once, however late it comes and whichever host dies.
A reader adds the batches that are not marked yet, so it misses none.
"""

import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa
from pydantic_core import ArgsKwargs
from sqlalchemy.engine import Connection

from backend.store.engine import insert
from backend.store.schema import (
    EPOCH,
    LATEST,
    PROGRESS_LONG,
    ROLLUP_SUMS,
    Row,
    declaration,
    fetch,
    fetch_one,
    observed,
    progress,
    progress_rollup,
    readable,
    row_of,
    value_of,
)
from backend.stream_model.backlog import Lag
from backend.stream_model.progress import is_batch
from backend.stream_model.rollup import GRAINS_S, HOUR_S, Rollup, Sum, merged, rollup_of
from backend.stream_model.stream import Progress, Run

CHUNK = 2_000  # rows of one transaction: others wait for it
Lags = Mapping[str, Mapping[datetime, Lag]]  # by stream, and by when a batch ended
NO_LAGS: Lags = MappingProxyType({})
_NOT_YET = sa.text("counted IS NULL")  # as the index says it
_NEWEST_FIRST = (progress.c.progressed_at.desc(), progress.c.id.desc())
_KEY = [column.name for column in progress_rollup.primary_key]
_WITHOUT_JSON = [column for column in progress.c if column.name != "raw"]

# Half of what zlib alone makes of Spark's JSON, for every text has the same words. They are a part of the format: what
# was packed with them can be read with the very same bytes alone, so they never change.
_WORDS = (
    b'"stateOperators":[{"operatorName":"dedupeWithinWatermark","numRowsTotal":0,"numRowsUpdated":0,'
    b'"allUpdatesTimeMs":0,"numRowsRemoved":0,"allRemovalsTimeMs":0,"commitTimeMs":0,"memoryUsedBytes":0,'
    b'"numRowsDroppedByWatermark":0,"numShufflePartitions":0,"numStateStoreInstances":0,"customMetrics":{'
    b'"loadedMapCacheHitCount":0,"loadedMapCacheMissCount":0,"numDroppedDuplicateRows":0,'
    b'"stateOnCurrentVersionSizeBytes":0}}],"eventTime":{"avg":"2026-01-01T00:00:00.000Z",'
    b'"max":"2026-01-01T00:00:00.000Z","min":"2026-01-01T00:00:00.000Z","watermark":"2026-01-01T00:00:00.000Z"},'
    b'"sources":[{"description":"KafkaV2[Subscribe[","startOffset":{"0":0},"endOffset":{"0":0},"latestOffset":{"0":0},'
    b'"metrics":{"avgOffsetsBehindLatest":"0.0","maxOffsetsBehindLatest":"0","minOffsetsBehindLatest":"0"}}],'
    b'"sources":[{"description":"FileStreamSource[file:/","startOffset":{"logOffset":0},"endOffset":{"logOffset":0},'
    b'"latestOffset":null,"description":"RateStreamV2[rowsPerSecond=1, rampUpTimeSeconds=0, numPartitions=default",'
    b'"startOffset":0,"endOffset":0,"latestOffset":0,{"id":"","runId":"","name":"",'
    b'"timestamp":"2026-01-01T00:00:00.000Z","batchId":0,"batchDuration":0,"numInputRows":0,"inputRowsPerSecond":0.0,'
    b'"processedRowsPerSecond":0.0,"durationMs":{"addBatch":0,"commitOffsets":0,"getBatch":0,"latestOffset":0,'
    b'"queryPlanning":0,"triggerExecution":0,"walCommit":0},"stateOperators":[],"sources":[{'
    b'"description":"DeltaSource[file:/","startOffset":{"sourceVersion":1,"reservoirId":"","reservoirVersion":0,'
    b'"index":-1,"isStartingVersion":false},"endOffset":{"sourceVersion":1,"reservoirId":"","reservoirVersion":0,'
    b'"index":-1,"isStartingVersion":false},"latestOffset":null,"numInputRows":0,"inputRowsPerSecond":0.0,'
    b'"processedRowsPerSecond":0.0}],"sink":{"description":"DeltaSink[file:/"},'
    b'"sink":{"description":"ForeachBatchSink","numOutputRows":-1},'
    b'"observedMetrics":{"expectations":{"_passed":0,"_failed":0}}}'
)


def pack(text: str) -> bytes:
    packing = zlib.compressobj(6, zdict=_WORDS)
    return packing.compress(text.encode()) + packing.flush()


def unpack(packed: bytes) -> str:
    """Also of what was packed without the words."""
    unpacking = zlib.decompressobj(zdict=_WORDS)
    return (unpacking.decompress(packed) + unpacking.flush()).decode()


def _progress_of(row: Row) -> Progress:
    """What was not asked for is empty."""
    raw = row.get("raw")
    return value_of(Progress, {**row, "raw_json": "" if raw is None else unpack(raw)})


# micro-batches -------------------------------------------------------------------------------------------------------


def add(connection: Connection, items: Sequence[Progress]) -> None:
    """Adds micro-batches; one that is there already is kept once."""
    new = []
    for item in items:
        row = row_of(item)
        new.append(row | {"raw": pack(row.pop("raw_json"))})
    connection.execute(insert(connection, progress).on_conflict_do_nothing(), new)


def touch(connection: Connection, name: str, *, at: datetime) -> None:
    """Notes that Spark reported on the stream (a batch or "idle") at `at`: `Observed.last_trigger_at`, which never
    moves back."""
    later = sa.or_(observed.c.last_trigger_at.is_(None), observed.c.last_trigger_at < at)
    connection.execute(sa.update(observed).where(observed.c.name == name, later).values(last_trigger_at=at))


def of_stream(
    connection: Connection, stream: str, *, since: datetime = EPOCH, until: datetime = LATEST, limit: int = 500,
    raw: bool = True, every: int = 1,
) -> list[Progress]:  # fmt: skip
    """The newest `limit` micro-batches of a time, oldest first; `raw`: with the JSON that Spark reported, a third of
    the time and memory; `every`: only those whose id is a multiple of it."""
    query = sa.select(*(progress.c if raw else _WITHOUT_JSON)).order_by(*_NEWEST_FIRST).limit(limit)
    query = query.where(progress.c.stream == stream, progress.c.progressed_at.between(since, until))
    if every > 1:
        query = query.where(progress.c.batch_id % every == 0)
    return fetch(connection, _progress_of, query)[::-1]


def newest_ids(connection: Connection) -> dict[str, int]:
    """What names the newest micro-batch of each declared stream: another one once a batch came."""
    ids = connection.execute(sa.select(declaration.c.name, _newest("id")))
    return {name: id_ for name, id_ in ids if id_ is not None}


def recent(
    connection: Connection, streams: Collection[str] | None = None, *, limit: int, raw: bool = False
) -> dict[str, list[Progress]]:
    """The newest `limit` micro-batches of these declared streams, None for all, oldest first, in one statement.
    Durations by phase, expectations and Spark's JSON are the newest one's alone; with `raw` each has them."""
    p, from_ = progress.c, _newest("progressed_at", place=limit - 1)
    is_newest = sa.true() if raw else p.id == _newest("id")
    columns = [
        sa.case((is_newest, column)).label(column.name) if column.name in PROGRESS_LONG else column for column in p
    ]
    query = sa.select(*columns).select_from(declaration.join(progress, p.stream == declaration.c.name))
    query = query.where(p.progressed_at >= sa.func.coalesce(from_, EPOCH)).order_by(p.stream, p.progressed_at, p.id)
    if streams is not None:
        query = query.where(declaration.c.name.in_(streams))
    batches = fetch(connection, _progress_of, query)
    return {stream: list(of)[-limit:] for stream, of in groupby(batches, attrgetter("stream"))}


def input_rows(connection: Connection, streams: Collection[str], *, since: datetime) -> dict[str, list[int]]:
    """How many rows each micro-batch of these streams since then read, oldest first."""
    p = progress.c
    query = sa.select(p.stream, p.num_input_rows).where(p.stream.in_(streams), p.progressed_at >= since)
    batches = connection.execute(query.order_by(p.stream, p.progressed_at, p.id))
    return {stream: [rows for _, rows in of] for stream, of in groupby(batches, attrgetter("stream"))}


def _newest(column: str, *, place: int = 0) -> sa.ScalarSelect[Any]:
    """Of the declaration's newest batch, or of the one so many before it: found in the index."""
    q = progress.alias()
    of_stream = sa.select(q.c[column]).where(q.c.stream == declaration.c.name)
    newest_first = of_stream.order_by(q.c.progressed_at.desc(), q.c.id.desc())
    return newest_first.offset(place).limit(1).correlate(declaration).scalar_subquery()


def of_batch(connection: Connection, stream: str, batch_id: int) -> Progress | None:
    """The newest event of one batch; None where it is not kept."""
    query = sa.select(progress).where(progress.c.stream == stream, progress.c.batch_id == batch_id)
    return fetch_one(connection, _progress_of, query.order_by(*_NEWEST_FIRST))


def prune(connection: Connection, *, before: datetime, keep: int) -> int:
    """Deletes at most `CHUNK` that are added up: those from before, and the oldest beyond the newest `keep`. Of each
    declared stream the newest stays, for it says how the stream was left."""
    p = progress.c
    beyond = sa.select(p.id).order_by(p.id.desc()).offset(keep).limit(1).scalar_subquery()
    left = sa.select(declaration.c.name).where(declaration.c.name.in_(_streams(connection)))
    newest = [
        connection.execute(sa.select(p.id).where(p.stream == name).order_by(*_NEWEST_FIRST).limit(1)).scalar_one()
        for name in connection.execute(left).scalars()
    ]
    old = sa.or_(p.progressed_at < before, p.id <= beyond)
    doomed = sa.select(p.id).where(p.counted.is_not(None), old, p.id.not_in(newest)).limit(CHUNK)
    return int(connection.execute(sa.delete(progress).where(p.id.in_(doomed))).rowcount)


def _streams(connection: Connection) -> Iterable[str]:
    """The distinct names by hopping through the index (a loose index scan; DISTINCT would read every row)."""
    first = sa.select(sa.func.min(progress.c.stream).label("stream"))
    names = first.cte("names", recursive=True)
    following = sa.select(sa.func.min(progress.c.stream)).where(progress.c.stream > names.c.stream).scalar_subquery()
    names = names.union_all(sa.select(following).where(names.c.stream.is_not(None)))
    return connection.execute(sa.select(names.c.stream).where(names.c.stream.is_not(None))).scalars().all()


# sums per minute and per hour ----------------------------------------------------------------------------------------


def not_rolled_up(connection: Connection, *, most: int = CHUNK) -> dict[int, Progress]:
    """Batches that the sums do not hold yet, by the id of their row, with Spark's JSON."""
    query = sa.select(progress).where(_NOT_YET).order_by(progress.c.stream, progress.c.id).limit(most)
    return dict(fetch(connection, lambda row: (row["id"], _progress_of(row)), query))


def roll_up(connection: Connection, ids: Collection[int], lags: Lags = NO_LAGS) -> int:
    """Adds these batches up, but for those that are already; how many. Two hosts at once wait for one another. `lags`:
    what waited after them, by stream and by when they ended."""
    query = sa.select(*_WITHOUT_JSON).where(_NOT_YET, progress.c.id.in_(ids))
    locked = query.order_by(progress.c.stream, progress.c.id).with_for_update()
    taken = connection.execute(locked).mappings().all()
    batches = [batch for batch in readable(_progress_of, "progress", taken) if is_batch(batch)]
    for grain_s in GRAINS_S:
        _add_sums(connection, _sums(batches, grain_s, lags))
    mark = sa.update(progress).where(progress.c.id == sa.bindparam("marked")).values(counted=True)
    if taken:
        connection.execute(mark, [{"marked": row["id"]} for row in taken])
    return len(taken)


def rollups(
    connection: Connection, stream: str, *, grain_s: int, since: datetime, until: datetime = LATEST
) -> list[Rollup]:
    """Those of a stream that begin in a time: one or more for each `grain_s` with a batch."""
    r = progress_rollup.c
    query = sa.select(progress_rollup).where(r.stream == stream, r.grain_s == grain_s, r.at.between(since, until))
    waiting = _sums(_not_yet(connection, stream), grain_s)
    return fetch(connection, _rollup_of, query) + [part for key, part in waiting if since <= key["at"] <= until]


def runs(connection: Connection, stream: str, *, limit: int = 100) -> list[Run]:
    """The newest `limit` runs of one stream, newest first, each with its true first and last batch, gone or not."""
    r = progress_rollup.c
    query = sa.select(
        r.run_id,
        r.query_id,
        sa.func.min(r.first_at).label("first_at"),
        sa.func.max(r.last_at).label("last_at"),
        sa.func.min(r.first_batch).label("first_batch"),
        sa.func.max(r.last_batch).label("last_batch"),
        sa.func.sum(r.input_rows).label("input_rows"),
    )
    of_hours = query.where(r.stream == stream, r.grain_s == HOUR_S).group_by(r.run_id, r.query_id)
    parts = [Run(**row) for row in connection.execute(of_hours).mappings()]
    parts += [
        Run(sums.run_id, sums.query_id, sums.first_at, sums.last_at, sums.first_batch, sums.last_batch, sums.input_rows)
        for _, sums in _sums(_not_yet(connection, stream), HOUR_S)
    ]
    by_run: dict[tuple[str, str], list[Run]] = {}
    for run in parts:
        by_run.setdefault((run.run_id, run.query_id), []).append(run)
    whole = [
        Run(
            *key,
            first_at=min(part.first_at for part in of_run),
            last_at=max(part.last_at for part in of_run),
            first_batch=min(part.first_batch for part in of_run),
            last_batch=max(part.last_batch for part in of_run),
            input_rows=sum(int(part.input_rows) for part in of_run),
        )
        for key, of_run in by_run.items()
    ]
    return sorted(whole, key=lambda run: run.first_at, reverse=True)[:limit]


def prune_rollups(connection: Connection, *, grain_s: int, before: datetime) -> int:
    r = progress_rollup.c
    return int(connection.execute(sa.delete(progress_rollup).where(r.grain_s == grain_s, r.at < before)).rowcount)


def rollup_row(value: Rollup) -> dict[str, Any]:
    """Without its stream, its grain and its place in time."""
    row = row_of(value)
    for name in ROLLUP_SUMS:
        row |= {name: row[name]["total"], f"{name}_known": row[name]["known"]}
    row["expectations"] = [list(total.values()) for total in row["expectations"]]  # their names in each row cost much
    return row


def _rollup_of(row: Row) -> Rollup:
    sums = {name: Sum(row[name], row[f"{name}_known"]) for name in ROLLUP_SUMS}
    return value_of(
        Rollup, {**row, **sums, "expectations": [ArgsKwargs(tuple(total)) for total in row["expectations"]]}
    )


def _not_yet(connection: Connection, stream: str) -> list[Progress]:
    query = sa.select(*_WITHOUT_JSON).where(progress.c.stream == stream, _NOT_YET)
    return [batch for batch in fetch(connection, _progress_of, query) if is_batch(batch)]


def _sums(batches: Iterable[Progress], grain_s: int, lags: Lags = NO_LAGS) -> list[tuple[dict[str, Any], Rollup]]:
    """Keys of rows, and what these batches add to each."""

    def place(batch: Progress) -> tuple[Any, ...]:
        began_s = batch.progressed_at.timestamp() // grain_s * grain_s
        return batch.stream, datetime.fromtimestamp(began_s, UTC), batch.run_id

    sums = []
    for (stream, at, run_id), part in groupby(sorted(batches, key=place), place):
        key = {"stream": stream, "grain_s": grain_s, "at": at, "run_id": run_id}
        sums.append((key, rollup_of(part, lags.get(stream, {}))))
    return sums


def _add_sums(connection: Connection, sums: Sequence[tuple[dict[str, Any], Rollup]]) -> None:
    """What is new is inserted and never upserted: where another host just did it, this transaction must fail."""

    def place(row: Mapping[Any, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in _KEY)

    r = progress_rollup.c
    near = [r[name].in_({key[name] for key, _ in sums}) for name in ("stream", "grain_s", "at")]
    existing = connection.execute(sa.select(progress_rollup).where(*near).with_for_update()).mappings()
    there = {place(row): _rollup_of(row) for row in existing}
    new = [rollup_row(part) | key for key, part in sums if place(key) not in there]
    grown = [rollup_row(merged([there[place(key)], part])) | key for key, part in sums if place(key) in there]
    if new:
        connection.execute(sa.insert(progress_rollup), new)
    if grown:
        statement = insert(connection, progress_rollup)
        changed = {name: value for name, value in statement.excluded.items() if name not in _KEY}
        connection.execute(statement.on_conflict_do_update(index_elements=_KEY, set_=changed), grown)
