"""What a commit's rows are like: of each column, and of each value of columns with few values, shares and levels.

Rule: rows that a commit only moved are none of its own: they cancel out against the files that it removed. A commit of
many rows is known by evenly spaced ones. Nothing is read of one with more rows than `lake.judged_rows`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations, permutations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backend.errors import LakehouseError
from backend.lake.lake import Lake
from backend.lake.model import Commit, TableRef
from backend.lake.table.schema import column_types, readable_names
from backend.sql.session import Computation
from backend.sql.values import quoted_name

MOST_COLUMNS, MOST_VALUES, MOST_GROUPS = 40, 20, 6
MOST_MARKS = 10_000
_MOST_PROFILED, _MOST_TIMES, _MOST_PAIRED = 50_000, 4, 8
NUMBERS = ("byte", "short", "integer", "long", "float", "double", "decimal")
_FRACTIONS, TIMES = ("float", "double", "decimal"), ("date", "timestamp", "timestamp_ntz")

# UTF-8 that was read as another encoding.
_GARBLED = "\u00c3[\u0080-\u00bf\u2013-\u203a\u0152-\u0192]|\u00c2[\u00a0-\u00bf]|\u00e2\u20ac|\ufffd"
_FEW_VALUED = ("string", "boolean")

Bounds = Mapping[str, tuple[float, float]]  # of columns: what is high, and the least middle of what is far above it


class RowSeries(NamedTuple):
    """What is followed from commit to commit: a `measure` of a column, of two times how far the `other` lies before it,
    of all rows or of those with a value of `group`."""

    column: str
    measure: str
    group: str = ""
    value: str = ""
    other: str = ""


@dataclass(frozen=True, slots=True)
class CommitRows:
    """`num_rows`: that it added, what was updated among them; `values`: each series' number, in the column's own unit
    (times in seconds), shares from 0 to 1; `counts`: rows of each group, of large commits by the sample; `before`: of
    the rows as they were, where it took as many away; `modes`: the commonest value of columns with many, or with
    few in a group. `marks`: hashes of rows by the columns that are no batch's own, of large commits some."""

    num_rows: int
    values: Mapping[RowSeries, float]
    counts: Mapping[tuple[str, str], int]
    kinds: Mapping[str, str]  # Delta's types
    before: Mapping[RowSeries, float] = field(default_factory=dict)
    modes: Mapping[RowSeries, str] = field(default_factory=dict)
    bounds: Bounds = field(default_factory=dict)  # as of `RowHabits.bounds`, by which "above" was measured
    constants: frozenset[str] = frozenset()  # columns with one value in all rows
    marks: npt.NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    is_append: bool = True  # it removed no file


def read_commit_rows(
    lake: Lake, ref: TableRef, commit: Commit, unmarked: frozenset[str], bounds: Bounds
) -> CommitRows | None:
    """None where nothing can be told: too many rows, files that are gone, no row added. `unmarked`: columns that tell
    batches apart, not rows."""
    with suppress(LakehouseError, pa.ArrowException):
        version = commit.version
        after = lake.snapshot(ref, version)
        apart = lake.file_difference(ref, version - 1, version) if version else None
        added = after.columns(["path", "size_bytes", "num_records", "deleted_rows", "partition", "dv_id"])
        added, removed = (apart.only_second, apart.only_first) if apart else (added, added.slice(0, 0))
        kinds = {name: kind.partition("(")[0] for name, kind in column_types(after.metadata.schema_json).items()}
        flat = (*NUMBERS, *TIMES, "string", "boolean")
        names = [name for name in readable_names(after.metadata) if kinds[name] in flat][:MOST_COLUMNS]
        counted = [pc.sum(files["num_records"]).as_py() or 0 for files in (added, removed)]
        if not names or not counted[0] or sum(counted) > lake.judged_rows:
            return None
        rows = lake.read_files(after, added, columns=names).read_all()
        gone = rows.slice(0, 0)
        if removed.num_rows:
            gone = lake.read_files(lake.snapshot(ref, version - 1), removed, columns=names, as_of=after).read_all()
            rows, gone = _net(rows, gone.cast(rows.schema))
        of_names = {name: kinds[name] for name in names}
        return profile_rows(rows, gone, of_names, unmarked, bounds) if rows.num_rows else None
    return None


