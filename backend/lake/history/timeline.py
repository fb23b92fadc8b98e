"""Totals after every version that the log can still reconstruct, in one pass, and what is unusual of them: a commit
that does not come, and one after which there are far more or fewer rows.

Rule: the commits of an unbroken run are read once, and their file actions summed up as columns; no version is replayed
from its checkpoint. What was worked out for a version never changes, so it is kept on disk too, and believed while the
newest commit that it covers is the same. A table is judged against its own commits, never against a figure of ours: by
their median, which a few odd ones do not move. Too few commits, or unknown rows, tell nothing.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate, pairwise
from statistics import median

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from backend.caches import DiskCache
from backend.errors import LakehouseError, ObjectMissingError, TableCorruptError, VersionNotFoundError
from backend.lake.files.file_sizes import integers, small_limit, target_for
from backend.lake.log.actions import FileAction
from backend.lake.log.file_set import joined_actions
from backend.lake.log.log import LogState, TableLog, damaged
from backend.lake.model import Timeline, VersionTotals
from backend.settings import HealthSettings

AT_ONCE = 512  # commits; a long history is not held in memory as a whole
SAVE_AFTER = 50  # versions that were worked out and are not on disk yet
FORMAT = 4  # of a file, which is named by table, table id and the rule for small files
MOST_FILES = 2_000
_SUMMED = ("kind", "key", "size_bytes", "num_records", "deleted_rows")
_NO_FILE = 2**63 - 1  # in place of a size: larger than any limit

Figures = tuple[int, int, int | None, int]  # files, bytes, live rows (None: not known), small files
Numbers = npt.NDArray[np.int64]


class TableTimeline:
    """One table's totals, kept and moved forward by the new commits alone. Thread-safe."""

    def __init__(self, log: TableLog, health: HealthSettings, store: DiskCache) -> None:
        self._log, self._health, self._store = log, health, store
        self._lock = threading.Lock()
        self._generation = -1
        self._totals: list[VersionTotals] = []
        self._saved = 0

    def read(self) -> Timeline:
        """Totals of the newest unbroken run of versions; raises `TableCorruptError` when a commit cannot be read."""
        with self._lock:
            listing = self._log.listing()
            listing.segments(listing.latest)  # raises, with what is missing, when there is nothing to show
            first, last = listing.spans()[-1]
            if self._log.generation() != self._generation:  # another table has come to this address
                self._generation, self._totals, self._saved = self._log.generation(), [], 0
            if not self._totals:
                self._totals = self._load(first)
                self._saved = len(self._totals)
            if self._totals and self._totals[-1].version > last:
                self._totals, self._saved = [], 0
            if self._totals and self._totals[0].version > first:
                self._totals = self._sum_up(first, self._totals[0].version - 1) + self._totals
            self._reach(first, last)
            if len(self._totals) - self._saved >= SAVE_AFTER:
                name, tag = self._name(), self._log.commit_tag(last)
                if name and tag:
                    self._store.save(orjson.dumps([tag, self._totals]), *name)
                self._saved = len(self._totals)
            first = max(first, self._totals[0].version)
            shown = self._totals[first - self._totals[0].version :]
            return Timeline(tuple(shown), first, truncated=first > 0)

    def _reach(self, first: int, last: int) -> None:
        """Move on to a version; where a commit on the way is damaged or gone, start again behind it."""
        at = self._totals[-1].version if self._totals else first
        if self._totals and at == last:
            return
        try:
            self._totals = self._totals[:-1] + self._sum_up(at, last)
        except (TableCorruptError, VersionNotFoundError, ObjectMissingError):
            self._totals, self._saved = self._sum_up(max(0, self._log.base_version(last)), last), 0

    def _sum_up(self, first: int, last: int) -> list[VersionTotals]:
        """Totals of a run whose first version can be rebuilt. One without a commit is rebuilt as well: there a log
        compaction stands for several."""
        there = self._log.listing().commits
        starts = [first, *(version for version in range(first + 1, last + 1) if version not in there)]
        ends = [*(start - 1 for start in starts[1:]), last]
        return [totals for start, end in zip(starts, ends, strict=True) for totals in self._stretch(start, end)]

    def _stretch(self, start: int, end: int) -> list[VersionTotals]:
        """Totals of a version, and of those that commits alone lead to from there."""
        listed = self._log.listing().commits
        base = None if start == 0 and 0 in listed else self._log.state(start)
        configuration = base.metadata.configuration if base else None
        configurations = [configuration or {}] if base else []
        times: dict[int, datetime | None] = {}
        operations: dict[int, str] = {}
        blocks, lengths = [], [0] if base else []
        for batch in range(start, end + 1, AT_ONCE):
            versions = [version for version in range(batch, min(end + 1, batch + AT_ONCE)) if version in listed]
            commits = self._log.commits(versions)
            times |= self._log.committed_times(versions)
            for record in (commit.record for commit in commits):
                info = record.commit_info
                if isinstance(info, Mapping) and isinstance(operation := info.get("operation"), str):
                    operations[record.version] = operation
            if base and versions[:1] == [start]:
                commits = commits[1:]  # the base holds what it did
            for record in (commit.record for commit in commits):
                if record.problem:
                    raise damaged(record.problem, is_first=configuration is None)
                configuration = record.metadata.configuration if record.metadata else configuration
                configurations.append(configuration or {})
            lengths += [commit.length for commit in commits]
            blocks += [joined_actions([commit.actions for commit in commits if commit.length]).select(_SUMMED)]
        figures = window_sums(base, pa.concat_tables(blocks), np.cumsum(lengths), configurations, self._health)
        return [
            VersionTotals(version, times.get(version), operations.get(version), *row)
            for version, row in enumerate(figures, start)
        ]

    # on disk ------------------------------------------------------------------------------------------------------

    def _load(self, first: int) -> list[VersionTotals]:
        """Totals from version `first` on, as far as they were kept; empty when they cannot be believed."""
        name = self._name()
        content = self._store.load(*name) if name else None
        if content is None:
            return []
        tag, rows = orjson.loads(content)
        for row in rows:
            at = row["committed_at"]
            row["committed_at"] = None if at is None else datetime.fromisoformat(at)
        totals = [VersionTotals(**row) for row in rows if row["version"] >= first]
        is_known = totals and totals[0].version == first and tag == self._log.commit_tag(totals[-1].version)
        return totals if is_known else []

    def _name(self) -> Sequence[object]:
        """What the totals depend on; empty where nothing is kept."""
        if self._store.folder is None or not self._store.folder.parent.is_dir():
            return ()
        try:
            table_id = self._log.state(self._log.latest()).metadata.id
        except LakehouseError:
            return ()
        rule = self._health.small_file_ratio, self._health.target_file_bytes
        return FORMAT, self._log.ref.uri, table_id, rule


