"""A condition on rows for Spark: DuckDB in the Python workers says which rows satisfy it.

Rule: Spark passes values on and never reads the condition. A row of which it makes an error ends the comparison; no
other method would find another answer.
"""

import re
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from backend.diff.condition import check_row_condition, require_fit, satisfied
from backend.duckdb_session import engine_version
from backend.errors import JobError, LakehouseError, QueryError
from backend.query.expression import Expression

_FAILED = re.compile(r"^backend\.errors\.\w+: (?P<message>.*)\n(?P<hint>.*)$", re.MULTILINE)
_NOT_INSTALLED = re.compile(r"^(?:ModuleNotFoundError|ImportError): (?P<message>.*)$", re.MULTILINE)
_INSTALL = "install this version of Weir in the Python of Spark's executors, or leave the condition out"


def satisfies(where: str, columns: Sequence[str], schema: StructType) -> Column:
    """Whether a row with these columns as c0, c1 … satisfies the condition.

    Raises `QueryError` where it may not run, does not go with the columns' types, or is neither true nor false.
    """
    condition = check_row_condition(where, columns)
    named = {name: schema[f"c{columns.index(name)}"] for name in condition.columns}
    kinds = StructType([StructField(name, field.dataType) for name, field in named.items()])
    require_fit(condition, to_arrow_schema(kinds, timezone="UTC"))
    row = F.struct(*(F.col(field.name).alias(name) for name, field in named.items()))
    asked = arrow_udf(_in_worker(condition), "boolean")  # type: ignore[call-overload]  # of its hints' kind
    # Else Spark may ask it of rows that cancel: a condition on what rows are grouped by goes below the grouping.
    answer: Column = asked.asNondeterministic()(row)
    return answer


def why_failed(exc: BaseException) -> LakehouseError | None:
    """What a worker raised about the condition; None for a failure of another kind."""
    text = str(exc)
    if found := _FAILED.search(text):
        return QueryError(found["message"], hint=found["hint"])
    if found := _NOT_INSTALLED.search(text):
        return JobError(f"Spark's executors cannot check a condition on rows: {found['message']}", hint=_INSTALL)
    return None


def _in_worker(condition: Expression) -> Callable[[Iterator[pa.Array]], Iterator[pa.Array]]:
    version = engine_version()

    def asked(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        try:
            if engine_version() != version:
                raise ImportError(f"DuckDB is {engine_version()} there and {version} here")
            yield from satisfied(condition, batches)
        except LakehouseError as exc:
            exc.add_note(exc.hint)  # a traceback's text is all that leaves a worker
            raise

    return asked
