"""A condition on rows for Spark, or a value of each: DuckDB in the Python workers answers.

Rule: Spark passes values on and never reads the SQL. A row of which it makes an error ends the job; no other method
would find another answer.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from backend.errors import JobError, LakehouseError, QueryError
from backend.sql.expression import check_row_condition, check_value
from backend.sql.filters import computed, fields_of, require_fit, require_value, satisfied
from backend.sql.session import engine_version

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
