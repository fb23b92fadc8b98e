"""Judges each commit of a table as it comes, and in the same way what came long ago: by the log's statistics, and the
rows of its own files where they are few enough.

Rule: a first load is no step: it needs a past. A value that grows with the rows (ids, offsets) or with the clock
(times, sums of an aggregate) is no finding, however long nothing came. A writer is new where newcomers are rare. A step
of a table that each commit writes anew is told when it has stood for two minutes: a group of an aggregate that has
just begun, such as the first rows of an hour, is far from all others and soon like them. A habit of a writer takes five
commits; what breaks one is told once. How many rows a DELETE or UPDATE touches is judged by those of its own writer
before: a stream touches as many as come, so it is left out. Copies are told of a table that never had any.
"""

import math
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice, pairwise
from typing import Any

import orjson

from backend.caches import Lru
from backend.format import cut, duration_text, percent
from backend.lake.history.history import clauses_text, condition_shape, predicate_text, stream_of
from backend.lake.history.timeline import rhythm, silences
from backend.lake.lake import Lake
from backend.lake.model import Commit, Metadata, Snapshot, TableRef
from backend.lake.table.metadata_diff import InForce, compare
from backend.lake.table.schema import column_types, physical_names, show_partition
from backend.search.commit_rows import CommitRows, read_commit_rows
from backend.search.notice import FIRSTS, Key, Measure, Notice
from backend.search.row_findings import RowFinding, RowHabits
from backend.search.suggest import (
    MOST_FILES,
    TIMES,
    Held,
    Suggestion,
    held_at,
    held_numbers,
    measure_text,
    steps,
)
from backend.sql.numbers import spread
from backend.sql.values import as_number

LEAST_BEFORE, MOST_BEFORE = 5, 24  # versions whose rows changed
MOST_AT_ONCE = 1_000  # versions of one look; what lies further back is left out
MOST_READ = 60  # commits whose rows are read where nobody looked before
MOST_FIRST_S = 120.0  # of a processor, for first looks; the tables that are left are known by their logs alone
MOST_TABLES = 256  # whose past is remembered
_AT_ONCE = 25  # versions of one step
_MOST_OF_A_COMMIT = 4  # the largest
_LEAST_JUMP, _LEAST_NULLS, _LEAST_LOSS = 1.0, 0.05, 0.5  # of the range before; of the rows
_FEW_FAR_OUT = 7.0  # times the bound before, where it is of few rows
_MOST_NULLS = 0.5  # before: a column that is mostly empty is filled now and then
_LEAST_TIME_S = 86_400.0  # that the oldest time went back: what comes late is no fault
_FEWEST_REGULAR, _LEAST_REGULAR = 20, timedelta(hours=3)  # commits, and from the first to the last: no load
_LEAST_WRITES, _NEWCOMERS = 20, 0.05  # of the commits before, by somebody who came once
_OWN_PROPERTIES = ("delta.columnMapping.maxColumnId", "delta.rowTracking.materialized")  # which Delta sets by itself
_FASTER = 4.0  # a row or a second, than ever before
_CLOCKS_APART = timedelta(days=2)  # a writer's, its time zone and ours
_STOOD = timedelta(minutes=2)
_MOST_COMPARED, _LEAST_COPIED = 1_000, 10  # files whose statistics are held against each other; rows of one
_LEAST_TOUCHED = 0.01  # of the rows, by a statement that was to touch few
_LEAST_ODD, _ODD_AFTER = 0.05, 10  # the same where its writer has no past, after so many commits of the table
_AS_MANY, _REPAIRS = 0.1, 1.5  # rows more or fewer than were hurt, that a repair touches; it is none with so many
LEAST_COMMITS, MOST_SHAPES = 5, 2
_IN_TIME = re.compile(r"=(?:19|20)\d\d(?:-?(?:0[1-9]|1[0-2])|(?!\d))")  # a day, a month, a year: written, then finished
_EVERY_ROW = "every row"
_TOUCHES = (Measure.DELETED, Measure.UPDATED)

Seen = tuple[Measure, str, str, str]  # what, of which column, property …, before and after
Mends = Callable[[Held, Held, Commit | None], bool]  # whether, of the version before, a later one and its commit


# what a writer always did --------------------------------------------------------------------------------------


