"""Row changes applied by key: the newest change of a key is its row (`upsert`), or every state that it ever had is one
(`history`), valid from one change to the next.

Rule: `sequence` decides, never the order of arrival, however late and often changes arrive. A table of tombstones
remembers deleted keys, so that an older change never brings a row back.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StringType, StructType

from backend.format import things
from pipelines.jvm.failures import SpecError, passes_unless
from pipelines.sinks.changes import (
    DELETED,
    UNCHANGED,
    check_columns,
    filled,
    in_file_order,
    merged,
    newer,
    record_of,
    refuse_unordered,
    with_unchanged,
)
from pipelines.sinks.commits import unnumbered
from pipelines.specs.ends import CHANGE, OutputMode, Target
from pipelines.specs.tables import TableSpec, quoted

FROM, TO, CURRENT = "valid_from", "valid_to", "is_current"
_IS_EMPTY = "_weir_empty"
_DELETED_AT = "_weir_deleted_at"
_EMPTY = (
    "upsert: {0} is an empty text, which Delta keeps as null in a partition, so no later change would find its row; "
    "drop or quarantine such rows by an expectation, or partition by another column"
)
_UNORDERED = "%s has no {0} and cannot be ordered; drop or quarantine such rows by an expectation"


@dataclass(frozen=True, slots=True)
class UpsertSink:
    """`deleted`, `truncated`: SQL conditions on a change. `keep_when_null`: columns that a null does not overwrite.

    Without `sequence`, a later batch wins: for aggregates in update mode.
    """

    keys: tuple[str, ...]
    sequence: str | None = None
    deleted: str | None = None
    except_columns: tuple[str, ...] = ()
    keep_when_null: tuple[str, ...] = ()
    truncated: str | None = None
    output_mode: OutputMode = "update"
    is_native = False

    @property
    def kind(self) -> str:
        return "upsert" if self.sequence else "update"

    @property
    def _at(self) -> str:
        """The sequence, quoted; "" without one."""
        return quoted(self.sequence) if self.sequence else ""

    def beside(self, table: TableSpec) -> tuple[TableSpec, ...]:
        return (tombstones_of(table),) if self.deleted or self.truncated else ()

    def table_schema(self, rows: StructType) -> StructType:
        needed = (*self.keys, *((self.sequence,) if self.sequence else ()))
        check_columns("upsert", rows, (*needed, *self.except_columns, *self.keep_when_null))
        check_deletions(self.kind, self.keys, self.sequence if self.deleted or self.truncated else None)
        if left_out := set(needed) & set(self.except_columns):
            raise SpecError(
                f"upsert: {', '.join(sorted(left_out))} must be written", hint="keys and sequence order the changes"
            )
        return StructType([column for column in rows if column.name not in self.except_columns])

    def beside_schema(self, rows: StructType) -> StructType:
        return StructType([rows[name] for name in (*self.keys, self.sequence) if name])

    def write(self, batch: DataFrame, target: Target) -> None:
        batch = refuse_empty(batch, self.keys, target.table.partition_cols)
        newest = self._newest(self._after_truncation(batch, target) if self.truncated else batch).persist()
        try:
            by_key = F.lit(0) if self.sequence else F.count_distinct(F.struct(*map(quoted, self.keys)))
            changes, deletions, keys = newest.agg(F.count("*"), F.count_if(DELETED), by_key).first() or (0, 0, 0)
            if not self.sequence and changes > keys:
                hint = "aggregate by these keys, or use upsert(keys=…, sequence=…)"
                raise SpecError(f"update: {changes:,} rows for {things(keys, 'key')} in one batch", hint=hint)
            if deletions:  # first, so that after a crash in between the replay finds the same answer
                self._remember_deletions(newest, target)
            if changes:
                self._merge(self._alive(newest, target), target)
        finally:
            newest.unpersist()

    def _after_truncation(self, batch: DataFrame, target: Target) -> DataFrame:
        """Takes truncations in; the changes that are not older than the last one, also when they come later."""
        tombstones, at = target.uris[tombstones_of(target.table).name], str(self.sequence)
        changes, truncations = split_truncations(batch, str(self.truncated), at)
        has_more = remember_truncations(truncations, tombstones, self.keys, at)
        (last,) = truncations_of(batch.sparkSession, tombstones, self.keys).agg(F.max(self._at)).first() or (None,)
        if last is None:
            return changes
        moment = F.col(self._at)
        if has_more:
            with unnumbered(batch.sparkSession):
                DeltaTable.forPath(batch.sparkSession, target.uri).delete(moment < F.lit(last))
        return changes.where(moment.isNull() | (moment >= F.lit(last)))

    def _newest(self, batch: DataFrame) -> DataFrame:
        """One row a key: the change with the highest sequence, with `_weir_deleted`."""
        if self.sequence is None:
            return batch.withColumn(DELETED, F.lit(False))
        changes = ordered(batch, self.keys, self.sequence, self.deleted, self.keep_when_null)
        if self.keep_when_null or CHANGE in batch.columns:
            partial = with_unchanged(changes, self.keep_when_null)
            changes = filled(partial, self.keys, (self.sequence,), ends=DELETED)
        newest = F.max_by(F.struct(*map(quoted, changes.columns)), self._at)
        return changes.groupBy(*map(quoted, self.keys)).agg(newest.alias("newest")).select("newest.*")

    def _remember_deletions(self, newest: DataFrame, target: Target) -> None:
        deletions = newest.where(DELETED).select(*map(quoted, self.keys), self._at)
        uri = target.uris[tombstones_of(target.table).name]
        into = DeltaTable.forPath(newest.sparkSession, uri).alias("t")
        merge = into.merge(deletions.alias("s"), same_keys(self.keys))
        merge.whenMatchedUpdateAll(self._is_newer()).whenNotMatchedInsertAll().execute()

    def _alive(self, newest: DataFrame, target: Target) -> DataFrame:
        """Without changes that are older than their key's deletion."""
        if not self.deleted:
            return newest
        gone = newest.sparkSession.read.format("delta").load(target.uris[tombstones_of(target.table).name])
        gone = gone.withColumnRenamed(str(self.sequence), _DELETED_AT)
        joined = newest.join(gone, list(self.keys), "left")
        is_older = newer(F.col(_DELETED_AT), F.col(self._at))
        return joined.where(F.col(_DELETED_AT).isNull() | ~is_older).drop(_DELETED_AT)

    def _is_newer(self) -> Column:
        """Not when they are equal: a change that is replayed does nothing."""
        return newer(F.col(f"s.{self._at}"), F.col(f"t.{self._at}"))

    def _merge(self, changes: DataFrame, target: Target) -> None:
        into = DeltaTable.forPath(changes.sparkSession, target.uri)
        theirs = {name.lower() for name in changes.columns}  # as Spark compares names
        names = [name for name in into.toDF().columns if name.lower() in theirs]
        values = {quoted(name): F.col(f"s.{quoted(name)}") for name in names}
        updates = values
        if UNCHANGED in changes.columns:
            kinds = {field.name.lower(): field.dataType for field in changes.schema}
            old = {name: F.col(f"t.{quoted(name)}") for name in names}
            updates = {
                quoted(name): merged((name,), kinds[name.lower()], values[quoted(name)], old[name]) for name in names
            }
        is_newer = F.col(f"t.{self._at}").isNull() | self._is_newer() if self._at else F.lit(True)
        equals = "=" if self._at else "<=>"  # an aggregate has a group of null
        merge = into.alias("t").merge(changes.alias("s"), same_keys(self.keys, equals))
        merge = merge.whenMatchedDelete(F.col(f"s.{DELETED}") & is_newer).whenMatchedUpdate(is_newer, set=updates)
        merge.whenNotMatchedInsert(f"NOT s.{DELETED}", values=values).execute()


