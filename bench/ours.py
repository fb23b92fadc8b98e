"""What is measured of Weir: each task through the same `Lake` calls as the pages make.

Rule: a fresh `Lake` in an empty home, opened inside the clock, unless a task is about a `Lake` that lives on. Only
which table is meant is known before, as the peer knows its URI.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from backend.lake.files.file_sizes import distribute
from backend.lake.lake import Lake
from backend.lake.model import Bucket, Commit, TableRef
from backend.settings import Settings, load_settings
from bench.harness import Watch
from bench.tables import append_commit

Answer = dict[str, Any]


def _settings(uri: str, *, home: str | None = None, options: Mapping[str, str] | None = None) -> Settings:
    """For a lake whose root is the table's folder; looks for news whenever it is asked."""
    place = Path(home or os.environ["WEIR_HOME"])
    (place / "cache").mkdir(parents=True, exist_ok=True)
    root = uri.rpartition("/")[0]
    lake: dict[str, Any] = {"roots": [root], "refresh_s": 0.001}
    if options:
        lake["storage_options"] = {root: dict(options)}
    return load_settings(home=place, lake=lake)


def _ref(settings: Settings, uri: str) -> TableRef:
    return TableRef(uri, uri.rpartition("/")[2], settings.roots[0])


def history(watch: Watch, *, uri: str, limit: int, options: Mapping[str, str] | None = None) -> list[Any]:
    """Version, time and operation of the newest commits."""
    settings = _settings(uri, options=options)
    ref = _ref(settings, uri)
    with watch:
        found = Lake(settings).history(ref, limit=limit)
    return _commits(found)


def warm_history(watch: Watch, *, uri: str, limit: int, times: int = 5) -> list[Any]:
    """The same asked again of a `Lake` that has answered it: what the second viewer pays."""
    lake = Lake(_settings(uri))
    ref = lake.find(uri)
    found = lake.history(ref, limit=limit)
    for _ in range(times):
        with watch:
            found = lake.history(ref, limit=limit)
    return _commits(found)


def distribution(watch: Watch, *, uri: str) -> Answer:
    """What the Files page works out of a snapshot at once; rows per partition come with their list."""
    settings = _settings(uri)
    ref = _ref(settings, uri)
    with watch:
        lake = Lake(settings)
        snapshot = lake.snapshot(ref)
        target, rule = lake.target_bytes(snapshot), settings.health
        found = distribute(snapshot, target, ratio=rule.small_file_ratio, min_files=rule.min_files, with_rows=False)
    days = [[p.partition.removeprefix("day="), p.num_files, p.size_bytes] for p in found.partitions]
    return {"files": found.num_files, "buckets": _buckets(found.buckets), "days": sorted(days)}


def checksum_histogram(watch: Watch, *, uri: str) -> Answer:
    """The histogram alone, as the newest version's `.crc` has it."""
    settings = _settings(uri)
    ref = _ref(settings, uri)
    with watch:
        lake = Lake(settings)
        said = lake.checksum(ref, lake.latest_version(ref))
    assert said is not None and said.buckets is not None
    return {"files": said.num_files, "buckets": _buckets(said.buckets)}


def refresh(watch: Watch, *, uri: str, commits: Mapping[str, str]) -> Answer:
    """A `Lake` that lives on: latest version, totals and the newest commits after each new commit."""
    lake = Lake(_settings(uri))
    ref = lake.find(uri)
    before = lake.snapshot(ref)
    _, _, _ = before.num_files, before.size_bytes, lake.history(ref, limit=20)
    for version, text in commits.items():
        append_commit(uri, int(version), text)
        with watch:
            latest, snapshot = lake.latest_version(ref), lake.snapshot(ref)
            files, size_bytes, newest = snapshot.num_files, snapshot.size_bytes, lake.history(ref, limit=20)
        assert latest == int(version), "the new commit was not seen"
    return {"version": latest, "files": files, "bytes": size_bytes, "newest": _commits(newest)}


def timeline(watch: Watch, *, uri: str, chosen: Sequence[int], home: str | None = None) -> list[Any]:
    """Totals of every version; `home`: where an earlier process may have left them."""
    settings = _settings(uri, home=home)
    ref = _ref(settings, uri)
    with watch:
        found = Lake(settings).timeline(ref)
    of = {each.version: each for each in found.totals}
    return [[version, of[version].num_files, of[version].size_bytes] for version in chosen]


def _commits(found: Iterable[Commit]) -> list[Any]:
    return [[c.version, c.reported_at and int(c.reported_at.timestamp() * 1000), c.operation] for c in found]


def _buckets(found: Iterable[Bucket]) -> list[Any]:
    return [[b.to_bytes.bit_length() - 1, b.files, b.bytes] for b in found if b.files]