def _net(added: pa.Table, removed: pa.Table) -> tuple[pa.Table, pa.Table]:
    """What is left of both when equal rows cancel out."""
    names = added.column_names
    signed = [t.append_column("n", pa.array(np.full(len(t), n, np.int8))) for t, n in ((added, 1), (removed, -1))]
    sums = pa.concat_tables(signed).group_by(names).aggregate([("n", "sum")])
    times, rows = sums["n_sum"].to_numpy(), sums.select(names)
    return rows.take(np.repeat(np.arange(len(times)), np.maximum(times, 0))), rows.take(np.flatnonzero(times < 0))


def profile_rows(
    rows: pa.Table, gone: pa.Table, kinds: Mapping[str, str], unmarked: frozenset[str], bounds: Bounds
) -> CommitRows:
    """Of `rows` that a commit added, `gone` that it took away, and Delta's types of their columns."""
    marks, num_rows, is_sample = _marks(rows, unmarked), len(rows), len(rows) > _MOST_PROFILED
    ends = {
        RowSeries(name, measure): float(end)
        for name, kind in kinds.items()
        if kind in NUMBERS
        for measure, end in zip(("least", "most"), pc.min_max(rows[name]).as_py().values(), strict=True)
        if end is not None and math.isfinite(end)
    }
    rows = _some(rows)
    counted = {name: pc.value_counts(rows[name]) for name in rows.column_names}
    groups = [name for name, found in counted.items() if kinds[name] in _FEW_VALUED and 1 < len(found) <= MOST_VALUES]
    values, counts = _measured(rows, kinds, groups[:MOST_GROUPS], bounds)
    if is_sample:
        counts = {group: round(count * num_rows / len(rows)) for group, count in counts.items()}
    own, modes = _values(counted, len(rows), kinds, is_sample=is_sample)
    alike = _alike(rows, counted, groups[:MOST_GROUPS])
    own |= {series: share for series, (share, _) in alike.items()}
    modes |= {series: value for series, (_, value) in alike.items()}
    before = dict[RowSeries, float]()
    if 0.9 * num_rows <= len(gone) <= 1.1 * num_rows:
        gone = _some(gone)
        known = {name: pc.value_counts(gone[name]) for name in gone.column_names}
        before = {
            **_measured(gone, kinds, groups[:MOST_GROUPS], {})[0],
            **_values(known, len(gone), kinds, is_sample=is_sample)[0],
        }
    constants = frozenset(name for name, found in counted.items() if len(found) == 1)
    is_append = not len(gone)
    return CommitRows(
        num_rows, {**values, **own, **ends}, counts, kinds, before, modes, bounds, constants, marks, is_append
    )


def _values(
    counted: Mapping[str, pa.StructArray], num_rows: int, kinds: Mapping[str, str], *, is_sample: bool
) -> tuple[dict[RowSeries, float], dict[RowSeries, str]]:
    """How often values come: shares of few, of the commonest of many, and which that is."""
    values, modes = dict[RowSeries, float](), dict[RowSeries, str]()
    for name, found in counted.items():
        found = found.filter(pc.is_valid(found.field(0)))
        known = found.field(1).to_numpy()
        if len(known) and not is_sample:
            values[RowSeries(name, "distinct")] = len(known) / int(known.sum())
        if len(known) > MOST_VALUES:
            values[RowSeries(name, "mode")] = int(known.max()) / int(known.sum())
            modes[RowSeries(name, "mode")] = str(found.field(0)[int(known.argmax())].as_py())
        elif kinds[name] not in (*_FRACTIONS, *TIMES):
            for value, count in zip(found.field(0).cast(pa.string()).to_pylist(), known, strict=True):
                values[RowSeries(name, "value", name, value)] = int(count) / num_rows
    return values, modes


