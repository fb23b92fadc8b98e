"""Which data files only one of two versions has.

Rule: a file is (path, deletion vector). Only the commits between the versions are read, so the cost is that of the
changes. What they say is believed where the writer's checksums of both versions add up; else the files are looked up
in both states. Where a commit is gone, every file is compared.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backend.errors import VersionNotFoundError
from backend.lake.log.actions import FileAction
from backend.lake.log.file_set import FileSet, last_actions, plain_values
from backend.lake.log.log import TableLog
from backend.lake.model import Metadata
from backend.lake.table.properties import is_row_tracked
from backend.lake.table.schema import show_partitions

# What is told of a file that only one version has: columns of `Snapshot.columns`.
DIFFERENCE_COLUMNS = ("path", "size_bytes", "num_records", "deleted_rows", "partition", "dv_id", "base_row_id")
_NAMED = ("path", "dv_id")  # said by a file's key: a base keeps numbers, not texts


@dataclass(frozen=True, slots=True)
class FileDifference:
    """Files (columns `DIFFERENCE_COLUMNS`) that only the first and only the second state has.

    `rewritten`: by version, how many files a commit in between replaced that says of all its files that no row changed
    (`dataChange` false); None where such a commit is gone.
    """

    only_first: pa.Table
    only_second: pa.Table
    rewritten: Mapping[int, int] | None = None


LookUp = Callable[[TableLog, int, int, pa.Table], FileDifference]


def file_difference(log: TableLog, first: int, second: int, *, look_up: LookUp | None = None) -> FileDifference:
    """Files that differ between two versions; raises what reading the log raises. `look_up` finds the files that
    actions name in both states."""
    low, high = sorted((first, second))
    try:
        commits = log.commits(range(low + 1, high + 1))
    except VersionNotFoundError:
        commits = []
    if len(commits) < high - low or any(commit.record.problem for commit in commits):
        difference = compared(log.state(low).files, log.state(high).files)
    else:
        actions = log.file_actions(commits)
        actions = actions.filter(pc.not_equal(actions["kind"], int(FileAction.CDC)))
        difference = _by_checksums(log, low, high, actions) or (look_up or looked_up)(log, low, high, actions)
        difference = replace(difference, rewritten=_rewritten(actions))
    return (
        difference
        if first <= second
        else FileDifference(difference.only_second, difference.only_first, difference.rewritten)
    )


def compared(first: FileSet, second: FileSet) -> FileDifference:
    """Files that differ between any two sets of one table's folder, compared file by file."""
    ours, theirs = plain_values(first.column("key")), plain_values(second.column("key"))
    return FileDifference(
        first.take(_numbers_without(ours, theirs), DIFFERENCE_COLUMNS),
        second.take(_numbers_without(theirs, ours), DIFFERENCE_COLUMNS),
    )


def _by_checksums(log: TableLog, low: int, high: int, actions: pa.Table) -> FileDifference | None:
    """By what the commits in between say of their files, whatever the size of the table; None where that does not have
    to be all: files may have been described anew, removes do not describe theirs, or no checksums bear it out."""
    before, after = log.checksum(low), log.checksum(high)
    if before is None or after is None or _has_stats_only_adds(actions):
        return None
    gone, came = _removed_and_added(actions)
    old, new = log.state(low).metadata, log.state(high).metadata
    if not _is_by_actions(gone, old):
        return None
    more = came.num_rows - gone.num_rows, _total(came) - _total(gone)
    if more != (after.num_files - before.num_files, after.size_bytes - before.size_bytes):
        return None
    return FileDifference(_as_difference(gone, old), _as_difference(came, new))


def _has_stats_only_adds(actions: pa.Table) -> bool:
    """Whether a commit adds files, says that it changes no data, and removes none: statistics or row ids may come to
    files that were there, and then the writer's checksums are made without these adds."""
    removes = pc.equal(actions["kind"], int(FileAction.REMOVE))
    quiet = actions.filter(pc.and_(pc.invert(removes), pc.invert(actions["data_change"])))["version"].unique()
    return not set(quiet.to_pylist()) <= set(actions.filter(removes)["version"].to_pylist())


