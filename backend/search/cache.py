"""Searches for a first bad version that ended, and what each version was judged: both never change.

Rule: a result is found again by table id, ends, condition and checks; what was not asked for is not in it. What columns
hold between two versions is kept too.
"""

from collections.abc import Iterator
from contextlib import closing

from backend.lake.model import Snapshot, TableRef
from backend.lru import Lru
from backend.search.ends import BisectLake, named_version
from backend.search.judge import Judged
from backend.search.model import OLDEST, Bisection, BisectProgress, BisectRequest
from backend.search.search import bisect
from backend.search.suggest import Held, HeldLake, load_held, with_quantiles

MOST_RESULTS = 256
MOST_HELD = 32
_Key = tuple[str, str, str, int | None, int, int]


class Bisects:
    """Searches, with a cache of verdicts by version and file, and of results; shared by all viewers, thread-safe."""

    def __init__(self) -> None:
        self._judged = Judged()
        self._results: Lru[_Key, Bisection] = Lru(MOST_RESULTS)
        self._held: Lru[tuple[str, str, int, int], tuple[Held, ...]] = Lru(MOST_HELD)

    def over(self, lake: BisectLake, ref: TableRef, request: BisectRequest) -> Iterator[BisectProgress]:
        """Search, telling each step; close the iterator to cancel. Raises `QueryError` or `BisectError`."""
        with closing(bisect(lake, ref, request, judged=self._judged)) as steps:
            for step in steps:
                if step.result is not None:
                    self._keep(request, step.result)
                yield step

    def known(self, lake: BisectLake, snapshot: Snapshot, request: BisectRequest) -> Bisection | None:
        """The finished result of this search, None when there is none; raises what `resolve_version` raises."""
        good, bad = (named_version(lake, snapshot.ref, end) for end in (request.good, request.bad))
        latest = lake.latest_version(snapshot.ref) if bad is None else bad
        return self._results.get(
            (snapshot.ref.uri, snapshot.metadata.id, request.condition.strip(), good, latest, request.check)
        )

    def held(self, lake: HeldLake, snapshot: Snapshot, ends: tuple[int, int]) -> tuple[Held, ...]:
        """What columns hold between two versions; see `load_held`. Quantiles are read of small ends."""
        key = snapshot.ref.uri, snapshot.metadata.id, *ends
        ref = snapshot.ref
        return self._held.get_or_make(key, lambda: with_quantiles(lake, ref, load_held(lake, ref, ends)))

    def _keep(self, request: BisectRequest, found: Bisection) -> None:
        ends = {found.good} | ({None} if request.good in (None, OLDEST) else set())
        for good in ends:
            key = found.ref.uri, found.table_id, request.condition.strip(), good, found.bad, request.check
            self._results.put(key, found)
