"""What can go wrong with a query, in our words, and the way from a Spark error to its class and first line.

Rule: the error named is the innermost one: "STREAM_FAILED" tells a person nothing.
"""

from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from backend.errors import LakehouseError, StreamError

_WRAPPERS = ("STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR", "FAILED_EXECUTE_UDF", "TASK_WRITE_FAILED")
_LONGEST_MESSAGE = 2_000


class StreamStartError(StreamError):
    """A query did not start. `error_class` is Spark's error condition or the exception's name."""

    def __init__(self, message: str, *, error_class: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.error_class = error_class


class SparkLostError(LakehouseError):
    """The JVM does not answer any more: nothing runs in this process."""


def describe(exc: BaseException) -> tuple[str, str]:
    """Error class and first line of what a call into Spark, or a user's function, raised."""
    if isinstance(exc, Py4JJavaError):
        return describe_java(exc.java_exception)
    if isinstance(exc, PySparkException):
        return exc.getCondition() or type(exc).__name__, _first_line(str(exc))
    return type(exc).__name__, _first_line(str(exc))


def describe_java(throwable: Any) -> tuple[str, str]:
    """Error class and first line of a Java exception's innermost telling cause."""
    chain = [throwable]
    while (cause := chain[-1].getCause()) is not None and len(chain) < 20:
        chain.append(cause)
    for link in reversed(chain):
        condition = _condition(link)
        if condition and condition not in _WRAPPERS:
            return condition, _first_line(link.getMessage())
    return _python_error(chain[-1]) or (chain[-1].getClass().getSimpleName(), _first_line(chain[-1].getMessage()))


def _condition(throwable: Any) -> str | None:
    try:
        return str(throwable.getCondition() or "") or None
    except Py4JError:  # not a SparkThrowable: it has no such method
        return None


def _python_error(throwable: Any) -> tuple[str, str] | None:
    """The last line of a Python traceback inside a Java message: `ValueError: no such colour`."""
    lines = [line.strip() for line in str(throwable.getMessage() or "").splitlines() if line.strip()]
    if not any(line.startswith("Traceback (most recent call last)") for line in lines):
        return None
    name, colon, message = lines[-1].partition(": ")
    return (name.rpartition(".")[2], message) if colon and " " not in name else None


def _first_line(text: str | None) -> str:
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[0][:_LONGEST_MESSAGE] if lines else "no message"
