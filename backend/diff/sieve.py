"""Which rows can differ at all: one pass over all rows, a few megabytes whatever their number.

Rule: rows fall into places by a hash. Where a place's signed count and signed sum of a second hash are 0, all its rows
cancel: two different sets would have to agree in a count and a sum of 64-bit hashes. A place where they are not holds
a difference for certain.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from backend.diff.hashes import row_hash
from backend.diff.join import Part, Settled

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

PLACES = 1 << 20
_FREE = 1e-4  # of a million places a hundred: the estimate is good to a few per cent
Feed = Callable[[], AbstractContextManager[None]]  # meanwhile a statement may read `feed` (c0, c1 … and `sign`) once


def suspects(connection: "DuckDBPyConnection", feed: Feed, width: int) -> tuple[str, Settled]:
    """A condition on rows of `feed` that every row that does not cancel satisfies, and what is known by then, about
    whole rows instead of keys."""
    names = _names(range(width))
    _sum_up(connection, feed, width, names)
    return f"{_place(names)} IN (SELECT place FROM places WHERE differs)", _counted(connection)[1]


def suspect_parts(
    connection: "DuckDBPyConnection", feed: Feed, width: int, key: Sequence[int], most_rows: int
) -> tuple[list[Part], Settled]:
    """The rows that can differ, in parts of about so many rows at most: all rows with one key are in one part."""
    names = _names(key)
    _sum_up(connection, feed, width, names)
    suspect, settled = _counted(connection)
    count = max(1, math.ceil(suspect / most_rows))
    return [_part(connection, names, f"differs AND place % {count} = {number}") for number in range(count)], settled


def _counted(connection: "DuckDBPyConnection") -> tuple[int, Settled]:
    """Rows that can differ, and what is known of the others."""
    found = connection.execute("SELECT differs, CAST(sum(entries) AS BIGINT), count(*) FROM places GROUP BY differs")
    rows = {differs: (entries, places) for differs, entries, places in found.fetchall()}
    (same, _), (suspect, places) = rows.get(False, (0, 0)), rows.get(True, (0, 0))
    return suspect, Settled(same, same + suspect, likely_keys(places))


def _part(connection: "DuckDBPyConnection", names: str, mine: str) -> Part:
    found = f"FROM places WHERE {mine}"
    ((rows,),) = connection.execute(f"SELECT CAST(coalesce(sum(entries), 0) AS BIGINT) {found}").fetchall()
    return Part(f"SELECT * FROM feed WHERE {_place(names)} IN (SELECT place {found})", rows)


def likely_keys(places: int) -> int | None:
    """About how many keys fell into so many of all places; None where hardly a place is left to tell by."""
    free = 1 - places / PLACES
    return round(-PLACES * math.log(free)) if free > _FREE else None


def _sum_up(connection: "DuckDBPyConnection", feed: Feed, width: int, placed_by: str) -> None:
    with feed():
        hashed = row_hash(connection, "feed", [f"c{i}" for i in range(width)])
        connection.execute(
            "CREATE OR REPLACE TEMP TABLE places AS SELECT place, count(*) AS entries, "
            "sum(sign) <> 0 OR sum(CASE WHEN sign > 0 THEN h ELSE -h END) <> 0 AS differs FROM ("
            f"SELECT {_place(placed_by)} AS place, sign, CAST({hashed} AS HUGEINT) AS h FROM feed) GROUP BY place"
        )


def _place(names: str) -> str:
    return f"(hash({names}) & {PLACES - 1})"


def _names(places: Sequence[int]) -> str:
    return ", ".join(f"c{i}" for i in places)