@dataclass
class Habits:
    """Is shown the commits of a table one after another. `earlier`: those before the first, newest first; asked for
    once, when they matter."""

    earlier: Callable[[], Sequence[Commit]] = tuple
    _conditions: dict[tuple[str, str], dict[str, tuple[int, str, str]]] = field(default_factory=dict)
    _loads: dict[str, Counter[str]] = field(default_factory=dict)  # how often each writer wrote a partition
    _num_loads: Counter[str] = field(default_factory=Counter)
    # Rows by each commit of a writer, and of all.
    _touched: dict[tuple[str | None, Measure], deque[int]] = field(default_factory=dict)
    _knows_earlier: bool = False

    def see(self, commit: Commit, metadata: Metadata | None, num_rows: int | None) -> Iterator[Seen]:
        """The habits that this commit breaks. `num_rows`: of the table before it."""
        if not self._knows_earlier and self._needs_earlier(commit, metadata, num_rows):
            self._knows_earlier = True
            for each in reversed(self.earlier()):
                list(self._judged(each, metadata, None))
        yield from self._judged(commit, metadata, num_rows)

    def is_twice(self, partition: str) -> bool:
        """Whether what one writer wrote there a second time still is."""
        return any(counts[partition] > 1 for counts in self._loads.values())

    def _needs_earlier(self, commit: Commit, metadata: Metadata | None, num_rows: int | None) -> bool:
        """Not for the first condition of a stream, whose recent commits are enough, nor for loads by nobody named."""
        if any(_is_large(count, num_rows) for _, count in _touched_by(commit)):
            return True
        shape, shapes = condition_shape(commit), self._conditions.get((writer_of(commit), commit.operation or ""), {})
        is_new = shape is not None and shape not in shapes and bool(commit.origin is None or shapes)
        matters = bool(commit.user or commit.job or commit.metrics.files_removed)
        return is_new or (matters and _is_of_partitions(commit, metadata))

    def _judged(self, commit: Commit, metadata: Metadata | None, num_rows: int | None) -> Iterator[Seen]:
        yield from self._of_condition(commit)
        yield from self._of_rows(commit, num_rows)
        if metadata is not None and _is_of_partitions(commit, metadata):
            yield from self._of_partitions(commit, metadata)

    def _of_condition(self, commit: Commit) -> Iterator[Seen]:
        shape = condition_shape(commit)
        if shape is None or not writer_of(commit):
            return
        shapes = self._conditions.setdefault((writer_of(commit), commit.operation or ""), {})
        if len(shapes) > MOST_SHAPES:  # no habit, and it will never be one
            return
        text, clauses = predicate_text(commit) or _EVERY_ROW, clauses_text(commit)
        if shapes and shape not in shapes and sum(count for count, *_ in shapes.values()) >= LEAST_COMMITS:
            count, *usual = max(shapes.values())
            before, after = (usual[0], text) if usual[0] != text else (usual[1], clauses)
            yield Measure.CONDITION, commit.operation or "", f"{cut(before)} ({count:,} times)", cut(after)
        shapes[shape] = shapes.get(shape, (0,))[0] + 1, text, clauses

    def _of_rows(self, commit: Commit, num_rows: int | None) -> Iterator[Seen]:
        """Rows deleted or updated, beside what the writer's statements touched before, else any commit's."""
        touched = dict(_touched_by(commit))
        for measure, count in touched.items():
            own, every = (self._touched_before(name, measure) for name in (writer_of(commit), None))
            is_own = len(own) >= LEAST_COMMITS
            before, least = (own, LEAST_COMMITS) if is_own else (every, _ODD_AFTER)
            share = f" ({percent(count / num_rows)} of the table)" if num_rows else ""
            if len(before) >= least and _is_large(count, num_rows, _LEAST_TOUCHED if is_own else _LEAST_ODD):
                most, room = max(before), max(0.5 * max(before), 4 * (max(before) - min(before)))
                if count > most + room:
                    whose = "each" if is_own else "any commit"
                    yield (
                        measure,
                        "",
                        f"at most {most:,} by {whose} before" if most else "none before",
                        f"{count:,}{share}",
                    )
            own.append(count)
        for measure in _TOUCHES:
            self._touched_before(None, measure).append(touched.get(measure, 0))

    def _touched_before(self, writer: str | None, measure: Measure) -> deque[int]:
        return self._touched.setdefault((writer, measure), deque(maxlen=MOST_BEFORE))

    def _of_partitions(self, commit: Commit, metadata: Metadata) -> Iterator[Seen]:
        physical, types = physical_names(metadata), column_types(metadata.schema_json)
        places = [show_partition(each, metadata, physical, types) for each in commit.partitions]
        writer, removes = writer_of(commit), commit.metrics.files_removed != 0
        is_load = commit.operation == "WRITE" and commit.metrics.files_added != 0
        if not is_load or removes:
            is_known = places and "" not in commit.partitions
            for other, counts in self._loads.items():
                for place in [*counts] if other != writer or not is_load else []:
                    if not is_known or place in places:
                        del counts[place]
        if not is_load or not (commit.user or commit.job):
            return
        counts, place = self._loads.setdefault(writer, Counter()), places[0] if len(places) == 1 else ""
        is_habit = self._num_loads[writer] >= LEAST_COMMITS <= len(counts) and set(counts.values()) == {1}
        if is_habit and counts[place] == 1 and _IN_TIME.search(place):
            yield Measure.TWICE, place, f"each of {len(counts):,} before once", "written a second time"
        counts.update(places)
        self._num_loads[writer] += 1