def _removed_and_added(actions: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Actions of the files that are gone in the end (first named by a remove, last by no add), and of the new ones."""
    first = last_actions(actions.take(pa.array(np.arange(actions.num_rows)[::-1])))
    last = last_actions(actions)
    was = first.filter(pc.equal(first["kind"], int(FileAction.REMOVE)))
    now = last.filter(pc.equal(last["kind"], int(FileAction.ADD)))
    return _without(was, now["key"]), _without(now, was["key"])


def _without(actions: pa.Table, keys: pa.ChunkedArray) -> pa.Table:
    return actions.filter(pc.invert(pc.is_in(actions["key"], value_set=keys.combine_chunks())))


def _is_by_actions(actions: pa.Table, metadata: Metadata) -> bool:
    """Whether actions say as much of their files as adds with statistics do."""
    wanted = ["size_bytes", "num_records"]
    if is_row_tracked(metadata):
        wanted.append("base_row_id")
    if any(actions[name].null_count for name in wanted):
        return False
    return not metadata.partition_columns or not pc.any(pc.equal(actions["encoded_partition"], "")).as_py()


def _total(actions: pa.Table) -> int:
    return int(pc.sum(actions["size_bytes"]).as_py() or 0)


def _as_difference(actions: pa.Table, metadata: Metadata) -> pa.Table:
    partition = plain_values(show_partitions(actions["encoded_partition"].combine_chunks(), metadata))
    return actions.append_column("partition", partition).select(DIFFERENCE_COLUMNS)


def looked_up(log: TableLog, low: int, high: int, actions: pa.Table) -> FileDifference:
    """The files that actions name, as the two states have them."""
    after, before = log.state(high).files, log.state(low).files
    keys = actions["key"].unique().to_pylist()
    here, there = after.find(keys), before.find(keys)  # the later state's first: what it asks of a base is all there is
    gone = {key: row for key, row in there.items() if key not in here}
    came = {key: row for key, row in here.items() if key not in there}
    return FileDifference(
        _by_actions(actions, FileAction.REMOVE, before, gone),
        _by_actions(actions, FileAction.ADD, after, came),
    )


def _by_actions(actions: pa.Table, kind: FileAction, files: FileSet, rows: Mapping[str, int]) -> pa.Table:
    """Files by the actions that name them, where those say all; else as the state has them, which reads its columns."""
    named = actions.filter(pc.is_in(actions["key"], value_set=pa.array(list(rows), pa.string())))
    named = last_actions(named.filter(pc.equal(named["kind"], int(kind))))
    if named.num_rows == len(rows) and _is_by_actions(named, files.metadata):
        return _as_difference(named, files.metadata)
    return _of_state(files, rows)


def _of_state(files: FileSet, rows: Mapping[str, int]) -> pa.Table:
    """The files with these keys, which are these rows."""
    at = sorted(rows.items(), key=lambda item: item[1])
    table = files.take(
        np.array([row for _, row in at], np.int64), [name for name in DIFFERENCE_COLUMNS if name not in _NAMED]
    )
    parts_of_keys = [key.partition("\x00") for key, _ in at]
    named = {
        "path": pa.array([path for path, _, _ in parts_of_keys], pa.string()),
        "dv_id": pa.array([dv_id or None for _, _, dv_id in parts_of_keys], pa.string()),
    }
    return pa.table({name: named[name] if name in named else table[name] for name in DIFFERENCE_COLUMNS})


def _rewritten(actions: pa.Table) -> dict[int, int]:
    """Files that each commit replaced which says of all its files that no row changed."""
    changing = set(actions.filter(actions["data_change"])["version"].unique().to_pylist())
    removes = actions.filter(pc.equal(actions["kind"], int(FileAction.REMOVE)))["version"]
    removed = {count["values"]: count["counts"] for count in pc.value_counts(removes).to_pylist()}
    return {version: files for version, files in removed.items() if version not in changing}


def _numbers_without(keys: pa.Array, others: pa.Array) -> npt.NDArray[np.int64]:
    is_other = pc.is_in(keys, value_set=others).to_numpy(zero_copy_only=False)
    return np.flatnonzero(~is_other).astype(np.int64)
