"""A change feed by type and commit, before or without its rows.

Rule: the numbers are those that reading the whole feed would count; where they cannot be had without reading rows, it
is an error, never a guess.
"""

from collections.abc import Mapping
from typing import Protocol

from backend.diff.feed import Gross
from backend.duckdb_session import CancelToken
from backend.lake.model import TableRef


class CountingLake(Protocol):
    """The part of `backend.lake.lake.Lake` that a summary needs."""

    def change_counts(self, ref: TableRef, version: int) -> Mapping[str, int]: ...


def sum_up_feed(
    lake: CountingLake, ref: TableRef, from_version: int, to_version: int, token: CancelToken | None = None
) -> Gross:
    """Rows per commit and change type of the commits between two versions, in either direction; raises `DiffError`
    where the feed does not cover them or rows would have to be read, `DataFileMissingError`, `Stopped`."""
    low, high = sorted((from_version, to_version))
    gross = Gross()
    for version in range(low + 1, high + 1):
        if token is not None:
            token.check()
        for kind, rows in lake.change_counts(ref, version).items():
            if rows:
                gross.counts[version, kind] = rows
    return gross