def writer_of(commit: Commit) -> str:
    """Who wrote, the same from run to run and after an upgrade; empty where nobody says."""
    if commit.origin is not None:
        return f"stream {commit.origin.stream}" if commit.origin.stream else "a streaming query"
    engine = re.sub(r"[/:]\S*", "", commit.engine or "")
    return ", ".join(part for part in (commit.user, job_of(commit), engine) if part)


def job_of(commit: Commit) -> str:
    """The job that wrote it, the same from run to run and version to version; empty where nobody says."""
    return re.sub(r",? ?\brun [^,]*| v?\d+(\.\d+)+\b", "", commit.job or "").strip(", ")


def _touched_by(commit: Commit) -> Iterator[tuple[Measure, int]]:
    """How many rows a statement that somebody wrote deleted or updated, where it says so."""
    metrics = commit.metrics
    measure, count = (
        (Measure.DELETED, metrics.rows_deleted)
        if commit.operation == "DELETE"
        else (Measure.UPDATED, metrics.rows_updated)
    )
    if commit.operation in ("DELETE", "UPDATE") and commit.origin is None and count is not None:
        yield measure, count


def _is_large(count: int, num_rows: int | None, share: float = _LEAST_TOUCHED) -> bool:
    return bool(num_rows) and count >= share * (num_rows or 0)


def _is_of_partitions(commit: Commit, metadata: Metadata | None) -> bool:
    """Whether it fills or empties some. Streams come back to theirs, and a MERGE or UPDATE changes what is there."""
    is_load = commit.origin is None and commit.operation not in ("MERGE", "UPDATE") and commit.may_change_rows
    return is_load and metadata is not None and bool(metadata.partition_columns)


# a table's commits, one after another --------------------------------------------------------------------------------


