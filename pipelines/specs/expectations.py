"""What a pipeline expects: of a stream's rows as SQL constraints, of tables as rules such as `fresh("15 minutes")`.

Rule: declaring judges nothing. Every row is judged once, upstream of the sink. There Spark's `observe` counts per
micro-batch; inside foreachBatch its counts never arrive. A constraint that is NULL counts as broken. Tables are judged
by the stream host, whoever writes them, with what their log and rows say.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backend.expectations.model import ExpectationKind, TableExpectation
from backend.format import interval_s
from backend.lake.storage.folder import normal_uri
from backend.settings import Settings
from backend.stream_model.progress import OBSERVATION
from pipelines.specs.tables import Place, Problem, TableSpec

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


def judged_rows(df: DataFrame, expectations: Sequence[Expectation]) -> DataFrame:
    """Add `_broken_expectations` and observe the counts. Rows to drop are left out; FAIL ends the query."""
    if not expectations:
        return df
    judged = marked(df, expectations)
    counts = []
    for expectation in expectations:
        failed = F.array_contains(BROKEN, expectation.name)
        counts.append(F.count_if(~failed).alias(f"{expectation.name}_passed"))
        counts.append(F.count_if(failed).alias(f"{expectation.name}_failed"))
    rows = judged.observe(OBSERVATION, *counts)
    if fatal := names(expectations, OnViolation.FAIL):
        message = F.concat(F.lit("expectation broken: "), F.array_join(BROKEN, ", "))
        fails = F.when(breaks_any(fatal), F.raise_error(message).cast("boolean"))
        rows = rows.where(fails.otherwise(F.lit(True)))  # a filter, since Spark prunes a column that nobody reads
    dropping = names(expectations, OnViolation.DROP)
    return rows.where(~breaks_any(dropping)) if dropping else rows


def marked(df: DataFrame, expectations: Sequence[Expectation]) -> DataFrame:
    """Add `_broken_expectations`, nothing else."""
    broken = [F.when(~expectation.met, F.lit(expectation.name)) for expectation in expectations]
    return df.withColumn(BROKEN, F.array_compact(F.array(*broken)))


def names(expectations: Sequence[Expectation], on_violation: OnViolation) -> list[str]:
    return [expectation.name for expectation in expectations if expectation.on_violation == on_violation]


def breaks_any(broken_names: Sequence[str]) -> Column:
    """Whether a judged row breaks one of these expectations."""
    return F.arrays_overlap(F.col(BROKEN), F.array(*(F.lit(name) for name in broken_names)))


@dataclass(frozen=True, slots=True)
class TableRule:
    """What is expected, as it was written: `within` of fresh, `columns` of a key, `refers_to` as `table.column`."""

    kind: ExpectationKind
    within: str = ""
    columns: tuple[str, ...] = ()
    refers_to: str = ""

    @property
    def other(self) -> tuple[str, str]:
        """Table and column that a key refers to."""
        table, _, column = self.refers_to.rpartition(".")
        return table, column


def fresh(within: str) -> TableRule:
    """The last commit that changed rows is at most so long ago: "15 minutes". OPTIMIZE, VACUUM and changed properties
    do not count."""
    return TableRule(ExpectationKind.FRESH, within=within)


def rows_per_day() -> TableRule:
    """The last full day (UTC) brought about as many rows as the days before it usually do."""
    return TableRule(ExpectationKind.ROWS_PER_DAY)


def unique(*columns: str) -> TableRule:
    """No two rows have the same values in these columns. Rows with a null in one of them are not judged."""
    return TableRule(ExpectationKind.UNIQUE, columns=columns)


def references(column: str, key: str) -> TableRule:
    """Every value of the column is in another table: `references("customer_id", "silver_customers.id")`. Nulls are not
    judged."""
    return TableRule(ExpectationKind.REFERENCES, columns=(column,), refers_to=key)


@dataclass(frozen=True, slots=True)
class TableExpectations:
    """What a pipeline expects of one table: a declared one by name, any other by URI."""

    table: str
    rules: tuple[TableRule, ...]
    pipeline: str
    declared_at: Place

    def problems(self, tables: Mapping[str, TableSpec]) -> Iterator[Problem]:
        """What cannot be judged, as far as names tell."""
        for name in (self.table, *(rule.other[0] for rule in self.rules if rule.other[0])):
            if name not in tables and "/" not in name:
                near = difflib.get_close_matches(name, tables, n=1)
                hint = f"did you mean {near[0]}?" if near else "name a table that a stream writes, or one by its URI"
                yield self._problem(f"{name} is not a declared table", hint)
        if not self.rules:
            yield self._problem("it has no expectation", 'name a rule, such as fresh("15 minutes")')
        for rule in self.rules:
            if problem := _wrong(rule):
                yield self._problem(*problem)

    def declared(self, tables: Mapping[str, TableSpec], settings: Settings) -> Iterator[TableExpectation]:
        """As a host judges them; to be asked where there is no problem."""

        def uri(name: str) -> str:
            return normal_uri(tables[name].uri(settings) if name in tables else name)

        for rule in self.rules:
            other, column = rule.other
            yield TableExpectation(
                uri=uri(self.table),
                table=self.table,
                kind=rule.kind,
                pipeline=self.pipeline,
                within_s=(interval_s(rule.within) or 0.0) if rule.within else 0.0,
                columns=rule.columns,
                other=other,
                other_uri=uri(other) if other else "",
                other_column=column,
            )

    def _problem(self, message: str, hint: str) -> Problem:
        return Problem(self.declared_at, self.table, message, hint)


def _wrong(rule: TableRule) -> tuple[str, str] | None:
    """What is wrong with a rule by itself, and what to write."""
    if rule.kind is ExpectationKind.FRESH and interval_s(rule.within) is None:
        return f"fresh({rule.within!r}) is not understood", 'write "15 minutes", "2 hours" or "1 day"'
    if rule.kind is ExpectationKind.UNIQUE and not rule.columns:
        return "unique() names no column", 'write unique("order_id"), with every column of the key'
    if rule.kind is ExpectationKind.REFERENCES and not all(rule.other):
        hint = 'write references("customer_id", "silver_customers.id")'
        return f"references to {rule.refers_to!r}, which is no table and column", hint
    return None
