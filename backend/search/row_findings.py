"""Which of a commit's rows are unlike those of its own kind before: the same writer and operation, else the table's.

Rule: pure. A finding needs five commits of the kind, an effect, rows enough that chance does not make it, and a step
far beyond all steps before it: what drifts, grows or has its hours is none. Of all groups of rows that show it, the one
is told that explains it and leaves others untouched.
"""

import math
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median

import numpy as np
import numpy.typing as npt

from backend.format import duration_text, figure_text, percent
from backend.lake.model import Commit
from backend.search.commit_rows import NUMBERS, TIMES, Bounds, CommitRows, RowSeries
from backend.search.notice import Measure, hurt_by
from backend.sql.values import plain_name, quoted_text

LEAST_COMMITS, MOST_COMMITS, MOST_SERIES = 5, 48, 2_000
_LEAST_OF_TABLE = 10  # commits, where the kind has too few of its own; and to know how many rows it adds
_STEADY, _FEWER = 2.0, 0.5  # the most rows of a steady writer, and what is few, of the fewest before
_LEAST_ROWS, _LEAST_SIGMA = 10, 6.0
_LEAST_SHARE, _LEAST_FIRST = 0.05, 0.02  # more than ever; where there was none at all
_LEAST_LEVEL_ROWS, _LEAST_RATIO, _LEAST_SPREADS, _LEAST_SPREADS_OF_TIME = 20, 0.3, 1.5, 1.2
_LEAST_INVERSE, _AS_INVERSE = 0.03, 0.03  # the same where values are one over what they were; how far that may be off
_WEAK = 0.25  # of these spreads, where all quantiles moved by one factor, or two columns changed places
_LEAST_SECONDS, _LEAST_DAYS_S, _FASTER = 60.0, 1.5 * 86_400, 8.0
_LEAST_GONE, _LEAST_TAKEN = 0.05, 0.3  # share of a value that always came; more of one than ever
_LEAST_COPIED, _LEAST_COPIED_OF_SNAPSHOTS, _MOST_MARKED = 0.02, 0.5, 24
_APART, _NEARLY_ALL = 1.3, 0.9  # hurt rows: times as many in a group as in all, and of all of them
_FEW, _NAMED = 20, 3  # rows of a group that is taken for untouched; columns
_TAIL, _FAR = 8.0, 3.0  # times the highest tenth of most commits; the highest of all
_NEAR = 1.25  # that the middle of some rows lies off by chance
_NEARLY_ABOVE = 0.5  # of the highest before: where what was multiplied lies above it, nearly all of it
_OF_NEW = 1.15  # times as many rows as are of a new kind, that a step is theirs
_ABOUT = 0.15  # of the step, that columns which changed places may lie off
_NEVER_MEANT = (Measure.VALUE, Measure.DISTINCT, Measure.GARBLED, Measure.LATER)  # not even by rows of a new kind
_DIGITS = 3
_INSTEAD = 0.7  # of the rows that others usually have, where a value takes their place
_ROWS = RowSeries("", "rows")
_AGREE, _LEAST_FACTOR = 1.25, 1.8  # how far quantiles' ratios lie apart; of one that is not round
_NICE = (*(10.0**n for n in range(1, 10)), 24.0, 60.0, 1440.0, 3600.0, 86_400.0)