@dataclass
class TableJudge:
    """Is shown a table's versions one after another, oldest first. `earlier`: commits before the first of them, newest
    first; asked for only where something looks as never before, for most tables never."""

    ref: TableRef
    earlier: Callable[[], Sequence[Commit]] = tuple
    _past: list[tuple[Held, Commit | None]] = field(default_factory=list)
    _open: dict[Key, tuple[Notice, Mends]] = field(default_factory=dict)
    _young: dict[Key, Notice] = field(default_factory=dict)  # open, and not told yet
    _metadata: Metadata | None = None
    _changes: set[tuple[Measure, str, str]] = field(default_factory=set)  # what was set at some time
    _writers: deque[str] = field(default_factory=lambda: deque(maxlen=MOST_AT_ONCE))
    _habits: Habits = field(init=False)
    _partitions: set[str] = field(default_factory=set)
    _row_habits: RowHabits = field(default_factory=RowHabits)

    def __post_init__(self) -> None:
        self._habits = Habits(self.earlier)

    def rows_of(self, lake: Lake, commit: Commit) -> CommitRows | None:
        """Those of its next commit, read beside what is known of those before."""
        habits = self._row_habits
        return read_commit_rows(lake, self.ref, commit, habits.unmarked, habits.bounds(commit, writer_of(commit)))

    def see(
        self, held: Held, commit: Commit | None, streams: Mapping[str, str], rows: CommitRows | None = None
    ) -> Iterator[Notice]:
        """What this version did, and former notices that it mends. `streams`: the names of query ids; `rows`: its own,
        where they were read."""
        firsts = [*self._set_first(held.metadata), *self._wrote_first(commit)]
        previous = self._past[-1][0] if self._past else held
        num_rows = previous.num_rows if self._past else None
        firsts += self._habits.see(commit, held.metadata, num_rows) if commit else []
        yield from self.stood(commit.committed_at if commit else None)
        num_mended = 0.0
        for key, (notice, is_mended) in list(self._open.items()):
            if is_mended(previous, held, commit):
                del self._open[key]
                if self._young.pop(key, None) is None:
                    num_mended += math.inf if notice.rows is None or notice.condition else notice.rows
                    yield replace(notice, mended_at=held.version)
                else:  # it was nothing, and hides no step that is something
                    self._past = [(one, its) for one, its in self._past if one.version != notice.version]
        if commit is not None and len(self._past) >= LEAST_BEFORE:
            touched = dict(_touched_by(commit))
            firsts = [first for first in firsts if touched.get(first[0], math.inf) > _REPAIRS * num_mended]
            for first in firsts[:_MOST_OF_A_COMMIT]:
                notice = replace(self._notice(first, commit, streams), rows=touched.get(first[0]))
                if is_undone := self._undone(notice, num_rows, held):
                    self._open[notice.key] = notice, is_undone
                yield notice
        if not (commit is None or commit.may_change_rows if self._past else held.num_rows):
            return
        self._past = [*self._past[-MOST_BEFORE:], (held, commit)]
        if commit is None:
            return
        of_rows = self._row_habits.see(commit, writer_of(commit), rows) if rows else []
        if self._fills_back(commit):
            of_rows = []
        past = [one for one, _ in self._past]
        if len(past) <= LEAST_BEFORE:
            return
        if held.copied and rows is None and not any(one.copied for one in past[:-1]):
            share = f" ({percent(held.copied / held.num_rows)} of the table)" if held.num_rows else ""
            copies = Measure.COPIED, "", "none", f"{held.copied:,}{share}"
            notice = replace(self._notice(copies, commit, streams), rows=held.copied)
            self._open[notice.key] = notice, partial(_are_gone, held.copied)
            yield notice
        is_new = rows is not None and not self._row_habits.knows(commit, writer_of(commit))
        told = [each for each in ([] if is_new else steps(past)) if self._is_told(each, is_read=rows is not None)]
        if rows is not None:  # rows of a new kind are as they are; what comes late is no fault
            habits = self._row_habits
            told = [each for each in told if not habits.num_new and each.column not in habits.late]
        if not any(kind is Measure.DELETED for kind, *_ in firsts):
            told += _rows_lost(past)
        is_anew = all(_is_anew(before, after) for before, after in pairwise(self._past[-3:]))
        for notice, is_mended in islice(self._jumps(commit, of_rows, told, streams), _MOST_OF_A_COMMIT):
            self._open[notice.key] = notice, is_mended
            if is_anew:
                self._young[notice.key] = notice
            else:
                yield notice

    def _jumps(
        self, commit: Commit, of_rows: Sequence[RowFinding], told: Sequence[Suggestion], streams: Mapping[str, str]
    ) -> Iterator[tuple[Notice, Mends]]:
        """What the rows tell, most of them first, then what statistics tell of other columns. What statistics bound
        says more than that few values are alike."""
        of_log = {each.column: each for each in told}
        shown = [f for f in of_rows if f.kind not in (Measure.WHOLE, Measure.DISTINCT) or f.subject not in of_log]
        for found in shown:
            condition = (
                of_log[found.subject].condition if found.kind is Measure.HIGHEST and found.subject in of_log else ""
            )
            notice = self._notice((found.kind, found.subject, found.before, found.after), commit, streams, condition)
            notice = replace(notice, rows=found.rows, where=found.where, repair=found.repair)
            yield notice, partial(_is_taken_back, notice, [of_log[c] for c in found.columns if c in of_log])
        known = {column for found in shown for column in found.columns}
        for each in sorted(told, key=lambda each: -each.jump):
            if each.column not in known:
                before, after = (measure_text(each.measure, value) for value in (each.before, each.after))
                seen = each.measure, each.column or "", before, after
                yield self._notice(seen, commit, streams, each.condition), partial(_is_back, each)

    def _fills_back(self, commit: Commit) -> bool:
        """Whether it wrote partitions alone that nobody wrote before, and that lie before others."""
        is_back = bool(commit.partitions) and bool(self._partitions) and not self._partitions & {*commit.partitions}
        is_back = is_back and max(commit.partitions) < max(self._partitions)
        self._partitions |= {*commit.partitions}
        return is_back

    def _undone(self, notice: Notice, num_rows: int | None, held: Held) -> Mends | None:
        """What tells of a later version that it mends this; None where no version can. `num_rows`: those before."""
        if notice.kind is Measure.TWICE:
            return lambda *_: not self._habits.is_twice(notice.subject)
        if notice.kind is Measure.DELETED and num_rows is not None and held.num_rows is not None:
            return partial(_is_restored, (num_rows + held.num_rows) / 2)
        return None

    @property
    def is_waiting(self) -> bool:
        """Whether something is told only when it has stood for long enough."""
        return bool(self._young)

    def stood(self, now: datetime | None) -> Iterator[Notice]:
        """What has stood for long enough by now; None: that is not known."""
        for key, notice in list(self._young.items()):
            if now is None or notice.committed_at is None or now - notice.committed_at >= _STOOD:
                yield self._young.pop(key)

    def _set_first(self, metadata: Metadata | None) -> Iterator[Seen]:
        """What this version sets that no version before it had: what, of which name, before and after."""
        before, self._metadata = self._metadata, metadata
        if before is None or metadata is None or before == metadata:
            return
        for change in compare(InForce(before), InForce(metadata)):
            if change.kind.value not in FIRSTS or change.trait not in ("", "name", "type"):
                continue
            kind, was, now = Measure(change.kind), change.before or "none", change.after or "none"
            if (kind, change.subject, now) not in self._changes and not change.subject.startswith(_OWN_PROPERTIES):
                yield kind, change.subject, cut(was), cut(now)
            self._changes |= {(kind, change.subject, was), (kind, change.subject, now)}

    def _wrote_first(self, commit: Commit | None) -> Iterator[Seen]:
        """Whoever wrote rows for the first time, where newcomers are rare."""
        writer = writer_of(commit) if commit is not None and commit.may_change_rows else ""
        if writer and writer not in self._writers and len(self._writers) >= _LEAST_WRITES:
            (usual, _), *_ = counts = Counter(self._writers).most_common()
            is_rare = sum(count == 1 for _, count in counts) <= _NEWCOMERS * len(self._writers)
            if is_rare and writer not in map(writer_of, self.earlier()):  # long ago
                yield Measure.WRITER, "", usual, writer
        if writer:
            self._writers.append(writer)

    def _notice(self, seen: Seen, commit: Commit, streams: Mapping[str, str], condition: str = "") -> Notice:
        stream = stream_of(commit, streams)
        who = f"stream {stream}" if stream else commit.user or commit.job
        by = f"{commit.operation or 'a commit'}{f' by {who}' if who else ''}"
        return Notice(
            self.ref.uri, self.ref.name, commit.version, *seen, condition, by, commit.committed_at, job=job_of(commit)
        )

    def _is_told(self, found: Suggestion, *, is_read: bool) -> bool:
        """Whether the newest version took the step, and far enough for somebody who did not ask. `is_read`: its rows
        were, and show what befell more than a few."""
        newest, commit = self._past[-1]
        if found.column is None or found.first != newest.version:
            return False
        if found.measure is Measure.NULLS:
            is_delete = commit is not None and commit.operation == "DELETE"
            return not is_delete and found.after - found.before >= _LEAST_NULLS and found.before < _MOST_NULLS
        before, after = as_number(found.before) or 0.0, as_number(found.after) or 0.0
        if newest.columns[found.column].kind in TIMES:
            days = 1 if isinstance(found.after, datetime) else _LEAST_TIME_S
            if found.measure is Measure.LOWEST and (before - after) * days < _LEAST_TIME_S:
                return False
        else:  # by the width of the range, and at least to the double or the half; or it was never negative
            least = (_FEW_FAR_OUT if is_read else 1.0) if abs(after) > abs(before) else 0.5
            if self._grows_so(found.column, found.measure):
                return False
            is_far = found.jump >= _LEAST_JUMP and abs(after - before) >= least * abs(before)
            if not is_far and not after < 0 <= before:
                return False
        return not self._is_growth(found)

    def _grows_so(self, column: str, measure: Measure) -> bool:
        """Whether nothing but one value was there before, or the bound went as many times further before."""
        *known, newest = [abs(as_number(_bound(held, column, measure)) or 0.0) for held, _ in self._past]
        ratios = [after / before for before, after in pairwise([*known, newest]) if before > 0 and after > before]
        totals = self._past[-2][0].columns.get(column)
        is_one_value = len(set(known)) == 1 and totals is not None and totals.lowest == totals.highest
        return is_one_value or (len(ratios) > 1 and max(ratios[:-1]) ** 2 >= ratios[-1] and newest > max(known))

    def _is_growth(self, found: Suggestion) -> bool:
        """Whether the bound went no further than time did, or no faster than ever before, a row or a second."""
        newest, commit = self._past[-1]
        is_time = newest.columns[found.column or ""].kind in TIMES
        if is_time and found.measure is Measure.HIGHEST and commit and commit.committed_at:
            latest = commit.committed_at + _CLOCKS_APART
            limit = latest if isinstance(found.after, datetime) else latest.astimezone(UTC).date()
            return (as_number(found.after) or 0.0) <= (as_number(limit) or 0.0)
        for speeds in zip(*self._speeds(found.column or "", found.measure), strict=True):
            *before, now = speeds
            if now <= _FASTER * max(before):
                return True
        return False

    def _speeds(self, column: str, measure: Measure) -> Iterator[tuple[float, float]]:
        """How far the bound moved at each version, a row that came with it and a second since the one before."""
        for (before, first), (after, second) in pairwise(self._past):
            ends = [as_number(_bound(each, column, measure)) for each in (before, after)]
            moved = 0.0 if None in ends else abs((ends[1] or 0.0) - (ends[0] or 0.0))
            rows, took_s = (after.num_rows or 0) - (before.num_rows or 0), 0.0
            if first and second and first.committed_at and second.committed_at:
                took_s = (second.committed_at - first.committed_at).total_seconds()
            yield moved / max(1, rows), moved / max(1.0, took_s)


