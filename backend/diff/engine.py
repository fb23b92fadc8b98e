"""DuckDB for one computation: bounded memory, spill to a folder of its own, no extension, no network.

Rule: the only door to duckdb in the diff; its errors leave as `DiffError`.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from backend.errors import DiffError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MEMORY_LIMIT = "1GB"
THREADS = 2


@contextmanager
def engine() -> Iterator["DuckDBPyConnection"]:
    """A fresh in-memory database, gone with its spill files at the end."""
    import duckdb  # late: half a page load for whoever never diffs

    with tempfile.TemporaryDirectory(prefix="weir-diff-") as spill:
        connection = duckdb.connect(
            ":memory:",
            config={
                "memory_limit": MEMORY_LIMIT,
                "threads": THREADS,
                "temp_directory": spill,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "preserve_insertion_order": False,
            },
        )
        try:
            connection.execute("SET TimeZone = 'UTC'")
            yield connection
        except duckdb.OutOfMemoryException as exc:
            raise DiffError(
                f"the changes do not fit into {MEMORY_LIMIT} of memory and the disk", hint="compare a shorter range"
            ) from exc
        except duckdb.Error as exc:
            first_line = str(exc).splitlines()[0] if str(exc) else type(exc).__name__
            raise DiffError(f"the changes could not be computed: {first_line}") from exc
        finally:
            connection.close()