def upsert(
    *,
    keys: Sequence[str],
    sequence: str,
    deleted: str | None = None,
    except_columns: Sequence[str] = (),
    keep_when_null: Sequence[str] = (),
    truncated: str | None = None,
) -> UpsertSink:
    """Apply changes by key: the one with the highest `sequence` wins, whenever and however often it arrives.

    `deleted`: a SQL condition; such a change removes the row. `except_columns` are not written. A null in
    `keep_when_null` leaves the row's value (partial updates). `truncated`: a SQL condition; such a change needs no key,
    and removes every row that is older.
    """
    return UpsertSink(tuple(keys), sequence, deleted, tuple(except_columns), tuple(keep_when_null), truncated)


def update(*, keys: Sequence[str]) -> UpsertSink:
    """Write an aggregate's changed groups over the rows of the same keys."""
    return UpsertSink(tuple(keys))


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
        if self.truncated:
            batch = self._truncate(batch, target)
        batch = refuse_empty(batch, self.keys, target.table.partition_cols)
        changes = ordered(batch, self.keys, self.sequence, self.deleted)
        changes = changes.dropDuplicates([*self.keys, self.sequence, DELETED]).persist()
        try:
            if changes.isEmpty():
                return
            if self.deleted:  # first, so that after a crash in between the replay finds the same answer
                names = (*self.keys, self.sequence)
                deletions = changes.where(DELETED).select(*map(quoted, names)).alias("s")
                uri = target.uris[tombstones_of(target.table).name]
                into = DeltaTable.forPath(changes.sparkSession, uri).alias("t")
                into.merge(deletions, same_keys(names)).whenNotMatchedInsertAll().execute()
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

    def _timeline(self, changes: DataFrame, target: Target) -> DataFrame:
        """Every state of the keys that changed, each ending where the next change begins, or where the key was deleted
        or the table truncated."""
        session, keys = changes.sparkSession, list(self.keys)
        touched = changes.select(*map(quoted, keys)).distinct()
        rows = session.read.format("delta").load(target.uri).drop(TO, CURRENT).join(touched, keys, "left_semi")
        new = changes.where(~F.col(DELETED)).withColumn(FROM, F.col(quoted(self.sequence)))
        new = new.join(rows, [*keys, FROM], "left_anti")  # what is written already stays
        theirs, is_partial = {name.lower() for name in new.columns}, CHANGE in changes.columns
        names = [name for name in rows.columns if name.lower() in theirs]
        beside = (F.col(CHANGE), F.col(f"{CHANGE}.unchanged").alias(UNCHANGED)) if is_partial else ()
        new = new.select(*map(quoted, names), *beside)
        states = rows.unionByName(new, allowMissingColumns=True).withColumn(DELETED, F.lit(False))
        if self.deleted or self.truncated:
            uri = target.uris[tombstones_of(target.table).name]
            ends = session.read.format("delta").load(uri).join(touched, keys, "left_semi")
            if self.truncated:
                ends = ends.unionByName(touched.crossJoin(truncations_of(session, uri, keys)))
            ends = ends.withColumnRenamed(self.sequence, FROM).withColumn(DELETED, F.lit(True))
            states = states.unionByName(ends, allowMissingColumns=True)
        if is_partial:
            states = states.withColumn(UNCHANGED, F.coalesce(UNCHANGED, F.array()))
            states = refuse_unordered(filled(states, keys, (FROM, DELETED), ends=DELETED), keys, FROM)
        in_order = Window.partitionBy(*map(quoted, keys)).orderBy(FROM, DELETED)
        ended = states.withColumn(TO, F.lead(FROM).over(in_order)).where(~F.col(DELETED)).drop(DELETED)
        empty = F.coalesce(F.col(TO) == F.col(FROM), F.lit(False))  # deleted at the moment it began
        return ended.withColumns({CURRENT: F.col(TO).isNull(), _IS_EMPTY: empty})

    def _merge(self, states: DataFrame, target: Target) -> None:
        into = DeltaTable.forPath(states.sparkSession, target.uri)
        ends: dict[str, str | Column] = {TO: f"s.{TO}", CURRENT: f"s.{CURRENT}"}
        values: dict[str, str | Column] = {name: F.col(f"s.{name}") for name in map(quoted, into.toDF().columns)}
        merge = into.alias("t").merge(states.alias("s"), same_keys((*self.keys, FROM)))
        merge = merge.whenMatchedDelete(f"s.{_IS_EMPTY}").whenMatchedUpdate(f"NOT (t.{TO} <=> s.{TO})", set=ends)
        merge.whenNotMatchedInsert(f"NOT s.{_IS_EMPTY}", values=values).execute()


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