class NoticeLooks:
    """Looks at tables again and again, each time at what is new. One thread at a time. `streams`: the names of query
    ids, by which streaming commits name their stream. `rest` is told after every few versions how long they took."""

    def __init__(
        self,
        lake: Lake,
        streams: Callable[[], Mapping[str, str]] = dict,
        rest: Callable[[float], object] = lambda _: None,
        *,
        most_read: int = MOST_READ,
    ) -> None:
        self._most_read, self._left_s = most_read, MOST_FIRST_S
        self._lake, self._streams, self._rest, self._numbers = lake, streams, rest, held_numbers()
        self._judges: Lru[str, tuple[str, int, TableJudge]] = Lru(MOST_TABLES)  # with the table's id and the version

    def look(self, ref: TableRef, since: datetime, now: datetime) -> list[Notice]:
        """What commits since then did, and what was mended, each once, oldest first; of a table that was looked at
        before, what is new. Nothing of a table of more than `MOST_FILES` files, whose versions cost too much.

        Raises where the table cannot be read.
        """
        latest = self._lake.snapshot(ref)
        if latest.num_files > MOST_FILES or (latest.committed_at and latest.committed_at < since):
            return []
        table_id, seen, judge = self._judges.get(ref.uri) or ("", -1, TableJudge(ref))
        unread, is_first = latest.version - self._most_read, False
        if table_id != latest.metadata.id or not latest.version - MOST_AT_ONCE <= seen <= latest.version:
            first = self._lake.version_at(ref, since) or 0
            seen = max(first - MOST_BEFORE, latest.version - MOST_AT_ONCE, 0) - 1
            history = partial(self._lake.history, ref, ending_version=seen, limit=MOST_AT_ONCE)
            judge, is_first = TableJudge(ref, history if seen >= 0 else tuple), True
            unread = unread if self._left_s > 0 else latest.version
        found = dict[Key, Notice]()
        for low in range(seen + 1, latest.version + 1, _AT_ONCE):
            began_s, high = time.monotonic(), min(low + _AT_ONCE - 1, latest.version)
            began_cpu_s = time.thread_time()
            with self._lake.at_one_moment(ref):
                found |= self._judged(judge, ref, (low, high), unread)
            self._left_s -= time.thread_time() - began_cpu_s if is_first else 0.0
            self._judges.put(ref.uri, (latest.metadata.id, high, judge))
            self._rest(time.monotonic() - began_s)
        found |= {notice.key: notice for notice in judge.stood(now)}
        told = [each for each in found.values() if each.committed_at is None or each.committed_at >= since]
        return sorted(told, key=lambda each: each.version)

    def is_waiting(self, ref: TableRef) -> bool:
        """Whether a look without a new version may find something."""
        _, _, judge = self._judges.get(ref.uri) or ("", -1, TableJudge(ref))
        return judge.is_waiting

    def silences(self, ref: TableRef, since: datetime, now: datetime) -> list[Notice]:
        """Where nobody wrote for much longer than ever before, as it began to be told since then or was ended. Nothing
        of what streams write that we know: they are judged themselves. Raises where the log cannot be read."""
        recent = self._timed(ref, _FEWEST_REGULAR)
        origins, streams = [commit.origin for commit, _ in recent if commit.origin], self._streams()
        is_over = bool(recent) and recent[0][1] < since and not silences([at for _, at in recent], now)
        if not recent or is_over or any(origin.stream or origin.query_id in streams for origin in origins):
            return []
        found, commits = list[Notice](), self._timed(ref, MOST_AT_ONCE)
        times = [at for _, at in commits]
        for number, told_at in silences(times, now):
            usual = rhythm(times[: number + 1], times[number])
            ended, ended_at = commits[number + 1] if number + 1 < len(commits) else (None, told_at)
            is_load = number + 1 < _FEWEST_REGULAR or times[number] - times[0] < _LEAST_REGULAR
            if usual and not is_load and ended_at >= since:
                what = Measure.SILENCE, "", f"every {duration_text(usual.gap_s)}", "none"
                notice = TableJudge(ref)._notice(what, commits[number][0], streams)
                found.append(replace(notice, mended_at=ended.version if ended else None))
        return found

    def _timed(self, ref: TableRef, most: int) -> list[tuple[Commit, datetime]]:
        """The newest commits with their times, oldest first."""
        newest = self._lake.history(ref, limit=most)
        return [(commit, commit.committed_at) for commit in reversed(newest) if commit.committed_at]

    def _judged(self, judge: TableJudge, ref: TableRef, within: tuple[int, int], unread: int) -> Mapping[Key, Notice]:
        """`unread`: up to this version no rows are read."""
        low, high = within
        versions = spread(self._lake.versions(ref), high - low + 1, within=within)
        history = self._lake.history(ref, starting_version=low, ending_version=high)
        commits, streams, found = {commit.version: commit for commit in history}, self._streams(), dict[Key, Notice]()
        for held in held_at(self._numbers, self._lake, ref, versions):
            commit = commits.get(held.version)
            if held.num_files <= _MOST_COMPARED and (commit is None or commit.may_change_rows):
                held = replace(held, copied=_copied_rows(self._lake.snapshot(ref, held.version)))
            rows = None
            if commit is not None and commit.may_change_rows and held.version > unread:
                rows = judge.rows_of(self._lake, commit)
            found |= {notice.key: notice for notice in judge.see(held, commit, streams, rows)}
        return found


