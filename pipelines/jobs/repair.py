"""Rows of a table changed, replaced or deleted by Spark, once it is known to read the SQL as DuckDB does, row by row.

Rule: one commit. What came of it is told by the commit's own metrics; rows that came from elsewhere are compared again,
whatever their order, as texts that hold every value exactly: a null counts, and a type is never guessed.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from backend.errors import QueryError
from backend.format import things
from backend.lake.model import OperationMetrics, Snapshot
from backend.maintenance.model import ActPreview, ActResult, Proof, Repair
from pipelines.jobs.condition import satisfies, value_of
from pipelines.jvm.delta import make_active, open_state
from pipelines.jvm.failures import describe
from pipelines.jvm.hadoop import spark_uri
from pipelines.specs.tables import quoted

_EXACT = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_PLAIN = "write it in words that mean the same to DuckDB and Spark, such as plain comparisons"


def repair_table(session: SparkSession, uri: str, asked: Repair) -> None:
    """By Spark's own DELETE, UPDATE or overwrite of the rows that satisfy the condition."""
    for key in ("spark.sql.ansi.enabled", "spark.sql.ansi.doubleQuotedIdentifiers"):
        session.conf.set(key, "true")
    rows, where = table_rows(session, uri), f"({asked.where})"
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


def repaired(
    session: SparkSession, uri: str, asked: Repair, version: int, metrics: OperationMetrics, planned: ActPreview | None
) -> ActResult:
    """What the log says of the commit, and for rows from elsewhere Spark. `planned`: None where the act's host died
    behind it."""
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
    chosen = F.coalesce(F.expr(f"({asked.where})"), F.lit(False)).alias("spark")
    given = [F.expr(f"({text})").cast(kinds[name]).alias(f"v{n}") for n, (name, text) in _numbered(asked.values)]
    as_spark = rows.select(*(F.col(quoted(name)).alias(c) for name, c in place.items()), chosen, *given)
    own = as_spark.select(*place.values()).schema
    differs = ~satisfies(asked.where, names, own).eqNullSafe(F.col("spark"))
    for number, (name, text) in _numbered(asked.values):
        differs = differs | (F.col("spark") & ~value_of(text, name, names, own).eqNullSafe(F.col(f"v{number}")))
    if odd := as_spark.where(differs).count():
        raise QueryError(f"Spark reads this otherwise than the preview did, for {things(odd, 'row')}", hint=_PLAIN)


def _numbered(values: Mapping[str, str]) -> list[tuple[int, tuple[str, str]]]:
    return list(enumerate(values.items()))


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