def tombstones_of(table: TableSpec) -> TableSpec:
    """The table that remembers deletions, beside `table`."""
    comment = f"Deletions that {table.name} has taken in, so that an older change never brings a row back"
    return replace(
        table,
        name=f"{table.name}_tombstones",
        location=f"{table.location.rstrip('/')}_tombstones" if table.location else None,
        comment=comment,
        schema=None,
        partition_cols=(),
        cluster_by=(),
        properties=table.owners,
    )


def split_truncations(batch: DataFrame, truncated: str, sequence: str) -> tuple[DataFrame, DataFrame]:
    """The other changes; and the places of truncations, which must have one."""
    is_one = F.coalesce(F.expr(truncated), F.lit(False))
    return batch.where(~is_one), refuse_nulls(batch.where(is_one), (sequence,)).select(quoted(sequence)).distinct()


def remember_truncations(truncations: DataFrame, uri: str, keys: Sequence[str], sequence: str) -> bool:
    """Among the tombstones, as rows without a key, each once; whether there are any."""
    if truncations.isEmpty():
        return False
    into = DeltaTable.forPath(truncations.sparkSession, uri).alias("t")
    at = quoted(sequence)
    merge = into.merge(truncations.alias("s"), f"t.{at} = s.{at} AND t.{quoted(keys[0])} IS NULL")
    with unnumbered(truncations.sparkSession):
        merge.whenNotMatchedInsert(values={at: F.col(f"s.{at}")}).execute()
    return True


