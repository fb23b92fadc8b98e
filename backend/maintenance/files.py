"""Acts on a table's files: what an OPTIMIZE would merge, and what a VACUUM would delete that somebody still needs.

Rule: counted from the log. Of a merge it is about as many files as Delta leaves: a partition's small files in as few as
hold their bytes. A VACUUM keeps to the table's own retention, so no check of Delta is ever switched off; it is refused
while somebody needs a file that would go, and what nobody can tell of somebody is said as a risk.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np

from backend.errors import LakehouseError, QueryError, VersionNotFoundError
from backend.format import bytes_text, count_text, things
from backend.lake.files.clustering import look_up
from backend.lake.files.file_sizes import HEAVY_SHARE, integers, partition_codes, small_limit
from backend.lake.lake import Lake
from backend.lake.model import Snapshot
from backend.lake.retention.runs import DELETED_FILES, retention_of
from backend.lake.table.schema import column_names, partition_values
from backend.maintenance.model import RESTORE_BACK, ActPreview, Lift, Optimize, TableAct, Vacuum
from backend.maintenance.readers import Users
from backend.settings import Settings

SAFE_BESIDE_WRITERS = timedelta(hours=1)  # a file is older than this once it is committed only after a very long batch
_NAMED = 20  # files


# OPTIMIZE --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Merge:
    """`files_out`: None where only Delta's clustering decides it. `deleted_rows`: marked ones that are dropped."""

    partitions: int
    files_in: int
    bytes_in: int
    files_out: int | None
    deleted_rows: int


def merge_of(snapshot: Snapshot, asked: Optimize) -> Merge:
    """What an OPTIMIZE would rewrite of this version."""
    files = snapshot.columns(["size_bytes", "num_records", "deleted_rows"])
    sizes, deleted = integers(files["size_bytes"]), integers(files["deleted_rows"])
    codes, names = partition_codes(snapshot)
    partitions = [partition_values(name, snapshot.metadata) for name in names]
    is_asked = [all(of.get(name) == value for name, value in asked.partition.items()) for of in partitions]
    taken = np.array(is_asked, np.bool_)[codes]
    is_clustered = "delta.clustering" in snapshot.domains
    if asked.purge:
        taken &= deleted > 0
    elif not (asked.zorder_by or asked.full):
        records = integers(files["num_records"].fill_null(0))
        taken &= (sizes < asked.small_bytes) | ((deleted > 0) & (deleted > records * HEAVY_SHARE))
        if not is_clustered:  # one alone in its partition stays
            taken &= (np.bincount(codes[taken], minlength=len(names)) > 1)[codes] | (deleted > 0)
    files_out: int | None = int(taken.sum())
    if not asked.purge:
        held = np.bincount(codes[taken], sizes[taken].astype(np.float64)) / asked.target_bytes
        filled = (np.rint if asked.zorder_by else np.ceil)(held[held > 0])
        files_out = None if is_clustered else int(np.maximum(filled, 1).sum())
    return Merge(
        len(np.unique(codes[taken])), int(taken.sum()), int(sizes[taken].sum()), files_out, int(deleted[taken].sum())
    )


def small_within(snapshot: Snapshot, asked: Optimize, most_bytes: int) -> int:
    """The size below which all small files together have at most so many bytes; 0 where the smallest has more."""
    sizes = np.sort(integers(snapshot.columns(["size_bytes"])["size_bytes"]))
    sizes = sizes[sizes < asked.small_bytes]
    fitting = int(np.searchsorted(np.cumsum(sizes), most_bytes, side="right"))
    return int(sizes[fitting]) if 0 < fitting < len(sizes) else asked.small_bytes * (fitting > 0)


