"""Connections to PostgreSQL, and what its errors mean for a stream.

Rule: every error of psycopg leaves here as an `OnwardError`, in one line with the next step.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from pipelines.jvm.failures import OnwardError
from pipelines.specs.secrets import Secret

_CONNECT_S = 10
_STEPS: tuple[tuple[tuple[type[psycopg.Error], ...], str], ...] = (
    ((errors.InsufficientPrivilege,), "grant SELECT, INSERT, UPDATE and DELETE on it, and on weir_batches beside it"),
    ((errors.CardinalityViolation,), "two rows of the table have the same key: name keys that are unique there"),
    ((errors.UndefinedTable, errors.UndefinedColumn), "the table was changed: restart the stream to see what differs"),
    ((errors.IntegrityError,), "drop or quarantine such rows by an expectation, or change the table's constraint"),
    ((errors.DataError,), "the value does not fit its column: alter the column, or the function"),
    (
        (errors.OperationalError,),
        "look whether the server runs, and at user and password; nothing of the batch is lost",
    ),
)


def connect(url: str, password: Secret | None) -> psycopg.Connection:
    told = password.reveal() if password else None
    return psycopg.connect(url, password=told, connect_timeout=_CONNECT_S, application_name="weir")


@contextmanager
def postgres_errors(where: str) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as exc:
        step = next((step for kinds, step in _STEPS if isinstance(exc, kinds)), "see PostgreSQL's manual")
        raise OnwardError(f"PostgreSQL table {where}: {_said(exc)}", hint=step) from exc


def _said(exc: psycopg.Error) -> str:
    """Its message and detail; of a COPY also the line and column."""
    diagnosis = exc.diag
    parts = [diagnosis.message_primary, diagnosis.message_detail, diagnosis.context]
    return "; ".join(part.splitlines()[0] for part in parts if part) or str(exc).splitlines()[0]
