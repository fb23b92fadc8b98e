"""What `bench.lake` times: Weir through the `Lake` calls that its pages make, and `deltalake` as its users write it.

Rule: a fresh `Lake` in an empty home, or a fresh handle, is opened inside the clock, unless a task is about one that
lives on. Only which table is meant is known before, as the peer knows its URI.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from backend.lake.files.file_sizes import distribute
from backend.lake.lake import Lake
from backend.lake.model import Bucket, Commit
from bench.harness import Watch
from tests.worlds.lake.large_logs import append_commit, opened

Answer = dict[str, Any]


def our_history(watch: Watch, *, uri: str, limit: int, options: Mapping[str, str] | None = None) -> list[Any]:
    """Version, time and operation of the newest commits."""
    lake = {"storage_options": {uri.rpartition("/")[0]: dict(options)}} if options else {}
    settings, ref = opened(uri, **lake)
    with watch:
        newest = Lake(settings).history(ref, limit=limit)
    return _commits(newest)


def their_history(watch: Watch, *, uri: str, limit: int, options: Mapping[str, str] | None = None) -> list[Any]:
    with watch:
        newest = DeltaTable(uri, storage_options=dict(options) if options else None).history(limit)
    return _told_commits(newest)


def our_warm_history(watch: Watch, *, uri: str, limit: int, times: int = 5) -> list[Any]:
    """The same asked again of a `Lake` that has answered it: what the second viewer pays."""
    settings, ref = opened(uri)
    lake = Lake(settings)
    newest = lake.history(ref, limit=limit)
    for _ in range(times):
        with watch:
            newest = lake.history(ref, limit=limit)
    return _commits(newest)


def our_distribution(watch: Watch, *, uri: str) -> Answer:
    """What the Files page works out of a snapshot at once; rows per partition come with their list."""
    settings, ref = opened(uri)
    with watch:
        lake = Lake(settings)
        snapshot = lake.snapshot(ref)
        target, rule = lake.target_bytes(snapshot), settings.health
        sizes = distribute(snapshot, target, ratio=rule.small_file_ratio, min_files=rule.min_files, with_rows=False)
    days = [[p.partition.removeprefix("day="), p.num_files, p.size_bytes] for p in sizes.partitions]
    return {"files": sizes.num_files, "buckets": _buckets(sizes.buckets), "days": sorted(days)}


def their_distribution(watch: Watch, *, uri: str) -> Answer:
    """Sizes in powers of two, and files and bytes per day."""
    with watch:
        files = pa.table(DeltaTable(uri).get_add_actions(flatten=True))
        sizes = files["size_bytes"].to_numpy()
        exponents = np.frexp(sizes)[1]
        counts, totals = np.bincount(exponents), np.bincount(exponents, sizes)
        by_day = files.group_by("partition.day").aggregate([("size_bytes", "count"), ("size_bytes", "sum")])
    rows = by_day.select(["partition.day", "size_bytes_count", "size_bytes_sum"]).to_pydict().values()
    days = sorted([str(day), count, size] for day, count, size in zip(*rows, strict=True))
    buckets = [[e, int(counts[e]), int(totals[e])] for e in range(len(counts)) if counts[e]]
    return {"files": files.num_rows, "buckets": buckets, "days": days}


def our_checksum_histogram(watch: Watch, *, uri: str) -> Answer:
    """The histogram alone, as the newest version's `.crc` has it."""
    settings, ref = opened(uri)
    with watch:
        lake = Lake(settings)
        checksum = lake.checksum(ref, lake.latest_version(ref))
    assert checksum is not None and checksum.buckets is not None
    return {"files": checksum.num_files, "buckets": _buckets(checksum.buckets)}


def our_refresh(watch: Watch, *, uri: str, commits: Mapping[str, str]) -> Answer:
    """A `Lake` that lives on: latest version, totals and the newest commits after each new commit."""
    settings, ref = opened(uri)
    lake = Lake(settings)
    before = lake.snapshot(ref)
    _, _, _ = before.num_files, before.size_bytes, lake.history(ref, limit=20)
    for version, text in commits.items():
        append_commit(uri, int(version), text)
        with watch:
            latest, snapshot = lake.latest_version(ref), lake.snapshot(ref)
            files, size_bytes, newest = snapshot.num_files, snapshot.size_bytes, lake.history(ref, limit=20)
        assert latest == int(version), "the new commit was not seen"
    return {"version": latest, "files": files, "bytes": size_bytes, "newest": _commits(newest)}


def their_refresh(watch: Watch, *, uri: str, commits: Mapping[str, str]) -> Answer:
    """An open handle moved on by each new commit; what a page asks for next is not in the clock."""
    table = DeltaTable(uri)
    for version, text in commits.items():
        append_commit(uri, int(version), text)
        with watch:
            table.update_incremental()
    files, size_bytes = _totals(table)
    newest = _told_commits(table.history(20))
    return {"version": table.version(), "files": files, "bytes": size_bytes, "newest": newest}


def our_timeline(watch: Watch, *, uri: str, chosen: Sequence[int]) -> list[Any]:
    """Totals of every version; in its home an earlier process may have left them."""
    settings, ref = opened(uri)
    with watch:
        timeline = Lake(settings).timeline(ref)
    of = {each.version: each for each in timeline.totals}
    return [[version, of[version].num_files, of[version].size_bytes] for version in chosen]


def their_versions(watch: Watch, *, uri: str, chosen: Sequence[int]) -> list[Any]:
    """Files and bytes of versions, each opened anew; only the opening is in the clock."""
    totals = []
    for version in chosen:
        with watch:
            table = DeltaTable(uri, version=version)
        totals.append([version, *_totals(table)])
    return totals


def _commits(commits: Iterable[Commit]) -> list[Any]:
    return [[c.version, c.reported_at and int(c.reported_at.timestamp() * 1000), c.operation] for c in commits]


def _told_commits(commits: Iterable[Mapping[str, Any]]) -> list[Any]:
    return [[commit["version"], commit["timestamp"], commit["operation"]] for commit in commits]


def _buckets(buckets: Iterable[Bucket]) -> list[Any]:
    return [[b.to_bytes.bit_length() - 1, b.files, b.bytes] for b in buckets if b.files]


def _totals(table: DeltaTable) -> tuple[int, int]:
    sizes = pa.table(table.get_add_actions(flatten=True))["size_bytes"].to_numpy()
    return len(sizes), int(sizes.sum())