def truncations_of(session: SparkSession, uri: str, keys: Sequence[str]) -> DataFrame:
    """Their places, of all that were ever taken in."""
    return session.read.format("delta").load(uri).where(F.col(quoted(keys[0])).isNull()).drop(*keys)


def same_keys(keys: Sequence[str], equals: str = "=") -> str:
    return " AND ".join(f"t.{key} {equals} s.{key}" for key in map(quoted, keys))


def ordered(
    batch: DataFrame, keys: Sequence[str], sequence: str, deleted: str | None, keep_when_null: Sequence[str] = ()
) -> DataFrame:
    """The changes with `_weir_deleted`, one at each place in the log; ends the stream where nothing orders two."""
    is_deletion = F.coalesce(F.expr(deleted), F.lit(False)) if deleted else F.lit(False)
    changes = refuse_nulls(batch.withColumn(DELETED, is_deletion), (*keys, sequence))
    return in_file_order(refuse_unordered(changes, keys, sequence), keys, sequence, DELETED, keep_when_null)


def refuse_nulls(changes: DataFrame, names: Sequence[str]) -> DataFrame:
    """Rows whose batch fails at one that is null where it must not be."""
    for name in names:
        message = F.format_string(_UNORDERED.format(name.replace("%", "%%")), record_of(changes.columns))
        changes = changes.where(passes_unless(F.col(quoted(name)).isNull(), message))
    return changes


def refuse_empty(changes: DataFrame, keys: Sequence[str], partitions: Sequence[str]) -> DataFrame:
    """Rows whose batch fails at a key that its partition would keep as null."""
    parted = {name.lower() for name in keys} & {name.lower() for name in partitions}
    for column in changes.schema:
        if column.name.lower() in parted and isinstance(column.dataType, StringType):
            is_empty = F.col(quoted(column.name)) == ""
            changes = changes.where(passes_unless(is_empty, F.lit(_EMPTY.format(column.name))))
    return changes


def check_deletions(sink: str, keys: Sequence[str], sequence: str | None) -> None:
    """Raises `SpecError` where no deletion of a key could be newer than its row."""
    if sequence in keys:
        raise SpecError(f"{sink}: the sequence {sequence} is one of the keys", hint="order deletions by another column")
