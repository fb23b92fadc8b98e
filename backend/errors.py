"""Every error that Weir raises on purpose, with the hint that helps and the exit code of the CLI.

Rule: a foreign exception is mapped to one of these where its library enters Weir (`raise … from exc`), never later.
Whatever it quotes of the library's words, no secret comes along: errors go to pages, terminals, logs and the store.
"""

import traceback
from pathlib import PurePath

from backend.redaction import without_secrets


class LakehouseError(Exception):
    """Base of the tree. `message` says what happened, `hint` what to do next."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message, self.hint = without_secrets(message), without_secrets(hint)
        super().__init__(self.message)


def fault(exc: Exception, *, on: str = "") -> LakehouseError:
    """A fault of Weir's own as an error: on what it failed, and where the fault lies."""
    frame = traceback.extract_tb(exc.__traceback__)[-1]
    where = f"{PurePath(frame.filename).name}:{frame.lineno} in {frame.name}"
    what = f"Weir failed{f' on {on}' if on else ''}: {type(exc).__name__}"
    return LakehouseError(what, hint=f"a fault of Weir, please report it: {where}")


class SettingsError(LakehouseError):
    """A setting is missing, misspelled or has a value that cannot work."""

    exit_code = 2


class TableError(LakehouseError):
    """A table cannot be read as asked."""


class TableNotFoundError(TableError):
    """No table of this name or URI under the allowed roots."""

    exit_code = 3


class VersionNotFoundError(TableError):
    """The version does not exist or can no longer be reconstructed from the log."""

    exit_code = 3


class VersionFormatError(TableError):
    """What was given as a version is neither a number, `latest`, an offset nor a time; or a time is none."""

    exit_code = 2


class QueryError(TableError):
    """A filter or another SQL expression is refused, or cannot be computed. `position` is the character it is about,
    from 0."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "", position: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.position = position


class QueryTooLargeError(QueryError):
    """A query would read more than may be read unasked."""

    exit_code = 4


class SavedQueryNotFoundError(QueryError):
    """No query is saved by this name."""

    exit_code = 3


class ExportError(TableError):
    """An export cannot begin: its link is spent, or too many run."""

    exit_code = 4


class TableCorruptError(TableError):
    """The log holds something the Delta protocol does not allow; names the file."""


class ColumnNotFoundError(TableError):
    """The table has no such column, or none that can answer what was asked of it."""

    exit_code = 3


class UnsupportedFeatureError(TableError):
    """The table needs a reader feature that Weir does not have, or is larger than it reads; names which."""


class DataFileMissingError(TableError):
    """A data, change or deletion-vector file named by the log is gone (vacuumed, deleted)."""


class PathRefusedError(TableError):
    """A path lies outside its table and outside every allowed root."""

    exit_code = 4


class RowsRefusedError(TableError):
    """The values of a `table`, or of some of its columns, are restricted, and no grant names it to who asks."""

    exit_code = 4

    def __init__(self, message: str, *, table: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.table = table


class StorageError(LakehouseError):
    """The disk or object store did not answer as expected (permission, time-out, network)."""


class ObjectMissingError(StorageError):
    """A file or object does not exist (any more); the reader that asked says what that means."""


class DiffError(LakehouseError):
    """The difference between two versions cannot be computed by the method asked for."""


class DiffColumnError(DiffError):
    """A column that is asked for as a key, or to compare, is not there."""

    exit_code = 3


class BisectError(LakehouseError):
    """The search for a first bad version cannot begin or go on: an end is not what it was said to be."""


class NothingBrokenError(BisectError):
    """The bad end satisfies the condition: good news for whoever looked, and no search."""


class StreamError(LakehouseError):
    """A stream cannot do what was asked."""


class StreamNotFoundError(StreamError):
    """No stream of this name is declared."""

    exit_code = 3


class CheckpointError(StreamError):
    """A file of a checkpoint is missing, or cannot be read. `file` is its path below the checkpoint."""

    def __init__(self, message: str, *, file: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.file = file


class OverrideError(StreamError):
    """A stream cannot be given this setting."""

    exit_code = 2


class StreamRefusedError(StreamError):
    """The act is refused: wrong state, owned by another host, read-only front end, or no reason given."""

    exit_code = 4


class LoginRefusedError(LakehouseError):
    """Nobody is logged in here, or the login does not count (any more)."""


class JobError(LakehouseError):
    """A job of a stream host did not come to its end."""


class JobResultMissingError(JobError):
    """What a job found was deleted, or lies where this process cannot read it."""


class JobNotFoundError(JobError):
    """No such job, or it was forgotten."""

    exit_code = 3


class IncidentNotFoundError(LakehouseError):
    """No incident has this number."""

    exit_code = 3


class StoreError(LakehouseError):
    """The control store did not answer as expected."""
