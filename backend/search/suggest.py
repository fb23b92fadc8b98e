"""Conditions that the good end satisfies and the bad one does not, from what columns hold at versions in between.

Rule: statistics of the log alone, unless a version is small enough to be read. What grows with every commit (ids,
times) is no finding: a condition is suggested where one step is far larger than all others.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import accumulate, dropwhile, pairwise, permutations
from typing import Any, NamedTuple

import orjson

from backend.cells import day_text, moment_text
from backend.format import count_text, figure_text, percent
from backend.lake.files.stats import ColumnTotals, StatKind, column_totals, columns_with_stats
from backend.lake.lake import Lake
from backend.lake.model import Metadata, Snapshot, TableRef
from backend.lake.table.schema import column_names, readable_names
from backend.search.notice import Measure
from backend.sql.numbers import Numbers, Reading, spread
from backend.sql.values import as_number, plain_name, quoted_name, quoted_text

MOST_VERSIONS, MOST_FILES, MOST_COLUMNS = 24, 50_000, 100
MOST_HELD = 1_000  # versions kept
MOST_BYTES = 50_000_000  # of a version whose quantiles are read
MOST_WHOLE = 500_000  # rows that are held against each other as wholes, where no key is known
QUANTILES = (0.01, 0.5, 0.99)
MOST_SUGGESTED = 4
_LEAST_JUMP, _ABOVE_OTHERS = 0.5, 4.0  # of the range before, and over every other step
_LEAST_NULLS, _LEAST_LOSS = 0.01, 0.3
_LEAST_CLEAN = 5  # versions without a null
_LEAST_ROWS, _LEAST_SHARE = 20, 0.01  # of the first version, and of them with a value that is gone
_LEAST_WHOLE, _WHOLE_ABOVE = 0.05, 3.0  # more of all numbers, and so much more often than before
_MOST_TIMES, _MOST_VALUES = 4, 30  # columns; values of one that are held against each other


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A condition that holds up to `last` and not from `first` on, of the versions looked at; `before` and `after` are
    the measure on both sides. The larger its `jump`, the more it stands out."""

    condition: str
    column: str | None
    measure: Measure
    last: int
    first: int
    before: Any
    after: Any
    jump: float


@dataclass(frozen=True, slots=True)
class Held:
    """What columns hold at one version, by the log; where it was read, `quantiles`, how many rows repeat the `key`, and
    what else rows alone tell."""

    version: int
    num_rows: int | None
    columns: Mapping[str, ColumnTotals]
    quantiles: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    metadata: Metadata | None = None
    repeats: int | None = None
    key: tuple[str, ...] = ()
    later: Mapping[tuple[str, str], int] = field(default_factory=dict)  # rows whose first time is after the second
    whole: Mapping[str, int] = field(default_factory=dict)  # rows with a whole number, of columns of fractions
    values: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # rows of each, of columns with few
    num_files: int = 0
    copied: int = 0  # rows of files whose statistics another file has as well, where they were compared


# reading -------------------------------------------------------------------------------------------------------------

_BY_LOG = "log"  # else the key as JSON


def held_numbers() -> Numbers[Held]:
    """What columns hold at versions, each read once."""
    return Numbers(_held, most=MOST_HELD)


