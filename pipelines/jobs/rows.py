"""SQL over rows on Spark: a condition, or a value of each, that DuckDB in the Python workers answers; and rows of a
table changed, replaced or deleted by Spark, once it is known to read the SQL as DuckDB does, row by row.

Rule: for a condition Spark passes values on and never reads the SQL; a row of which it makes an error ends the job, as
no other method would find another answer. A repair is one commit. What came of it is told by the commit's own metrics;
rows that came from elsewhere are compared again, whatever their order, as texts that hold every value exactly: a null
counts, and a type is never guessed.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from backend.errors import JobError, LakehouseError, QueryError
from backend.format import things
from backend.lake.model import OperationMetrics, Snapshot
from backend.maintenance.model import ActPreview, ActResult, Proof, Repair
from backend.sql.expression import check_row_condition, check_value
from backend.sql.filters import computed, fields_of, require_fit, require_value, satisfied
from backend.sql.session import engine_version
from pipelines.jvm.delta import make_active, open_state
from pipelines.jvm.failures import describe
from pipelines.jvm.hadoop import spark_uri
from pipelines.specs.tables import quoted

_FAILED = re.compile(r"^backend\.errors\.\w+: (?P<message>.*)\n(?P<hint>.*)$", re.MULTILINE)
_NOT_INSTALLED = re.compile(r"^(?:ModuleNotFoundError|ImportError): (?P<message>.*)$", re.MULTILINE)
_INSTALL = "install this version of Weir in the Python of Spark's executors, or leave the condition out"


def satisfies(where: str, columns: Sequence[str], schema: StructType) -> Column:
    """Whether a row with these columns as c0, c1 … satisfies the condition.

    Raises `QueryError` where it may not run, does not go with the columns' types, or is neither true nor false.
    """
    condition = check_row_condition(where, columns)
    kinds = _kinds(condition.columns, columns, schema)
    require_fit(condition, to_arrow_schema(kinds, timezone="UTC"))
    asked = arrow_udf(_in_worker(partial(satisfied, condition)), "boolean")  # type: ignore[call-overload]  # its hints
    # Else Spark may ask it of rows that cancel: a condition on what rows are grouped by goes below the grouping.
    answer: Column = asked.asNondeterministic()(_row(condition.columns, columns))
    return answer


def value_of(text: str, target: str, columns: Sequence[str], schema: StructType) -> Column:
    """SQL over a row with these columns as c0, c1 …, as a value of the column `target`.

    Raises `QueryError` where it may not run, or does not go with the columns' types.
    """
    value = check_value(text, columns)
    fields = fields_of(value, target)
    require_value(value, target, to_arrow_schema(_kinds(fields, columns, schema), timezone="UTC"))
    kind = schema[f"c{columns.index(target)}"].dataType
    asked = arrow_udf(_in_worker(partial(computed, value, target)), kind)  # type: ignore[call-overload]  # its hints
    answer: Column = asked.asNondeterministic()(_row(fields, columns))
    return answer


def _kinds(named: Sequence[str], columns: Sequence[str], schema: StructType) -> StructType:
    return StructType([StructField(name, schema[f"c{columns.index(name)}"].dataType) for name in named])


def _row(named: Sequence[str], columns: Sequence[str]) -> Column:
    return F.struct(*(F.col(f"c{columns.index(name)}").alias(name) for name in named))


def why_failed(exc: BaseException) -> LakehouseError | None:
    """What a worker raised about the condition; None for a failure of another kind."""
    text = str(exc)
    if failure := _FAILED.search(text):
        return QueryError(failure["message"], hint=failure["hint"])
    if missing := _NOT_INSTALLED.search(text):
        return JobError(f"Spark's executors cannot check a condition on rows: {missing['message']}", hint=_INSTALL)
    return None


def _in_worker(
    answer: Callable[[Iterator[pa.Array]], Iterator[pa.Array]],
) -> Callable[[Iterator[pa.Array]], Iterator[pa.Array]]:
    version = engine_version()

    def asked(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        try:
            if engine_version() != version:
                raise ImportError(f"DuckDB is {engine_version()} there and {version} here")
            yield from answer(batches)
        except LakehouseError as exc:
            exc.add_note(exc.hint)  # a traceback's text is all that leaves a worker
            raise

    return asked


# a repair -------------------------------------------------------------------------------------------------------------


_EXACT = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_PLAIN = "write it in words that mean the same to DuckDB and Spark, such as plain comparisons"


def repair_table(session: SparkSession, uri: str, asked: Repair, ends: Sequence[Snapshot] = ()) -> None:
    """By Spark's own DELETE, UPDATE, MERGE or overwrite of the rows that satisfy the condition. `ends`: the versions
    before and at the commit whose rows alone are repaired."""
    for key in ("spark.sql.ansi.enabled", "spark.sql.ansi.doubleQuotedIdentifiers"):
        session.conf.set(key, "true")
    rows, where = table_rows(session, uri), f"({asked.where})"
    if ends:
        _merge_of_commit(session, uri, asked, rows, ends)
        return
    require_one_reading(asked, rows)
    if asked.takes_rows:
        source = _source(session, uri, asked)
        require_one_reading(asked, source)
        writer = source.where(where).select(*map(quoted, rows.columns)).write.format("delta").mode("overwrite")
        writer.option("replaceWhere", where).save(spark_uri(uri))
        return
    # A condition given to DeltaTable is parsed by whichever session is active, where "day" may be a text.
    name = f"delta.{quoted(spark_uri(uri))}"
    values = ", ".join(f"{quoted(column)} = ({text})" for column, text in asked.values.items())
    session.sql(f"UPDATE {name} SET {values} WHERE {where}" if values else f"DELETE FROM {name} WHERE {where}")


def _merge_of_commit(session: SparkSession, uri: str, asked: Repair, rows: DataFrame, ends: Sequence[Snapshot]) -> None:
    """Each content of a row is counted before, at and since the commit, as the preview counts it: those of which it
    wrote more are hit; where they go, as many come as were there without it, or as it took away."""
    make_active(session)
    before, after = (open_state(session, snapshot) for snapshot in ends)
    names, sides = rows.columns, [before.rows(before.files_not_in(after), as_of=before)]
    sides += [after.rows(after.files_not_in(before), as_of=after), rows]
    require_one_reading(replace(asked, values={}), sides[0])
    require_one_reading(asked, sides[1])
    cells = [F.col(quoted(name)).alias(f"c{number}") for number, name in enumerate(names)]
    chosen = [
        side.where(f"({asked.where})" if asked.where.strip() else "true").select(*cells, F.lit(number).alias("side"))
        for number, side in enumerate(sides)
    ]
    places = [f"c{number}" for number in range(len(names))]
    counts = [F.count(F.when(F.col("side") == number, 1)).alias(f"n{number}") for number in range(3)]
    counted = reduce(DataFrame.unionAll, chosen).groupBy(*places).agg(*counts)
    source = counted.where("n1 > n0 AND n2 > 0").select(*places, F.lit(True).alias("hit"))
    if not asked.values:
        coming = F.expr("IF(n1 > n0, n2 - least(n2, n1 - n0), greatest(0, least(n0 - n1, n0 - n2)))").cast("int")
        copies = F.explode(F.array_repeat(F.lit(False), coming)).alias("hit")
        source = source.unionAll(counted.select(*places, copies))
    source.createOrReplaceTempView(view := "weir_of_commit")
    same = " AND ".join(f"t.{quoted(name)} <=> s.{place}" for name, place in zip(names, places, strict=True))
    values = ", ".join(f"{quoted(column)} = ({text})" for column, text in asked.values.items())
    does = f"WHEN MATCHED THEN UPDATE SET {values}" if values else (
        f"WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND NOT s.hit THEN INSERT ({', '.join(map(quoted, names))}) "
        f"VALUES ({', '.join(f's.{place}' for place in places)})"
    )  # fmt: skip
    session.sql(f"MERGE INTO delta.{quoted(spark_uri(uri))} t USING {view} s ON s.hit AND {same} {does}")


def repaired(
    session: SparkSession, uri: str, asked: Repair, version: int, metrics: OperationMetrics, planned: ActPreview | None
) -> ActResult:
    """What the log says of the commit, and for rows from elsewhere Spark. `planned`: None where the act's host died
    behind it."""
    if asked.of_commit is not None and not asked.values:
        figures = {"rows": metrics.rows_deleted, "rows_in": metrics.rows_inserted}
        effect = f"what v{asked.of_commit} did is taken back: {things(figures['rows'], 'row')} went, "
        effect += f"{things(figures['rows_in'], 'row')} came"
        return ActResult(effect, version, figures, (_as_previewed(planned, figures),))
    if not asked.takes_rows:
        changed = metrics.rows_updated if asked.values else metrics.rows_deleted
        effect = f"{things(changed, 'row')} {'changed' if asked.values else 'deleted'}"
        return ActResult(effect, version, {"rows": changed}, (_as_previewed(planned, {"rows": changed}),))
    written, copied = metrics.rows_inserted, metrics.rows_copied or 0
    figures = {"rows": metrics.rows_deleted, "rows_in": None if written is None else written - copied}
    where = f"({asked.where})"
    now, source = table_rows(session, uri, version).where(where), _source(session, uri, asked).where(where)
    proofs = (_as_previewed(planned, figures), rows_proof("the rows are those of the source", now, source))
    effect = f"{things(figures['rows'], 'row')} replaced by {things(figures['rows_in'], 'row')}"
    return ActResult(effect, version, figures, proofs)


def _as_previewed(planned: ActPreview | None, done: Mapping[str, int | None]) -> Proof:
    expected = {name: planned.figures[name] if planned else None for name in done}
    holds = None if None in (*done.values(), *expected.values()) else done == expected
    ours, theirs = (" and ".join(map(str, side.values())) for side in (done, expected))
    return Proof("exactly the rows of the preview", holds, f"{ours} by the commit, {theirs} by the preview")


def table_rows(session: SparkSession, uri: str, version: int | None = None) -> DataFrame:
    """Of a version; None: the latest."""
    reader = session.read.format("delta")
    return (reader if version is None else reader.option("versionAsOf", version)).load(spark_uri(uri))


def _source(session: SparkSession, uri: str, asked: Repair) -> DataFrame:
    return table_rows(session, asked.from_table or uri, asked.from_version)


# one reading -----------------------------------------------------------------------------------------------------


def require_one_reading(asked: Repair, rows: DataFrame) -> None:
    """Raises `QueryError` where Spark would choose other rows, or give them other values."""
    try:
        _compare_readings(asked, rows)
    except AnalysisException as exc:
        raise QueryError(f"Spark cannot read this: {describe(exc)[1]}", hint=_PLAIN) from exc


def _compare_readings(asked: Repair, rows: DataFrame) -> None:
    names, kinds = rows.columns, {field.name: field.dataType for field in rows.schema}
    place = {name: f"c{number}" for number, name in enumerate(names)}
    has_where = bool(asked.where.strip())  # else all rows of a commit
    chosen = F.coalesce(F.expr(f"({asked.where})" if has_where else "true"), F.lit(False)).alias("spark")
    values = list(enumerate(asked.values.items()))
    given = [F.expr(f"({text})").cast(kinds[name]).alias(f"v{n}") for n, (name, text) in values]
    as_spark = rows.select(*(F.col(quoted(name)).alias(c) for name, c in place.items()), chosen, *given)
    own = as_spark.select(*place.values()).schema
    differs = ~satisfies(asked.where, names, own).eqNullSafe(F.col("spark")) if has_where else F.lit(False)
    for number, (name, text) in values:
        differs = differs | (F.col("spark") & ~value_of(text, name, names, own).eqNullSafe(F.col(f"v{number}")))
    if odd := as_spark.where(differs).count():
        raise QueryError(f"Spark reads this otherwise than the preview did, for {things(odd, 'row')}", hint=_PLAIN)


# the same rows ---------------------------------------------------------------------------------------------------


def rows_proof(what: str, rows: DataFrame, source: DataFrame) -> Proof:
    """Of tables with the same columns."""
    (count, digest), (expected, as_source) = (_counted(side.select(*_columns(source))) for side in (rows, source))
    told = f"{count:,} rows against {expected:,}"
    if count == expected:
        told += ", each the same" if digest == as_source else ", but not the same ones"
    return Proof(what, (count, digest) == (expected, as_source), told)


def rewritten_proof(session: SparkSession, commits: Iterable[tuple[Snapshot, Snapshot]]) -> Proof:
    """Of the files that commits took away against those that came in their place, as their states before and after
    have them: the rows that a deletion vector marks are in neither."""
    make_active(session)
    went, came = list[DataFrame](), list[DataFrame]()
    for before, after in ((open_state(session, old), open_state(session, new)) for old, new in commits):
        went.append(before.rows(before.files_not_in(after), as_of=before))
        came.append(after.rows(after.files_not_in(before), as_of=after))
    what = "each row of the old files is in the new ones"
    return rows_proof(what, reduce(DataFrame.unionAll, came), reduce(DataFrame.unionAll, went))


def _columns(rows: DataFrame) -> list[str]:
    return [quoted(name) for name in rows.columns]


def _counted(rows: DataFrame) -> tuple[int, int]:
    """How many, and the sum of their hashes: the same however they are split and sorted."""
    text = exact_text([F.col(name) for name in _columns(rows)])
    hashed = F.sum(F.xxhash64(text).cast("decimal(20,0)"))
    count, digest = rows.select(F.count(F.lit(1)), F.coalesce(hashed, F.lit(0))).collect()[0]
    return int(count), int(digest)


def exact_text(columns: Sequence[Column]) -> Column:
    """A row as JSON: two texts are equal where all values are, of any type."""
    return F.to_json(F.struct(*columns), _EXACT)