def _alike(
    rows: pa.Table, counted: Mapping[str, pa.StructArray], groups: Sequence[str]
) -> dict[RowSeries, tuple[float, str]]:
    """Within each value of a group, the share of the commonest value of columns that have not many, and that value."""
    few = [name for name, found in counted.items() if 1 < len(found) <= 3 * MOST_VALUES]
    coded = {name: rows[name].combine_chunks().dictionary_encode(null_encoding="encode") for name in few}
    codes = {name: each.indices.to_numpy() for name, each in coded.items()}
    found = dict[RowSeries, tuple[float, str]]()
    for group, name in permutations(few, 2):
        if group in groups:
            size = len(coded[name].dictionary)
            cells = np.bincount(codes[group] * size + codes[name], minlength=len(coded[group].dictionary) * size)
            texts, named = (coded[each].dictionary.cast(pa.string()).to_pylist() for each in (group, name))
            for text, row in zip(texts, cells.reshape(-1, size), strict=True):
                most = int(row.argmax())
                if text is not None and named[most] is not None:
                    found[RowSeries(name, "alike", group, text)] = int(row[most]) / int(row.sum()), named[most]
    return found


def _some(rows: pa.Table) -> pa.Table:
    most = _MOST_PROFILED
    return rows if len(rows) <= most else rows.take(np.linspace(0, len(rows) - 1, most).astype(np.int64))


def _measured(
    rows: pa.Table, kinds: Mapping[str, str], groups: Sequence[str], bounds: Bounds
) -> tuple[dict[RowSeries, float], dict[tuple[str, str], int]]:
    values, counts = dict[RowSeries, float](), dict[tuple[str, str], int]()
    numbered = [("", [""], np.zeros(len(rows), np.uint8))]  # a group's values, and which each row has; the last: none
    for name in groups:
        coded = rows[name].cast(pa.string()).combine_chunks().dictionary_encode()
        texts = coded.dictionary.to_pylist()
        numbered.append((name, texts, pc.fill_null(coded.indices, len(texts)).to_numpy().astype(np.uint8)))
    for group, texts, numbers in numbered:
        counts |= {
            (group, text): int(n) for text, n in zip(texts, np.bincount(numbers, minlength=len(texts)), strict=False)
        }
    for series, of, hits in _shares(rows, kinds, bounds):
        for group, texts, numbers in numbered:
            totals = np.bincount(numbers, weights=of, minlength=len(texts))
            found = np.bincount(numbers, weights=hits, minlength=len(texts))
            for text, total, hit in zip(texts, totals, found, strict=False):
                if total:
                    values[series._replace(group=group, value=text)] = hit / total
    for column, other, quantiles, levels in _levels(rows, kinds, bounds):
        order = np.argsort(levels, kind="stable")[: len(levels) - np.count_nonzero(np.isnan(levels))]
        for group, texts, numbers in numbered:
            ranked = order[np.argsort(numbers[order], kind="stable")]
            ends = np.searchsorted(numbers[ranked], np.arange(len(texts) + 1))
            for text, start, end in zip(texts, ends, ends[1:], strict=False):
                for measure, quantile in quantiles if end > start else ():
                    at = ranked[start + round(quantile * (end - start - 1))]
                    values[RowSeries(column, measure, group, text, other)] = float(levels[at])
    return values, counts


Floats = npt.NDArray[np.float64]


