"""The table whose versions are compared: rows by pyarrow, its log written straight.

Rule: a row is a function of its id and of how often it was changed, so the same scale gives the same table. It is
complete or not there (made beside its place, then renamed).
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.tables import COMMIT_EVERY_MS, STARTED_MS
from tests.worlds.lake.builders import HandLog, add, commit_info, metadata, protocol, remove

FORMAT = "2"  # part of the cache's name: a change of what is written makes a new table
FILES, COMPACTED = 50, 25
Integers = npt.NDArray[np.int64]

_STATES = pa.array(["new", "paid", "sent", "done", "void"])
SCHEMA = {
    "id": "long",
    "customer": "long",
    "name": "string",
    "state": "string",
    "amount": "double",
    "quantity": "integer",
    "day": "date",
    "note": "string",
}
ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.int64()),
        ("name", pa.string()),
        ("state", pa.string()),
        ("amount", pa.float64()),
        ("quantity", pa.int32()),
        ("day", pa.date32()),
        ("note", pa.string()),
    ]
)
CHANGES = ARROW.append(pa.field("_change_type", pa.string()))


@dataclass(frozen=True, slots=True)
class Part:
    """One data file: its rows, each by its id and how often it was changed."""

    name: str
    ids: Integers
    changed: Integers

    def table(self) -> pa.Table:
        return rows(self.ids, self.changed)


def rows(ids: Integers, changed: Integers) -> pa.Table:
    """Eight columns, some 75 bytes a row in Arrow."""
    customer = ids * 2_654_435_761 % 100_003
    names = pc.binary_join_element_wise("customer", pa.array(np.arange(100_003)).cast(pa.string()), "-")
    notes = pc.binary_join_element_wise("order of", pa.array(ids % 9_973).cast(pa.string()), pa.scalar("by post"), " ")
    columns = [
        pa.array(ids),
        pa.array(customer),
        names.take(pa.array(customer)),
        _STATES.take(pa.array((ids + changed) % len(_STATES))),
        pa.array((ids * 7_919 + changed * 13) % 1_000_000 / 100),
        pa.array((ids % 9 + 1).astype(np.int32)),
        pa.array((20_000 + ids // 20_000).astype(np.int32)).cast(pa.date32()),
        notes,
    ]
    return pa.table(columns, schema=ARROW)


def make_table(folder: Path, scale: float) -> Path:
    """The table's folder; made where missing."""
    place = folder / f"weir-bench-diff-{FORMAT}-{scale:g}" / "orders"
    if place.is_dir():
        return place
    beside = place.with_name("orders.part")
    shutil.rmtree(beside, ignore_errors=True)
    (beside / "_delta_log").mkdir(parents=True)
    _Writer(beside).write(max(FILES * 20, round(5_000_000 * scale)))
    beside.rename(place)
    return place