def _copied_rows(snapshot: Snapshot) -> int:
    """Rows of files that hold, by their statistics, what another file holds: number of rows, bounds and nulls of every
    column are the same, apart from columns in which each file is unlike all others, as when it was loaded.

    Two columns at least have to tell most files apart: of a table of few different values nothing is said.
    """
    files = snapshot.columns(("stats", "num_records"))
    rows, sections = list[int](), list[list[Mapping[str, Any]]]()
    for num_rows, text in zip(files["num_records"].to_pylist(), files["stats"].to_pylist(), strict=True):
        try:
            document = orjson.loads(text or "{}")
            bounds = [document.get(name) for name in ("minValues", "maxValues", "nullCount")]
        except (orjson.JSONDecodeError, AttributeError):  # none that Delta knows: the file is told from no other
            continue
        if num_rows is not None and num_rows >= _LEAST_COPIED and all(isinstance(each, dict) for each in bounds):
            rows.append(num_rows)
            sections.append(bounds)
    columns = []
    for name in {name for one in sections for name in one[0]}:
        values = [orjson.dumps([section.get(name) for section in one]) for one in sections]
        columns.append((len(set(values)), values))
    shared = [(distinct, values) for distinct, values in columns if distinct < len(rows)]
    if sum(2 * distinct >= len(rows) for distinct, _ in shared) < 2:
        return 0
    seen = Counter(zip(rows, *(values for _, values in shared), strict=True))
    return sum((count - 1) * num_rows for (num_rows, *_), count in seen.items())


