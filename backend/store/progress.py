"""The progress rows of the store: every micro-batch that Spark reported, until retention takes it.

Rule: adding the same event twice keeps one row, so a writer may retry a batch that it is not sure of. `rollups` keeps
what they told.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from backend.store import rows
from backend.store.engine import insert
from backend.store.schema import EPOCH, PROGRESS_LONG, declaration, observed, progress
from backend.stream_model.stream import Progress

NEWEST_FIRST = (progress.c.progressed_at.desc(), progress.c.id.desc())


def add(connection: Connection, items: Sequence[Progress]) -> None:
    statement = insert(connection, progress).on_conflict_do_nothing()
    connection.execute(statement, [rows.progress_row(item) for item in items])


def touch(connection: Connection, name: str, at: datetime) -> None:
    """Notes that Spark reported on the stream at `at`; never moves back."""
    later = sa.or_(observed.c.last_trigger_at.is_(None), observed.c.last_trigger_at < at)
    connection.execute(sa.update(observed).where(observed.c.name == name, later).values(last_trigger_at=at))


def of_stream(
    connection: Connection, stream: str, *, since: datetime, until: datetime, limit: int, raw: bool = True,
    every: int = 1,
) -> list[Progress]:  # fmt: skip
    """The newest `limit` of one stream, oldest first; `raw`: with Spark's JSON, a third of the time and memory;
    `every`: only batches whose id is a multiple of it."""
    columns = [column for column in progress.c if raw or column.name != "raw"]
    at, of_stream = progress.c.progressed_at, progress.c.stream == stream
    query = sa.select(*columns).where(of_stream, at.between(since, until)).order_by(*NEWEST_FIRST).limit(limit)
    if every > 1:
        query = query.where(progress.c.batch_id % every == 0)
    newest_first = connection.execute(query).mappings().all()
    return rows.readable(rows.progress_of, "progress", reversed(newest_first))


def newest_ids(connection: Connection) -> dict[str, int]:
    """The row of each declared stream's newest batch: it is another one once a batch came."""
    rows_of = connection.execute(sa.select(declaration.c.name, _newest("id")))
    return {name: id_ for name, id_ in rows_of if id_ is not None}


def recent(
    connection: Connection, streams: Collection[str] | None, *, limit: int, raw: bool
) -> dict[str, list[Progress]]:
    """The newest `limit` of each of these declared streams (None: of all), oldest first, in one statement. What takes
    long to read, the newest alone has; with `raw` each has all of it."""
    p, from_ = progress.c, _newest("progressed_at", place=limit - 1)
    is_newest = sa.true() if raw else p.id == _newest("id")
    columns = [
        sa.case((is_newest, column)).label(column.name) if column.name in PROGRESS_LONG else column for column in p
    ]
    query = sa.select(*columns).select_from(declaration.join(progress, p.stream == declaration.c.name))
    query = query.where(p.progressed_at >= sa.func.coalesce(from_, EPOCH)).order_by(p.stream, p.progressed_at, p.id)
    if streams is not None:
        query = query.where(declaration.c.name.in_(streams))
    batches = rows.readable(rows.progress_of, "progress", connection.execute(query).mappings())
    return {stream: list(of)[-limit:] for stream, of in groupby(batches, attrgetter("stream"))}


def input_rows(connection: Connection, streams: Collection[str], *, since: datetime) -> dict[str, list[int]]:
    """What each batch of these streams since then read, oldest first."""
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
    query = sa.select(progress).where(progress.c.stream == stream, progress.c.batch_id == batch_id)
    row = connection.execute(query.order_by(*NEWEST_FIRST).limit(1)).mappings().first()
    return rows.progress_of(row) if row else None


def prune(connection: Connection, *, before: datetime, keep: int, most: int) -> int:
    """Deletes at most `most` that are added up: those from before, and the oldest beyond the newest `keep`. Of each
    declared stream the newest stays, for it says how the stream was left."""
    p = progress.c
    beyond = sa.select(p.id).order_by(p.id.desc()).offset(keep).limit(1).scalar_subquery()
    left = sa.select(declaration.c.name).where(declaration.c.name.in_(_streams(connection)))
    newest = [
        connection.execute(sa.select(p.id).where(p.stream == name).order_by(*NEWEST_FIRST).limit(1)).scalar_one()
        for name in connection.execute(left).scalars()
    ]
    old = sa.or_(p.progressed_at < before, p.id <= beyond)
    doomed = sa.select(p.id).where(p.counted.is_not(None), old, p.id.not_in(newest)).limit(most)
    return int(connection.execute(sa.delete(progress).where(p.id.in_(doomed))).rowcount)


def _streams(connection: Connection) -> Iterable[str]:
    """The distinct names by hopping through the index (a loose index scan; DISTINCT would read every row)."""
    first = sa.select(sa.func.min(progress.c.stream).label("stream"))
    names = first.cte("names", recursive=True)
    following = sa.select(sa.func.min(progress.c.stream)).where(progress.c.stream > names.c.stream).scalar_subquery()
    names = names.union_all(sa.select(following).where(names.c.stream.is_not(None)))
    return connection.execute(sa.select(names.c.stream).where(names.c.stream.is_not(None))).scalars().all()