def load_held(
    numbers: Numbers[Held], lake: Lake, ref: TableRef, ends: tuple[int, int], key: Sequence[str] = ()
) -> tuple[Held, ...]:
    """What columns hold at versions between the ends, oldest first, without empty ones before the first row; quantiles,
    and rows that repeat the key, at the two ends where both are small. Without a key, rows that repeat a whole row.

    Fewer versions of a table of many files, none of one with more than `MOST_FILES`.
    """
    low, high = sorted(ends)
    most = min(MOST_VERSIONS, MOST_FILES // max(1, lake.snapshot(ref, high).num_files))
    if most < 2:
        return ()
    read = held_at(numbers, lake, ref, spread(lake.versions(ref), most, within=(low, high)))
    held = {each.version: each for each in dropwhile(lambda each: each.num_rows == 0, read)}
    outer = [lake.snapshot(ref, version) for version in (min(held, default=low), max(held, default=low))]
    if len(held) > 1 and all(snapshot.size_bytes <= MOST_BYTES for snapshot in outer):
        if not key and all((snapshot.num_rows or MOST_WHOLE) < MOST_WHOLE for snapshot in outer):
            key = [name for name in readable_names(outer[0].metadata) if name in readable_names(outer[1].metadata)]
        *_, last = numbers.over(lake, ref, orjson.dumps(key).decode(), [snapshot.version for snapshot in outer])
        # a file is gone, a reader refuses: bounds are known all the same
        held |= {value.version: value.value for value in last.values if value.value is not None}
    return tuple(held.values())


def held_at(numbers: Numbers[Held], lake: Lake, ref: TableRef, versions: Sequence[int]) -> tuple[Held, ...]:
    """What columns hold at these versions by the log, oldest first; without those that cannot be read."""
    *_, last = numbers.over(lake, ref, _BY_LOG, versions)
    return tuple(value.value for value in last.values if value.value is not None)


def _held(reading: Reading, snapshot: Snapshot, source: str) -> Held:
    top = set(column_names(snapshot.metadata))
    names = [name for name in columns_with_stats(snapshot.metadata) if name in top][:MOST_COLUMNS]
    totals = {each.column: each for each in column_totals(snapshot, names)} if names else {}
    held = Held(snapshot.version, snapshot.num_rows, totals, metadata=snapshot.metadata, num_files=snapshot.num_files)
    return held if source == _BY_LOG else _with_rows(reading, snapshot, held, orjson.loads(source))


def _with_rows(reading: Reading, snapshot: Snapshot, held: Held, key: Sequence[str]) -> Held:
    key = key if set(key) <= set(column_names(snapshot.metadata)) else ()
    numbers, fractions = (_of_kind(held, kinds) for kinds in (_NUMBERS, _FRACTIONS))
    is_small = (snapshot.num_rows or MOST_WHOLE) < MOST_WHOLE
    times, texts = (_of_kind(held, kinds) if is_small else [] for kinds in (TIMES, (StatKind.STRING,)))
    pairs = [
        pair for pair in permutations(times[:_MOST_TIMES], 2) if len({held.columns[each].kind for each in pair}) < 2
    ]
    asked = {f"q{i}": f"quantile_cont({quoted_name(name)}, {list(QUANTILES)})" for i, name in enumerate(numbers)}
    for i, (first, second) in enumerate(pairs):
        asked[f"l{i}"] = f"count(*) FILTER ({quoted_name(first)} > {quoted_name(second)})"
    asked |= {f"w{i}": f"count(*) FILTER ({_is_whole(name)})" for i, name in enumerate(map(quoted_name, fractions))}
    for i, name in enumerate(map(quoted_name, texts)):
        asked[f"v{i}"] = f"CASE WHEN approx_count_distinct({name}) <= {_MOST_VALUES} THEN histogram({name}) END"
    if key:
        asked["repeats"] = f"count(*) - count(DISTINCT ({', '.join(map(quoted_name, key))}))"
    if not asked:
        return held
    rows = reading.lake.read_files(snapshot, columns=[*dict.fromkeys((*numbers, *times, *texts, *key))])
    packed = ", ".join(f"{name} := {sql}" for name, sql in asked.items())
    values = reading.run(f"SELECT struct_pack({packed}) FROM rows", rows)
    return replace(
        held, repeats=values.get("repeats"), key=tuple(key),
        quantiles={name: tuple(float(value) for value in values[f"q{i}"] or ()) for i, name in enumerate(numbers)},
        later={pair: values[f"l{i}"] for i, pair in enumerate(pairs)},
        whole={name: values[f"w{i}"] for i, name in enumerate(fractions)},
        values={name: values[f"v{i}"] or {} for i, name in enumerate(texts)},
    )  # fmt: skip


def _of_kind(held: Held, kinds: Sequence[StatKind]) -> list[str]:
    return [name for name, column in held.columns.items() if column.kind in kinds]


def _is_whole(name: str) -> str:
    return f"{name} = trunc({name})"


# deciding ------------------------------------------------------------------------------------------------------------


def suggest(held: Sequence[Held], key: Sequence[str] = ()) -> tuple[Suggestion, ...]:
    """The conditions that stand out most, at most one a column; first that the key is unique, where it was, and last
    that no row is there twice, which chance may break where rows are short. Pure."""
    largest: dict[str | None, Suggestion] = {}
    found = (*steps(held), *_of_repeats(held, key), *_of_ends(held))
    for each in sorted(found, key=lambda each: -each.jump):
        largest.setdefault(each.column, each)
    return tuple(largest.values())[:MOST_SUGGESTED]


def _of_repeats(held: Sequence[Held], key: Sequence[str]) -> Iterator[Suggestion]:
    if len(held) > 1 and held[0].repeats == 0 and held[-1].repeats:
        unique, (first, last) = held[-1].key, (held[0].version, held[-1].version)
        names = ", ".join(map(plain_name, unique))
        condition = f"({names})" if len(unique) > 1 else f"count(*) = count(DISTINCT {names})"
        is_key = unique == tuple(key)
        column, jump = (names, math.inf) if is_key else ("", 0.0)
        yield Suggestion(condition, column, Measure.REPEATS, first, last, 0, held[-1].repeats, jump)


def _of_ends(held: Sequence[Held]) -> Iterator[Suggestion]:
    """What rows of both ends alone tell: an order of times that is broken, a value that is gone, fractions that are
    rounded."""
    if len(held) < 2 or (held[0].num_rows or 0) < _LEAST_ROWS:
        return
    first, last = held[0], held[-1]
    ends, rows, now = (first.version, last.version), first.num_rows or 1, last.num_rows or 1
    for pair, count in first.later.items():
        if count == 0 and (broken := last.later.get(pair)):
            one, two = map(plain_name, pair)
            yield Suggestion(f"{one} <= {two}", f"{one} > {two}", Measure.WHERE, *ends, 0, broken, broken / now)
    for column, counts in first.values.items():
        gone = [value for value in counts if last.values.get(column) and value not in last.values[column]]
        if gone and counts[most := max(gone, key=lambda value: counts[value])] >= _LEAST_SHARE * rows:
            where = f"{plain_name(column)} = {quoted_text(most)}"
            condition, jump = f"count(*) FILTER ({where}) > 0", counts[most] / rows
            yield Suggestion(condition, where, Measure.WHERE, *ends, counts[most], 0, jump)
    for column in first.whole:
        before, after = first.whole[column] / rows, last.whole.get(column, 0) / now
        if after - before >= _LEAST_WHOLE and after >= _WHOLE_ABOVE * before:
            condition = f"count(*) FILTER ({_is_whole(plain_name(column))}) <= {(before + after) / 2:.4g} * count(*)"
            yield Suggestion(condition, plain_name(column), Measure.WHOLE, *ends, before, after, after - before)


def steps(held: Sequence[Held]) -> Iterator[Suggestion]:
    """Each measure with one step far larger than all others, of the rows and of each column that the last one has."""
    if len(held) < 2:
        return
    yield from _of_rows(held)
    for name in held[-1].columns:
        yield from _of_column(name, held)


def _of_column(name: str, held: Sequence[Held]) -> Iterator[Suggestion]:
    newest = held[-1].columns[name].kind
    alike = _NUMBERS if newest in _NUMBERS else (newest,)  # a column that was made anew may hold days for numbers
    known = [(each.version, t) for each in held if (t := each.columns.get(name)) is not None and t.kind in alike]
    yield from _of_nulls(name, known)
    bounded = [(v, t) for v, t in known if as_number(t.lowest) is not None and as_number(t.highest) is not None]
    if len(bounded) < 2 or bounded[-1][1].kind not in _KINDS:
        return
    bounds = [each for sign in (1, -1) for each in _of_bound(name, bounded, sign)]
    yield from bounds or _of_quantiles(name, held)


def _of_bound(name: str, known: Sequence[tuple[int, ColumnTotals]], sign: int) -> Iterator[Suggestion]:
    """The highest value (`sign` 1) or the lowest one (−1), where one step moved it."""
    ends = [(t.highest, t.lowest) if sign > 0 else (t.lowest, t.highest) for _, t in known]
    outer = [sign * (as_number(end) or 0.0) for end, _ in ends]
    inner = [sign * (as_number(end) or 0.0) for _, end in ends]
    step = _largest_step(outer)
    if step is None or outer[-1] <= step.before:
        return
    scale = step.before - min(inner[: step.place + 1]) or abs(step.before) or 1.0
    turned = sign < 0 and step.before <= 0 < step.after  # it was never negative
    if step.size < _LEAST_JUMP * scale and not turned:
        return
    kind, most = known[-1][1].kind, min(step.after, outer[-1])
    limit = 0.0 if turned and kind not in TIMES else _rounded(step.before + 0.1 * scale, kind)
    limit = limit if limit < most else step.before
    condition = f"{plain_name(name)} {'<=' if sign > 0 else '>='} {_literal(sign * limit + 0.0, kind)}"
    measure = Measure.HIGHEST if sign > 0 else Measure.LOWEST
    before = next(end for (end, _), number in zip(ends, outer, strict=True) if number == step.before)
    place, after = step.place, ends[step.place + 1][0]
    yield Suggestion(condition, name, measure, known[place][0], known[place + 1][0], before, after, step.size / scale)


def _of_nulls(name: str, known: Sequence[tuple[int, ColumnTotals]]) -> Iterator[Suggestion]:
    shares = [(version, t.null_share) for version, t in known if t.null_share is not None]
    values = [share for _, share in shares]
    step = _largest_step(values)
    clean = next((place for place, share in enumerate(values) if share), 0)
    if step is None and clean >= _LEAST_CLEAN:  # then any null is odd, though more come with each version
        step = _Step(clean - 1, 0.0, values[clean])
    if step is None or values[-1] <= step.before or (step.size if step.before else values[-1]) < _LEAST_NULLS:
        return
    column, (last, first) = plain_name(name), (shares[step.place][0], shares[step.place + 1][0])
    middle = (step.before + min(step.after, values[-1])) / 2
    condition = f"{column} IS NOT NULL" if not step.before else f"count({column}) >= {1 - middle:.4g} * count(*)"
    jump = step.size / max(step.before, _LEAST_NULLS)
    yield Suggestion(condition, name, Measure.NULLS, last, first, step.before, step.after, jump)


def _of_rows(held: Sequence[Held]) -> Iterator[Suggestion]:
    """A loss of rows that was not made up for."""
    known = [(each.version, each.num_rows) for each in held if each.num_rows is not None]
    losses = [1 - after / before if before else 0.0 for (_, before), (_, after) in pairwise(known)]
    if not losses or max(losses) < _LEAST_LOSS:
        return
    place = losses.index(max(losses))
    (last, before), (first, after) = known[place : place + 2]
    fewest = min(rows for _, rows in known[: place + 1])
    if fewest <= known[-1][1]:
        return
    limit = -_rounded(-0.9 * fewest, StatKind.INTEGER)
    limit = limit if limit > known[-1][1] else fewest
    jump = (before - after) / max(1, after)
    yield Suggestion(f"count(*) >= {limit:.0f}", None, Measure.ROWS, last, first, before, after, jump)


def _of_quantiles(name: str, held: Sequence[Held]) -> Iterator[Suggestion]:
    """The median or the highest hundredth, where they moved between ends whose bounds hardly did."""
    first, last = held[0], held[-1]
    before, after = (each.quantiles.get(name, ()) for each in (first, last))
    if len(before) != len(QUANTILES) or len(after) != len(QUANTILES) or name not in first.columns:
        return
    low, high = (as_number(getattr(first.columns[name], end)) or 0.0 for end in ("lowest", "highest"))
    if (as_number(last.columns[name].highest) or 0.0) - high > _LEAST_JUMP * (high - low):
        return
    scale = before[-1] - before[0] or abs(before[-1]) or 1.0
    moved = max((1, 2), key=lambda place: abs(after[place] - before[place]))
    by = after[moved] - before[moved]
    if abs(by) < _LEAST_JUMP * scale:
        return
    limit = (before[moved] + after[moved]) / 2
    condition = f"quantile_cont({plain_name(name)}, {QUANTILES[moved]}) {'<=' if by > 0 else '>='} {_plain(limit)}"
    measure = Measure.MEDIAN if moved == 1 else Measure.MOST
    yield Suggestion(
        condition, name, measure, first.version, last.version, before[moved], after[moved], abs(by) / scale
    )


class _Step(NamedTuple):
    """The largest step outwards of a series: the place before it, and the outermost value until then and after it."""

    place: int
    before: float
    after: float

    @property
    def size(self) -> float:
        return self.after - self.before


def _largest_step(values: Sequence[float]) -> _Step | None:
    """None where nothing moved outwards, or another step is nearly as large: so grows what always grows."""
    reached = list(accumulate(values, max))
    steps = [after - before for before, after in pairwise(reached)]
    if not steps or max(steps) <= 0:
        return None
    *others, largest = sorted(steps)
    if others and largest < _ABOVE_OTHERS * others[-1]:
        return None
    place = steps.index(largest)
    return _Step(place, reached[place], reached[place + 1])


# words, numbers and SQL ----------------------------------------------------------------------------------------------

_FRACTIONS = (StatKind.FLOAT, StatKind.DECIMAL)
_NUMBERS = (StatKind.INTEGER, *_FRACTIONS)
TIMES = (StatKind.DATE, StatKind.TIMESTAMP, StatKind.TIMESTAMP_NTZ)
_KINDS = (*_NUMBERS, *TIMES)


def measure_text(measure: Measure, value: Any) -> str:
    if measure in (Measure.NULLS, Measure.WHOLE):
        return percent(value)
    return count_text(value) if measure is Measure.ROWS else figure_text(value)


def _rounded(number: float, kind: StatKind) -> float:
    """Upwards: to two digits, a time to a day."""
    if kind is StatKind.DATE:
        return math.ceil(number)
    if kind in TIMES:
        return math.ceil(number / 86_400) * 86_400
    if not number:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(number))) - 1)
    unit = max(1.0, unit) if kind is StatKind.INTEGER else unit
    return math.ceil(number / unit) * unit


def _literal(number: float, kind: StatKind) -> str:
    if kind is StatKind.DATE:
        return f"DATE '{day_text(round(number)).removeprefix('+')}'"
    if kind in TIMES:
        moment = moment_text(round(number * 10**6), zoned=False).replace("T", " ").removeprefix("+")
        ntz = kind is StatKind.TIMESTAMP_NTZ
        return f"{'TIMESTAMP' if ntz else 'TIMESTAMPTZ'} '{moment}{'' if ntz else '+00'}'"
    return _plain(number)


def _plain(number: float) -> str:
    """As SQL writes it, without an exponent."""
    return f"{Decimal(repr(number)).normalize():f}" if abs(number) < 1e15 else repr(number)
