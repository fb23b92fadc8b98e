"""What a VACUUM would delete, who still needs a file of it, and so whether it may be done.

Rule: it keeps to the table's own retention, so no check of Delta is ever switched off. It is refused while somebody
needs a file that would go; what nobody can tell of somebody is said as a risk.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from backend.errors import LakehouseError, VersionNotFoundError
from backend.format import bytes_text, things
from backend.lake.lake import Lake
from backend.lake.model import Snapshot
from backend.lake.retention.file_check import UnneededFiles
from backend.lake.retention.runs import DELETED_FILES, RetentionSetting, retention_of
from backend.maintenance.model import ActPreview, TableAct, Vacuum
from backend.maintenance.readers import Users

SAFE_BESIDE_WRITERS = timedelta(hours=1)  # a file is older than this once it is committed only after a very long batch
_NAMED = 20  # files


@dataclass(frozen=True, slots=True)
class Need:
    """Why files must stay, and what helps. `unknown`: nobody can tell which files they are."""

    reason: str
    way_out: str = ""
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class VacuumFacts:
    """`files`: None where the retention cannot be read. `needs`: of those files."""

    retention: RetentionSetting
    files: UnneededFiles | None = None
    needs: tuple[Need, ...] = ()


def load_vacuum(lake: Lake, snapshot: Snapshot, users: Users, now: datetime) -> VacuumFacts:
    """Raises `VersionNotFoundError` where the log does not say what was removed within the retention."""
    retention = retention_of(snapshot.metadata.configuration, DELETED_FILES)
    if retention.duration is None:
        return VacuumFacts(retention)
    files = lake.unneeded_files(snapshot.ref, removed_before=now - retention.duration)
    if not files.paths:
        return VacuumFacts(retention, files)
    gone = frozenset(files.paths)
    needs = (*_of_streams(users, gone), *_of_versions(lake, snapshot, users, gone))
    return VacuumFacts(retention, files, (*needs, *_of_clones(lake, snapshot, gone, now)))


def _of_streams(users: Users, deleted: frozenset[str]) -> Iterator[Need]:
    for reader in users.readers:
        if hit := reader.unread & deleted:
            starting = f"start it in {reader.application}" if reader.application else "start it"
            reason = f"{reader.stream} has yet to read {things(len(hit), 'file')} that would be deleted"
            yield Need(reason, f"{starting}, and let it catch up first")
        elif reader.unknown:
            yield Need(f"what {reader.stream} has yet to read is not known: {reader.unknown}", unknown=True)
    for stream in users.untold:
        yield Need(f"{stream} of another application has not told yet what it reads", unknown=True)


def _of_versions(lake: Lake, snapshot: Snapshot, users: Users, deleted: frozenset[str]) -> Iterator[Need]:
    for kept in users.kept:
        try:
            hit = lake.files_between(snapshot.ref, kept.first, kept.last) & deleted
        except VersionNotFoundError as exc:
            yield Need(f"{kept.reason}; which files that needs is not known: {exc.message}", unknown=True)
            continue
        if hit:
            yield Need(f"{kept.reason}; {things(len(hit), 'file')} of it would be deleted", kept.way_out)


def _of_clones(lake: Lake, snapshot: Snapshot, deleted: frozenset[str], now: datetime) -> Iterator[Need]:
    for clone in lake.clones():
        if clone.uri == snapshot.ref.uri:
            continue
        try:
            kept_for = retention_of(lake.snapshot(clone).metadata.configuration, DELETED_FILES).duration
            since = None if kept_for is None else now - kept_for
            hit = lake.files_of_clone(snapshot.ref, clone, removed_before=since) & deleted
        except LakehouseError as exc:
            yield Need(f"which files the shallow copy {clone.name} reads is not known: {exc.message}", unknown=True)
            continue
        if hit:
            reason = f"{clone.name} is a shallow copy, and reads {things(len(hit), 'file')} that would be deleted"
            yield Need(reason, f"drop it first: weir drop {clone.name}")


def plan_vacuum(snapshot: Snapshot, asked: Vacuum, facts: VacuumFacts, users: Users) -> ActPreview:
    """Pure. A retention that a writer may outlast is refused while one runs: its files are not committed yet."""
    act = TableAct(snapshot.ref.uri, snapshot.ref.name, snapshot.version, asked)
    retention, files = facts.retention, facts.files
    if files is None or retention.duration is None:
        return ActPreview(act, "", refused=f"{DELETED_FILES} is {retention.words}", way_out="set it to an interval")
    needs = [need for need in facts.needs if not need.unknown]
    risks = [need.reason for need in facts.needs if need.unknown]
    if retention.duration < SAFE_BESIDE_WRITERS:
        early = f"files that a writer has not committed within {retention.words} are deleted with the others"
        risks.append(early)
        for writer in users.running_writers:
            helps = f"stop {writer} first, or raise {DELETED_FILES}"
            needs.append(Need(f"{writer} may write it meanwhile, and {early}", helps))
    by_time = f"Delta goes by a file's time on disk: one that was copied here counts from then, for {retention.words}"
    if not (needs or files.paths):
        needs.append(Need("there is no file to delete", by_time))
    more = f" and {len(files.paths) - _NAMED:,} more" if len(files.paths) > _NAMED else ""
    named = [f"they are {', '.join(files.paths[:_NAMED])}{more}", by_time] if files.paths else []
    return ActPreview(
        act,
        f"{things(len(files.paths), 'file')} ({bytes_text(files.size_bytes)}) are deleted for good",
        {"files": len(files.paths), "size_bytes": files.size_bytes, "files_kept": files.kept},
        (
            *named,
            f"versions that were replaced more than {retention.words} ago can no longer be read",
            f"the rule is {DELETED_FILES}; no shorter retention is offered",
        ),
        tuple(risks),
        way_back="there is none: deleted files are gone",
        refused="; ".join(need.reason for need in needs),
        way_out="; ".join(dict.fromkeys(need.way_out for need in needs)),
        typed=True,
    )
