"""Whether the change data feed can answer for a range of versions, and are its files there.

Rule: everything is checked before deltalake is asked, because its errors do not say which version or file.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from backend.errors import DataFileMissingError, LakehouseError
from backend.lake.log import TableLog
from backend.lake.model import Metadata, Snapshot
from backend.lake.paths import is_remote, is_within, resolve_log_path
from backend.lake.storage import Storage

FEED = "delta.enableChangeDataFeed"


@dataclass(frozen=True, slots=True)
class ChangeFeedSupport:
    """`first_covered_version` is the oldest `from_version` from which the feed answers up to the range's end."""

    covered: bool
    first_covered_version: int | None
    reason: str
    hint: str = ""


def change_feed_support(log: TableLog, from_version: int, to_version: int) -> ChangeFeedSupport:
    """Walk back from `to_version` as long as the feed was on and the commits are there."""
    latest = log.latest()
    if not 0 <= from_version < to_version <= latest:
        return ChangeFeedSupport(False, None, f"versions {from_version} to {to_version} are no range of 0 to {latest}")
    enabled = _enabled_from(log, to_version)
    if enabled is None:
        return ChangeFeedSupport(
            False, None, f"the change feed was off at version {to_version}", hint=f"set {FEED}=true to record changes"
        )
    first = max(0, enabled - 1)
    if from_version >= first:
        return ChangeFeedSupport(True, first, f"the change feed is on from version {first + 1}")
    return ChangeFeedSupport(
        False,
        first if first < to_version else None,
        f"the change feed does not cover version {first}: it was off, or its commit was cleaned away",
        hint=f"compare from version {first} on",
    )


def require_files(storage: Storage, snapshot: Snapshot, paths: Iterable[str], *, exist: bool) -> None:
    """Raise `PathRefusedError` for a file that leads outside through a symlink, `DataFileMissingError` if gone."""
    table = snapshot.ref.uri
    for path in paths:
        place = resolve_log_path(path, table, storage.roots)
        if is_remote(place):
            continue
        inside = is_within(place, table)
        folder = storage.folder(table if inside else storage.root_of(place))
        if folder.stat(place.removeprefix(folder.uri).lstrip("/")) is None and exist:
            raise DataFileMissingError(f"{path} of {table} is gone", hint="it was vacuumed or deleted by hand")


def _enabled_from(log: TableLog, to_version: int) -> int | None:
    """The oldest commit from which the feed was on without a break up to `to_version`."""
    listing = log.listing()
    try:
        metadata: Metadata | None = log.state(to_version).metadata
    except LakehouseError:
        return None
    found: int | None = None
    for version in range(to_version, -1, -1):
        if version not in listing.commits or not _is_on(metadata):
            break
        found = version
        metadata = _metadata_before(log, version, metadata)
        if metadata is None:
            break
    return found


def _metadata_before(log: TableLog, version: int, after: Metadata | None) -> Metadata | None:
    """The metadata that held before a commit: the same unless the commit changed it."""
    if log.commits([version])[0].record.metadata is None:
        return after
    try:
        return log.state(version - 1).metadata if version else None
    except LakehouseError:
        return None


def _is_on(metadata: Metadata | None) -> bool:
    return metadata is not None and metadata.configuration.get(FEED, "").lower() == "true"
