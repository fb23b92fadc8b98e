"""The rows that a repair takes from a former version, or from another table, in the place of those that are there.

Rule: they come as they are: where columns differ, nothing is guessed.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from backend.errors import QueryError
from backend.lake.lake import Lake
from backend.lake.model import Snapshot
from backend.lake.retention.answers import Reach, judge_version
from backend.lake.retention.runs import judge
from backend.maintenance.alter import column_kinds
from backend.maintenance.model import Repair
from backend.maintenance.rows_hit import RowsHit, count_hit
from backend.settings import Settings

_NOT_COUNTED = RowsHit(None, None)


@dataclass(frozen=True, slots=True)
class Incoming:
    """`asked` names table and version now. `source`: of people, "v3"; `refused`: why its rows cannot be taken."""

    asked: Repair
    source: str
    hit: RowsHit = _NOT_COUNTED
    refused: str = ""
    way_out: str = ""


def load_incoming(lake: Lake, snapshot: Snapshot, asked: Repair, settings: Settings, now: datetime) -> Incoming | None:
    """None where no rows come from elsewhere. Raises as `count_hit`, and where there is no such table or version."""
    if not asked.takes_rows:
        return None
    if asked.values:
        raise QueryError("rows that come from elsewhere come as they are", hint="leave out --set, or --from-…")
    ref = lake.find(asked.from_table) if asked.from_table else snapshot.ref
    version = lake.latest_version(ref) if asked.from_version is None else asked.from_version
    is_own = ref.uri == snapshot.ref.uri
    source = f"v{version}" if is_own else f"{ref.name} v{version}"
    incoming = Incoming(replace(asked, from_version=version, from_table=None if is_own else ref.uri), source)
    if is_own and version == snapshot.version:
        return replace(incoming, refused=f"{source} is the latest version", way_out="choose an earlier one")
    then = lake.snapshot(ref, version)
    if odd := _differences(snapshot, then):
        words = f"the columns of {source} are others: {'; '.join(odd)}"
        return replace(incoming, refused=words, way_out="repair with --set, or change the columns first: weir alter")
    travel = judge_version(judge(lake.retention_facts(ref), now), version).time_travel
    if travel.verdict is Reach.NO:
        return replace(incoming, refused=travel.reasons[0], way_out="choose a later version")
    return replace(incoming, hit=count_hit(lake, then, Repair(asked.where), settings))


def _differences(now: Snapshot, then: Snapshot) -> list[str]:
    """ "price double → int", as rows would have to change to come."""
    here, there = column_kinds(now.metadata), column_kinds(then.metadata)
    names = [name for name in {**here, **there} if here.get(name) != there.get(name)]
    return [f"{name} {there.get(name, 'missing')}, here {here.get(name, 'missing')}" for name in names]