# A share that rises, by what is measured; then those that may fall, and those of both.
_RISES = {
    "null": Measure.NULLS, "empty": Measure.EMPTY, "mode": Measure.ONE_VALUE, "negative": Measure.NEGATIVE,
    "zero": Measure.ZERO, "padded": Measure.PADDED, "foreign": Measure.FOREIGN, "garbled": Measure.GARBLED,
    "whole": Measure.WHOLE,
    "above": Measure.HIGHEST, "later": Measure.LATER, "same": Measure.LATER, "alike": Measure.ONE_VALUE,
    "upper": Measure.CAPITALS, "lower": Measure.SMALL, "true": Measure.TRUE,
}  # fmt: skip
# Judged also where the kind has no past.
_OF_ANY_WRITER = ("null", "empty", "garbled", "above", "negative", "padded", "foreign", "middle")
_FALLS = {"distinct": Measure.DISTINCT, "true": Measure.TRUE, "negative": Measure.NEGATIVE, "same": Measure.LATER}
_ORDER = (
    "null", "empty", "garbled", "later", "above", "alike", "same", "value", "negative", "whole", "zero", "mode",
    "padded", "upper", "lower", "foreign", "middle", "lag", "true", "distinct",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RowFinding:
    """One step of a commit's rows, as `Notice` has it."""

    kind: Measure
    subject: str
    before: str
    after: str
    rows: int
    where: str = ""
    repair: str = ""
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Flag:
    series: RowSeries
    before: float
    after: float
    rows: int  # of the group
    hurt: int
    measure: Measure
    is_weak: bool = False  # a level that tells only together with others


@dataclass(slots=True)
class _Past:
    """Numbers of the last commits of one kind."""

    series: dict[RowSeries, "array[float]"] = field(default_factory=dict)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    num_commits: int = 0

    def add(self, values: Mapping[RowSeries, float], rows: CommitRows) -> None:
        if len(self.series) > max(
            MOST_SERIES, 2 * len(values)
        ):  # by values that come no more, such as numbers of batches
            self.series = {series: known for series, known in self.series.items() if series in values}
            self.counts = Counter({group: self.counts[group] for group in rows.counts})
        for series, value in values.items():
            known = self.series.setdefault(series, array("d"))
            known.append(value)
            if len(known) > MOST_COMMITS:
                del known[0]
        self.counts.update(rows.counts)
        self.num_commits = min(self.num_commits + 1, MOST_COMMITS)


class RowHabits:
    """Is shown the rows of a table's commits one after another."""

    def __init__(self) -> None:
        self._kinds: defaultdict[tuple[str, str], _Past] = defaultdict(_Past)
        self._table = _Past()
        self._constants: frozenset[str] | None = None
        self._marked: deque[tuple[int, npt.NDArray[np.uint64]]] = deque(maxlen=_MOST_MARKED)
        self._copied: deque[float] = deque(maxlen=MOST_COMMITS)
        self._unmarked: frozenset[str] = frozenset()
        self.num_new = 0  # of the newest commit's rows, how many have a value of few that the table never had
        self.late = frozenset[str]()  # times of which all its rows lie a day further back than ever
        self._has_key = False  # whether a column, or nearly, tells rows apart

    def knows(self, commit: Commit, writer: str) -> bool:
        """Whether there is a past of its kind."""
        return self._kinds[writer, commit.operation or ""].num_commits >= LEAST_COMMITS

    @property
    def unmarked(self) -> frozenset[str]:
        """Columns that tell batches apart, not rows: one value in each, and times, where something else tells rows."""
        return self._unmarked

    def bounds(self, commit: Commit, writer: str) -> Bounds:
        """Of columns with numbers that do not grow: the highest, or less where few rows lie far above others."""
        past = self._past_of(commit, writer)
        found = dict[str, tuple[float, float]]()
        for one, known in past.series.items():
            if one.measure == "most" and len(known) >= LEAST_COMMITS:
                low, high = _least(one.column, past), max(known)
                usual = _TAIL * median(past.series.get(one._replace(measure="high"), known))
                grows = sum(after > before for before, after in pairwise(known)) >= _NEARLY_ALL * (len(known) - 1)
                if low < high and not grows:
                    is_tail = 0 < usual < high
                    found[one.column] = (usual, usual) if is_tail else (high, max(_FAR * high, high + 2 * (high - low)))
        return found

    def _past_of(self, commit: Commit, writer: str) -> _Past:
        kind = self._kinds[writer, commit.operation or ""]
        return kind if kind.num_commits >= LEAST_COMMITS else self._table

    def see(self, commit: Commit, writer: str, rows: CommitRows) -> list[RowFinding]:
        """What is unlike before, most rows first."""
        values = {**rows.values, **_lags(rows.values), _ROWS: float(rows.num_rows)}
        kind, past = self._kinds[writer, commit.operation or ""], self._past_of(commit, writer)
        self.num_new, self.late = self._num_of_new_kind(rows), _late(past, rows)
        found = list[RowFinding]()
        if past is kind or past.num_commits >= _LEAST_OF_TABLE:
            is_load = commit.operation not in ("UPDATE", "MERGE", "DELETE")
            flags = _flags(past, values, rows, is_own=past is kind, is_load=is_load)
            found = _told((each for each in flags if not _is_of_new(each, self.num_new)), past, rows)
            if past is kind and commit.origin is None and rows.is_append:  # streams add as many as come
                found += _few_added(past, rows.num_rows)
        copied = self._copies(commit, rows)
        kind.add(values, rows)
        self._table.add(values, rows)
        self._learn(rows)
        return sorted([*copied, *found], key=lambda each: -each.rows)

    def _num_of_new_kind(self, rows: CommitRows) -> int:
        """Rows with a value that no commit of the table had, in a column with few values: they are as they are."""
        if self._table.num_commits < LEAST_COMMITS:
            return 0
        new = Counter[str]()
        for (group, value), count in rows.counts.items():
            is_followed = RowSeries(group, "mode") not in self._table.series  # it never had many values
            if (
                count >= _LEAST_ROWS
                and is_followed
                and RowSeries(group, "value", group, value) not in self._table.series
            ):
                new[group] += count
        del new[""]
        return max(new.values(), default=0)

    def _learn(self, rows: CommitRows) -> None:
        self._constants = rows.constants if self._constants is None else self._constants & rows.constants
        times = {name for name, kind in rows.kinds.items() if kind.startswith("timestamp")}
        self._has_key = any(
            series.measure == "distinct" and series.column not in times and min(known) >= 0.95
            for series, known in self._table.series.items()
        )
        unmarked = self._constants | (times if self._has_key else set())
        if unmarked != self._unmarked:
            self._unmarked = unmarked
            self._marked.clear()
            self._copied.clear()

    def _copies(self, commit: Commit, rows: CommitRows) -> list[RowFinding]:
        """Rows that an earlier commit added as well."""
        found, share = list[RowFinding](), 0.0
        if self._marked and len(rows.marks):
            there = {version: _is_among(rows.marks, marks) for version, marks in self._marked}
            share = float(np.mean(np.any([*there.values()], axis=0)))
            num = round(share * rows.num_rows)
            least = _LEAST_COPIED if self._has_key else _LEAST_COPIED_OF_SNAPSHOTS
            is_odd = rows.is_append and share >= least + 3 * max(self._copied, default=0.0)
            if len(self._copied) >= LEAST_COMMITS and is_odd and num >= _LEAST_ROWS:
                most = max(there, key=lambda version: int(there[version].sum()))
                after = f"{num:,} of {rows.num_rows:,} rows, as of v{most}"
                found.append(RowFinding(Measure.COPIED, "", "none", after, num))
        if self._marked:
            self._copied.append(share)
        self._marked.append((commit.version, rows.marks))
        return found


def _few_added(past: _Past, num: int) -> list[RowFinding]:
    """Where each of the commits before brought about as many rows, and this one far fewer."""
    known = past.series[_ROWS]
    least, most = int(min(known)), int(max(known))
    if len(known) < _LEAST_OF_TABLE or most > _STEADY * least or num > _FEWER * least:
        return []
    return [RowFinding(Measure.ADDED, "", f"at least {least:,} by each before", f"{num:,}", 0)]


def _is_of_new(flag: _Flag, num_new: int) -> bool:
    """Whether it may be that rows of a new kind came."""
    excess = abs(flag.after - flag.before) * flag.rows if flag.measure is not Measure.MEDIAN else math.inf
    return flag.measure not in _NEVER_MEANT and excess <= _OF_NEW * num_new


def _is_among(marks: npt.NDArray[np.uint64], others: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Which of them are; both are sorted."""
    if not len(others):
        return np.zeros(len(marks), bool)
    found: npt.NDArray[np.bool_] = others[np.searchsorted(others, marks).clip(max=len(others) - 1)] == marks
    return found


def _lags(values: Mapping[RowSeries, float]) -> dict[RowSeries, float]:
    """By how much the times of a group lie after those of all rows, in seconds."""
    return {
        series._replace(measure="lag"): value - every
        for series, value in values.items()
        if series.group
        and series.measure == "middle"
        and not series.other
        and RowSeries(series.column, "low") not in values
        and (every := values.get(RowSeries(series.column, "middle"))) is not None
    }


# what is unlike before -----------------------------------------------------------------------------------------------


def _flags(
    past: _Past, values: Mapping[RowSeries, float], rows: CommitRows, *, is_own: bool, is_load: bool
) -> Iterator[_Flag]:
    for series, known in past.series.items():
        if len(known) < LEAST_COMMITS or not (is_own or series.measure in _OF_ANY_WRITER):
            continue
        num, value = rows.counts.get((series.group, series.value), 0), values.get(series)
        numbers = [*known, *([before] if (before := rows.before.get(series)) is not None else [])]
        if series.measure == "value":
            if is_load:
                usual = median(past.series[_ROWS]) * (1 - median(numbers))
                is_instead = rows.num_rows * (1 - (value or 0.0)) <= _INSTEAD * usual
                is_whole = len(known) >= past.num_commits
                yield from _value_flag(series, numbers, value or 0.0, rows.num_rows, is_whole, is_instead=is_instead)
        elif value is None or series == _ROWS or (series.measure == "above" and not _is_far(series, past, rows)):
            continue
        elif series.measure not in ("middle", "lag"):
            yield from _share_flag(series, numbers, value, num, past.counts[series.group, series.value])
        elif not series.other or (is_own and rows.is_append):
            yield from _level_flag(series, numbers, value, num, past, rows)
    for series, value in values.items():  # by bounds of all before
        if _is_far(series, past, rows) and len(past.series.get(series, ())) < LEAST_COMMITS:
            num, total = rows.counts.get((series.group, series.value), 0), past.counts[series.group, series.value]
            yield from _share_flag(series, [0.0] * LEAST_COMMITS, value, num, total)


def _is_far(series: RowSeries, past: _Past, rows: CommitRows) -> bool:
    most = RowSeries(series.column, "most")
    return series.measure == "above" and rows.values[most] > _FAR * _most(series.column, past)


def _room(numbers: Sequence[float], times: float) -> float:
    """How far a number may lie outside those before; the fewer there are, the further."""
    return (times + 4 * times / max(1, len(numbers) - 4)) * (max(numbers) - min(numbers))


def _share_flag(series: RowSeries, numbers: Sequence[float], value: float, num: int, total: int) -> Iterator[_Flag]:
    for measures, sign, end in ((_RISES, 1, max(numbers)), (_FALLS, -1, min(numbers))):
        step = sign * (value - end)
        if series.measure not in measures or step <= 0:
            continue
        is_first = end == (0.0 if sign > 0 else 1.0)
        least = max(_LEAST_FIRST, 60 / max(1, total)) if is_first or series.measure == "mode" else _LEAST_SHARE
        chance = min(max(end, 1 / max(1, total)), 1 - 1 / max(2, total))
        sigma = math.sqrt(chance * (1 - chance) / max(1, num) + 1e-9)
        hurt = round(step * num)
        if series.measure == "alike" and (value < 1 or end > _NEARLY_ALL):
            continue
        room = 0.0 if series.measure == "alike" else _room(numbers, 3)
        if step >= max(least, room) and hurt >= _LEAST_ROWS and step >= _LEAST_SIGMA * sigma:
            middle, measure = median(numbers), measures[series.measure]
            is_counted = sign > 0 and series.measure not in ("true", "same")  # all that are so, whom `where` names
            hurt = round((value if is_counted else abs(value - middle)) * num)
            yield _Flag(series, middle, value, num, hurt, measure)


def _value_flag(
    series: RowSeries, numbers: Sequence[float], value: float, num: int, is_whole: bool, *, is_instead: bool
) -> Iterator[_Flag]:
    """A value that always came (`is_whole`: in each commit) and is gone, or one that takes the place of others."""
    low, high, middle = min(numbers), max(numbers), median(numbers)
    hurt = round(abs(value - middle) * num)
    is_of_many = (
        sum(map(str.isdigit, series.value)) >= _DIGITS
    )  # a number of its own, as of a campaign or a day: it ends
    is_gone = (
        is_whole
        and not is_of_many
        and low >= _LEAST_GONE
        and value < low / 10
        and low * num >= 3 * _LEAST_ROWS
        and high <= 3 * low
    )
    takes_over = is_instead and value >= high + max(_LEAST_TAKEN, _room(numbers, 3))
    if hurt >= _LEAST_ROWS and (is_gone or takes_over):
        yield _Flag(series, middle, value, num, hurt, Measure.VALUE)


def _level_flag(
    series: RowSeries, numbers: Sequence[float], value: float, num: int, past: _Past, rows: CommitRows
) -> Iterator[_Flag]:
    off = max(min(numbers) - value, value - max(numbers))
    is_lag = series.measure == "lag"
    if off <= 0 or num < _LEAST_LEVEL_ROWS or not (is_lag or _has_spread(series, past)):
        return
    is_of_few = rows.kinds.get(series.column) in NUMBERS and RowSeries(series.column, "mode") not in rows.values
    if series.column in rows.constants or is_of_few:  # what few values do is told of each
        return
    middle, step = median(numbers), max(abs(after - before) for before, after in pairwise(numbers))
    spread = 0.0
    if not is_lag:
        low, high = (median(past.series[series._replace(measure=end)]) for end in ("low", "high"))
        spread = high - low
    times, is_shifted = _LEAST_SPREADS, True
    if is_lag or series.other:
        is_of_days = "date" in (rows.kinds.get(series.column), rows.kinds.get(series.other))
        times, least = _LEAST_SPREADS_OF_TIME, _LEAST_DAYS_S if is_of_days else _LEAST_SECONDS
        # By hours, as a time zone does; and what never differed tells nothing of the times themselves.
        beside = abs(value - middle) % 3600
        if _is_late(series, past, rows):
            return
        is_shifted = not is_lag or (
            max(numbers) > min(numbers) and min(beside, 3600 - beside) <= 300 and rows.is_append
        )
    elif rows.kinds.get(series.column) == "string":
        least = max(2.0, 0.2 * middle)
    else:
        least = max((_LEAST_INVERSE if _is_inverse(series, past, rows) else _LEAST_RATIO) * abs(middle), 1e-9)
    if is_shifted and off >= least and off > max(_room(numbers, 4), _FASTER * step, _WEAK * times * spread):
        yield _Flag(series, middle, value, num, num, Measure.MEDIAN, off <= times * spread)


def _late(past: _Past, rows: CommitRows) -> frozenset[str]:
    """Columns whose times lie days further back than ever, nearly all of them."""
    times = {column for column, kind in rows.kinds.items() if kind in TIMES} - rows.constants
    levels = ((column, RowSeries(column, "middle"), RowSeries(column, "high")) for column in times)
    return frozenset(
        column for column, level, high in levels
        if high in rows.values and level in past.series and rows.values[high] < min(past.series[level]) - 86_400
    )  # fmt: skip


def _is_late(series: RowSeries, past: _Past, rows: CommitRows) -> bool:
    """Whether all rows of the commit lie days further back than ever, beside when they were written."""
    every = series._replace(group="", value="")
    if series.other and every in past.series and every in rows.values:
        by = rows.values[every] - median(past.series[every])
        return abs(by) > 86_400 and (series.column if by > 0 else series.other) in rows.constants
    return False


def _has_spread(series: RowSeries, past: _Past) -> bool:
    return all(len(past.series.get(series._replace(measure=end), ())) >= LEAST_COMMITS for end in ("low", "high"))


# which of them are told ----------------------------------------------------------------------------------------------


def _told(flags: Iterator[_Flag], past: _Past, rows: CommitRows) -> list[RowFinding]:
    """One for each column, or two times against each other: the first of `_ORDER`, of the rows that explain it."""
    by_columns = defaultdict[tuple[str, str], defaultdict[str, list[_Flag]]](lambda: defaultdict(list))
    for flag in flags:
        by_columns[flag.series.column, flag.series.other][flag.series.measure].append(flag)
    levels = {c: _explaining(found["middle"], rows) for c, found in by_columns.items() if "middle" in found}
    found = list[RowFinding]()
    for one in [columns for columns in levels if not columns[1]]:
        if one in by_columns and (other := _swapped_with(levels[one], past, rows)):
            found.append(_swap(min(one[0], other), max(one[0], other), levels[one]))
            by_columns.pop(one, None)
            by_columns.pop((other, ""), None)
    for columns, some in levels.items():
        if some[0].is_weak and columns in by_columns and not _factor(some[0].series, past, rows):
            del by_columns[columns]["middle"]
    paired = {name for columns in by_columns if columns[1] for name in columns}
    later = {columns[0] for columns, measures in by_columns.items() if "later" in measures}
    for columns, measures in by_columns.items():
        measure = _telling(measures, levels.get(columns, []), past, rows)
        is_same = measure in ("middle", "lag") and not later.isdisjoint(columns)  # told by what it led to
        if measure is not None and not is_same and not (measure == "lag" and columns[0] in paired):
            told = _finding(_explaining(measures[measure], rows), past, rows)
            found += [told] if told else []
    of_one = {name for each in found if len(each.columns) == 1 for name in each.columns}
    return _of_one_cause([each for each in found if not (_is_of_equals(each) and of_one & {*each.columns})])


def _is_of_equals(found: RowFinding) -> bool:
    """Whether two numbers became equal or unlike, which what befell one of them explains."""
    return found.kind is Measure.LATER and " = " in found.subject


def _telling(
    measures: Mapping[str, Sequence[_Flag]], level: Sequence[_Flag], past: _Past, rows: CommitRows
) -> str | None:
    """Which of a column's measures tells most. Of numbers that were multiplied: those far above all before, where they
    are exactly the ones, or most of the `level` that moved; else all of that."""
    first = next((each for each in _ORDER if each in measures), None)
    if "middle" not in measures:
        return first
    factor, column = _factor(level[0].series, past, rows), level[0].series.column
    if first != "above":
        return "middle" if factor else first
    num_above, num = (sum(flag.hurt for flag in some) for some in (_explaining(measures["above"], rows), level))
    if factor:
        reaches = factor * _least(column, past) >= _NEARLY_ABOVE * _most(column, past)
        return "above" if reaches and num_above < num else "middle"
    return "above" if level[0].is_weak or num_above >= num / 2 else "middle"


def _least(column: str, past: _Past) -> float:
    return min(past.series[RowSeries(column, "least")])


def _most(column: str, past: _Past) -> float:
    return max(past.series[RowSeries(column, "most")])


def _of_one_cause(found: Sequence[RowFinding]) -> list[RowFinding]:
    """Columns to which the same happened in as many rows are one finding, of the first of them."""
    told = list[list[RowFinding]]()
    for each in found:
        for first, *others in told:
            is_alike = (first.kind, bool(first.repair)) == (each.kind, bool(each.repair))
            if is_alike and abs(first.rows - each.rows) <= 0.1 * max(first.rows, each.rows):
                told[told.index([first, *others])].append(each)
                break
        else:
            told.append([each])
    return [
        replace(
            first,
            after=first.after + _as_others(others),
            columns=tuple(column for each in (first, *others) for column in each.columns),
        )
        for first, *others in told
    ]


def _as_others(others: Sequence[RowFinding]) -> str:
    """ " (as dep_delay, arr_time and 2 more)"."""
    names, more = [each.subject for each in others[:_NAMED]], len(others) - _NAMED
    return f" (as {', '.join(names)}{f' and {more} more' if more > 0 else ''})" if names else ""


def _explaining(flags: Sequence[_Flag], rows: CommitRows) -> list[_Flag]:
    """Those of one group column that leaves other values untouched, with nearly all hurt rows in the fewest; else that
    of all rows; else the largest."""
    if flags[0].series.measure == "value":
        return [max(flags, key=lambda flag: flag.hurt)]
    by_group = defaultdict[str, list[_Flag]](list)
    for flag in flags:
        by_group[flag.series.group].append(flag)
    of_all = by_group.pop("", [])
    hurt = max(sum(flag.hurt for flag in some) for some in (*by_group.values(), of_all))
    candidates = list[list[_Flag]]()
    for group, some in by_group.items():
        named = {flag.series.value for flag in some}
        rest = [num for (of, value), num in rows.counts.items() if of == group and value not in named and num >= _FEW]
        covered, num = sum(flag.hurt for flag in some), sum(flag.rows for flag in some)
        is_apart = covered / num >= _APART * hurt / max(1, rows.num_rows)
        if rest and covered >= _NEARLY_ALL * hurt and is_apart:
            candidates.append(some)
    if candidates:
        return min(candidates, key=lambda some: (sum(flag.rows for flag in some), len(some)))
    return of_all or [max(flags, key=lambda flag: flag.hurt)]


def _finding(flags: Sequence[_Flag], past: _Past, rows: CommitRows) -> RowFinding | None:
    first, hurt = max(flags, key=lambda flag: flag.hurt), sum(flag.hurt for flag in flags)
    series, where, repair = first.series, _where(flags), ""
    column, name = series.column, plain_name(series.column)
    columns = tuple(filter(None, (column, series.other)))
    if series.measure == "value":
        return _of_value(first, past, rows)
    if first.measure is Measure.HIGHEST:
        return _of_far(flags, past, rows)
    if first.measure is not Measure.MEDIAN:
        kind, subject, middle = first.measure, column, series._replace(measure="middle")
        level, known = rows.values.get(middle), past.series.get(middle)
        if kind is Measure.NEGATIVE and level and known and 0.5 <= -level / (median(known) or 1.0) <= 2:
            repair = f"{name} = -{name}"
        own = hurt_by(kind, column) if first.after > first.before else ""
        if kind is Measure.ONE_VALUE:
            is_number = rows.kinds[column] not in ("string", *TIMES)
            mode = rows.modes[series]
            subject = own = f"{name} = {mode if is_number else quoted_text(mode)}"
        if kind is Measure.LATER:
            other, is_same = plain_name(series.other), series.measure == "same"
            subject = f"{name} {'=' if is_same else '>'} {other}"
            own = subject if first.after > first.before else f"{name} <> {other}"
        where = " AND ".join(part for part in (where, own) if part)
        return RowFinding(kind, subject, percent(first.before), percent(first.after), hurt, where, repair, columns)
    if series.measure == "lag" or series.other:
        by = first.after - first.before
        subject = f"{column} − {series.other}" if series.other else f"{column}, beside other rows"
        after = f"{duration_text(first.after)} ({'+' if by > 0 else ''}{duration_text(by)})"
        return RowFinding(Measure.MEDIAN, subject, duration_text(first.before), after, hurt, where, "", columns)
    before, after = figure_text(first.before), figure_text(first.after)
    if rows.kinds[column] == "string":
        return RowFinding(Measure.LENGTH, column, f"{before} characters", after, hurt, where, "", columns)
    is_far_from_one = not 0.5 <= abs(first.before) <= 2 and 0.8 <= first.before * first.after <= 1.25
    if is_far_from_one or _is_inverse(series, past, rows):
        after, repair = f"{after} (1 / x)", f"{name} = 1 / {name}"
    elif factor := _factor(series, past, rows):
        by, sign, back = (factor, "×", "/") if factor >= 1 else (1 / factor, "/", "*")
        after = f"{after} ({sign} {by:,.6g})"
        repair = f"{name} = {name} {back} {by:.6g}" if by in _NICE else ""  # by about a factor nothing is repaired
    return RowFinding(Measure.MEDIAN, column, before, after, hurt, where, repair, columns)


def _of_far(flags: Sequence[_Flag], past: _Past, rows: CommitRows) -> RowFinding:
    """Numbers far above others, and by what they were multiplied where that is a round number."""
    series = max(flags, key=lambda flag: flag.hurt).series
    column, name, repair = series.column, plain_name(series.column), ""
    before, after = (figure_text(end) for end in (_most(column, past), rows.values[RowSeries(column, "most")]))
    usual = median(past.series.get(series._replace(measure="middle"), [0.0]))
    times = rows.values[series._replace(measure="middle above")] / usual if usual > 0 else 0.0
    if factor := next((nice for nice in _NICE if 1 / _NEAR <= times / nice <= _NEAR), None):
        after, repair = f"{after} (× {factor:,.6g})", f"{name} = {name} / {factor:.6g}"
    where = " AND ".join(filter(None, (_where(flags), f"{name} > {rows.bounds[column][0]:.15g}")))
    return RowFinding(
        Measure.HIGHEST, column, before, after, sum(flag.hurt for flag in flags), where, repair, (column,)
    )


def _of_value(flag: _Flag, past: _Past, rows: CommitRows) -> RowFinding | None:
    """One that is gone or took over; where another came with as many rows, or differs in its spelling alone, that."""
    column, value = flag.series.column, flag.series.value
    name, columns = plain_name(column), (column,)
    came = {
        series.value: share
        for series, share in rows.values.items()
        if series.column == column and series.measure == "value" and series not in past.series
    }
    if flag.after < flag.before:
        for other, share in came.items():
            is_spelt = other.strip().casefold() == value.strip().casefold()
            if is_spelt or (len(came) == 1 and 0.7 <= share / flag.before <= 1.4):
                where, repair = f"{name} = {quoted_text(other)}", f"{name} = {quoted_text(value)}"
                kind = Measure.SPELLING if is_spelt else Measure.VALUE
                num = round(share * rows.num_rows)
                if not is_spelt and flag.before == 1:  # one for all rows, and then another, as of a month
                    return None
                return RowFinding(kind, column, quoted_text(value), quoted_text(other), num, where, repair, columns)
    is_text = rows.kinds[column] == "string"
    shown = f"{name} = {quoted_text(value) if is_text else value}"
    where = shown if flag.after > flag.before else ""
    return RowFinding(Measure.VALUE, shown, percent(flag.before), percent(flag.after), flag.hurt, where, "", columns)


def _where(flags: Sequence[_Flag]) -> str:
    group, values = flags[0].series.group, sorted(flag.series.value for flag in flags)
    if not group:
        return ""
    name, listed = plain_name(group), [quoted_text(value) for value in values]
    return f"{name} = {listed[0]}" if len(listed) == 1 else f"{name} IN ({', '.join(listed)})"


def _factor(series: RowSeries, past: _Past, rows: CommitRows) -> float | None:
    """By what all quantiles were multiplied: a round number, or any where they agree well."""
    ratios = list[float]()
    if rows.kinds.get(series.column) not in NUMBERS:
        return None
    for measure in ("low", "middle", "high"):
        each = series._replace(measure=measure)
        before, after = median(past.series[each]), rows.values.get(each, 0.0)
        if before and after / before > 0:
            ratios.append(after / before)
    if len(ratios) < 2 or max(ratios) > 1.6 * min(ratios):
        return None
    middle = math.exp(sum(map(math.log, ratios)) / len(ratios))
    nice = next((nice for n in _NICE for nice in (n, 1 / n) if 0.75 <= middle / nice <= 1.33), None)
    is_sure = len(ratios) == 3 and max(ratios) <= _AGREE * min(ratios) and max(middle, 1 / middle) >= _LEAST_FACTOR
    return nice or (float(f"{middle:.2g}") if is_sure else None)


def _is_inverse(series: RowSeries, past: _Past, rows: CommitRows) -> bool:
    """Whether each quantile is one over the opposite one of before, such as a rate of the other direction."""
    of = {measure: series._replace(measure=measure) for measure in ("low", "middle", "high")}
    return all(
        before in past.series and abs(median(past.series[before]) * rows.values.get(after, 0.0) - 1) <= _AS_INVERSE
        for before, after in zip(of.values(), reversed(of.values()), strict=True)
    )


def _swapped_with(flags: Sequence[_Flag], past: _Past, rows: CommitRows) -> str:
    """The column that holds what this one held, and the other way round, in the same rows; empty where none does."""
    first = flags[0]
    gap, series = abs(first.after - first.before), first.series
    for name, kind in rows.kinds.items():
        other = series._replace(column=name)
        is_alike = kind in NUMBERS and rows.kinds[series.column] in NUMBERS and name != series.column
        if is_alike and other in rows.values and len(past.series.get(other, ())) >= LEAST_COMMITS:
            before, after = median(past.series[other]), rows.values[other]
            if max(abs(first.after - before), abs(after - first.before)) <= _ABOUT * gap:
                return name
    return ""


def _swap(column: str, other: str, flags: Sequence[_Flag]) -> RowFinding:
    one, two = map(plain_name, (column, other))
    subject, hurt = f"{column} and {other}", sum(flag.hurt for flag in flags)
    before, after, repair = "each its own", "each the other's", f"{one} = {two}, {two} = {one}"
    return RowFinding(Measure.SWAPPED, subject, before, after, hurt, _where(flags), repair, (column, other))
