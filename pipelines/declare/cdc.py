"""Change events of databases, as Debezium writes them, and nested documents, as flat rows.

Rule: pure functions of a DataFrame, to be called in a declared function. `position` orders changes as the database
made them, whatever order they arrive in. Every record is a change, none by its kind (a heartbeat), or a misfit.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType, TimestampNTZType, TimestampType

from pipelines.declare.cdc_values import (
    Decimals,
    Encoding,
    Fit,
    TimeUnit,
    any_of,
    fields_of,
    fit,
    image_of,
    sent_of,
    type_of,
)
from pipelines.jvm.failures import SpecError, passes_unless
from pipelines.sinks.changes import Flavour, Servers, no_paths, position_of, record_of
from pipelines.specs.dead_letters import without_dead_letters
from pipelines.specs.ends import CHANGE, Misfit
from pipelines.specs.streams import CALL, LETTER
from pipelines.specs.tables import parse_schema, path_of

UNAVAILABLE = "__debezium_unavailable_value"
_SOURCE = (
    "STRUCT<lsn: BIGINT, server_id: STRING, gtid: STRING, file: STRING, pos: BIGINT, row: BIGINT, ord: BIGINT,"
    " ts_ms: BIGINT>"
)
_ENVELOPE = (
    f"STRUCT<op: STRING, status: STRING, before: VARIANT, after: VARIANT, source: {_SOURCE}, ts_ms: BIGINT,"
    " transaction: STRUCT<total_order: BIGINT>, updateDescription: STRUCT<updatedFields: STRING,"
    " removedFields: ARRAY<STRING>, truncatedArrays: ARRAY<STRUCT<field: STRING>>>>"
)
_TYPES = (
    "STRUCT<fields: ARRAY<STRUCT<field: STRING, fields: ARRAY<STRUCT<field: STRING, name: STRING,"
    " parameters: STRUCT<scale: STRING>>>>>>"
)
_TIMES = ("ts_ms", "ts_us", "ts_ns")
_JSON, _EVENT, _IMAGE, _SENT, _FIT = "_weir_json", "_weir_event", "_weir_image", "_weir_sent", "_weir_fit"
_END = f"end_{secrets.token_hex(8)}"  # no text can know it, so none can stand in for the end
_TRUNCATED = (
    "the source truncated the table: take such changes in by debezium(…, truncations=True) and "
    """upsert(…, truncated="op = 't'"), or reset the stream with a full refresh"""
)


def debezium(
    rows: DataFrame,
    schema: str,
    *,
    flavour: Flavour = "postgresql",
    value: str = "value",
    keep: Sequence[str] = (),
    prefix: str = "",
    truncations: bool = False,
    misfit: Misfit | None = None,
    decimals: Decimals | None = None,
    times: TimeUnit | Mapping[str, TimeUnit] | None = None,
    servers: Servers = (),
    unavailable: str = UNAVAILABLE,
) -> DataFrame:
    """Envelopes in the column `value` (JSON text or bytes) as `op`, the row's columns, `position` and `changed_at`.

    `schema` is DDL text of the row. `op`: c, u, d, r (snapshot). A deletion has the row as it was, as far as the
    database sends it. Envelopes with their schema beside the payload are taken as well. Tombstones, heartbeats, bounds
    of transactions, schema changes and logical messages are left out. A truncation (`op` t) fails the batch, or with
    `truncations` is a row without columns for a sink's `truncated`. `keep`: columns of `rows` that stay beside.
    `prefix` is put before `op`, `position` and `changed_at`, for a table that has such columns.

    `misfit`: a record that is no envelope, has no place in the log, or has a value that is none of its column's type
    goes to the stream's dead letters, ends it ("fail"), or has null there ("null"). Without a word it is a dead letter,
    but ends what reads a view, which has no table for them. Where the envelope has no schema,
    `decimals` and `times` say what the connector's modes are: "precise" (bytes) or "string", and the unit of numbers in
    TIMESTAMP columns, one for all or by column. `servers`: MySQL's primaries in their order, by server id or UUID;
    those that count one binlog in a list of their own. A column that a change leaves alone (`unavailable`; MongoDB's
    partial updates) is named in `_weir_change`, which `upsert` and `history` read.
    """
    columns = parse_schema(rows.sparkSession, schema)
    own = [f"{prefix}{name}" for name in ("op", "position", "changed_at")]
    units: Mapping[str, TimeUnit | None] = times if isinstance(times, Mapping) else dict.fromkeys(columns.names, times)
    taken_names = [name.lower() for name in (*own, *keep, CHANGE)]
    if taken := [name for name in columns.names if name.lower() in taken_names]:
        raise SpecError(
            f"debezium: the row has {', '.join(taken)}, which debezium adds or keeps beside it",
            hint=f"""debezium(…, prefix="{prefix}cdc_") calls its own {prefix}cdc_op, {prefix}cdc_position, …""",
        )
    words: list[tuple[str, str | None, Sequence[str]]] = [
        ("flavour", flavour, get_args(Flavour)),
        ("misfit", misfit, get_args(Misfit)),
        ("decimals", decimals, get_args(Decimals)),
        *(("times", unit, get_args(TimeUnit)) for unit in units.values()),
        *(("times of", name, columns.names) for name in units),
    ]
    for argument, word, known in words:
        if word is not None and word not in known:
            raise SpecError(f"debezium: {argument} {word!r} is not known", hint=f"use {', '.join(known)}")
    encodings = [Encoding(flavour == "mongodb", decimals, units.get(name), unavailable) for name in columns.names]
    events = _events(rows.where(F.col(value).isNotNull()), value, key="key" if "key" in rows.columns else None)
    if not truncations:
        events = events.where(passes_unless(_envelope("op") == "t", F.lit(_TRUNCATED)))
    position = position_of(flavour, _envelope("source"), _envelope("transaction.total_order"), servers)
    judged = _fitted(events, columns, encodings, position=position, record=record_of(rows.columns))
    good = _sorted_out(judged, rows.columns, misfit, value)
    return good.select(
        *keep,
        F.col(f"{_FIT}.op").alias(own[0]),
        *(F.col(f"{_FIT}.v{n}").alias(field.name, metadata=field.metadata) for n, field in enumerate(columns)),
        F.col(f"{_FIT}.position").alias(own[1]),
        F.col(f"{_FIT}.changed_at").alias(own[2]),
        F.col(f"{_FIT}.change").alias(CHANGE),
    )


def flatten(rows: DataFrame, *, separator: str = "_") -> DataFrame:
    """Every column of a struct, however deep, as a column of its own: `address.city` becomes `address_city`."""
    paths = [path for field in rows.schema if field.name != CHANGE for path in _leaves(field.dataType, (field.name,))]
    columns = [F.col(path_of(path)).alias(separator.join(path)) for path in paths]
    if CHANGE not in rows.columns:
        return rows.select(*columns)
    left = F.col(f"{CHANGE}.unchanged")
    above = {path: [path_of(path[: length + 1]) for length in range(len(path))] for path in paths}
    renamed = (
        F.when(any_of(F.array_contains(left, name) for name in names), path_of([separator.join(path)]))
        for path, names in above.items()
    )
    unchanged = F.array_compact(F.array(*renamed)).cast("ARRAY<STRING>")
    return rows.select(*columns, F.col(CHANGE).withField("unchanged", unchanged).alias(CHANGE))


def children(rows: DataFrame, array: str, *, keys: Sequence[str]) -> DataFrame:
    """One row for each element of an array column, with the parent's keys and its place (`position_in_parent`, from 0).

    Elements that are structs become columns, flattened; others are the column `value`.
    """
    element = rows.schema[array].dataType
    is_struct = isinstance(element, ArrayType) and isinstance(element.elementType, StructType)
    whole = [F.col(CHANGE).withField("unchanged", no_paths()).alias(CHANGE)]  # an element is
    beside = whole if CHANGE in rows.columns else []
    opened = rows.select(*keys, F.posexplode(array).alias("position_in_parent", "value"), *beside)
    names = [CHANGE] if beside else []
    return flatten(opened.select(*keys, "position_in_parent", "value.*", *names)) if is_struct else opened


def _once(value: Column) -> Column:
    """Computed once, not once more for each filter behind it: Spark takes the condition, always true, for one that can
    change."""
    return F.when(F.spark_partition_id() >= 0, value)


def _envelope(path: str) -> Column:
    return F.col(f"{_EVENT}.envelope.{path}")


def _events(records: DataFrame, value: str, *, key: str | None) -> DataFrame:
    """Records with their envelope, parsed, its columns' types where it has a schema, and their key; without those that
    are no change by their kind."""
    text = F.col(value).cast("string")
    whole = fields_of(F.try_parse_json(F.concat(F.lit('{"all":'), text, F.lit(f',"{_END}":1}}'))))
    parsed = records.withColumn(_JSON, _once(F.when(F.is_valid_utf8(text), whole)))
    is_alone = (F.size(_JSON) == 2) & F.map_contains_key(F.col(_JSON), _END)
    document = F.when(is_alone, F.try_element_at(_JSON, F.lit("all")))
    payload = F.coalesce(F.try_variant_get(document, "$.payload", "variant"), document)
    images = F.try_variant_get(document, "$.schema", _TYPES)["fields"]
    event = F.struct(
        payload.alias("payload"),
        F.try_variant_get(payload, "$", _ENVELOPE).alias("envelope"),
        F.get(F.filter(images, lambda image: image["field"] == "after"), F.lit(0))["fields"].alias("types"),
        fields_of(F.try_parse_json(F.col(key).cast("string")) if key else F.lit(None).cast("variant")).alias("key"),
    )
    events = parsed.withColumn(_EVENT, _once(event)).drop(_JSON)
    return events.where(~F.coalesce(_is_none(), F.lit(False)))


def _is_none() -> Column:
    """Whether a record is no change: a tombstone, a heartbeat, a logical message, a bound of a transaction, a change of
    the schema."""
    names = F.map_keys(fields_of(F.col(f"{_EVENT}.payload")))
    is_heartbeat = (F.size(F.array_except(names, F.array(*map(F.lit, _TIMES)))) == 0) & (F.size(names) > 0)
    is_bound = (
        F.array_contains(names, "status") & F.array_contains(names, "id") & _envelope("status").isin("BEGIN", "END")
    )
    is_ddl = F.array_contains(names, "ddl") & F.array_contains(names, "databaseName")
    is_other = _envelope("op").isNull() & (is_heartbeat | is_bound | is_ddl)
    return F.is_variant_null(f"{_EVENT}.payload") | (_envelope("op") == "m") | is_other


def _fitted(
    events: DataFrame, columns: StructType, encodings: Sequence[Encoding], *, position: Column, record: Column
) -> DataFrame:
    """With `_weir_fit`: the columns' values by number, the position, why a record is no change, and `_weir_change`."""
    image, types = F.col(_IMAGE), F.col(f"{_EVENT}.types")
    images = events.withColumn(_IMAGE, _once(image_of(F.col(_EVENT), is_mongodb=encodings[0].is_mongodb)))
    parts = [(field, F.col(f"{_SENT}.v{n}"), of) for n, (field, of) in enumerate(zip(columns, encodings, strict=True))]
    sent = F.struct(*(sent_of(image, field.name, of).alias(f"v{n}") for n, (field, _, of) in enumerate(parts)))
    fits = [fit(value, field, of, image=image, types=types) for field, value, of in parts]
    # a moment that is a number whose unit nobody said: then all records are misfits, none of them by itself
    undeclared = (
        (F.schema_of_variant(value) == "BIGINT") & type_of(types, field.name)["name"].isNull()
        for field, value, of in parts
        if isinstance(field.dataType, TimestampType | TimestampNTZType) and of.unit is None
    )
    unchanged = F.concat(no_paths(), *(part.unchanged for part in fits))
    call, place = CALL.get(), list[Column]()
    if call and call.reads_files:
        # The file, the block, and when its task read the record. Spark lets no stream number its rows, but a task reads
        # a block from its start.
        file, read_at = F.input_file_name(), F.reflect(F.lit("java.lang.System"), F.lit("nanoTime")).cast("bigint")
        block = F.input_file_block_start()
        place_in_file = F.struct(file.alias("file"), block.alias("block"), read_at.alias("read_at"))
        place = [F.when(file != "", place_in_file).alias("place")]
    change = F.struct(
        record.alias("record"),
        unchanged.alias("unchanged"),
        image["is_partial"].alias("is_partial"),
        image["content"].alias("content"),
        *place,
    )
    fitted = F.struct(
        _envelope("op").alias("op"),
        F.timestamp_millis(_envelope("ts_ms")).alias("changed_at"),
        *(part.value.alias(f"v{number}") for number, part in enumerate(fits)),
        position.alias("position"),
        _reason(columns, fits, position).alias("reason"),
        any_of(undeclared).alias("is_undeclared"),
        change.alias("change"),
    )
    return images.withColumn(_SENT, _once(sent)).withColumn(_FIT, _once(fitted))


