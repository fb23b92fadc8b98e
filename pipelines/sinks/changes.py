"""Row changes by key: where one stands in its database's log, what it leaves alone, what a key is after it.

Rule: the log orders the changes of a key, then their file; two that nothing orders end the stream. Numbers sort as
numbers. Two logs have no order but one that was declared: what compares their places ends the stream instead.
`_weir_change` says where a change came from and what it leaves alone. It is never written. Of a table's change feed,
what a key is after a version counts: a key that an update took away is deleted, wherever its row has gone.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from typing import Literal

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from pipelines.jvm.failures import SpecError, passes_unless
from pipelines.specs.ends import CHANGE
from pipelines.specs.tables import path_of, quoted

Flavour = Literal["postgresql", "mysql", "mongodb"]
Server = int | str  # a server id, or the UUID of GTIDs
Servers = Sequence[Server | Sequence[Server]]

CHANGE_TYPE, COMMIT_VERSION = "_change_type", "_commit_version"
FEED = (CHANGE_TYPE, COMMIT_VERSION, "_commit_timestamp")
DELETED = "_weir_deleted"
UNCHANGED = "_weir_unchanged"  # paths of columns and of what lies in them, as SQL writes them
_BEFORE, _LIFE, _PLACE, _STAYS = "_weir_before", "_weir_life", "_weir_place", "_weir_stays"
_SAME_PLACE = "nothing orders two changes of one key, both at %s: %s, and %s"
_PATHS = "ARRAY<STRING>"
# MySQL's begin with what sorts behind every name of a binlog: a table may hold places that begin with one.
_MYSQL = "~"
_LOG = r"@(.*)#(\d*)$"
_OTHER_LOG = (
    "a change at %s and one at %s are of two binlogs, and nothing orders them: name MySQL's servers in their order, "
    "debezium(…, servers=[1, 2]), or reset the stream with a full refresh"
)


def position_of(flavour: Flavour, source: Column, total_order: Column, servers: Servers) -> Column:
    """Null where the envelope's `source` does not say. `total_order`: the place in its transaction, if it is sent: one
    moment or one record of the log may hold several changes."""
    within = F.concat(F.lit(":"), _padded(total_order, 10))
    if flavour == "postgresql":
        return F.concat(_padded(source["lsn"], 20), F.coalesce(within, F.lit("")))
    if flavour == "mongodb":
        order = _padded(F.coalesce(source["ord"], F.lit(0)), 10)
        return F.concat(_padded(source["ts_ms"], 20), F.lit(":"), order, F.coalesce(within, F.lit("")))
    file = _padded(F.nullif(F.regexp_extract(source["file"], r"\.(\d+)$", 1), F.lit("")), 20)
    row = _padded(F.coalesce(source["row"], F.lit(0)), 10)
    place = F.concat_ws(":", file, _padded(source["pos"], 20), row)
    place = F.when(file.isNotNull() & source["pos"].isNotNull(), place)
    if servers:
        return F.concat(_declared_log(source, servers), place)
    log = F.concat_ws("/", _uuid(source), _server(source), F.regexp_extract(source["file"], r"^(.*)\.\d+$", 1))
    log = F.when(_server(source) == "0", "").otherwise(log)  # a snapshot
    number = F.coalesce(_padded(_transaction(source), 20), F.lit(""))
    return F.concat(F.lit(f"{_MYSQL}000000:"), place, F.lit("@"), log, F.lit("#"), number)


def newer(new: Column, old: Column) -> Column:
    """Whether one position is behind the other; ends the stream where they are places of two logs."""
    return in_one_log(new, old, new > old)


def in_one_log(new: Column, old: Column, what: Column) -> Column:
    """A condition on two positions; ends the stream where they are places of two logs, or of one whose transactions
    stand there in another order."""
    logs, numbers = ([F.regexp_extract(place, _LOG, part) for place in (new, old)] for part in (1, 2))
    two = (logs[0] != "") & (logs[1] != "") & (logs[0] != logs[1])
    numbered = (numbers[0] != "") & (numbers[1] != "") & (numbers[0] != numbers[1])
    turned = numbered & ((numbers[0] > numbers[1]) != (new > old))
    clashes = F.coalesce(new.startswith(_MYSQL) & old.startswith(_MYSQL) & (two | turned), F.lit(False))
    return F.when(clashes, F.raise_error(F.format_string(_OTHER_LOG, new, old)).cast("boolean")).otherwise(what)


def _declared_log(source: Column, servers: Servers) -> Column:
    """Which of the declared logs it is of; by GTIDs where one server's UUID is declared, whatever replica was read."""
    first = F.lit(None).cast("string")
    for number, entry in enumerate(servers):
        names = [str(name) for name in ([entry] if isinstance(entry, int | str) else entry)]
        uuids = [name for name in names if not name.isdigit()]
        log = F.lit(f"{_MYSQL}{number:06}:")
        by_number = F.concat(log, F.lit("g"), _padded(_transaction(source), 20), F.lit(":"))  # behind the snapshot's
        by_uuid = F.when(_uuid(source).isin(uuids), by_number if len(uuids) == 1 else log)
        first = F.coalesce(first, by_uuid, F.when(_server(source).isin(names), log))
    return first