# sums ------------------------------------------------------------------------------------------------------------


def window_sums(
    base: LogState | None,
    actions: pa.Table,
    ends: Numbers,
    configurations: Sequence[Mapping[str, str]],
    health: HealthSettings,
) -> list[Figures]:
    """Figures after so many file actions as each of `ends` says, on top of those of a base. `configurations` are the
    properties in force there.

    An action takes away the file that its key named before, and an add brings one.
    """
    is_kept = integers(actions["kind"]) != FileAction.CDC
    ends = np.concatenate([[0], np.cumsum(is_kept)])[ends]
    before, after = _moves(base, actions.filter(pa.array(is_kept)))
    sizes, live, unknown = _base_files(base)

    def summed(changes: Numbers, start: int) -> Numbers:
        return start + np.concatenate([[0], np.cumsum(changes, dtype=np.int64)])[ends]

    starts = (len(sizes), int(sizes.sum()), live, unknown)
    num_files, size_bytes, rows, dark = map(summed, after - before, starts)
    limits = np.array(
        [
            small_limit(target_for(configuration, size, health), health.small_file_ratio)
            for configuration, size in zip(configurations, size_bytes.tolist(), strict=True)
        ],
        np.int64,
    )
    small = _small(sizes, _sizes(before), _sizes(after), ends, limits)
    known = (None if hidden else count for count, hidden in zip(rows.tolist(), dark.tolist(), strict=True))
    return list(zip(num_files.tolist(), size_bytes.tolist(), known, small.tolist(), strict=True))


def _moves(base: LogState | None, actions: pa.Table) -> tuple[Numbers, Numbers]:
    """Per action the file that it takes away, and the one that it brings: 1, size, live rows, and 1 where these are not
    known; 0 everywhere where there is none. The file before is that of the last action on its key, else the base's."""
    keys = actions["key"].combine_chunks()
    coded = (keys if isinstance(keys, pa.Array) else pa.concat_arrays(keys.chunks)).dictionary_encode()
    codes = coded.indices.to_numpy()
    after = _described(actions) * (integers(actions["kind"]) == FileAction.ADD)
    names = coded.dictionary.to_pylist()
    in_base = np.zeros((len(after), len(names)), np.int64)
    if base is not None and (places := base.files.find(names)):
        pairs = np.array([(code, places[name]) for code, name in enumerate(names) if name in places], np.int64)
        in_base[:, pairs[:, 0]] = _described(base.files.take(pairs[:, 1], _SUMMED[2:]))
    order = np.argsort(codes, kind="stable")
    previous = np.full(len(codes), -1, np.int64)
    is_same = codes[order[1:]] == codes[order[:-1]]
    previous[order[1:][is_same]] = order[:-1][is_same]
    return np.where(previous >= 0, after[:, previous], in_base[:, codes]), after


def _described(files: pa.Table) -> Numbers:
    rows = pc.subtract(files["num_records"], files["deleted_rows"])
    columns = (pc.fill_null(files["size_bytes"], 0), pc.fill_null(rows, 0), pc.is_null(rows).cast(pa.int64()))
    return np.stack([np.ones(files.num_rows, np.int64), *map(integers, columns)])


