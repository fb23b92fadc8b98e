"""The table whose versions are compared: rows by pyarrow, its log written straight.

Rule: a row is a function of its id and of how often it was changed, so the same scale gives the same table. It is
complete or not there (made beside its place, then renamed).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.worlds.lake.builders import CHANGE_FEED, HandLog, add, commit_info, metadata, protocol, remove
from tests.worlds.lake.large_logs import COMMIT_EVERY_MS, STARTED_MS, Integers, made

FORMAT = "2"  # part of the cache's name: a change of what is written makes a new table
FILES, COMPACTED = 50, 25
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
_STATES = pa.array(["new", "paid", "sent", "done", "void"])
Rows = tuple[Integers, Integers]  # ids, and how often each was changed
Which = Callable[[Integers], npt.NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class Part:
    """One data file: its rows, each by its id and how often it was changed."""

    name: str
    ids: Integers
    changed: Integers

    def table(self) -> pa.Table:
        """Eight columns, some 75 bytes a row in Arrow."""
        ids, changed = self.ids, self.changed
        customer = ids * 2_654_435_761 % 100_003
        names = pc.binary_join_element_wise("customer", pa.array(np.arange(100_003)).cast(pa.string()), "-")
        columns = [
            pa.array(ids),
            pa.array(customer),
            names.take(pa.array(customer)),
            _STATES.take(pa.array((ids + changed) % len(_STATES))),
            pa.array((ids * 7_919 + changed * 13) % 1_000_000 / 100),
            pa.array((ids % 9 + 1).astype(np.int32)),
            pa.array((20_000 + ids // 20_000).astype(np.int32)).cast(pa.date32()),
            pc.binary_join_element_wise("order of", pa.array(ids % 9_973).cast(pa.string()), "by post", " "),
        ]
        return pa.table(columns, names=list(SCHEMA))


def make_table(folder: Path, scale: float) -> Path:
    """The table's folder; made where missing."""
    place = folder / f"weir-bench-diff-{FORMAT}-{scale:g}" / "orders"
    return made(place, lambda table: _Writer(table).write(max(FILES * 20, round(5_000_000 * scale))))


class _Writer:
    def __init__(self, table: Path) -> None:
        self._table, self._log = table, HandLog(table)
        self._live: list[Part] = []
        table.mkdir(parents=True)

    def write(self, count: int) -> None:
        """v0 rows · v1 update 2 % · v2 delete 1 % · v3 append 2 % · v4 merge 2 % · v5 compaction · v6 scattered update
        0.1 % · v7 update of all, with the change feed on."""
        part = count // 100
        self._commit("WRITE", [], _split(_fresh(0, count), FILES), head=[protocol(1, 4), _metadata({})])
        self._change("UPDATE", lambda ids: (ids >= 21 * part) & (ids < 23 * part))
        self._change("DELETE", lambda ids: (ids >= 40 * part) & (ids < 41 * part))
        self._commit("WRITE", [], [_fresh(count, count + 2 * part)])
        new = _fresh(count + 2 * part, count + 3 * part)
        self._change("MERGE", lambda ids: (ids >= 60 * part) & (ids < 61 * part), more=[new])
        ids, changed = (np.concatenate([getattr(part, name) for part in self._live]) for name in ("ids", "changed"))
        order = np.argsort(ids)
        self._commit("OPTIMIZE", self._live, _split((ids[order], changed[order]), COMPACTED), is_change=False)
        self._change("UPDATE", lambda ids: ids % 1_000 == 7)
        self._change("UPDATE", lambda ids: ids >= 0, head=[_metadata(CHANGE_FEED)], feed=True)

    def _change(self, operation: str, which: Which, *, more: Sequence[Rows] = (), **how: Any) -> None:
        """Rows changed once more or deleted, copied on write as engines without deletion vectors do."""
        gone = [part for part in self._live if which(part.ids).any()]
        if operation == "DELETE":
            came = [(part.ids[~which(part.ids)], part.changed[~which(part.ids)]) for part in gone]
        else:
            came = [(part.ids, part.changed + which(part.ids)) for part in gone]
        self._commit(operation, gone, [*came, *more], **how)

    def _commit(
        self,
        operation: str,
        gone: Sequence[Part],
        rows: Sequence[Rows],
        *,
        head: Sequence[Any] = (),
        is_change: bool = True,
        feed: bool = False,
    ) -> None:
        version = self._log.next_version
        came = [Part(f"part-v{version}-{number:05d}.snappy.parquet", *each) for number, each in enumerate(rows)]
        with ThreadPoolExecutor(2) as pool:
            sizes = list(pool.map(self._put, came))
            cdc = list(pool.map(self._put_changes, gone, came)) if feed else []
        at = STARTED_MS + version * COMMIT_EVERY_MS
        removes = [remove(part.name, size=None, deletionTimestamp=at, dataChange=is_change) for part in gone]
        adds = [_add(part, size, at, is_change=is_change) for part, size in zip(came, sizes, strict=True)]
        self._log.commit(commit_info(operation, timestamp=at), *head, *removes, *adds, *cdc)
        left = {part.name for part in gone}
        self._live = [*(part for part in self._live if part.name not in left), *came]

    def _put(self, part: Part) -> int:
        path = self._table / part.name
        pq.write_table(part.table(), path)
        return path.stat().st_size

    def _put_changes(self, gone: Part, came: Part) -> Mapping[str, Any]:
        """Before and after of each row beside each other, as Delta on Spark writes them."""
        half = len(gone.ids)
        kinds = pa.array(["update_preimage", "update_postimage"]).take(pa.array(np.arange(2 * half) // half))
        both = pa.concat_tables([gone.table(), came.table()]).append_column("_change_type", kinds)
        path = f"_change_data/cdc-{came.name}"
        (self._table / path).parent.mkdir(exist_ok=True)
        order = np.arange(2 * half).reshape(2, half).T.ravel()
        pq.write_table(both.take(pa.array(order)).combine_chunks(), self._table / path)
        size = (self._table / path).stat().st_size
        return {"cdc": {"path": path, "partitionValues": {}, "size": size, "dataChange": False}}


def _fresh(first: int, end: int) -> Rows:
    return np.arange(first, end), np.zeros(end - first, np.int64)


def _split(rows: Rows, files: int) -> list[Rows]:
    return list(zip(*(np.array_split(column, files) for column in rows), strict=True))


def _metadata(properties: Mapping[str, str]) -> Any:
    configuration = {"weir.primaryKey": "id", **properties}
    return metadata(SCHEMA, configuration=configuration, table_id="5bd04c5e-0000-4000-8000-000000000005")


def _add(part: Part, size: int, at: int, *, is_change: bool) -> Any:
    low, high = int(part.ids.min()), int(part.ids.max())
    stats = {"numRecords": len(part.ids), "minValues": {"id": low}, "maxValues": {"id": high}, "nullCount": {"id": 0}}
    return add(part.name, size=size, modificationTime=at, dataChange=is_change, stats=json.dumps(stats))
