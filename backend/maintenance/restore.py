"""A restore: what comes back and what goes, which commits that undoes, what stays wrong, and until when it can be done.
A rewind: a restore, and the stream that writes the table set back before the batches that it wrote since.

Rule: deletions of rows that come back stand first among the risks: they may have been a duty, unless they are what was
found wrong. What is undone is told in order of rows, by their writers' counts, all of it. Where nobody can tell which
batches a stream wrote since, or their source can no longer be read, nothing is rewound.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from backend.changes.model import CommitChanges
from backend.errors import CheckpointError, StorageError, StreamRefusedError, TableNotFoundError
from backend.expectations.shown import as_shown
from backend.format import bytes_text, count_text, cut, rows_text, things, utc_text
from backend.lake.history.history import predicate_text
from backend.lake.lake import Lake
from backend.lake.model import Commit, Snapshot, TableRef
from backend.lake.retention.answers import Reach, judge_version
from backend.lake.retention.runs import FilesSeen, judge
from backend.lake.storage.storage import declared_folder
from backend.lake.table.properties import changed_properties
from backend.maintenance.model import RESTORE_BACK, ActPreview, Lift, Restore, Rewind, TableAct
from backend.maintenance.readers import Users
from backend.search.notice import Measure, notice_text
from backend.settings import Settings
from backend.store.store import ControlStore
from backend.stream_model.stream import StreamDeclaration
from backend.streams.backlog import BacklogReader
from backend.streams.checkpoint import query_id, read_checkpoint
from backend.streams.faults import Outcome
from backend.streams.preflight import checks_behind
from backend.streams.reset import TableBack, downstream, reads_again, twice_outside
from backend.streams.status import statuses
from backend.streams.verdict import StreamStatus, why_not_stopped

MOST_COMMITS = 1_000  # undone ones that a preview reads
MOST_LOOKED_FOR = 20_000  # files that would come back; Spark looks for each of them
_NAMED, _MOST_TEXT = 5, 1_000  # undone commits, and signs of each: a hostile log may hold a book
_PASSING = ("skipChangeCommits", "ignoreChanges")  # options with which a stream reads on behind a restore


# restore ---------------------------------------------------------------------------------------------------------


def preview_restore(
    lake: Lake, now: Snapshot, asked: Restore, users: Users, clock: datetime, store: ControlStore | None = None
) -> ActPreview:
    """`store`: where it is known what is wrong with the table."""
    then = lake.snapshot(now.ref, asked.to_version)
    difference = lake.file_difference(now.ref, asked.to_version, now.version)
    back, off = difference.only_first, difference.only_second
    present = lake.has_files(now.ref, back["path"].slice(0, MOST_LOOKED_FOR).to_pylist()) if back.num_rows else []
    checked = then.num_files - back.num_rows + len(present)  # files that the latest version has are not looked for
    seen = FilesSeen(asked.to_version, then.num_files, checked, present.count(False))
    answer = judge_version(judge(lake.retention_facts(now.ref), clock), asked.to_version, seen).restore
    undone = lake.history(now.ref, starting_version=asked.to_version + 1, limit=MOST_COMMITS)
    ours = [notice for notice in (store.noticed.open() if store else ()) if notice.uri == now.ref.uri]
    notices = as_shown(ours, lake.hidden_at)
    wrong = {notice.version for notice in notices if notice.kind in (Measure.DELETED, Measure.ROWS)}
    risks, notes = _of_commits(now.version - asked.to_version, undone, wrong)
    risks += _of_metadata(now, then, asked, users)
    risks += [_rereads(reader.stream, back, off, feed=reader.reads_feed) for reader in users.readers]
    for notice in notices:
        does = "stays as it is" if notice.version <= asked.to_version else "is mended"
        notes.append(f"{does}: {notice_text(notice)}")
    if checked < then.num_files:
        notes.append(f"{count_text(then.num_files - checked)} files were not looked for")
    elif answer.verdict is not Reach.NO:
        notes.append(f"no file of v{asked.to_version} is missing")
    if pause := users.pause_note(stops_writers=asked.stops_writers):
        notes.append(pause)
        risks.append("what the stream writes until it has stopped is undone as well, and it does not write that again")
    if answer.until is not None and answer.until < clock:  # nobody promises the files any more
        notes.append(f"promised until {utc_text(answer.until)}, which has passed")
    elif answer.until is not None:
        notes.append(f"possible until {utc_text(answer.until)}")
    refused, way_out, lifts = users.why_written(stops_writers=asked.stops_writers)
    if asked.to_version == now.version:
        refused, way_out, lifts = "it is the latest version", "", (Lift("versions", (now.ref.name,)),)
    elif answer.verdict is Reach.NO:
        refused, way_out = answer.reasons[0], "choose a later version"
        lifts = (Lift("versions", (now.ref.name,)),)
    rows = f"it then has {rows_text(then.num_rows)}"
    rows += "" if now.num_rows is None else f" (now {count_text(now.num_rows)})"
    return ActPreview(
        TableAct(now.ref.uri, now.ref.name, now.version, asked),
        f"the table, now v{now.version}, becomes v{asked.to_version} again: {_moves(back, off)}; {rows}",
        {
            "commits_undone": now.version - asked.to_version, "files_back": back.num_rows,
            "bytes_back": _sum(back, "size_bytes") or 0, "files_off": off.num_rows,
            "bytes_off": _sum(off, "size_bytes") or 0, "rows_before": now.num_rows, "rows_after": then.num_rows,
        },
        tuple(notes),
        tuple(risks),
        way_back=RESTORE_BACK.format(now.version),
        refused=refused,
        way_out=way_out,
        lifts=lifts,
        typed=True,
    )  # fmt: skip


def _of_commits(count: int, undone: Sequence[Commit], wrong: Collection[int]) -> tuple[list[str], list[str]]:
    """Risks and notes of the commits that are undone. `wrong`: those whose deletions somebody found to be."""
    changing = sorted((one for one in undone if one.may_change_rows), key=_weight, reverse=True)
    deletions = [
        commit
        for commit in changing
        if (commit.operation == "DELETE" or commit.metrics.rows_deleted) and commit.version not in wrong
    ]
    took = [_commit_text(commit, CommitChanges.reported(commit).deleted) for commit in deletions[:_NAMED]]
    if len(deletions) > _NAMED:
        took.append(things(len(deletions) - _NAMED, "more commit"))
    risks = [f"rows come back that these took away: {'; '.join(took)}"] if took else []
    changed = f", {len(changing):,} of which changed rows" if len(changing) < len(undone) else ""
    notes = [f"it undoes {things(count, 'commit')}{changed}"]
    notes += [f"it undoes {_commit_text(commit, _weight(commit))}" for commit in changing[:_NAMED]]
    if more := changing[_NAMED:]:
        rows, named = sum(map(_weight, more)), ", ".join(f"v{commit.version}" for commit in more)
        notes.append(f"it undoes {things(len(more), 'more commit')} ({things(rows, 'row')}): {cut(named, _MOST_TEXT)}")
    return risks, notes


def _of_metadata(now: Snapshot, then: Snapshot, asked: Restore, users: Users) -> Iterator[str]:
    before, after = now.metadata.configuration, then.metadata.configuration
    if not asked.keeps_properties and (properties := changed_properties(before, after)):
        yield f"properties fall back: {', '.join(properties)}"
        yield from users.property_losses(before, after)
    if now.metadata.schema_json != then.metadata.schema_json:
        yield f"the schema falls back to that of v{asked.to_version}"


def _weight(commit: Commit) -> int:
    counts = CommitChanges.reported(commit)
    return sum(count or 0 for count in (counts.inserted, counts.updated, counts.deleted))


def _commit_text(commit: Commit, num_rows: int | None) -> str:
    """ "v12 DELETE amount < 0 by anna, job nightly (1,204 rows)"."""
    name = commit.origin.stream if commit.origin else None
    stream, condition = (f" of stream {name}", "") if name else ("", predicate_text(commit))  # a stream's is its key
    by = f" by {commit.user}" if commit.user else ""
    job = f", {commit.job}" if commit.job else ""
    rows = f" ({things(num_rows, 'row')})" if num_rows else ""
    named = f"v{commit.version} {commit.operation or 'commit'}{f' {condition}' if condition else ''}"
    return cut(f"{named}{stream}{by}{job}", _MOST_TEXT) + rows


def _moves(back: pa.Table, off: pa.Table) -> str:
    """ "2 files (3 kB) come back, 1 file (1 kB) goes": what does not happen is left out."""
    moves = []
    for files, one, many in ((back, "comes back", "come back"), (off, "goes", "go")):
        if files.num_rows:
            size = bytes_text(_sum(files, "size_bytes") or 0)
            moves.append(f"{things(files.num_rows, 'file')} ({size}) {one if files.num_rows == 1 else many}")
    return ", ".join(moves) or "no file comes or goes"


def _rereads(stream: str, back: pa.Table, off: pa.Table, *, feed: bool) -> str:
    if feed:
        return f"{stream} reads the change feed: it gets what the restore changes"
    records = _sum(back, "num_records")
    marked = int(pc.sum(back["deleted_rows"]).as_py() or 0)
    rows = "the rows" if records is None else things(records - marked, "row")
    if off.num_rows:
        return f"{stream} reads the table: it stops at this commit, which takes rows away, or reads {rows} again"
    return f"{stream} reads the table: it reads {rows} that come back again"


def _sum(files: pa.Table, name: str) -> int | None:
    return None if files[name].null_count else int(pc.sum(files[name]).as_py() or 0)


# rewind ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rewinding:
    """Where a stream goes back to. `batch`: the last that stays done; `last_batch`: the last that was. `tables`: all
    that go back, the one that was asked for first; `versions`: the latest of each table of the stream, by URI."""

    declared: StreamDeclaration
    batch: int
    last_batch: int
    tables: tuple[TableBack, ...]
    versions: Mapping[str, int]


def preview_rewind(
    settings: Settings, lake: Lake, store: ControlStore | None, table: Snapshot, asked: Rewind, users: Users,
    *, now: datetime,
) -> ActPreview:  # fmt: skip
    """As a restore of the table, with what the stream does then. Refused, too, where the checkpoint cannot be read."""
    try:
        back = load_rewind(settings, lake, store, table, asked, users, now=now)
        assert store is not None
        declared, name = back.declared, back.declared.name
        checks = checks_behind(settings, lake, store, name, back.batch, now=now)
        topics = store.topic_ends().get(name, ())
        again = BacklogReader(settings, lake).look(declared, (), topics, now=now).backlog(behind=back.batch)
        plain = Restore(asked.to_version, keeps_properties=True)
        # What follows says who reads and writes all of the stream's tables.
        restore = preview_restore(lake, table, plain, replace(users, readers=(), writers=()), now)
    except (StreamRefusedError, CheckpointError, StorageError) as exc:
        act = TableAct(table.ref.uri, table.ref.name, table.version, asked)
        alone = Lift("restore", (table.ref.name, "--to", str(asked.to_version)))
        lifts = (Lift("stop", running),) if (running := users.stoppable_writers) else (alone,)
        return ActPreview(act, "", refused=exc.message, way_out=exc.hint, lifts=lifts, typed=True)
    failed = next((check for check in checks if check.outcome is Outcome.FAILED), None)
    unsure = [check for check in checks if check.outcome in (Outcome.WARNING, Outcome.UNKNOWN)]
    batches = f"{back.batch + 1} to {back.last_batch}" if back.last_batch > back.batch + 1 else str(back.last_batch)
    notes = [
        f"{name} goes back to the end of batch {back.batch}: its next start reads again what batch {batches} read, "
        f"with the code as it is then ({reads_again(again)})"
    ]
    notes += [f"{other.name}, now v{other.version}, becomes v{other.to_version} again" for other in back.tables[1:]]
    passing = downstream(declared, list(store.declarations().values()), passing=_PASSING)
    return replace(
        restore,
        act=TableAct(table.ref.uri, table.ref.name, table.version, replace(asked, stream=name)),
        figures={**restore.figures, "batch": back.batch, "rows_again": again.rows},
        notes=(*notes, *restore.notes),
        risks=(
            *restore.risks, *passing, *twice_outside(declared), *(f"{check.name}: {check.detail}" for check in unsure)
        ),
        way_back=f"a reset of {name} that undoes the last one takes both back",
        refused=restore.refused or (f"{failed.name}: {failed.detail}" if failed else ""),
        way_out=restore.way_out or (failed.remedy if failed else ""),
    )  # fmt: skip


def load_rewind(
    settings: Settings, lake: Lake, store: ControlStore | None, table: Snapshot, asked: Rewind, users: Users,
    *, now: datetime,
) -> Rewinding:  # fmt: skip
    """Raises `StreamRefusedError` where it cannot be, with what helps."""
    streams = statuses(store, now=now, heartbeat_stale_s=settings.host.heartbeat_stale_s) if store else []
    status = _writer(streams, users, table.ref.name)
    declared = status.declaration
    if why := why_not_stopped(status):
        raise StreamRefusedError(f"{declared.name}: {why}".replace(": it is ", " is "))
    checkpoint = read_checkpoint(folder := declared_folder(settings, declared.checkpoint_location))
    query, first = query_id(folder), asked.to_version + 1
    commits = lake.history(table.ref, starting_version=first, ending_version=asked.to_version + MOST_COMMITS)
    batch = min(_batches(commits, query, declared.name)) - 1
    kept = sorted({*checkpoint.planned} & {*checkpoint.finished})
    if batch < 0:
        why = f"it is older than the first batch of {declared.name}"
        raise StreamRefusedError(why, hint=f"a full reset of {declared.name} reads all again")
    if batch not in kept:
        oldest = f"batch {kept[0]} is the oldest" if kept else "there is none"
        why = f"the checkpoint of {declared.name} no longer keeps batch {batch}: {oldest}"
        raise StreamRefusedError(why, hint="choose a later one")
    others = _other_tables(lake, declared, table.ref)
    back = [TableBack(table.ref.uri, table.ref.name, table.version, asked.to_version)]
    back += filter(None, (_goes_back(lake, other, query, batch, now) for other in others))
    versions = {snapshot.ref.uri: snapshot.version for snapshot in (table, *others)}
    return Rewinding(declared, batch, checkpoint.planned[-1], tuple(back), versions)


def _writer(streams: Sequence[StreamStatus], users: Users, table: str) -> StreamStatus:
    """The one stream that writes the table, and that a host here runs from a checkpoint."""
    names = sorted({writer.stream for writer in users.writers})
    if len(names) != 1:
        why = f"{', '.join(names)} write it" if names else "no declared stream writes it"
        raise StreamRefusedError(f"{table}: {why}", hint="a restore brings the table back alone")
    status = next(status for status in streams if status.declaration.name == names[0])
    if status.declaration.is_attached:
        why = f"another Spark application runs {names[0]}"
        raise StreamRefusedError(why, hint="restore the table, and set its checkpoint back there")
    if status.declaration.is_view:
        raise StreamRefusedError(f"{names[0]} is computed from all rows each time", hint="restore the table alone")
    return status


def _batches(commits: Iterable[Commit], query: str, stream: str) -> list[int]:
    """What the stream wrote in these commits; one of another query has no place in its checkpoint."""
    batches = []
    for commit in commits:
        if commit.origin is None or commit.origin.batch_id is None:
            continue
        if commit.origin.query_id != query:
            raise StreamRefusedError(
                f"v{commit.version} was written before the checkpoint of {stream} was set aside, or by another query",
                hint=f"choose a later version, or reset {stream}",
            )
        batches.append(commit.origin.batch_id)
    if not batches:
        raise StreamRefusedError(f"{stream} wrote nothing since that version", hint="restore the table alone")
    return batches


def _other_tables(lake: Lake, declared: StreamDeclaration, ref: TableRef) -> list[Snapshot]:
    """Further destinations, quarantine, dead letters: those that are there."""
    tables = []
    for table in declared.tables:
        if table.uri != ref.uri:
            with suppress(TableNotFoundError):
                tables.append(lake.snapshot(lake.find(table.uri)))
    return tables


def _goes_back(lake: Lake, table: Snapshot, query: str, batch: int, now: datetime) -> TableBack | None:
    """A table of the stream and the version it goes back to; None where nothing was written behind that batch."""
    to_version: int | None = None
    for commit in (commits := lake.history(table.ref, limit=MOST_COMMITS)):
        origin = commit.origin
        if origin is None or origin.query_id != query or origin.batch_id is None:
            continue
        if origin.batch_id <= batch:
            break
        to_version = commit.version - 1
    else:
        if len(commits) == MOST_COMMITS or to_version == -1:
            raise StreamRefusedError(f"the log of {table.ref.name} does not say what it held behind batch {batch}")
    if to_version is None:
        return None
    if refused := preview_restore(lake, table, Restore(to_version), Users(), now).refused:
        raise StreamRefusedError(f"{table.ref.name} cannot go back to v{to_version}: {refused}")
    return TableBack(table.ref.uri, table.ref.name, table.version, to_version)
