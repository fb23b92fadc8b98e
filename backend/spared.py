"""Packages that a process does without though they are installed: pyarrow and DuckDB import numpy and pandas for the
first array that they see, which is most of the time that a command or a query's process needs to start.

Rule: for the life of a process, so only where it is the program; before anything of pyarrow was imported.
"""

import sys


class _Spared:
    """Says that a package is not installed, as `sys.meta_path` asks."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, name: str, *_: object) -> None:
        if name == self.name:
            raise ModuleNotFoundError(f"{name} is spared", name=name)


def spare(*names: str) -> None:
    sys.meta_path[:0] = [_Spared(name) for name in names]


def allow_all() -> None:
    """For a command that needs them."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Spared)]
