"""Every state that a key ever had (SCD type 2): one row a change, valid from one change to the next.

Rule: the rows of a key follow from all its changes, in the order of `sequence`, however late and often they arrive.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructType

from pipelines.jvm.failures import SpecError
from pipelines.sinks.changes import UNCHANGED, filled, in_file_order, refuse_unordered
from pipelines.sinks.commits import unnumbered
from pipelines.sinks.upsert import (
    check_columns,
    check_deletions,
    refuse_empty,
    refuse_nulls,
    remember_truncations,
    same_keys,
    split_truncations,
    tombstones_of,
    truncations_of,
)
from pipelines.specs.ends import CHANGE, OutputMode, Target
from pipelines.specs.tables import TableSpec, quoted

FROM, TO, CURRENT = "valid_from", "valid_to", "is_current"
_DELETES, _EMPTY = "_deletes", "_empty"


@dataclass(frozen=True, slots=True)
class HistorySink:
    """Rows with `valid_from`, `valid_to` (null: still valid) and `is_current`.

    `deleted`, `truncated`: SQL conditions on a change.
    """

    keys: tuple[str, ...]
    sequence: str
    deleted: str | None = None
    except_columns: tuple[str, ...] = ()
    truncated: str | None = None
    output_mode: OutputMode = "append"
    kind = "history"
    is_native = False

    def beside(self, table: TableSpec) -> tuple[TableSpec, ...]:
        return (tombstones_of(table),) if self.deleted or self.truncated else ()

    def table_schema(self, rows: StructType) -> StructType:
        check_columns("history", rows, (*self.keys, self.sequence, *self.except_columns))
        check_deletions(self.kind, self.keys, self.sequence if self.deleted or self.truncated else None)
        if taken := {FROM, TO, CURRENT} & set(rows.names):
            raise SpecError(
                f"history: the function returns {', '.join(sorted(taken))}", hint="the sink adds it: rename"
            )
        if set(self.keys) & set(self.except_columns):
            raise SpecError("history: keys must be written", hint="take them out of except_columns")
        written = StructType([column for column in rows if column.name not in self.except_columns])
        at = rows[self.sequence].dataType
        return written.add(FROM, at).add(TO, at).add(CURRENT, BooleanType())

    def beside_schema(self, rows: StructType) -> StructType:
        return StructType([rows[name] for name in (*self.keys, self.sequence)])

    def write(self, batch: DataFrame, target: Target) -> None:
        deletes = F.coalesce(F.expr(self.deleted), F.lit(False)) if self.deleted else F.lit(False)
        if self.truncated:
            batch = self._truncate(batch, target)
        batch = refuse_empty(batch, self.keys, target.table.partition_cols)
        marked = refuse_nulls(batch.withColumn(_DELETES, deletes), (*self.keys, self.sequence))
        marked = refuse_unordered(marked, self.keys, self.sequence)
        marked = in_file_order(marked, self.keys, self.sequence, _DELETES)
        changes = marked.dropDuplicates([*self.keys, self.sequence, _DELETES]).persist()
        try:
            if changes.isEmpty():
                return
            if self.deleted:  # first, so that after a crash in between the replay finds the same answer
                self._remember_deletions(changes, target)
            self._merge(self._timeline(changes, target), target)
        finally:
            changes.unpersist()

    def _truncate(self, batch: DataFrame, target: Target) -> DataFrame:
        """Takes truncations in, and ends every state that they end; the other changes."""
        changes, truncations = split_truncations(batch, str(self.truncated), self.sequence)
        if remember_truncations(truncations, target.uris[tombstones_of(target.table).name], self.keys, self.sequence):
            into = DeltaTable.forPath(batch.sparkSession, target.uri)
            for (at,) in sorted(truncations.collect()):
                at = F.lit(at)
                ended = (F.col(FROM) < at) & (F.col(TO).isNull() | (F.col(TO) > at))
                with unnumbered(batch.sparkSession):
                    into.update(ended, {TO: at, CURRENT: F.lit(False)})
        return changes

    def _ends(self, touched: DataFrame, target: Target) -> DataFrame:
        """The places where states of these keys end because the key was deleted or the table truncated."""
        session, uri = touched.sparkSession, target.uris[tombstones_of(target.table).name]
        gone = session.read.format("delta").load(uri).join(touched, list(self.keys), "left_semi")
        if self.truncated:
            gone = gone.unionByName(touched.crossJoin(truncations_of(session, uri, self.keys)))
        return gone.withColumnRenamed(self.sequence, FROM)

    def _remember_deletions(self, changes: DataFrame, target: Target) -> None:
        deletions = changes.where(_DELETES).select(*map(quoted, (*self.keys, self.sequence)))
        into = DeltaTable.forPath(changes.sparkSession, target.uris[tombstones_of(target.table).name]).alias("t")
        into.merge(deletions.alias("s"), same_keys((*self.keys, self.sequence))).whenNotMatchedInsertAll().execute()

    def _timeline(self, changes: DataFrame, target: Target) -> DataFrame:
        """Every state of the keys that changed, each ending where the next change begins."""
        session, keys = changes.sparkSession, list(self.keys)
        touched = changes.select(*map(quoted, keys)).distinct()
        rows = session.read.format("delta").load(target.uri).drop(TO, CURRENT).join(touched, keys, "left_semi")
        new = changes.where(~F.col(_DELETES)).withColumn(FROM, F.col(quoted(self.sequence)))
        new = new.join(rows, [*keys, FROM], "left_anti")  # what is written already stays
        theirs, is_partial = {name.lower() for name in new.columns}, CHANGE in changes.columns
        names = [name for name in rows.columns if name.lower() in theirs]
        beside = (F.col(CHANGE), F.col(f"{CHANGE}.unchanged").alias(UNCHANGED)) if is_partial else ()
        new = new.select(*map(quoted, names), *beside)
        states = rows.unionByName(new, allowMissingColumns=True).withColumn(_DELETES, F.lit(False))
        if self.deleted or self.truncated:
            ends = self._ends(touched, target).withColumn(_DELETES, F.lit(True))
            states = states.unionByName(ends, allowMissingColumns=True)
        if is_partial:
            states = states.withColumn(UNCHANGED, F.coalesce(UNCHANGED, F.array()))
            states = refuse_unordered(filled(states, keys, (FROM, _DELETES), ends=_DELETES), keys, FROM)
        in_order = Window.partitionBy(*map(quoted, keys)).orderBy(FROM, _DELETES)
        ended = states.withColumn(TO, F.lead(FROM).over(in_order)).where(~F.col(_DELETES)).drop(_DELETES)
        empty = F.coalesce(F.col(TO) == F.col(FROM), F.lit(False))  # deleted at the moment it began
        return ended.withColumns({CURRENT: F.col(TO).isNull(), _EMPTY: empty})

    def _merge(self, states: DataFrame, target: Target) -> None:
        into = DeltaTable.forPath(states.sparkSession, target.uri)
        ends: dict[str, str | Column] = {TO: f"s.{TO}", CURRENT: f"s.{CURRENT}"}
        values: dict[str, str | Column] = {name: F.col(f"s.{name}") for name in map(quoted, into.toDF().columns)}
        merge = into.alias("t").merge(states.alias("s"), same_keys((*self.keys, FROM)))
        merge = merge.whenMatchedDelete(f"s.{_EMPTY}").whenMatchedUpdate(f"NOT (t.{TO} <=> s.{TO})", set=ends)
        merge.whenNotMatchedInsert(f"NOT s.{_EMPTY}", values=values).execute()


def history(
    *,
    keys: Sequence[str],
    sequence: str,
    deleted: str | None = None,
    except_columns: Sequence[str] = (),
    truncated: str | None = None,
) -> HistorySink:
    """Keep every state of each key, with `valid_from`, `valid_to` and `is_current` in the terms of `sequence`.

    `deleted`: a SQL condition; such a change ends the key's last state. `except_columns` are not written.
    `truncated`: a SQL condition; such a change needs no key, and ends the states of all.
    """
    return HistorySink(tuple(keys), sequence, deleted, tuple(except_columns), truncated)
