"""Whether the change data feed can answer for a range of versions, and are its files there.

Rule: everything is checked before deltalake is asked, because its errors do not say which version or file.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from backend.errors import DataFileMissingError, DiffError, LakehouseError
from backend.lake.log.actions import Kind
from backend.lake.log.commits import CommitSlice
from backend.lake.log.log import TableLog
from backend.lake.model import Snapshot
from backend.lake.storage.paths import is_remote, is_within, resolve_log_path
from backend.lake.storage.storage import Storage
from backend.lake.table.property_values import is_on

FEED = "delta.enableChangeDataFeed"
MAPPING = "delta.columnMapping.mode"


@dataclass(frozen=True, slots=True)
class ChangeFeedSupport:
    """`first_covered_version` is the oldest version of the range from which the feed answers up to its end."""

    covered: bool
    first_covered_version: int | None
    reason: str
    hint: str = ""


def change_feed_support(log: TableLog, from_version: int, to_version: int) -> ChangeFeedSupport:
    """Walk back from `to_version` as long as the feed was on and the commits are there."""
    latest = log.latest()
    if not 0 <= from_version < to_version <= latest:
        return ChangeFeedSupport(False, None, f"versions {from_version} to {to_version} are no range of 0 to {latest}")
    enabled = _enabled_from(log, from_version, to_version)
    if enabled is None:
        return ChangeFeedSupport(
            False, None, f"the change feed was off at version {to_version}", hint=f"set {FEED}=true to record changes"
        )
    beyond = _beyond_reader(log, enabled, to_version)
    if beyond is not None:
        version, reason = beyond
        return ChangeFeedSupport(
            False,
            version if version < to_version else None,
            reason,
            hint="the engine that writes the table can read it",
        )
    first = enabled - 1
    if from_version >= first:
        return ChangeFeedSupport(True, first, "the change feed is on for each commit of the range")
    return ChangeFeedSupport(
        False,
        first if first < to_version else None,
        f"the change feed does not cover version {first}: it was off, or its commit was cleaned away",
        hint=f"compare from version {first} on",
    )


def require_feed(log: TableLog, version: int) -> None:
    """Raise `DiffError` when the feed was off at a commit, `VersionNotFoundError` when it is not there."""
    if not is_on(log.state(version).metadata.configuration, FEED):
        raise DiffError(f"the change feed was off at version {version}", hint=f"set {FEED}=true to record changes")


def change_files(commits: Iterable[CommitSlice]) -> list[str]:
    """The files that the feed of these commits is read from: change files where a commit has them, else its data."""
    paths: list[str] = []
    for commit in commits:
        paths += _feed_files(commit.actions)["path"].to_pylist()
    return paths


def _feed_files(actions: pa.Table) -> pa.Table:
    if not actions.num_rows:
        return actions
    feed = actions.filter(pc.equal(actions["kind"], int(Kind.CDC)))
    return feed if feed.num_rows else actions.filter(actions["data_change"])


def _beyond_reader(log: TableLog, first: int, last: int) -> tuple[int, str] | None:
    """The newest commit whose feed deltalake cannot read, and why (found by trying, deltalake 1.6.6)."""
    if log.state(last).metadata.configuration.get(MAPPING, "none").lower() != "none":
        return last, "the change feed of a table with column mapping cannot be read yet"
    for version in range(last, first - 1, -1):
        files = _feed_files(log.commits([version])[0].actions)
        if not files.num_rows:
            continue
        if pc.any(files["is_encoded"]).as_py():
            return version, f"commit {version} names files with percent-encoded paths, which the feed's reader misses"
        if _has_lone_vector(files):
            return (
                version,
                f"commit {version} removes or adds whole files with deletion vectors, which the feed's reader misreads",
            )
    return None


def _has_lone_vector(files: pa.Table) -> bool:
    """Whether a file with a deletion vector comes or goes: of it deltalake gives the rows that the vector marks. A file
    that the commit both removes and adds has only got another vector, which it reads well."""
    if not pc.any(pc.is_valid(files["dv_id"])).as_py():
        return False
    lone = files.group_by("path").aggregate([("kind", "count_distinct"), ("dv_id", "count")])
    return bool(pc.any(pc.and_(pc.less(lone["kind_count_distinct"], 2), pc.greater(lone["dv_id_count"], 0))).as_py())


def require_files(storage: Storage, snapshot: Snapshot, paths: Iterable[str]) -> None:
    """Raise `PathRefusedError` for a local file whose symlink leads outside, `DataFileMissingError` for one gone."""
    table = snapshot.ref.uri
    here = storage.folder(table)
    for path in paths:
        place = resolve_log_path(path, table, storage.roots)
        if is_remote(place):
            continue
        folder = here if is_within(place, table) else storage.folder(storage.root_of(place))
        if folder.stat(place.removeprefix(folder.uri).lstrip("/")) is None:
            raise DataFileMissingError(f"{path} of {table} is gone", hint="it was vacuumed or deleted by hand")


def _enabled_from(log: TableLog, from_version: int, to_version: int) -> int | None:
    """The oldest commit after `from_version` from which the feed was on without a break up to `to_version`."""
    found: int | None = None
    try:
        metadata = log.state(to_version).metadata
        for version in range(to_version, from_version, -1):
            if not is_on(metadata.configuration, FEED):
                break
            changed = log.commits([version])[0].record.metadata is not None
            found = version
            metadata = log.state(version - 1).metadata if changed else metadata
    except LakehouseError:  # a commit or a state before it cannot be had: not from there
        return found
    return found
