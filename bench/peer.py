"""What is measured of `deltalake`: each task as its users would write it, the handle opened inside the clock."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from bench.harness import Watch
from bench.tables import append_commit

Answer = dict[str, Any]


def history(watch: Watch, *, uri: str, limit: int, options: Mapping[str, str] | None = None) -> list[Any]:
    """Version, time and operation of the newest commits."""
    with watch:
        found = DeltaTable(uri, storage_options=dict(options) if options else None).history(limit)
    return [[each["version"], each["timestamp"], each["operation"]] for each in found]


def distribution(watch: Watch, *, uri: str) -> Answer:
    """Sizes in powers of two, and files and bytes per day."""
    with watch:
        files = pa.table(DeltaTable(uri).get_add_actions(flatten=True))
        sizes = files["size_bytes"].to_numpy()
        exponents = np.frexp(sizes)[1]
        counts, totals = np.bincount(exponents), np.bincount(exponents, sizes)
        found = files.group_by("partition.day").aggregate([("size_bytes", "count"), ("size_bytes", "sum")])
    rows = zip(*(column.to_pylist() for column in found.columns), strict=True)
    days = sorted([str(day), count, size] for day, count, size in _by_name(found.column_names, rows))
    buckets = [[e, int(counts[e]), int(totals[e])] for e in range(len(counts)) if counts[e]]
    return {"files": files.num_rows, "buckets": buckets, "days": days}


def _by_name(names: Sequence[str], rows: Any) -> list[Any]:
    order = [names.index(n) for n in ("partition.day", "size_bytes_count", "size_bytes_sum")]
    return [[row[at] for at in order] for row in rows]


def refresh(watch: Watch, *, uri: str, commits: Mapping[str, str]) -> Answer:
    """An open handle moved on by each new commit; what a page asks for next is not in the clock."""
    table = DeltaTable(uri)
    for version, text in commits.items():
        append_commit(uri, int(version), text)
        with watch:
            table.update_incremental()
    sizes = pa.table(table.get_add_actions(flatten=True))["size_bytes"].to_numpy()
    newest = [[each["version"], each["timestamp"], each["operation"]] for each in table.history(20)]
    return {"version": table.version(), "files": len(sizes), "bytes": int(sizes.sum()), "newest": newest}


def versions(watch: Watch, *, uri: str, chosen: Sequence[int]) -> list[Any]:
    """Files and bytes of versions, each opened anew; only the opening is in the clock."""
    found = []
    for version in chosen:
        with watch:
            table = DeltaTable(uri, version=version)
        sizes = pa.table(table.get_add_actions(flatten=True))["size_bytes"].to_numpy()
        found.append([version, len(sizes), int(sizes.sum())])
    return found
