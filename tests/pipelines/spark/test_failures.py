"""Which error a person is told of, out of a traceback inside a Java message. No JVM."""

from pipelines.jvm.failures import describe, describe_traceback

UDF = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
ZeroDivisionError: division by zero
"""
FOREACH_BATCH = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "clientserver.py", line 642, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
py4j.protocol.Py4JJavaError: An error occurred while calling o1.execute.
: org.apache.spark.sql.delta.DeltaRuntimeException: [DELTA_MERGE_SOURCE_CACHED] The MERGE operation failed
\tat org.apache.spark.sql.delta.DeltaErrorsBase.merge(DeltaErrors.scala:1629)
"""


def test_a_python_error_in_a_worker_is_named_by_its_class() -> None:
    assert describe_traceback(UDF) == ("ZeroDivisionError", "division by zero")


def test_a_spark_error_that_passed_through_python_is_named_by_its_condition() -> None:
    assert describe_traceback(FOREACH_BATCH) == ("DELTA_MERGE_SOURCE_CACHED", "The MERGE operation failed")


def test_text_without_a_traceback_says_nothing() -> None:
    assert describe_traceback("ValueError: just words") is None


def test_an_exception_of_a_users_function() -> None:
    assert describe(KeyError("colour")) == ("KeyError", "'colour'")
    assert describe(ValueError("first\nsecond")) == ("ValueError", "first")