def _uuid(source: Column) -> Column:
    return F.nullif(F.regexp_extract(source["gtid"], "^([^:]+):", 1), F.lit(""))


def _transaction(source: Column) -> Column:
    return F.nullif(F.regexp_extract(source["gtid"], r"^[^:]+:(\d+)$", 1), F.lit(""))


def _server(source: Column) -> Column:
    return F.coalesce(source["server_id"], F.lit("0"))


def _padded(number: Column, digits: int) -> Column:
    return F.lpad(number.cast("string"), digits, "0")


def check_columns(sink: str, rows: StructType, names: Sequence[str]) -> None:
    """Raises `SpecError` where the function does not return a column that the sink needs."""
    if missing := [name for name in names if name not in rows.names]:
        raise SpecError(
            f"{sink}: the function returns no {', '.join(missing)}", hint=f"it returns {', '.join(rows.names)}"
        )


def check_feed(sink: str, rows: StructType, columns: Sequence[str]) -> None:
    """Raises `SpecError` for rows of no change feed, or without these columns."""
    if missing := [name for name in (CHANGE_TYPE, COMMIT_VERSION) if name not in rows.names]:
        raise SpecError(
            f"{sink}: the function returns no {', '.join(missing)}",
            hint="read table(…).changes(), and keep these columns",
        )
    check_columns(sink, rows, columns)


def own_columns(names: Sequence[str]) -> list[str]:
    """Columns of the table itself, without those of its feed."""
    return [name for name in names if name not in FEED]