def _is_anew(before: tuple[Held, Commit | None], after: tuple[Held, Commit | None]) -> bool:
    """Whether no file of the version before stayed and no row was copied, as far as the commit says."""
    (held, _), (_, commit) = before, after
    if commit is None or commit.metrics.rows_copied:
        return False
    return (commit.metrics.files_removed or 0) >= max(1, held.num_files)


def _rows_lost(past: Sequence[Held]) -> Iterator[Suggestion]:
    """Where the newest version lost half of the rows or more, and none before it nearly as large a share."""
    rows = [one.num_rows for one in past]
    losses = [1 - after / before if before and after is not None else 0.0 for before, after in pairwise(rows)]
    before, after = rows[-2:]
    if before is None or after is None or losses[-1] < max(_LEAST_LOSS, _FASTER * max(losses[:-1])):
        return
    condition, jump = f"count(*) >= {(before + after + 1) // 2}", (before - after) / max(1, after)
    yield Suggestion(condition, None, Measure.ROWS, past[-2].version, past[-1].version, before, after, jump)


def _bound(held: Held, column: str, measure: Measure) -> object:
    totals = held.columns.get(column)
    return totals and (totals.highest if measure is Measure.HIGHEST else totals.lowest)


def _are_gone(copies: int, before: Held, held: Held, _: Commit | None) -> bool:
    """Whether half of them were taken out; files that were written anew, as by OPTIMIZE, only hide them."""
    return held.copied <= copies / 2 <= (before.num_rows or 0) - (held.num_rows or 0)


