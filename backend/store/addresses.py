"""Where a stream's checkpoint and table lie: one place for all hosts.

Rule: what the store has stays. A host with other addresses would begin on an empty checkpoint and write a second lake,
so it is refused, unless a person stopped the stream and no host holds its lease.
"""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from backend.errors import StreamRefusedError
from backend.lake.storage.paths import normal_uri
from backend.store import leases, rows, schema
from backend.stream_model.stream import StreamDeclaration


def refuse_others(connection: Connection, declared: Sequence[StreamDeclaration]) -> Mapping[str, StreamDeclaration]:
    """Those that the store has of these, by name; raises `StreamRefusedError` where one lies elsewhere than it says.
    Nobody else declares until the transaction ends."""
    leases.lock(connection, "declarations")
    names = schema.declaration.c.name.in_([stream.name for stream in declared])
    kept = connection.execute(sa.select(schema.declaration).where(names)).mappings()
    before = {stream.name: stream for stream in rows.readable(rows.declaration_of, "declaration", kept)}
    moved = [stream for stream in declared if stream.name in before and _apart(stream, before[stream.name])]
    at_rest = _at_rest(connection) if moved else ()
    refused = [stream for stream in moved if stream.name not in at_rest]
    if refused:
        raise _refusal(refused[0], before[refused[0].name], more=len(refused) - 1)
    return before


def _at_rest(connection: Connection) -> set[str]:
    """The streams that a person stopped, and that no host has."""
    held = leases.held(connection)
    every = connection.execute(sa.select(schema.desired)).mappings()
    wanted = rows.readable(rows.desired_of, "desired", every)
    return {want.name for want in wanted if want.wants_stop and leases.stream_resource(want.name) not in held}


def _apart(here: StreamDeclaration, there: StreamDeclaration) -> list[tuple[str, str, str, str]]:
    """Of what lies elsewhere: what it is, where it is here and there, and the setting that joins them."""
    checkpoints = there.checkpoint_location.removesuffix(f"/{there.name}")
    tables = there.sink_uri.removesuffix(f"/{there.sink_table}")
    places = [
        ("checkpoint", here.checkpoint_location, there.checkpoint_location, f"HOST__CHECKPOINTS_URI={checkpoints}"),
        ("table", here.sink_uri, there.sink_uri, f"LAKE__TABLES_URI={tables}"),
    ]
    return [place for place in places if place[1] and place[2] and normal_uri(place[1]) != normal_uri(place[2])]


def _refusal(here: StreamDeclaration, there: StreamDeclaration, *, more: int) -> StreamRefusedError:
    apart = _apart(here, there)
    places = ", ".join(f"its {what} is {ours} here and {theirs} in the store" for what, ours, theirs, _ in apart)
    others = f" (and {more} more)" if more else ""
    return StreamRefusedError(
        f"this host would write a second lake. {here.name}{others}: {places}",
        hint=f"set {' and '.join(f'WEIR_{place[3]}' for place in apart)}, as the other hosts have it. Moved on "
        "purpose? Stop these streams and every host, then start this one",
    )
