"""Rows of a table changed, replaced or deleted by Spark, once it is known to read the SQL as DuckDB does, row by row.

Rule: one commit. What came of it is told by the commit's own metrics; rows that came from elsewhere are compared again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backend.errors import QueryError
from backend.format import things
from backend.lake.model import OperationMetrics
from backend.maintenance.model import ActPreview, ActResult, Proof, Repair
from pipelines.jobs.condition import satisfies, value_of
from pipelines.jobs.same_rows import rows_proof
from pipelines.jvm.failures import describe
from pipelines.jvm.hadoop import spark_uri
from pipelines.specs.tables import quoted

_PLAIN = "write it in words that mean the same to DuckDB and Spark, such as plain comparisons"


@dataclass(frozen=True, slots=True)
class Repaired:
    """The version of the repair's commit and its metrics; `planned`: None where its host died behind it."""

    version: int
    metrics: OperationMetrics
    planned: ActPreview | None


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


def repaired(session: SparkSession, uri: str, asked: Repair, done: Repaired) -> ActResult:
    """What the log says of it, and for rows from elsewhere Spark."""
    metrics = done.metrics
    if not asked.takes_rows:
        changed = metrics.rows_updated if asked.values else metrics.rows_deleted
        effect = f"{things(changed, 'row')} {'changed' if asked.values else 'deleted'}"
        return ActResult(effect, done.version, {"rows": changed}, (_as_previewed(done.planned, {"rows": changed}),))
    written, copied = metrics.rows_inserted, metrics.rows_copied or 0
    figures = {"rows": metrics.rows_deleted, "rows_in": None if written is None else written - copied}
    where = f"({asked.where})"
    now, source = table_rows(session, uri, done.version).where(where), _source(session, uri, asked).where(where)
    proofs = (_as_previewed(done.planned, figures), rows_proof("the rows are those of the source", now, source))
    effect = f"{things(figures['rows'], 'row')} replaced by {things(figures['rows_in'], 'row')}"
    return ActResult(effect, done.version, figures, proofs)


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