class _Writer:
    def __init__(self, table: Path) -> None:
        self._table = table
        self._live: list[Part] = []
        self._sizes: dict[str, int] = {}
        self._log = HandLog(table)

    def write(self, count: int) -> None:
        """v0 rows · v1 update 2 % · v2 delete 1 % · v3 append 2 % · v4 merge 2 % · v5 compaction · v6 scattered update
        0.1 % · v7 update of all, with the change feed on."""
        part = count // 100
        self._commit("WRITE", [], self._split(np.arange(count), np.zeros(count, np.int64), FILES), head=_head({}))
        self._change("UPDATE", lambda ids: (ids >= 21 * part) & (ids < 23 * part))
        self._delete(lambda ids: (ids >= 40 * part) & (ids < 41 * part))
        self._commit("WRITE", [], [self._fresh(np.arange(count, count + 2 * part))])
        new = self._fresh(np.arange(count + 2 * part, count + 3 * part))
        self._change("MERGE", lambda ids: (ids >= 60 * part) & (ids < 61 * part), more=[new])
        self._commit("OPTIMIZE", self._live, self._all(COMPACTED), is_change=False)
        self._change("UPDATE", lambda ids: ids % 1_000 == 7)
        feed = {"delta.enableChangeDataFeed": "true"}
        self._change("UPDATE", lambda ids: ids >= 0, head=_head(feed)[1:], feed=True)

    def _change(self, operation: str, which: Any, *, more: Sequence[Part] = (), **how: Any) -> None:
        """Rows changed once more, copied on write as engines without deletion vectors do."""
        gone = [part for part in self._live if which(part.ids).any()]
        came = [Part(self._name(n), part.ids, part.changed + which(part.ids)) for n, part in enumerate(gone)]
        named = [Part(self._name(len(came) + n), part.ids, part.changed) for n, part in enumerate(more)]
        self._commit(operation, gone, [*came, *named], **how)

    def _delete(self, which: Any) -> None:
        gone = [part for part in self._live if which(part.ids).any()]
        kept = [(part.ids[~which(part.ids)], part.changed[~which(part.ids)]) for part in gone]
        self._commit("DELETE", gone, [Part(self._name(n), *each) for n, each in enumerate(kept)])

    def _fresh(self, ids: Integers) -> Part:
        return Part(self._name(0), ids, np.zeros(len(ids), np.int64))

    def _all(self, files: int) -> list[Part]:
        ids, changed = (np.concatenate([getattr(part, name) for part in self._live]) for name in ("ids", "changed"))
        order = np.argsort(ids)
        return self._split(ids[order], changed[order], files)

    def _split(self, ids: Integers, changed: Integers, files: int) -> list[Part]:
        pairs = zip(np.array_split(ids, files), np.array_split(changed, files), strict=True)
        return [Part(self._name(n), *pair) for n, pair in enumerate(pairs)]

    def _name(self, number: int) -> str:
        return f"part-v{self._log.next_version}-{number:05d}.snappy.parquet"

    def _commit(
        self,
        operation: str,
        gone: Sequence[Part],
        came: Sequence[Part],
        *,
        head: Sequence[Any] = (),
        is_change: bool = True,
        feed: bool = False,
    ) -> None:
        with ThreadPoolExecutor(2) as pool:
            self._sizes |= dict(zip([part.name for part in came], pool.map(self._put, came), strict=True))
            cdc = list(pool.map(self._put_changes, gone, came)) if feed else []
        at = STARTED_MS + self._log.next_version * COMMIT_EVERY_MS
        removes = [remove(part.name, size=None, deletionTimestamp=at, dataChange=is_change) for part in gone]
        adds = [_add(part, self._sizes[part.name], at, is_change=is_change) for part in came]
        self._log.commit(commit_info(operation, timestamp=at), *head, *removes, *adds, *cdc)
        left = {part.name for part in gone}
        self._live = [*(part for part in self._live if part.name not in left), *came]

    def _put(self, part: Part) -> int:
        path = self._table / part.name
        pq.write_table(part.table(), path)
        return path.stat().st_size

    def _put_changes(self, gone: Part, came: Part) -> Mapping[str, Any]:
        """Before and after of each row beside each other, as Delta on Spark writes them."""
        kinds = pa.array(["update_preimage", "update_postimage"])
        half = len(gone.ids)
        both = pa.concat_tables([gone.table(), came.table()])
        both = both.append_column(CHANGES[-1], kinds.take(pa.array(np.arange(2 * half) // half)))
        path = f"_change_data/cdc-{came.name}"
        (self._table / path).parent.mkdir(exist_ok=True)
        order = np.arange(2 * half).reshape(2, half).T.ravel()
        pq.write_table(both.take(pa.array(order)).combine_chunks(), self._table / path)
        size = (self._table / path).stat().st_size
        return {"cdc": {"path": path, "partitionValues": {}, "size": size, "dataChange": False}}


def _head(properties: Mapping[str, str]) -> list[Any]:
    configuration = {"weir.primaryKey": "id", **properties}
    return [
        protocol(1, 4),
        metadata(SCHEMA, configuration=configuration, table_id="5bd04c5e-0000-4000-8000-000000000005"),
    ]


def _add(part: Part, size: int, at: int, *, is_change: bool) -> Any:
    low, high = int(part.ids.min()), int(part.ids.max())
    stats = {"numRecords": len(part.ids), "minValues": {"id": low}, "maxValues": {"id": high}, "nullCount": {"id": 0}}
    return add(part.name, size=size, modificationTime=at, dataChange=is_change, stats=json.dumps(stats))
