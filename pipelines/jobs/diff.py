"""A diff as a Spark job: the methods are tried in order, the answer is written as one small Delta table.

Rule: as in process (`backend.changes.compare`), what does not cancel is exactly the difference of the two states, and a
key tells the updates in it. Delta reads the rows: of two states a file that both have (path and deletion vector) is not
opened. Equality is Spark's own grouping: no hash decides anything. Which rows differ is handed on, all of them up to
`MOST_VALUES`, else the first ones that were asked for: who reads the result explains them. The tables compared are
never in it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StructField,
    StructType,
    VariantType,
)
from pyspark.storagelevel import StorageLevel

from backend.changes.changed_rows import (
    COMMON_CHANGES,
    COMMON_COLUMNS,
    ORDER_COLUMNS,
    Pairing,
    RowBucket,
    bucket_sizes,
    share_out,
)
from backend.changes.commits import feed_counts, why_not_whole
from backend.changes.host_job import COMMON, MOST_VALUES, SUMMARY, DiffSummary, host_methods
from backend.changes.model import DiffMethod
from backend.changes.plan import METHOD_NAMES, PreparedDiff
from backend.errors import DiffError, JobError
from backend.jobs.documents import to_document
from pipelines.jobs.rows import satisfies, why_failed
from pipelines.jvm.delta import make_active, open_state
from pipelines.jvm.failures import describe
from pipelines.jvm.hadoop import spark_uri
from pipelines.specs.tables import quoted

SIGN = "sign"
_CHANGE_TYPE, _COMMIT_VERSION = "_change_type", "_commit_version"
_LINE = "what string, number long, n long, detail string"  # of the result, with a row before and after


@dataclass(frozen=True, slots=True)
class SparkLimits:
    """From `compiled_bytes` of files on, compiling plans pays for itself. A result holds all changed rows up to
    `most_values` values."""

    compiled_bytes: int = 4 * 1024**2
    most_values: int = MOST_VALUES


@dataclass(frozen=True, slots=True)
class DiffTask:
    """One comparison and where its result goes. `by` says who computes it."""

    prepared: PreparedDiff
    result_uri: str
    by: str
    limits: SparkLimits = field(default_factory=SparkLimits)


def run_diff(session: SparkSession, task: DiffTask, tell: Callable[[str], None]) -> None:
    """Compute and write. `tell` gets what goes on now, and raises when the job is to end.

    Raises `DiffError` or `JobError` with the reason of each method that could not.
    """
    make_active(session)
    tune(session, task.prepared.input.size_bytes, task.limits.compiled_bytes)
    failed: dict[DiffMethod, str] = {}
    methods, where = host_methods(task.prepared), task.prepared.question.where
    for method in methods:
        try:
            _compare(session, task, method, failed, tell)
            return
        except (PySparkException, Py4JJavaError, DiffError) as exc:
            tell(f"not by {METHOD_NAMES[method]}")  # raises when it was the cancelling that broke it
            if where is not None and (failure := why_failed(exc)) is not None:
                raise failure from exc
            if len(methods) == 1:
                raise
            failed[method] = exc.message if isinstance(exc, DiffError) else describe(exc)[1]
    why = "; ".join(f"not by {METHOD_NAMES[method]}: {reason}" for method, reason in failed.items())
    raise JobError(why, hint="files that were vacuumed cannot be compared any more")


def _compare(
    session: SparkSession,
    task: DiffTask,
    method: DiffMethod,
    failed: dict[DiffMethod, str],
    tell: Callable[[str], None],
) -> None:
    """One method's answer."""
    prepared, question, gross = task.prepared, task.prepared.question, None
    key = prepared.plan.key
    names = () if key is None or method is DiffMethod.MULTISET else key.columns
    pairing = Pairing(prepared.columns, names, by_ids=method is DiffMethod.ROW_ID)
    tell(f"reading for {METHOD_NAMES[method]}")
    signed = signed_rows(session, prepared, method)
    require_comparable(signed, pairing.columns)
    if method is DiffMethod.CHANGE_FEED:
        tell("counting what each commit did")
        by_kind = signed.groupBy(_COMMIT_VERSION, _CHANGE_TYPE).count().collect()
        gross = tuple(sorted((int(version), str(kind), int(rows)) for version, kind, rows in by_kind))
        is_asked_for = question.method is not None  # told with its gaps
        if (why := why_not_whole(prepared.commits, feed_counts(gross), prepared.input)) and not is_asked_for:
            raise DiffError(why)
    if any(holds_map(column.dataType) for column in fields_of(signed)):
        # The code that Spark 4.2 generates to group by maps takes a null number in one for 0 (tried).
        session.conf.set("spark.sql.codegen.wholeStage", "false")
        session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    tell("comparing rows")
    matched = None if question.where is None else satisfies(question.where, prepared.columns, signed.schema)
    rows = net_rows(signed, pairing.paired_by, question.tolerance, matched)
    rows.lines.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        buckets, cells = count(rows)  # does the work; the others read what is kept of it
        tell("writing the result")
        updates = {pairing.columns[number]: count for number, count in cells.items()}
        summary = DiffSummary(method, pairing, buckets, updates, failed, gross, task.by)
        most = max(question.row_limit, task.limits.most_values // (2 * pairing.width))
        kept = kept_lines(rows, buckets, question.row_limit, most)
        common = [common_lines(rows, number) for number in list(cells)[:COMMON_COLUMNS]]
        lines = session.createDataFrame([(SUMMARY, 0, 0, to_document(summary))], _LINE)
        for more in (rows.lines.select("before", "after").limit(0), *kept, *common):
            lines = lines.unionByName(more, allowMissingColumns=True)
        write_result(session, lines, task.result_uri)
    finally:
        rows.lines.unpersist()


# the rows that tell two states apart ----------------------------------------------------------------------------------


def signed_rows(session: SparkSession, prepared: PreparedDiff, method: DiffMethod) -> DataFrame:
    """c0, c1 … and `sign`, −1 for a row that went, 1 for one that came; row tracking's ids as a column behind them
    where the method pairs by ids; of a feed with commit version and change type. Raises `DiffError`."""
    given = prepared.input
    first, second = (open_state(session, snapshot) for snapshot in (given.first, given.second))
    if method is DiffMethod.CHANGE_FEED:
        went, came = (1, -1) if given.is_reverse else (-1, 1)
        signs = F.when(F.col(_CHANGE_TYPE).isin("insert", "update_postimage"), came).otherwise(went)
        reader = session.read.format("delta").option("readChangeFeed", "true")
        reader = reader.option("startingVersion", given.low + 1).option("endingVersion", given.high)
        feed = reader.load(spark_uri(given.second.ref.uri))
        return _numbered(feed, prepared, signs, _CHANGE_TYPE, _COMMIT_VERSION)
    newer = first if given.is_reverse else second
    parts = []
    for state, other, sign in ((first, second, -1), (second, first, 1)):
        files = state.files_not_in(other) if given.is_one_table else state.files()
        rows = state.rows(files, as_of=state if given.as_of is None else newer)
        ids = [F.col("_metadata.row_id").alias(f"c{len(prepared.columns)}")] if method is DiffMethod.ROW_ID else []
        parts.append(_numbered(rows, prepared, F.lit(sign), *ids))
    return parts[0].unionAll(parts[1])


def fields_of(signed: DataFrame) -> tuple[StructField, ...]:
    """c0, c1 …"""
    return tuple(field for field in signed.schema.fields if field.name[:1] == "c" and field.name[1:].isdigit())


def holds_map(kind: DataType) -> bool:
    """Whether values of the type cannot be put in an order, as a map's cannot."""
    return any(isinstance(part, MapType) for part in nested(kind))


def require_comparable(signed: DataFrame, columns: Sequence[str]) -> None:
    """Raises `DiffError` for a type that Spark cannot group by."""
    fields = zip(columns, fields_of(signed), strict=False)  # row ids are no column of the table
    odd = [name for name, field in fields if any(isinstance(part, VariantType) for part in nested(field.dataType))]
    if odd:
        raise DiffError(
            f"Spark cannot compare values of type variant: {', '.join(odd)}", hint="leave these columns out"
        )


def nested(kind: DataType) -> Iterator[DataType]:
    """The type and all within it."""
    yield kind
    match kind:
        case StructType():
            inner = [field.dataType for field in kind.fields]
        case ArrayType():
            inner = [kind.elementType]
        case MapType():
            inner = [kind.keyType, kind.valueType]
        case _:
            inner = []
    for part in inner:
        yield from nested(part)


def _numbered(rows: DataFrame, prepared: PreparedDiff, sign: Column, *more: Column | str) -> DataFrame:
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    columns = (_zeros_alike(F.col(quoted(name)), kinds[name]).alias(f"c{i}") for i, name in enumerate(prepared.columns))
    return rows.select(*columns, sign.cast("long").alias(SIGN), *more)


def _zeros_alike(value: Column, kind: DataType, *, is_inside: bool = False) -> Column:
    """With −0.0 as 0.0 in the values of maps: grouping (Spark 4.2, tried) takes the two for one everywhere else."""
    match kind:
        case FloatType() | DoubleType() if is_inside:
            return value + F.lit(0.0).cast(kind)
        case StructType() if is_inside or holds_map(kind):
            fields = (
                _zeros_alike(value.getField(field.name), field.dataType, is_inside=is_inside).alias(field.name)
                for field in kind.fields
            )
            return F.when(value.isNotNull(), F.struct(*fields))
        case ArrayType() if is_inside or holds_map(kind):
            return F.transform(value, lambda item: _zeros_alike(item, kind.elementType, is_inside=is_inside))
        case MapType():
            return F.transform_values(value, lambda _, item: _zeros_alike(item, kind.valueType, is_inside=True))
    return value


# what is different in the end -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NetRows:
    """A line a changed row: its `bucket`, the row `before` and `after` (structs of c0, c1 …; one is null but in
    updates), and `n`, how often it came (< 0: went). `key` are the columns that name a row."""

    lines: DataFrame
    fields: tuple[StructField, ...]
    key: tuple[str, ...]
    tolerance: float

    def of_bucket(self, bucket: str) -> DataFrame:
        """Its lines, with the row as `row`: as it is after the change, of a deleted one before."""
        return self.lines.filter(F.col("bucket") == bucket).withColumn("row", F.coalesce("after", "before"))

    def differs(self, field: StructField) -> Column:
        """Whether a column of an updated row changed."""
        before, after = F.col(f"before.{field.name}"), F.col(f"after.{field.name}")
        if self.tolerance or holds_map(field.dataType):
            return ~_near(field.dataType, before, after, self.tolerance)
        return ~before.eqNullSafe(after)


def _near(kind: DataType, before: Column, after: Column, tolerance: float) -> Column:
    """Whether values are equal, or are but for floats in them that are within the tolerance. Maps have no order, but
    grouping gave each one order of entries."""
    match kind:
        case FloatType() | DoubleType():
            near = F.abs(before.cast("double") - after.cast("double")) <= tolerance
            return before.eqNullSafe(after) | F.coalesce(near, F.lit(False))
        case StructType():
            parts = (_near(f.dataType, before.getField(f.name), after.getField(f.name), tolerance) for f in kind)
            near = reduce(lambda a, b: a & b, parts, before.isNotNull() & after.isNotNull())
        case ArrayType():
            of_item = kind.elementType
            pairs = F.zip_with(before, after, lambda x, y: _near(of_item, x, y, tolerance))
            near = (F.size(before) == F.size(after)) & F.forall(pairs, lambda is_near: is_near)
        case MapType():
            sides = [(part(before), part(after)) for part in (F.map_keys, F.map_values)]
            kinds = (ArrayType(kind.keyType), ArrayType(kind.valueType))
            near = reduce(
                lambda a, b: a & b, (_near(k, *side, tolerance) for k, side in zip(kinds, sides, strict=True))
            )
        case _:
            return before.eqNullSafe(after)
    return (before.isNull() & after.isNull()) | F.coalesce(near, F.lit(False))


def net_rows(signed: DataFrame, key: Sequence[int], tolerance: float, satisfies: Column | None = None) -> NetRows:
    """Lazy. Only rows that satisfy the condition stay, with a key the other rows of their keys too."""
    fields = fields_of(signed)
    row, came = F.struct(*(field.name for field in fields)), F.col("n") > 0
    lines = (
        signed.groupBy(*(field.name for field in fields)).agg(F.sum(SIGN).alias("n")).filter("n <> 0")
        .withColumn("wanted", F.lit(True) if satisfies is None else satisfies)
        .withColumns({"before": F.when(~came, row), "after": F.when(came, row)})
    )  # fmt: skip
    names = tuple(f"c{i}" for i in key)
    lines = _by_key(lines, names) if key else lines.withColumn("bucket", F.when(came, "insert").otherwise("delete"))
    rows = NetRows(lines.filter("wanted").select("bucket", "before", "after", "n"), fields, names, tolerance)
    if key and tolerance:
        any_differs = reduce(lambda a, b: a | b, (rows.differs(field) for field in fields))
        rows = replace(rows, lines=rows.lines.filter((F.col("bucket") != "update") | any_differs))
    return rows


def _by_key(lines: DataFrame, key: Sequence[str]) -> DataFrame:
    """A key names a row where no side has it twice: its two rows become one line. Those of other keys are set apart."""
    of_key, n = Window.partitionBy(*key), F.col("n")
    added, removed = (F.sum(F.greatest(side, F.lit(0))).over(of_key) for side in (n, -n))
    is_null = reduce(lambda a, b: a | b, (F.col(name).isNull() for name in key))
    bucket = (
        F.when(is_null, "null")
        .when((added == 1) & (removed == 1), "update")
        .when((added == 1) & (removed == 0), "insert")
        .when((added == 0) & (removed == 1), "delete")
        .otherwise("duplicate")
    )
    is_update = F.col("bucket") == "update"
    went = F.when(is_update, F.first("before", ignorenulls=True).over(of_key)).otherwise(F.col("before"))
    lines = lines.withColumns({"bucket": bucket, "wanted": F.bool_or("wanted").over(of_key)})
    return lines.withColumn("before", went).filter(~is_update | (n > 0))


def count(rows: NetRows) -> tuple[dict[str, RowBucket], dict[int, int]]:
    """Sizes of the buckets, and per number of a column the updates that touch it."""
    is_update = F.col("bucket") == "update"
    sides = (
        F.sum(F.when(F.col(side).isNotNull(), F.abs("n")).otherwise(0)).alias(name)
        for name, side in (("added", "after"), ("removed", "before"))
    )
    fields = rows.fields if rows.key else ()
    cells = (F.count_if(is_update & rows.differs(field)).alias(field.name) for field in fields)
    sums = rows.lines.groupBy("bucket").agg(F.count(F.lit(1)).alias("lines"), *sides, *cells).collect()
    buckets = {row["bucket"]: RowBucket(row["lines"], row["lines"], row["added"], row["removed"]) for row in sums}
    if "duplicate" in buckets:
        keys = rows.of_bucket("duplicate").select(*(f"row.{name}" for name in rows.key)).distinct().count()
        buckets["duplicate"] = replace(buckets["duplicate"], keys=keys)
    touched = next((row for row in sums if row["bucket"] == "update"), None)
    return buckets, {i: touched[field.name] for i, field in enumerate(fields) if touched and touched[field.name]}


def kept_lines(rows: NetRows, buckets: Mapping[str, RowBucket], limit: int, most: int) -> list[DataFrame]:
    """All changed rows as lines of the result where they are at most `most`, else the first `limit` of them; each
    bucket in the order of the key, then of enough of the other columns to make it stable."""
    sizes = bucket_sizes(buckets)
    shares = sizes if sum(sizes.values()) <= most else share_out(limit, sizes)
    rest = [field.name for field in rows.fields if field.name not in rows.key][:ORDER_COLUMNS]
    ordered = {field.name for field in rows.fields if not holds_map(field.dataType)}
    order = [F.asc_nulls_last(f"row.{name}") for name in (*rows.key, *rest) if name in ordered]
    kept = {bucket: rows.of_bucket(bucket).orderBy(*order, "n") for bucket, share in shares.items() if share}
    cut = {bucket: kept[bucket].limit(shares[bucket]) for bucket in kept if shares[bucket] < sizes[bucket]}
    return [_lines(lines, bucket, F.abs("n")) for bucket, lines in (kept | cut).items()]


def common_lines(rows: NetRows, number: int) -> DataFrame:
    """The changes of one column that most updates share, each as one of these updates."""
    field = rows.fields[number]
    cells = [F.col(f"{side}.{field.name}") for side in ("before", "after")]
    examples = (F.first(side).alias(side) for side in ("before", "after"))
    changes = rows.of_bucket("update").filter(rows.differs(field)).groupBy(*cells)
    shared = changes.agg(F.count(F.lit(1)).alias("n"), *examples).filter("n > 1")
    order = () if holds_map(field.dataType) else (cell.asc_nulls_last() for cell in cells)
    top = shared.orderBy(F.desc("n"), *order).limit(COMMON_CHANGES)
    return _lines(top, COMMON, F.col("n"), number * COMMON_CHANGES, str(number))


def _lines(rows: DataFrame, what: str, n: Column, first: int = 0, detail: str | None = None) -> DataFrame:
    number = F.lit(first) + F.monotonically_increasing_id()
    return rows.select(
        F.lit(what).alias("what"), number.alias("number"), n.alias("n"),
        F.lit(detail).cast("string").alias("detail"), "before", "after",
    )  # fmt: skip


# what comparisons and queries share -----------------------------------------------------------------------------------


_BYTES_A_TASK, _MOST_TASKS = 64 * 1024**2, 2_000


def tune(session: SparkSession, size_bytes: int, compiled_bytes: int) -> None:
    """Streams on a local master are tuned for a hundred rows; a job reads what it reads."""
    if size_bytes < compiled_bytes:
        return
    tasks = min(_MOST_TASKS, size_bytes // _BYTES_A_TASK)
    for key, value in {
        "spark.sql.shuffle.partitions": str(max(tasks, int(session.conf.get("spark.sql.shuffle.partitions") or 2))),
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "FALLBACK",
        "spark.sql.adaptive.enabled": "true",
    }.items():
        session.conf.set(key, value)


def write_result(session: SparkSession, rows: DataFrame, uri: str) -> None:
    """Another version of the result: one small table."""
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")  # INT96 is read as of 1677 to 2262
    writer = rows.coalesce(1).write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    # Nested fields may be called what Delta stores under another name only.
    writer.option("delta.columnMapping.mode", "name").save(spark_uri(uri))