def _is_taken_back(
    notice: Notice, of_log: Sequence[Suggestion], before: Held, held: Held, commit: Commit | None
) -> bool:
    """Whether the table is again as it was, nothing is left of its rows, or a statement touched as many as were hurt;
    where the log's statistics show the step as well, whether they show it no more."""
    if of_log:
        return any(_is_back(each, before, held, commit) for each in of_log)
    if commit is None:
        return False
    metrics, parameters = commit.metrics, commit.parameters
    if commit.operation == "RESTORE":
        return str(parameters.get("version") or "").isdigit() and int(parameters["version"]) < notice.version
    if (metrics.files_removed or 0) >= max(1, before.num_files) and commit.may_change_rows and not metrics.rows_copied:
        return True
    touched = (metrics.rows_deleted or 0) + (metrics.rows_updated or 0)
    is_statement = commit.operation in ("DELETE", "UPDATE", "MERGE") and commit.origin is None
    return is_statement and abs(touched - (notice.rows or 0)) <= _AS_MANY * (notice.rows or 0)


def _is_restored(least: float, _: Held, held: Held, commit: Commit | None) -> bool:
    """Whether it has so many rows again; new ones, as a table that grows gets them, bring none back."""
    return bool(commit and commit.operation == "RESTORE") and (held.num_rows or 0) >= least


def _is_back(found: Suggestion, _: Held, held: Held, __: Commit | None) -> bool:
    """Half of the step or more is taken back."""
    if found.measure is Measure.ROWS:
        return held.num_rows is not None and held.num_rows >= (found.before + found.after) / 2
    totals = held.columns.get(found.column or "")
    if totals is None:
        return False
    if found.measure is Measure.NULLS:
        return totals.null_share is not None and totals.null_share <= (found.before + found.after) / 2
    values: Sequence[object] = (_bound(held, found.column or "", found.measure), found.before, found.after)
    now, before, after = map(as_number, values)
    if now is None or before is None or after is None:
        return False
    return abs(now - before) <= abs(after - before) / 2
