"""A restore: what comes back and what goes, which commits that undoes, what stays wrong, and until when it can be done.

Rule: `load_restore` reads, `plan_restore` is pure. Deletions of rows that come back stand first among the risks; of
what is undone, the first commit, then those that changed most rows by their writers' counts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from backend.changes.model import CommitChanges
from backend.format import bytes_text, count_text, cut, rows_text, things, utc_text
from backend.lake.history.history_filter import predicate_text
from backend.lake.lake import Lake
from backend.lake.model import Commit, Snapshot
from backend.lake.retention.answers import Reach, judge_version
from backend.lake.retention.runs import DELETED_FILES, LOG_RETENTION, FilesSeen, judge, retention_of
from backend.lake.table.properties import is_on
from backend.maintenance.model import ActPreview, Restore, TableAct
from backend.maintenance.readers import Users
from backend.search.notice import Notice, notice_text
from backend.store.store import ControlStore

MOST_COMMITS = 1_000  # undone ones that a preview reads
MOST_LOOKED_FOR = 20_000  # files that would come back; Spark looks for each of them
_NAMED, _MOST_TEXT = 5, 1_000  # undone commits, and signs of each: a hostile log may hold a book
RESTORE_BACK = "RESTORE to v{0} takes it back"
_FEED = "delta.enableChangeDataFeed"
_LOSSES = {
    DELETED_FILES: "versions replaced longer ago can be neither read nor restored, and a VACUUM deletes their files",
    LOG_RETENTION: "older commits leave the log at the next checkpoint",
    "delta.setTransactionRetentionDuration": "a stream that pauses longer may write a batch twice",
}


@dataclass(frozen=True, slots=True)
class RestoreFacts:
    """What a restore of `then` comes to. `undone`: commits after it, newest first; `faults`: what was noticed of
    commits up to it, and is open."""

    then: Snapshot
    files_back: int
    bytes_back: int
    rows_back: int | None
    files_off: int
    bytes_off: int
    rows_off: int | None
    undone: Sequence[Commit]
    seen: FilesSeen | None
    refused: str
    until: datetime | None
    faults: Sequence[Notice] = ()
    is_late: bool = False  # `until` has passed: nobody promises the files any more


def load_restore(
    lake: Lake, now: Snapshot, asked: Restore, clock: datetime, store: ControlStore | None = None
) -> RestoreFacts:
    """`store`: where it is known what is wrong with the table."""
    then = lake.snapshot(now.ref, asked.to_version)
    difference = lake.file_difference(now.ref, asked.to_version, now.version)
    back, off = difference.only_first, difference.only_second
    present = lake.has_files(now.ref, back["path"].slice(0, MOST_LOOKED_FOR).to_pylist()) if back.num_rows else []
    checked = then.num_files - back.num_rows + len(present)  # files that the latest version has are not looked for
    seen = FilesSeen(asked.to_version, then.num_files, checked, present.count(False))
    answer = judge_version(judge(lake.retention_facts(now.ref), clock), asked.to_version, seen).restore
    undone = lake.history(now.ref, starting_version=asked.to_version + 1, limit=MOST_COMMITS)
    noticed = store.noticed.open() if store else ()
    faults = [notice for notice in noticed if notice.uri == now.ref.uri and notice.version <= asked.to_version]
    return RestoreFacts(
        then, back.num_rows, _sum(back, "size_bytes") or 0, _rows(back), off.num_rows, _sum(off, "size_bytes") or 0,
        _rows(off), undone, seen, answer.reasons[0] if answer.verdict is Reach.NO else "", answer.until,
        faults, answer.until is not None and answer.until < clock,
    )  # fmt: skip


def plan_restore(now: Snapshot, asked: Restore, facts: RestoreFacts, users: Users) -> ActPreview:
    """Deletions of rows that come back stand first among the risks: they may have been a duty."""
    act = TableAct(now.ref.uri, now.ref.name, now.version, asked)
    changing = sorted((one for one in facts.undone if one.may_change_rows), key=_weight, reverse=True)
    first = min((commit.version for commit in changing), default=0)  # for which people go back
    deletions = [commit for commit in changing if commit.operation == "DELETE" or commit.metrics.rows_deleted]
    risks = [f"rows of a {_told(commit)} come back" for commit in deletions[:_NAMED]]
    if len(deletions) > _NAMED:
        risks.append(f"rows of {things(len(deletions) - _NAMED, 'more commit')} that took rows away come back")
    properties = changed_properties(now.metadata.configuration, facts.then.metadata.configuration)
    if properties and not asked.keeps_properties:
        risks.append(f"properties fall back: {', '.join(properties)}")
        risks += property_losses(now.metadata.configuration, facts.then.metadata.configuration, users)
    if now.metadata.schema_json != facts.then.metadata.schema_json:
        risks.append(f"the schema falls back to that of v{asked.to_version}")
    risks += [_rereads(reader.stream, facts, feed=reader.reads_feed) for reader in users.readers]
    others = sorted((each for each in changing if each not in deletions), key=lambda each: each.version > first)
    refused, way_out = _why_not_restored(now, asked, facts, users)
    changed = f", {len(changing):,} of which changed rows" if len(changing) < len(facts.undone) else ""
    notes = [f"it undoes {things(now.version - asked.to_version, 'commit')}{changed}"]
    notes += [f"it undoes {_told(commit)}" for commit in others[:_NAMED]]
    notes += [f"stays as it is: {notice_text(notice)}" for notice in facts.faults]
    if facts.seen and facts.seen.checked < facts.seen.total:
        notes.append(f"{count_text(facts.seen.total - facts.seen.checked)} files were not looked for")
    elif not facts.refused:
        notes.append(f"no file of v{asked.to_version} is missing")
    if pause := pause_note(users, stops_writers=asked.stops_writers):
        notes.append(pause)
        risks.append("what the stream writes until it has stopped is undone as well, and it does not write that again")
    if facts.until is not None:
        until = "promised until" if facts.is_late else "possible until"
        notes.append(f"{until} {utc_text(facts.until)}{', which has passed' if facts.is_late else ''}")
    return ActPreview(
        act,
        f"the table, now v{now.version}, becomes v{asked.to_version} again: {_files(facts)}; "
        f"{_net(now, facts.then)}",
        {
            "commits_undone": now.version - asked.to_version, "files_back": facts.files_back,
            "bytes_back": facts.bytes_back, "files_off": facts.files_off, "bytes_off": facts.bytes_off,
            "rows_before": now.num_rows, "rows_after": facts.then.num_rows,
        },
        tuple(notes),
        tuple(risks),
        way_back=RESTORE_BACK.format(now.version),
        refused=refused,
        way_out=way_out,
        typed=True,
    )  # fmt: skip


def _why_not_restored(now: Snapshot, asked: Restore, facts: RestoreFacts, users: Users) -> tuple[str, str]:
    """With what helps."""
    if asked.to_version == now.version:
        return "it is the latest version", ""
    if facts.refused:
        return facts.refused, "choose a later version"
    return why_written(users, stops_writers=asked.stops_writers)


def why_written(users: Users, *, stops_writers: bool) -> tuple[str, str]:
    """Why rows may not be changed while streams write them, and what helps. `stops_writers`: the act stops its own."""
    ours = users.stoppable_writers
    others = [name for name in users.running_writers if name not in ours]
    if others:
        return f"{', '.join(others)} of another application may write it meanwhile", "stop it there first"
    if ours and not stops_writers:
        way_out = f"let the act stop it meanwhile (--stop-writers), or stop it first: weir stop {ours[0]}"
        return f"{', '.join(ours)} may write it meanwhile", way_out
    return "", ""


def pause_note(users: Users, *, stops_writers: bool) -> str:
    """ "silver_orders is stopped first, and started again after"; empty where none has to be."""
    ours = users.stoppable_writers if stops_writers else ()
    verb = "is" if len(ours) == 1 else "are"
    return f"{', '.join(ours)} {verb} stopped first, and started again after" if ours else ""


def _weight(commit: Commit) -> int:
    counts = CommitChanges.reported(commit)
    return sum(count or 0 for count in (counts.inserted, counts.updated, counts.deleted))


def _told(commit: Commit) -> str:
    """ "v12 DELETE amount < 0 by anna, job nightly (1,204 rows)"."""
    condition = predicate_text(commit)
    by = f" by {commit.user}" if commit.user else ""
    stream = f" of stream {commit.origin.stream}" if commit.origin and commit.origin.stream else ""
    job = f", {commit.job}" if commit.job else ""
    rows = f" ({things(weight, 'row')})" if (weight := _weight(commit)) else ""
    named = f"v{commit.version} {commit.operation or 'commit'}{f' {condition}' if condition else ''}"
    return cut(f"{named}{stream}{by}{job}", _MOST_TEXT) + rows


def _files(facts: RestoreFacts) -> str:
    """ "2 files (3 kB) come back, 1 file (1 kB) goes": what does not happen is left out."""
    back, off, moves = facts.files_back, facts.files_off, []
    if back:
        moves.append(f"{things(back, 'file')} ({bytes_text(facts.bytes_back)}) come{'s' * (back == 1)} back")
    if off:
        moves.append(f"{things(off, 'file')} ({bytes_text(facts.bytes_off)}) {'goes' if off == 1 else 'go'}")
    return ", ".join(moves) or "no file comes or goes"


def _net(now: Snapshot, then: Snapshot) -> str:
    return f"it then has {rows_text(then.num_rows)}" + (
        "" if now.num_rows is None else f" (now {count_text(now.num_rows)})"
    )


def _rereads(stream: str, facts: RestoreFacts, *, feed: bool) -> str:
    rows = "the rows" if facts.rows_back is None else things(facts.rows_back, "row")
    if feed:
        return f"{stream} reads the change feed: it gets what the restore changes"
    if facts.files_off:
        return f"{stream} reads the table: it stops at this commit, which takes rows away, or reads {rows} again"
    return f"{stream} reads the table: it reads {rows} that come back again"


def changed_properties(now: Mapping[str, str], then: Mapping[str, str]) -> list[str]:
    keys = sorted(key for key in {*now, *then} if now.get(key) != then.get(key))
    return [f"{key} {now.get(key, 'unset')} → {then.get(key, 'unset')}" for key in keys]


def property_losses(now: Mapping[str, str], then: Mapping[str, str], users: Users) -> Iterator[str]:
    """What is kept no longer, or for a shorter time, under other properties."""
    for key, loss in _LOSSES.items():
        before, after = (retention_of(properties, key) for properties in (now, then))
        if after.duration is not None and (before.duration is None or after.duration < before.duration):
            yield f"{key} of {after.words}: {loss}"
    if is_on(now, _FEED) and not is_on(then, _FEED):
        readers = ", ".join(reader.stream for reader in users.readers if reader.reads_feed)
        yield f"{_FEED} off: changes from here on are in no feed" + (f", and {readers} stops" if readers else "")


def _sum(files: pa.Table, name: str) -> int | None:
    return None if files[name].null_count else int(pc.sum(files[name]).as_py() or 0)


def _rows(files: pa.Table) -> int | None:
    records = _sum(files, "num_records")
    return None if records is None else records - int(pc.sum(files["deleted_rows"]).as_py() or 0)