def preview_optimize(lake: Lake, snapshot: Snapshot, asked: Optimize, users: Users, settings: Settings) -> ActPreview:
    """The act names the sizes that are meant. Raises `QueryError` for columns that it cannot go by."""
    _check_columns(snapshot, asked)
    target = lake.target_bytes(snapshot)
    limit = small_limit(target, settings.health.small_file_ratio)
    asked = replace(asked, small_bytes=asked.small_bytes or limit, target_bytes=asked.target_bytes or target.bytes)
    merge = merge_of(snapshot, asked)
    out = "as many files as clustering needs" if merge.files_out is None else things(merge.files_out, "file")
    effect = (
        f"{things(merge.files_in, 'file')} ({bytes_text(merge.bytes_in)}) of {count_text(snapshot.num_files)} "
        f"become {out}"
    )
    way_out = "other sizes, partitions or columns may find something"
    if snapshot.metadata.partition_columns:
        effect += f", in {things(merge.partitions, 'partition')}"
        way_out += "; a small file alone in its partition stays: coarser partitions would help"
    notes = []
    if not (asked.zorder_by or asked.full or asked.purge or "delta.clustering" in snapshot.domains):
        sizes = f"under {bytes_text(asked.small_bytes)} are merged into files of up to {bytes_text(asked.target_bytes)}"
        notes.append(f"files {sizes}")
    cost = look_up(snapshot, asked.zorder_by)
    files_after = None if merge.files_out is None else snapshot.num_files - merge.files_in + merge.files_out
    if cost is not None:
        most = "" if files_after is None else f", at most {count_text(files_after)} after"
        notes.append(f"{cost.look_up_text} now{most}")
    if merge.deleted_rows:
        notes.append(f"{things(merge.deleted_rows, 'row')} that are marked as deleted are dropped from their files")
    if asked.prove_rows:
        notes.append("after it every row is read again, in the old files and in the new ones, and compared")
    notes += [f"{reader.stream} reads the table: no row reaches it again" for reader in users.readers]
    risks = [
        f"{writer.stream} changes rows here ({writer.sink}): where both touch a file at once, this act gives way and "
        "is tried again"
        for writer in users.writers
        if writer.merges and not writer.stopped
    ]
    return ActPreview(
        TableAct(snapshot.ref.uri, snapshot.ref.name, snapshot.version, asked),
        effect,
        {
            "files_in": merge.files_in, "bytes_in": merge.bytes_in, "files_out": merge.files_out,
            "partitions": merge.partitions, "files_before": snapshot.num_files,
            "files_after": files_after,
        },
        tuple(notes),
        tuple(risks),
        way_back=RESTORE_BACK.format(snapshot.version),
        refused="" if merge.files_in else "nothing is to be merged",
        way_out="" if merge.files_in else way_out,
    )  # fmt: skip


def _check_columns(snapshot: Snapshot, asked: Optimize) -> None:
    partitions, columns = snapshot.metadata.partition_columns, column_names(snapshot.metadata)
    if other := next((name for name in asked.partition if name not in partitions), None):
        known = f"it is partitioned by {', '.join(partitions)}" if partitions else "it has no partitions"
        raise QueryError(f"{snapshot.ref.name} has no partition column {other!r}", hint=known)
    free = ", ".join(name for name in columns if name not in partitions)
    for name in asked.zorder_by:
        if name in partitions:
            reason = f"rows cannot be laid out by {name!r}: the table is partitioned by it, so a file holds one value"
            raise QueryError(reason, hint=f"the other columns are {free}" if free else "leave it out")
        if name not in columns:
            raise QueryError(f"there is no column {name!r} to lay rows out by", hint=f"there are {free}")
    is_clustered = "delta.clustering" in snapshot.domains
    if asked.full and not is_clustered:
        raise QueryError(f"{snapshot.ref.name} is not clustered, so there is no FULL", hint="leave it out")
    if asked.zorder_by and (is_clustered or asked.purge):
        raise QueryError("ZORDER BY goes with neither clustering nor a purge", hint="leave it out")


# VACUUM ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Need:
    """Why files must stay, what helps, and by which act. `unknown`: nobody can tell which files they are."""

    reason: str
    way_out: str = ""
    lift: Lift | None = None
    unknown: bool = False