def by_version(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Each key as it is after each version that changed it, with `_weir_deleted`.

    Rows from before an update are left out, unless no row has their key afterwards: then the key is deleted.
    """
    alive = F.col(CHANGE_TYPE).isin("insert", "update_postimage")
    stays = F.max(alive).over(Window.partitionBy(*map(quoted, keys), COMMIT_VERSION))
    judged = changes.withColumn(_STAYS, stays).withColumn(DELETED, ~alive)
    return judged.where(f"NOT ({DELETED} AND {_STAYS})").drop(_STAYS)


def record_of(columns: Iterable[str]) -> Column:
    """Where a row came from, in words, as far as these columns tell."""
    names = set(columns)
    record = F.lit("a change")
    if CHANGE in names:
        record = F.col(f"{CHANGE}.record")
    elif {"topic", "partition", "offset"} <= names:
        record = F.format_string("record %s of partition %s of topic %s", "offset", "partition", "topic")
    elif "file_name" in names:
        record = F.concat(F.lit("a record of "), F.col("file_name"))
    return F.coalesce(record, F.lit("a change"))


def with_unchanged(changes: DataFrame, keep_when_null: Sequence[str] = ()) -> DataFrame:
    """With the paths that a change leaves alone."""
    stated = F.col(f"{CHANGE}.unchanged") if CHANGE in changes.columns else no_paths()
    is_meant = F.col(f"{CHANGE}.is_partial") if CHANGE in changes.columns else F.lit(False)
    names = (name for name in keep_when_null if name in changes.columns)
    nulls = (F.when(F.col(quoted(name)).isNull() & ~is_meant, quoted(name)) for name in names)
    return changes.withColumn(UNCHANGED, F.array_union(stated, F.array_compact(F.array(*nulls)).cast(_PATHS)))


def refuse_unordered(changes: DataFrame, keys: Sequence[str], sequence: str) -> DataFrame:
    """Changes whose batch fails at two of a key that differ and have one place in the log, or places of two logs."""
    if CHANGE not in changes.columns:
        return changes
    at = F.col(quoted(sequence))
    before = F.lag(F.struct(at.alias("at"), F.col(CHANGE).alias("change")))
    earlier, change = F.col(f"{_BEFORE}.change"), F.col(CHANGE)
    same = (at == F.col(f"{_BEFORE}.at")) & (change["content"] != earlier["content"])
    places = []
    if _has_places(changes):
        places, before_it = [change["place"]], earlier["place"]
        is_behind = (change["place"]["file"] == before_it["file"]) & (change["place"] > before_it)
        same = same & ~F.coalesce(is_behind, F.lit(False))
    in_order = Window.partitionBy(*map(quoted, keys)).orderBy(quoted(sequence), *places)
    message = F.format_string(_SAME_PLACE, at.cast("string"), earlier["record"], change["record"])
    checked = passes_unless(same, message)
    if dict(changes.dtypes)[sequence] == "string":
        checked = checked & in_one_log(at, F.col(f"{_BEFORE}.at"), F.lit(True))
    return changes.withColumn(_BEFORE, before.over(in_order)).where(F.coalesce(checked, F.lit(True))).drop(_BEFORE)


def in_file_order(
    changes: DataFrame, keys: Sequence[str], sequence: str, ends: str, keep_when_null: Sequence[str] = ()
) -> DataFrame:
    """Changes of a key at one place in the log as one: the last of their file, with what those before it set."""
    if not _has_places(changes):
        return changes
    states = with_unchanged(changes, keep_when_null).withColumn(_PLACE, F.col(CHANGE)["place"])
    states = filled(states, (*keys, sequence), (_PLACE,), ends)
    states = states.withColumn(CHANGE, F.col(CHANGE).withField("unchanged", F.col(UNCHANGED))).drop(UNCHANGED)
    last = F.max_by(F.struct(*map(quoted, states.columns)), F.struct(_PLACE))  # a place may be null
    one = states.groupBy(*map(quoted, (*keys, sequence))).agg(last.alias("last"))
    return one.select("last.*").drop(_PLACE)


def _has_places(changes: DataFrame) -> bool:
    return CHANGE in changes.columns and "place" in changes.select(f"{CHANGE}.*").columns


def filled(states: DataFrame, keys: Sequence[str], order: Sequence[str], ends: str) -> DataFrame:
    """Each column with its last value up to this change and since the last that `ends` the row. `_weir_unchanged` is
    then what remains open because nothing here says it."""
    by_key = list(map(quoted, keys))
    in_order = Window.partitionBy(*by_key).orderBy(*map(quoted, order))
    lives = states.withColumn(_LIFE, F.count_if(F.col(ends)).over(in_order))
    in_life = Window.partitionBy(*by_key, _LIFE).orderBy(*map(quoted, order))
    left = {*keys, *order, ends, UNCHANGED, CHANGE}
    fills = {
        field.name: _filled((field.name,), field.dataType, F.col(quoted(field.name)), ends, in_life)
        for field in states.schema
        if field.name not in left
    }
    values = {name: value for name, (value, _) in fills.items()}
    still_open = F.concat(no_paths(), *(paths for _, paths in fills.values()))
    return lives.withColumns({**values, UNCHANGED: F.when(F.col(_LIFE) == 0, still_open).otherwise(no_paths())}).drop(
        _LIFE
    )


def _filled(
    path: tuple[str, ...], kind: DataType, value: Column, ends: str, in_life: WindowSpec
) -> tuple[Column, Column]:
    """The value, and the paths of what is not known of it."""
    above = (path_of(path[: length + 1]) for length in range(len(path)))
    is_set = ~reduce(or_, (F.array_contains(UNCHANGED, name) for name in above)) & ~F.col(ends)

    def last(of: Column) -> Column:
        return F.last(F.when(is_set, F.struct(of.alias("v"))), ignorenulls=True).over(in_life)

    this = F.array(F.lit(path_of(path)))
    if not isinstance(kind, StructType):
        latest = last(value)
        return latest["v"], F.when(latest.isNull(), this).otherwise(no_paths())
    there = last(value.isNotNull())
    parts = {
        field.name: _filled((*path, field.name), field.dataType, value.getField(field.name), ends, in_life)
        for field in kind
    }
    whole = F.struct(*(part.alias(name) for name, (part, _) in parts.items()))
    inner = F.when(there["v"], F.concat(no_paths(), *(paths for _, paths in parts.values()))).otherwise(no_paths())
    return F.when(there.isNull() | there["v"], whole), F.when(there.isNull(), this).otherwise(inner)


def merged(path: tuple[str, ...], kind: DataType, new: Column, old: Column) -> Column:
    """The new value, or of what it leaves alone the old one; `s` and `t` are the rows of a MERGE."""
    leaves = F.array_contains(F.col(f"s.{UNCHANGED}"), path_of(path))
    value = new
    if isinstance(kind, StructType):
        parts = (
            merged((*path, field.name), field.dataType, new.getField(field.name), old.getField(field.name)).alias(
                field.name
            )
            for field in kind
        )
        value = F.when(new.isNotNull(), F.struct(*parts))
    return F.when(leaves, old).otherwise(value)


def no_paths() -> Column:
    return F.array().cast(_PATHS)
