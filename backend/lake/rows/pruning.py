"""Which files of a version a filter cannot rule out, from partition values and the statistics in the log.

Rule: when in doubt a file stays. A null makes a comparison neither true nor false, as in SQL; statistics are bounds
(writers cut long texts and times), and those of floats say nothing (they leave out NaN).
"""

import math
import operator
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backend.errors import TableError
from backend.lake.files.file_sizes import partition_codes
from backend.lake.files.stats import ColumnStats, column_stats
from backend.lake.files.stats_text import StatKind
from backend.lake.model import Snapshot
from backend.lake.rows.filters import COMPARISONS, All, FilterColumn, Literal, Node, Not, Test, from_log
from backend.lake.table.partitions import partition_values
from backend.lake.table.schema import columns

_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARROW = {"<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_FOUR_DIGITS = re.compile(r"\d{4}-")
FEW_FILES = 64  # to open so many costs less than to read the statistics of all

Mask = npt.NDArray[np.bool_]
Leaf = Callable[[Test, bool], Mask]


def may_match(node: Node, snapshot: Snapshot, *, few_files: int = FEW_FILES) -> npt.NDArray[np.int64]:
    """Numbers, in `snapshot.columns`' order, of the files that may hold a row for which the filter is true."""
    leaves = _Leaves(snapshot)
    possible = _may(node, leaves.by_partition, wanted=True)
    if np.count_nonzero(possible) > few_files:
        possible &= _may(node, leaves.by_all, wanted=True)
    return np.flatnonzero(possible).astype(np.int64)


def _may(node: Node, leaf: Leaf, *, wanted: bool) -> Mask:
    """Whether a file may hold a row for which the node is true (or, with `wanted` False, is false)."""
    if isinstance(node, Not):
        return _may(node.operand, leaf, wanted=not wanted)
    if isinstance(node, Test):
        return leaf(node, wanted)
    masks = [_may(operand, leaf, wanted=wanted) for operand in node.operands]
    both = isinstance(node, All) == wanted
    return np.asarray(np.logical_and.reduce(masks) if both else np.logical_or.reduce(masks), np.bool_)


class _Leaves:
    """Single tests over the files of one snapshot; what is read for one test serves the next."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._partitions: tuple[npt.NDArray[np.int64], list[dict[str, str | None]]] | None = None
        self._stats: dict[tuple[str, ...], ColumnStats | None] = {}

    def by_partition(self, test: Test, wanted: bool) -> Mask:
        """Exact for a test on a partition column, everything for another."""
        if test.column.path[0] not in self._snapshot.metadata.partition_columns or isinstance(test.value, FilterColumn):
            return np.ones(self._snapshot.num_files, np.bool_)
        if self._partitions is None:
            self._partitions = _distinct_partitions(self._snapshot)
        codes, values = self._partitions
        verdicts = [_verdict(test, each[test.column.path[0]]) for each in values]
        possible = np.fromiter((verdict is None or verdict == wanted for verdict in verdicts), np.bool_, len(verdicts))
        return possible[codes]

    def by_all(self, test: Test, wanted: bool) -> Mask:
        """By partition values, and for the other columns by statistics."""
        if test.column.path[0] in self._snapshot.metadata.partition_columns or isinstance(test.value, FilterColumn):
            return self.by_partition(test, wanted)
        column = test.column.path
        if column not in self._stats:
            self._stats[column] = _stats(self._snapshot, column)
        stats = self._stats[column]
        return np.ones(self._snapshot.num_files, np.bool_) if stats is None else by_bounds(stats, test, wanted=wanted)


def _stats(snapshot: Snapshot, column: tuple[str, ...]) -> ColumnStats | None:
    try:
        return column_stats(snapshot, column)
    except TableError:  # no statistics of such a column: no file can be ruled out
        return None


def by_bounds(stats: ColumnStats, test: Test, *, wanted: bool) -> Mask:
    """Files whose statistics leave it open that the test is true (or false) for a row."""
    if test.operator == "IS NULL":
        none, only = pc.equal(stats.null_count, 0), pc.equal(stats.null_count, stats.num_records)
        return _open(pc.invert(none if wanted else only))
    if test.operator not in COMPARISONS or (test.operator == "=" and not wanted):
        return np.ones(len(stats.min), np.bool_)
    sign = test.operator if wanted else _OPPOSITE[test.operator]
    bounds = _bounds(stats, test.value, sign)
    if bounds is None:
        return np.ones(len(stats.min), np.bool_)
    low, high, value = bounds
    only_nulls = pc.fill_null(pc.equal(stats.null_count, stats.num_records), False)
    if sign == "=":
        inside = pc.and_kleene(pc.less_equal(low, value), pc.greater_equal(high, value))
    else:
        inside = _ARROW[sign](low if sign in ("<", "<=") else high, value)
    return _open(inside) & ~np.asarray(only_nulls.to_numpy(zero_copy_only=False), np.bool_)


def _bounds(stats: ColumnStats, value: Any, sign: str) -> tuple[pa.Array, pa.Array, pa.Scalar] | None:
    """Bounds that surely enclose the file's values, and the value in their type; None where nothing can be said."""
    if stats.kind in (StatKind.INTEGER, StatKind.DATE, StatKind.STRING) and not isinstance(value, Decimal):
        return stats.min, stats.max, pa.scalar(value, stats.min.type)
    if stats.kind in (StatKind.TIMESTAMP, StatKind.TIMESTAMP_NTZ):  # writers cut them to the millisecond
        cut = pa.scalar(timedelta(milliseconds=1), pa.duration("us"))
        low, high = stats.min.cast(pa.timestamp("us")), stats.max.cast(pa.timestamp("us"))
        moment = pa.scalar(value, stats.min.type).cast(pa.timestamp("us"))
        return pc.subtract(low, cut), pc.add(high, cut), moment
    if stats.kind is StatKind.DECIMAL:  # delta-rs writes them through a double
        low, high = stats.min.cast(pa.float64()), stats.max.cast(pa.float64())
        slack = pc.add(pc.multiply(pc.max_element_wise(pc.abs(low), pc.abs(high), abs(float(value))), 1e-9), 1e-9)
        return pc.subtract(low, slack), pc.add(high, slack), pa.scalar(float(value))
    if stats.type == "double" and sign in ("=", "<", "<=") and not math.isnan(float(value)):
        low, high = (pc.if_else(pc.is_nan(ends), None, ends) for ends in (stats.min, stats.max))  # it has no order
        return low, high, pa.scalar(float(value))
    return None


def _open(answers: pa.Array) -> Mask:
    """True where the statistics say yes or do not say."""
    return np.asarray(pc.fill_null(answers, True).to_numpy(zero_copy_only=False), np.bool_)


def _distinct_partitions(snapshot: Snapshot) -> tuple[npt.NDArray[np.int64], list[dict[str, str | None]]]:
    codes, partitions = partition_codes(snapshot)
    return codes, [partition_values(text, snapshot.metadata) for text in partitions]


def misread_partitions(snapshot: Snapshot) -> set[str]:
    """The partition columns of times outside of years of four digits, by which deltalake (1.6.6, tried) can rule out no
    file, but fails."""
    partition_columns = (column for column in columns(snapshot.metadata) if column.is_partition)
    times = [column.names[0] for column in partition_columns if column.kind in ("timestamp", "timestamp_ntz")]
    _, partitions = _distinct_partitions(snapshot) if times else (None, [])
    return {name for name in times for each in partitions if not _FOUR_DIGITS.match(each[name] or "0000-")}


def _verdict(test: Test, text: str | None) -> bool | str | None:
    """What a test says of all rows of a partition: True, False, "null" for neither; None where it cannot be judged."""
    if test.operator == "IS NULL":
        return text is None
    if text is None:
        return "null"
    own = from_log(text, test.column.type)
    if own is None or test.value is None or isinstance(test.value, FilterColumn) or test.operator not in COMPARISONS:
        return None
    return compare(own, test.operator, test.value)


def compare(own: Literal, sign: str, value: Literal) -> bool | None:
    """`own sign value`; None where the two have no order."""
    try:
        return bool(_OPERATORS[sign](own, value))
    except TypeError:
        return None
