"""A person's query on Spark: its first rows, in their order, as one small table.

Rule: the statement came through both allow-lists of `backend.query`, and sees temporary views of a session of its own
and nothing else: of the columns that it names, at the versions that were planned.
"""

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    CalendarIntervalType,
    DayTimeIntervalType,
    IntegerType,
    NullType,
    VariantType,
    YearMonthIntervalType,
)

from backend.errors import QueryError
from backend.format import bytes_text
from backend.jobs.documents import HostAnswer
from backend.query.answer import PLACE, HostPlan
from backend.query.worker import HELD_BYTES
from pipelines.jobs.diff import nested, tune, write_result
from pipelines.jvm.delta import make_active, open_state
from pipelines.specs.tables import quoted

_CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",  # a number that does not fit is an error, no other number
    "spark.sql.runSQLOnFiles": "false",
}
_NOT_KEPT = (DayTimeIntervalType, YearMonthIntervalType, CalendarIntervalType, VariantType)


def run_query(
    session: SparkSession, planned: HostPlan, result_uri: str, *, most_rows: int, compiled_bytes: int, by: str,
    tell: Callable[[str], None],
) -> HostAnswer:  # fmt: skip
    """Compute and write `most_rows` at most. `tell` gets what goes on now, and raises when the job is to end.

    Raises `QueryError` for rows that cannot be kept, `DiffError` where another table lies in a table's place.
    """
    make_active(session)
    tune(session, planned.plan.size_bytes, compiled_bytes)
    for key, value in _CONF.items():
        session.conf.set(key, value)
    tell("opening the tables")
    for read in planned.plan.reads:
        assert read.snapshot is not None
        rows_of = open_state(session, read.snapshot).table()
        rows_of.select(*(F.col(quoted(name)) for name in read.columns)).createOrReplaceTempView(read.name)
    answer = session.sql(planned.sql)
    columns = tuple(answer.columns)
    tell("computing the rows")
    rows = _numbered(answer).limit(most_rows + 1).toArrow()
    if rows.nbytes > HELD_BYTES:
        what = f"the first {most_rows:,} rows hold more than {bytes_text(HELD_BYTES)}"
        raise QueryError(what, hint="select fewer columns, or shorter values")
    tell("writing the result")
    first = rows.slice(0, most_rows)
    first = first.append_column(PLACE, pa.array(range(first.num_rows), pa.int64()))
    write_result(session, session.createDataFrame(first), result_uri)
    return HostAnswer(columns, first.num_rows, rows.num_rows > most_rows, by)


def _numbered(answer: DataFrame) -> DataFrame:
    """As c0, c1 …: two columns may have one name."""
    for field in answer.schema.fields:
        if any(isinstance(part, _NOT_KEPT) for part in nested(field.dataType)):
            kind = field.dataType.simpleString()
            raise QueryError(f"no table holds the column {field.name} of type {kind}", hint="cast it to another type")
    kinds = [field.dataType for field in answer.schema.fields]
    numbered = answer.toDF(*(f"c{number}" for number in range(len(kinds))))
    untyped = {
        f"c{n}": F.col(f"c{n}").cast(IntegerType()) for n, kind in enumerate(kinds) if isinstance(kind, NullType)
    }
    return numbered.withColumns(untyped) if untyped else numbered
