"""Whether two tables have the same rows, whatever their order.

Rule: rows are compared as texts that hold every value exactly, so that a null counts and a type is never guessed.
"""

from collections.abc import Iterable
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backend.lake.model import Snapshot
from backend.maintenance.model import Proof
from pipelines.jobs.signed_rows import opened
from pipelines.jvm.delta import make_active
from pipelines.specs.tables import quoted

_EXACT = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


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
    for before, after in ((opened(session, old), opened(session, new)) for old, new in commits):
        went.append(before.rows(before.files_not_in(after), as_of=before))
        came.append(after.rows(after.files_not_in(before), as_of=after))
    what = "each row of the old files is in the new ones"
    return rows_proof(what, reduce(DataFrame.unionAll, came), reduce(DataFrame.unionAll, went))


def _columns(rows: DataFrame) -> list[str]:
    return [quoted(name) for name in rows.columns]


def _counted(rows: DataFrame) -> tuple[int, int]:
    """How many, and the sum of their hashes: the same however they are split and sorted."""
    text = F.to_json(F.struct(*(F.col(name) for name in _columns(rows))), _EXACT)
    hashed = F.sum(F.xxhash64(text).cast("decimal(20,0)"))
    count, digest = rows.select(F.count(F.lit(1)), F.coalesce(hashed, F.lit(0))).collect()[0]
    return int(count), int(digest)