def _sizes(files: Numbers) -> Numbers:
    return np.where(files[0] == 1, files[1], _NO_FILE)


def _base_files(base: LogState | None) -> tuple[Numbers, int, int]:
    """Sizes of a base's files, their live rows as far as they are known, and how many do not say them."""
    if base is None:
        return np.zeros(0, np.int64), 0, 0
    rows = pc.subtract(base.files.column("num_records"), base.files.column("deleted_rows"))
    return integers(base.files.column("size_bytes")), int(pc.sum(rows).as_py() or 0), int(rows.null_count)


def _small(base: Numbers, before: Numbers, after: Numbers, ends: Numbers, limits: Numbers) -> Numbers:
    """How many files are below each limit at each end. Limits move with the table's size: only files of a size between
    them are looked at again for each."""
    low, high = int(limits.min()), int(limits.max())
    always = np.concatenate([[0], np.cumsum((after < low).astype(np.int64) - (before < low))])[ends]
    counts = always + int(np.count_nonzero(base < low))
    if low == high:
        return counts
    counts += np.searchsorted(np.sort(base[(base >= low) & (base < high)]), limits)
    sizes, signs = np.stack([after, before], axis=1).ravel(), np.tile([1, -1], len(after))
    between = np.flatnonzero((sizes >= low) & (sizes < high))
    sizes, signs = sizes[between], signs[between]
    until = np.searchsorted(between, 2 * ends)
    return counts + [int(signs[:at][sizes[:at] < limit].sum()) for at, limit in zip(until, limits, strict=True)]


FEWEST_CHANGES = 8  # below, nothing is usual
SPREADS = 8.0  # how far from the median, in the larger of spread and median
LEAST_SHARE = 0.05  # of the rows that were there
MOST_JUMPS = 3
_SIGMA = 1.4826  # turns a median of deviations into a standard deviation


@dataclass(frozen=True, slots=True)
class Jump:
    """The change of rows by one version, beside the median change of all that changed any."""

    version: int
    change: int
    usual: int
    operation: str | None = None


def unusual_jumps(totals: Sequence[VersionTotals], *, most: int = MOST_JUMPS) -> list[Jump]:
    """The largest unusual changes of rows, oldest first. The first rows of a table are never one."""
    changes = [
        (item, item.num_rows - before.num_rows, before.num_rows)
        for before, item in pairwise(totals)
        if item.num_rows is not None and before.num_rows
    ]
    sizes = [change for _, change, _ in changes if change]
    if len(sizes) < FEWEST_CHANGES:
        return []
    usual = median(sizes)
    spread = _SIGMA * median(abs(size - usual) for size in sizes)
    far = SPREADS * max(spread, abs(usual), 1.0)
    jumps = [
        Jump(item.version, change, round(usual), item.operation)
        for item, change, rows in changes
        if abs(change - usual) > far and abs(change) >= LEAST_SHARE * rows
    ]
    largest = sorted(jumps, key=lambda jump: -abs(jump.change - usual))[:most]
    return sorted(largest, key=lambda jump: jump.version)


# rhythm -----------------------------------------------------------------------------------------------------------

FEWEST_COMMITS = 4  # below, there is no rhythm
LEAST_GAP_S = 1.0  # commits closer than that are one burst
LATE_TIMES = 5.0  # the usual gap; the longest, where the rhythm is told to have stopped
LEAST_SILENCE_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Seconds from commit to commit: the median and the longest of the recent gaps, and since the last one."""

    gap_s: float
    longest_s: float
    since_s: float

    @property
    def is_late(self) -> bool:
        """Whether the last commit is longer ago than any recent gap, and many usual ones."""
        return self.since_s > max(self.longest_s, LATE_TIMES * self.gap_s)


def rhythm(moments: Iterable[datetime | None], now: datetime) -> Rhythm | None:
    """The rhythm of recent commits in any order; None where too few have a time, or where they are one burst."""
    times = sorted(moment for moment in moments if moment is not None)
    if len(times) < FEWEST_COMMITS:
        return None
    gaps = [(after - before).total_seconds() for before, after in pairwise(times)]
    result = Rhythm(median(gaps), max(gaps), (now - times[-1]).total_seconds())
    return result if result.gap_s >= LEAST_GAP_S else None


def silences(moments: Sequence[datetime], now: datetime) -> list[tuple[int, datetime]]:
    """The numbers of the commits (by their times, oldest first) after which it was silent for much longer than ever
    before, and from when on that was so. More commits before make it fewer, never more."""
    gaps = [(after - before).total_seconds() for before, after in pairwise([*moments, now])]
    limits = (max(LEAST_SILENCE_S, LATE_TIMES * longest) for longest in accumulate(gaps, max, initial=0.0))
    return [
        (number, moments[number] + timedelta(seconds=limit))
        for number, (gap, limit) in enumerate(zip(gaps, limits, strict=False))
        if number and gap > limit
    ]
