"""The rows of a change feed as signed rows, and what each commit did: Delta's feed, or Spark's CHANGES clause.

Rule: an insert and a delete of one row id in one commit are its update; what a commit did is counted by Spark and
never collected row by row.
"""

from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backend.changes.prepare import PreparedDiff
from backend.errors import DiffError
from pipelines.jobs.states import ID, SIGN, named, open_state
from pipelines.jvm.hadoop import spark_uri
from pipelines.specs.tables import quoted

CHANGE_TYPE, COMMIT_VERSION = "_change_type", "_commit_version"
_CAME = ("insert", "update_postimage")


def change_feed(session: SparkSession, prepared: PreparedDiff) -> DataFrame:
    """Delta's change feed over the commits between the two versions."""
    low, high, uri = _range(session, prepared)
    reader = session.read.format("delta").option("readChangeFeed", "true")
    rows = reader.option("startingVersion", low + 1).option("endingVersion", high).load(uri)
    return _signed(rows, prepared, with_ids=False)


def spark_changes(session: SparkSession, prepared: PreparedDiff) -> DataFrame:
    """Spark's CHANGES clause over the same commits, which row tracking answers."""
    low, high, uri = _range(session, prepared)
    _require_one_protocol(session, prepared, low + 1, high)
    session.conf.set("spark.databricks.delta.changelogV2.enabled", "true")
    rows = session.sql(f"SELECT * FROM delta.{quoted(uri)} CHANGES FROM VERSION {low + 1} TO VERSION {high}")
    return _signed(rows, prepared, with_ids=True)


def gross_counts(signed: DataFrame) -> tuple[tuple[int, str, int], ...]:
    """(commit version, change type, rows), by the types of Delta's change feed."""
    rows = signed
    if ID in signed.columns:
        by_row = signed.groupBy(COMMIT_VERSION, ID).agg(
            F.sum((F.col(CHANGE_TYPE) == "insert").cast("long")).alias("came"),
            F.sum((F.col(CHANGE_TYPE) == "delete").cast("long")).alias("went"),
        )
        pairs = F.least("came", "went")
        kinds = (
            ("insert", F.col("came") - pairs), ("delete", F.col("went") - pairs),
            ("update_preimage", pairs), ("update_postimage", pairs),
        )  # fmt: skip
        each = F.array(*(F.struct(F.lit(kind).alias(CHANGE_TYPE), rows.alias("rows")) for kind, rows in kinds))
        rows = by_row.select(COMMIT_VERSION, F.inline(each)).filter("rows > 0")
    else:
        rows = signed.select(COMMIT_VERSION, CHANGE_TYPE, F.lit(1).cast("long").alias("rows"))
    found = rows.groupBy(COMMIT_VERSION, CHANGE_TYPE).agg(F.sum("rows").alias("rows")).collect()
    return tuple(sorted((int(row[0]), str(row[1]), int(row[2])) for row in found))


def _range(session: SparkSession, prepared: PreparedDiff) -> tuple[int, int, str]:
    given = prepared.input
    for side in (given.first, given.second):
        open_state(session, side)
    return given.low, given.high, spark_uri(given.second.ref.uri)


def _require_one_protocol(session: SparkSession, prepared: PreparedDiff, first: int, last: int) -> None:
    """Delta 4.4 reads the whole range with the protocol of its first commit: where deletion vectors were turned on
    later it leaves rows out and makes others up, without a word (tried)."""
    before, after = (
        open_state(session, replace(prepared.input.second, version=version)).snapshot.protocol()
        for version in (first, last)
    )
    if not before.equals(after):
        raise DiffError(f"the table's protocol changed between v{first} and v{last}, which Spark's CHANGES misreads")


def _signed(rows: DataFrame, prepared: PreparedDiff, *, with_ids: bool) -> DataFrame:
    plus = -1 if prepared.input.is_reverse else 1
    ids = [F.col("_metadata.row_id").alias(ID)] if with_ids else []
    came = F.col(CHANGE_TYPE).isin(*_CAME)
    return rows.select(
        *(named(name).alias(f"c{i}") for i, name in enumerate(prepared.columns)),
        *ids,
        F.when(came, plus).otherwise(-plus).cast("long").alias(SIGN),
        CHANGE_TYPE,
        COMMIT_VERSION,
    )