def _shares(rows: pa.Table, kinds: Mapping[str, str], bounds: Bounds) -> Iterator[tuple[RowSeries, Floats, Floats]]:
    """What is measured, and by row whether it counts at all and whether it is one of them."""
    every = np.ones(len(rows))
    for name, kind in kinds.items():
        column = rows[name]
        filled = _floats(pc.is_valid(column))
        yield RowSeries(name, "null"), every, 1.0 - filled
        conditions: dict[str, Any] = {}
        if kind == "string":
            trimmed, upper, lower = pc.utf8_trim_whitespace(column), pc.utf8_upper(column), pc.utf8_lower(column)
            has_case = pc.not_equal(upper, lower)
            conditions = {
                "empty": pc.equal(trimmed, ""),
                "padded": pc.and_(pc.not_equal(column, trimmed), pc.not_equal(trimmed, "")),
                "upper": pc.and_(has_case, pc.equal(column, upper)),
                "lower": pc.and_(has_case, pc.equal(column, lower)),
                "garbled": pc.match_substring_regex(column, _GARBLED),
                "foreign": pc.greater(pc.binary_length(column), pc.utf8_length(column)),
            }
        elif kind == "boolean":
            conditions = {"true": column}
        elif kind in NUMBERS:
            number = pc.cast(column, pa.float64())
            conditions = {"zero": pc.equal(number, 0.0), "negative": pc.less(number, 0.0)}
            if kind in _FRACTIONS:
                conditions["whole"] = pc.equal(number, pc.trunc(number))
            if name in bounds:
                high, least = bounds[name]
                above = pc.greater(number, high)
                is_far = (pc.quantile(number.filter(above))[0].as_py() or -math.inf) >= least
                conditions["above"] = above if is_far else pc.and_(above, False)
        for measure, condition in conditions.items():
            yield RowSeries(name, measure), filled, _floats(condition)
    numbers = [name for name, kind in kinds.items() if kind in NUMBERS][:_MOST_PAIRED]
    for one, other in combinations(numbers, 2):
        if kinds[one] == kinds[other]:
            same = pc.equal(rows[one], rows[other])
            yield RowSeries(one, "same", other=other), _floats(pc.is_valid(same)), _floats(same)
    times = [name for name, kind in kinds.items() if kind.startswith("timestamp")][:_MOST_TIMES]
    for one, other in permutations(times, 2):
        # Nothing happens after it is loaded; of other times nobody knows the order.
        if kinds[one] == kinds[other] and pc.count_distinct(rows[other], mode="all").as_py() == 1:
            later = pc.greater(rows[one], rows[other])
            yield RowSeries(one, "later", other=other), _floats(pc.is_valid(later)), _floats(later)


_QUANTILES = (("low", 0.1), ("middle", 0.5), ("high", 0.9))


def _levels(
    rows: pa.Table, kinds: Mapping[str, str], bounds: Bounds
) -> Iterator[tuple[str, str, Sequence[tuple[str, float]], Floats]]:
    """Column and `RowSeries.other`, quantiles, and each row's number: lengths of texts, times in seconds; NaN for
    null."""
    times = dict[str, Floats]()
    for name, kind in kinds.items():
        if kind in TIMES:
            seconds = pc.divide(pc.cast(pc.cast(rows[name], pa.timestamp("us")), pa.int64()), 1_000_000.0)
            times[name] = _floats(seconds, null=np.nan)
            yield name, "", _QUANTILES[1:], times[name]
        elif kind != "boolean":
            number = pc.utf8_length(rows[name]) if kind == "string" else rows[name]
            numbers = _floats(number, null=np.nan)
            yield name, "", _QUANTILES, numbers
            if name in bounds and np.any(above := numbers > bounds[name][0]):
                yield name, "", (("middle above", 0.5),), np.where(above, numbers, np.nan)
    for one, other in combinations(list(times)[:_MOST_TIMES], 2):
        yield one, other, _QUANTILES, times[one] - times[other]


def _floats(column: Any, null: float = 0.0) -> Floats:
    numbers: Floats = pc.fill_null(pc.cast(column, pa.float64()), null).to_numpy()
    return numbers


def _marks(rows: pa.Table, unmarked: frozenset[str]) -> npt.NDArray[np.uint64]:
    """Hashes of rows by their columns but `unmarked`; of many the lowest, so that any two commits keep the same."""
    names = [quoted_name(name) for name in rows.column_names if name not in unmarked]
    if not names:
        return np.zeros(0, np.uint64)
    hashed = f"SELECT hash({', '.join(names)}) AS h FROM rows ORDER BY h LIMIT {MOST_MARKS}"
    return np.array(Computation().run(f"SELECT list(h) FROM ({hashed})", rows.to_reader()) or [], np.uint64)
