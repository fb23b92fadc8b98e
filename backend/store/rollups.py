"""Sums of batches per minute and per hour of each run: there for months, when the batches are gone.

Rule: a batch is marked as counted in the transaction that adds it up, so it counts exactly once, however late it comes
and whichever host dies. A reader adds the batches that are not marked yet, so it misses none.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from backend.store import rows
from backend.store.engine import insert
from backend.store.schema import progress, progress_rollup
from backend.stream_model.backlog import Lag
from backend.stream_model.progress import is_batch
from backend.stream_model.rollup import GRAINS_S, HOUR_S, Rollup, merged, rollup_of
from backend.stream_model.stream import Progress, Run

Lags = Mapping[str, Mapping[datetime, Lag]]  # by stream, and by when a batch ended

NO_LAGS: Lags = MappingProxyType({})
NOT_YET = sa.text("counted IS NULL")  # as the index says it
_KEY = [column.name for column in progress_rollup.primary_key]
_COLUMNS = [column for column in progress.c if column.name != "raw"]


def waiting(connection: Connection, *, most: int) -> dict[int, Progress]:
    """Batches that are not added up yet, by the id of their row, with Spark's JSON."""
    batches = connection.execute(_waiting(progress.c, most)).mappings()
    return dict(rows.readable(lambda row: (row["id"], rows.progress_of(row)), "progress", batches))


def roll_up(connection: Connection, *, ids: Collection[int], lags: Lags) -> int:
    """Adds these up, but for those that are already; how many. Two hosts at once wait for one another."""
    query = _waiting(_COLUMNS, len(ids)).where(progress.c.id.in_(ids)).with_for_update()
    taken = connection.execute(query).mappings().all()
    batches = [batch for batch in rows.readable(rows.progress_of, "progress", taken) if is_batch(batch)]
    for grain_s in GRAINS_S:
        _add(connection, _parts(batches, grain_s, lags))
    mark = sa.update(progress).where(progress.c.id == sa.bindparam("marked")).values(counted=True)
    if taken:
        connection.execute(mark, [{"marked": row["id"]} for row in taken])
    return len(taken)


def of_stream(connection: Connection, stream: str, *, grain_s: int, since: datetime, until: datetime) -> list[Rollup]:
    r = progress_rollup.c
    query = sa.select(progress_rollup).where(r.stream == stream, r.grain_s == grain_s, r.at.between(since, until))
    sums = rows.readable(rows.rollup_of, "progress_rollup", connection.execute(query).mappings())
    return sums + [part for key, part in _parts(_not_yet(connection, stream), grain_s) if since <= key["at"] <= until]


def runs(connection: Connection, stream: str, *, limit: int) -> list[Run]:
    """The newest `limit` runs of one stream, newest first."""
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
    parts += [_run(part) for _, part in _parts(_not_yet(connection, stream), HOUR_S)]
    by_run: dict[tuple[str, str], list[Run]] = {}
    for run in parts:
        by_run.setdefault((run.run_id, run.query_id), []).append(run)
    return sorted(map(_joined, by_run.values()), key=lambda run: run.first_at, reverse=True)[:limit]


def prune(connection: Connection, *, grain_s: int, before: datetime) -> int:
    r = progress_rollup.c
    return int(connection.execute(sa.delete(progress_rollup).where(r.grain_s == grain_s, r.at < before)).rowcount)


def _waiting(columns: Iterable[sa.Column[Any]], most: int) -> sa.Select[Any]:
    return sa.select(*columns).where(NOT_YET).order_by(progress.c.stream, progress.c.id).limit(most)


def _not_yet(connection: Connection, stream: str) -> list[Progress]:
    query = sa.select(*_COLUMNS).where(progress.c.stream == stream, NOT_YET)
    batches = rows.readable(rows.progress_of, "progress", connection.execute(query).mappings())
    return [batch for batch in batches if is_batch(batch)]


def _run(part: Rollup) -> Run:
    """What one hour tells of a run, whose numbers only grow."""
    return Run(
        part.run_id, part.query_id, part.first_at, part.last_at, part.first_batch, part.last_batch, part.input_rows
    )


def _joined(parts: Sequence[Run]) -> Run:
    return replace(
        parts[0],
        first_at=min(part.first_at for part in parts),
        last_at=max(part.last_at for part in parts),
        first_batch=min(part.first_batch for part in parts),
        last_batch=max(part.last_batch for part in parts),
        input_rows=sum(int(part.input_rows) for part in parts),
    )


def _parts(batches: Iterable[Progress], grain_s: int, lags: Lags = NO_LAGS) -> list[tuple[dict[str, Any], Rollup]]:
    """Keys of rows, and what these batches add to each."""

    def place(batch: Progress) -> tuple[Any, ...]:
        began_s = batch.progressed_at.timestamp() // grain_s * grain_s
        return batch.stream, datetime.fromtimestamp(began_s, UTC), batch.run_id

    grouped = groupby(sorted(batches, key=place), place)
    sums = []
    for (stream, at, run_id), part in grouped:
        key = {"stream": stream, "grain_s": grain_s, "at": at, "run_id": run_id}
        sums.append((key, rollup_of(part, lags.get(stream, {}))))
    return sums


def _add(connection: Connection, parts: Sequence[tuple[dict[str, Any], Rollup]]) -> None:
    """What is new is inserted and never upserted: where another host just did it, this transaction must fail."""
    r = progress_rollup.c
    near = [r[name].in_({key[name] for key, _ in parts}) for name in ("stream", "grain_s", "at")]
    existing = connection.execute(sa.select(progress_rollup).where(*near).with_for_update()).mappings()
    there = {_place(row): rows.rollup_of(row) for row in existing}
    whole = [(key, part, there.get(_place(key))) for key, part in parts]
    new = [rows.rollup_row(part) | key for key, part, before in whole if before is None]
    grown = [rows.rollup_row(merged([before, part])) | key for key, part, before in whole if before is not None]
    if new:
        connection.execute(sa.insert(progress_rollup), new)
    if grown:
        statement = insert(connection, progress_rollup)
        changed = {name: value for name, value in statement.excluded.items() if name not in _KEY}
        connection.execute(statement.on_conflict_do_update(index_elements=_KEY, set_=changed), grown)


def _place(row: Mapping[Any, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _KEY)