def _reason(columns: StructType, fits: Sequence[Fit], position: Column) -> Column:
    """Why a record is no change that its table can take; null where it is one."""
    misfits = []
    for field, part in zip(columns, fits, strict=True):
        # what has to be declared for a value that can be read in two ways
        declare = {"decimal": "decimals", "timestamp": "times", "timestamp_ntz": "times"}.get(field.dataType.typeName())
        name = f"{field.name} {field.dataType.simpleString()}" + (f" (say {declare}=…?)" if declare else "")
        misfits.append(F.when(part.misfits, name))
    names = F.array_join(F.array_compact(F.array(*misfits)), ", ")
    call = CALL.get()
    keys = [part.value.isNull() for field, part in zip(columns, fits, strict=True) if call and field.name in call.keys]
    op, is_change = _envelope("op"), _envelope("op") != "t"
    has_no_row = F.col(f"{_IMAGE}.fields").isNull() & ~F.col(f"{_IMAGE}.is_partial")
    return (
        F.when(F.col(f"{_EVENT}.payload").isNull(), "not JSON, or more than one value")
        .when(op.isNull(), "no envelope of Debezium: it has no op")
        .when(~op.isin("c", "u", "d", "r", "t"), F.concat(F.lit("not known: op "), op))
        .when(position.isNull(), F.concat(F.lit("no place in the log: "), F.to_json(_envelope("source"))))
        .when(is_change & (op != "d") & has_no_row, "it has no row")
        .when(is_change & (names != ""), F.concat(F.lit("does not fit the schema: "), names))
        .when(is_change & any_of(keys), "neither its row nor its key says whose change it is")
    )


