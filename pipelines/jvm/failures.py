"""Errors of queries, and how a Spark error becomes an error class and one line of text.

Rule: the innermost error is named, since "STREAM_FAILED" tells a person nothing.
"""

import re
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F

from backend.errors import LakehouseError, StreamError
from backend.redaction import without_secrets

_WRAPPERS = (  # conditions that only say that something inside failed
    "STREAM_FAILED",
    "FOREACH_BATCH_USER_FUNCTION_ERROR",
    "FAILED_EXECUTE_UDF",
    "TASK_WRITE_FAILED",
    "PYTHON_EXCEPTION",
)
_RAISED = re.compile(r"^([A-Za-z_][\w.]*): (.*)$", re.MULTILINE)  # a traceback's last line is not indented
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]*_[A-Z0-9_.]+)\] (.*)")
_LONGEST_MESSAGE = 2_000
_CSV_HEADER = "_LEGACY_ERROR_TEMP_3241"  # which file and which columns stand in the lines beneath the first


class StreamStartError(StreamError):
    """A query did not start. `error_class` is Spark's error condition, or else the exception's name."""

    def __init__(self, message: str, *, error_class: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.error_class = error_class


class SparkLostError(LakehouseError):
    """The JVM does not answer any more. Nothing runs in this process then."""


class SpecError(LakehouseError):
    """A stream is declared in a way that cannot work."""

    exit_code = 2


class DeliveryError(LakehouseError):
    """A broker or a database does not take a stream's rows. The message ends with the next step.

    It has to: of an error within a batch, Spark passes on the message alone.
    """

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(f"{message} ({hint})", hint=hint)


def passes_unless(bad: Column, message: Column) -> Column:
    """A condition for `where` that every row meets: at one that is bad it fails the batch, with this message."""
    return F.when(bad, F.raise_error(message).cast("boolean")).otherwise(F.lit(True))


def describe(exc: BaseException) -> tuple[str, str]:
    """Error class and first line of an error that Spark or a user's function raised."""
    if isinstance(exc, Py4JJavaError):
        return describe_java(exc.java_exception)
    condition = exc.getCondition() if isinstance(exc, PySparkException) else None
    return condition or type(exc).__name__, _first_line(str(exc))


def describe_java(throwable: Any) -> tuple[str, str]:
    """Error class and first line of the Python error in the chain, else of the innermost cause with a condition."""
    chain = [throwable]
    while (cause := chain[-1].getCause()) is not None and len(chain) < 20:  # causes may form a circle
        chain.append(cause)
    messages = [str(link.getMessage() or "") for link in reversed(chain)]
    for message in messages:
        if raised := describe_traceback(message):
            return raised
    for link, message in zip(reversed(chain), messages, strict=True):
        try:
            condition = str(link.getCondition() or "")
        except Py4JError:  # not a SparkThrowable: it has no such method
            continue
        if condition and condition not in _WRAPPERS:
            is_spread = condition == _CSV_HEADER
            return condition, _shown(" ".join(message.split())) if is_spread else _first_line(message)
    return chain[-1].getClass().getSimpleName(), _first_line(messages[0])


def describe_traceback(text: str) -> tuple[str, str] | None:
    """Error class and message of the Python traceback that `text` holds; None without one.

    A Spark error that passed through Python is named by its condition, `[LIKE_THIS]`.
    """
    _, traceback, rest = text.partition("Traceback (most recent call last)")
    raised = _RAISED.findall(rest)
    if not traceback or not raised:
        return None
    for condition, message in _CONDITION.findall(rest):
        if condition not in _WRAPPERS:
            return condition, _shown(message)
    name, message = raised[-1]
    return name.rpartition(".")[2], _shown(message)


def _first_line(text: str | None) -> str:
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return _shown(lines[0]) if lines else "no message"


def _shown(message: str) -> str:
    return without_secrets(message)[:_LONGEST_MESSAGE]