def preview_vacuum(lake: Lake, snapshot: Snapshot, asked: Vacuum, users: Users, now: datetime) -> ActPreview:
    """A retention that a writer may outlast is refused while one runs: its files are not committed yet.

    Raises `VersionNotFoundError` where the log does not say what was removed within the retention.
    """
    act = TableAct(snapshot.ref.uri, snapshot.ref.name, snapshot.version, asked)
    retention = retention_of(snapshot.metadata.configuration, DELETED_FILES)
    if retention.duration is None:
        lifts = (Lift("alter", (snapshot.ref.name,)),)
        wrong = f"{DELETED_FILES} is {retention.words}"
        return ActPreview(act, "", refused=wrong, way_out="set it to an interval", lifts=lifts)
    files = lake.folder_files(snapshot.ref).unneeded(removed_before=now - retention.duration)
    gone, all_needs = frozenset(files.paths), list[Need]()
    if gone:
        all_needs = [*_of_streams(users, gone), *_of_versions(lake, snapshot, users, gone)]
        all_needs += _of_clones(lake, snapshot, gone, now)
    needs = [need for need in all_needs if not need.unknown]
    risks = [need.reason for need in all_needs if need.unknown]
    if retention.duration < SAFE_BESIDE_WRITERS:
        early = f"files that a writer has not committed within {retention.words} are deleted with the others"
        risks.append(early)
        for writer in users.running_writers:
            helps = f"stop {writer} first, or raise {DELETED_FILES}"
            needs.append(Need(f"{writer} may write it meanwhile, and {early}", helps, Lift("stop", (writer,))))
    by_time = f"Delta goes by a file's time on disk: one that was copied here counts from then, for {retention.words}"
    if not (needs or gone):
        return ActPreview(
            act, "", {"files": 0, "size_bytes": 0, "files_kept": files.kept},
            refused="there is no file to delete", way_out=by_time, typed=True,
        )  # fmt: skip
    more = f" and {len(files.paths) - _NAMED:,} more" if len(files.paths) > _NAMED else ""
    return ActPreview(
        act,
        f"{things(len(files.paths), 'file')} ({bytes_text(files.size_bytes)}) are deleted for good",
        {"files": len(files.paths), "size_bytes": files.size_bytes, "files_kept": files.kept},
        (
            f"they are {', '.join(files.paths[:_NAMED])}{more}",
            by_time,
            f"versions that were replaced more than {retention.words} ago can no longer be read",
            f"the rule is {DELETED_FILES}; no shorter retention is offered",
        ),
        tuple(risks),
        way_back="there is none: deleted files are gone",
        refused="; ".join(need.reason for need in needs),
        way_out="; ".join(dict.fromkeys(need.way_out for need in needs)),
        lifts=tuple(dict.fromkeys(need.lift for need in needs if need.lift)),
        typed=True,
    )


def _of_streams(users: Users, deleted: frozenset[str]) -> Iterator[Need]:
    for reader in users.readers:
        if hit := reader.unread & deleted:
            starting = f"start it in {reader.application}" if reader.application else "start it"
            reason = f"{reader.stream} has yet to read {things(len(hit), 'file')} that would be deleted"
            lift = None if reader.application else Lift("start", (reader.stream,))
            yield Need(reason, f"{starting}, and let it catch up first", lift)
        elif reader.unknown:
            yield Need(f"what {reader.stream} has yet to read is not known: {reader.unknown}", unknown=True)
    for stream in users.unreported_readers:
        yield Need(f"{stream} of another application has not told yet what it reads", unknown=True)


def _of_versions(lake: Lake, snapshot: Snapshot, users: Users, deleted: frozenset[str]) -> Iterator[Need]:
    for kept in users.kept:
        try:
            hit = lake.folder_files(snapshot.ref).between(kept.first, kept.last) & deleted
        except VersionNotFoundError as exc:
            yield Need(f"{kept.reason}; which files that needs is not known: {exc.message}", unknown=True)
            continue
        if hit:
            yield Need(
                f"{kept.reason}; {things(len(hit), 'file')} of that version would be deleted", kept.way_out, kept.lift
            )


def _of_clones(lake: Lake, snapshot: Snapshot, deleted: frozenset[str], now: datetime) -> Iterator[Need]:
    for clone in lake.clones():
        if clone.uri == snapshot.ref.uri:
            continue
        try:
            kept_for = retention_of(lake.snapshot(clone).metadata.configuration, DELETED_FILES).duration
            since = None if kept_for is None else now - kept_for
            hit = lake.folder_files(snapshot.ref, clone=clone).of_latest(removed_before=since) & deleted
        except LakehouseError as exc:
            yield Need(f"which files the shallow copy {clone.name} reads is not known: {exc.message}", unknown=True)
            continue
        if hit:
            reason = f"{clone.name} is a shallow copy, and reads {things(len(hit), 'file')} that would be deleted"
            yield Need(reason, "drop it first", Lift("drop", (clone.name,)))