def _sorted_out(judged: DataFrame, columns: Sequence[str], misfit: Misfit | None, value: str) -> DataFrame:
    """The changes; the other records are dead letters, or end the stream at the first of them, or are rows as well."""
    call, reason, undeclared = CALL.get(), F.col(f"{_FIT}.reason"), F.col(f"{_FIT}.is_undeclared")
    is_misfit, message = reason.isNotNull(), F.concat(record_of(columns), F.lit(" cannot be taken: "), reason)
    if call:
        call.unwraps = True
    if misfit == "null":
        return judged
    keeps = call is not None and call.keeps_letters
    if misfit == "dead letter" and call and not keeps:
        hint = 'call it in the function of a streaming table, or say misfit="fail"'
        raise SpecError("debezium: its dead letters have no table here", hint=hint)
    if misfit != "fail" and keeps:
        kinds = dict(part.split() for part in LETTER[:-1])
        parts = (F.col(name) if name in columns else F.lit(None) for name in kinds)
        sent = (part.cast(kind).alias(name) for part, (name, kind) in zip(parts, kinds.items(), strict=True))
        letter = F.when(is_misfit, F.struct(*sent, reason.alias("reason")))
        declared = judged.where(passes_unless(undeclared & is_misfit, message))
        return without_dead_letters(declared, letter, spread_by=value)
    return judged.where(passes_unless(is_misfit, message))


def _leaves(kind: object, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    if not isinstance(kind, StructType):
        return [path]
    return [leaf for field in kind for leaf in _leaves(field.dataType, (*path, field.name))]
