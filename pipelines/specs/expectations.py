"""Named SQL constraints on a stream's rows, what happens to rows that break one, and how many did.

Rule: every row is judged once, upstream of the sink. There Spark's `observe` counts per micro-batch; inside
foreachBatch its counts never arrive. A constraint that is NULL counts as broken.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

OBSERVATION = "expectations"
BROKEN = "_broken_expectations"  # array of the names that a row breaks


class OnViolation(StrEnum):
    WARN = "warn"  # keep the row and count it
    DROP = "drop"  # leave the row out and count it
    QUARANTINE = "quarantine"  # write the row to the stream's quarantine table instead
    FAIL = "fail"  # end the query


@dataclass(frozen=True, slots=True)
class Expectation:
    """`on_violation` is one of `OnViolation`; `pipelines.declare.check` refuses any other."""

    name: str
    constraint: str
    on_violation: str = OnViolation.WARN

    @property
    def met(self) -> Column:
        return F.coalesce(F.expr(self.constraint), F.lit(False))


def expect(name: str, constraint: str, on_violation: str = "warn") -> Expectation:
    """A SQL condition that every row should meet, and what becomes of a row that does not.

    `on_violation`: warn (count it), drop, quarantine (keep it in `<table>_quarantine`) or fail (end the stream).
    """
    return Expectation(name, constraint, on_violation)


def judge(df: DataFrame, expectations: Sequence[Expectation]) -> DataFrame:
    """Add `_broken_expectations` and observe the counts. Rows to drop are left out; FAIL ends the query."""
    if not expectations:
        return df
    judged = marked(df, expectations)
    counted = judged.observe(OBSERVATION, *(count for expectation in expectations for count in _counts(expectation)))
    return _without_dropped(_failing(counted, expectations), expectations)


def marked(df: DataFrame, expectations: Sequence[Expectation]) -> DataFrame:
    """Add `_broken_expectations`, nothing else."""
    broken = [F.when(~expectation.met, F.lit(expectation.name)) for expectation in expectations]
    return df.withColumn(BROKEN, F.array_compact(F.array(*broken)))


def names(expectations: Sequence[Expectation], on_violation: OnViolation) -> list[str]:
    return [expectation.name for expectation in expectations if expectation.on_violation == on_violation]


def breaks_any(broken_names: Sequence[str]) -> Column:
    """Whether a judged row breaks one of these expectations."""
    return F.arrays_overlap(F.col(BROKEN), F.array(*(F.lit(name) for name in broken_names)))


def _counts(expectation: Expectation) -> tuple[Column, Column]:
    failed = F.array_contains(BROKEN, expectation.name)
    passed = F.count_if(~failed).alias(f"{expectation.name}_passed")
    return passed, F.count_if(failed).alias(f"{expectation.name}_failed")


def _without_dropped(df: DataFrame, expectations: Sequence[Expectation]) -> DataFrame:
    dropping = names(expectations, OnViolation.DROP)
    return df.where(~breaks_any(dropping)) if dropping else df


def _failing(df: DataFrame, expectations: Sequence[Expectation]) -> DataFrame:
    fatal = names(expectations, OnViolation.FAIL)
    if not fatal:
        return df
    message = F.concat(F.lit("expectation broken: "), F.array_join(BROKEN, ", "))
    fails = F.when(breaks_any(fatal), F.raise_error(message).cast("boolean"))
    return df.where(fails.otherwise(F.lit(True)))  # a filter, since Spark prunes a column that nobody reads
