"""A table's change feed as the state of each key: shared by the sinks that export it.

Rule: what a key is after a version counts. A key that an update took away is deleted, wherever its row has gone.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pipelines.jvm.failures import SpecError
from pipelines.sinks.upsert import check_columns
from pipelines.specs.tables import quoted

CHANGE, VERSION = "_change_type", "_commit_version"
FEED = (CHANGE, VERSION, "_commit_timestamp")
DELETED = "_weir_deleted"
_STAYS = "_weir_stays"


def check_feed(sink: str, rows: StructType, columns: Sequence[str]) -> None:
    """Raises `SpecError` for rows of no change feed, or without these columns."""
    if missing := [name for name in (CHANGE, VERSION) if name not in rows.names]:
        raise SpecError(
            f"{sink}: the function returns no {', '.join(missing)}",
            hint="read table(…).changes(), and keep these columns",
        )
    check_columns(sink, rows, columns)


def own_columns(names: Sequence[str]) -> list[str]:
    """Those of the table itself."""
    return [name for name in names if name not in FEED]


def by_version(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Each key as it is after each version that changed it, with `_weir_deleted`.

    Rows from before an update are left out, unless no row has their key afterwards: then the key is deleted.
    """
    alive = F.col(CHANGE).isin("insert", "update_postimage")
    stays = F.max(alive).over(Window.partitionBy(*map(quoted, keys), VERSION))
    judged = changes.withColumn(_STAYS, stays).withColumn(DELETED, ~alive)
    return judged.where(f"NOT ({DELETED} AND {_STAYS})").drop(_STAYS)
